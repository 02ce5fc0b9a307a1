"""Which stages can be part of a plan that meets a target: the arcs of the column model (`columns`)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from formulations.modelling.solve_model import begin_with, check_stop
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import evaluate, violations
from formulations.stage_partitioning.models.assignment_data import Chosen
from formulations.stage_partitioning.models.stage_costs import Block, Prices
from solvers.outcome import Watch

#: A first plan is good enough within this part of the best one.
COARSE = 0.01

#: The largest step between the targets that are tried below a known plan.
_LARGEST_STEP = 0.3

#: Stages slower than the first plan by this part of it stay in the model, so that its solver has something to decide.
WIDER = 0.02

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
            check_stop(self.prices.watch)
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
        times = self.prices.times(block, t, d, 1 + -(-largest // d), self.target) if largest >= 0 else []
        if times:
            end = min((len(times) - 1) * d, largest) + 1  # s of the states before which it is still fast enough
            found = np.where(here[:end] + t * d <= spare, here[:end] + t * d, UNREACHED)
            np.minimum(self.forward[block.outer, d : d + end], found, out=self.forward[block.outer, d : d + end])
            self.stages.append((block, t, d, times))

    def _go_backward(self) -> None:
        ends = slice(self.instance.num_microbatches, None) if self.instance.exactly else slice(None)
        self.backward[self.last, ends] = 0
        for block, t, d, times in reversed(self.stages):
            end = min((len(times) - 1) * d, self.prices.terms.max_s - d) + 1
            after = self.backward[block.outer, d : d + end] + t * d
            np.minimum(self.backward[block.inner, :end], after, out=self.backward[block.inner, :end])

    def arcs(self, *, whole: bool = False) -> list[Arc]:
        """The arcs of all plans that meet the target; unless ``whole``, none that another one dominates."""
        K = self.instance.num_devices
        between: dict[tuple[tuple[int, int], tuple[int, int]], list[Arc]] = {}
        for block, t, d, times in self.stages:
            check_stop(self.prices.watch)
            for s in range(min((len(times) - 1) * d, self.prices.terms.max_s - d) + 1):
                if self.forward[block.inner, s] + t * d + self.backward[block.outer, s + d] <= K:
                    arc = Arc(block, s, t, d, times[-(-s // d)])
                    between.setdefault((arc.tail, arc.head), []).append(arc)
        return [arc for rivals in between.values() for arc in (rivals if whole else _pareto_arcs(rivals))]

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
            chosen.append(self.prices.decisions_of(block, t, d, y, self.target))
        return self.prices.terms.plan(reversed(chosen))


def _pareto_arcs(rivals: list[Arc]) -> Iterator[Arc]:
    """The arcs that no other beats in devices and time both; ``rivals`` join the same two states."""
    fastest = math.inf
    for arc in sorted(rivals, key=lambda arc: (arc.devices, arc.time)):
        if arc.time < fastest:
            fastest = arc.time
            yield arc


def first_reach(prices: Prices, watch: Watch) -> Reach:
    """The stages no slower than some plan, which is reported to ``watch``; without a plan, all stages.

    Below a plan that the watch knows targets fall in growing steps; without one they rise from the lower bound until
    one is met. Then the plan is improved to within `COARSE`. This only makes the model small; what it learns about
    targets that cannot be met is not used in the proof.
    """
    terms, instance = prices.terms, prices.terms.instance

    def report(reach: Reach) -> float:
        plan = reach.plan()
        begin_with(instance, plan, evaluate, violations, watch)
        return min(evaluate(instance, plan), reach.target)

    least = terms.lower_bound or terms.largest_time * 2.0**-40
    if watch.best_objective is not None:
        high, step = watch.best_objective, COARSE
        while high > 0 and (target := high * (1 - step)) >= least:
            reach = Reach(prices, target)
            if reach.possible:
                high, step = report(reach), min(4 * step, _LARGEST_STEP)
            elif step > COARSE:
                step = COARSE
            else:
                break
        return Reach(prices, high * (1 + WIDER))
    low, factor = least, 1.1
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
