"""Least bottleneck of models whose branches are chains, by dynamic programming over upsets: a bound, mostly a proof.

Stages in a reverse topological order are a chain of upsets, each difference one stage. Where equal branches stand side
by side an upset is how many operators of each are taken, sorted; and where two upsets hold equally many of some branch,
that branch may as well be left unchanged, so a stage's cost depends on both upsets alone. What the program relaxes is
how many micro-batches are in flight: a stage with the last operator keeps one, others at least two. With the whole
mini-batch as the micro-batch, or half of it, that is all there is to keep, and the program is exact.

With a divisor of a micro-batch size no stage is faster; it may only need less memory.

Source: made for this project, after Piper's downsets; the symmetry is this project's.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from formulations.stage_graph.costs.costs import Costs, assemble, bits
from formulations.stage_graph.costs.series_parallel import Leaf, Parallel, decompose
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.kernels.branches import Budget, Times, Upsets, fewest_devices
from solvers.outcome import Watch

#: More upsets, or pairs of nested ones, are not searched: a second for each target.
MAX_UPSETS, MAX_PAIRS = 40_000, 200_000_000
#: Cells of an array over upsets and degrees.
_MAX_CELLS = 10_000_000
#: Seconds are added up in another order than in the definition.
_ROUNDING = 1e-11

Array = Any


class UnsuitableError(Exception):
    """The model is not made of chains side by side and a chain behind them, or has too many upsets."""


def largest(sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes that divide no other one: with these every stage takes the least time per sample."""
    return tuple(size for size in sizes if not any(other > size and other % size == 0 for other in sizes))


@dataclass(frozen=True)
class Structure:
    """Chains of operators: ``tail`` behind ``branches``, the latter in classes of equal ones."""

    tail: tuple[int, ...]
    classes: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def branches(self) -> list[tuple[int, ...]]:
        """All branches, class by class."""
        return [branch for group in self.classes for branch in group]

    def num_upsets(self) -> int:
        """Upsets that differ by more than an exchange of equal branches."""
        return len(self.tail) + math.prod(math.comb(len(each) + len(each[0]), len(each)) for each in self.classes)

    def num_pairs(self) -> int:
        """Pairs of nested upsets of the branches (plane partitions with entries up to 2)."""
        sizes = [(len(each), len(each[0])) for each in self.classes]
        return math.prod(math.comb(n + k, n) * math.comb(n + k + 1, n) // (n + 1) for n, k in sizes)

    def numbering(self) -> tuple[Array, Array]:
        """``first`` and ``ranks`` of the branches (`kernels.branches.Upsets`); too many have rank 0."""
        branches, few = self.branches, self.num_upsets() <= MAX_UPSETS
        ranks = np.zeros((len(branches), max(map(len, branches)) + 1), np.int64)
        first = np.zeros(len(branches), np.bool_)
        stride, column = 1, 0
        for group in self.classes:
            first[column] = True
            for place in range(1, len(group) + 1):
                for taken in range(len(group[0]) + 1) if few else ():
                    ranks[column, taken] = stride * math.comb(taken + place - 1, place)
                column += 1
            stride *= math.comb(len(group) + len(group[0]), len(group))
        return first, ranks

    def check(self, max_pairs: int = MAX_PAIRS) -> None:
        """`UnsuitableError` if there are too many of either."""
        if self.num_upsets() > MAX_UPSETS or self.num_pairs() > max_pairs:
            raise UnsuitableError(f"{self.num_upsets()} upsets and {self.num_pairs()} pairs of them")


def structure_of(costs: Costs) -> Structure:
    """The model's chains; `UnsuitableError` if it has another structure."""
    order = decompose(costs)
    first = order.segment[0]
    if order.cuts or not all(isinstance(each, Leaf) for each in order.segment[1:]):
        raise UnsuitableError("the model is not a set of branches and a chain behind them")
    tail = tuple(each.node for each in order.segment[1:] if isinstance(each, Leaf))
    if isinstance(first, Leaf):
        branches, tail = [(first.node, *tail)], ()
    else:
        branches = [_chain(branch) for branch in first.branches]
    groups: dict[Any, list[tuple[int, ...]]] = {}
    for branch in branches:
        groups.setdefault(_signature(costs, branch, tail), []).append(branch)
    return Structure(tail, tuple(tuple(group) for group in groups.values()))


def _chain(branch: Sequence[Leaf | Parallel]) -> tuple[int, ...]:
    if not all(isinstance(each, Leaf) for each in branch):
        raise UnsuitableError("a branch is not a chain of operators")
    return tuple(each.node for each in branch if isinstance(each, Leaf))


def _signature(costs: Costs, branch: tuple[int, ...], tail: tuple[int, ...]) -> Any:
    """Equal for branches that may be exchanged; tensors go along the chain and to the first operator behind it only."""
    found = []
    for node, after in itertools.zip_longest(branch, branch[1:]):
        operator = costs.instance.operators[node]
        sent = [(other, size) for way, other, size in costs.edges_of(node) if way == "out"]
        if any(other != (after if after is not None else tail[0] if tail else -1) for other, _ in sent):
            raise UnsuitableError("a tensor skips operators of a branch")
        size = sent[0][1] if sent else None
        times = (operator.forward, operator.backward)
        found.append((times, operator.weight_bytes, operator.activation_bytes, size))
    return tuple(found)


class EqualBranches:
    """The program of an instance; arrays are laid out once.

    `UnsuitableError` if the model has another structure, or too many upsets.
    """

    def __init__(self, costs: Costs, watch: Watch, threads: int = 1, max_pairs: int = MAX_PAIRS) -> None:
        self.costs, self.watch, self._threads = costs, watch, threads
        self._runs: dict[tuple[int, ...], tuple[float, Array | None, Array]] = {}
        self.structure = structure = structure_of(costs)
        self.degrees = range(1, costs.instance.num_devices + 1)
        structure.check(max_pairs)
        if (
            structure.num_upsets() * len(self.degrees) > _MAX_CELLS
            or len(structure.tail) ** 2 * len(self.degrees) > _MAX_CELLS
        ):
            raise UnsuitableError(f"{structure.num_upsets()} upsets times {len(self.degrees)} degrees")
        self.rounds = 0
        self._lay_out()
        self._passed: dict[tuple[int, ...], Array] = {}
        self._timed: dict[tuple[int, ...], Times] = {}
        self._flag = np.frombuffer(watch.flag, np.uint8)

    def _lay_out(self) -> None:
        """Upsets in the order of their ranks, and sums over them that do not depend on times."""
        structure, costs = self.structure, self.costs
        branches = structure.branches
        longest = max(map(len, branches))
        first, ranks = structure.numbering()
        each = [itertools.combinations_with_replacement(range(len(g[0]) + 1), len(g)) for g in structure.classes]
        listed = np.array([sum(one, ()) for one in itertools.product(*each)], dtype=np.int64)
        rank = ranks[np.arange(len(branches)), listed].sum(axis=1)
        self.states = np.empty_like(listed)
        self.states[rank] = listed
        sizes, counts = np.zeros((2, len(branches), longest + 1))
        for column, branch in enumerate(branches):
            for taken, node in enumerate(branch[::-1]):
                sent = [size for way, _, size in costs.edges_of(node) if way == "out"]
                sizes[column, taken], counts[column, taken] = sum(sent), len(sent)
        self._bytes = np.array([(each.weight_bytes, each.activation_bytes) for each in costs.instance.operators]).T
        # What is left of the chain behind the branches, before anything of it is taken, after its last operator is, ...
        self._tails = [
            sum(1 << v for v in structure.tail[: len(structure.tail) - q]) for q in range(len(structure.tail))
        ]
        self.upsets = Upsets(
            states=self.states,
            first=first,
            lengths=np.array([len(branch) for branch in branches]),
            ranks=ranks,
            weights=self._over_states(self._bytes[0]),
            kept=self._over_states(self._bytes[1]),
            sizes=sizes,
            counts=counts,
            tail_sums=self._sums_of_tails(sizes[:, 0].sum(), counts[:, 0].sum()),
        )

    def _sums_of_tails(self, joined_bytes: float, joined_edges: float) -> Array:
        """`Upsets.tail_sums`; so many bytes and edges join the branches to the chain, and are counted there."""
        found = [self.costs.sums(left) for left in self._tails]
        rows = [
            (each.weight_bytes, each.kept_bytes - joined_bytes, each.cut_bytes - joined_bytes,
             each.cut_edges - joined_edges)
            for each in found
        ]  # fmt: skip
        return np.array(rows, np.float64).reshape(-1, 4)

    def _over_states(self, value: Array) -> Array:
        """Sums of a value of each operator, shape (operators, ...), over the upsets of the branches."""
        found = np.zeros((len(self.states), *value.shape[1:]))
        for column, branch in enumerate(self.structure.branches):
            sums = np.zeros((len(branch) + 1, *value.shape[1:]))
            np.cumsum(value[list(branch[::-1])], axis=0, out=sums[1:])
            found += sums[self.states[:, column]]
        return found

    def _passes(self, sizes: Sequence[int]) -> Array:
        """Seconds per sample of each operator on r devices, the least of these sizes; ``inf`` without samples for r."""
        if (known := self._passed.get(tuple(sizes))) is not None:
            return known
        found = np.full((self.costs.instance.num_operators, len(self.degrees)), np.inf)
        for microbatch, degree in itertools.product(sizes, self.degrees):
            if degree <= microbatch:
                own = [self.costs.compute_s(1 << v, -(-microbatch // degree)) / microbatch for v in range(len(found))]
                found[:, degree - 1] = np.minimum(found[:, degree - 1], own)
        return self._passed.setdefault(tuple(sizes), found)

    def _times(self, sizes: tuple[int, ...]) -> Times:
        """The least of what micro-batch sizes take, operator by operator: stages are differences of these sums."""
        if sizes in self._timed:
            return self._timed[sizes]
        costs, tails, each = self.costs, self._tails, self._passes(sizes)
        busy = self._over_states(np.where(np.isinf(each), 0.0, each))
        busy[1:, max(sizes) :] = np.inf  # replicas without a sample
        tail_busy = np.array([each[list(bits(left))].sum(axis=0) for left in tails]).reshape(-1, len(self.degrees))
        within, reduce = np.full((2, len(tails), len(tails), len(self.degrees)), np.inf)
        for q, to in itertools.combinations(range(len(tails)), 2):
            nodes = tails[q] & ~tails[to]
            for degree in self.degrees[: max(sizes)]:
                steps = [costs.step(nodes, size, degree) / size for size in sizes if degree <= size]
                within[q, to, degree - 1] = min(steps)
                reduce[q, to, degree - 1] = costs.all_reduce(nodes, degree) / costs.instance.minibatch
        ahead = np.zeros(self.upsets.sizes.shape)
        for column, branch in enumerate(self.structure.branches):
            ahead[column, : len(branch)] = np.cumsum(each[list(branch), 0])[::-1]
        rates = functools.reduce(np.minimum, map(self._rates, sizes))
        nothing = np.zeros((*ahead.shape, len(self.degrees))), np.zeros((len(tails), len(self.degrees)))
        work, tail_work = busy[:, 0].copy(), tail_busy[:, 0].copy()
        found = Times(work, busy, tail_work, tail_busy, within, reduce, rates, ahead, *nothing)
        return self._timed.setdefault(sizes, found)

    def _paths(self, microbatch: int, reduce_high: float) -> tuple[Array, Array]:
        """`Times.paths` and `Times.tail_paths`, on degrees with which an operator alone is reduced soon enough."""
        costs, instance = self.costs, self.costs.instance
        passes = self._passes([microbatch]).copy()
        reduced = [[costs.all_reduce(1 << v, r) / instance.minibatch for r in self.degrees] for v in range(len(passes))]
        passes[np.array(reduced) > reduce_high * (1 + _ROUNDING)] = np.inf
        fastest = np.minimum.accumulate(passes, axis=1)
        paths = np.zeros((*self.upsets.sizes.shape, len(self.degrees)))
        for column, branch in enumerate(self.structure.branches):
            paths[column, : len(branch)] = np.cumsum(fastest[list(branch)], axis=0)[::-1]
        tail = self.structure.tail
        behind = [fastest[list(tail[: len(tail) - q])].sum(axis=0) for q in range(len(tail))]
        return paths, np.array(behind).reshape(-1, len(self.degrees)) + paths[:, 0].max(axis=0)

    def _rates(self, microbatch: int) -> Array:
        """Seconds per sample on each degree: of a byte and of an edge that cross, of a byte of weights, and fixed."""
        instance = self.costs.instance
        rows = []
        for degree in self.degrees:
            moved = 2 * -(-microbatch // degree) / instance.bandwidth_bytes_per_s / microbatch
            reduced = 2 * (degree - 1) / degree / instance.reduce_bandwidth(degree) / instance.minibatch
            waited = 2 * degree * instance.latency_s / instance.minibatch if degree > 1 else 0.0
            rows.append((moved, 2 * instance.latency_s / microbatch, reduced, waited))
        return np.array(rows)

    def least(self, target_s: float, sizes: Sequence[int]) -> int | None:
        """Fewest devices with which all stages keep the target; ``None`` if stopped.

        Never more than a plan of any of these micro-batch sizes needs: for several sizes each cost is the least of
        theirs, for one it is its own.
        """
        self._latest = tuple(sizes)
        if self._runs.get(self._latest, (None,))[0] != target_s:
            self._runs[self._latest] = target_s, *self.of_upsets(target_s, target_s, sizes)
        found = self._runs[self._latest][1]
        return None if found is None else int(found[-1])

    def at_once(self, target_s: float, questions: Sequence[tuple[int, ...]]) -> None:
        """Answers `least` for the first of these sizes, a question in each thread."""
        asked = questions[: self._threads]
        if len(asked) > 1 and self._runs.get(asked[0], (None,))[0] != target_s:
            with ThreadPoolExecutor(len(asked)) as pool:
                runs = pool.map(lambda sizes: (target_s, *self.of_upsets(target_s, target_s, sizes)), asked)
                self._runs.update(zip(asked, runs, strict=True))

    def of_upsets(
        self,
        target_s: float,
        elsewhere_s: float,
        sizes: Sequence[int],
        reduces: tuple[float, float] = (0.0, math.inf),
        heads: float = 0.0,
        flag: Any = None,
    ) -> tuple[Array | None, Array]:
        """The same for each upset, as `Upsets` numbers them, and the one before; other arguments are those of `Budget`.

        Threads may call it at once, each with the ``flag`` that stops it (``None``: that of the watch).
        """
        instance = self.costs.instance
        times = self._times(largest(sizes))
        flights = self._flights(sizes)
        times = times._replace(within=self._fit(times.within, flights))
        if heads:
            paths, tail_paths = self._paths(max(sizes), reduces[1])
            times = times._replace(paths=paths, tail_paths=tail_paths)
        reduced = float(min((times.rates[r - 1, 2] * r / (r - 1) for r in self.degrees[1:]), default=0.0))
        least = np.empty(len(times.tail_work) + len(times.work), np.int64)
        before, flag = np.full(len(least), -1, np.int64), self._flag if flag is None else np.frombuffer(flag, np.uint8)
        budget = Budget(
            target=float(target_s),
            elsewhere=float(elsewhere_s),
            reduce_low=float(reduces[0]),
            reduce_high=float(reduces[1]),
            heads=float(heads),
            memory=float(instance.memory_bytes),
            copies=float(instance.weight_copies),
            reduced=reduced,
            pace=self._pace(elsewhere_s, reduces[0], sizes, times, flights),
            flights=flights,
        )
        found = fewest_devices(self.upsets, times, budget, instance.num_devices, least, before, flag)
        self.rounds += 1
        return None if found < 0 else least, before

    def _pace(self, target_s: float, reduce_low: float, sizes: Sequence[int], times: Times, flights: Array) -> float:
        """`Budget.pace` within the target: the most over the degrees r of what r devices do, divided by r.

        What such a stage passes and reduces, and the bytes that it holds, are sums over its operators with limits; one
        edge at least leaves it. So its work is at most each limit divided by the least ratio of an operator's term to
        its work. Branches with nothing behind them may send nothing, and keep one micro-batch.
        """
        most, instance = min(max(sizes), len(self.degrees)), self.costs.instance
        each, flight = self._passes(largest(sizes))[:, :most], flights[:, :most]
        weights, kept = self._bytes[:, :, np.newaxis]
        per_byte, per_edge, reducing, fixed = times.rates[:most].T
        left, work, busy = np.full(most, float(target_s)), np.full(most, np.inf), each[:, 0] > 0
        if is_joined := bool(self._tails) or len(self.structure.branches) == 1:
            left -= min((edge.bytes_per_sample for edge in instance.edges), default=0.0) * per_byte + per_edge
        held = instance.weight_copies * weights + flight[int(is_joined)] * kept
        for term, limit in (
            (each, left - reduce_low),
            (each + reducing * weights, left - fixed),
            (held, instance.memory_bytes),
        ):
            ratio = (term[busy] / each[busy, :1]).min(axis=0, initial=np.inf)
            most_s = np.maximum(limit, 0.0) / np.maximum(ratio, 1e-99)
            work = np.where(ratio > 0.0, np.minimum(work, most_s), work)  # what holds nothing fits into nothing
        return float((work / self.degrees[:most]).max()) * (1 + _ROUNDING)

    def _fit(self, within: Array, flights: Array) -> Array:
        """Times of parts of the chain behind the branches, on the degrees where they fit into memory."""
        found, instance = within.copy(), self.costs.instance
        for q, to in itertools.combinations(range(len(self._tails)), 2):
            sums = self.costs.sums(self._tails[q] & ~self._tails[to])
            for degree in self.degrees:
                held = flights[min(q, 1), degree - 1]
                fixed = instance.weight_copies * sums.weight_bytes
                if np.isinf(held) or fixed + held * sums.kept_bytes > instance.memory_bytes:
                    found[q, to, degree - 1] = np.inf
        return found

    def _flights(self, sizes: Sequence[int]) -> Array:
        """Samples on the fullest of r replicas, shape (2, degrees): with one micro-batch in flight, with two or more.

        The least of what these sizes keep; as `held_samples` says, ``inf`` where no size has a sample for each replica.
        """
        size, degree = np.array(sizes)[:, np.newaxis], np.array(self.degrees)
        own = np.where(size >= degree, -(-size // degree), np.inf)
        both = np.minimum(2, self.costs.instance.minibatch // size) * own
        return np.stack([own.min(axis=0), both.min(axis=0)])

    def plan(self, microbatch: int) -> StagePlan:
        """The stages behind the last run of ``least`` that found enough devices, as a plan."""
        return assemble(self.costs.instance, list(self._parts())[::-1], microbatch)

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Stages and devices, last ones first."""
        _, least, before = self._runs[self._latest]
        assert least is not None
        path = [len(least) - 1]
        while path[-1]:
            path.append(int(before[path[-1]]))
        taken = [0] * len(self.structure.branches)
        tails = [*self._tails, 0]
        for q, to in itertools.pairwise(path[::-1]):
            nodes = tails[min(q, len(self._tails))] & ~tails[min(to, len(self._tails))]
            if to >= len(self._tails):
                own = self.states[max(0, q - len(self._tails))]
                for column, count in _moves(own, self.states[to - len(self._tails)], self.upsets.first, taken):
                    branch = self.structure.branches[column][::-1]
                    nodes |= sum(1 << node for node in branch[taken[column] : count])
                    taken[column] = count
            yield nodes, int(least[to] - least[q])


def _moves(own: Array, other: Array, first: Array, taken: list[int]) -> list[tuple[int, int]]:
    """Branches that go on, and how far: those of a class at equal places stand still where they can."""
    found = []
    starts = [*np.flatnonzero(first).tolist(), len(first)]
    for start, stop in itertools.pairwise(starts):
        here, goals = list(own[start:stop]), list(other[start:stop])
        for value in list(here):
            if value in goals:
                here.remove(value)
                goals.remove(value)
        columns = list(range(start, stop))
        for value, goal in zip(here, goals, strict=True):
            column = next(each for each in columns if taken[each] == value)
            columns.remove(column)
            found.append((column, int(goal)))
    return found
