"""What a trainer can run of a chain: pieces that it does not cut, and its rule of recomputation.

A piece is run with or without recomputation, or with that of a part of its layers (attention's core, MLP). Where a
trainer recomputes any layer, the first two are all; where it recomputes the first n of every chunk, or all or none,
that number decides which way each piece of a chunk is run, and there is a chain for each number. Numbers below 0 are of
parts, one for each, which all pieces recompute. What all numbers together allow is less than a free choice in every
piece, so the bounds of that hold for each of them.

Source: the formats of trainers as read (docs/which-trainer.md); the restriction as a planning problem: this project.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from formulations.stage_partitioning.definition.trainers import (
    TRAINERS,
    Kind,
    Piece,
    Recompute,
    Trainer,
    options,
    pieces,
    recomputed_part,
    selective,
    shape_faults,
)
from formulations.training_strategy.costs import BOUND_NOISE, Chain, Choice, Kept, Part, Table
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.quantities import runs
from formulations.training_strategy.definition.sharing import Shared
from formulations.training_strategy.degrees import Degrees
from instances.problems.stage_partitioning import StageInstance
from instances.problems.training_strategy import StrategyInstance
from instances.requirements import requirements_of

_QUANTITY = "realizable"
#: Ways to run a piece.
_KEEPS, _RECOMPUTES = "keeps", "recomputes"


class TrainerSpace:
    """The plans of one trainer: the instance without the requirement, and its chains."""

    def __init__(self, instance: StrategyInstance, trainer: Trainer) -> None:
        self.trainer = trainer
        others = tuple(str(each) for each in requirements_of(instance) if each.quantity != _QUANTITY)
        self.instance = replace(instance, requirements=others)
        self.pieces = pieces(instance.flat, trainer)
        self._counted = sum(piece.kind is Kind.DECODER for piece in self.pieces)
        tmpcs = (x for layer in instance.flat.layers for found in layer.tmpcs.values() for x in found)
        parts = {recomputed_part(x.id) for x in tmpcs}
        #: Those that it can have all layers recompute alone, where some layer does.
        self._selects = tuple(part for part in trainer.selective if part in parts)

    @property
    def fault(self) -> str | None:
        """Why the trainer can run no plan at all, whatever fits."""
        if not {*self.instance.schedules} & {*self.trainer.schedules}:
            known = ", ".join(self.trainer.schedules) or "none: it trains nothing"
            return f"{self.trainer.name} runs none of the schedules that a plan may choose from; it has {known}"
        if self.instance.host_bandwidth is not None and not self.trainer.offloads:
            return f"optimizer states are on the host, which {self.trainer.name} has not"
        return next(shape_faults(self.instance.flat, self.pieces, self.trainer), None)

    def runs(self, degrees: Degrees) -> bool:
        """Whether the trainer has the schedule, and shares what plans of these degrees do."""
        return degrees.schedule in self.trainer.schedules and runs(self.trainer, self.instance, degrees.plan())

    def numbers(self, degrees: Degrees) -> tuple[int, ...]:
        """How many first layers of each chunk may be recomputed, -1 and on: parts of all; empty: any layers."""
        if self.trainer.recompute is Recompute.FIRST:
            most = min(self._counted, len(self.pieces) - degrees.num_chunks + 1)
            return (*range(most + 1), *(-1 - place for place in range(len(self._selects))))
        return (0, self._counted) if self.trainer.recompute is Recompute.ALL else ()

    def chain(self, instance: StrategyInstance, t: int, number: int | None, by: Shared) -> Chain | None:
        """The chain at degree t with so many recomputed layers (any: ``None``); ``None`` if a piece cannot run.

        ``instance`` is that of one device, of plans that share ``by``.
        """
        parts = [self._part(instance.flat, place, piece, t) for place, piece in enumerate(self.pieces)]
        if not all(part.ways for part in parts):
            return None
        counts = [piece.kind is Kind.DECODER for piece in self.pieces]
        if number is None:
            return _Pieces(instance, t, parts, by)
        return _FirstRecomputed(instance, t, parts, by, counts, number, self._selects)

    def _part(self, flat: StageInstance, place: int, piece: Piece, t: int) -> Part:
        found = options(flat, piece, t, self.trainer)
        ways = {f"{place} {_RECOMPUTES if each.recomputes else _KEEPS}": each.tmpcs for each in found}
        for part in self._selects if piece.counted else ():
            own = selective(flat, piece, t, self.trainer, part)
            if own is not None:
                ways[f"{place} {part}"] = own.tmpcs
        return Part(place, tuple(flat.layers[v] for v in piece.nodes), ways)


def space_of(instance: StrategyInstance) -> TrainerSpace | None:
    """That of the trainer which the instance requires; ``None``: it requires none."""
    found = [each for each in requirements_of(instance) if each.quantity == _QUANTITY]
    return TrainerSpace(instance, TRAINERS[str(found[0].arguments[0])]) if found else None


class _Pieces(Chain):
    """Pieces, each of which may be run in any of its ways."""

    def __init__(self, instance: StrategyInstance, t: int, parts: Sequence[Part], by: Shared) -> None:
        super().__init__(instance, t, parts, by)
        self._parts = parts
        self._tmpcs = {name: way for part in parts for name, way in part.ways.items()}

    def fits(self, chunks: Sequence[Sequence[Kept]], rows: Sequence[tuple[int, ...]]) -> bool:
        """As the definition adds it up: layer by layer."""
        layers = [[x for way in chunk for x in self._tmpcs[way.id]] for chunk in chunks]
        most = max(way.made for chunk in chunks for way in chunk)
        alone = [[Kept(0.0, x.static_bytes, x.activation_bytes, x.id, most) for x in chunk] for chunk in layers]
        return super().fits(alone, rows)

    def plan(self, plan: StrategyPlan) -> StrategyPlan:
        """The layers of all pieces."""
        held = [self._parts[int(place)] for chunk in plan.chunks for place in chunk]
        tmpcs = {
            layer.id: x.id
            for part in held
            for layer, x in zip(part.layers, self._tmpcs[plan.tmpcs[part.id]], strict=True)
        }
        chunks = tuple(
            tuple(layer.id for place in chunk for layer in self._parts[int(place)].layers) for chunk in plan.chunks
        )
        return replace(plan, chunks=chunks, tmpcs=tmpcs)


class _FirstRecomputed(_Pieces):
    """Pieces of which the first n that count in a chunk recompute, and no others; or all recompute a part."""

    def __init__(
        self, instance: StrategyInstance, t: int, parts: Sequence[Part], by: Shared, counts: Sequence[bool],
        number: int, selects: Sequence[str],
    ) -> None:  # fmt: skip
        super().__init__(instance, t, parts, by)
        self.number = number
        self._counts = np.array(counts)
        self._before = np.array([0, *accumulate(map(int, counts))])[:-1]
        by_flag = [{way.id.partition(" ")[2]: way for way in own} for own in self.ways]
        # A piece that does not count has one way, whichever that is.
        self._ways = [
            tuple(own.get(flag) if is_counted else next(iter(own.values())) for flag in (_KEEPS, _RECOMPUTES, *selects))
            for own, is_counted in zip(by_flag, counts, strict=True)
        ]

    def _flags(self, x: int) -> list[int]:
        """Of the pieces from x on, 1 for those that recompute in a chunk that begins there, 2 and on for parts."""
        if self.number < 0:
            return [1 - self.number] * (len(self.ids) - x)
        is_first = self._before[x:] - self._before[x] < self.number
        return list(map(int, self._counts[x:] & is_first))

    def _held(self, x: int, y: int) -> list[Kept] | None:
        """How pieces x to y - 1 are run; ``None`` if one of them has no such way."""
        found = [self._ways[v][flag] for v, flag in zip(range(x, y), self._flags(x), strict=False)]
        kept = [way for way in found if way is not None]
        return kept if len(kept) == len(found) else None

    def kind(self, v: int) -> tuple[object, ...]:
        """Those that count are none of the others."""
        return bool(self._counts[v]), *super().kind(v)

    def options(self, x: int, y: int) -> Iterator[tuple[Kept, ...]]:
        """The one way to run them, if there is one."""
        found = self._held(x, y)
        if found is not None:
            yield tuple(found)

    def _least_again(self, in_flight: int) -> Table:
        L = len(self.ids)
        found = np.full((L + 1, L + 1), math.inf)
        never = Kept(math.inf, math.inf, 0.0, "")
        # piece, flag, (again, bytes, bytes of a micro-batch, bytes made again)
        costs = np.array([[(*(way or never)[:3], (way or never).made) for way in own] for own in self._ways])
        for x in range(L):
            own = costs[np.arange(x, L), self._flags(x)]
            again, static, activation = np.cumsum(own[:, :3], axis=0).T
            made = np.maximum.accumulate(own[:, 3])
            fits = static + in_flight * activation + made <= self.limit * (1 + BOUND_NOISE)
            found[x, x + 1 :] = np.where(fits, again, math.inf)
        return found

    def _knapsack(self, x: int, y: int, in_flight: int) -> Choice | None:
        found = self.choices([(x, y)], [(in_flight,)])
        return found[0] if found else None

    def choices(self, chunks: Sequence[tuple[int, int]], rows: Sequence[tuple[int, ...]]) -> list[Choice]:
        """The one way to run the layers of a device, if it fits."""
        found = [self._held(x, y) for x, y in chunks]
        kept = [own for own in found if own is not None]
        if len(kept) < len(found) or not self.fits(kept, rows):
            return []
        again = tuple(math.fsum(way.again for way in own) for own in kept)
        return [Choice(again, tuple(way.id for own in kept for way in own))]
