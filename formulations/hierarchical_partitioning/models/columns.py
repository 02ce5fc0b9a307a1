"""A plan as a path of superstages that are priced beforehand: what `milp_columns` is made of.

The states are (D, s): the downset D of the nodes planned so far, from the output side, and the sum s of their stages'
degrees d_1 d_2. A superstage D \\ D' on d_2 machines, in which degrees d_1 sum to x, is an arc from (D', s) to
(D, s + d_2 x); with s known, so is its time (`superstages`). A plan is a path from (empty set, 0) to (V, s)::

    min T   one path,  on at most K_2 machines,  sum of time(a) flow[a] over the arcs a that hold v <= T  for every v

Only arcs are built that are hardly slower than a known plan, and that some plan as fast can have (`usable_arcs`).

Source: this project; the problem is Piper's, Appendix E.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan
from formulations.hierarchical_partitioning.methods import MAX_DOWNSETS
from formulations.hierarchical_partitioning.models.superstages import Superstages
from formulations.hierarchical_partitioning.models.usable_arcs import Arc, Reach, first_reach
from formulations.modelling.layered_paths import JoinedStates, arcs_on
from formulations.modelling.solve_model import WithoutSizes
from formulations.stage_partitioning.models.usable_arcs import WIDER
from instances.problems.hierarchical_partitioning import HierarchicalInstance
from solvers.milp.backend import weighted_sum
from solvers.outcome import Watch


@dataclass(frozen=True)
class Data(JoinedStates):
    """Arcs a, which take ``times[a]`` units of ``unit`` seconds; ``most`` units are more than a plan takes."""

    reach: Reach
    arcs: Sequence[Arc]
    times: Sequence[float]
    unit: float
    most: float

    @cached_property
    def inner(self) -> list[int]:
        """D' of every arc, as bits."""
        return [self.reach.superstages.downsets[arc.inner] for arc in self.arcs]

    @cached_property
    def nodes(self) -> list[int]:
        """D \\ D' of every arc, as bits."""
        return [
            self.reach.superstages.downsets[arc.outer] & ~inner
            for arc, inner in zip(self.arcs, self.inner, strict=True)
        ]

    @cached_property
    def arcs_of(self) -> Mapping[int, list[int]]:
        """The arcs that hold each node."""
        return {v: [a for a, own in enumerate(self.nodes) if own >> v & 1] for v in self.reach.superstages.terms.nodes}

    @property
    def last(self) -> int:
        """The downset of all nodes."""
        return self.reach.last


class Paths(WithoutSizes):
    """A model of paths: ``flow[a]`` takes arc a."""

    data: Data
    flow: Any

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of superstages, as sums over the path; what is inside of them is priced, and not decided."""
        data, index = self.data, self.data.reach.superstages.instance.flat.index

        def total(factors: Iterable[int]) -> Any:
            return weighted_sum((factor, self.flow[a]) for a, factor in enumerate(factors) if factor)

        return {
            "num_superstages": lambda: total(1 for _ in data.arcs),
            "num_machines": lambda: total(arc.devices for arc in data.arcs),
            # A superstage in front of a node's is planned after it: the node is in its inner downset.
            "superstage_of": lambda node: total(bits >> index[node] & 1 for bits in data.inner),
            "same_superstage": lambda node, other: total(
                bits >> index[node] & bits >> index[other] & 1 for bits in data.nodes
            ),
        }

    def values_of(self, plan: HierarchicalPlan) -> Iterator[tuple[Any, int]]:
        """The path of a plan, as pairs of a variable and its value; a dominated superstage by one that dominates it."""
        data = self.data
        path, bits, s = dict[Any, int](), 0, 0
        for superstage in reversed(plan.stages):
            tail = bits, s
            index = data.reach.superstages.instance.flat.index
            bits |= sum(1 << index[node] for stage in superstage.inner for node in stage.nodes)
            s += superstage.dp_degree * sum(stage.dp_degree for stage in superstage.inner)
            path[tail, (bits, s)] = superstage.dp_degree
        ends = [
            ((data.inner[a], arc.s), (data.inner[a] | data.nodes[a], arc.head[1])) for a, arc in enumerate(data.arcs)
        ]
        on_path = arcs_on(path, ends, [arc.devices for arc in data.arcs])
        yield from ((self.flow[a], int(a in on_path)) for a in range(len(data.arcs)))

    def decode(self, values: Any) -> HierarchicalPlan:
        """The plan of a solution."""
        return self.data.reach.plan([arc for a, arc in enumerate(self.data.arcs) if values[self.flow[a]] > 0.5])

    def counts(self) -> dict[str, int]:
        """For ``stats``."""
        return {"downsets": len(self.data.reach.superstages.downsets), "arcs": len(self.data.arcs)}


def usable(instance: HierarchicalInstance, watch: Watch, *, complete: bool) -> tuple[Reach, list[Arc]]:
    """The superstages of a model: of all plans that are hardly slower than the watch's best one (`first_reach`).

    Of all plans if ``complete``, or where no plan is known that meets the instance's requirements, which may ask for
    arcs that others dominate.

    `formulations.modelling.solve_model.Stopped`: once the watch is.
    `ValueError` if the instance has too many downsets.
    """
    superstages, known = Superstages(instance, MAX_DOWNSETS, watch), watch.best_objective
    whole = complete or bool(instance.requirements)
    if instance.requirements and not complete and known is not None:  # a better plan need not meet them
        reach = Reach(superstages, known * (1 + WIDER))
    else:
        reach = first_reach(superstages, watch, complete=whole)
    return reach, reach.arcs(whole=whole)
