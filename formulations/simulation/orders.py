"""Schedules that trainers run, as orders: for every device the list of its actions.

A device has the chunks of one or more global stages (`Schedule.devices`). It runs forward passes F, backward passes B
and, where these are split, weight gradients W. p is the number of devices, V that of the chunks of each, m that of
micro-batches.

Source: Narayanan et al. 2021, section 2.2 (GPipe's order, 1F1B, interleaved 1F1B); Qi et al. 2024 (ZB-H1, ZB-H2, ZB-V)
as PyTorch 2.13 has them (``torch.distributed.pipelining.schedules``; DualPipeV too); the README of DeepSeek's DualPipe.
ZB-H2 is reconstructed from the published picture.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from formulations.simulation.simulate_chain import PipelineStage, in_flight
from formulations.simulation.simulate_chain import simulate as simulate_chain

Kind = Literal["F", "B", "W"]


class Action(NamedTuple):
    """A pass of a micro-batch at a global stage; W is its weight gradient."""

    kind: Kind
    stage: int
    microbatch: int


Order = tuple[Action, ...]


@dataclass(frozen=True)
class Schedule:
    """A schedule by name: ``orders(p, m, V)`` are the orders of its devices, and ``refusal`` says where it has none.

    ``layout`` is where global stages lie (`devices`), ``is_split`` whether W is apart from B.
    """

    name: str
    says: str
    layout: Literal["loop", "vee", "two-way"]
    is_split: bool
    build: Callable[[int, int, int], tuple[Order, ...]]
    refusal: Callable[[int, int, int], str | None]

    def orders(self, num_devices: int, num_microbatches: int, chunks: int = 1) -> tuple[Order, ...]:
        """For every device its actions.

        `ValueError` if the schedule has no order for these numbers.
        """
        reason = self.refusal(num_devices, num_microbatches, chunks)
        if reason is None and min(num_devices, num_microbatches, chunks) < 1:
            reason = "expected at least one device, one micro-batch and one chunk"
        if reason is not None:
            raise ValueError(f"{self.name}: {reason}")
        return self.build(num_devices, num_microbatches, chunks)

    def devices(self, num_devices: int, chunks: int = 1) -> tuple[int, ...]:
        """The device of every global stage."""
        if self.layout == "loop":
            return tuple(stage % num_devices for stage in range(num_devices * chunks))
        # Both fold back; the second half is the chain's end (vee), or a copy of the chain from its other end (two-way).
        return tuple(min(stage, 2 * num_devices - 1 - stage) for stage in range(2 * num_devices))

    def held(self, num_devices: int, chunks: int = 1) -> tuple[tuple[int, ...], ...]:
        """The global stages of every device, ascending."""
        return _held(self.devices(num_devices, chunks), num_devices)

    def edges(self, num_devices: int, chunks: int = 1) -> tuple[tuple[int, int], ...]:
        """Which global stage hands its output to which."""
        last = len(self.devices(num_devices, chunks)) - 1
        fold = num_devices - 1 if self.layout == "two-way" else -1
        return tuple((stage, stage + 1) for stage in range(last) if stage != fold)


@lru_cache(maxsize=64)
def _held(devices: tuple[int, ...], num_devices: int) -> tuple[tuple[int, ...], ...]:
    found: list[list[int]] = [[] for _ in range(num_devices)]
    for stage, device in enumerate(devices):
        found[device].append(stage)
    return tuple(map(tuple, found))


def alternating(forward: Sequence[Action], backward: Sequence[Action], warm_up: int) -> Order:
    """So many forward passes, then a forward and a backward pass in turn, then the backward passes that are left."""
    begun = min(warm_up, len(forward))
    turns = [action for pair in zip(forward[begun:], backward, strict=False) for action in pair]
    return (*forward[:begun], *turns, *backward[len(forward) - begun :])


def replicated(name: str, degrees: Sequence[int], num_microbatches: int, *, all_replicas: bool = True) -> list[Order]:
    """GPipe or 1F1B on a chain of stages of these data-parallel degrees: the order of every replica, stage by stage.

    Micro-batch j runs on replica j mod d of a stage. Where all degrees are the same, replicas are pipelines of their
    own; the first of each stage has the most micro-batches, and needs no other one (``all_replicas``). Where they are
    not, 1F1B is what the greedy rule does with ceil(s/d) in flight if all stages keep pace, as a fixed order.

    Source: Narayanan et al. 2021, section 2.2; unequal degrees are reconstructed, as no trainer is known to run them.
    """
    p, uniform = len(degrees), len(set(degrees)) == 1
    if name == "gpipe" or uniform:
        found = []
        for stage, d in enumerate(degrees):
            for replica in range(d if all_replicas or not uniform else 1):
                own = range(replica, num_microbatches, d)
                forward, backward = ([Action(kind, stage, j) for j in own] for kind in _FORWARD_BACKWARD)
                found.append(alternating(forward, backward, len(own) if name == "gpipe" else p - 1 - stage))
        return found
    # A forward pass takes d, a backward pass 2 d: every stage has the same time per micro-batch.
    paced = [PipelineStage(d, d, 2 * d, most) for d, most in zip(degrees, in_flight(degrees), strict=True)]
    orders: dict[tuple[int, int], list[Action]] = {(i, r): [] for i, d in enumerate(degrees) for r in range(d)}
    for task in simulate_chain(paced, num_microbatches).tasks:
        orders[task.stage, task.replica].append(Action("F" if task.is_forward else "B", task.stage, task.microbatch))
    return [tuple(order) for order in orders.values()]


def _gpipe(p: int, m: int, _: int) -> tuple[Order, ...]:
    return tuple((*(Action("F", i, j) for j in range(m)), *(Action("B", i, j) for j in range(m))) for i in range(p))


def one_forward_one_backward(stage: int, num_stages: int, microbatches: Sequence[int]) -> Order:
    """1F1B on a device that has one stage and these micro-batches."""
    forward, backward = ([Action(kind, stage, j) for j in microbatches] for kind in _FORWARD_BACKWARD)
    return alternating(forward, backward, num_stages - 1 - stage)


_FORWARD_BACKWARD: tuple[Kind, Kind] = ("F", "B")


def _1f1b(p: int, m: int, _: int) -> tuple[Order, ...]:
    return tuple(one_forward_one_backward(i, p, range(m)) for i in range(p))


def _interleaved(p: int, m: int, V: int) -> tuple[Order, ...]:
    """Groups of p micro-batches run through a device's chunks in turn, backward passes through them from the last."""
    table = [(chunk, j) for first in range(0, m, p) for chunk in range(V) for j in range(first, min(first + p, m))]
    return tuple(
        alternating(
            [Action("F", chunk * p + i, j) for chunk, j in table],
            [Action("B", (V - 1 - chunk) * p + i, j) for chunk, j in table],
            2 * (p - 1 - i) + (V - 1) * p,
        )
        for i in range(p)
    )


def _zb_h1(p: int, m: int, _: int) -> tuple[Order, ...]:
    """1F1B whose weight gradients of device i come i backward passes later: B reaches the device before it sooner."""
    found = []
    for i in range(p):
        begun, delay = min(p - 1 - i, m), i
        order = [Action("F", i, j) for j in range(begun)]
        for k in range(m):
            order += [Action("F", i, begun + k)] if begun + k < m else []
            order += [Action("B", i, k), *([Action("W", i, k - delay)] if k >= delay else [])]
        found.append((*order, *(Action("W", i, k) for k in range(max(0, m - delay), m))))
    return tuple(found)


def _zb_h2(p: int, m: int, _: int) -> tuple[Order, ...]:
    """More forward passes first, up to 2p - 1 in flight; weight gradients of device i come 2i backward passes later."""
    found = []
    for i in range(p):
        begun, delay = min(2 * (p - i) - 1, m), 2 * i
        order = [Action("F", i, j) for j in range(begun)]
        for k in range(m):
            order += [Action("B", i, k), *([Action("W", i, k - delay)] if k >= delay else [])]
            order += [Action("F", i, begun + k)] if begun + k < m else []
        found.append((*order, *(Action("W", i, k) for k in range(max(0, m - delay), m))))
    return tuple(found)


class _Writer:
    """An order that is written action by action: each kind and stage counts its own micro-batches."""

    def __init__(self) -> None:
        self.order: list[Action] = []
        self.waiting: deque[Action] = deque()
        self._next: Counter[tuple[Kind, int]] = Counter()

    def count(self, kind: Kind, stage: int) -> int:
        """How many of them there are."""
        return self._next[kind, stage]

    def add(self, stage: int, *kinds: Kind) -> None:
        """The next micro-batch of each kind at the stage."""
        for kind in kinds:
            self.order.append(self._take(kind, stage))

    def add_backward(self, stage: int, *, split: bool) -> None:
        """B, with W at once, or, if split, left for `add_waiting`."""
        self.add(stage, "B")
        weight = self._take("W", stage)
        (self.waiting if split else self.order).append(weight)

    def add_waiting(self) -> None:
        """The weight gradient that waits longest, if there is one."""
        if self.waiting:
            self.order.append(self.waiting.popleft())

    def _take(self, kind: Kind, stage: int) -> Action:
        self._next[kind, stage] += 1
        return Action(kind, stage, self._next[kind, stage] - 1)


def _zb_v(p: int, m: int, _: int) -> tuple[Order, ...]:
    """Two chunks on a device, the second on the way back; fewer than 2p - 1 micro-batches keep the order of so many."""
    most = max(m, 2 * p - 1)
    found = []
    for i in range(p):
        there, back, writer = i, 2 * p - 1 - i, _Writer()
        for _number in range(2 * (p - i) - 1):
            writer.add(there, "F")
        for _number in range(i):
            writer.add(back, "F")
            writer.add(there, "F")
        for _number in range(p - i):
            writer.add(back, "F", "B", "W")
        while writer.count("F", back) < writer.count("F", there) or writer.count("F", there) < most:
            if writer.count("F", there) < most:
                writer.add(there, "F")
            writer.add(there, "B", "W")
            writer.add(back, "F", "B", "W")
        for _number in range(i):
            writer.add(there, "B")
            writer.add(back, "B")
        for _number in range(p - i):
            writer.add(there, "B", "W")
        for stage in (back, there):
            while writer.count("W", stage) < writer.count("B", stage):
                writer.add(stage, "W")
        found.append(tuple(action for action in writer.order if action.microbatch < m))
    return tuple(found)


def _dual(half: int, rank: int, m: int, own: int, other: int) -> Order:
    """Steps 1 to 8 of DualPipe on a device that is ``half - rank`` devices from the fold, m micro-batches each way.

    A pair of a forward and a backward pass that DualPipe overlaps runs here one after the other.
    """
    writer, outer = _Writer(), half - rank - 1
    for _number in range(2 * outer):
        writer.add(own, "F")
    for _number in range(rank + 1):
        writer.add(own, "F")
        writer.add(other, "F")
    for _number in range(outer):
        writer.add_backward(other, split=True)
        writer.add_waiting()
        writer.add(other, "F")
    for _number in range(m - 2 * half + rank + 1):
        writer.add(own, "F")
        writer.add_backward(other, split=False)
        writer.add(other, "F")
        writer.add_backward(own, split=False)
    for _number in range(outer):
        writer.add_backward(other, split=False)
        writer.add(other, "F")
        writer.add_backward(own, split=False)
    middle = (rank + 1) // 2
    for number in range(rank + 1):
        # From the middle on weight gradients wait: on odd ranks from the first of the two, on even ones the second.
        writer.add_backward(other, split=number > middle or (number == middle and rank % 2 == 1))
        writer.add_backward(own, split=number >= middle)
    for _number in range(outer):
        writer.add_waiting()
        writer.add_backward(own, split=True)
    while writer.waiting:
        writer.add_waiting()
    return tuple(writer.order)


def _dualpipe_v(p: int, m: int, _: int) -> tuple[Order, ...]:
    return tuple(_dual(p, i, m, i, 2 * p - 1 - i) for i in range(p))


def _dualpipe(p: int, m: int, _: int) -> tuple[Order, ...]:
    """Half of the micro-batches enter at each end; the second half runs through a copy, stages p to 2p - 1."""
    found = []
    for i in range(p):
        ways = (i, 2 * p - 1 - i)
        own, other = ways if i < p // 2 else ways[::-1]
        found.append(_dual(p // 2, min(i, p - 1 - i), m // 2, own, other))
    return tuple(found)


def _one_chunk(_p: int, _m: int, V: int) -> str | None:
    return None if V == 1 else f"expected one chunk on a device, not {V}"


def _divided(p: int, m: int, V: int) -> str | None:
    """Narayanan et al. ask for this; other numbers deadlock or wait for long."""
    return None if V == 1 or m % p == 0 else f"expected micro-batches in multiples of {p} devices, not {m}"


def _two_chunks(_p: int, _m: int, V: int) -> str | None:
    return None if V == 2 else f"expected two chunks on a device, not {V}"


def _both_ways(p: int, m: int, V: int) -> str | None:
    return _one_chunk(p, m, V) or (
        None
        if p % 2 == 0 and m % 2 == 0 and m >= 2 * p
        else f"expected an even number of devices and of micro-batches, at least two a device, not {p} and {m}"
    )


def _twice(p: int, m: int, V: int) -> str | None:
    return _two_chunks(p, m, V) or (None if m >= 2 * p else f"expected at least {2 * p} micro-batches, not {m}")


#: All of them by name.
SCHEDULES = {
    schedule.name: schedule
    for schedule in (
        Schedule("gpipe", "all forward passes, then all backward passes", "loop", False, _gpipe, _one_chunk),
        Schedule("1f1b", "p - i in flight on device i, then one of each in turn", "loop", False, _1f1b, _one_chunk),
        Schedule("interleaved", "1F1B on V chunks a device", "loop", False, _interleaved, _divided),
        Schedule("zb-h1", "1F1B with weight gradients in its bubbles", "loop", True, _zb_h1, _one_chunk),
        Schedule("zb-h2", "the same, and up to 2p - 1 in flight", "loop", True, _zb_h2, _one_chunk),
        Schedule("zb-v", "weight gradients in the bubbles of two chunks a device", "vee", True, _zb_v, _two_chunks),
        Schedule("dualpipe", "two copies of the stages, fed from both ends", "two-way", True, _dualpipe, _both_ways),
        Schedule("dualpipe-v", "DualPipe on two chunks a device", "vee", True, _dualpipe_v, _twice),
    )
}
