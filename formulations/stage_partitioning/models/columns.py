"""Stage partitioning as a flow of stages: every column is a stage that is priced beforehand.

The states are (D, s): the downset D of the nodes planned so far, from the output side, and the sum s of their stages'
data-parallel degrees. A stage S = D \\ D' with degrees (t, d) is an arc from (D', s - d) to (D, s) on t d devices. With
s known, so are the micro-batches in flight, and the least time TPS(S, t, d, s) is a knapsack (`prices`). A plan is a
path from (empty set, 0) to (V, s) with s <= N (or = N)::

    min T   one path, on at most K devices,   sum of TPS(a) flow[a] over the arcs a that hold v <= T  for every node v

It is Piper's dynamic program (section 4) as a shortest path. Only arcs that are hardly slower than a known plan are
built. That plan comes from a pass over coarse targets (`first_reach`); the proof is the solver's alone. Exact for the
instance as declared, like the other models.

Source: this project; downsets, states and TPS(S, t, d, s) are Piper's, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyomo.environ as pyo

from formulations.family import Answer
from formulations.modelled import WithoutSizes, go_on
from formulations.stage_partitioning.models.prices import Block, Prices
from formulations.stage_partitioning.models.size import MAX_DOWNSETS, columns_supports
from formulations.stage_partitioning.models.solving import prove
from formulations.stage_partitioning.models.terms import Chosen, Terms
from formulations.stage_partitioning.problem import StagePlan, evaluate, violations
from instances.graph import downsets
from instances.stage_partitioning import StageInstance
from solvers import milp
from solvers.milp import until_stopped, weighted_sum
from solvers.outcome import Limits, Prover, Run, Stop, Watch

#: A first plan is good enough within this part of the best one.
COARSE = 0.01

#: Stages slower than the first plan by this part of it stay in the model, so that its solver has something to decide.
WIDER = 0.02

#: Times that differ by this part of themselves are the same: the sums of one stage in two orders.
SAME = 1e-9

#: More devices than any instance has: a state that is not reached.
UNREACHED = 2**40


@dataclass(frozen=True)
class Arc:
    """A stage at a place in the plan: ``block`` with degrees (t, d) before states of sum ``s``, and its time."""

    block: Block
    s: int
    tp_degree: int
    dp_degree: int
    time: float

    @property
    def tail(self) -> tuple[int, int]:
        """The state it leaves: position of the inner downset, and s."""
        return self.block.inner, self.s

    @property
    def head(self) -> tuple[int, int]:
        """The state it enters."""
        return self.block.outer, self.s + self.dp_degree

    @property
    def devices(self) -> int:
        """Devices of the stage."""
        return self.tp_degree * self.dp_degree

    @property
    def in_flight(self) -> int:
        """Micro-batches in flight: ceil of the sum from here on over d."""
        return -(-(self.s + self.dp_degree) // self.dp_degree)


class Reach:
    """Which stages can be part of a plan whose slowest stage takes at most ``target``.

    ``forward[i, s]`` and ``backward[i, s]`` are the fewest devices from the empty set to state (downset i, s), and
    from there to a complete plan.
    """

    def __init__(self, prices: Prices, target: float) -> None:
        self.prices = prices
        self.target = target
        self.instance = prices.terms.instance
        self.last = len(prices.downsets) - 1
        shape = len(prices.downsets), prices.terms.max_s + 1
        self.forward = np.full(shape, UNREACHED, dtype=np.int64)
        self.backward = np.full(shape, UNREACHED, dtype=np.int64)
        self.stages: list[tuple[Block, int, int, list[float]]] = []
        self._go_forward()
        self._go_backward()

    @property
    def possible(self) -> bool:
        """Whether some plan meets the target."""
        return bool(self.backward[0, 0] <= self.instance.num_devices)

    def _go_forward(self) -> None:
        K, work = self.instance.num_devices, self.prices.work
        self.forward[0, 0] = 0
        for inner, blocks in enumerate(self.prices.blocks):
            go_on(self.prices.watch)
            if self.forward[inner].min() > K:
                continue
            for block in blocks:
                spare = K - self._devices_for(work[self.last] - work[block.outer])
                for t, d in self.prices.configs(block, self.target):
                    if self.forward[inner].min() + t * d <= spare:
                        self._add(block, t, d, spare)

    def _devices_for(self, work: float) -> int:
        """Devices without which so much device-time cannot be done at the target; more than K if none can."""
        K = self.instance.num_devices
        if work > self.target * K * (1 + 1e-9):
            return K + 1
        return math.ceil(work / self.target * (1 - 1e-9) - 1e-9) if work > 0 else 0

    def _add(self, block: Block, t: int, d: int, spare: int) -> None:
        """Price the stage for as many micro-batches in flight as it can bear, and extend the states it follows."""
        here = self.forward[block.inner]
        reached = np.flatnonzero(here + t * d <= spare)
        largest = min(int(reached[-1]), self.prices.terms.max_s - d)
        times = self._times(block, t, d, 1 + -(-largest // d)) if largest >= 0 else []
        if times:
            end = min((len(times) - 1) * d, largest) + 1  # s of the states before which it is still fast enough
            found = np.where(here[:end] + t * d <= spare, here[:end] + t * d, UNREACHED)
            np.minimum(self.forward[block.outer, d : d + end], found, out=self.forward[block.outer, d : d + end])
            self.stages.append((block, t, d, times))

    def _times(self, block: Block, t: int, d: int, most: int) -> list[float]:
        """Times for 1, 2, ... at most ``most`` micro-batches in flight, as far as the target allows.

        They never decrease, so equal ends have nothing else between them.
        """

        def time(in_flight: int) -> float:
            found = self.prices.price(block, t, d, in_flight, self.target)
            return math.inf if found is None or found[0] > most_s else found[0]

        most_s = self.target * (1 + SAME)  # prices are searched with room for the rounding of far larger sums
        times = [0.0] * (most + 1)
        times[1], times[most] = time(1), time(most)
        ranges = [(1, most)]
        while ranges:
            low, high = ranges.pop()
            if times[low] == times[high]:
                times[low:high] = [times[low]] * (high - low)
            elif high - low > 1:
                middle = (low + high) // 2
                times[middle] = time(middle)
                ranges += [(low, middle), (middle, high)]
        return [found for found in times[1:] if math.isfinite(found)]

    def _go_backward(self) -> None:
        ends = slice(self.instance.num_microbatches, None) if self.instance.exactly else slice(None)
        self.backward[self.last, ends] = 0
        for block, t, d, times in reversed(self.stages):
            end = min((len(times) - 1) * d, self.prices.terms.max_s - d) + 1
            after = self.backward[block.outer, d : d + end] + t * d
            np.minimum(self.backward[block.inner, :end], after, out=self.backward[block.inner, :end])

    def arcs(self) -> list[Arc]:
        """The arcs of all plans that meet the target; of arcs between two states none that another one dominates."""
        K = self.instance.num_devices
        between: dict[tuple[tuple[int, int], tuple[int, int]], list[Arc]] = {}
        for block, t, d, times in self.stages:
            go_on(self.prices.watch)
            for s in range(min((len(times) - 1) * d, self.prices.terms.max_s - d) + 1):
                if self.forward[block.inner, s] + t * d + self.backward[block.outer, s + d] <= K:
                    arc = Arc(block, s, t, d, times[-(-s // d)])
                    between.setdefault((arc.tail, arc.head), []).append(arc)
        return [arc for rivals in between.values() for arc in _undominated(rivals)]

    def plan(self) -> StagePlan:
        """A plan that meets the target, on the fewest devices; only where one is ``possible``."""
        chosen: list[Chosen] = []
        state, left = (0, 0), self.backward[0, 0]
        while state[0] != self.last:
            inner, s = state
            block, t, d, y = next(
                (block, t, d, 1 + -(-s // d))
                for block, t, d, times in self.stages
                if block.inner == inner
                and s <= min((len(times) - 1) * d, self.prices.terms.max_s - d)
                and self.backward[block.outer, s + d] + t * d == left
            )
            state, left = (block.outer, s + d), self.backward[block.outer, s + d]
            chosen.append(self.prices.chosen(block, t, d, y, self.target))
        return self.prices.terms.plan(reversed(chosen))


def _undominated(rivals: list[Arc]) -> Iterator[Arc]:
    """The arcs that no other beats in devices and time both; ``rivals`` join the same two states."""
    fastest = math.inf
    for arc in sorted(rivals, key=lambda arc: (arc.devices, arc.time)):
        if arc.time < fastest:
            fastest = arc.time
            yield arc


def first_reach(prices: Prices, watch: Watch) -> Reach:
    """The stages no slower than some plan, which is reported to ``watch``; without a plan, all stages.

    Targets rise from the lower bound until one is met, then the plan is improved to within `COARSE`. This only makes
    the model small; what it learns about targets that cannot be met is not used in the proof.
    """
    terms, instance = prices.terms, prices.terms.instance

    def report(reach: Reach) -> float:
        plan = reach.plan()
        value = evaluate(instance, plan)
        if not violations(instance, plan):
            watch.plan(plan, value)
        return min(value, reach.target)

    low, factor = terms.lower_bound or terms.largest_time * 2.0**-40, 1.1
    while not (reach := Reach(prices, low * factor)).possible:
        low, factor = low * factor, factor * 1.1
        if low >= terms.largest_time:
            return reach
    high = report(reach)
    while high > low * (1 + COARSE):
        reach = Reach(prices, math.sqrt(low * high))
        if reach.possible:
            high = report(reach)
        else:
            low = reach.target
    return Reach(prices, high * (1 + WIDER))


class Model(milp.Runnable, WithoutSizes):
    """The model: ``model.flow[a]`` is 1 if the plan has the stage of arc a; ``model.time`` is T in parts of `unit`."""

    def __init__(self, prices: Prices, reach: Reach) -> None:
        self.prices = prices
        self.reach = reach
        self.arcs = reach.arcs()
        self.unit = reach.target / milp.NATURAL or 1.0
        self.model = model = pyo.ConcreteModel()
        model.time = pyo.Var(bounds=(0, reach.target / self.unit * (1 + milp.ROOM)))
        model.flow = pyo.Var(range(len(self.arcs)), domain=pyo.Binary)
        model.objective = pyo.Objective(expr=model.time)
        self._path()
        self._devices()
        self._time()
        go_on(prices.watch)

    def _path(self) -> None:
        """One path: it leaves the empty set once, and every other state as often as it enters it, up to V."""
        leaving: dict[tuple[int, int], list[int]] = {}
        entering: dict[tuple[int, int], list[int]] = {}
        for a, arc in enumerate(self.arcs):
            leaving.setdefault(arc.tail, []).append(a)
            entering.setdefault(arc.head, []).append(a)

        def through(m: Any, arcs: list[int]) -> Any:
            return weighted_sum((1.0, m.flow[a]) for a in arcs)

        # sum over the arcs a that leave (empty set, 0) of flow[a] = 1
        start = (0, 0)
        self.model.one_path = pyo.Constraint(rule=lambda m: through(m, leaving.get(start, [])) == 1)

        # sum over the arcs a that leave (D, s) of flow[a] = sum over the arcs a that enter it of flow[a]
        between = [at for at in sorted(leaving.keys() | entering.keys()) if at != start and at[0] != self.reach.last]
        self.model.conserved = pyo.Constraint(
            between, rule=lambda m, *at: through(m, leaving.get(at, [])) == through(m, entering.get(at, []))
        )

    def _devices(self) -> None:
        """The stages of the path take at most K devices:  sum over a of t d flow[a] <= K."""
        arcs, K = self.arcs, self.reach.instance.num_devices
        self.model.devices = pyo.Constraint(
            rule=lambda m: weighted_sum((arc.devices, m.flow[a]) for a, arc in enumerate(arcs)) <= K
        )

    def _time(self) -> None:
        """T is at least the time of the stage that holds v:  sum over the arcs a with v in S of TPS(a) flow[a] <= T."""

        def stage_time(m: Any, v: int) -> Any:
            holding = (
                (milp.in_units(arc.time, self.unit), m.flow[a])
                for a, arc in enumerate(self.arcs)
                if v in arc.block.nodes
            )
            return weighted_sum(holding) <= m.time

        self.model.stage_time = pyo.Constraint(
            self.prices.terms.nodes, rule=until_stopped(self.prices.watch, stage_time)
        )

    def values_of(self, plan: StagePlan) -> Iterator[tuple[Any, int]]:
        """The path of a plan, as pairs of a variable and its value; a dominated stage by one that dominates it."""
        path = {}
        bits = s = 0
        for stage in reversed(plan.stages):
            tail = bits, s
            bits |= sum(1 << self.reach.instance.index[node] for node in stage.nodes)
            s += stage.dp_degree
            path[tail, (bits, s)] = stage.dp_degree * stage.tp_degree
        for a, arc in enumerate(self.arcs):
            ends = [(self.prices.downsets[i], s) for i, s in (arc.tail, arc.head)]
            devices = path.get((ends[0], ends[1]), 0)
            taken = arc.devices <= devices
            if taken:
                del path[ends[0], ends[1]]
            yield self.model.flow[a], int(taken)

    def decode(self, values: milp.Values) -> StagePlan:
        """The plan of a solution."""
        taken = [arc for a, arc in enumerate(self.arcs) if values[self.model.flow[a]] > 0.5]
        inwards = sorted(taken, key=lambda arc: -arc.block.inner)
        return self.prices.terms.plan(
            self.prices.chosen(arc.block, arc.tp_degree, arc.dp_degree, arc.in_flight, self.reach.target)
            for arc in inwards
        )

    def lower_bound(self, bound: float) -> float:
        """The bound in the instance's unit, less what the solver's tolerances may have added."""
        return milp.trusted(bound) * self.unit

    def hint(self) -> Iterable[tuple[Any, float]]:
        """The path of the best known plan."""
        plan = self.prices.watch.best_plan
        return () if plan is None else self.values_of(plan)

    def run(
        self,
        limits: Limits,
        watch: Watch,
        on_solution: Callable[[Any], None] | None = None,
        on_bound: Callable[[float], None] | None = None,
    ) -> Run:
        """Run HiGHS; ``stats`` counts downsets and arcs as well."""
        run = super().run(limits, watch, on_solution, on_bound)
        return replace(run, stats={**run.stats, "downsets": len(self.prices.downsets), "arcs": len(self.arcs)})


def build(instance: StageInstance, target: float, watch: Watch | None = None) -> Model:
    """The model of all plans in which no stage takes more than ``target``, in the instance's time unit, > 0.

    Raises `modelled.Stopped` once the watch is, and ``ValueError`` if the instance has too many downsets.
    """
    prices = _prices(instance, watch or Watch())
    return Model(prices, Reach(prices, target))


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by a flow of stages, with HiGHS.

    Source
    ------
    This project; see the module.
    """

    def model() -> Model:
        prices = _prices(instance, watch)
        watch.bound(prices.terms.lower_bound, Prover.BOUNDS)
        return Model(prices, first_reach(prices, watch))

    reason = columns_supports(instance)
    if reason is not None:
        return Answer(stop=Stop.SIZE_LIMIT, reason=reason)
    return prove(instance, model, limits, watch)


def _prices(instance: StageInstance, watch: Watch) -> Prices:
    found = downsets(len(instance.layers), instance.edge_indices, MAX_DOWNSETS)
    if found is None:
        raise ValueError(f"the graph has more than {MAX_DOWNSETS} downsets")
    return Prices(Terms(instance), found, watch)
