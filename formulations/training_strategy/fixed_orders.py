"""Iterations of many plans with the same orders, quickly: one list of actions in an order in which they may run.

The definition's event model (`formulations.simulation.iteration`) says the same; here an action is a number.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from formulations.simulation.orders import SCHEDULES, Action
from formulations.training_strategy.degrees import Degrees
from instances.problems.training_strategy import Schedule

#: Kinds of actions that are no passes: their places in `Path`.
_SUMMED, _EXPOSED = 3, 4


class Path(NamedTuple):
    """How many passes of each stage a longest path holds: a lower bound for all plans with the same orders.

    Behind them are ``summed`` sums of gradients, or the ``exposed`` part of that of the first stage.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    weight: tuple[float, ...]
    summed: tuple[float, ...]
    exposed: tuple[float, ...]


class FixedOrders:
    """The orders of a schedule for p devices of V chunks and m micro-batches.

    Each action has a number, in an order in which all can run; ``kind[k]`` is its place in `Path`, ``stage[k]`` its
    global stage, ``before[k]`` the one before it on its device, and ``needs[k]`` the other one that it waits for; the
    number behind the last stands for none. With ``overlaps`` sums of gradients are actions as well: each follows the
    last pass of its stage and waits for the sum before it on its device. That of the first stage, the last there, is
    two: what its pass exposes, and the whole behind the sum before it.
    """

    def __init__(self, schedule: Schedule, p: int, m: int, V: int, overlaps: bool = False) -> None:
        kind = SCHEDULES[schedule]
        orders = kind.orders(p, m, V)
        self.num_stages = p * V
        self.stage: list[int] = []
        self.kind: list[int] = []
        self.before: list[int] = []
        self.needs: list[int] = []
        none = sum(map(len, orders)) + (p * V + (V > 1) if overlaps else 0)
        number: dict[Action, int] = {}
        last, position = [none] * p, [0] * p
        waiting = list(range(p))
        stuck: dict[Action, int] = {}  # the action that a device waits for
        while waiting:
            device = waiting.pop()
            order = orders[device]
            while position[device] < len(order):
                action = order[position[device]]
                needed = self._needed(action)
                if needed is not None and needed not in number:
                    stuck[needed] = device
                    break
                number[action] = len(self.stage)
                needs = none if needed is None else number[needed]
                self._append("FBW".index(action.kind), action.stage, last[device], needs)
                last[device] = number[action]
                position[device] += 1
                if action in stuck:
                    waiting.append(stuck.pop(action))
        for order in orders if overlaps else ():
            summed = none
            passed = {action.stage: number[action] for action in order if action.kind != "F"}
            for stage, pass_ in sorted(passed.items(), key=lambda item: item[1]):
                if stage == 0 and summed != none:
                    self._append(_SUMMED, 0, summed, none)
                self._append(_SUMMED if stage else _EXPOSED, stage, pass_, summed if stage else none)
                summed = len(self.stage) - 1

    def _append(self, kind: int, stage: int, before: int, needs: int) -> None:
        for own, value in ((self.kind, kind), (self.stage, stage), (self.before, before), (self.needs, needs)):
            own.append(value)

    def _needed(self, action: Action) -> Action | None:
        """What an action waits for on another device: its own device's order has the rest before it."""
        if action.kind == "F":
            return action._replace(stage=action.stage - 1) if action.stage else None
        if action.kind == "B" and action.stage < self.num_stages - 1:
            return action._replace(stage=action.stage + 1)
        return None

    def run(self, times: Sequence[Sequence[float]]) -> tuple[float, Path]:
        """The iteration of stages with these times, in the order of `Path`, and a longest path."""
        end = [0.0] * (len(self.stage) + 1)
        seconds = [times[kind][stage] for kind, stage in zip(self.kind, self.stage, strict=True)]
        for k, (before, needs, own) in enumerate(zip(self.before, self.needs, seconds, strict=True)):
            a, b = end[before], end[needs]
            end[k] = (a if a > b else b) + own
        makespan = max(end)
        counts = [[0] * self.num_stages for _ in Path._fields]
        at = end.index(makespan)
        while at < len(self.stage):
            counts[self.kind[at]][self.stage[at]] += 1
            before, needs = self.before[at], self.needs[at]
            at = before if end[before] > end[needs] or needs == len(self.stage) else needs
        return makespan, Path(*map(tuple, counts))


@lru_cache(maxsize=16)
def orders_of(schedule: Schedule, p: int, m: int, V: int, overlaps: bool = False) -> FixedOrders:
    """The orders of these numbers; those used last are kept."""
    return FixedOrders(schedule, p, m, V, overlaps)


def in_flight(degrees: Degrees, device: int) -> int:
    """Most micro-batches whose activations a device holds at once, for one chunk on each device."""
    if degrees.schedule is Schedule.ONE_F_ONE_B:
        return min(degrees.m, degrees.p - device)
    most = {Schedule.ZB_H1: degrees.p, Schedule.ZB_H2: 2 * degrees.p - 1}
    return min(degrees.m, most.get(degrees.schedule, degrees.m))


@lru_cache(maxsize=64)
def moments(degrees: Degrees) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """For each device, micro-batches in flight of its chunks at its fullest moments."""
    if degrees.V > 1:
        return fullest(degrees.schedule, degrees.p, degrees.m, degrees.V)
    return tuple(((in_flight(degrees, device),),) for device in range(degrees.p))


@lru_cache(maxsize=64)
def fullest(schedule: Schedule, p: int, m: int, V: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """For each device, micro-batches in flight of its chunks at its fullest moments.

    Of moments that hold no more of any chunk than another one, that one stands.
    """
    found, kind = [], SCHEDULES[schedule]
    gives_back = "W" if kind.is_split else "B"
    for order in kind.orders(p, m, V):
        held, moments = [0] * V, set()
        for action in order:
            held[action.stage // p] += (action.kind == "F") - (action.kind == gives_back)
            moments.add(tuple(held))
        points = np.array(sorted(moments))
        # Distinct points: one that is nowhere below another one is beaten only by itself.
        is_full = [(points >= one).all(axis=1).sum() == 1 for one in points]
        found.append(tuple(tuple(map(int, one)) for one in points[is_full]))
    return tuple(found)
