"""Stage partitioning with TMPC choice: the instance (nouns only; the objective is in the family's ``problem.py``).

Source: Piper, section 3.6.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Annotated

from instances.errors import InstanceError, expect, expect_unique, path
from instances.exchange import in_files
from instances.graph import expect_acyclic
from instances.rules import (
    Amount,
    Bandwidth,
    Count,
    Declared,
    Degree,
    Fact,
    Facts,
    Flag,
    Identifier,
    NodeId,
    Text,
    member_of,
    one_of,
)


class CostModel(StrEnum):
    """Piper's two cost models, and that of runs (formulations/stage_partitioning/README.md).

    ``RUNTIME`` is ``RELEASED`` on a chain whose edges have the bytes of all tensors that pass from one side to the
    other, each once: tensors go on from stage to stage.
    """

    PAPER = "paper"
    RELEASED = "released"
    RUNTIME = "runtime"


@dataclass(frozen=True)
class Tmpc:
    """A tensor-model-parallelism configuration of one layer at one degree t.

    ``time`` is X.p (per sample, in the instance's time unit); ``weight_bytes`` is X.w; a device holds
    ``activation_bytes`` (X.a) per micro-batch in flight and ``static_bytes`` (X.b) besides;
    ``sync_forward_bytes[u]`` is X.c^fw(u, v) for a predecessor u, ``sync_backward_bytes[w]`` is X.c^bw(v, w) for a
    successor w; absent entries are 0.
    """

    id: Identifier
    time: Amount
    weight_bytes: Amount
    activation_bytes: Amount
    static_bytes: Amount
    sync_forward_bytes: Mapping[NodeId, Amount] = field(default_factory=dict)
    sync_backward_bytes: Mapping[NodeId, Amount] = field(default_factory=dict)

    @property
    def shares_sequence(self) -> bool:
        """Whether devices share what is between split products as well: its name has "sequence" in it."""
        return "sequence" in self.id.lower()


def of_sequences(tmpcs: tuple[Tmpc, ...], is_shared: bool) -> tuple[Tmpc, ...]:
    """Those that share sequences, or that do not, of a layer at one degree; all of them where it has no such choice."""
    return tuple(x for x in tmpcs if x.shares_sequence == is_shared) or tmpcs


@dataclass(frozen=True)
class DeclaredTmpc(Tmpc):
    """A TMPC as files have it: what it holds may be left to a rule (`instances.memory_schemes.SCHEMES`)."""

    weight_bytes: Amount = 0.0
    activation_bytes: Amount = 0.0
    static_bytes: Amount | None = None  # type: ignore[assignment]


@in_files("id", "name", "module?", "role?", "work?", "weight_times?", "tmpcs")
@dataclass(frozen=True)
class Layer:
    """A node v of the layer graph; ``tmpcs[t]`` is T(v, t), ids unique within each list.

    ``weight_times[t]`` is how long gradients of weights (W) take in all of T(v, t), for schedules that split backward
    passes (training_strategy).

    Notes for what comes after a plan, no part of any cost: ``module`` is the path of the layer's module in its model,
    ``role`` what it is there (such as embedding, decoder, head), ``work`` where its times come from.
    """

    id: NodeId
    tmpcs: Mapping[Degree, tuple[Tmpc, ...]]
    name: Text = ""
    module: Text = ""
    role: Text = ""
    weight_times: Mapping[Degree, Amount] = field(default_factory=dict)
    work: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class DeclaredLayer(Layer):
    """A layer as files have it; ``time_factor`` is how many times as long as its times say it takes."""

    tmpcs: Mapping[Degree, tuple[DeclaredTmpc, ...]]
    time_factor: Amount = 1.0


@dataclass(frozen=True)
class Edge:
    """A data transfer (u, v) of ``bytes`` bytes: c(u, v)."""

    source: NodeId
    target: NodeId
    bytes: Amount


@dataclass(frozen=True)
class TiedWeights:
    """A parameter that several layers hold, and each of them counts: its name in the model, their ids, its bytes.

    A note like ``Layer.module``: where the layers are in one stage, that stage holds it once and needs less memory.
    """

    name: Identifier
    layers: tuple[NodeId, ...]
    weight_bytes: Amount


@dataclass(frozen=True)
class SharedTensor:
    """A tensor that several layers take, counted by the edge to each of them: who makes it, who takes it, its bytes.

    A note like ``Layer.module``, of which the cost model ``runtime`` is made.
    """

    source: NodeId
    targets: tuple[NodeId, ...]
    bytes: Amount


@dataclass(frozen=True)
class KeptTensor:
    """An activation that several layers keep for their backward passes: which, with which TMPCs (ids), its bytes.

    ``activation_bytes`` of the first layer count it. The cost model ``runtime`` also counts it in every stage without
    that layer, once (``problem.py``); for the others it is a note.
    """

    layers: tuple[NodeId, ...]
    tmpcs: tuple[Identifier, ...]
    bytes: Amount


@in_files(
    *("name", "num_devices", "memory_bytes", "bandwidth", "num_microbatches", "time_unit", "cost_model", "exactly"),
    *("max_dp_degree", "layers", "edges", "tied?", "shared?", "kept?", "options?", "warnings?"),
    problem="stage_partitioning",
    absent={"name": "instance", "edges": ()},
    types={"layers": tuple[DeclaredLayer, ...]},
)
@dataclass(frozen=True)
class StageInstance(Declared):
    """A layer graph with its TMPCs, and the cluster and budgets it is planned for.

    ``num_devices`` is K, ``memory_bytes`` is M, ``bandwidth`` is B in bytes per ``time_unit``, ``num_microbatches`` is
    N. ``exactly`` requires a sum of data-parallel degrees of exactly N instead of at most N; ``max_dp_degree`` bounds
    every stage's data-parallel degree (``None``: no bound). ``options`` records how the instance was made
    (overrides, unit fixes) for the result, ``origin`` where it arose (free fields); ``tied``, ``shared``
    and ``kept`` are notes, the last one of what the cost model ``runtime`` counts.
    """

    name: Identifier
    layers: tuple[Layer, ...]
    edges: tuple[Edge, ...]
    num_devices: Count
    memory_bytes: Amount
    bandwidth: Bandwidth
    num_microbatches: Count
    cost_model: Annotated[CostModel, member_of(CostModel)] = CostModel.PAPER
    time_unit: Annotated[str, one_of("s", "ms")] = "s"
    exactly: Flag = False
    max_dp_degree: Count | None = None
    options: Mapping[str, Fact] = field(default_factory=dict)
    warnings: tuple[Text, ...] = ()
    tied: tuple[TiedWeights, ...] = ()
    shared: tuple[SharedTensor, ...] = ()
    kept: tuple[KeptTensor, ...] = ()
    origin: Facts = field(default_factory=dict)

    @cached_property
    def index(self) -> dict[NodeId, int]:
        """Position of every layer in ``layers``."""
        return {layer.id: position for position, layer in enumerate(self.layers)}

    @cached_property
    def edge_indices(self) -> tuple[tuple[int, int], ...]:
        """The edges as pairs of positions in ``layers``."""
        return tuple((self.index[edge.source], self.index[edge.target]) for edge in self.edges)

    @property
    def shared_activations(self) -> tuple[KeptTensor, ...]:
        """The activations of ``kept``, if the cost model counts them."""
        return self.kept if self.cost_model is CostModel.RUNTIME else ()

    @cached_property
    def tp_degrees(self) -> tuple[int, ...]:
        """All t <= K for which some layer has a TMPC, ascending."""
        return tuple(
            sorted({t for layer in self.layers for t, found in layer.tmpcs.items() if found and t <= self.num_devices})
        )


@dataclass(frozen=True)
class AroundFlat(Declared):
    """What instances have that say more of the machines or the schedule of a ``flat`` one."""

    flat: StageInstance

    @property
    def name(self) -> str:
        """The name of the flat instance."""
        return self.flat.name


def check(instance: StageInstance, where: str, names: Mapping[str, str] | None = None) -> None:
    """Rules between fields; ``names`` are a file format's own names of fields, for the errors.

    Raises
    ------
    InstanceError
        No layer, duplicate ids or edges, edges to nowhere, self-loops, cycles, layers without any TMPC, sync volumes
        for edges that do not exist, tied weights or kept tensors of fewer than two layers or of one that does not
        exist, shared tensors along other edges or larger than these; edges of the cost model ``runtime`` that leave out
        a layer, and TMPCs of it that split tensors.
    """
    expect(bool(instance.layers), where, path(("layers",), names), [], "at least one node")
    expect_unique([layer.id for layer in instance.layers], where, "layers", names=names)
    _check_edges(instance, where, names)
    for note, notes in (("tied", instance.tied), ("kept", instance.kept)):
        for number, layers in enumerate(each.layers for each in notes):
            known = len(set(layers)) == len(layers) > 1 and set(layers) <= instance.index.keys()
            rule = "the ids of at least two nodes, each once"
            expect(known, where, path((note, number, "layers"), names), list(layers), rule)
    _check_shared(instance, where, names)
    before: dict[NodeId, set[NodeId]] = {layer.id: set() for layer in instance.layers}
    after: dict[NodeId, set[NodeId]] = {layer.id: set() for layer in instance.layers}
    for edge in instance.edges:
        before[edge.target].add(edge.source)
        after[edge.source].add(edge.target)
    for position, layer in enumerate(instance.layers):
        place = ("layers", position, "tmpcs")
        if not any(layer.tmpcs.values()):
            rule = f"at least one TMPC for node {layer.id}, at some degree"
            raise InstanceError.at(where, path(place, names), "empty", rule)
        for degree, tmpcs in layer.tmpcs.items():
            if len({x.id for x in tmpcs}) < len(tmpcs):
                expect_unique([x.id for x in tmpcs], where, *place, str(degree), names=names)
            for number, x in enumerate(tmpcs):
                at = (*place, str(degree), number)
                if not x.sync_forward_bytes.keys() <= before[layer.id]:
                    raise _no_neighbour(x, "sync_forward_bytes", before[layer.id], where, at, names)
                if not x.sync_backward_bytes.keys() <= after[layer.id]:
                    raise _no_neighbour(x, "sync_backward_bytes", after[layer.id], where, at, names)
    ids = [str(layer.id) for layer in instance.layers]
    expect_acyclic(len(ids), instance.edge_indices, where, ids, path(("edges",), names))
    if instance.cost_model is CostModel.RUNTIME:
        rule = "edges from each layer to the next one alone, as --cost-model runtime makes them"
        expect(_is_chain(instance), where, path(("edges",), names), f"{len(instance.edges)} edges", rule)
        rule = "TMPCs of degree 1 alone: the cost_model runtime counts whole tensors"
        for position, layer in enumerate(instance.layers):
            split = max((t for t, found in layer.tmpcs.items() if found), default=1)
            expect(split == 1, where, path(("layers", position, "tmpcs"), names), f"of degree {split}", rule)


def _is_chain(instance: StageInstance) -> bool:
    """Whether the edges, which have no cycle, are one path through all layers."""
    ends = instance.edge_indices
    return len({u for u, _ in ends}) == len({v for _, v in ends}) == len(ends) == len(instance.layers) - 1


def _check_shared(instance: StageInstance, where: str, names: Mapping[str, str] | None) -> None:
    left = {(edge.source, edge.target): edge.bytes for edge in instance.edges}
    size = dict(left)
    for number, each in enumerate(instance.shared):
        known = len(set(each.targets)) == len(each.targets) > 1 and all((each.source, v) in left for v in each.targets)
        rule = f"at least two nodes, each once, that edges from {each.source} lead to"
        expect(known, where, path(("shared", number, "targets"), names), list(each.targets), rule)
        for v in each.targets:
            left[each.source, v] -= each.bytes
            fits = left[each.source, v] >= -1e-9 * size[each.source, v]
            rule = (
                f"no more than edge {each.source} -> {v} has, {size[each.source, v]:g}, with the other shared tensors"
            )
            expect(fits, where, path(("shared", number, "bytes"), names), each.bytes, rule)


def _check_edges(instance: StageInstance, where: str, names: Mapping[str, str] | None) -> None:
    seen = set()
    for number, edge in enumerate(instance.edges):
        for end, node in (("source", edge.source), ("target", edge.target)):
            if node not in instance.index:
                raise InstanceError.at(where, path(("edges", number, end), names), node, "the id of a node")
        if edge.source == edge.target:
            rule = "a node other than the edge's source"
            raise InstanceError.at(where, path(("edges", number, "target"), names), edge.target, rule)
        pair = edge.source, edge.target
        if pair in seen:
            text, rule = f"{edge.source} -> {edge.target}", "an edge that is not listed before"
            raise InstanceError.at(where, path(("edges", number), names), text, rule)
        seen.add(pair)


def _no_neighbour(
    x: Tmpc,
    field: str,
    neighbours: set[NodeId],
    where: str,
    place: tuple[int | str, ...],
    names: Mapping[str, str] | None,
) -> InstanceError:
    node = next(node for node in getattr(x, field) if node not in neighbours)
    kind = "predecessor" if field == "sync_forward_bytes" else "successor"
    return InstanceError.at(where, path((*place, field), names), node, f"the id of a {kind} (there is no such edge)")
