"""Graphs of models as pictures: chains of operators in one stage are one node, and so are whole parts of large graphs.

Nothing else is hidden: the arcs of a folded graph carry all bytes that go from one node to another.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from formulations.contract.figures.plan_figures import Arc, Graph, Node, Stage
from instances.graph import adjacency

#: A picture has at most so many nodes, if parts of stages can be folded so far.
MOST_NODES = 120
#: Kinds of operators in a node that are named, the most frequent first.
_KINDS = 4
#: Source, targets, bytes: a tensor that several operators of one node take goes there once.
Tensor = tuple[int, Sequence[int], float]
#: Source, target, bytes.
Edge = tuple[int, int, float]


def model_graph(
    title: str,
    names: Sequence[str],
    ids: Sequence[Any],
    figures: Sequence[Mapping[str, Any]],
    tensors: Sequence[Tensor],
    home: Mapping[int, int],
    stages: Sequence[Stage],
) -> Graph:
    """The graph of a model's operators, each in its stage; chains are folded, and if need be connected parts of stages.

    ``names``, ``ids``, ``figures``: of every operator: names may be empty, or kinds that many share; figures of
    operators in one node are added up.
    ``tensors``: between operators, by their indices; those between the same nodes are one arc.
    ``home``: the stage of every operator.
    """
    pairs = sorted({(source, target) for source, targets, _ in tensors for target in targets})
    own_names = _distinct(names, ids)
    groups = _chains(len(names), pairs, home)
    if len(set(groups)) > MOST_NODES:
        # Connected parts of stages: these are convex, so no cycle arises.
        groups = _components(len(names), [(a, b) for a, b in pairs if home.get(a) == home.get(b)])
    members: dict[int, list[int]] = {}
    for operator, group in enumerate(groups):
        members.setdefault(group, []).append(operator)
    nodes = [_node(group, own, own_names, names, ids, figures, home) for group, own in members.items()]
    return Graph(title, nodes, _arcs(tensors, groups, home), stages)


def stage_graph(
    title: str, texts: Sequence[str], members: Sequence[Sequence[Any]], edges: Iterable[Edge], stages: Sequence[Stage]
) -> Graph:
    """The graph of the stages themselves, with a text in each, and the ids of its first and last operator."""
    nodes = [
        Node(i, f"stage {stage.label}", i, text, figures={"id": _ends([str(each) for each in own])})
        for i, (stage, text, own) in enumerate(zip(stages, texts, members, strict=True))
    ]
    return Graph(title, nodes, [Arc(source, target, size, True) for source, target, size in edges], stages)


def _distinct(names: Sequence[str], ids: Sequence[Any]) -> list[str]:
    """What operators are called so that no two share it: by their names, and by their ids where names are shared.

    >>> _distinct(["input", "add", "add", "", ""], ["a", "add1", 7, "x", 8])
    ['input', 'add1', 'add 7', 'x', 'operator 8']
    """
    often = Counter(names)
    return [
        name
        if name and often[name] == 1
        else str(own)
        if isinstance(own, str) and own.startswith(name)
        else f"{name or 'operator'} {own}"
        for name, own in zip(names, ids, strict=True)
    ]


def _node(
    group: int,
    own: Sequence[int],
    distinct: Sequence[str],
    names: Sequence[str],
    ids: Sequence[Any],
    figures: Sequence[Mapping[str, Any]],
    home: Mapping[int, int],
) -> Node:
    """One operator, or a chain or part of several; of what kinds they are is said where names are kinds."""
    said = {"id": _ends([str(ids[each]) for each in own])}
    kinds = Counter(names[each].partition("(")[0] for each in own)  # Conv2d(64, 64, ...) is a Conv2d
    if len(set(names)) < len(names) and any(kinds):
        most = [f"{count} x {kind}" if count > 1 else kind for kind, count in kinds.most_common(_KINDS) if kind]
        said["kind"] = ", ".join([*most, *(["..."] if len(kinds) > _KINDS else [])])
    sums = {key: sum(figures[each][key] for each in own) for key in figures[own[0]]}
    text = "" if len(own) == 1 else f"{len(own)} operators"
    return Node(group, _ends([distinct[each] for each in own]), home.get(own[0]), text, len(own), {**said, **sums})


def _ends(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{texts[0]} .. {texts[-1]}"


def _arcs(tensors: Sequence[Tensor], groups: Sequence[int], home: Mapping[int, int]) -> list[Arc]:
    volumes: dict[tuple[int, int], float] = {}
    for source, targets, size in tensors:
        for target in {groups[each] for each in targets} - {groups[source]}:
            pair = groups[source], target
            volumes[pair] = volumes.get(pair, 0.0) + size
    return [Arc(a, b, size, home.get(a) != home.get(b)) for (a, b), size in volumes.items()]


def _chains(count: int, edges: Sequence[tuple[int, int]], home: Mapping[int, int]) -> list[int]:
    """For each operator the first one of the chain that it is in: one way in, one way out, one stage."""
    after, before = adjacency(count, edges)
    joined = [(a, b) for a, b in edges if len(after[a]) == len(before[b]) == 1 and home.get(a) == home.get(b)]
    return _components(count, joined)


def _components(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """For each number the least that pairs connect it with."""
    import networkx

    graph = networkx.Graph(pairs)
    graph.add_nodes_from(range(count))
    first = {each: min(part) for part in networkx.connected_components(graph) for each in part}
    return [first[each] for each in range(count)]
