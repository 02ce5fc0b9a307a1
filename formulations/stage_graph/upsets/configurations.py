"""Exact search over all partitions of small models where every stage has a micro-batch size, and a k, of its own.

Stages are taken from the last ones on: a set of operators whose successors all are taken may be the next one. What it
must keep in flight depends on the (i, b, k) of the stages behind it alone (Appendix A.1), and more of it at any of them
never means less. So a state is the set of operators that are taken, with the (i, b, k) of those whose predecessors are
not, and the question whether the devices that are left are enough for all else within a target: not if its work alone
takes more. Fewer devices of a stage leave more, so of each size and k the fewest are tried. The least target is one of
the times that stages can take. Nothing is left out.

Source: made for this project, after GraphPipe's Algorithm 1, without its series and branches.
"""

import bisect
import math
from collections.abc import Iterator
from typing import NamedTuple

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.stage_graph.costs.costs import Costs, bits, shortage
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import bottleneck_s, data_edges, least_in_flight
from formulations.stage_graph.upsets.bounds import simple_bound
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Limits, Prover, Stop, Watch

#: What the sums of seconds of a stage may lose to rounding.
_ROUNDING = 1e-9

#: Samples in flight, micro-batch size and k.
Configuration = tuple[int, int, int]
#: Operators that are taken, and the configurations of those with a predecessor that is not, by operator.
State = tuple[int, tuple[tuple[int, Configuration], ...]]


class StoppedError(Exception):
    """The watch is stopped."""


class Step(NamedTuple):
    """Devices that are enough from a state on, the stage that is taken next, and the state behind that."""

    devices: int
    stage: Stage | None = None
    rest: State = (0, ())


class Configurations:
    """The search of an instance, for one target after another."""

    def __init__(self, costs: Costs, watch: Watch) -> None:
        self.costs, self.watch = costs, watch
        self.states = 0
        self._in_flight: dict[tuple[int, int, frozenset[Configuration]], int] = {}
        self._known: dict[State, Step] = {}
        self._refuted: dict[State, float] = {}
        self._options: dict[tuple[int, frozenset[Configuration]], list[Stage]] = {}
        self._least_devices: dict[int, float] = {}

    def within(self, target_s: float) -> StagePlan | None:
        """A plan within the target, if there is one."""
        self.target_s = target_s
        self._known = {(self.costs.everything, ()): Step(0)}
        for table in (self._refuted, self._options, self._least_devices):
            table.clear()
        instance, stages = self.costs.instance, list[Stage]()
        state: State = (0, ())
        if not self._fits(state, instance.num_devices):
            return None
        while (step := self._known[state]).stage is not None:
            stages.append(step.stage)
            state = step.rest
        stages.reverse()
        idle = instance.num_devices - sum(stage.devices for stage in stages)
        return StagePlan(tuple(stages), data_edges(instance, stages), idle)

    def targets(self) -> list[float]:
        """All times per sample of stages, ascending."""
        instance, found = self.costs.instance, set()
        for nodes in {each for taken in self._upsets() for each in self._next(taken)}:
            for size in instance.microbatch_sizes:
                found |= {self.costs.tps(nodes, size, r) for r in range(1, min(size, instance.num_devices) + 1)}
        return sorted(found)

    def _fits(self, state: State, spare: float) -> bool:
        """Whether so many devices are enough from a state on; `_known` has the stage that is taken next."""
        if state in self._known and self._known[state].devices <= spare:
            return True
        if spare <= self._refuted.get(state, -1):
            return False
        if self.watch.stopped():
            raise StoppedError
        self.states += 1
        taken, behind = state
        for nodes in self._next(taken):
            least = self._work(self.costs.everything & ~(taken | nodes))
            if self._work(nodes) + least > spare:
                continue
            left = [(v, own) for v, own in behind if self.costs.predecessors[v] & ~(taken | nodes)]
            after = frozenset(own for v, own in behind if self.costs.predecessors[v] & nodes)
            waiting = [v for v in bits(nodes) if self.costs.predecessors[v] & ~(taken | nodes)]
            for stage in self._stages(nodes, after):
                if stage.devices + least <= spare:
                    own = (stage.in_flight, stage.microbatch, stage.k)
                    rest = (taken | nodes, tuple(sorted([*left, *((v, own) for v in waiting)])))
                    if self._fits(rest, spare - stage.devices):
                        self._known[state] = Step(stage.devices + self._known[rest].devices, stage, rest)
                        return True
        self._refuted[state] = spare
        return False

    def _work(self, nodes: int) -> float:
        """Devices that operators take at least within the target, by their work alone."""
        if nodes not in self._least_devices:
            work = self.costs.work_s(nodes) * (1 - _ROUNDING) if nodes else 0.0
            least = math.inf if self.target_s <= 0 else math.ceil(work / self.target_s)
            self._least_devices[nodes] = least if work > 0 else 0
        return self._least_devices[nodes]

    def _stages(self, nodes: int, after: frozenset[Configuration]) -> list[Stage]:
        """Ways to run operators as one stage within the target and the memory, each on the fewest devices."""
        if (nodes, after) not in self._options:
            self._options[nodes, after] = list(self._ways(nodes, after))
        return self._options[nodes, after]

    def _ways(self, nodes: int, after: frozenset[Configuration]) -> Iterator[Stage]:
        instance, costs = self.costs.instance, self.costs
        for size in instance.microbatch_sizes:
            degrees = range(1, min(size, instance.num_devices) + 1)
            fast = [r for r in degrees if costs.tps(nodes, size, r) <= self.target_s]
            for k in range(1, (instance.minibatch // size if instance.schedule == "kfkb" else 1) + 1):
                in_flight = self._least(size, k, after) if fast else 0
                fits = (r for r in fast if costs.memory(nodes, size, r, in_flight) <= instance.memory_bytes)
                if (degree := next(fits, None)) is not None:
                    yield Stage(tuple(bits(nodes)), degree, size, in_flight, k)

    def _least(self, size: int, k: int, after: frozenset[Configuration]) -> int:
        """What must be in flight at a stage, by the definition."""
        key = size, k, after
        if key not in self._in_flight:
            others = [Stage((), 1, b, i, k_y) for i, b, k_y in after]
            edges = tuple((0, number + 1) for number in range(len(others)))
            plan = StagePlan((Stage((), 1, size, size, k), *others), edges)
            self._in_flight[key] = least_in_flight(self.costs.instance, plan, 0)
        return self._in_flight[key]

    def _next(self, taken: int) -> Iterator[int]:
        """Sets of operators that may be the next stage: with it, too, what is taken holds all successors."""
        grown, free = [0], [v for v in range(self.costs.instance.num_operators - 1, -1, -1) if not taken >> v & 1]
        for v in free:  # successors come first
            grown += [nodes | 1 << v for nodes in grown if not self.costs.successors[v] & ~(taken | nodes)]
        return iter(grown[1:])

    def _upsets(self) -> set[int]:
        return {0, *self._next(0)} - {self.costs.everything}


def solve(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:  # noqa: ARG001
    """The optimum of a small instance with a micro-batch size (and a k) for each stage."""
    costs = Costs(instance)
    watch.bound(simple := simple_bound(costs, watch), Prover.BOUNDS)
    if short := shortage(instance):
        return infeasible_by_counting(short)
    search, best = Configurations(costs, watch), None
    try:
        targets = search.targets()
        high = len(targets)
        low = min(high - 1, bisect.bisect_left(targets, simple * (1 - _ROUNDING)))
        while low < high:
            # Without a plan the largest target says whether there is one.
            middle = high - 1 if best is None else (low + high) // 2
            found = search.within(targets[middle])
            if found is not None:
                best, high = found, middle
                watch.plan(found, bottleneck_s(instance, found))
            elif best is None:
                break
            else:
                low = middle + 1
                watch.bound(min(targets[middle], bottleneck_s(instance, best)) * (1 - _ROUNDING))
    except StoppedError:
        return Answer(watch.best_plan, watch.best_bound, stop=watch.why(), stats={"states": search.states})
    stats = {"states": search.states}
    if best is None:
        reason = "no partition fits into memory"
        return Answer(infeasible=True, stop=Stop.PROVED, stats=stats, reason=reason)
    value = bottleneck_s(instance, best)
    return Answer(best, value * (1 - _ROUNDING), stop=Stop.PROVED, stats=stats)
