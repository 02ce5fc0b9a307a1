"""The shortest iteration in CP-SAT: the model of partitions, and when each pass of 1F1B ends at every stage.

Rows on partition, devices, micro-batch size and samples in flight are those of Equation 1's model (`models.cpsat`),
here with plans that keep more in flight than they must. With l micro-batches in flight a stage's order is
F^l (B F)* B^l: forward pass j + l comes after its backward pass j, and that after its forward pass j + l - 1. Both hold
of every d beside l on its own side: of d <= l the second, of d >= l the first. So the literals ``deep[s,d]`` that say
l >= d are all that the order needs.

Costs are rounded down as there. Source: this project; the order is that of 1F1B (GraphPipe, section 6). Nothing of the
search (`iteration.search`) is in it, neither bounds nor plans.
"""

from collections.abc import Iterator
from math import prod
from typing import Any

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements, prove
from formulations.modelling.warm_start import First
from formulations.stage_graph.costs.costs import Costs
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import evaluate, reduce_s, replica_samples, violations
from formulations.stage_graph.definition.quantities import VOCABULARY
from formulations.stage_graph.models import cpsat as equation_1
from formulations.stage_graph.models import usable_sizes, warm_ups_too_many
from formulations.stage_graph.models.data import Data, Index, Units, longest_s
from formulations.stage_graph.models.first_plan import unshared
from formulations.stage_graph.paper import fewest_devices
from formulations.stage_graph.upsets.bounds import simple_bound
from instances.problems.stage_graph import OperatorEdge, StageGraph
from solvers.build_stop import stops_with
from solvers.cpsat import backend as cpsat
from solvers.memory_budget import SizeError
from solvers.outcome import Limits, Watch
from solvers.scaling import cost_scale


def build(data: Data) -> tuple[cpsat.SpokenModel, equation_1.Variables]:
    """Equation 1's model without its objective, with every pass of every size."""
    model, x = equation_1.build(data)
    equation_1.strengthen(model, data, x)
    instance, places, minibatch = data.instance, data.places, data.instance.minibatch
    nodes, edges = range(instance.num_operators), range(len(instance.edges))
    ends = [(edge.source, edge.target) for edge in instance.edges]
    passes = [(b, s, j) for b in data.sizes for s in places for j in range(minibatch // b)]
    pairs = [(s, t) for s in places for t in places[s + 1 :]]
    latest = 2 * data.high * minibatch  # all passes of all stages in turn, tensors at both ends

    # fmt: off
    forward = model.integers("forward", places, 0, latest, "forward[s]: F of a micro-batch at stage s")
    backward = model.integers("backward", places, 0, latest, "backward[s]: B of a micro-batch at stage s")
    ahead = model.booleans("ahead", pairs, "ahead[s,t]: a tensor goes from stage s to stage t")
    f_end = model.integers("f_end", passes, 0, latest, "f_end[b,s,j]: when F of micro-batch j of b samples ends there")
    b_end = model.integers("b_end", passes, 0, latest, "b_end[b,s,j]: when B of micro-batch j of b samples ends there")
    reduction = model.integer("reduction", 0, latest, "the longest all-reduce of a stage")
    total = model.integer("total", 0, latest, "the objective: seconds of an iteration, in whole units")

    def of_size(b: int) -> list[Any]:
        return [x.size[b]] if x.size else []

    def deep(s: int, d: int) -> list[Any]:  # of all stages one micro-batch is in flight
        return [x.deep[s, d]] if d > 1 else []

    def takes(b: int, s: int, r: Index, kind: str) -> Any:
        once, left, entered = _of_pass(data, b, r, kind)
        return cpsat.weighted_sum([*zip(once, (x.within[v, s] for v in nodes), strict=True)]) + sum(
            left[e] * (x.within[u, s] - x.inner[e, s]) + entered[e] * (x.within[v, s] - x.inner[e, s])
            for e, (u, v) in enumerate(ends))

    own_time = {"F": forward, "B": backward}
    model.rows("pass_time", [(b, s, *r, k) for b in data.sizes for s in places for r in data.degrees if r[0] <= b
                             for k in own_time],
        lambda b, s, *r: (takes(b, s, r[:-1], r[-1]) <= own_time[r[-1]][s], x.degree[s, *r[:-1]], *of_size(b)),
        "F and B of a micro-batch: its samples on the fullest of r replicas, and tensors in and out")
    model.rows("ahead_of", [(e, s, t) for e in edges for s, t in pairs],
        lambda e, s, t: model.add_bool_or(~x.within[ends[e][0], s], ~x.within[ends[e][1], t], ahead[s, t]),
        "an edge from an operator of s to one of t is a tensor between the stages [GraphPipe, section 3, C2]")
    model.rows("first_pass", [(b, s) for b in data.sizes for s in places],
        lambda b, s: (f_end[b, s, 0] >= forward[s], *of_size(b)),
        "no pass begins before the iteration does")
    model.rows("f_after_f", [at for at in passes if at[2]],
        lambda b, s, j: (f_end[b, s, j] >= f_end[b, s, j - 1] + forward[s], *of_size(b)),
        "forward passes run one after the other [GraphPipe, section 3, C4]")
    model.rows("b_after_b", [at for at in passes if at[2]],
        lambda b, s, j: (b_end[b, s, j] >= b_end[b, s, j - 1] + backward[s], *of_size(b)),
        "and so do backward passes [GraphPipe, section 3, C4]")
    model.rows("f_after_ahead", [(b, *pair, j) for b in data.sizes for pair in pairs for j in range(minibatch // b)],
        lambda b, s, t, j: (f_end[b, t, j] >= f_end[b, s, j] + forward[t], ahead[s, t], *of_size(b)),
        "F waits for F of every stage that sends a tensor")
    model.rows("b_after_behind", [(b, *pair, j) for b in data.sizes for pair in pairs for j in range(minibatch // b)],
        lambda b, s, t, j: (b_end[b, s, j] >= b_end[b, t, j] + backward[s], ahead[s, t], *of_size(b)),
        "B waits for B of every stage that got one")
    model.rows("b_after_warm_up", [(b, s, j, d) for b, s, j in passes for d in range(1, minibatch // b - j + 1)],
        lambda b, s, j, d: (b_end[b, s, j] >= f_end[b, s, j + d - 1] + backward[s], *deep(s, d), *of_size(b)),
        "with d micro-batches in flight or more B number j comes after F number j + d - 1")
    model.rows("f_after_warm_up", [(b, s, j, d) for b, s, j in passes for d in range(1, minibatch // b - j)],
        lambda b, s, j, d: (f_end[b, s, j + d] >= b_end[b, s, j] + forward[s],
                            *(~each for each in deep(s, d + 1)), *of_size(b)),
        "with d or fewer F number j + d comes after B number j")
    model.rows("all_reduce", [(s, *r) for s in places for r in data.degrees if r[0] > 1],
        lambda s, *r: (cpsat.weighted_sum(zip(_of_ring(data, r)[0], (x.within[v, s] for v in nodes), strict=True))
                       + _of_ring(data, r)[1] <= reduction, x.degree[s, *r]),
        "the all-reduce of a stage, once in an iteration")
    model.rows("ended", [(b, s) for b in data.sizes for s in places],
        lambda b, s: (total >= b_end[b, s, minibatch // b - 1] + reduction, *of_size(b)),
        "an iteration ends with the last pass of all stages and the longest all-reduce after it")
    # Each of the passes of a stage is rounded down, and so is each term of the slowest stage's time per sample.
    lost = 2 * minibatch * (instance.num_operators + 2 * len(edges) + 2)
    model.row("busy", total + lost >= minibatch * x.bottleneck,
        "implied: a stage is busy for B times its time per sample by Equation 1, which is at most the iteration")
    # fmt: on
    model.clear_objective()
    model.minimize(total)
    return model, x


def _of_pass(data: Data, size: int, r: Index, kind: str) -> tuple[Units, Units, Units]:
    """What one pass takes: of each operator that the stage has, of each edge that leaves it, and that enters it."""
    instance, samples, shards = data.instance, replica_samples(size, r[0]), data.shards(r)
    seconds = [(s.forward if kind == "F" else s.backward).at(samples) + reduce_s(instance, s, samples) for s in shards]

    def sent(edge: OperatorEdge, spread: float) -> int:
        volume = edge.bytes_per_sample * (1 + spread) * samples
        return data.scale.floor(instance.latency_s + volume / instance.bandwidth_bytes_per_s)

    left = [sent(each, shards[each.source].spread_outputs) for each in instance.edges]
    entered = [sent(each, shards[each.target].spread_inputs) for each in instance.edges]
    return [*map(data.scale.floor, seconds)], left, entered


def _of_ring(data: Data, r: Index) -> tuple[Units, int]:
    """What an all-reduce takes: of each operator that the stage has, and for its messages."""
    rate = 2 * (r[0] - 1) / r[0] / data.instance.reduce_bandwidth(prod(r))
    weights = [data.scale.floor(rate * each.weight_bytes) for each in data.shards(r)]
    return weights, data.scale.floor(2 * r[0] * data.instance.latency_s)


class Model(equation_1.Model):
    """The model of ``data``."""

    def values_of(self, plan: StagePlan) -> Iterator[tuple[Any, int]]:
        """The partition, degrees and size of a plan, and what is in flight at its operators."""
        yield from super().values_of(plan)
        counts = {v: stage.in_flight // stage.microbatch for stage in plan.stages for v in stage.nodes}
        yield from ((each, int(counts[v] >= d)) for (v, d), each in self.decisions.behind.items())


def model_of(instance: StageGraph, watch: Watch | None = None, *, complete: bool = False) -> Model:  # noqa: ARG001
    """The model of all plans with one size for all stages, with the requirements; nothing of it is pruned.

    `formulations.modelling.solve_model.Stopped` once ``watch`` is stopped.

    `SizeError` if there are too many passes.
    """
    if (reason := warm_ups_too_many(instance)) is not None:
        raise SizeError(reason)
    operators, edges = instance.num_operators, len(instance.edges)
    longest = longest_s(instance)
    # A path through all passes has a term for each operator and two for each edge in each of both directions.
    terms = 2 * instance.minibatch * (operators + 2 * edges) + operators + 1
    least = instance.minibatch * simple_bound(Costs(instance))
    scale = cost_scale(least, terms, longest * (4 * instance.minibatch + instance.num_devices + 4))
    groups = tuple((size,) for size in usable_sizes(instance))
    data = Data(instance, groups, scale, scale.ceil(longest), watch or Watch(), declared=True)
    with stops_with(data.watch):
        return add_requirements(Model(*build(data), data), VOCABULARY, instance)


def solve(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The shortest iteration by CP-SAT, from the plan of ``graphpipe-plus`` on."""
    first = First("graphpipe-plus", lambda part: fewest_devices.solve(unshared(instance), limits, part))
    return prove(instance, lambda: model_of(instance, watch), evaluate, violations, limits, watch, first=first,
                 reason="no partition fits into memory")  # fmt: skip
