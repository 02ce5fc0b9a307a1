"""Which arcs of a layered graph lie on a path: what column models leave out before a solver sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TypeVar

State = TypeVar("State", bound=Hashable)
Ends = TypeVar("Ends", bound=Hashable)


def on_paths(
    arcs: Sequence[tuple[State, State]], usable: Sequence[bool], start: State, is_end: Callable[[State], bool]
) -> list[bool]:
    """For each arc whether it lies on a path from ``start`` to an end through usable arcs.

    ``arcs`` are pairs (tail, head); every arc stands behind all that enter its tail.
    """
    ahead = {start}
    found = list(usable)
    for a, (tail, head) in enumerate(arcs):
        found[a] = found[a] and tail in ahead
        if found[a]:
            ahead.add(head)
    behind: set[State] = set()
    for a in reversed(range(len(arcs))):
        tail, head = arcs[a]
        found[a] = found[a] and (head in behind or is_end(head))
        if found[a]:
            behind.add(tail)
    return found


def is_path(arcs: Collection[tuple[State, State]], start: State, is_end: Callable[[State], bool]) -> bool:
    """Whether these arcs are one path from ``start`` to an end, each of them once."""
    following = dict(arcs)
    at, steps = start, 0
    while at in following and steps <= len(arcs):
        at, steps = following[at], steps + 1
    return is_end(at) and steps == len(arcs)


def arcs_on(path: Mapping[Ends, int], ends: Sequence[Ends], devices: Sequence[int]) -> set[int]:
    """The arcs that stand for a path: of those that join the same states, on no more devices, the one with most."""
    taken: dict[Ends, int] = {}
    for a, (joined, count) in enumerate(zip(ends, devices, strict=True)):
        if count <= path.get(joined, 0) and (joined not in taken or count > devices[taken[joined]]):
            taken[joined] = a
    return set(taken.values())
