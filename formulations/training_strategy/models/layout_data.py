"""The numbers of the models: all layouts at given degrees, and what variables of either solver say of them."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from formulations.training_strategy.costs import Chain, Chains, Choice, Kept, chain_of, plan_of
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.sharing import of_shared, shared_in, shares_of_sums
from formulations.training_strategy.degrees import Degrees, all_degrees
from formulations.training_strategy.fixed_orders import FixedOrders, Path, moments, orders_of
from formulations.training_strategy.layouts import NOISE, quick_bound
from instances.problems.training_strategy import StrategyInstance

#: Relative room for rounding where what is too slow or too large is left out.
MARGIN = 1e-9
#: The last of the kinds of actions that are passes (`Path`).
_LAST_PASS = Path._fields.index("weight")


class Priced(NamedTuple):
    """Degrees with the tables of their chain, and a lower bound of all their layouts, in the instance's unit."""

    least: float
    degrees: Degrees
    chain: Chain


def priced_degrees(instance: StrategyInstance) -> list[Priced]:
    """All there are, from the least bound on: one that needs no search (`layouts.quick_bound`)."""
    chains: Chains = {}
    found = []
    for degrees in all_degrees(instance):
        chain = chain_of(chains, instance, degrees)
        found.append(Priced(quick_bound(chain, degrees) * (1 - NOISE), degrees, chain))
    return sorted(found, key=lambda each: each.least)


#: A chunk, a layer in it, and the number of its TMPC.
Run = tuple[int, int, int]
#: A chunk, an edge from layer u to v, and whether its tensor leaves the chunk (u is in it) or enters it.
CutEdge = tuple[int, int, int, bool]


@dataclass(frozen=True)
class Layouts:
    """All layouts at given degrees: L layers in S chunks, in a model's units of time and bytes.

    ``forward[l]`` is a third of a layer's time, ``gradients[l]`` its part of their sum, and ``ways`` are its TMPCs.
    ``summed[l]`` may be summed beside passes, and ``hidden[l]`` is how much of that its last backward pass hides.
    ``weight[l]`` and ``backward[l]`` are those of its W and B where layers say how long W takes, else there are none.
    ``again`` is what recomputation takes; its keys are all there is to choose. ``cut_edges`` are a third of what each
    takes. ``sizes[device, moment]`` are bytes at a fullest moment of a device, where they may be too many, and
    ``made`` those that a layer makes again.
    """

    chain: Chain
    degrees: Degrees
    orders: FixedOrders
    ways: Sequence[Sequence[Kept]]
    forward: Sequence[float]
    backward: Sequence[float]
    weight: Sequence[float]
    gradients: Sequence[float]
    summed: Sequence[float]
    hidden: Sequence[float]
    again: Mapping[Run, float]
    cut_edges: Mapping[CutEdge, float]
    sizes: Mapping[tuple[int, int], Mapping[Run, float]]
    made: Mapping[Run, float]

    @property
    def longest(self) -> float:
        """What no batch exceeds: all passes one after the other, all edges cross, all layers recompute the most."""
        crossed = {at[1:]: third for at, third in self.cut_edges.items()}
        again = [
            max((time for at, time in self.again.items() if at[1] == v), default=0.0) for v in range(len(self.ways))
        ]
        parts = [*self.forward, *self.backward, *self.weight] if self.weight else [3 * own for own in self.forward]
        passes = math.fsum([*parts, *(3 * third for third in crossed.values()), *again])
        return self.degrees.m * passes + math.fsum([*self.gradients, *self.summed])

    @property
    def num_terms(self) -> int:
        """Numbers that may add up on a longest path: thirds, recomputation, gradients, and what hides them."""
        L, crossed = len(self.forward), len({at[1:] for at in self.cut_edges})
        return self.degrees.m * (4 * L + 3 * crossed) + L + 2 * len(self.hidden)

    @property
    def spare(self) -> int:
        """Layers that a chunk may have beside one: chunk g begins at layer g to g + this."""
        return len(self.forward) - self.degrees.num_chunks

    @property
    def actions(self) -> range:
        """All passes of all chunks, and sums beside them."""
        return range(len(self.orders.stage))

    def summands(self, k: int, others: Sequence[int]) -> list[tuple[int, tuple[str, int]]]:
        """The end of an action less its time, and less the end of the other one that it waits for, if there is one.

        Factors with names and numbers of variables.
        """
        g, is_backward = self.orders.stage[k], self.orders.kind[k] == 1
        share = 2 if is_backward and not self.degrees.is_split else 1
        times = [(-share, ("forward", g))]
        if self.orders.kind[k] > (0 if self.weight else _LAST_PASS):
            times = [(-1, (Path._fields[self.orders.kind[k]], g))]
        times += [(-1, ("again", g))] * is_backward
        return [(1, ("end", k)), *times, *([(-1, ("end", others[k]))] if others[k] in self.actions else [])]

    def plan(self, taken: Iterable[Run]) -> StrategyPlan:
        """The plan in which layers run in these chunks and ways."""
        found = sorted(taken)
        ends = list(accumulate(Counter(g for g, _, _ in found)[g] for g in range(self.degrees.num_chunks)))
        names = [tuple(self.ways[v][x].id for g, v, x in found if g in own) for own in self.degrees.held]
        return plan_of(self.chain, self.degrees, ends, [Choice((), own) for own in names])


class Indices:
    """What the rows of a model of several degrees c are about, each with c in front.

    ``cuts`` are chunks g and layers v for which it is open whether g begins at v or before; ``places`` chunks and the
    layers that they may have; ``skips`` cut edges between layers that are no neighbours; ``last`` the last
    action of each device. ``split`` are chunks whose W has a time of its own. ``sums``, ``exposed`` and ``layers`` are
    chunks, the first ones, and the layers that these may have, where sums of gradients are beside passes.
    """

    def __init__(self, data: Sequence[Layouts]) -> None:
        self.degrees = range(len(data))
        self.chunks = [(c, g) for c, own in enumerate(data) for g in range(own.degrees.num_chunks)]
        self.cuts = [(c, g, v) for c, g in self.chunks if g for v in range(g, g + data[c].spare)]
        self.places = [(c, g, v) for c, g in self.chunks for v in range(g, g + data[c].spare + 1)]
        self.runs = [(c, *at) for c, own in enumerate(data) for at in own.again]
        self.skips = [(c, *at) for c, own in enumerate(data) for at in own.cut_edges if at[2] > at[1] + 1]
        self.actions = [(c, k) for c, own in enumerate(data) for k in own.actions]
        self.last = [(c, k) for c, own in enumerate(data) for k in sorted({*own.actions} - {*own.orders.before})]
        self.split = [at for at in self.chunks if data[at[0]].weight]
        self.sums = [at for at in self.chunks if data[at[0]].hidden]
        self.exposed = [(c, 0) for c, own in enumerate(data) if own.hidden]
        self.layers = [(c, v) for c, _ in self.exposed for v in range(data[c].spare + 1)]
        self.devices = [(c, i) for c, own in enumerate(data) for i in range(own.degrees.p)]
        self.made = [(c, *at) for c, own in enumerate(data) for at in own.made]
        self.again = sorted({(c, data[c].degrees.devices[g]) for c, g, _, _ in self.made})
        self.memory = [(c, *row) for c, own in enumerate(data) for row in own.sizes]


class Cuts:
    """What variables say of cuts, in either solver's arithmetic: ``chosen[c]``, ``free[c, g, v]`` of `Indices.cuts`."""

    def __init__(self, data: Sequence[Layouts], chosen: Any, free: Any) -> None:
        self.data, self.chosen, self.free = data, chosen, free

    def begun(self, c: int, g: int, v: int) -> Any:
        """1 if chunk g begins at layer v or before."""
        if g == self.data[c].degrees.num_chunks or v < g:
            return 0
        return self.chosen[c] if g == 0 or v >= g + self.data[c].spare else self.free[c, g, v]

    def holds(self, c: int, g: int, v: int) -> Any:
        """1 if chunk g has layer v: it has begun there, and the next one has not."""
        return self.begun(c, g, v) - self.begun(c, g + 1, v)

    def crosses(self, c: int, g: int, u: int, v: int, leaves: bool) -> Any:
        """1 if an edge crosses, else at most 0; of neighbours just that, as a chunk begins between them.

        In a V it does not if its other end is in the other chunk of the device.
        """
        if v == u + 1:
            return self.begun(c, g + leaves, v) - self.begun(c, g + leaves, u)
        other = self.data[c].degrees.num_chunks - 1 - g if self.data[c].degrees.is_vee else g
        if leaves:
            stays = self.holds(c, other, v) if other > g else 0
            return self.holds(c, g, u) + self.begun(c, g + 1, v) - stays - self.chosen[c]
        return self.holds(c, g, v) - self.begun(c, g, u) - (self.holds(c, other, u) if other < g else 0)

    def thirds(self, c: int, g: int, crosses: Any) -> Any:
        """A third of what the layers of chunk g compute and of what crosses its ends; ``crosses`` is of `skips`."""
        return self._passes(c, g, crosses, self.data[c].forward, 1)

    def backward(self, c: int, g: int, crosses: Any) -> Any:
        """What W leaves of the other two thirds, in which is all that comes back."""
        return self._passes(c, g, crosses, self.data[c].backward, 2)

    def _passes(self, c: int, g: int, crosses: Any, values: Sequence[float], times: int) -> Any:
        cut = ((at, times * third) for at, third in self.data[c].cut_edges.items() if at[0] == g)
        return self.total(c, g, values) + sum(
            third * (crosses[(c, *at)] if at[2] > at[1] + 1 else self.crosses(c, *at)) for at, third in cut
        )

    def gradients(self, c: int, device: int) -> Any:
        """The sum of a device's gradients behind all passes."""
        own = self.data[c]
        return sum(self.total(c, g, own.gradients) for g in own.degrees.held[device])

    def total(self, c: int, g: int, values: Sequence[float], most: int | None = None) -> Any:
        """Of the values of a chunk's layers, of those before layer ``most``."""
        end = g + self.data[c].spare + 1
        return sum(values[v] * self.holds(c, g, v) for v in range(g, end if most is None else min(end, most)))

    def exposed(self, c: int, v: int) -> Any:
        """What is left of the first chunk's gradients from layer v on, if it hides what is behind; else no more."""
        own = self.data[c]
        return self.total(c, 0, own.summed, v + 1) - self.total(c, 0, own.hidden, v)


def layouts_of(
    instance: StrategyInstance,
    priced: Priced,
    most: float,
    cost: Callable[[float], float],
    size: Callable[[float], float],
    cover: Callable[[float], float],
) -> Layouts:
    """The layouts at some degrees, without ways to run a layer that alone make a batch take more than ``most``.

    ``cost`` and ``size`` turn times and bytes into a model's units, none above what it is; ``cover`` none below.
    """
    _, degrees, chain = priced
    _, V, p, _, _, m, *_ = degrees
    by = shared_in(instance, degrees.plan())
    beside, left = shares_of_sums(instance, by)
    instance = of_shared(instance, by)
    S, L, flat, full, ways = degrees.num_chunks, len(chain.ids), instance.flat, moments(degrees), chain.ways
    share, place = 4 * degrees.share / flat.bandwidth, {node: position for position, node in enumerate(chain.ids)}

    declared = chain.weight_times if degrees.is_split else None
    home = degrees.devices
    weight: list[float] = [] if declared is None else declared.tolist()

    def units(time: float) -> float:
        return cost(min(time, most))

    def held(g: int, v: int, x: int, counts: Sequence[int]) -> float:
        return ways[v][x].static + counts[g // p] * ways[v][x].activation

    made = {(g, v, x): way.made for g in range(S) for v in range(L) for x, way in enumerate(ways[v]) if way.made}
    taken = [
        (g, v, x)
        for g in range(S)
        for v in range(g, g + L - S + 1)
        for x, way in enumerate(ways[v])
        if m * (float(chain.time[v]) + way.again) <= most * (1 + MARGIN)
        and all(held(g, v, x, counts) + way.made <= chain.limit * (1 + MARGIN) for counts in full[home[g]])
    ]
    sizes = {}
    for device, moment, counts in ((i, number, row) for i, rows in enumerate(full) for number, row in enumerate(rows)):
        own = {at: held(*at, counts) for at in taken if home[at[0]] == device}
        if math.fsum([*own.values(), max((made.get(at, 0.0) for at in own), default=0.0)]) > chain.limit:
            sizes[device, moment] = {at: size(bytes_) for at, bytes_ in own.items()}
    cut_edges: dict[CutEdge, float] = {}
    for edge in flat.edges:
        u, v = place[edge.source], place[edge.target]
        source, target = (flat.layers[flat.index[node]].tmpcs[degrees.t][0] for node in (edge.source, edge.target))
        for bytes_, leaves, layer, chunks in (
            (edge.bytes + target.sync_forward_bytes.get(edge.source, 0.0), False, v, range(1, S)),
            (edge.bytes + source.sync_backward_bytes.get(edge.target, 0.0), True, u, range(S - 1)),
        ):
            third = units(2 * bytes_ / flat.bandwidth / 3)
            # Between the chunks of the last device of a V it stays there.
            stays = p - leaves if degrees.is_vee and v == u + 1 else None
            cut_edges |= {(g, u, v, leaves): third for g in chunks if third and g <= layer <= g + L - S and g != stays}
    return Layouts(
        chain,
        degrees,
        orders_of(degrees.schedule, p, m, V, chain.overlaps),
        ways,
        [units(float(time) / 3) for time in chain.time],
        [units(max(0.0, 2 / 3 * time - own)) for time, own in zip(chain.time.tolist(), weight, strict=False)],
        [units(own) for own in weight],
        [units(left * share * float(w) + float(own)) for w, own in zip(chain.weights, chain.updates, strict=True)],
        [units(beside * share * float(weight)) for weight in chain.weights],
        [cover(float(hidden)) for hidden in chain.hidden(degrees)] if chain.overlaps else [],
        {(g, v, x): units(ways[v][x].again) for g, v, x in taken},
        cut_edges,
        sizes,
        {at: size(made[at]) for at in taken if at in made and any(i == home[at[0]] for i, _ in sizes)},
    )
