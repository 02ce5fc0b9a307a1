"""Hold values to the types of `instances.rules`: the content of a file, or an instance that was built in Python.

The one place that runs pydantic; imported only where there is something to validate.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass, make_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from instances.errors import InstanceError, closest, expect, path
from instances.exchange import FileOf, default_of, expect_repeated, form_of
from instances.rules import TAGS, Version

Noun = TypeVar("Noun")
Record = TypeVar("Record", bound=BaseModel)


class Header(BaseModel):
    """What files of instances and plans begin with."""

    schema_version: Version = 1


_FROM_FILE = {"dict_type": "an object", "model_type": "an object", "list_type": "a list", "tuple_type": "a list"}
_FROM_FILE |= {
    "dataclass_type": "an object",
    "union_tag_invalid": "an object",
    "mapping_type": "an object",
    "too_long": "a shorter list",
}
_FROM_PYTHON = {"tuple_type": "a tuple", "dict_type": "a mapping", "mapping_type": "a mapping"}
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def _adapter(kind: Any, *, extra: Literal["forbid", "ignore"] = "forbid") -> TypeAdapter[Any]:
    return _cached_adapter(kind, extra)


@cache
def _cached_adapter(kind: Any, extra: Literal["forbid", "ignore"]) -> TypeAdapter[Any]:
    # A configuration is only taken for a type around the dataclass, and reaches all dataclasses inside.
    return TypeAdapter(tuple[kind], config=ConfigDict(extra=extra, revalidate_instances="always"))


def validate_fields(instance: Noun, where: str) -> Noun:
    """A copy of an instance of a dataclass whose every field, and that of the dataclasses in it, keeps its rule.

    Numbers that are declared as floats are floats in the copy: kernels are compiled for these alone.

    `InstanceError`: one line that names the first field that does not, its value and the rule.
    """
    try:
        copy: Noun = _adapter(type(instance)).validate_python((instance,), strict=True)[0]
    except ValidationError as error:
        raise _instance_error(error, (), where, _FROM_PYTHON, depth=1) from None
    return copy


def read_instance(kind: type[Noun], content: Any, where: str, check: Callable[[Noun, str], None]) -> Noun:
    """The instance that a file's ``content`` declares: the keys of its `Form`, ``problem`` and ``schema_version``.

    ``check``: the rules between fields (`formulations.contract.family.Family`).
    `InstanceError`: one line that names the first field that breaks a rule, its value and the rule.
    """
    given = read_keys(kind, content, where)
    repeated = {name: given.pop(name) for name in list(given) if name not in kind.__dataclass_fields__}  # type: ignore[attr-defined]
    instance: Noun = form_of(kind).built(kind(**given))
    check(instance, where)
    expect_repeated(instance, repeated, where)
    return instance


def read_keys(kind: type, content: Any, where: str, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The values of all keys of a dataclass's `Form` that ``content`` declares, with defaults for those left out.

    ``names`` are a foreign format's own names of fields, for the errors. `InstanceError` if a key is wrong.
    """
    record = record_of(kind)
    if problem := form_of(kind).problem:
        read_record(Header, content, where)
        expect(content.get("problem", problem) == problem, where, "problem", content.get("problem"), problem)
        content = {name: value for name, value in content.items() if name not in ("problem", "schema_version")}
    return dict(vars(read_fields(record, content, where, names)))


@cache
def record_of(kind: type) -> type:
    """A dataclass with the keys, types and defaults that files of a dataclass have (`instances.exchange.Form`)."""
    form = form_of(kind)
    types = {**get_type_hints(kind, include_extras=True), **form.types}
    own = {each.name: each for each in fields(kind)}
    keys: list[Any] = []
    for key in form.keys:
        default = form.absent[key] if key in form.absent else default_of(own[key]) if key in own else None
        keys.append((key, types[key]) if default is MISSING else (key, types[key], _default_field(default)))
    return make_dataclass(kind.__name__, keys, kw_only=True)


def _default_field(value: Any) -> Any:
    return field(default_factory=lambda: value) if isinstance(value, Mapping) else value


def read_fields(
    kind: type[Noun],
    content: Any,
    where: str,
    names: Mapping[str, str] | None = None,
    extra: Literal["forbid", "ignore"] = "forbid",
) -> Noun:
    """The dataclass whose fields are the keys of ``content``, a value of JSON; `InstanceError` if one is wrong.

    ``extra``: what becomes of other keys.
    """
    known = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    try:
        found: Noun = _adapter(kind, extra=extra).validate_python((content,))[0]
    except ValidationError as error:
        raise _instance_error(error, known, where, _FROM_FILE, depth=1, names=names, kind=kind) from None
    return found


def json_schema(kind: type) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of what `read_keys` takes for a dataclass, as far as it can say it."""
    found = {**TypeAdapter(record_of(kind)).json_schema(), "additionalProperties": False}
    for key, declared in form_of(kind).types.items():
        for inner in getattr(declared, "__metadata__", ()):
            if isinstance(inner, FileOf):
                own = TypeAdapter(record_of(inner.kind)).json_schema()
                found["$defs"] = {**found.get("$defs", {}), **own.pop("$defs", {})}
                other = {"type": "object", "not": {"required": ["problem"]}, "description": inner.beside}
                found["properties"][key] = {"anyOf": [own, other]} if inner.beside else own
    return found


def read_record(model: type[Record], content: Any, where: str) -> Record:
    """``content`` as a ``model``; its first error as an `InstanceError` that names the field."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise _instance_error(error, list(model.model_fields), where, _FROM_FILE) from None


#: Missing fields that one message names.
_MOST_MISSING = 8


def _kind_in_words(kind: Any, location: Sequence[int | str]) -> str:
    """What a field of a dataclass is in JSON, in words."""
    kind = _type_at(kind, location)
    if get_origin(kind) is tuple:
        return "a list"
    return "an object" if is_dataclass(kind) or get_origin(kind) in (Mapping, dict) else "a value"


def _type_at(kind: Any, location: Sequence[int | str]) -> Any:
    for part in location:
        kind = _plain(kind)
        if isinstance(kind, UnionType):  # of several dataclasses that which has the field
            kind = next((each for each in get_args(kind) if str(part) in get_type_hints(each)), None)
        if is_dataclass(kind):
            kind = get_type_hints(kind).get(str(part))
        else:  # of a list the one type of all, of an object the type of its values
            kind = next((each for each in reversed(get_args(kind)) if each is not ...), None)
    return _plain(kind)


def _fields_beside(kind: Any, location: Sequence[int | str]) -> list[str]:
    """The fields that a dataclass has at the place of a field that it does not have."""
    found = _type_at(kind, location[:-1])
    return [
        each.name
        for part in (get_args(found) if isinstance(found, UnionType) else (found,))
        if is_dataclass(part)
        for each in fields(part)
    ]


def _plain(kind: Any) -> Any:
    """A type without ``None``."""
    parts = [each for each in get_args(kind) if each is not type(None)]
    return parts[0] if isinstance(kind, UnionType) and len(parts) == 1 else kind


def _missing_in_words(missing: Sequence[tuple[int | str, ...]], names: Mapping[str, str] | None, first: str) -> str:
    """What is expected of the first missing field, and of the others: one of those in a list stands for all."""
    named: dict[tuple[str, ...], str] = {}
    for each in missing:
        named.setdefault(tuple("" if str(part).isdigit() else str(part) for part in each), path(each, names))
    beside = [*named.values()][1:_MOST_MISSING]
    more = len(missing) - 1 - len(beside)
    others = [*beside, f"{more} more"] if more else beside
    return f"{first}, as of {', '.join(others)}" if others else first


def _place(error: Mapping[str, Any], depth: int) -> tuple[int | str, ...]:
    return tuple(part for part in error["loc"][depth:] if part not in TAGS)


def _instance_error(
    error: ValidationError,
    known: Iterable[str],
    where: str,
    rules: Mapping[str, str],
    depth: int = 0,
    names: Mapping[str, str] | None = None,
    kind: Any = None,
) -> InstanceError:
    first = error.errors(include_url=False)[0]
    location = _place(first, depth)
    if location[-1:] == ("[key]",):  # of a mapping, whose name is the field
        location = location[:-2]
    place, value, fault = path(location, names), first["input"], first["type"]
    if fault == "missing":
        found = [_place(each, depth) for each in error.errors(include_url=False) if each["type"] == "missing"]
        return InstanceError.missing(where, place, _missing_in_words(found, names, _kind_in_words(kind, found[0])))
    if fault in _UNKNOWN:
        beside = known if len(location) == 1 else _fields_beside(kind, location)
        return InstanceError.at(where, place, value, f"no such field{closest(location[-1], beside)}")
    if fault == "dataclass_exact_type":
        return InstanceError.at(where, place, value, f"an instance of {first['ctx']['class_name']}")
    if fault == "value_error":
        return InstanceError.at(where, place, value, str(first["ctx"]["error"]))
    return InstanceError.at(where, place, value, rules.get(fault, first["msg"]))
