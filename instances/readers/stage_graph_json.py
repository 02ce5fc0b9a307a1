"""The project's own JSON of stage graphs, schema version 1 (docs/problems/stage_graph.md)."""

from dataclasses import replace
from typing import Any

from instances.errors import InstanceError, closest, expect, expect_unique
from instances.graph import expect_acyclic, topological_order
from instances.problems.stage_graph import (
    AffineTime,
    DeclaredTime,
    NamedEdge,
    NamedOperator,
    NamedShard,
    Operator,
    OperatorEdge,
    Shard,
    StageGraph,
    TableTime,
    Time,
    check,
    check_time,
)
from instances.validation import read_keys


def read(content: Any, where: str) -> StageGraph:
    """The instance that parsed JSON declares; operators may come in any order.

    `InstanceError`: one line that names the field, its value and the rule: wrong types, numbers that are negative, not
    finite or beyond 1e30, duplicate ids or edges, edges to nowhere, cycles, times that fall, micro-batch sizes that do
    not divide the mini-batch, a device graph of the wrong shape.
    """
    given = read_keys(StageGraph, content, where)
    if given["memory_bytes"] is None:
        if given["device_graph"] is None:
            raise InstanceError.missing(where, "memory_bytes", "a number of bytes, or a device_graph")
        given["memory_bytes"] = 0.0
    operators, named_edges = given["operators"], given["edges"]
    order, edges = _graph(operators, named_edges, where)
    position = {index: rank for rank, index in enumerate(order)}
    ids = tuple(operators[index].id for index in order)
    given["ids"] = () if ids == tuple(range(len(ids))) else ids
    given["operators"] = tuple(_operator(operators[index], f"operators[{index}]", where) for index in order)
    given["edges"] = tuple(
        OperatorEdge(position[source], position[target], each.bytes_per_sample)
        for (source, target), each in zip(edges, named_edges, strict=True)
    )
    given["microbatches"] = tuple(sorted(set(given["microbatches"])))
    instance = StageGraph(**given)
    check(instance, where)
    return instance


def _graph(
    operators: tuple[NamedOperator, ...], named: tuple[NamedEdge, ...], where: str
) -> tuple[list[int], list[tuple[int, int]]]:
    """A topological order of the operators (declared order among the ready), and the edges as pairs of indices."""
    ids = [operator.id for operator in operators]
    expect(bool(ids), where, "operators", [], "at least one operator")
    expect_unique(ids, where, "operators")
    index = {name: number for number, name in enumerate(ids)}
    edges: dict[tuple[int, int], None] = {}
    for number, edge in enumerate(named):
        for end, node in (("source", edge.source), ("target", edge.target)):
            if node not in index:
                rule = f"the id of an operator{closest(node, index)}"
                raise InstanceError.at(where, f"edges[{number}].{end}", node, rule)
        pair = index[edge.source], index[edge.target]
        if pair in edges or pair[0] == pair[1]:
            rule = "an edge that is declared once, between two operators"
            raise InstanceError.at(where, f"edges[{number}]", [edge.source, edge.target], rule)
        edges[pair] = None
    expect_acyclic(len(ids), list(edges), where, [str(name) for name in ids])
    return topological_order(len(ids), list(edges)), list(edges)


def _operator(named: NamedOperator, field: str, where: str) -> Operator:
    forward, backward = (_time(getattr(named, way), f"{field}.{way}", where) for way in ("forward", "backward"))
    whole = Operator(named.name or str(named.id), forward, backward, named.weight_bytes, named.activation_bytes)
    shards = (_shard(whole, each, f"{field}.tensor_parallel[{place}]", where)
              for place, each in enumerate(named.tensor_parallel))  # fmt: skip
    return replace(whole, tensor_parallel=tuple(shards))


def _shard(whole: Operator, named: NamedShard, field: str, where: str) -> Shard:
    t = named.degree
    forward, backward = (
        _over(t, getattr(whole, way)) if (own := getattr(named, way)) is None else _time(own, f"{field}.{way}", where)
        for way in ("forward", "backward")
    )
    weights = whole.weight_bytes / t if named.weight_bytes is None else named.weight_bytes
    activations = whole.activation_bytes if named.activation_bytes is None else named.activation_bytes
    shared = named.reduced_bytes, named.spread_inputs, named.spread_outputs
    return Shard(t, forward, backward, weights, activations, *shared)


def _over(degree: int, time: Time) -> Time:
    if isinstance(time, AffineTime):
        return AffineTime(time.fixed_s / degree, time.per_sample_s / degree)
    return replace(time, seconds=tuple(each / degree for each in time.seconds))


def _time(time: DeclaredTime | TableTime, field: str, where: str) -> Time:
    """An affine time, or a table in which time does not fall and time per sample does not rise."""
    if isinstance(time, DeclaredTime):
        return AffineTime(time.fixed_s, time.per_sample_s)
    check_time(time, where, field)
    return time
