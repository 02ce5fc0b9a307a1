"""Small random instances of a dataclass: its numbers, drawn as whole numbers within their rules.

A field that is a number or flag belongs to the whole; a tuple has one entry for each node, a number or a dataclass of
numbers. What else there is keeps its default.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from formulations.contract.instance_space import UNIFORM_LAYERS, Gene, Genes, Genome, InstanceSpace
from instances.errors import InstanceError
from instances.rules import Count

_NUMBERS = (int, float, bool)


def mining(kind: type) -> InstanceSpace[Any]:
    """The limits, genes and domains of the instances of a dataclass: ``nodes`` are the entries of its tuples."""
    return InstanceSpace({"nodes": 5, "number": 9}, lambda limits: genes(kind, limits), (UNIFORM_LAYERS,))


def genes(kind: type, limits: Mapping[str, int]) -> Genes[Any]:
    """Instances within limits."""
    own = dict(_own(kind))
    whole = {name: each for name, each in own.items() if _plain(each) in _NUMBERS}
    tuples = {name: get_args(each)[0] for name, each in own.items() if get_origin(each) is tuple}
    parts = {name: dict(_own(part)) if is_dataclass(part) else {"": part} for name, part in tuples.items()}
    of_node = [
        (name, part, each) for name, own in parts.items() for part, each in own.items() if _plain(each) in _NUMBERS
    ]

    def build(genome: Genome) -> Any:
        columns = list(zip(*genome.nodes, strict=True))
        found: dict[str, Any] = {
            name: _as(each, value) for (name, each), value in zip(whole.items(), genome.whole, strict=True)
        }
        for name, part in tuples.items():
            entries: list[dict[str, Any]] = [{} for _ in genome.nodes]
            for (owner, inner, each), column in zip(of_node, columns, strict=True):
                for entry, value in zip(entries, column, strict=True):
                    entry.update({inner: _as(each, value)} if owner == name else {})
            found[name] = tuple(_entry(part, entry, place) for place, entry in enumerate(entries))
        return _valid(kind, found)

    most = limits["number"]
    return Genes(
        limits["nodes"],
        tuple(_gene(name, each, most) for name, each in whole.items()),
        tuple(_gene(f"{name} {part}".strip(), each, most) for name, part, each in of_node),
        None,
        build,
    )


def _own(kind: Any) -> Iterator[tuple[str, Any]]:
    types = get_type_hints(kind, include_extras=True)
    return ((each.name, types[each.name]) for each in fields(kind) if each.name not in ("name", "requirements"))


def _gene(name: str, kind: type, most: int) -> Gene:
    return Gene(name.replace("_", " "), 1 if kind is bool else most, int(kind is Count))


def _plain(kind: Any) -> Any:
    """A type without its rule."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _as(kind: Any, value: int) -> Any:
    return _plain(kind)(value)


def _entry(part: Any, entry: Mapping[str, Any], place: int) -> Any:
    """An entry of a tuple; texts without a default are numbered."""
    if not is_dataclass(part):
        return entry.get("", str(place))
    types = get_type_hints(part)
    needed = [each.name for each in fields(part) if each.default is MISSING and each.default_factory is MISSING]
    texts = {name: f"{place}" for name in needed if name not in entry and types[name] is str}
    return part(**{**texts, **entry})  # type: ignore[operator]


def _valid(kind: type, found: Mapping[str, Any]) -> Any:
    """The instance, or ``None`` if these numbers make none."""
    from instances.validation import validate_fields  # imports pydantic

    try:
        return validate_fields(kind(**{"name": "mined", **found}), "mined")
    except (InstanceError, ValueError, TypeError):
        return None
