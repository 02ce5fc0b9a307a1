"""The one error of bad input."""

from __future__ import annotations

from typing import Any


class InstanceError(ValueError):
    """Bad input: one line that names the place, the field, the value and the rule."""

    @classmethod
    def at(cls, where: str, field: str, value: Any, rule: str) -> InstanceError:
        """``WHERE: FIELD is VALUE; expected RULE``, with long values cut."""
        shown = repr(value)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        return cls(" ".join(f"{where}: {field} is {shown}; expected {rule}".split()))
