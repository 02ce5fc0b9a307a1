"""The one error of bad calls."""

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


#: So many names are offered for one that is unknown, of which so many characters are compared.
_SHOWN, _LONGEST = 3, 80


class UsageError(ValueError):
    """A request that cannot be served: one line that names the setting, its value and the rule."""

    @classmethod
    def at(cls, setting: str, value: Any, rule: str) -> Self:
        """``SETTING is VALUE; expected RULE``, with long values cut."""
        return cls(" ".join(f"{setting} is {_SHORT.repr(value)}; expected {rule}".split()))

    @classmethod
    def unknown(cls, setting: str, value: Any, known: Iterable[str]) -> Self:
        """``SETTING is VALUE``, and the names it may have that are closest to it."""
        return cls.at(setting, value, f"one of {closest(value, known)}")


def closest(value: Any, known: Iterable[str]) -> str:
    """The known names closest to a value, at most three, with dots for the others.

    >>> closest("bert31", ["mesh", "bert", "chain8", "bert32", "bert-l"]), closest("x", ["p2p", "full"])
    ('bert32, bert, bert-l, ...', 'p2p, full')
    """
    names = list(dict.fromkeys(known))
    if len(names) <= _SHOWN:
        return ", ".join(names)
    word = value[:_LONGEST] if isinstance(value, str) else _SHORT.repr(value)
    near = difflib.get_close_matches(word, names, n=_SHOWN, cutoff=0.0)
    return ", ".join((*near, "..."))
