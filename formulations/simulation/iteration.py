"""The event model of a synchronous iteration: fixed orders of actions on devices, transfers, gradient sums.

A device runs its actions in its order. F of a stage waits for F of the stages before it, B for its own F and for B of
the stages behind it, W for its own B. An action starts once its device is free and all of that has arrived::

    end = max(end of the one before on the device, end of each that it waits for + transfer) + its seconds

No clocks are compared unless links send one thing at a time, so there are no ties, and the iteration is the longest
path of one graph: longer actions never make it shorter. Transfers inside an action's seconds are delays of zero.

Source: Narayanan et al. 2021, section 2.2, for what waits for what; docs/the-clock.md has the assumptions.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from formulations.simulation.orders import Action, Kind, Order

#: When gradients are summed over replicas: after a device's own last action, after that of all devices, or a stage's
#: sum from its own last gradient on, one at a time on a device.
Gradients = Literal["after", "barrier", "overlapped"]


class DeadlockError(ValueError):
    """Orders in which no device can ever start its next action."""


@dataclass(frozen=True)
class Stages:
    """Global stages: seconds of a micro-batch's actions, which stage hands to which, and how long that takes.

    ``weight_s`` is empty where B is the whole backward pass. ``delay_s`` of an edge holds both ways, between devices.
    With ``links`` an ordered pair of devices sends one thing at a time: what is ready first goes first, and of these B
    before F, lower stages and micro-batches before higher ones.
    """

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    edges: tuple[tuple[int, int], ...]
    weight_s: tuple[float, ...] = ()
    delay_s: Mapping[tuple[int, int], float] = field(default_factory=dict)
    links: bool = False

    def seconds(self, action: Action) -> float:
        """How long an action takes."""
        return {"F": self.forward_s, "B": self.backward_s, "W": self.weight_s}[action.kind][action.stage]

    @cached_property
    def before(self) -> tuple[tuple[int, ...], ...]:
        """The stages whose outputs a stage takes."""
        return tuple(tuple(s for s, t in self.edges if t == stage) for stage in range(len(self.forward_s)))

    @cached_property
    def behind(self) -> tuple[tuple[int, ...], ...]:
        """The stages that take a stage's output."""
        return tuple(tuple(t for s, t in self.edges if s == stage) for stage in range(len(self.forward_s)))

    def has(self, kind: Kind) -> bool:
        """Whether there are such actions: W only where backward passes are split."""
        return kind != "W" or bool(self.weight_s)

    def num_needs(self, action: Action) -> int:
        """For how many actions one waits."""
        if action.kind == "F":
            return len(self.before[action.stage])
        return 1 + (len(self.behind[action.stage]) if action.kind == "B" else 0)

    def waiting_for(self, action: Action) -> Iterable[Action]:
        """The actions that wait for one."""
        kind, stage, j = action
        if kind == "F":
            yield from (Action("F", after, j) for after in self.behind[stage])
            yield Action("B", stage, j)
        elif kind == "B":
            yield from (Action("B", before, j) for before in self.before[stage])
            if self.has("W"):
                yield Action("W", stage, j)


@dataclass(frozen=True)
class Iteration:
    """What happened: when every action ended."""

    stages: Stages
    orders: tuple[Order, ...]
    end_s: Mapping[Action, float]

    @property
    def makespan_s(self) -> float:
        """When the last action ended."""
        return max(self.end_s.values(), default=0.0)

    def with_gradients(self, sums_s: Sequence[float], when: Gradients = "barrier") -> float:
        """Seconds from an idle start to the end of the last gradient sum, of ``sums_s`` of each global stage."""
        if when == "barrier":
            return self.makespan_s + max(self._on_device(order, sums_s) for order in self.orders)
        if when == "after":
            return max(self.end_s[order[-1]] + self._on_device(order, sums_s) for order in self.orders if order)
        last = 0.0
        for order in self.orders:
            ready: dict[int, float] = {}
            for action in order:
                if action.kind != "F":
                    ready[action.stage] = self.end_s[action]
            clock = 0.0
            for stage, at in sorted(ready.items(), key=lambda item: (item[1], item[0])):
                clock = max(clock, at) + sums_s[stage]
            last = max(last, clock)
        return max(last, self.makespan_s)

    @staticmethod
    def _on_device(order: Order, sums_s: Sequence[float]) -> float:
        return sum(sums_s[stage] for stage in sorted({action.stage for action in order}))


def simulate(stages: Stages, orders: Sequence[Order]) -> Iteration:
    """Run the orders, every action as early as they allow.

    `DeadlockError` if some action can never start.
    """
    return _Run(stages, tuple(orders)).run()


class _Run:
    """Actions by number: (kind, stage) by kind, then micro-batches of each.

    Links serve what is ready first, so with them ends are taken in the order of time; without them in any.
    """

    def __init__(self, stages: Stages, orders: tuple[Order, ...]) -> None:
        self.stages, self.orders = stages, orders
        self.most = 1 + max((action.microbatch for order in orders for action in order), default=0)
        groups = [(kind, stage) for kind in _KINDS for stage in range(len(stages.forward_s))]
        self.group = {group: number for number, group in enumerate(groups)}
        self.seconds = [stages.seconds(Action(kind, stage, 0)) if stages.has(kind) else 0.0 for kind, stage in groups]
        # Of each group those that wait for it, and the seconds that this takes between devices.
        self.waiting = [
            [
                (self.group[other.kind, other.stage], stages.delay_s.get(_edge(kind, stage, other.stage), 0.0))
                for other in stages.waiting_for(Action(kind, stage, 0))
            ]
            for kind, stage in groups
        ]
        needs = [stages.num_needs(Action(kind, stage, 0)) for kind, stage in groups]
        count = len(groups) * self.most
        self.queues = [[self.group[k, stage] * self.most + j for k, stage, j in order] for order in orders]
        self.device = [-1] * count
        for device, queue in enumerate(self.queues):
            for number in queue:
                self.device[number] = device
        # Of each action how many that it waits for are still missing, and when the last has arrived.
        self.missing = [needs[number // self.most] for number in range(count)]
        self.arrival, self.end = [0.0] * count, [0.0] * count
        self.position, self.free = [0] * len(orders), [0.0] * len(orders)
        self.link_free: dict[tuple[int, int], float] = {}
        self.ended: list[tuple[float, Action, int]] = []
        self.push, self.pop = (heapq.heappush, heapq.heappop) if stages.links else (list.append, list.pop)

    def run(self) -> Iteration:
        for device in range(len(self.orders)):
            self._start(device)
        while self.ended:
            self._hand_on(self.pop(self.ended)[-1])
        stuck = [order[at] for order, at in zip(self.orders, self.position, strict=True) if at < len(order)]
        if stuck:
            raise DeadlockError("deadlock: " + ", ".join("{}({}, {})".format(*action) for action in stuck) + " wait")
        actions = {number: action for queue, order in zip(self.queues, self.orders, strict=True)
                   for number, action in zip(queue, order, strict=True)}  # fmt: skip
        return Iteration(self.stages, self.orders, {action: self.end[number] for number, action in actions.items()})

    def _hand_on(self, number: int) -> None:
        """What waits for an action that has ended gets what it made."""
        group, j = divmod(number, self.most)
        source, end = self.device[number], self.end[number]
        for other, delay in self.waiting[group]:
            waiting, arrival = other * self.most + j, end
            target = self.device[waiting]
            if target < 0:
                continue
            if target != source:
                if self.stages.links:
                    arrival = max(end, self.link_free.get((source, target), 0.0))
                    self.link_free[source, target] = arrival + delay
                arrival += delay
            self.arrival[waiting] = max(self.arrival[waiting], arrival)
            self.missing[waiting] -= 1
            if not self.missing[waiting]:
                self._start(target)

    def _start(self, device: int) -> None:
        """Start the device's next actions while all that they wait for has arrived; their ends are events to come."""
        queue, at, free = self.queues[device], self.position[device], self.free[device]
        while at < len(queue) and not self.missing[queue[at]]:
            number = queue[at]
            free = max(free, self.arrival[number]) + self.seconds[number // self.most]
            self.end[number] = free
            self.push(self.ended, (free, self.orders[device][at], number))
            at += 1
        self.position[device], self.free[device] = at, free


_KINDS: tuple[Kind, ...] = ("F", "B", "W")


def _edge(kind: Kind, stage: int, other: int) -> tuple[int, int]:
    """The edge over which an action of a stage hands to another stage; gradients run backwards."""
    return (stage, other) if kind == "F" else (other, stage)
