"""The one error of bad calls."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from typing import Any, Self


class _Short(reprlib.Repr):
    """Cut short; integers too long for Python to write are described."""

    def repr_int(self, value: int, level: int) -> str:
        bits = value.bit_length()
        return super().repr_int(value, level) if bits < 1000 else f"an integer of {bits} bits"


_SHORT = _Short()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 200


class UsageError(ValueError):
    """A request that cannot be served: one line that names the setting, its value and the rule."""

    @classmethod
    def at(cls, setting: str, value: Any, rule: str) -> Self:
        """``SETTING is VALUE; expected RULE``, with long values cut."""
        return cls(" ".join(f"{setting} is {_SHORT.repr(value)}; expected {rule}".split()))

    @classmethod
    def unknown(cls, setting: str, value: Any, known: Iterable[str]) -> Self:
        """``SETTING is VALUE``, the names it may have, and the one that was probably meant."""
        names = list(known)
        close = difflib.get_close_matches(value, names, n=1, cutoff=0.5) if isinstance(value, str) else []
        meant = f" (did you mean {close[0]}?)" if close else ""
        return cls.at(setting, value, f"one of {', '.join(names)}{meant}")
