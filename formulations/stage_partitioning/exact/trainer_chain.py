"""An instance as the chain of pieces that a trainer runs: one node for each piece, and its plans as plans of all nodes.

Where nothing is recomputed, the chain keeps its nodes and their other choices, and is cut between pieces alone. All
costs of a stage are sums over its nodes and crossing edges, so a chain of sums loses nothing.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property

from formulations.compiled.array_types import Words
from formulations.compiled.downsets import chain_downsets
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.trainers import (
    Option,
    Piece,
    Recompute,
    Trainer,
    is_possible,
    options,
    pieces,
)
from formulations.stage_partitioning.kernels.tables import pack
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc

#: The ids of a piece's TMPCs without and with recomputation.
PLAIN, RECOMPUTED = "plain", "recomputed"


@dataclass(frozen=True)
class Chain:
    """The pieces of an instance for a trainer, numbered from the input side on."""

    instance: StageInstance
    trainer: Trainer

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """As `trainers.pieces` has them."""
        return pieces(self.instance, self.trainer)

    @cached_property
    def _place(self) -> dict[int, int]:
        return {v: place for place, piece in enumerate(self.pieces) for v in piece.nodes}

    @property
    def whole(self) -> bool:
        """Whether its nodes are those of the instance, with all TMPCs but those that recompute."""
        return self.trainer.recompute is Recompute.NONE

    @property
    def downsets(self) -> Words:
        """What lies behind each cut, shape (pieces + 1, words)."""
        if not self.whole:
            return chain_downsets(list(range(len(self.pieces))))
        masks = [0]
        for piece in reversed(self.pieces):
            masks.append(masks[-1] | sum(1 << v for v in piece.nodes))
        return pack(masks, len(self.instance.layers))

    def at(self, t: int) -> StageInstance | None:
        """The chain with what its pieces may choose at degree t; ``None`` if one of them cannot run at t."""
        if self.whole:
            layers = tuple(
                replace(layer, tmpcs={t: tuple(x for x in layer.tmpcs.get(t, ()) if is_possible(x, self.trainer))})
                for layer in self.instance.layers
            )
            complete = all(layer.tmpcs[t] for layer in layers)
            return replace(self.instance, layers=layers, requirements=(), tied=()) if complete else None
        found = [options(self.instance, piece, t, self.trainer) for piece in self.pieces]
        if not all(found):
            return None
        layers = tuple(
            Layer(place, {t: tuple(self._sum_piece(piece, option) for option in choice)})
            for place, (piece, choice) in enumerate(zip(self.pieces, found, strict=True))
        )
        return replace(self.instance, layers=layers, edges=self._edges, requirements=(), tied=())

    def plan(self, plan: StagePlan) -> StagePlan:
        """The plan of all nodes for a plan of the chain."""
        if self.whole:
            return plan
        return StagePlan(tuple(map(self._stage, plan.stages)))

    def _stage(self, stage: Stage) -> Stage:
        tmpcs = {}
        for place in stage.nodes:
            piece = self.pieces[int(place)]
            wanted = stage.tmpcs[place] == RECOMPUTED
            choices = options(self.instance, piece, stage.tp_degree, self.trainer)
            option = next(each for each in choices if each.recomputes is wanted)
            for v, tmpc in zip(piece.nodes, option.tmpcs, strict=True):
                tmpcs[self.instance.layers[v].id] = tmpc.id
        return Stage(tuple(tmpcs), stage.dp_degree, stage.tp_degree, tmpcs)

    @cached_property
    def _edges(self) -> tuple[Edge, ...]:
        sent: dict[tuple[int, int], list[float]] = defaultdict(list)
        for edge, u, v in self._crossings:
            sent[self._place[u], self._place[v]].append(edge.bytes)
        return tuple(Edge(source, target, math.fsum(sizes)) for (source, target), sizes in sent.items())

    @cached_property
    def _crossings(self) -> list[tuple[Edge, int, int]]:
        """The edges between pieces, with the positions of their ends."""
        ends = zip(self.instance.edges, self.instance.edge_indices, strict=True)
        return [(edge, u, v) for edge, (u, v) in ends if self._place[u] != self._place[v]]

    @cached_property
    def _of_piece(self) -> list[list[tuple[Edge, int, int]]]:
        """The edges that enter or leave each piece."""
        found: list[list[tuple[Edge, int, int]]] = [[] for _ in self.pieces]
        for edge, u, v in self._crossings:
            found[self._place[u]].append((edge, u, v))
            found[self._place[v]].append((edge, u, v))
        return found

    def _sum_piece(self, piece: Piece, option: Option) -> Tmpc:
        """A TMPC of the whole piece."""
        chosen = dict(zip(piece.nodes, option.tmpcs, strict=True))
        forward: dict[int | str, list[float]] = defaultdict(list)
        backward: dict[int | str, list[float]] = defaultdict(list)
        for edge, u, v in self._of_piece[self._place[piece.nodes[0]]]:
            if v in chosen:
                forward[self._place[u]].append(chosen[v].sync_forward_bytes.get(edge.source, 0.0))
            else:
                backward[self._place[v]].append(chosen[u].sync_backward_bytes.get(edge.target, 0.0))
        return Tmpc(
            RECOMPUTED if option.recomputes else PLAIN,
            math.fsum(x.time for x in option.tmpcs),
            math.fsum(x.weight_bytes for x in option.tmpcs),
            math.fsum(x.activation_bytes for x in option.tmpcs),
            math.fsum(x.static_bytes for x in option.tmpcs),
            {place: math.fsum(sizes) for place, sizes in forward.items()},
            {place: math.fsum(sizes) for place, sizes in backward.items()},
        )
