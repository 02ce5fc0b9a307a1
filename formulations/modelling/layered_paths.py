"""Which arcs of a layered graph lie on a path: what column models leave out before a solver sees it."""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

State = TypeVar("State", bound=Hashable)
Ends = TypeVar("Ends", bound=Hashable)

#: Where paths of priced stages begin: the position of the empty downset, and the sum of degrees.
START = (0, 0)


class JoinedStates:
    """The states (downset, sum of degrees) that arcs join; paths lead from `START` to those of the downset ``last``."""

    arcs: Sequence[Any]
    last: Any

    @cached_property
    def leaving(self) -> Mapping[tuple[int, int], list[int]]:
        """The arcs that leave each state."""
        return _by_state(arc.tail for arc in self.arcs)

    @cached_property
    def entering(self) -> Mapping[tuple[int, int], list[int]]:
        """The arcs that enter each state."""
        return _by_state(arc.head for arc in self.arcs)

    @property
    def between(self) -> list[tuple[int, int]]:
        """The states that a path goes through."""
        return [at for at in sorted({*self.leaving, *self.entering}) if at != START and at[0] != self.last]


def _by_state(states: Iterable[tuple[int, int]]) -> Mapping[tuple[int, int], list[int]]:
    found = defaultdict[tuple[int, int], list[int]](list)
    for a, state in enumerate(states):
        found[state].append(a)
    return found


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
