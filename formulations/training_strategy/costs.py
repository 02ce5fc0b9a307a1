"""What chunks of a chain cost, as tables: ``table[x, y]`` is of layers x to y - 1; without meaning where y <= x.

Bounds are made of these; what a plan costs says the definition.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, combinations, combinations_with_replacement, groupby, pairwise, product
from typing import Any, NamedTuple

import numpy as np

from formulations.contract.hull import convex_hull
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.sharing import Shared, of_shared, shared_in, shares_of_sums, weight_time
from formulations.training_strategy.degrees import Degrees
from formulations.training_strategy.fixed_orders import Path, orders_of
from instances.problems.stage_partitioning import Layer, Tmpc
from instances.problems.training_strategy import StrategyInstance
from instances.rules import NodeId

Table = np.ndarray[Any, np.dtype[np.float64]]

#: What would help where there is no plan.
NO_PLAN = "no degrees and layout fit: more memory, devices, micro-batches or TMPCs that hold less are needed"
#: Differences of prefix sums of bytes are that far from the sums themselves; a bound must not call that too large.
BOUND_NOISE = 1e-9
#: Slopes of recomputation are distinguished by so many steps: more would cost time, fewer make bounds weaker.
_MOST_SLOPES = 48
#: Ways to run the layers of a chunk, or of a device, that no other one beats: more would take minutes.
_MOST_LABELS = 50_000
#: Of layers that are not of the common kind (embedding, head) all sets are tried.
_MOST_OTHERS = 3
_NOTHING = Shared()
#: Beyond so many bytes that layers may make again, bounds leave room for the least alone.
_MOST_MADE = 8


class TooManyWaysError(Exception):
    """Layers can be run in too many ways to compare; the message says how many."""


class Kept(NamedTuple):
    """A way to run a layer: time of its recomputation, bytes that are always there, and those of a micro-batch.

    ``made`` are bytes that it makes again, of which a device has those of one layer at a time.
    """

    again: float
    static: float
    activation: float
    id: str
    made: float = 0.0


class Part(NamedTuple):
    """Layers of a chain that no cut separates, and the ways to run them: a TMPC for each, by a name of the way."""

    id: NodeId
    layers: tuple[Layer, ...]
    ways: Mapping[str, tuple[Tmpc, ...]]


class Choice(NamedTuple):
    """Ways to run all layers of a device: recomputation of each of its chunks, and the TMPC of each layer."""

    again: tuple[float, ...]
    tmpcs: tuple[str, ...]


#: The tables at a degree t, and of plans that share something.
Chains = dict[tuple[int, Shared], "Chain"]


def chain_of(chains: Chains, instance: StrategyInstance, degrees: Degrees) -> "Chain":
    """The tables at some degrees, made once."""
    at = degrees.t, shared_in(instance, degrees.plan())
    if at not in chains:
        chains[at] = Chain(of_shared(instance, at[1], degrees.t), degrees.t, by=at[1])
    return chains[at]


class Chain:
    """The tables of an instance's chain at one degree t, of its ``parts``: of the layers one by one, if not given.

    The instance is that of one device, of plans that share ``by``.
    """

    def __init__(
        self, instance: StrategyInstance, t: int, parts: Sequence[Part] | None = None, by: Shared = _NOTHING
    ) -> None:
        flat = instance.flat
        self.limit = flat.memory_bytes * MEMORY_SLACK
        self.t = t
        self.in_turn = instance.makes_again_in_turn
        if parts is None:
            parts = [Part(layer.id, (layer,), {x.id: (x,) for x in layer.tmpcs[t]}) for layer in instance.chain]
        self.ids = [part.id for part in parts]
        least = [math.fsum(min(x.time for x in layer.tmpcs[t]) for layer in part.layers) for part in parts]
        self.ways = [
            [_kept(name, way, fastest, self._made(part, way)) for name, way in part.ways.items()]
            for part, fastest in zip(parts, least, strict=True)
        ]
        self.time = np.array(least)
        # TMPCs of a layer at one degree have equal weights and volumes.
        some = {layer.id: layer.tmpcs[t][0] for part in parts for layer in part.layers}
        self.weights = np.array([math.fsum(some[layer.id].weight_bytes for layer in part.layers) for part in parts])
        updates = instance.updates
        self.updates = np.array([math.fsum(updates.get((t, x.id), 0.0) for x in part.layers) for part in parts])
        L = len(self.ids)
        place = {layer.id: position for position, part in enumerate(parts) for layer in part.layers}
        self._edges = []
        for edge in flat.edges:
            u, v = place[edge.source], place[edge.target]
            taken = 2 * (edge.bytes + some[edge.target].sync_forward_bytes.get(edge.source, 0.0)) / flat.bandwidth
            given = 2 * (edge.bytes + some[edge.source].sync_backward_bytes.get(edge.target, 0.0)) / flat.bandwidth
            self._edges.append((u, v, taken, given))
        self._steps: dict[tuple[int, int], Table] = {}
        self._again: dict[int, Table] = {}
        self._fastest: dict[tuple[int, int, int], Choice | None] = {}
        behind = np.arange(L + 1)
        self.is_chunk = behind[:, None] < behind[None, :]
        #: Time of a micro-batch in a chunk, without recomputation.
        self.step = self._step(L, L)
        beside, left = shares_of_sums(instance, by)
        summed = 4 * _sums(self.weights) / flat.bandwidth
        # Gradients of weights, of each layer and of each part; the latter only where some layer declares its own.
        own = np.array([weight_time(layer, t, layer.tmpcs[t]) for part in parts for layer in part.layers])
        ends = np.cumsum([0, *(len(part.layers) for part in parts)])
        is_declared = any(t in layer.weight_times for layer in flat.layers)
        self.weight_times = np.add.reduceat(own, ends[:-1]) if is_declared else None
        self._weight = None if self.weight_times is None else _sums(self.weight_times)
        #: What of the sum of a chunk's gradients follows all passes, per (d - 1)/d; and what may be beside them.
        self._left, self.summed = left * summed, beside * summed
        self.overlaps = instance.overlaps_gradients
        # Layers one by one, with the time of each, and where parts end.
        layers = [layer.id for part in parts for layer in part.layers]
        self._sent = np.array([4 * beside * some[node].weight_bytes / flat.bandwidth for node in layers])
        fastest = (min(x.time for x in layer.tmpcs[t]) for part in parts for layer in part.layers)
        self._hidden = 2 / 3 * np.fromiter(fastest, float, len(layers)), own
        self._hides = float(not by.in_pipeline)
        self._ends = ends

    def behind(self, degrees: Degrees) -> Table:
        """What follows all passes of a chunk: of its sum of gradients, and its updates on the host."""
        return degrees.share * self._left + _sums(self.updates)

    def hidden(self, degrees: Degrees) -> Table:
        """What the last backward pass of each layer hides of sums of gradients."""
        found: Table = self._hides * self._hidden[degrees.is_split]
        return found

    def _step(self, enters: int, leaves: int) -> Table:
        """Time of a micro-batch in a chunk, with edges that come over, or go over, less than so many layers."""
        if (enters, leaves) not in self._steps:
            step = _sums(self.time)
            for u, v, taken, given in self._edges:
                step[u + 1 : v + 1, v + 1 :] += taken if v - u < enters else 0.0
                step[: u + 1, u + 1 : v + 1] += given if v - u < leaves else 0.0
            self._steps[enters, leaves] = step
        return self._steps[enters, leaves]

    @cached_property
    def sent(self) -> Table:
        """Time in which a micro-batch and its gradients pass each cut, by the layer behind it: the longer end's."""
        found = np.zeros(len(self.ids) + 1)
        for u, v, taken, given in self._edges:
            found[u + 1 : v + 1] += max(taken, given)
        return found

    def steps(self, degrees: Degrees) -> tuple[Table, ...]:
        """Time of a micro-batch without recomputation: one table for all chunks, in a V one for each.

        In a V an edge that may stay on the device, as it is no shorter than the chunks between, takes nothing.
        """
        if not degrees.is_vee:
            return (self.step,)
        L, last = len(self.ids), degrees.num_chunks - 1
        apart = [last - 2 * g for g in range(last + 1)]  # chunks from each one to the other one of its device
        return tuple(self._step(min(-own, L) if own < 0 else L, min(own, L) if own > 0 else L) for own in apart)

    def weight(self, degrees: Degrees, step: Table) -> Table:
        """Time of a micro-batch's W in a chunk: 0 where backward passes are whole, a third where no layer says more."""
        if not degrees.is_split:
            return np.zeros_like(step)
        return step / 3 if self._weight is None else self._weight

    def passes(self, degrees: Degrees, chunks: Sequence[tuple[int, int]]) -> tuple[list[float], ...]:
        """Times of a micro-batch's F, B and W in each chunk of a layout, without recomputation."""
        tables, last = self.steps(degrees), len(chunks) - 1
        found = [float(tables[g % len(tables)][cut]) for g, cut in enumerate(chunks)]
        if degrees.is_vee:  # edges that might have stayed on their device, and do not
            chunk = [g for g, (x, y) in enumerate(chunks) for _ in range(x, y)]
            for u, v, taken, given in self._edges:
                g, h = chunk[u], chunk[v]
                if g < h and g + h != last:
                    found[g] += given if 0 < last - 2 * g <= v - u else 0.0
                    found[h] += taken if 0 < 2 * h - last <= v - u else 0.0
        forward = [own / 3 for own in found]
        weight = [0.0] * len(found)
        if degrees.is_split:
            weight = forward if self._weight is None else [float(self._weight[cut]) for cut in chunks]
        return forward, [max(2 * F - W, 0.0) for F, W in zip(forward, weight, strict=True)], weight

    def batch(self, degrees: Degrees, ends: Sequence[int], again: Sequence[float]) -> tuple[float, Path]:
        """The time of a layout whose chunks recompute for so long, and a longest path of its iteration."""
        cuts = list(pairwise((0, *ends)))
        forward, backward, weight = self.passes(degrees, cuts)
        backward = [B + more for B, more in zip(backward, again, strict=True)]
        beside = [degrees.share * float(self.summed[cut]) for cut in cuts]
        times = forward, backward, weight, beside, [float(self.exposed(degrees)[ends[0]])]
        time, path = orders_of(degrees.schedule, degrees.p, degrees.m, degrees.V, self.overlaps).run(times)
        behind = self.behind(degrees)
        return time + max(math.fsum(float(behind[cuts[g]]) for g in own) for own in degrees.held), path

    def exposed(self, degrees: Degrees) -> Table:
        """What of the sum of a first chunk's gradients its last backward pass does not hide, by the chunk's end."""
        sent, hidden = np.cumsum(degrees.share * self._sent), np.cumsum(self.hidden(degrees))
        left = np.concatenate([[0.0], sent - np.concatenate([[0.0], hidden[:-1]])])
        found: Table = np.maximum.accumulate(left)[self._ends]
        return found

    @cached_property
    def total(self) -> float:
        """Time of all layers without transfers and recomputation."""
        return float(self.time.sum())

    def busiest(self, p: int) -> float:
        """A micro-batch takes no less on the busiest of p devices: one has j/p, rounded up, of the j slowest layers."""
        j, slowest = np.arange(1, len(self.time) + 1), np.cumsum([0.0, *np.sort(self.time)[::-1]])
        return float((slowest[j] - slowest[j + -j // p]).max())

    def kind(self, v: int) -> tuple[object, ...]:
        """What equal layers have in common: times, weights, ways to be run."""
        own = None if self.weight_times is None else float(self.weight_times[v])
        return (
            *map(float, (self.time[v], self.weights[v], self.updates[v])),
            own,
            *(way._replace(id="") for way in self.ways[v]),
        )

    def options(self, x: int, y: int) -> Iterator[tuple[Kept, ...]]:
        """How layers x to y - 1 may be run: of equal ones those in front in the ways that come first."""
        runs = [[self.ways[v] for v in own] for _, own in groupby(range(x, y), self.kind)]
        numbers = (combinations_with_replacement(range(len(own[0])), len(own)) for own in runs)
        for each in product(*numbers):
            yield tuple(
                ways[k] for own, chosen in zip(runs, each, strict=True) for ways, k in zip(own, chosen, strict=True)
            )

    def transfer_times(self, number: int) -> Table:
        """What edges between neighbours take to come over each cut (``number`` 2), or to go over it (3)."""
        found = np.zeros(len(self.ids) + 1)
        for edge in self._edges:
            found[edge[1]] += edge[number] if edge[1] - edge[0] == 1 else 0.0
        return found

    def _made(self, part: Part, way: Sequence[Tmpc]) -> float:
        """Most bytes that a layer of a part makes again, run this way."""
        if not self.in_turn:
            return 0.0
        most = (max(x.activation_bytes for x in layer.tmpcs[self.t]) for layer in part.layers)
        return max(own - x.activation_bytes for own, x in zip(most, way, strict=True))

    def made(self, x: int, y: int) -> list[float]:
        """What the layers of an interval may make again, in bytes, ascending: one of them is the most of a plan."""
        return sorted({way.made for ways in self.ways[x:y] for way in ways})

    def least_again(self, in_flight: int) -> Table:
        """At most the least recomputation with which a chunk fits, so many micro-batches in flight; infinite if none.

        The knapsack's linear relaxation; the knapsack itself where layers have two ways, nearly all of one kind.
        """
        if in_flight not in self._again:
            self._again[in_flight] = self._least_again(in_flight)
        return self._again[in_flight]

    def _least_again(self, in_flight: int) -> Table:
        every = self.made(0, len(self.ways))
        if len(every) > _MOST_MADE:
            return self._least_within(in_flight, math.inf, every[0])
        # Whatever is the most that is made again, no way makes more, and there is room for it.
        found: Table = np.minimum.reduce([self._least_within(in_flight, most, most) for most in every])
        return found

    def _least_within(self, in_flight: int, most_made: float, room: float) -> Table:
        """That of ways that make no more again, with so much room for it."""
        limit = self.limit - room
        # A way that alone is too large is in no chunk; without it, sums round by far less than the tolerance on memory.
        most = limit + self.limit * BOUND_NOISE
        sizes = [
            [
                (size, x.again)
                for x in ways
                if x.made <= most_made and (size := x.static + in_flight * x.activation) <= most
            ]
            for ways in self.ways
        ]
        never = np.array([float(not each) for each in sizes])
        sizes = [each or [(0.0, 0.0)] for each in sizes]
        of_kind = {each: convex_hull(each)[::-1] for each in {tuple(each) for each in sizes}}
        hulls = [of_kind[tuple(each)] for each in sizes]
        missing = _sums(np.array([hull[0][0] for hull in hulls])) - most
        missing = np.where(self.is_chunk, np.maximum(missing, 0.0), 0.0)
        found = self._of_one_kind(hulls, missing) if max(map(len, sizes)) <= 2 else None
        found = self._relaxed(hulls, missing) if found is None else found
        fastest = _sums(np.array([hull[0][1] for hull in hulls]))  # of ways that fit alone
        return np.where(_sums(never) > 0, math.inf, found + fastest)

    def _of_one_kind(self, hulls: Sequence[Sequence[tuple[float, float]]], missing: Table) -> Table | None:
        """The knapsack of layers that save the same in the same time, but for a few; ``None`` if these are too many.

        For each set of the others that recompute, as many of the kind as are needed.
        """
        steps = {v: (hull[0][0] - hull[1][0], hull[1][1] - hull[0][1]) for v, hull in enumerate(hulls) if len(hull) > 1}
        kinds = Counter(steps.values()).most_common(1)
        one, time = kinds[0][0] if kinds else (1.0, 0.0)
        others = [v for v, step in steps.items() if step != (one, time)]
        if len(others) > _MOST_OTHERS:
            return None
        equal = _sums(np.array([float(v in steps and v not in others) for v in range(len(hulls))]))
        found = np.full_like(missing, math.inf)
        has = {v: _sums(np.eye(len(hulls))[v]) > 0 for v in others}
        for chosen in (set_ for size in range(len(others) + 1) for set_ in combinations(others, size)):
            left = np.maximum(missing - math.fsum(steps[v][0] for v in chosen), 0.0)
            number = np.ceil(left / one * (1 - BOUND_NOISE))
            again = number * time + math.fsum(steps[v][1] for v in chosen)
            fits = number <= equal
            for v in chosen:
                fits &= has[v]
            np.minimum(found, again, out=found, where=fits)
        return found

    def _relaxed(self, hulls: Sequence[Sequence[tuple[float, float]]], missing: Table) -> Table:
        """Steps of recomputation from the one that saves most bytes in its time on, the last one in part."""
        found, left = np.zeros_like(missing), missing
        for slope, saved in _slopes(hulls):
            taken = np.minimum(left, _sums(saved))
            found = found + slope * taken
            left = left - taken
        return np.where(left > self.limit * BOUND_NOISE, math.inf, found)

    def fastest(self, x: int, y: int, in_flight: int) -> Choice | None:
        """The way to run layers x to y - 1 with the least recomputation that fits; ``None`` if none does."""
        key = (x, y, in_flight)
        if key not in self._fastest:
            self._fastest[key] = self._knapsack(x, y, in_flight)
        return self._fastest[key]

    def _knapsack(self, x: int, y: int, in_flight: int) -> Choice | None:
        """The best of those that make no more again than some layer does, each with room for that."""
        found = (self._knapsack_within(x, y, in_flight, most) for most in self.made(x, y))
        return min((each for each in found if each is not None), key=lambda each: each.again, default=None)

    def _knapsack_within(self, x: int, y: int, in_flight: int, most: float) -> Choice | None:
        """Dynamic program over the layers: of all sums of bytes and times those that no other one beats in both."""
        within = [[way for way in ways if way.made <= most] for ways in self.ways[x:y]]
        if not all(within):
            return None
        limit = self.limit - most + self.limit * BOUND_NOISE
        least = _suffix_sums([min(w.static + in_flight * w.activation for w in ways) for ways in within])
        held, again = np.zeros(1), np.zeros(1)
        taken = []  # of each layer, for each label the one before it and the way
        for ways, rest in zip(within, least[1:], strict=True):
            sizes = (held[:, None] + [w.static + in_flight * w.activation for w in ways]).ravel()
            times = (again[:, None] + [w.again for w in ways]).ravel()
            fits = np.flatnonzero(sizes + rest <= limit)
            ordered = fits[np.lexsort((sizes[fits], times[fits]))]
            before = np.concatenate([[math.inf], np.minimum.accumulate(sizes[ordered])[:-1]])[: len(ordered)]
            kept = ordered[sizes[ordered] < before]
            if len(kept) > _MOST_LABELS:
                raise TooManyWaysError(f"more than {_MOST_LABELS} ways to run layers, none of which beats another")
            held, again = sizes[kept], times[kept]
            taken.append(np.divmod(kept, len(ways)))
        for label in range(len(held)):
            found, at = [], label
            for ways, (before, way) in zip(reversed(within), reversed(taken), strict=True):
                found.append(ways[way[at]])
                at = before[at]
            if self.fits([found], [(in_flight,)]):
                return Choice((math.fsum(w.again for w in found),), tuple(w.id for w in reversed(found)))
        return None

    def fits(self, chunks: Sequence[Sequence[Kept]], rows: Sequence[tuple[int, ...]]) -> bool:
        """Whether a device holds at most the limit at every moment, as the definition adds it up."""
        static = [max(w.made for chunk in chunks for w in chunk), *(w.static for chunk in chunks for w in chunk)]
        return all(
            math.fsum([*static, *(n * w.activation for n, chunk in zip(row, chunks, strict=True) for w in chunk)])
            <= self.limit
            for row in rows
        )

    def choices(self, chunks: Sequence[tuple[int, int]], rows: Sequence[tuple[int, ...]]) -> list[Choice]:
        """Ways to run the layers of a device that fit and that no other one beats in all of its chunks.

        ``rows`` are numbers of micro-batches in flight of each chunk, at moments of which one is the fullest.
        """
        layers = [(g, self.ways[layer]) for g, (x, y) in enumerate(chunks) for layer in range(x, y)]
        fast = [[min(ways) for own, ways in layers if own == g] for g in range(len(chunks))]
        if self.fits(fast, rows):
            # The fastest way of a layer may be none that the chain has: then its fastest way takes longer.
            again = tuple(math.fsum(way.again for way in chunk) for chunk in fast)
            return [Choice(again, tuple(way.id for chunk in fast for way in chunk))]
        kept: list[_Label] = []
        for most in sorted({way.made for _, ways in layers for way in ways}):
            within = [(g, [way for way in ways if way.made <= most]) for g, ways in layers]
            if all(ways for _, ways in within):
                kept += self._labels(within, chunks, rows, self.limit - most + self.limit * BOUND_NOISE)
        return [Choice(label.again, tuple(w.id for w in label.ways)) for label in _undominated(kept)]

    def _labels(
        self,
        layers: Sequence[tuple[int, Sequence[Kept]]],
        chunks: Sequence[tuple[int, int]],
        rows: Sequence[tuple[int, ...]],
        limit: float,
    ) -> "list[_Label]":
        """Ways to run the layers within a limit that fit and that no other one beats, without bytes."""
        least = [
            _suffix_sums([min(w.static + row[g] * w.activation for w in ways) for g, ways in layers]) for row in rows
        ]
        labels: list[_Label] = [_Label((0.0,) * len(rows), (0.0,) * len(chunks), ())]
        for number, (g, ways) in enumerate(layers):
            found = []
            for label in labels:
                for way in ways:
                    held = tuple(
                        b + way.static + row[g] * way.activation for b, row in zip(label.held, rows, strict=True)
                    )
                    if all(b + rest[number + 1] <= limit for b, rest in zip(held, least, strict=True)):
                        again = (*label.again[:g], label.again[g] + way.again, *label.again[g + 1 :])
                        found.append(_Label(held, again, (*label.ways, way)))
            if len(found) > _MOST_LABELS:
                raise TooManyWaysError(f"more than {_MOST_LABELS} ways to run layers, none of which beats another")
            labels = _undominated(found)
        sizes = np.cumsum([0, *(y - x for x, y in chunks)])
        return [
            _Label((), label.again, label.ways)
            for label in labels
            if self.fits([label.ways[a:b] for a, b in pairwise(sizes)], rows)
        ]

    def plan(self, plan: StrategyPlan) -> StrategyPlan:
        """The plan of all layers for one of the parts."""
        return plan


def _kept(name: str, way: Sequence[Tmpc], fastest: float, made: float) -> Kept:
    """Layers that are run this way, which without recomputation take the ``fastest`` time."""
    again, static, activation = (
        math.fsum(values)
        for values in (
            (*(x.time for x in way), -fastest),
            (x.static_bytes for x in way),
            (x.activation_bytes for x in way),
        )
    )
    return Kept(again, static, activation, name, made)


def _slopes(hulls: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, Table]]:
    """What recomputation saves: time per byte, ascending, and bytes by layer; those of nearly one slope together."""
    steps = sorted(
        ((after - before) / (more - less), layer, more - less)
        for layer, hull in enumerate(hulls)
        for (more, before), (less, after) in pairwise(hull)
    )
    kinds = [list(each) for _, each in groupby(steps, key=lambda step: step[0])]
    if len(kinds) > _MOST_SLOPES:
        size = -(-len(steps) // _MOST_SLOPES)
        kinds = [steps[first : first + size] for first in range(0, len(steps), size)]
    found = []
    for kind in kinds:
        saved = np.zeros(len(hulls))
        for _, layer, saving in kind:
            saved[layer] += saving
        found.append((kind[0][0], saved))  # the least slope of them
    return found


class _Label(NamedTuple):
    """Bytes at each moment, recomputation of each chunk, and how the layers so far are run."""

    held: tuple[float, ...]
    again: tuple[float, ...]
    ways: tuple[Kept, ...]


def _undominated(labels: list[_Label]) -> list[_Label]:
    """Labels that no other one equals or beats in all bytes and times."""
    labels.sort(key=lambda label: (math.fsum(label.again), label.held))
    kept: list[_Label] = []
    taken = np.empty((len(labels), len(labels[0].held) + len(labels[0].again)) if labels else (0, 0))
    for label in labels:
        point = (*label.held, *label.again)
        if not (taken[: len(kept)] <= point).all(axis=1).any():
            taken[len(kept)] = point
            kept.append(label)
    return kept


def _suffix_sums(values: Sequence[float]) -> list[float]:
    """Of the values from each position on, and 0 behind the last."""
    return [*accumulate(reversed(values), initial=0.0)][::-1]


def _sums(values: Table) -> Table:
    """Of the values of each interval."""
    before = np.concatenate([[0.0], np.cumsum(values)])
    sums: Table = before[None, :] - before[:, None]
    return sums


def plan_of(chain: Chain, degrees: Degrees, ends: Sequence[int], devices: Sequence[Choice]) -> StrategyPlan:
    """The plan of these cuts (the end of each chunk) and of a choice for each device."""
    cuts = [(x, y) for x, y in zip((0, *ends), ends, strict=False)]
    tmpcs: dict[NodeId, str] = {}
    for own, choice in zip(degrees.held, devices, strict=True):
        layers = [layer for g in own for layer in range(*cuts[g])]
        tmpcs |= {chain.ids[layer]: name for layer, name in zip(layers, choice.tmpcs, strict=True)}
    chunks = tuple(tuple(chain.ids[x:y]) for x, y in cuts)
    ordered = {node: tmpcs[node] for chunk in chunks for node in chunk}
    return chain.plan(degrees.plan(chunks, ordered))
