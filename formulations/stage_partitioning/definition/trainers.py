"""What trainers can run: the plans whose cut, degrees and recomputation a trainer's layout format expresses.

A trainer runs a chain of pieces. A piece is what it cannot cut: the nodes between two cuts of the graph that every
other downset lies before or behind, so that each node in front precedes each node behind. (In a chain each node is a
piece; branches that run side by side are one.) Nothing here knows a solver; `trainer_exact` finds the best of these
plans.

Source: the formats as read (docs/which-trainer.md); the restriction as a planning problem: this project.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from instances.graph import topological_order
from instances.problems.stage_partitioning import StageInstance, Tmpc, of_sequences
from instances.rules import NodeId

if TYPE_CHECKING:
    from formulations.stage_partitioning.definition.plan import Stage, StagePlan

#: TMPCs whose names have this in them recompute activations; with the second one, no more than a part of a layer.
_RECOMPUTES, _SELECTIVE = "recomp", "selective"
#: Those parts, by the names that Megatron's ``--recompute-modules`` has for them.
CORE, MLP = "core_attn", "mlp"
#: TMPCs whose names have this in them share states among tensor-parallel devices, which no layout says.
_UNSAID = "zero"
#: Names that paths of modules have.
PATH = re.compile(r"[A-Za-z_][\w.]*")
_COUNTED = frozenset({"decoder", "encoder", "block"})
_ENDS = frozenset({"embedding", "norm", "head", "loss"})
_MTP = "mtp"
_BY_NAME = "transformer"


class Kind(StrEnum):
    """What a piece is to trainers that count layers; ``OTHER`` is none of what they know."""

    EMBEDDING = "embedding"
    DECODER = "decoder"
    MTP = "mtp"
    HEAD = "head"
    OTHER = "other"


class Recompute(StrEnum):
    """Which layers a trainer can recompute: any, the first n of every stage, all or none; none where none trains."""

    EACH = "each"
    FIRST = "first"
    ALL = "all"
    NONE = "none"


class Degrees(StrEnum):
    """Which degrees stages may have: one pair for all, pairs of one product, or one device for a stage."""

    ONE = "one"
    PRODUCT = "product"
    NONE = "none"


@dataclass(frozen=True)
class Trainer:
    """What a trainer's layout can say.

    ``counts``: it names no modules, but counts layers between an embedding and a head, which stand whole in the first
    and the last stage, and are not recomputed. ``fills``: each stage has a layer that counts. ``schedules``: the orders
    of passes that it runs, of those in `formulations.simulation.orders`, its default first; those that serve have none.
    ``sequences``: it can share sequences in all layers. ``context``: it has context and expert parallelism.
    ``selective``: parts that it can recompute in all layers, one of them and nothing else. ``sharding``: what its
    replicas can share (`StrategyInstance`), or less than it has them share. ``groups``: in groups of replicas (HSDP).
    ``orders``: replicas may be outermost on the devices.
    ``offloads``: it has optimizer states on the host, if replicas share them or there is one.
    ``fsdp``: they share weights but where they are all there is (DDP): no pipeline, no other parallelism.
    """

    name: str
    degrees: Degrees
    recompute: Recompute
    counts: bool
    fills: bool = False
    schedules: tuple[str, ...] = ()
    sequences: bool = False
    context: bool = False
    selective: tuple[str, ...] = ()
    sharding: tuple[int, ...] = (0, 1)
    groups: bool = False
    orders: bool = False
    offloads: bool = False
    fsdp: bool = False

    @property
    def recomputes_ends(self) -> bool:
        """Whether more than layers that count can be recomputed."""
        return self.recompute is Recompute.EACH and not self.counts


#: Those whose best plan is searched for (`trainer_exact`), on all devices: pp dp tp = K. Galvatron could have stages
#: of other degrees with the same product; these are not searched.
TRAINERS = {
    trainer.name: trainer
    for trainer in (
        Trainer(
            "megatron", Degrees.ONE, Recompute.FIRST, counts=True, schedules=("1f1b", "interleaved"),
            sequences=True, context=True, selective=(CORE, MLP), groups=True, orders=True, offloads=True,
        ),
        Trainer(
            "torchtitan", Degrees.ONE, Recompute.ALL, counts=False,
            schedules=("1f1b", "gpipe", "interleaved", "zb-v", "dualpipe-v"),
            sequences=True, context=True, sharding=(0, 3), groups=True, fsdp=True,
        ),
        # Its pipeline engine refuses ZeRO 2 and 3, with one stage as well.
        Trainer("deepspeed", Degrees.ONE, Recompute.EACH, counts=False, schedules=("1f1b",)),
        Trainer(
            "torch", Degrees.ONE, Recompute.EACH, False,
            schedules=("1f1b", "gpipe", "interleaved", "zb-h1", "zb-v", "dualpipe-v"), orders=True,
        ),
        Trainer(
            "galvatron", Degrees.ONE, Recompute.EACH, counts=True, fills=True, schedules=("1f1b", "gpipe"),
            sharding=(0, 1, 2),
        ),
        Trainer("vllm", Degrees.ONE, Recompute.NONE, counts=True),
        Trainer("sglang", Degrees.ONE, Recompute.NONE, counts=True),
        Trainer("accelerate", Degrees.NONE, Recompute.NONE, counts=False),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """Nodes that stand together, by position in topological order, and those of them that count.

    ``modules`` are their names, if they have some. ``branches``: whether layers that count run side by side in it.
    """

    nodes: tuple[int, ...]
    kind: Kind
    modules: tuple[str, ...]
    counted: frozenset[int]
    branches: bool = False


@dataclass(frozen=True)
class Option:
    """One way to run a piece at some degree: a TMPC for each of its nodes."""

    recomputes: bool
    tmpcs: tuple[Tmpc, ...]


@lru_cache(maxsize=8)
def _cuts(n: int, edges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, ...], ...]:
    """The nodes between the cuts that a trainer may make, in topological order."""
    order = topological_order(n, edges)
    place = {v: position for position, v in enumerate(order)}
    before = [0] * n  # by position, as bitsets
    entering: list[list[int]] = [[] for _ in range(n)]
    for u, v in edges:
        entering[place[v]].append(place[u])
    for position, sources in enumerate(entering):
        for source in sources:
            before[position] |= before[source] | 1 << source
    least, starts = n, []
    for position in reversed(range(n)):
        known = before[position]
        least = min(
            least, (known ^ (known + 1)).bit_length() - 1
        )  # so many of the first nodes precede all from here on
        if least >= position:
            starts.append(position)
    starts.reverse()
    ends = [*starts[1:], n]
    return tuple(tuple(order[start:end]) for start, end in zip(starts, ends, strict=True))


def pieces(instance: StageInstance, trainer: Trainer) -> tuple[Piece, ...]:
    """The pieces of an instance in order. Nodes of one module are one piece; where layers are counted, so are the ends.

    Layers that count are those whose role is decoder, encoder or block; else those that are called transformer; else
    all but the ends (roles embedding, norm, head, loss).
    """
    counted = _counted_layers(instance)
    modules = _modules(instance)
    found: list[tuple[int, ...]] = []
    for nodes in _cuts(len(instance.layers), instance.edge_indices):
        if found and modules is not None and {modules[v] for v in found[-1]} & {modules[v] for v in nodes}:
            found[-1] = (*found[-1], *nodes)
        else:
            found.append(nodes)
    kinds = _kinds(instance, found, counted)
    if trainer.counts:
        found, kinds = _whole_ends(found, kinds)
    if trainer.fills:
        found, kinds = _join_ends(found, kinds)
    return tuple(
        Piece(
            nodes,
            kind,
            () if modules is None else tuple(dict.fromkeys(modules[v] for v in nodes)),
            counted & set(nodes),
            len({v if modules is None else modules[v] for v in nodes if v in counted}) > 1,
        )
        for nodes, kind in zip(found, kinds, strict=True)
    )


def _counted_layers(instance: StageInstance) -> frozenset[int]:
    roles = [layer.role.lower() for layer in instance.layers]
    for counts in (
        [role in _COUNTED for role in roles],
        [not any(roles) and _BY_NAME in layer.name.lower() for layer in instance.layers],
        [role not in _ENDS and role != _MTP for role in roles],
    ):
        if any(counts):
            return frozenset(v for v, is_counted in enumerate(counts) if is_counted)
    return frozenset(range(len(roles)))


def _modules(instance: StageInstance) -> list[str] | None:
    """The path of each node's module; where not all have one, their names, if these could be paths of their own."""
    paths = [layer.module for layer in instance.layers]
    if all(paths):
        return paths
    names = [layer.name for layer in instance.layers]
    return names if len(set(names)) == len(names) and all(map(PATH.fullmatch, names)) else None


def _kinds(instance: StageInstance, found: Sequence[tuple[int, ...]], counted: frozenset[int]) -> list[Kind]:
    has = [not counted.isdisjoint(nodes) for nodes in found]
    first, last = has.index(True), len(has) - 1 - has[::-1].index(True)

    def kind(place: int) -> Kind:
        if has[place]:
            return Kind.DECODER
        if all(instance.layers[v].role.lower() == _MTP for v in found[place]):
            return Kind.MTP
        return Kind.EMBEDDING if place < first else Kind.HEAD if place > last else Kind.OTHER

    return [kind(place) for place in range(len(found))]


def _whole_ends(found: Sequence[tuple[int, ...]], kinds: Sequence[Kind]) -> tuple[list[tuple[int, ...]], list[Kind]]:
    """All that stands in front of the layers that count as one piece, and all that stands behind them as one."""
    merged: list[tuple[int, ...]] = []
    kept: list[Kind] = []
    for nodes, kind in zip(found, kinds, strict=True):
        if kept and kind is kept[-1] and kind in (Kind.EMBEDDING, Kind.HEAD):
            merged[-1] = (*merged[-1], *nodes)
        else:
            merged.append(nodes)
            kept.append(kind)
    return merged, kept


def _join_ends(found: Sequence[tuple[int, ...]], kinds: Sequence[Kind]) -> tuple[list[tuple[int, ...]], list[Kind]]:
    """The embedding as one piece with the first layer, and the head with the last."""
    first, last = kinds.index(Kind.DECODER), len(kinds) - 1 - kinds[::-1].index(Kind.DECODER)
    front = [v for nodes in found[: first + 1] for v in nodes]
    behind = [v for nodes in found[last:] for v in nodes]
    if first == last:
        return [tuple(dict.fromkeys([*front, *behind]))], [Kind.DECODER]
    return [tuple(front), *found[first + 1 : last], tuple(behind)], list(kinds[first : last + 1])


def is_said(x: Tmpc, trainer: Trainer) -> bool:
    """Whether a TMPC does no more than a layout says: tensor-parallel devices share no states, nor sequences."""
    return _UNSAID not in x.id.lower() and (trainer.sequences or not x.shares_sequence)


def is_possible(x: Tmpc, trainer: Trainer) -> bool:
    """Whether a trainer can run a TMPC somewhere: what has no backward pass recomputes nothing."""
    return is_said(x, trainer) and not (trainer.recompute is Recompute.NONE and _RECOMPUTES in x.id.lower())


def recomputes(tmpc: str) -> bool:
    """Whether a TMPC of this name recomputes all activations of a layer."""
    return _RECOMPUTES in tmpc.lower() and not recomputed_part(tmpc)


def recomputed_part(tmpc: str) -> str:
    """The part of a layer that a TMPC of this name recomputes alone, the MLP if it names it; empty if it does not."""
    name = tmpc.lower()
    return "" if _SELECTIVE not in name else MLP if MLP in name else CORE


def with_sequences(instance: StageInstance, is_shared: bool) -> StageInstance:
    """The instance with the TMPCs alone that share sequences, or that do not, where a layer has the choice."""
    layers = tuple(
        replace(layer, tmpcs={t: of_sequences(found, is_shared) for t, found in layer.tmpcs.items()})
        for layer in instance.layers
    )
    return replace(instance, layers=layers)


def options(instance: StageInstance, piece: Piece, t: int, trainer: Trainer) -> tuple[Option, ...]:
    """The ways to run a piece at degree t: without and with recomputation, where its nodes have the choice.

    Empty where a node has no TMPC at t that a layout says, or several that recomputation does not distinguish. Nodes
    that the trainer does not recompute do not, if they have the choice; a piece without a layer that counts is then one
    of a single way. Sequences are not shared where nodes have the choice (`with_sequences`), and no part is recomputed
    alone (`selective`).
    """
    by_node = [[x for x in _said(instance, v, t, trainer) if not recomputed_part(x.id)] for v in piece.nodes]
    if not all(by_node) or any(_indistinct(found) for found in by_node):
        return ()
    may = [trainer.recomputes_ends or v in piece.counted for v in piece.nodes]

    def option(flag: bool) -> Option:
        flags = [flag and allowed for allowed in may]
        chosen = (
            next((x for x in found if recomputes(x.id) is wanted), found[0])
            for found, wanted in zip(by_node, flags, strict=True)
        )
        return Option(flag, tuple(chosen))

    if any(len(found) > 1 for found, allowed in zip(by_node, may, strict=True) if allowed):
        return option(False), option(True)
    alone = [found[0].id for found, v in zip(by_node, piece.nodes, strict=True) if v in piece.counted]
    return (Option(any(map(recomputes, alone)), option(False).tmpcs),)


def selective(instance: StageInstance, piece: Piece, t: int, trainer: Trainer, part: str) -> Option | None:
    """The way to run a piece where all layers recompute a part of them; ``None`` if it has none at degree t."""
    keeps = next(iter(options(instance, piece, t, trainer)), None)
    if keeps is None:
        return None
    found = [
        next((x for x in _said(instance, v, t, trainer) if recomputed_part(x.id) == part), kept)
        if v in piece.counted
        else kept
        for v, kept in zip(piece.nodes, keeps.tmpcs, strict=True)
    ]
    is_whole = any(recomputes(x.id) for v, x in zip(piece.nodes, found, strict=True) if v in piece.counted)
    return None if is_whole else Option(False, tuple(found))


def _said(instance: StageInstance, v: int, t: int, trainer: Trainer) -> tuple[Tmpc, ...]:
    """The TMPCs of a node that a layout says."""
    return of_sequences(tuple(x for x in instance.layers[v].tmpcs.get(t, ()) if is_said(x, trainer)), False)


def _indistinct(found: Sequence[Tmpc]) -> bool:
    return len({recomputes(x.id) for x in found}) < len(found)


def obstacles(instance: StageInstance, plan: StagePlan, trainer: Trainer) -> Iterator[str]:
    """Why a trainer cannot run a plan that keeps the rules, in words; nothing if it can."""
    yield from _degree_obstacles(plan, trainer)
    found = pieces(instance, trainer)
    stage_of = {instance.index[node]: place for place, stage in enumerate(plan.stages) for node in stage.nodes}
    order = [layer.id for layer in instance.layers]
    cut = False
    for piece in found:
        stages = sorted({stage_of[v] for v in piece.nodes})
        if len(stages) > 1:
            cut = True
            some = next(v for v in piece.nodes if stage_of[v] != stage_of[piece.nodes[0]])
            yield (
                f"nodes {order[piece.nodes[0]]} and {order[some]} are in stages {stages[0]} and {stage_of[some]}, "
                f"but stand together for {trainer.name}{_together(piece, trainer)}"
            )
    yield from shape_faults(instance, found, trainer)
    chosen = {node: _chosen(instance, stage, node) for stage in plan.stages for node in stage.nodes}
    unsaid = next((node for node, x in chosen.items() if not is_said(x, trainer)), None)
    if unsaid is not None:
        yield f"node {unsaid} has the TMPC {chosen[unsaid].id!r}; {trainer.name}'s layout does not say what it shares"
        return
    if any(x.shares_sequence for x in chosen.values()):
        instance = with_sequences(instance, True)
        for node, x in chosen.items():
            if x.id not in {
                each.id for found in instance.layers[instance.index[node]].tmpcs.values() for each in found
            }:
                yield f"node {node} does not share sequences, and others do; {trainer.name} has one flag for all"
                return
    part = next(filter(None, (recomputed_part(x.id) for x in chosen.values())), "")
    if part in trainer.selective:
        yield from _selective_obstacles(instance, plan, trainer, found, stage_of, part)
    elif not cut:
        yield from _recompute_obstacles(instance, plan, trainer, found, stage_of)


def _chosen(instance: StageInstance, stage: Stage, node: NodeId) -> Tmpc:
    tmpcs = instance.layers[instance.index[node]].tmpcs[stage.tp_degree]
    return next(x for x in tmpcs if x.id == stage.tmpcs[node])


def _selective_obstacles(
    instance: StageInstance, plan: StagePlan, trainer: Trainer, found: Sequence[Piece], stage_of: dict[int, int],
    part: str,
) -> Iterator[str]:  # fmt: skip
    for piece in found:
        stage = plan.stages[stage_of[piece.nodes[0]]]
        option = selective(instance, piece, stage.tp_degree, trainer, part)
        if option is None or [x.id for x in option.tmpcs] != [stage.tmpcs[instance.layers[v].id] for v in piece.nodes]:
            node = instance.layers[piece.nodes[0]].id
            what = "the attention's core" if part == CORE else "the MLP alone"
            yield f"node {node} does not recompute {what}, and others do; {trainer.name} does it in all"
            return


def _together(piece: Piece, trainer: Trainer) -> str:
    if trainer.fills and len(piece.counted) < len(piece.nodes):
        return ": each stage has a layer that counts"
    if piece.kind in (Kind.EMBEDDING, Kind.HEAD):
        return f": they are the {piece.kind}"
    if len(piece.modules) == 1:
        return f": they are one module, {piece.modules[0]}"
    return ": no edges put one in front of the other, or of what is between (a DAG, not a chain of layers)"


def _degree_obstacles(plan: StagePlan, trainer: Trainer) -> Iterator[str]:
    pairs = {(stage.dp_degree, stage.tp_degree) for stage in plan.stages}
    for name, degrees in (("data", sorted({d for d, _ in pairs})), ("tensor", sorted({t for _, t in pairs}))):
        if trainer.degrees is Degrees.ONE and len(degrees) > 1:
            yield f"stages have {name}-parallel degrees {_in_words(degrees)}; {trainer.name} has one for all stages"
    products = sorted({d * t for d, t in pairs})
    if trainer.degrees is Degrees.PRODUCT and len(products) > 1:
        yield f"stages have {_in_words(products)} devices; {trainer.name} has as many for each stage"
    if trainer.degrees is Degrees.NONE and products != [1]:
        yield f"stages have {_in_words(products)} devices; {trainer.name} has one for each stage"


def shape_faults(instance: StageInstance, found: Sequence[Piece], trainer: Trainer) -> Iterator[str]:
    """Why a trainer that counts layers cannot run the model at all, in words; nothing if it can."""
    if not trainer.counts:
        return
    roles = {instance.layers[v].role.lower() for piece in found for v in piece.counted}
    if {"encoder", "decoder"} <= roles:
        yield f"the model has encoder layers and decoder layers; {trainer.name} counts layers of one kind"
    for piece in found:
        node = instance.layers[piece.nodes[0]].id
        if piece.kind is Kind.OTHER:
            yield f"node {node} stands between the layers that {trainer.name} counts, and is none of them"
        if piece.branches:
            yield f"layers run side by side from node {node} on (a DAG); {trainer.name} has a chain of layers"


def _recompute_obstacles(
    instance: StageInstance, plan: StagePlan, trainer: Trainer, found: Sequence[Piece], stage_of: dict[int, int]
) -> Iterator[str]:
    if trainer.recompute is Recompute.NONE:
        chosen = ((node, tmpc) for stage in plan.stages for node, tmpc in stage.tmpcs.items())
        for node, tmpc in chosen:
            if recomputes(tmpc):
                yield f"node {node} has the TMPC {tmpc!r}; {trainer.name} has no backward pass to recompute for"
                return
        return
    flags: list[list[bool]] = [[] for _ in plan.stages]  # of the layers that count
    for piece in found:
        place = stage_of[piece.nodes[0]]
        flag = is_recomputed(instance, plan.stages[place], piece, trainer)
        node = instance.layers[piece.nodes[0]].id
        if flag is None and not piece.counted and not trainer.recomputes_ends:
            yield f"node {node}, or what stands with it, has a TMPC that {trainer.name} has for layers alone"
        elif flag is None:
            yield f"node {node}, or what stands with it, has a TMPC that {trainer.name} cannot express"
        elif piece.kind is Kind.DECODER:
            flags[place].append(flag)
    if trainer.recompute is Recompute.ALL and len({flag for row in flags for flag in row}) > 1:
        yield f"some layers are recomputed and some not; {trainer.name} recomputes all or none"
    if trainer.recompute is Recompute.FIRST and recompute_prefix(flags) is None:
        yield (
            f"{_in_words([sum(row) for row in flags])} layers of the stages are recomputed; "
            f"{trainer.name} recomputes the first n of every stage"
        )


def is_recomputed(instance: StageInstance, stage: Stage, piece: Piece, trainer: Trainer) -> bool | None:
    """Whether a stage recomputes a piece; ``None``: its TMPCs are none of `options`."""
    chosen = [stage.tmpcs[instance.layers[v].id] for v in piece.nodes]
    for option in options(instance, piece, stage.tp_degree, trainer):
        if [x.id for x in option.tmpcs] == chosen:
            return option.recomputes
    return None


def recompute_prefix(flags: Sequence[Sequence[bool]]) -> int | None:
    """The n for which the first n layers of every stage, and no others, are recomputed (``flags``); ``None``: none."""
    n = max((sum(row) for row in flags), default=0)
    return n if all(list(row) == [place < n for place in range(len(row))] for row in flags) else None


def realizable(instance: StageInstance, plan: StagePlan, name: str) -> int:
    """1 if a trainer of that name can run a plan, on all devices of the instance."""
    devices = sum(stage.dp_degree * stage.tp_degree for stage in plan.stages)
    return int(devices == instance.num_devices and not any(True for _ in obstacles(instance, plan, TRAINERS[name])))


def _in_words(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) if len(numbers) < 9 else f"{', '.join(map(str, numbers[:7]))}, ..."
