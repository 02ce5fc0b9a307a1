"""A plan as a path of superstages that are priced beforehand: what the models of both solvers have in common.

The states are (D, s): the downset D of the nodes planned so far, from the output side, and the sum s of their stages'
degrees d_1 d_2. A superstage D \\ D' on d_2 machines, in which degrees d_1 sum to x, is an arc from (D', s) to
(D, s + d_2 x); with s known, so is its time (`superstages`). A plan is a path from (empty set, 0) to (V, s)::

    min T   one path,  on at most K_2 machines,  sum of time(a) flow[a] over the arcs a that hold v <= T  for every v

Only arcs are built that are hardly slower than a known plan, and that some plan as fast can have (`reach`).

Source: this project; the problem is Piper's, Appendix E.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from formulations.contract.family import Answer
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan
from formulations.hierarchical_partitioning.definition.problem import evaluate, violations
from formulations.hierarchical_partitioning.methods import MAX_DOWNSETS
from formulations.hierarchical_partitioning.models.first_plan import first_plan
from formulations.hierarchical_partitioning.models.superstages import Superstages
from formulations.hierarchical_partitioning.models.usable_arcs import WIDER, Reach, first_reach
from formulations.modelling.solve_model import Model, WithoutSizes, prove
from instances.problems.hierarchical_partitioning import HierarchicalInstance
from solvers.outcome import Limits, Watch

START = (0, 0)

#: What the groups of both models say; the source stands in brackets at the end.
SENTENCES = {
    "time": "T, the time per sample: that of the slowest superstage [Piper, Appendix E]",
    "flow": "flow[a]: the plan has the superstage of arc a: nodes D \\ D' on d_2 machines, in which degrees d_1 sum to "
    "x, in front of degrees that sum to s",
    "one_path": "one path begins at the empty set: sum over the arcs a that leave it of flow[a] = 1",
    "conserved": "it leaves a state (D,s) as often as it enters it, up to V: sum over a that leave of flow[a] = sum "
    "over a that enter of flow[a]",
    "machines": "the superstages of the path take at most K_2 machines: sum over a of d_2 flow[a] <= K_2 [Piper, "
    "Appendix E]",
    "superstage_time": "T is at least the time of the superstage that holds v, its link or its slowest stage: sum over "
    "the arcs a that hold v of time(a) flow[a] <= T [Piper, Appendix E]",
}


class Paths(WithoutSizes, ABC):
    """A model of paths: ``flow(a)`` is the variable of arc a."""

    def __init__(self, reach: Reach, watch: Watch, *, whole: bool) -> None:
        self.reach, self.watch, self.arcs = reach, watch, reach.arcs(whole=whole)
        downsets = reach.superstages.downsets
        self.bits = [downsets[arc.outer] & ~downsets[arc.inner] for arc in self.arcs]
        self.index = reach.superstages.instance.flat.index

    @abstractmethod
    def flow(self, a: int) -> Any:
        """1 if the path has arc a."""

    @abstractmethod
    def total(self, factor: Callable[[int], int]) -> Any:
        """A whole number of every arc of the path, summed."""

    def ends(self) -> tuple[dict[tuple[int, int], list[int]], dict[tuple[int, int], list[int]]]:
        """The arcs that leave each state, and those that enter it."""
        leaving: dict[tuple[int, int], list[int]] = {}
        entering: dict[tuple[int, int], list[int]] = {}
        for a, arc in enumerate(self.arcs):
            leaving.setdefault(arc.tail, []).append(a)
            entering.setdefault(arc.head, []).append(a)
        return leaving, entering

    def between(self) -> list[tuple[int, int]]:
        """The states that a path goes through."""
        leaving, entering = self.ends()
        return [at for at in sorted(leaving.keys() | entering.keys()) if at != START and at[0] != self.reach.last]

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of superstages, as sums over the path; what is inside of them is priced, and not decided."""
        inner = [self.reach.superstages.downsets[arc.inner] for arc in self.arcs]

        def holds(a: int, *nodes: Any) -> int:
            return int(all(self.bits[a] >> self.index[node] & 1 for node in nodes))

        return {
            "num_superstages": lambda: self.total(lambda _: 1),
            "num_machines": lambda: self.total(lambda a: self.arcs[a].devices),
            # A superstage in front of a node's is planned after it: the node is in its inner downset.
            "superstage_of": lambda node: self.total(lambda a: inner[a] >> self.index[node] & 1),
            "same_superstage": lambda node, other: self.total(lambda a: holds(a, node, other)),
        }

    def values_of(self, plan: HierarchicalPlan) -> Iterator[tuple[Any, int]]:
        """The path of a plan, as pairs of a variable and its value; a dominated superstage by one that dominates it."""
        downsets = self.reach.superstages.downsets
        path, bits, s = {}, 0, 0
        for superstage in reversed(plan.stages):
            tail = bits, s
            bits |= sum(1 << self.index[node] for stage in superstage.inner for node in stage.nodes)
            s += superstage.dp_degree * sum(stage.dp_degree for stage in superstage.inner)
            path[tail, (bits, s)] = superstage.dp_degree
        taken: dict[Any, int] = {}
        for a, arc in enumerate(self.arcs):
            ends = (downsets[arc.inner], arc.s), (downsets[arc.outer], arc.head[1])
            if arc.devices <= path.get(ends, 0) and (ends not in taken or arc.devices > self.arcs[taken[ends]].devices):
                taken[ends] = a
        on_path = set(taken.values())
        yield from ((self.flow(a), int(a in on_path)) for a in range(len(self.arcs)))

    def decode(self, values: Any) -> HierarchicalPlan:
        """The plan of a solution."""
        return self.reach.plan([arc for a, arc in enumerate(self.arcs) if values[self.flow(a)] > 0.5])

    def counts(self) -> dict[str, int]:
        """For ``stats``."""
        return {"downsets": len(self.reach.superstages.downsets), "arcs": len(self.arcs)}


def reach_of(instance: HierarchicalInstance, watch: Watch, *, complete: bool) -> Reach:
    """The superstages of a model: of all plans that are hardly slower than the watch's best one (`first_reach`).

    Of all plans if ``complete``, or where no plan is known that meets the instance's requirements.

    Raises
    ------
    formulations.modelling.solve_model.Stopped
        Once the watch is.
    ValueError
        If the instance has too many downsets.
    """
    superstages, known = Superstages(instance, MAX_DOWNSETS, watch), watch.best_objective
    if instance.requirements and not complete and known is not None:  # a better plan need not meet them
        return Reach(superstages, known * (1 + WIDER))
    return first_reach(superstages, watch, complete=complete or bool(instance.requirements))


def solve_with(
    build: Callable[[], Model[HierarchicalPlan]], instance: HierarchicalInstance, limits: Limits, watch: Watch
) -> Answer[HierarchicalPlan]:
    """The optimum by a model of paths, which begins with the plan of `first_plan`."""
    first = first_plan(instance, limits)
    return prove(instance, build, evaluate, violations, limits, watch, to_scale=True, first=first)
