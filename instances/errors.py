"""The one error of bad input."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlevel = 2


class InstanceError(ValueError):
    """Bad input: one line that names the place, the field, the value and the rule."""

    @classmethod
    def at(cls, where: str, field: str, value: Any, rule: str) -> InstanceError:
        """``WHERE: FIELD is VALUE; expected RULE``, with long values cut."""
        shown = _SHORT.repr(value)
        return cls._line(where, field, shown if len(shown) <= 90 else f"{shown[:87]}...", rule)

    @classmethod
    def missing(cls, where: str, field: str, rule: str = "a value") -> InstanceError:
        """``WHERE: FIELD is missing; expected RULE``."""
        return cls._line(where, field, "missing", rule)

    @classmethod
    def _line(cls, where: str, field: str, shown: str, rule: str) -> InstanceError:
        return cls(" ".join(f"{where}: {field} is {shown}; expected {rule}".split()))


def closest(name: object, names: Iterable[object]) -> str:
    """`` (closest: NAME)``, or nothing where no name is near."""
    found = difflib.get_close_matches(str(name), [str(known) for known in names], n=1, cutoff=0.5)
    return f" (closest: {found[0]})" if found else ""
