"""Ways to fill a device with several chunks: how many layers of each run of equal ones, and how these are run.

In a chain most layers are equal, and which of them a chunk holds does not matter: it holds a mixture, a number of
layers of each run. Of the ways to run the mixtures of a device in which memory fits at every moment of the fixed order,
only those count that no other one beats in all of its chunks.

Source: this project.
"""

import math
from collections.abc import Sequence
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np

from formulations.training_strategy.costs import BOUND_NOISE, Chain, Table
from formulations.training_strategy.fixed_orders import moments
from formulations.training_strategy.layouts import Layouts

#: Beyond so many ways of all devices, of those that are looked at, or options of a chunk, other searches are quicker.
_MOST_WAYS, _MOST_SEEN, _MOST_OPTIONS = 12_000, 4_000_000, 1_000
#: And beyond so many ways times chunks times runs: rows of a linear program, and what they hold.
_MOST_CELLS = 1_000_000

Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Runs:
    """Runs of equal layers of a chain: ``first`` is where each begins, ``sizes`` how many layers it has."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.sizes = np.array([len(list(own)) for _, own in groupby(map(chain.kind, range(len(chain.ids))))])
        self.first = np.cumsum([0, *self.sizes])[:-1]
        run = np.repeat(np.arange(len(self.sizes)), self.sizes)
        #: Layers of each run among the first x of the chain, for every x.
        self.before = np.concatenate([[0 * self.sizes], np.eye(len(self.sizes), dtype=int)[run].cumsum(axis=0)])

    def of(self, table: Table) -> Table:
        """What one layer of each run has of a table of intervals."""
        found: Table = table[self.first, self.first + 1]
        return found


class Ways(NamedTuple):
    """One way in each row: its device; layers of each chunk of it by run; recomputation, and option, of each chunk."""

    device: Numbers
    counts: Numbers
    again: Table
    option: Numbers


class _Mixture:
    """Layers of each run, and the options of a chunk that holds them."""

    def __init__(self, runs: Runs, x: int, y: int) -> None:
        self.counts = runs.before[y] - runs.before[x]
        self.kept = [*islice(runs.chain.options(x, y), _MOST_OPTIONS + 1)]
        self.again, self.static, self.activation = (
            np.array([math.fsum(getattr(way, name) for way in own) for own in self.kept])
            for name in ("again", "static", "activation")
        )
        self.made = np.array([max(way.made for way in own) for own in self.kept])
        self._amounts: dict[tuple[int, ...], Table] = {}

    def amounts(self, in_flight: tuple[int, ...]) -> Table:
        """Of each option its recomputation, and bytes with so many micro-batches in flight at each of some moments."""
        if in_flight not in self._amounts:
            held = self.static[:, None] + np.outer(self.activation, in_flight)
            self._amounts[in_flight] = np.column_stack([self.again, held])
        return self._amounts[in_flight]


def device_ways(layouts: Layouts, runs: Runs, most: float) -> Ways | None:
    """Ways of all devices in layouts that take less than ``most``; ``None``: too many. A device may have none."""
    chain, degrees, L = layouts.chain, layouts.degrees, len(layouts.chain.ids)
    most_ways = min(_MOST_WAYS, _MOST_CELLS // (degrees.num_chunks * len(runs.sizes)))
    known: dict[tuple[int, ...], _Mixture] = {}
    mixtures: list[list[_Mixture]] = []
    for g, lower in enumerate(layouts.lower):
        own: dict[tuple[int, ...], _Mixture] = {}
        for i, j in zip(*(places.tolist() for places in np.nonzero(lower < most)), strict=True):
            key = tuple((runs.before[g + j + 1] - runs.before[g + i]).tolist())
            if key not in own:
                own[key] = known[key] = known.get(key) or _Mixture(runs, g + i, g + j + 1)
            if len(own[key].kept) > _MOST_OPTIONS:
                return None
        mixtures.append([each for each in own.values() if each.kept])
    load = degrees.m * chain.time[runs.first] + runs.of(chain.behind(degrees))
    held, layers = [], []
    for stages in degrees.held:
        chunks = [mixtures[g] for g in stages]
        of_chunks = [np.array([[each.counts @ load] for each in chunk]).reshape(-1, 1) for chunk in chunks]
        open_ = _within(of_chunks, np.array([most]))
        if open_ is None:
            return None
        held.append(open_[0])
        sizes = [np.array([each.counts.sum() for each in chunk], int) for chunk in chunks]
        layers.append(np.sum([own[k] for own, k in zip(sizes, open_[0].T, strict=True)], axis=0))
    most_layers = [own.max(initial=0) for own in layers]
    # The other devices hold no more than that.
    are_left = [own >= L - sum(most_layers) + highest for own, highest in zip(layers, most_layers, strict=True)]
    if sum(own.sum() for own in are_left) > most_ways:
        return None
    V, R = degrees.V, len(runs.sizes)
    found, number = [Ways(np.zeros(0, int), np.zeros((0, V, R), int), np.zeros((0, V)), np.zeros((0, V), int))], 0
    for device, stages in enumerate(degrees.held):
        chunks, rows = [mixtures[g] for g in stages], moments(degrees)[device]
        for index in held[device][are_left[device]].tolist():
            chosen = [chunk[k] for chunk, k in zip(chunks, index, strict=True)]
            room = most - math.fsum(each.counts @ load for each in chosen)
            least = _least(chain, chosen, rows, room / degrees.m)
            if least is None:
                return None
            option, again = least
            each_counts = np.array([each.counts for each in chosen])
            counts = np.broadcast_to(each_counts, (len(option), *each_counts.shape))
            found.append(Ways(np.full(len(option), device), counts, again, option))
            number += len(option)
            if number > most_ways:
                return None
    return Ways(*(np.concatenate(each) for each in zip(*found, strict=True)))


def _within(amounts: Sequence[Table], rooms: Table) -> tuple[Numbers, Table] | None:
    """One row of each table, in all ways in which no column's sum is above its room; ``None``: too many are looked at.

    The rows of each way, and the sums. What the tables left have at least counts from the first one on.
    """
    least = [own.min(axis=0, initial=math.inf) for own in amounts]
    rest = np.cumsum([np.zeros(len(rooms)), *least[::-1]], axis=0)[::-1]
    index, sums = np.zeros((1, 0), int), np.zeros((1, len(rooms)))
    for own, left in zip(amounts, rest[1:], strict=True):
        if len(index) * len(own) > _MOST_SEEN:
            return None
        total = (sums[:, None] + own).reshape(-1, len(rooms))
        fits = np.flatnonzero((total + left <= rooms).all(axis=1))
        index, sums = np.column_stack([index[fits // max(len(own), 1)], fits % max(len(own), 1)]), total[fits]
    return index, sums


def _least(
    chain: Chain, chunks: Sequence[_Mixture], rows: Sequence[tuple[int, ...]], room: float
) -> tuple[Numbers, Table] | None:
    """Options of a device's chunks that fit, recompute for less than ``room``, and that no other ones beat."""
    limit = chain.limit * (1 + BOUND_NOISE)
    amounts = [each.amounts(own) for each, own in zip(chunks, zip(*rows, strict=True), strict=True)]
    found = _within(amounts, np.array([room, *[limit] * len(rows)]))
    if found is None:
        return None
    index, sums = found
    again = np.column_stack([each.again[k] for each, k in zip(chunks, index.T, strict=True)])
    total, held = sums[:, 0], sums[:, 1:].max(axis=1)
    held += np.max([each.made[k] for each, k in zip(chunks, index.T, strict=True)], axis=0)
    fits = np.flatnonzero((held <= limit) & (total < room))
    kept: list[int] = []
    taken = np.empty((len(fits), len(chunks)))
    for k in fits[np.argsort(total[fits], kind="stable")].tolist():
        if (taken[: len(kept)] <= again[k]).all(axis=1).any():
            continue
        # Sums of bytes that are nearly the limit are added up as the definition does.
        is_near = held[k] > chain.limit * (1 - BOUND_NOISE)
        if is_near and not chain.fits([each.kept[i] for each, i in zip(chunks, index[k], strict=True)], rows):
            continue
        taken[len(kept)] = again[k]
        kept.append(k)
    return index[kept], again[kept]
