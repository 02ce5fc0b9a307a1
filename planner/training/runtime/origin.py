"""Whether an instance was made of a captured model: its nodes and edges, and the bytes of both."""

import math
from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Any

from instances.errors import expect
from instances.problems.stage_edits import relayed_bytes
from instances.problems.stage_partitioning import CostModel
from instances.rules import NodeId
from planner.training.capture.captured import Captured, edge_bytes, shared_tensors

#: What `planner import` and `planner profile` call the sizes of nodes.
_GRANULARITIES = ("block", "op")

#: What a model has, and what an instance has in its place, in words.
Difference = tuple[str, str]


def granularity_of(instance: Any) -> str | None:
    """The granularity that the instance was imported or profiled with; ``None`` for one that was made by hand.

    `InstanceError` if the instance names another one than these commands know.
    """
    found = {**instance.options, **instance.origin}.get("granularity")
    expect(found in (None, *_GRANULARITIES), instance.name, "granularity", found, "block or op, or none")
    return None if found is None else str(found)


def other_graph(captured: Captured, instance: Any) -> Difference | None:
    """The first node or edge that a captured model and an instance do not share."""
    return next(_of_graphs(captured, instance), None)


def _of_graphs(captured: Captured, instance: Any) -> Iterator[Difference]:
    parts = instance.layers if hasattr(instance, "layers") else instance.operators
    own, names = [node.name for node in captured.nodes], [part.name for part in parts]
    if len(own) != len(names):
        yield f"a model of {len(own)} nodes", str(len(names))
    for place, (found, expected) in enumerate(zip(own, names, strict=False)):
        if found != expected:
            yield f"a model whose node {place} is {found}", expected
    wanted = set(_sent_bytes(captured, instance))
    edges = {
        pair for pair, size in _declared_bytes(instance).items() if size or pair in wanted
    }  # others are of --linearize
    for u, v in sorted(edges - wanted):
        yield f"a model without an edge from {own[u]} to {own[v]}", "one"
    for u, v in sorted(wanted - edges):
        yield f"a model with an edge from {own[u]} to {own[v]}", "none"


def _declared_bytes(instance: Any) -> dict[tuple[int, int], float]:
    """Bytes of an instance's edges, by place; those of operators are the tensors of both passes."""
    if hasattr(instance, "layers"):
        return {pair: edge.bytes for pair, edge in zip(instance.edge_indices, instance.edges, strict=True)}
    if hasattr(instance, "tensors"):
        found = dict.fromkeys(instance.edges, 0.0)
        for tensor in instance.tensors:
            for target in tensor.targets:
                found[tensor.source, target] += tensor.volume_bytes
        return found
    return {(edge.source, edge.target): edge.bytes_per_sample for edge in instance.edges}


def _sent_bytes(captured: Captured, instance: Any) -> dict[tuple[int, int], float]:
    """Bytes of the model's edges, by place; under the cost model ``runtime`` those that pass from each to the next."""
    edges = edge_bytes(captured)
    if hasattr(instance, "tensors"):
        return {pair: 2 * size for pair, size in edges.items()}
    if getattr(instance, "cost_model", None) is not CostModel.RUNTIME:
        return edges
    order: list[int] = list(TopologicalSorter({v: [u] for u, v in instance.edge_indices}).static_order()) or [0]
    places: dict[NodeId, int] = {node: place for place, node in enumerate(order)}
    tensors: dict[tuple[NodeId, NodeId], float] = {(u, v): size for (u, v), size in edges.items()}
    return dict(zip(pairwise(order), relayed_bytes(places, tensors, shared_tensors(captured)), strict=True))


def other_bytes(captured: Captured, instance: Any, whole: Callable[[], tuple[Captured, int]]) -> Difference | None:
    """The first node whose parameters, or edge whose tensors, have other bytes than an instance with the same graph.

    ``whole``: the model captured with all samples of its inputs, and how many they are: edges of stage graphs are
    shares of their bytes.
    """
    return next(_of_bytes(captured, instance, whole), None)


def _of_bytes(captured: Captured, instance: Any, whole: Callable[[], tuple[Captured, int]]) -> Iterator[Difference]:
    names = [node.name for node in captured.nodes]
    if hasattr(instance, "layers"):
        counted = [sum(each.size for each in node.parameters if each.trained) for node in captured.nodes]
        declared = [{x.weight_bytes for x in layer.tmpcs.get(1, ())} for layer in instance.layers]
        kind, part = "trained parameters", ""
    else:
        counted = [sum(each.size for each in node.parameters) for node in captured.nodes]
        is_graph = hasattr(instance, "tensors")
        declared = [{each.parameter_bytes if is_graph else each.weight_bytes} for each in instance.operators]
        kind, part = "parameters", "" if is_graph else " of a sample"
    for name, found, sizes in zip(names, counted, declared, strict=True):
        for size in sizes:
            if not _equal(found, size):
                yield f"a model with {found:.12g} bytes of {kind} in {name}", f"{size:.12g}"
    sent = _sent_bytes(captured, instance)
    edges = {pair: size for pair, size in _declared_bytes(instance).items() if pair in sent}
    if part and any(not _equal(sent[pair], size) for pair, size in edges.items()):
        all_samples, count = whole()
        sent = {pair: size / count for pair, size in edge_bytes(all_samples).items()}
    for (u, v), size in sorted(edges.items()):
        if not _equal(sent[u, v], size):
            yield f"a model that sends {sent[u, v]:.12g} bytes{part} from {names[u]} to {names[v]}", f"{size:.12g}"


def _equal(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9)
