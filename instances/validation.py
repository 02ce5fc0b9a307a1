"""Hold values to the types of `instances.rules`: the content of a file, or an instance that was built in Python.

The one place that runs pydantic; imported only where there is something to validate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from instances.errors import InstanceError, closest, path
from instances.rules import Version

Noun = TypeVar("Noun")
Record = TypeVar("Record", bound=BaseModel)


class _Header(BaseModel):
    schema_version: Version = 1


_FROM_FILE = {"dict_type": "an object", "model_type": "an object", "list_type": "a list", "tuple_type": "a list"}
_FROM_FILE |= {"dataclass_type": "an object", "mapping_type": "an object", "too_long": "a shorter list"}
_FROM_PYTHON = {"tuple_type": "a tuple", "dict_type": "a mapping", "mapping_type": "a mapping"}
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def _adapter(kind: Any) -> TypeAdapter[Any]:
    return _cached_adapter(kind)


@cache
def _cached_adapter(kind: Any) -> TypeAdapter[Any]:
    # A configuration is only taken for a type around the dataclass, and reaches all dataclasses inside.
    return TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid", revalidate_instances="always"))


def checked(instance: Noun, where: str) -> Noun:
    """A copy of an instance of a dataclass whose every field, and that of the dataclasses in it, keeps its rule.

    Numbers that are declared as floats are floats in the copy: kernels are compiled for these alone.

    Raises
    ------
    InstanceError
        One line that names the first field that does not, its value and the rule.
    """
    try:
        copy: Noun = _adapter(type(instance)).validate_python((instance,), strict=True)[0]
    except ValidationError as error:
        raise _translated(error, (), where, _FROM_PYTHON, depth=1) from None
    return copy


def read_instance(
    kind: type[Noun], content: Any, where: str, check: Callable[[Noun, str], None], *own: str, **defaults: Any
) -> Noun:
    """The instance that a file's ``content`` declares: its fields, and the keys ``problem`` and ``schema_version``.

    Parameters
    ----------
    check
        The rules between fields (`formulations.contract.family.Family`).
    defaults
        Values of keys that may be left out though the class has no default for them.
    own
        Fields that no file may declare.

    Raises
    ------
    InstanceError
        One line that names the first field that breaks a rule, its value and the rule.
    """
    validated(_Header, content, where)
    for name in own:
        if name in content:
            raise InstanceError.at(where, name, content[name], "no such field")
    given = {name: value for name, value in content.items() if name not in ("problem", "schema_version")}
    instance = read_fields(kind, {**defaults, **given}, where)
    check(instance, where)
    return instance


def read_fields(kind: type[Noun], content: Any, where: str) -> Noun:
    """The dataclass whose fields are the keys of ``content``, a value of JSON; `InstanceError` if one is wrong."""
    known = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    try:
        found: Noun = _adapter(kind).validate_python((content,))[0]
    except ValidationError as error:
        raise _translated(error, known, where, _FROM_FILE, depth=1) from None
    return found


def json_schema(kind: type) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of what `read_fields` takes for a dataclass, as far as it can say it."""
    return {**TypeAdapter(kind).json_schema(), "additionalProperties": False}


def validated(model: type[Record], content: Any, where: str) -> Record:
    """``content`` as a ``model``; its first error as an `InstanceError` that names the field."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise _translated(error, list(model.model_fields), where, _FROM_FILE) from None


#: Missing fields that one message names.
_MOST_MISSING = 8


def _values_wanted(missing: Sequence[tuple[int | str, ...]]) -> str:
    """What is expected of the first missing field, and of the others: one of those in a list stands for all."""
    named: dict[tuple[str, ...], str] = {}
    for each in missing:
        named.setdefault(tuple("" if str(part).isdigit() else str(part) for part in each), path(each))
    beside = [*named.values()][1:_MOST_MISSING]
    more = len(missing) - 1 - len(beside)
    others = [*beside, f"{more} more"] if more else beside
    return f"a value, as of {', '.join(others)}" if others else "a value"


def _translated(
    error: ValidationError, known: Iterable[str], where: str, rules: Mapping[str, str], depth: int = 0
) -> InstanceError:
    first = error.errors(include_url=False)[0]
    location = first["loc"][depth:]
    if location[-1:] == ("[key]",):  # of a mapping, whose name is the field
        location = location[:-2]
    field, value, kind = path(location), first["input"], first["type"]
    if kind == "missing":
        found = [each["loc"][depth:] for each in error.errors(include_url=False) if each["type"] == "missing"]
        return InstanceError.missing(where, field, _values_wanted(found))
    if kind in _UNKNOWN:
        return InstanceError.at(
            where, field, value, f"no such field{closest(location[-1], known if len(location) == 1 else ())}"
        )
    if kind == "dataclass_exact_type":
        return InstanceError.at(where, field, value, f"an instance of {first['ctx']['class_name']}")
    if kind == "value_error":
        return InstanceError.at(where, field, value, str(first["ctx"]["error"]))
    return InstanceError.at(where, field, value, rules.get(kind, first["msg"]))
