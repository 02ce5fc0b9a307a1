"""What can go wrong above the methods: bad usage, and methods that contradict each other."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Self


class UsageError(ValueError):
    """A request that cannot be served: one line that names the setting, its value and the rule."""

    @classmethod
    def at(cls, setting: str, value: Any, rule: str) -> Self:
        """``SETTING is VALUE; expected RULE``."""
        return cls(f"{setting} is {value!r}; expected {rule}")

    @classmethod
    def unknown(cls, setting: str, value: str, known: Iterable[str]) -> Self:
        """``SETTING is VALUE``, the names it may have, and the one that was probably meant."""
        names = list(known)
        close = difflib.get_close_matches(value, names, n=1, cutoff=0.5)
        meant = f" (did you mean {close[0]}?)" if close else ""
        return cls.at(setting, value, f"one of {', '.join(names)}{meant}")


class CrosscheckError(Exception):
    """A plan that breaks the rules, a bound above a verified plan, or two proofs that exclude each other.

    ``evidence`` is what a person needs to reproduce it, in JSON types.
    """

    def __init__(self, message: str, evidence: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.evidence = dict(evidence or {})
