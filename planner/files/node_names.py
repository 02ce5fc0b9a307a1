"""Names beside node numbers: what a person calls the nodes of a plan that only has their ids."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from planner.files.graph_records import nodes_in
from planner.files.load import family_of

#: Longer names are cut in the middle: numbers are at their ends.
_LONGEST = 20


def names_of_nodes(instance: Any) -> dict[str, str]:
    """The name of every node by its id as text; empty if all of them are called as their ids, or have no names."""
    family = family_of(instance)
    nodes = nodes_in(family.name, family.to_json(instance))
    names = {str(node["id"]): str(node.get("name") or node["id"]) for node in nodes if "id" in node}
    return names if any(name != node for node, name in names.items()) else {}


def with_names(plan: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A plan in its JSON form with ``names`` behind every list of nodes; the same without names.

    >>> with_names({"stages": [{"nodes": [0, 1], "dp_degree": 2}]}, {"0": "embedding", "1": "head"})
    {'stages': [{'nodes': [0, 1], 'names': 'embedding .. head', 'dp_degree': 2}]}
    >>> with_names({"stages": [[0, 1], [2]]}, {"0": "a", "1": "b", "2": "b"})
    {'stages': [{'nodes': [0, 1], 'names': 'a .. b'}, {'nodes': [2], 'names': 'b'}]}
    """
    return (
        {key: value for name, part in plan.items() for key, value in _add_names(name, part, names)}
        if names
        else dict(plan)
    )


def _add_names(key: str, part: Any, names: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    if isinstance(part, Mapping):
        yield key, with_names(part, names)
    elif key == "nodes":
        yield from ((key, part), ("names", names_in_brief(part, names)))
    elif _all_are(Mapping, part):
        yield key, [with_names(each, names) for each in part]
    elif key == "stages" and _all_are(list | tuple, part):  # operator partitioning: each a list of nodes
        yield key, [{"nodes": each, "names": names_in_brief(each, names)} for each in part]
    else:
        yield key, part


def _all_are(kind: Any, part: Any) -> bool:
    return isinstance(part, list | tuple) and bool(part) and all(isinstance(each, kind) for each in part)


def names_in_brief(nodes: Sequence[Any], names: Mapping[str, str]) -> str:
    """The names of some nodes in a few characters: equal neighbours counted, long lists as first and last.

    >>> names = {"0": "token ids", "1": "layer", "2": "layer", "3": "head"}
    >>> names_in_brief([1, 2], names), names_in_brief([0, 1], names), names_in_brief([0, 1, 2, 3], names)
    ('2 x layer', 'token ids .. layer', 'token ids .. head')
    """
    runs = [(name, len(list(same))) for name, same in groupby(names.get(str(node), str(node)) for node in nodes)]
    if len(runs) == 1:
        name, count = runs[0]
        return _cut(name) if count == 1 else f"{count} x {_cut(name)}"
    return " .. ".join(_cut(name) for name, _ in (runs[0], runs[-1])) if runs else ""


def _cut(text: str) -> str:
    half = (_LONGEST - 3) // 2
    return text if len(text) <= _LONGEST else f"{text[:half]}...{text[-half:]}"
