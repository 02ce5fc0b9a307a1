"""What another tool's format cannot say of an instance: it is written, read back, and compared field by field."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from instances.errors import InstanceError

#: Formats have other units, and what is read back differs from what was written by a few roundings.
_ROUNDING = 1e-12
#: What an instance remembers of how it was made.
_OWN = ("options", "origin")


def expect_same(instance: Any, again: Any, tool: str) -> None:
    """`InstanceError` for the first field of the instance that is another in what was read back of its file."""
    for place, own, other in _different(instance, again, ""):
        raise InstanceError.at(instance.name, place, own, f"{other!r}, which is all that files of {tool} say of it")


def _different(own: Any, other: Any, place: str) -> list[tuple[str, Any, Any]]:
    """The first place at which two values differ, with both."""
    if isinstance(own, float) and isinstance(other, float):
        return [] if math.isclose(own, other, rel_tol=_ROUNDING) else [(place, own, other)]
    if type(own) is type(other) and is_dataclass(own):
        names = [each.name for each in fields(own) if each.name not in _OWN]
        pairs = [(f"{place}.{name}".strip("."), getattr(own, name), getattr(other, name)) for name in names]
    elif isinstance(own, tuple) and isinstance(other, tuple) and len(own) == len(other):
        pairs = [(f"{place}[{number}]", *both) for number, both in enumerate(zip(own, other, strict=True))]
    elif isinstance(own, Mapping) and isinstance(other, Mapping) and own.keys() == other.keys():
        pairs = [(f"{place}.{key}", own[key], other[key]) for key in own]
    else:
        return [] if own == other else [(place, own, other)]
    return next((found for where, a, b in pairs if (found := _different(a, b, where))), [])
