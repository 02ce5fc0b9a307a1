"""Edits of a stage-partitioning instance: longer, shorter, restricted, linearised. Each returns a new instance.

What an edit cannot do it refuses with ``ValueError``, saying what it expects.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from instances import graph
from instances.errors import closest
from instances.problems.published import BERT32, fingerprint
from instances.problems.stage_partitioning import CostModel, Edge, KeptTensor, Layer, SharedTensor, StageInstance, Tmpc
from instances.rules import NodeId

#: More transformer layers than any model has; keeps a mistyped number from filling the memory.
MAX_LAYERS = 4096
#: Transformer layers of the published BERT, and the node that is copied to make it longer with its neighbours.
_PUBLISHED_LAYERS, _BEFORE, _COPIED, _AFTER = 32, 33, 34, 35


def lengthen(instance: StageInstance, num_layers: int) -> StageInstance:
    """The published 32-layer BERT with copies of transformer layer 34 between it and layer 35.

    Copies keep the TMPCs. Every new edge costs what 34 -> 35 costs, and its synchronisation what 34 pays towards 33
    and 35; the copies take no attention mask.

    `ValueError` if the instance is not the published BERT, or ``num_layers`` is below 32 or above ``MAX_LAYERS``.
    Source: Reconstructed from the behaviour of Piper's release (the larger BERTs of its Figure 3).
    """
    if fingerprint(instance.layers, instance.edges) != BERT32:
        raise ValueError("the published 32-layer BERT, the only file that can be lengthened")
    if not _PUBLISHED_LAYERS <= num_layers <= MAX_LAYERS:
        raise ValueError(f"from {_PUBLISHED_LAYERS} to {MAX_LAYERS} layers")
    if num_layers == _PUBLISHED_LAYERS:
        return instance
    free = max(int(layer.id) for layer in instance.layers) + 1
    chain = [_COPIED, *range(free, free + num_layers - _PUBLISHED_LAYERS), _AFTER]
    model = instance.layers[instance.index[_COPIED]]
    copies = [
        _copy(model, before, node, after) for before, node, after in zip(chain, chain[1:], chain[2:], strict=False)
    ]
    cut = next(edge for edge in instance.edges if (edge.source, edge.target) == (_COPIED, _AFTER))
    joined = {
        _COPIED: _rename(model, {_AFTER: chain[1]}),
        _AFTER: _rename(instance.layers[instance.index[_AFTER]], {_COPIED: chain[-2]}),
    }
    at = instance.index[_AFTER]
    layers = [joined.get(int(layer.id), layer) for layer in instance.layers]
    edges = [edge for edge in instance.edges if edge is not cut]
    edges += [Edge(source, target, cut.bytes) for source, target in pairwise(chain)]
    return replace(instance, layers=(*layers[:at], *copies, *layers[at:]), edges=tuple(edges))


def first_nodes(instance: StageInstance, count: int) -> StageInstance:
    """The subgraph of the first ``count`` nodes in topological order, ties by id, in that order.

    Edges and synchronisation volumes to the other nodes go. Of an activation that several layers keep, the first one
    that is left counts the bytes, where it runs with one of the TMPCs that keep it.

    `ValueError` if there are not so many nodes, or that layer may keep its share of it with a tensor-parallel TMPC: the
    share is not known.
    """
    if not 1 <= count <= len(instance.layers):
        raise ValueError(f"from 1 to {len(instance.layers)} nodes")
    kept = [instance.layers[position] for position in _topological(instance, "id")[:count]]
    nodes = {layer.id for layer in kept}

    def cut(x: Tmpc) -> Tmpc:  # predecessors stay whenever a node stays
        return replace(x, sync_backward_bytes={w: size for w, size in x.sync_backward_bytes.items() if w in nodes})

    held = [(each, tuple(node for node in each.layers if node in nodes)) for each in instance.kept]
    orphans = [(left[0], each) for each, left in held if left and left[0] != each.layers[0]]
    layers = [_count_activations(replace(layer, tmpcs=_each(layer, cut)), orphans) for layer in kept]
    edges = tuple(edge for edge in instance.edges if edge.source in nodes and edge.target in nodes)
    tied = (replace(each, layers=tuple(node for node in each.layers if node in nodes)) for each in instance.tied)
    shared = (
        replace(each, targets=tuple(node for node in each.targets if node in nodes))
        for each in instance.shared
        if each.source in nodes
    )
    return replace(
        instance,
        layers=tuple(layers),
        edges=edges,
        tied=tuple(each for each in tied if len(each.layers) > 1),
        shared=tuple(each for each in shared if len(each.targets) > 1),
        kept=tuple(replace(each, layers=left) for each, left in held if len(left) > 1),
    )


def _count_activations(layer: Layer, orphans: Iterable[tuple[NodeId, KeptTensor]]) -> Layer:
    """The layer with the activations of these that it now is the first to keep in its ``activation_bytes``."""
    for first, tensor in orphans:
        if first != layer.id:
            continue
        if any(x.id in tensor.tmpcs for t, found in layer.tmpcs.items() if t > 1 for x in found):
            whole = tensor.layers[0]
            raise ValueError(f"so many that node {whole}, whose activation_bytes count what {first} keeps, is left")

        def more(x: Tmpc, tensor: KeptTensor = tensor) -> Tmpc:
            return replace(x, activation_bytes=x.activation_bytes + tensor.bytes * (x.id in tensor.tmpcs))

        layer = replace(layer, tmpcs=_each(layer, more))
    return layer


def with_degrees(instance: StageInstance, degrees: Collection[int]) -> StageInstance:
    """Only the TMPCs of these tensor-parallel degrees."""
    known = sorted({t for layer in instance.layers for t, found in layer.tmpcs.items() if found})
    unknown = sorted(set(degrees) - set(known))
    if unknown:
        raise ValueError(f"degrees that some node has TMPCs for: {', '.join(map(str, known))}")
    return _restrict(instance, lambda t, _: t in degrees)


def without_tmpcs(instance: StageInstance, names: Iterable[str]) -> StageInstance:
    """The TMPCs whose id is none of these."""
    gone = set(names)
    known = {x.id for layer in instance.layers for found in layer.tmpcs.values() for x in found}
    for name in sorted(gone - known):
        raise ValueError(f"ids of TMPCs that some node has{closest(name, sorted(known))}")
    return _restrict(instance, lambda _, x: x.id not in gone)


ORDERS = ("id", "name", "depth-first", "lifo")


def linearise(instance: StageInstance, order: str) -> StageInstance:
    """The instance with edges of 0 bytes along a topological order, so that stages are intervals of it.

    ``order``: ``id`` and ``name``: Kahn's algorithm, the ready node of least id (or name, as text; then id) first;
    ``depth-first``: reverse postorder; ``lifo``: Kahn's algorithm with a stack.
    """
    nodes = [instance.layers[position].id for position in _topological(instance, order)]
    present = {(edge.source, edge.target) for edge in instance.edges}
    new = [Edge(*pair, 0.0) for pair in pairwise(nodes) if pair not in present]
    return replace(instance, edges=(*instance.edges, *new))


def as_run(instance: StageInstance) -> StageInstance:
    """The instance with the cost model ``runtime``: what a run sends whose tensors go on from stage to stage.

    A tensor that several layers take passes every boundary between the stage that makes it and the last one that takes
    it once. On a chain of layers that is what edges between neighbours cost: the edge from a layer to the next one
    has the bytes of all tensors that layers up to it make and layers behind it take. Tensors are
    counted whole: TMPCs of tensor-parallel degree 1 alone are kept, without their synchronisation.

    `ValueError` if the layers have more than one topological order, or a layer has no TMPC of degree 1.
    """
    if instance.cost_model is CostModel.RUNTIME:
        return instance
    nodes = [instance.layers[position].id for position in _topological(instance, "id")]
    joined = {(edge.source, edge.target) for edge in instance.edges}
    if any(pair not in joined for pair in pairwise(nodes)):
        raise ValueError("a cost model for layers with more than one order, or --linearize as well")
    passed = relayed_bytes(
        {node: place for place, node in enumerate(nodes)},
        {(edge.source, edge.target): edge.bytes for edge in instance.edges},
        instance.shared,
    )
    edges = tuple(Edge(*pair, size) for pair, size in zip(pairwise(nodes), passed, strict=True))
    if 1 not in {t for layer in instance.layers for t, found in layer.tmpcs.items() if found}:
        raise ValueError("a cost model for layers with TMPCs of degree 1: it counts whole tensors")
    kept = with_degrees(replace(instance, edges=edges, shared=(), cost_model=CostModel.RUNTIME), {1})

    def plain(x: Tmpc) -> Tmpc:
        return replace(x, sync_forward_bytes={}, sync_backward_bytes={})

    return change_tmpcs(kept, plain)


def relayed_bytes(
    place: Mapping[NodeId, int], edges: Mapping[tuple[NodeId, NodeId], float], shared: Iterable[SharedTensor]
) -> list[float]:
    """Bytes that pass from each place to the next one, where each tensor goes on to the last layer that takes it."""
    tensors: list[tuple[NodeId, NodeId, float]] = []
    counted: dict[tuple[NodeId, NodeId], list[float]] = {}
    for each in shared:
        tensors.append((each.source, max(each.targets, key=place.__getitem__), each.bytes))
        for target in each.targets:
            counted.setdefault((each.source, target), []).append(each.bytes)
    for pair, size in edges.items():
        tensors.append((*pair, max(0.0, size - math.fsum(counted.get(pair, [])))))
    passing: list[list[float]] = [[] for _ in range(len(place) - 1)]
    for source, last, size in tensors:
        for at in range(place[source], place[last]):
            passing[at].append(size)
    return [math.fsum(found) for found in passing]


def _topological(instance: StageInstance, order: str) -> list[int]:
    num_nodes, edges = len(instance.layers), instance.edge_indices
    layers = instance.layers
    if order == "depth-first":
        return graph.depth_first_order(num_nodes, edges)
    if order == "lifo":
        return graph.lifo_order(num_nodes, edges)
    if order == "name":
        return graph.topological_order(num_nodes, edges, lambda v: (layers[v].name, _rank(layers[v].id)))
    if order == "id":
        return graph.topological_order(num_nodes, edges, lambda v: _rank(layers[v].id))
    raise ValueError(" or ".join(ORDERS))


def _rank(node: NodeId) -> tuple[bool, int, str]:
    """Numbers before texts, each in its own order."""
    return (True, 0, node) if isinstance(node, str) else (False, node, "")


def change_tmpcs(instance: StageInstance, change: Callable[[Tmpc], Tmpc]) -> StageInstance:
    """Every TMPC of every layer as ``change`` gives it."""
    return replace(instance, layers=tuple(replace(layer, tmpcs=_each(layer, change)) for layer in instance.layers))


def _each(layer: Layer, change: Callable[[Tmpc], Tmpc]) -> dict[int, tuple[Tmpc, ...]]:
    return {t: tuple(change(x) for x in found) for t, found in layer.tmpcs.items()}


def _copy(model: Layer, before: int, node: int, after: int) -> Layer:
    """A copy of the node to be lengthened with, between two neighbours of a chain."""

    def change(x: Tmpc) -> Tmpc:
        return replace(
            x,
            sync_forward_bytes={before: x.sync_forward_bytes[_BEFORE]},
            sync_backward_bytes={after: x.sync_backward_bytes[_AFTER]},
        )

    return replace(model, id=node, tmpcs=_each(model, change))


def _rename(layer: Layer, names: dict[NodeId, NodeId]) -> Layer:
    def change(x: Tmpc) -> Tmpc:
        return replace(
            x,
            sync_forward_bytes={names.get(u, u): size for u, size in x.sync_forward_bytes.items()},
            sync_backward_bytes={names.get(w, w): size for w, size in x.sync_backward_bytes.items()},
        )

    return replace(layer, tmpcs=_each(layer, change))


def _restrict(instance: StageInstance, keep: Callable[[int, Tmpc], bool]) -> StageInstance:
    layers = []
    for layer in instance.layers:
        kept = {t: tuple(x for x in found if keep(t, x)) for t, found in layer.tmpcs.items()}
        kept = {t: found for t, found in kept.items() if found}
        if not kept:
            raise ValueError(f"a choice that leaves node {layer.id} a TMPC")
        layers.append(replace(layer, tmpcs=kept))
    return replace(instance, layers=tuple(layers))
