"""Amounts in sentences about infeasible instances: numbers short enough to type, rounded up so that they suffice.

A rounded amount is whole from 1000 to 10^11 and has nine significant digits elsewhere; ``amount_text`` keeps all of it.
Families ask for the least rounded amount with a plan (`least_amount`), and say just that number.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from instances.parameters import MIN_AMOUNT
from instances.units import size
from solvers.outcome import Watch

_DIGITS = 9
#: From so many bytes on there is a size of another unit.
_AS_SIZE = 1024
_WHOLE = (Decimal(1000), Decimal(10) ** 11)
#: No step is smaller, so that every amount is one that may be declared.
_FINEST = Decimal(str(MIN_AMOUNT))


def plural(count: int, noun: str) -> str:
    """So many of a noun.

    >>> plural(1, "device"), plural(2, "device")
    ('1 device', '2 devices')
    """
    return f"{count} {noun}" + ("" if count == 1 else "s")


def round_up(needed: float, slack: float = 1.0) -> float:
    """The least rounded amount that is enough: ``needed`` is at most ``slack`` times it, in float arithmetic.

    >>> round_up(20.168600001), round_up(2136.2), round_up(0.0)
    (20.1686001, 2137.0, 0.0)
    >>> round_up(3000.0000000001, slack=1 + 1e-12)
    3000.0
    """
    exact = Decimal(needed)
    amount = float(exact.quantize(_unit(exact), ROUND_CEILING))
    while amount and (less := step_below(amount)) * slack >= needed:
        amount = less
    return amount


def step_below(amount: float) -> float:
    """The rounded amount before this one; ``amount`` is rounded and positive.

    >>> step_below(2137.0), step_below(1000.0), step_below(1e-05)
    (2136.0, 999.999999, 9.99999999e-06)
    """
    less = Decimal(amount_text(amount)).next_minus()
    return float(less.quantize(_unit(less), ROUND_FLOOR))


def amount_text(amount: float) -> str:
    """A rounded amount as text, which says all of it.

    >>> amount_text(8589934592.0), amount_text(20.1686001), amount_text(1e12)
    ('8589934592', '20.1686001', '1e+12')
    """
    return f"{amount:.0f}" if _WHOLE[0] <= Decimal(amount) < _WHOLE[1] else f"{amount:.{_DIGITS}g}"


def exactly(number: float) -> str:
    """Any number as the shortest text that reads back to it.

    >>> exactly(2136.25), exactly(30.0)
    ('2136.25', '30')
    """
    return repr(float(number)).removesuffix(".0")


def bytes_text(number: float, *, up: bool = False) -> str:
    """Bytes as a size, with all their digits behind it; few bytes are just that. ``up``: the size is never less.

    >>> bytes_text(36e6, up=True), bytes_text(20.5)
    ('34.34 MiB (36000000 bytes)', '20.5 bytes')
    """
    text = f"{exactly(number)} bytes"
    return text if number < _AS_SIZE else f"{size(number, up=up)} ({text})"


def _unit(amount: Decimal) -> Decimal:
    """The step from one rounded amount to the next."""
    if _WHOLE[0] <= amount < _WHOLE[1]:
        return Decimal(1)
    return max(_FINEST, Decimal(1).scaleb(amount.adjusted() - _DIGITS + 1))


@dataclass(frozen=True)
class Least:
    """How much is enough (``None``: nothing is known to be, ``inf``: proved that nothing is), and is it the least?"""

    amount: float | None = None
    proved: bool = False


def least_amount(
    fits: Callable[[float], float | None], watch: Watch, slack: float = 1.0, needed: float = math.inf
) -> Least:
    """The least rounded amount with a plan: no plan fits into the one before it.

    ``fits``: what some plan needs that fits into so much (``inf``: any plan), or ``None`` if there is none. By float
    noise a plan may need a little more than it was to fit into; such a plan counts as none.
    ``slack``: a plan fits into what it needs over this.
    ``needed``: what a plan needs that is known already.
    """
    low, tries = 0.0, 0
    while needed:
        last = step_below(round_up(needed, slack)) if needed < math.inf else needed
        # One step below the best plan, every other time: it tends to be the least.
        trial = last if tries % 2 == 0 else min((low + needed) / 2, last)
        found = fits(trial)
        tries += 1
        if watch.stopped():
            return Least(round_up(needed, slack) if needed < math.inf else None)
        if found is not None and found < needed:
            needed = found
        elif trial == last:
            return Least(round_up(needed, slack) if needed < math.inf else needed, proved=True)
        else:
            low = trial
    return Least(0.0, proved=True)
