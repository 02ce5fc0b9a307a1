"""Layouts of a chain at given degrees: lower bounds of all of them, and the best by simulation.

Chunk g holds layers x to y - 1. Bounds of a whole iteration that need this chunk alone are a table for each chunk, and
the largest of them along a layout is least by a dynamic program. Every simulated layout leaves its longest path: the
number of passes of each stage on it, times their seconds, is no more than the iteration of any other layout with the
same orders. What the rest of a layout adds to such a path is a dynamic program as well.

Source: this project; the bounds are proved in README.md.
"""

import heapq
import math
from collections.abc import Sequence
from itertools import count, pairwise

import numpy as np

from formulations.training_strategy.costs import Chain, Choice, Table, plan_of
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.degrees import Degrees
from formulations.training_strategy.fixed_orders import Path, in_flight, moments, orders_of
from instances.problems.training_strategy import Schedule
from solvers.outcome import Watch

#: Sums of a bound and of a simulation are added up in different orders: what differs by less is equal.
NOISE = 1e-12
#: Steps of a search before its turn is over, and simulations of a layout, of which the next turn has twice as many.
_TURN, _MOST_SIMULATED = 200, 100
#: Kinds of passes, in the order of `Path`.
_PASSES = "FBW"
#: More paths would cost more than they cut off; so many at most are kept.
_MOST_PATHS = 150
#: So many beginnings of layouts are kept; beyond, the worse half of them is given up, and with it the proof.
_MOST_OPEN = 300_000


def quick_bound(chain: Chain, degrees: Degrees) -> float:
    """A lower bound on the time of all layouts, in no time: that of layers which could be cut anywhere.

    A device's work, of whole layers on the busiest one, and one micro-batch's way through all of them. Where one chunk
    is on each device and the backward pass is whole, stage i takes at least the stages before it once and its own
    passes m times (bound 1); the least maximum of that gives each stage 1 - 1/m of the one before.
    """
    _, V, p, _, _, m, *_ = degrees
    T = chain.total
    is_split = degrees.is_split
    whole = T
    if is_split:
        whole = T * 2 / 3 if chain.weight_times is None else T - float(chain.weight_times.sum())
    found = max(m * T / p, m * chain.busiest(p), whole)
    if V == 1 and not is_split and m > 1:
        found = max(found, T / -math.expm1(p * math.log1p(-1 / m)))
    behind = chain.behind(degrees)
    return found + max(float(behind[0, -1]) / p, float(np.diagonal(behind, 1).max()))


class Layouts:
    """All cuts of a chain of L layers into the S chunks of a schedule at given degrees.

    Tables are windows: ``table[g, i, j]`` is of chunk g if it holds layers g + i to g + j, as each chunk before and
    behind it has at least one layer; i and j are at most L - S. ``lower`` are the bounds of a chunk, ``again`` is its
    least recomputation, ``allowed`` is 0 or infinite. ``rest[g, i]`` is the least maximum of ``lower`` over layouts of
    the layers from g + i on in chunks g and later, ``rest_gradients`` the same for gradients.
    """

    def __init__(self, chain: Chain, degrees: Degrees) -> None:
        self.chain, self.degrees = chain, degrees
        S, L = degrees.num_chunks, len(chain.ids)
        self.width = L - S + 1
        self.is_split = degrees.is_split
        share, steps = degrees.share, chain.steps(degrees)
        weight = [chain.weight(degrees, step) for step in steps]
        self.forward, self.weight = self._windows(*[step / 3 for step in steps]), self._windows(*weight)
        # B without recomputation; ``least_backward`` has the least recomputation besides.
        backward = self._windows(*[np.maximum(2 * (step / 3) - W, 0.0) for step, W in zip(steps, weight, strict=True)])
        behind = chain.behind(degrees)
        self.gradients, self.summed = self._windows(behind), self._windows(chain.summed * share)
        #: Of the first chunk's sum beside passes, by its end.
        self.exposed = chain.exposed(degrees)[1 : self.width + 1]
        # Gradients of a device's chunks are summed one after the other; the mean device has these.
        self.mean_gradients = float(behind[0, -1]) / degrees.p
        kept = [chain.least_again(self._in_flight(g)) for g in range(S)]
        self.bound = math.inf
        if not _reaches_the_end(kept):
            return
        n = self.width
        self.again, self.allowed, self.lower = (np.zeros((S, n, n)) for _ in range(3))
        for g, table in enumerate(kept):
            window = table[g : g + n, g + 1 : g + n + 1]
            fits = np.isfinite(window) & np.tri(n, dtype=bool).T
            if g == 0:  # the first chunk begins with the first layer
                fits[1:] = False
            if g == S - 1:  # the last one ends with the last
                fits[:, :-1] = False
            self.again[g] = np.where(fits, window, 0.0)
            self.allowed[g] = np.where(fits, 0.0, math.inf)
        self.least_backward = backward + self.again
        self.rest, self.rest_gradients = (np.full((S + 1, n), math.inf) for _ in range(2))
        self._fill()
        self.bound = float(self.rest[0, 0]) + max(float(self.rest_gradients[0, 0]), self.mean_gradients)

    def _windows(self, table: Table, *others: Table) -> Table:
        """Of one table for all chunks, or of one for each."""
        n = self.width
        if others:
            return np.stack([each[g : g + n, g + 1 : g + n + 1] for g, each in enumerate((table, *others))])
        rows, columns = table.strides
        shape = (self.degrees.num_chunks, self.width, self.width)
        return np.lib.stride_tricks.as_strided(table[:, 1:], shape, (rows + columns, rows, columns), writeable=False)

    def _in_flight(self, g: int) -> int:
        return max(row[g // self.degrees.p] for row in moments(self.degrees)[self.degrees.devices[g]])

    def _fill(self) -> None:
        """``lower``, ``rest`` and ``rest_gradients``, chunk by chunk: small tables stay in the cache.

        Whatever its neighbours hold, a first micro-batch comes through the chunks before a chunk (``head``), its last
        one goes back through them (``tail``), and one goes to the end of the chain and back (``trip``).
        """
        S, n, _ = self.again.shape
        head, tail = (np.full((S + 1, n), math.inf) for _ in range(2))
        head[0, 0] = tail[0, 0] = 0.0
        for g in range(S):
            F = self.forward[g] + self.allowed[g]
            head[g + 1] = (head[g][:, None] + F).min(axis=0)
            # The last B of the first chunk is followed by its W, if there is one.
            B = self.least_backward[g] + self.allowed[g] + (0.0 if g else self.weight[g])
            tail[g + 1] = (tail[g][:, None] + B).min(axis=0)
        trip = np.full(n, math.inf)
        trip[-1] = self.rest[-1, -1] = self.rest_gradients[-1, -1] = 0.0
        for g in reversed(range(S)):
            F, allowed = self.forward[g], self.allowed[g]
            B = self.least_backward[g]
            self.lower[g] = self._of_chunk(g, F, B, tail[g][:, None], trip) + head[g][:, None] + allowed
            if self.chain.overlaps:
                self._add_sum(g, F, B, head[g][:, None] + allowed)
            self.rest[g] = np.maximum(self.lower[g], self.rest[g + 1]).min(axis=1)
            self.rest_gradients[g] = np.maximum(self.gradients[g] + allowed, self.rest_gradients[g + 1]).min(axis=1)
            trip = (F + B + allowed + trip).min(axis=1)

    def _add_sum(self, g: int, F: Table, B: Table, before: Table) -> None:
        """Behind the bound of a chunk is the first chunk's exposed sum, and behind the chunk's own passes its own.

        Where backward passes are split, others may end after those of the first chunk.
        """
        passes = self.degrees.m * (F + B + self.weight[g])
        if not self.is_split:
            self.lower[g] += (self.exposed + self.allowed[0, 0]).min()
        own = passes + before + (self.summed[g] if g else self.exposed)
        np.maximum(self.lower[g], own, out=self.lower[g])

    def _of_chunk(self, g: int, F: Table, B: Table, tail: Table, trip: Table) -> Table:
        """A lower bound on the time from a chunk's first pass on, whatever the other chunks hold."""
        m, t = self.degrees.m, F + B
        if self.degrees.schedule is Schedule.GPIPE:
            # All F of the chunk, the last one's way to the end, the first B's way back, all B of the chunk.
            return m * t + trip + tail
        if self.is_split:
            # All passes of the chunk; or those before its last B, as its W come g (ZB-H1) or 2g (ZB-H2) backward passes
            # later, and the tail. In a V none is counted before.
            W, before = self.weight[g], 0
            if self.degrees.V == 1:
                before = max(0, m - 1 - g * (1 + (self.degrees.schedule is Schedule.ZB_H2)))
            found: Table = np.maximum(m * (t + W), m * t + before * W + tail)
            return np.maximum(found, t + trip + tail)
        if self.degrees.V > 1:
            return np.maximum(m * t, t + trip) + tail
        # 1F1B: the device runs w forward passes before its first pair of passes.
        w = min(self.degrees.p - 1 - g, m - 1)
        if m > w + 1:
            # Before the first B: w + 1 F, and the first micro-batch's trip; then pairs to the last F; then its trip,
            # and w + 1 B.
            return F + np.maximum(w * F, trip) + (m - w - 1) * t + np.maximum(trip, w * B) + B + tail
        # Without pairs the trip of the first micro-batch, or of the last, is between F and B.
        return np.maximum(F + np.maximum(w * F, trip) + m * B, m * F + np.maximum(trip, w * B) + B) + tail

    def costs(self, path: Table) -> Table:
        """What a path (`Path`) takes in each chunk, with its least recomputation."""
        F, B, W, summed, exposed = path[:, :, None, None]
        found: Table = F * self.forward + B * self.least_backward + W * self.weight + self.allowed
        if self.chain.overlaps:
            found += summed * self.summed
            found[0] += exposed[0] * self.exposed
        return found


def _reaches_the_end(kept: Sequence[Table]) -> bool:
    """Whether memory may have room: chunks end as far behind as any that begin no later (trainers may lack a way)."""
    at, end = 0, len(kept[0]) - 1
    for table in kept:
        at = at if at == end else int(np.flatnonzero(np.isfinite(table[: at + 1]).any(axis=0)).max(initial=at))
    return at == end


def suffix_sums(tables: Table) -> Table:
    """``found[g, i]``: the least sum over cuts of the layers from g + i on into chunks g and later."""
    S, n, _ = tables.shape
    found = np.full((S + 1, n), math.inf)
    found[-1, -1] = 0.0
    for g in reversed(range(S)):
        found[g] = (tables[g] + found[g + 1]).min(axis=1)
    return found


def least_sum(tables: Table) -> tuple[float, tuple[int, ...]]:
    """The least sum over all layouts, and the ends of the chunks of one that has it; infinite if there is none."""
    rest = suffix_sums(tables)
    ends, i = [], 0
    for g, table in enumerate(tables):
        i = int((table[i] + rest[g + 1]).argmin())
        ends.append(g + 1 + i)
    return float(rest[0, 0]), tuple(ends)


def places(ends: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Where the chunks that end there are in tables."""
    cuts = list(pairwise((0, *ends)))
    return (
        list(range(len(cuts))),
        [x - g for g, (x, _) in enumerate(cuts)],
        [y - g - 1 for g, (_, y) in enumerate(cuts)],
    )


def _path(counts: Table) -> Path:
    return Path(*(tuple(row) for row in counts.tolist()))


class Best:
    """The best plan so far, of all degrees, and its time; `time` is infinite before the first."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.time = math.inf
        self.plan: StrategyPlan | None = None
        self.simulated = 0

    def improve(self, time: float, plan: StrategyPlan) -> None:
        """Take a better plan."""
        self.time, self.plan = time, plan
        self.watch.plan(plan, time)


class Search:
    """Layouts at given degrees in the order of their bound, until none can be faster than the best plan.

    ``bound`` holds for all that are left. A beginning of a layout is the ends of its first chunks.
    """

    def __init__(self, layouts: Layouts, best: Best) -> None:
        self.layouts, self.best = layouts, best
        degrees = layouts.degrees
        self.orders = orders_of(degrees.schedule, degrees.p, degrees.m, degrees.V, layouts.chain.overlaps)
        # Of each path its passes F, B, W and sums by chunk, and what the rest of a layout adds at least.
        self._paths = np.zeros((0, len(Path._fields), degrees.num_chunks))
        self._rest = np.zeros((0, degrees.num_chunks + 1, layouts.width))
        self._known: set[Path] = set()
        self._serial = count()
        self.bound = layouts.bound
        self._open: list[tuple[float, int, int, tuple[int, ...], float, float]] = []
        #: The least bound of beginnings that were given up, as there were too many.
        self.given_up = math.inf
        self.turns = 0
        #: Simulations of a layout in a turn, and what is left of them; below 0 its ways were too many.
        self._most = self._left = _MOST_SIMULATED
        if degrees.V > 1:
            paths = self.device_paths
            for path in paths:
                self._add(path)
            # Together they see the work of all devices, which no layout can take from one without giving it to another.
            gradients = max(float(layouts.rest_gradients[0, 0]), layouts.mean_gradients)
            for first in range(0, len(paths), degrees.p):
                self._append(np.array(paths[first : first + degrees.p], dtype=float).mean(axis=0))
                self.bound = max(self.bound, float(self._rest[-1, 0, 0]) + gradients)
        if math.isfinite(self.bound):
            self._open.append((self.bound, 0, 0, (), 0.0, layouts.mean_gradients))

    @property
    def device_paths(self) -> list[Path]:
        """One through the work of each device: to its first chunk, all passes up to the last B of that, and back.

        The way back ends with the passes behind the last B of the first chunk, and what is exposed of that one's sum.
        Where backward passes are split, passes follow a device's last B, too: all of its passes, without the way back,
        are another path.
        """
        orders, degrees = self.orders, self.layouts.degrees
        kind, stage = np.array(orders.kind), np.array(orders.stage)
        back, whole = [], []
        for device, own in enumerate(degrees.held):
            passes = np.flatnonzero(np.isin(stage, own) & (kind < len(_PASSES)))
            last = np.flatnonzero((kind[passes] == _PASSES.index("B")) & (stage[passes] == device))[-1] + 1
            head, before, behind = (np.zeros((len(Path._fields), degrees.num_chunks), dtype=int) for _ in range(3))
            head[_PASSES.index("F"), :device] = 1
            np.add.at(before, (kind[passes[:last]], stage[passes[:last]]), 1)
            np.add.at(behind, (kind[passes[last:]], stage[passes[last:]]), 1)
            if device == 0:
                home = behind
                home[Path._fields.index("exposed"), 0] = 1
            whole.append(_path(head + before + behind))
            head[_PASSES.index("B"), :device] = 1
            back.append(_path(head + before + home))
        return back + whole * degrees.is_split

    def _add(self, path: Path) -> None:
        if path in self._known or len(self._known) >= _MOST_PATHS:
            return
        self._known.add(path)
        self._append(np.array(path, dtype=float))

    def _append(self, own: Table) -> None:
        self._paths = np.concatenate([self._paths, own[None]])
        self._rest = np.concatenate([self._rest, suffix_sums(self._open_costs(own))[None]])

    def _open_costs(self, path: Table) -> Table:
        """What a path takes in each chunk; infinite for chunks that are in no better plan."""
        limit = self.best.time * (1 - NOISE)
        return np.where(self.layouts.lower < limit, self.layouts.costs(path), math.inf)

    @property
    def is_done(self) -> bool:
        """Whether no layout is left that can be faster than the best plan, but for those that were given up."""
        return not self._open or self.bound >= self.best.time * (1 - NOISE)

    def turn(self) -> None:
        """So many steps as one search takes before others have theirs."""
        self.turns, self._left = self.turns + 1, self._most
        for _ in range(_TURN):
            if self.is_done or self.best.watch.stopped():
                break
            self._step()
            if self._left < 0:
                self._most *= 2
                break

    def begin(self) -> None:
        """Simulate a layout whose largest bound of a chunk is least."""
        ends, i = [], 0
        for g in range(self.layouts.degrees.num_chunks):
            i = int(np.maximum(self.layouts.lower[g, i], self.layouts.rest[g + 1]).argmin())
            ends.append(g + 1 + i)
        self._simulate(tuple(ends))

    def _step(self) -> None:
        """Look at the beginning of a layout with the least bound."""
        low, _, _, ends, lower, gradients = heapq.heappop(self._open)
        if low < self.best.time * (1 - NOISE):
            if len(ends) == self.layouts.degrees.num_chunks:
                if self._taken(ends).max(initial=0.0) + gradients < self.best.time * (1 - NOISE):
                    self._simulate(ends)
                    if self._left < 0 or self.best.watch.stopped():  # perhaps not all of its ways: again
                        heapq.heappush(self._open, (low, -len(ends), next(self._serial), ends, lower, gradients))
            else:
                self._branch(ends, low, lower, gradients)
        if len(self._open) > _MOST_OPEN:
            self._open.sort()
            self.given_up = min(self.given_up, self._open[_MOST_OPEN // 2][0])
            del self._open[_MOST_OPEN // 2 :]
        self.bound = max(self.bound, min(self._open[0][0] if self._open else math.inf, self.given_up))

    def _taken(self, ends: tuple[int, ...]) -> Table:
        """What the beginning of a layout takes of each path."""
        at, layouts = places(ends), self.layouts
        F, B, W, summed, exposed = self._paths[:, :, : len(ends)].transpose(1, 0, 2)
        found: Table = F @ layouts.forward[at] + B @ layouts.least_backward[at] + W @ layouts.weight[at]
        if layouts.chain.overlaps and ends:
            found += summed @ layouts.summed[at] + exposed[:, 0] * layouts.exposed[ends[0] - 1]
        return found

    def _branch(self, ends: tuple[int, ...], low: float, lower: float, gradients: float) -> None:
        layouts, g = self.layouts, len(ends)
        i = ends[-1] - g if ends else 0
        bounds = np.maximum(lower, np.maximum(layouts.lower[g, i], layouts.rest[g + 1]))
        after = np.maximum(gradients, np.maximum(layouts.gradients[g, i], layouts.rest_gradients[g + 1]))
        total = bounds + after
        if len(self._paths):
            F, B, W, summed, exposed = self._paths[:, :, g, None].transpose(1, 0, 2)
            own = F * layouts.forward[g, i] + B * layouts.least_backward[g, i] + W * layouts.weight[g, i]
            if layouts.chain.overlaps:
                own += summed * layouts.summed[g, i] + (exposed * layouts.exposed if g == 0 else 0.0)
            total = np.maximum(total, (self._taken(ends)[:, None] + own + self._rest[:, g + 1]).max(axis=0) + after)
        for j in np.flatnonzero(total < self.best.time * (1 - NOISE)):
            found = max(low, float(total[j]))
            beginning = (*ends, g + 1 + int(j))
            entry = (found, -g - 1, next(self._serial), beginning, float(bounds[j]), float(after[j]))
            heapq.heappush(self._open, entry)

    def _simulate(self, ends: tuple[int, ...]) -> None:
        """Simulate a layout with every way to run its layers that may be best."""
        layouts = self.layouts
        chain, degrees = layouts.chain, layouts.degrees
        chunks = list(pairwise((0, *ends)))
        if degrees.V == 1:
            fastest = [chain.fastest(x, y, in_flight(degrees, g)) for g, (x, y) in enumerate(chunks)]
            ways = [[] if choice is None else [choice] for choice in fastest]
        else:
            rows = moments(degrees)
            ways = [chain.choices([chunks[g] for g in own], row) for own, row in zip(degrees.held, rows, strict=True)]
        self._left = self._most
        if all(ways):
            self._choose(ends, ways)

    def _choose(self, ends: tuple[int, ...], ways: list[list[Choice]]) -> None:
        """Branch over the devices with several ways; the least of each chunk bounds them, as no pass is shorter."""
        self._left -= 1
        if self._left < 0 or self.best.watch.stopped():
            return
        layouts, degrees = self.layouts, self.layouts.degrees
        least = [tuple(map(min, zip(*(way.again for way in own), strict=True))) for own in ways]
        time, path = layouts.chain.batch(
            degrees, ends, [least[i][g // degrees.p] for g, i in enumerate(degrees.devices)]
        )
        self.best.simulated += 1
        self._add(path)
        if time >= self.best.time * (1 - NOISE):
            return
        several = [device for device, own in enumerate(ways) if len(own) > 1]
        if not several:
            plan = plan_of(layouts.chain, layouts.degrees, ends, [own[0] for own in ways])
            self.best.improve(time, plan)
            return
        for way in ways[several[0]]:
            self._choose(ends, [*ways[: several[0]], [way], *ways[several[0] + 1 :]])
