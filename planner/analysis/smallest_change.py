"""The smallest change of an instance that helps, each trial a proof by an exact method."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from formulations.contract.rounding import least_amount, round_up
from formulations.contract.what_if import Change
from planner.results.result import Result
from solvers.outcome import Limits, Watch


def least(change: Change[Any], helps: Callable[[Result], bool], solve: Callable[[Any], Result]) -> float | None:
    """The smallest amount of a change that helps, or ``None`` if none does.

    Parameters
    ----------
    change
        Of which more helps no less (or `Change.within`), or each step of which is to be tried.
    helps
        Whether what was proved of the changed instance is enough.
    solve
        ``proofs.optimum`` or ``proofs.plan``.
    """
    needed = change.needed
    if change.in_turn:
        return next((step for step in change.steps if helps(solve(change.changed(step)))), None)
    if needed is None:
        within = change.within or change.changed
        first = _first(len(change.steps), lambda index: helps(solve(within(change.steps[index]))))
        return None if first is None else change.steps[first]

    def fits(amount: float) -> float | None:
        changed = change.changed(min(amount, change.most))
        result = solve(changed)
        return needed(result.own_plan) if helps(result) else None

    most = fits(change.most)
    if most is None:
        return None
    found = least_amount(fits, Watch(Limits()), change.slack, most)
    return round_up(most, change.slack) if found.amount is None else found.amount


def _first(count: int, works: Callable[[int], bool]) -> int | None:
    """The first index that works, where all after it work as well: by doubling, then by halves.

    >>> _first(100, lambda index: index >= 37), _first(3, lambda index: False), _first(0, lambda index: True)
    (37, None, None)
    """
    last = -1
    for index in _doubling(count):
        if works(index):
            break
        last = index
    else:
        return None
    while index - last > 1:
        middle = (last + index) // 2
        last, index = (last, middle) if works(middle) else (middle, index)
    return index


def _doubling(count: int) -> Iterator[int]:
    """0, 1, 3, 7, ... and the last index."""
    index = 0
    while index < count - 1:
        yield index
        index = 2 * index + 1
    if count:
        yield count - 1
