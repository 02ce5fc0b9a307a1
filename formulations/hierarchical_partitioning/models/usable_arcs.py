"""Which superstages can be part of a plan that meets a target: the columns of the models of paths."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan
from formulations.hierarchical_partitioning.definition.problem import evaluate, violations
from formulations.hierarchical_partitioning.models.superstages import Floats, Superstages, largest_time
from formulations.modelling.solve_model import begin_with, check_stop
from formulations.stage_partitioning.models.usable_arcs import UNREACHED, WIDER, bound_by_steps, pareto_arcs
from solvers.outcome import Watch

#: Without a plan targets rise by this factor, the next one by its square, until some plan meets one.
_GROWTH = 1.25


class Arc(NamedTuple):
    """A superstage on ``devices`` machines, d_2, with degrees that sum to ``x`` in each, in front of degrees ``s``.

    ``inner`` and ``outer`` are positions of downsets; the arc leads from state (inner, s) to (outer, s + d_2 x).
    """

    inner: int
    outer: int
    s: int
    devices: int
    x: int
    time: float

    @property
    def tail(self) -> tuple[int, int]:
        """The state it leaves."""
        return self.inner, self.s

    @property
    def head(self) -> tuple[int, int]:
        """The state it enters."""
        return self.outer, self.s + self.devices * self.x


class Reach:
    """Which superstages can be part of a plan whose slowest one takes at most ``target``.

    ``forward[i, s]`` and ``backward[i, s]`` are the fewest machines from the empty set to state (downset i, s), and
    from there to a complete plan.
    """

    def __init__(self, superstages: Superstages, target: float) -> None:
        self.superstages, self.target = superstages, target
        self.last = len(superstages.downsets) - 1
        shape = self.last + 1, superstages.S + 1
        self.forward = np.full(shape, UNREACHED, np.int64)
        self.backward = np.full(shape, UNREACHED, np.int64)
        self.priced: dict[int, list[tuple[int, int, Floats]]] = {}
        for inner, outer, d2, times in superstages.within(target):
            self.priced.setdefault(inner, []).append((outer, d2, times))
        self._go_forward()
        self._go_backward()

    @property
    def possible(self) -> bool:
        """Whether some plan meets the target."""
        return bool(self.backward[0, 0] <= self.superstages.K2)

    def _columns(self, inner: int) -> Iterator[tuple[int, int, int, Floats]]:
        """Outer downset, d_2, x, and the times by the degrees s behind, of the superstages in front of a downset."""
        S, behind = self.superstages.S, self.superstages.behind
        for outer, d2, times in self.priced.get(inner, ()):
            for x in range(1, times.shape[1]):
                if np.isfinite(times[:, x]).any():
                    yield outer, d2, x, times[[behind(s, d2) for s in range(S - d2 * x + 1)], x]

    def _go_forward(self) -> None:
        self.forward[0, 0] = 0
        for inner in range(self.last):
            check_stop(self.superstages.watch)
            here = self.forward[inner]
            if here.min() >= self.superstages.K2:
                continue
            for outer, d2, x, times in self._columns(inner):
                after = np.where(np.isfinite(times), here[: len(times)] + d2, UNREACHED)
                there = self.forward[outer, d2 * x :]
                np.minimum(there, after, out=there)

    def _go_backward(self) -> None:
        self.backward[self.last] = 0
        for inner in reversed(range(self.last)):
            check_stop(self.superstages.watch)
            for outer, d2, x, times in self._columns(inner):
                before = np.where(np.isfinite(times), self.backward[outer, d2 * x :] + d2, UNREACHED)
                here = self.backward[inner, : len(times)]
                np.minimum(here, before, out=here)

    def arcs(self, *, whole: bool = False) -> list[Arc]:
        """The arcs of all plans that meet the target; unless ``whole``, none that another one dominates."""
        between: dict[tuple[tuple[int, int], tuple[int, int]], list[Arc]] = {}
        for inner in range(self.last):
            check_stop(self.superstages.watch)
            for outer, d2, x, times in self._columns(inner):
                machines = self.forward[inner, : len(times)] + d2 + self.backward[outer, d2 * x :]
                for s in np.flatnonzero(np.isfinite(times) & (machines <= self.superstages.K2)).tolist():
                    arc = Arc(inner, outer, s, d2, x, float(times[s]))
                    between.setdefault((arc.tail, arc.head), []).append(arc)
        return [arc for rivals in between.values() for arc in (rivals if whole else pareto_arcs(rivals))]

    def first(self) -> HierarchicalPlan:
        """A plan that meets the target, on the fewest machines; only where one is ``possible``."""
        state, taken = (0, 0), []
        while state[0] != self.last:
            inner, s = state
            arc = next(
                Arc(inner, outer, s, d2, x, float(times[s]))
                for outer, d2, x, times in self._columns(inner)
                if s < len(times)
                and np.isfinite(times[s])
                and self.backward[outer, s + d2 * x] + d2 == self.backward[inner, s]
            )
            taken.append(arc)
            state = arc.head
        return self.plan(taken)

    def plan(self, taken: list[Arc]) -> HierarchicalPlan:
        """The plan of a path, of arcs in any order."""
        found = [
            self.superstages.superstage(arc.inner, arc.outer, arc.s, arc.devices, arc.x, self.target)
            for arc in sorted(taken)
        ]
        return HierarchicalPlan(tuple(reversed(found)))


def first_reach(superstages: Superstages, watch: Watch, *, complete: bool) -> Reach:
    """The superstages of all plans hardly slower than a known one: the watch's, improved to within `COARSE`.

    Without a known plan targets rise until some plan meets one, which is reported to the watch. All superstages if
    ``complete``, or where no plan exists. This only makes the model small; what it learns about targets that cannot be
    met is not used in the proof.
    """
    instance, most = superstages.instance, largest_time(superstages.instance, superstages.terms)
    if complete:
        return Reach(superstages, most)

    def report(reach: Reach) -> float:
        plan = reach.first()
        begin_with(instance, plan, evaluate, violations, watch)
        return min(evaluate(instance, plan), reach.target)

    low, high = superstages.terms.lower_bound / superstages.K2 or most * 2.0**-40, watch.best_objective
    least, growth = low, _GROWTH
    while high is None:
        reach = Reach(superstages, low * growth)
        if reach.possible:
            high = report(reach)
        elif low >= most:
            return reach
        else:
            low, growth = low * growth, growth**2
    return Reach(
        superstages, bound_by_steps(lambda target: Reach(superstages, target), least, high, report) * (1 + WIDER)
    )
