"""The one error of bad input."""

import difflib
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class _Short(reprlib.Repr):
    """Cut short; integers too long for Python to write are described."""

    def repr_int(self, value: int, level: int) -> str:
        bits = value.bit_length()
        return super().repr_int(value, level) if bits < 1000 else f"an integer of {bits} bits"


#: Names of files are cut in the middle beyond so many letters.
_LONGEST = 300
_SHORT = _Short()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlevel = 2


class InstanceError(ValueError):
    """Bad input: one line that names the place, the field, the value and the rule."""

    @classmethod
    def at(cls, where: str, field: str, value: Any, rule: str) -> "InstanceError":
        """``WHERE: FIELD is VALUE; expected RULE``, with long values cut."""
        shown = _SHORT.repr(value)
        return cls._line(where, field, shown if len(shown) <= 90 else f"{shown[:87]}...", rule)

    @classmethod
    def missing(cls, where: str, field: str, rule: str = "a value") -> "InstanceError":
        """``WHERE: FIELD is missing; expected RULE``."""
        return cls._line(where, field, "missing", rule)

    @classmethod
    def _line(cls, where: str, field: str, shown: str, rule: str) -> "InstanceError":
        where = where if len(where) <= _LONGEST else f"{where[: _LONGEST // 2]}...{where[-_LONGEST // 2 :]}"
        return cls(" ".join(f"{where}: {field} is {shown}; expected {rule}".split()))


def expect(holds: bool, where: str, field: str, value: Any, rule: str) -> None:
    """`InstanceError.at` unless the rule holds."""
    if not holds:
        raise InstanceError.at(where, field, value, rule)


def expect_unique(
    ids: Sequence[int | str], where: str, *place: int | str, names: Mapping[str, str] | None = None
) -> None:
    """No two of the ids of a list of objects at ``place`` are one as texts; `InstanceError` if they are."""
    first: dict[str, int] = {}
    for position, name in enumerate(ids):
        before = first.setdefault(str(name), position)
        if before != position:
            rule = f"an id other than that of {path((*place, before), names)}"
            raise InstanceError.at(where, path((*place, position, "id"), names), name, rule)


def path(location: Sequence[int | str], names: Mapping[str, str] | None = None) -> str:
    """``nodes[7].TMPCs.1[0].id`` for ``("nodes", 7, "TMPCs", "1", 0, "id")``; ``names`` are a format's own."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{_key((names or {}).get(part, part))}" for part in location]
    return "".join(parts).removeprefix(".") or "content"


def _key(key: str) -> str:
    return key if key.isprintable() and len(key) <= 80 else ascii(key)[:80]


def closest(name: object, names: Iterable[object]) -> str:
    """`` (closest: NAME)``, or nothing where no name is near."""
    found = difflib.get_close_matches(str(name), [str(known) for known in names], n=1, cutoff=0.5)
    return f" (closest: {found[0]})" if found else ""
