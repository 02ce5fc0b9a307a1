"""The numbers of the model: all layouts at given degrees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from formulations.training_strategy.costs import Chain, Choice, Degrees, Kept, all_degrees, chain_of, plan_of
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.fixed_orders import FixedOrders, moments, orders_of
from formulations.training_strategy.layouts import NOISE, quick_bound
from instances.problems.training_strategy import StrategyInstance

#: Relative room for rounding where what is too slow or too large is left out.
MARGIN = 1e-9


class Priced(NamedTuple):
    """Degrees with the tables of their chain, and a lower bound of all their layouts, in the instance's unit."""

    least: float
    degrees: Degrees
    chain: Chain


def priced_degrees(instance: StrategyInstance) -> list[Priced]:
    """All there are, from the least bound on: one that needs no search (`layouts.quick_bound`)."""
    chains: dict[int, Chain] = {}
    found = []
    for degrees in all_degrees(instance):
        chain = chain_of(chains, instance, degrees)
        found.append(Priced(quick_bound(chain, degrees) * (1 - NOISE), degrees, chain))
    return sorted(found, key=lambda each: each.least)


#: A chunk, a layer in it, and the number of its TMPC.
Run = tuple[int, int, int]
#: A chunk, an edge from layer u to v, and whether its tensor leaves the chunk (u is in it) or enters it.
Crossing = tuple[int, int, int, bool]


@dataclass(frozen=True)
class Layouts:
    """All layouts at given degrees: L layers in S chunks, in a model's units of time and bytes.

    ``forward[l]`` is a third of a layer's time, ``gradients[l]`` its part of their sum, and ``ways`` are its TMPCs.
    ``again`` is what recomputation takes; its keys are all there is to choose. ``crossings`` are a third of what each
    crossing takes. ``sizes[device, moment]`` are bytes at a fullest moment of a device, where they may be too many.
    """

    chain: Chain
    degrees: Degrees
    orders: FixedOrders
    ways: Sequence[Sequence[Kept]]
    forward: Sequence[float]
    gradients: Sequence[float]
    again: Mapping[Run, float]
    crossings: Mapping[Crossing, float]
    sizes: Mapping[tuple[int, int], Mapping[Run, float]]

    @property
    def spare(self) -> int:
        """Layers that a chunk may have beside one: chunk g begins at layer g to g + this."""
        return len(self.forward) - self.degrees.num_chunks

    def plan(self, taken: Iterable[Run]) -> StrategyPlan:
        """The plan in which layers run in these chunks and ways."""
        p, found = self.degrees.p, sorted(taken)
        ends = list(accumulate(Counter(g for g, _, _ in found)[g] for g in range(self.degrees.num_chunks)))
        names = [tuple(self.ways[v][x].id for g, v, x in found if g % p == device) for device in range(p)]
        return plan_of(self.chain, self.degrees, ends, [Choice((), own) for own in names])


def layouts_of(
    instance: StrategyInstance,
    priced: Priced,
    most: float,
    cost: Callable[[float], float],
    size: Callable[[float], float],
) -> Layouts:
    """The layouts at some degrees, without ways to run a layer that alone make a batch take more than ``most``.

    ``cost`` and ``size`` turn times and bytes into a model's units, none above what it is.
    """
    _, degrees, chain = priced
    _, V, p, _, d, m = degrees
    S, L, flat, full, ways = degrees.num_chunks, len(chain.ids), instance.flat, moments(degrees), chain.ways
    share, place = 4 * (d - 1) / d / flat.bandwidth, {node: position for position, node in enumerate(chain.ids)}

    def units(time: float) -> float:
        return cost(min(time, most))

    def held(g: int, v: int, x: int, counts: Sequence[int]) -> float:
        return ways[v][x].static + counts[g // p] * ways[v][x].activation

    taken = [
        (g, v, x)
        for g in range(S)
        for v in range(g, g + L - S + 1)
        for x, way in enumerate(ways[v])
        if m * (float(chain.time[v]) + way.again) <= most * (1 + MARGIN)
        and all(held(g, v, x, counts) <= chain.limit * (1 + MARGIN) for counts in full[g % p])
    ]
    sizes = {}
    for device, moment, counts in ((i, number, row) for i, rows in enumerate(full) for number, row in enumerate(rows)):
        own = {at: held(*at, counts) for at in taken if at[0] % p == device}
        if math.fsum(own.values()) > chain.limit:
            sizes[device, moment] = {at: size(bytes_) for at, bytes_ in own.items()}
    crossings: dict[Crossing, float] = {}
    for edge in flat.edges:
        u, v = place[edge.source], place[edge.target]
        source, target = (flat.layers[flat.index[node]].tmpcs[degrees.t][0] for node in (edge.source, edge.target))
        for bytes_, leaves, layer, chunks in (
            (edge.bytes + target.sync_forward_bytes.get(edge.source, 0.0), False, v, range(1, S)),
            (edge.bytes + source.sync_backward_bytes.get(edge.target, 0.0), True, u, range(S - 1)),
        ):
            third = units(2 * bytes_ / flat.bandwidth / 3)
            crossings |= {(g, u, v, leaves): third for g in chunks if third and g <= layer <= g + L - S}
    return Layouts(
        chain,
        degrees,
        orders_of(degrees.schedule, p, m, V),
        ways,
        [units(float(time) / 3) for time in chain.time],
        [units(share * float(weight)) for weight in chain.weights],
        {(g, v, x): units(ways[v][x].again) for g, v, x in taken},
        crossings,
        sizes,
    )
