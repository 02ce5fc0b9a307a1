"""The stages of a flushed pipeline as columns: what `milp_columns` is made of.

A stage with degrees (t, d) in front of degrees that sum to s has one step time c, a knapsack's (`prices`), and one
synchronisation r, as all TMPCs of a node have the same weights at a t. A plan is a path of stages through states
(downset, s), as without flushes (`stage_partitioning.models.milp_columns`); beside it the model has

    C >= c(a),  R >= r(a)  for every stage a of the path,   total = (1 + (L - 1) / m) C + R

where L, the stages on the longest path of the stage graph, comes from levels of nodes. Where replicas fill, levels are
sums of t(a) = d c(a) on paths, the largest of which is S::

    P >= (ceil(m/d) - 1) t(a)  for every stage a of the path,   total = (S + P) / m + R

Source: this project; downsets, states and prices are Piper's, section 4. Symbols as in the room's README.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

from formulations.flushed_partitioning.definition.problem import evaluate, violations
from formulations.modelling.solve_model import begin_with
from formulations.stage_partitioning.model_size import MAX_DOWNSETS
from formulations.stage_partitioning.models.assignment_data import Chosen, Terms
from formulations.stage_partitioning.models.stage_costs import SAME, Block, Prices
from formulations.stage_partitioning.models.usable_arcs import WIDER, Arc, Reach
from instances.graph import adjacency, downsets
from instances.problems.flushed_partitioning import Fill, FlushedInstance, Schedule
from solvers.outcome import Watch

#: What the model's groups say beyond those of the flat columns; the source stands in brackets at the end.
SENTENCES = {
    "time": "C, compute and communication of the slowest stage per micro-batch",
    "synchronisation": "R, the longest synchronisation of a stage per micro-batch",
    "total": "the objective: (1 + (L - 1) / m) C + R, or (S + P) / m + R where replicas fill",
    "deep": "deep[l]: some path may have l stages or more",
    "level": "level[v]: at least the stages on the longest path from node v's stage on, itself included",
    "stage_time": "C is at least the step of the stage that holds v: sum over the arcs a that hold v of c(a) flow[a] "
    "<= C",
    "stage_synchronisation": "R is at least the synchronisation of the stage that holds v: sum over the arcs a that "
    "hold v of r(a) flow[a] <= R",
    "deeper": "a path of l stages has one of l - 1 in it: deep[l] <= deep[l-1]",
    "path_depth": "L is at least the stages that a longest path of nodes goes through; on a chain those are all",
    "level_depth": "and as much as every level: level[v] <= 1 + sum over l of deep[l]",
    "edge_level": "where an edge (u,v) leaves a stage, u is one deeper: level[u] >= level[v] + 1 - together(u,v)",
    "same_level": "nodes of a stage have one level: level[u] >= level[v] - (most - 1) (1 - together(u,v)); big-M: "
    "levels are from 1 to the most stages",
    "fill": "S, the sum of t on the heaviest path, with t = d c a stage's time for a micro-batch on a replica",
    "later": "P, the most that the busiest replica of a stage runs behind its first micro-batch",
    "path": "path[v]: at least the sum of t on the heaviest path from node v's stage on, itself included",
    "path_ends": "a path has its first stage: path[v] >= sum over the arcs a that hold v of t(a) flow[a]",
    "edge_path": "where an edge (u,v) leaves a stage, u's is in front: path[u] >= path[v] + sum over the arcs a that "
    "hold u and not v of t(a) flow[a]",
    "same_path": "nodes of a stage have one path: path[u] >= path[v] - most (1 - together(u,v)); big-M: no path takes "
    "more than all layers in stages of their own",
    "heaviest": "no path is heavier than S: path[v] <= S; on a chain sum over all arcs a of t(a) flow[a] <= S",
    "later_rounds": "P is at least that of the stage that holds v: sum over the arcs a that hold v of "
    "(ceil(m/d) - 1) t(a) flow[a] <= P",
    "batch_time": "a batch takes a micro-batch on the heaviest path, and all others of the busiest replica: "
    "m total >= S + P + m R",
    "steps": "implied: m C is at most what a replica runs, of which S has one micro-batch and P the others",
}

#: Without a plan targets rise by this factor, the next one by its square, until some plan meets one.
_GROWTH = 1.25


class _AllInFlight(Prices):
    """Prices under GPipe: ceil(m/d) micro-batches are in flight, whatever is behind a stage."""

    def price(self, block: Block, t: int, d: int, in_flight: int, limit: float) -> tuple[float, Chosen] | None:
        """As in the flat problem; ``in_flight`` does not count."""
        del in_flight
        return super().price(block, t, d, -(-self.terms.instance.num_microbatches // d), limit)


class Columns(Reach):
    """The stages of all plans that take at most ``target``, and what the model says of depth."""

    def __init__(self, instance: FlushedInstance, prices: Prices, target: float) -> None:
        self.flushed = instance
        super().__init__(prices, target)

    def synchronisation(self, arc: Arc) -> float:
        """r: exchange of a stage's gradients after the batch, per micro-batch of it."""
        flat, d = self.flushed.flat, arc.dp_degree
        weights = [flat.layers[v].tmpcs[arc.tp_degree][0].weight_bytes for v in arc.block.nodes]
        return 4 * (d - 1) / d * math.fsum(weights) / flat.bandwidth / flat.num_microbatches

    @property
    def by_replicas(self) -> bool:
        """Whether replicas fill."""
        return self.flushed.fill is Fill.REPLICAS

    def replica_time(self, arc: Arc) -> float:
        """t(a): a stage's time for a micro-batch on a replica."""
        return arc.dp_degree * arc.time

    def later_rounds(self, arc: Arc) -> float:
        """(ceil(m/d) - 1) t(a)."""
        return (-(-self.flushed.flat.num_microbatches // arc.dp_degree) - 1) * self.replica_time(arc)

    @property
    def longest(self) -> float:
        """No path of stages takes longer for a micro-batch: all layers do not, nor m times a plan within the target."""
        within = self.target * (1 + SAME) * self.flushed.flat.num_microbatches
        return min(self.prices.terms.largest_time, within)

    def arcs(self, *, whole: bool = False) -> list[Arc]:
        """The arcs of all plans within the target; unless ``whole``, none that another one dominates.

        An arc takes c + r at least, or ceil(m/d) t/m + r where replicas fill. Of arcs between the same states another
        is no worse in devices, c and r.
        """
        priced = [(arc, self.synchronisation(arc)) for arc in super().arcs(whole=True)]
        m = self.flushed.flat.num_microbatches
        within = []
        for arc, sync in priced:
            least = (self.replica_time(arc) + self.later_rounds(arc)) / m if self.by_replicas else arc.time
            if least + sync <= self.target * (1 + SAME):
                within.append((arc, sync))
        if whole:
            return [arc for arc, _ in within]
        between: dict[tuple[tuple[int, int], tuple[int, int]], list[tuple[int, float, float, int]]] = {}
        for a, (arc, sync) in enumerate(within):
            between.setdefault((arc.tail, arc.head), []).append((arc.devices, arc.time, sync, a))
        kept = [a for rivals in between.values() for a in _pareto_arcs(sorted(rivals))]
        return [within[a][0] for a in sorted(kept)]

    @property
    def is_chain(self) -> bool:
        """Whether every stage follows the one before it: L is then the number of stages."""
        return all(not small & ~large for small, large in pairwise(self.prices.downsets))

    @property
    def most_stages(self) -> int:
        """No plan has more stages."""
        return len(self.prices.terms.stages)

    def longest_path(self) -> list[int]:
        """The nodes of a longest path of the graph."""
        after, _ = adjacency(len(self.prices.terms.nodes), self.flushed.flat.edge_indices)
        length: dict[int, int] = {}
        for bits, larger in pairwise(self._one_by_one()):
            node = (larger & ~bits).bit_length() - 1
            length[node] = 1 + max((length[v] for v in after[node]), default=0)
        path = [max(length, key=length.__getitem__)] if length else []
        while path and after[path[-1]]:
            path.append(max(after[path[-1]], key=length.__getitem__))
        return path

    def _one_by_one(self) -> list[int]:
        """Downsets that grow by one node at a time."""
        found = [0]
        for bits in self.prices.downsets:
            if bits.bit_count() == len(found) and not found[-1] & ~bits:
                found.append(bits)
        return found


def _pareto_arcs(rivals: list[tuple[int, float, float, int]]) -> Iterator[int]:
    """The last entries of those that no other is at most as large as in the first three."""
    kept: list[tuple[float, float]] = []
    for _, time, sync, a in rivals:
        if not any(own <= time and other <= sync for own, other in kept):
            kept.append((time, sync))
            yield a


def columns_of(instance: FlushedInstance, watch: Watch, *, complete: bool) -> Columns:
    """The stages of all plans that are hardly slower than the watch's best one.

    Of all plans if ``complete``, or where no plan is known that meets the instance's requirements. Without a known plan
    and requirements the steps' target rises until a plan meets it, which is reported to the watch. Raises
    `formulations.modelling.solve_model.Stopped` once the watch is.
    """
    found = downsets(len(instance.flat.layers), instance.flat.edge_indices, MAX_DOWNSETS)
    if found is None:
        raise ValueError(f"the graph has more than {MAX_DOWNSETS} downsets")
    terms = Terms(instance.weightless)
    kind = _AllInFlight if instance.schedule is Schedule.GPIPE else Prices
    prices, known = kind(terms, found, watch), watch.best_objective
    most = max(terms.largest_time, 1e-9) * 2
    most += 4 * Terms(instance.flat).largest_weight / instance.flat.bandwidth / instance.flat.num_microbatches
    if complete or (instance.requirements and known is None):
        return Columns(instance, prices, most)
    low, growth = terms.lower_bound or most * 2.0**-40, _GROWTH
    while known is None and low < most:
        low, growth = low * growth, growth**2
        within = Columns(instance, prices, min(low, most))
        if within.possible:
            plan = within.plan()
            begin_with(instance, plan, evaluate, violations, watch)
            known = evaluate(instance, plan)
    return Columns(instance, prices, most if known is None else known * (1 + WIDER))
