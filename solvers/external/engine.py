"""What runs a solver inside its process."""

import math
from collections.abc import Callable
from typing import Any, Protocol

from solvers.external.messages import Bound, Ended, Solution

#: Tells the caller of a solution or a bound.
Tell = Callable[[Solution | Bound], None]


class RefusedError(ValueError):
    """There is no such solver here (then it is empty), or it does not know an option: the rule, as text."""


class Engine(Protocol):
    """A solver, imported."""

    def version(self) -> str:
        """Name and version, for results."""

    def solve(self, task: Any, tell: Tell) -> Ended:
        """Solve the model of a `Task`, or of ours; `RefusedError` for an option that the solver does not know."""


def finite(value: Any) -> float | None:
    """A bound that a solver states, or ``None`` for one that says nothing; solvers write 1e20 and more for infinity."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and abs(number) < 1e20 else None


def parse_option(text: str) -> bool | int | float | str:
    """The value that an option's text stands for.

    >>> parse_option("true"), parse_option("3"), parse_option("0.5"), parse_option("dual")
    (True, 3, 0.5, 'dual')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
