"""Instances and plans as JSON: objects whose keys are the fields of their dataclasses.

`in_files` says what a file has otherwise; `instances.validation` reads what `to_json` writes. Standard library only.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from instances.errors import expect

Kind = TypeVar("Kind", bound=type)

#: What every instance may declare, before its own keys.
_FIRST = ("requirements", "origin")
#: What an instance remembers, and no file declares.
_OWN = ("options",)


@dataclass(frozen=True)
class Form:
    """How a dataclass stands in files.

    ``keys``: in the order of the file: fields, and properties that a file may repeat.
    ``optional``: keys that are left out while the field has its default.
    ``problem``: the ``problem`` key of an instance; empty for a part of one, and for plans.
    ``absent``: what a key stands for that a file leaves out, where the class has no default for it, or another one.
    ``types``: the types of keys in files, where they are not those of the fields.
    ``built(instance)``: what becomes of the instance that the keys of a file make.
    ``reader``: ``package.module:name`` of ``read(content, where) -> instance``, where files do not have the fields one
    by one.
    ``written(value)``: what is written for some keys, whatever their defaults, where it is not the field
    itself.
    """

    keys: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    problem: str = ""
    absent: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, Any] = field(default_factory=dict)
    built: Callable[[Any], Any] = lambda instance: instance
    reader: str = ""
    written: Callable[[Any], Mapping[str, Any]] = lambda _: {}


_FORMS: dict[type, Form] = {}


def in_files(*keys: str, **form: Any) -> Callable[[Kind], Kind]:
    """Declare the `Form` of a dataclass, with other fields of it as ``form``: all fields where no keys are named.

    A key that ends in ``?`` is left out while the field has its default.
    """

    def declare(kind: Kind) -> Kind:
        _FORMS[kind] = _form(kind, keys, **form)
        return kind

    return declare


def form_of(kind: type) -> Form:
    """How a dataclass stands in files."""
    return _FORMS.get(kind) or _form(kind, ())


def kind_of(problem: str) -> type:
    """The dataclass of the instances of a problem; `StopIteration` if none is declared."""
    return next(kind for kind, form in _FORMS.items() if form.problem == problem)


def _form(kind: type, keys: tuple[str, ...], **more: Any) -> Form:
    own = _fields(kind)
    marked = keys or tuple(own)
    if more.get("problem"):
        first = [f"{name}?" for name in _FIRST if name in own]
        marked = (*first, *(keys or (name for name in own if name not in (*_FIRST, *_OWN))))
    plain = tuple(key.removesuffix("?") for key in marked)
    return Form(plain, frozenset(plain) - frozenset(marked), **more)


@cache
def _fields(kind: type) -> dict[str, Field[Any]]:
    return {each.name: each for each in fields(kind)}


def default_of(one: Field[Any]) -> Any:
    """The default of a field; ``MISSING`` if it has none."""
    return one.default if one.default_factory is MISSING else one.default_factory()


def to_json(value: Any) -> Any:
    """A value in JSON types, dataclasses as objects of their `Form`; what was read from it would be equal to it."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind in (tuple, list):
        return [own if type(own) in _PLAIN else to_json(own) for own in value]
    if isinstance(value, Mapping):
        return {str(key): to_json(own) for key, own in value.items()}
    if isinstance(value, Enum):
        return str(value)
    head, keys, written = _key_writers(kind)
    content: dict[str, Any] = {**head}
    instead = written(value)
    for key, left_out in keys:
        own = instead[key] if key in instead else getattr(value, key)
        if own != left_out or key in instead:
            content[key] = own if type(own) in _PLAIN else to_json(own)
    return content


@cache
def _key_writers(kind: type) -> tuple[dict[str, Any], tuple[tuple[str, Any], ...], Callable[[Any], Mapping[str, Any]]]:
    """How a dataclass is written: its first keys, then each key with the value that is left out (``MISSING``: none)."""
    form = form_of(kind)
    head = {"problem": form.problem, "schema_version": 1} if form.problem else {}
    own = _fields(kind)
    return (
        head,
        tuple((key, default_of(own[key]) if key in form.optional else MISSING) for key in form.keys),
        form.written,
    )


_PLAIN = frozenset((str, int, float, bool, type(None)))


@dataclass(frozen=True)
class FileOf:
    """Says of a key's type that the object there is read as an instance of its own; or as what is ``beside``."""

    kind: type
    beside: str = ""


def expect_repeated(instance: Any, repeated: Mapping[str, Any], where: str) -> None:
    """Properties that a file repeats are the instance's; `InstanceError` for the first that is not."""
    for name, value in repeated.items():
        own = getattr(instance, name)
        expect(value in (None, own), where, name, value, f"{own}, as follows from the other fields")
