"""Types of fields that come from outside, and pydantic's errors as one line (imported only where a file is read)."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, PlainValidator, ValidationError

from instances.errors import InstanceError, closest
from instances.parameters import parse_amount, parse_count

#: Smallest bandwidth, in bytes per time unit: dividing by it stays far from overflow.
MIN_BANDWIDTH = 1e-30

Record = TypeVar("Record", bound=BaseModel)


def _number(value: Any) -> float:
    if isinstance(value, str):
        raise ValueError("a number, not text")
    return parse_amount(value)


def _count(value: Any) -> int:
    if isinstance(value, str):
        raise ValueError("an integer, not text")
    return parse_count(value)


def _bandwidth(value: Any) -> float:
    number = _number(value)
    if number < MIN_BANDWIDTH:
        raise ValueError("a positive number")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError("printable text")
    return value


def _identifier(value: Any) -> str:
    if not _text(value):
        raise ValueError("text that is not empty")
    return str(value)


def _node_id(value: Any) -> int | str:
    if isinstance(value, str):
        return _identifier(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError("an integer of at most 63 bits or text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _version(value: Any) -> int:
    if isinstance(value, bool) or value != 1:
        raise ValueError("1, the only schema version there is")
    return 1


Amount = Annotated[float, PlainValidator(_number)]
Count = Annotated[int, PlainValidator(_count)]
Bandwidth = Annotated[float, PlainValidator(_bandwidth)]
Text = Annotated[str, PlainValidator(_text)]
Identifier = Annotated[str, PlainValidator(_identifier)]
NodeId = Annotated[int | str, PlainValidator(_node_id)]
Flag = Annotated[bool, PlainValidator(_flag)]
Version = Annotated[int, PlainValidator(_version)]

_RULES = {"dict_type": "an object", "model_type": "an object", "list_type": "a list", "tuple_type": "a list"}


def validated(model: type[Record], content: Any, where: str) -> Record:
    """``content`` as a ``model``; its first error as an `InstanceError` that names the field."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise _translated(error, model, where) from None


def _translated(error: ValidationError, model: type[BaseModel], where: str) -> InstanceError:
    first = error.errors(include_url=False)[0]
    field = path(first["loc"])
    if first["type"] == "missing":
        return InstanceError.missing(where, field)
    if first["type"] == "extra_forbidden":
        known = [name for name in model.model_fields if len(first["loc"]) == 1]
        return InstanceError.at(where, field, first["input"], f"no such field{closest(first['loc'][-1], known)}")
    if first["type"] == "value_error":
        return InstanceError.at(where, field, first["input"], str(first["ctx"]["error"]))
    return InstanceError.at(where, field, first["input"], _RULES.get(first["type"], first["msg"]))


def path(location: tuple[int | str, ...]) -> str:
    """``nodes[7].TMPCs.1[0].id`` for ``("nodes", 7, "TMPCs", "1", 0, "id")``."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{_key(part)}" for part in location]
    return "".join(parts).removeprefix(".") or "content"


def _key(key: str) -> str:
    return key if key.isprintable() and len(key) <= 80 else ascii(key)[:80]
