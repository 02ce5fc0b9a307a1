"""The appendix's recursion as it is printed, for any number of levels: dp^l[D, D'][k][s, x] from the lowest level up.

Source: Piper, Appendix E. Here b are the degrees behind D', as one device of the next level sees them, so that s is
b + x; k devices are at most k. At level 1 a stage's TMPCs are chosen by the knapsack heuristic of section 4 or exactly.
Deviations, none of which changes a plan: of each split only dp[K_l] is kept for the level above, and the split behind
a plan is found again. The appendix prints a maximum over k where a minimum is meant.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.compiled.array_types import Floats2, Floats3, Words
from formulations.compiled.downsets import all_downsets, too_many
from formulations.contract.family import Answer
from formulations.hierarchical_partitioning.definition.plan import Group, HierarchicalPlan, Superstage
from formulations.hierarchical_partitioning.definition.problem import evaluate, most_in_flight
from formulations.hierarchical_partitioning.effort import cells_of_levels
from formulations.hierarchical_partitioning.kernels import levels as kernels
from formulations.hierarchical_partitioning.methods import MAX_LEVEL_DOWNSETS
from formulations.hierarchical_partitioning.paper import make_links
from formulations.modelling.bisection import PRECISION
from formulations.stage_partitioning.definition.plan import Stage
from formulations.stage_partitioning.exact.threshold import make_scratch
from formulations.stage_partitioning.kernels import published
from formulations.stage_partitioning.kernels.tables import build_lattice, build_profile, make_plan
from formulations.stage_partitioning.paper.piper import RULES, no_orders, resolve, swap_orders
from instances.problems.hierarchical_partitioning import HierarchicalInstance, MemoryModel
from solvers.memory_budget import SizeError, demand
from solvers.outcome import Limits, Prover, Stop, Watch


class Program:
    """The tables of one instance under one knapsack rule.

    ``inside[l - 1]`` (pairs of downsets, b, x) are the best times of level l on all K_l devices of one device of the
    next level.
    """

    def __init__(self, instance: HierarchicalInstance, rule: int, downsets: Words, flag: NDArray[np.uint8]) -> None:
        self.instance, self.rule, self.flag = instance, rule, flag
        flat, K1 = instance.inner, instance.devices_per_machine
        if instance.memory_model is MemoryModel.NONE:
            flat = replace(flat, memory_bytes=math.inf)
        # The heuristics' choices depend on TMPCs that they do not take.
        profile = build_profile(flat, prune=rule == published.EXACT)
        self.capacity = flat.memory_bytes  # the knapsack has its own slack, as the profile's memory has
        self.profile = profile._replace(dp_degrees=profile.dp_degrees[:K1], resync=profile.resync[:K1])
        self.lattice = build_lattice(self.profile, downsets)
        self.links = links = make_links(instance, self.profile, self.lattice)
        self.scratch = make_scratch(self.profile)
        self.orders = swap_orders(self.profile) if rule <= published.SORT_ONCE else no_orders(self.profile)
        self.S, self.precise = most_in_flight(instance), instance.memory_model is MemoryModel.PRECISE
        demand(8.0 * cells_of_levels(instance, len(downsets)), "the tables of all levels")
        P, D = len(self.profile.tp_degrees), len(downsets)
        # Of degrees t and d, y micro-batches in flight stand in column[t, d] + y.
        rows = np.tile([0, *(-(-self.S // d) for d in range(1, K1 + 1))], (P, 1))
        self.column = (np.cumsum(rows) - rows.ravel() - 1).reshape(rows.shape)
        self.times = np.full((len(links.larger), int(rows.sum())), np.nan)
        smaller = np.repeat(np.arange(D), np.diff(links.pair_start))
        weight = links.weight[links.larger] - links.weight[smaller]
        self.link: list[Floats2] = [np.empty((0, 0))]  # of level 1, whose stages pay for themselves
        self.counts = [K1]
        for level in instance.levels:
            d = np.arange(level.count + 1).clip(1)
            bytes_of = 4 * ((d - 1) / d) * weight[:, None] + 2 * links.crossed[:, None]
            self.link.append(bytes_of / d / level.bandwidth)
            self.counts.append(level.count)
        #: The most that the degrees of one split of each level sum to.
        self.most_x = [min(int(x), self.S) for x in np.cumprod(self.counts)]
        self.inside: list[Floats3] = []

    def run(self) -> bool:
        """Fill the tables below the highest level; False if stopped."""
        starts, pairs = self.links.pair_start, len(self.links.larger)
        for level, (K, X) in enumerate(zip(self.counts[:-1], self.most_x, strict=False), 1):
            own = np.full((pairs, self.S + 1 if self.precise else 1, X + 1), np.inf)
            for start in range(len(starts) - 1):
                # Nothing is behind the first stages from the output side, and something behind all others.
                for b in range(1, self.S) if self.precise and start > 0 else (0,):
                    best = self.split(level, start, b)
                    if best is None:
                        return False
                    first, last = starts[start : start + 2]
                    own[first:last, b] = best[self.links.larger[first:last], K]
            self.inside.append(own)
        return True

    @property
    def priced(self) -> int:
        """Stages that were priced, each a knapsack: of one set of nodes, t, d and number in flight."""
        return int(np.count_nonzero(~np.isnan(self.times)))

    def split(self, level: int, start: int, b: int) -> Floats3 | None:
        """(downsets, k, x): the least times of one split on a level; ``None`` if stopped."""
        links = self.links
        best = np.empty((len(self.lattice.bits), self.counts[level - 1] + 1, self.most_x[level - 1] + 1))
        if level == 1:
            done = kernels.split_machine(
                self.profile, self.lattice, links, self.capacity, self.rule, self.orders, self.scratch, self.column,
                self.times, start, b, best, self.flag,
            )  # fmt: skip
            return best if done else None
        kernels.split_level(
            links.pair_start, links.larger, self.link[level - 1], self.inside[level - 2], self.precise, self.S, start,
            b, best,
        )  # fmt: skip
        return None if self.flag[0] else best

    def plan(self, best: Floats3) -> HierarchicalPlan:
        """A plan that takes the least time in the table of the highest level."""
        L, last = len(self.counts), len(self.lattice.bits) - 1
        parts = self._parts(L, 0, last, 0, int(np.argmin(best[last, -1])), best)
        groups: list[tuple[Group, ...]] = []
        for _ in range(L - 2):
            groups.append(tuple(Group(d, len(inner)) for d, inner in parts))
            parts = [part for _, inner in parts for part in inner]
        stages = (Superstage(d, tuple(stage for _, stage in inner)) for d, inner in parts)
        return HierarchicalPlan(tuple(stages), tuple(groups[::-1]))

    def _parts(self, level: int, start: int, j: int, b: int, x: int, best: Floats3) -> list[tuple[int, Any]]:
        """The parts of a split from the input side on: superstages, each its degree and its own parts; or stages."""
        k = self.counts[level - 1]
        found: list[tuple[int, Any]] = []
        while j != start:
            for last in self._last_parts(level, start, j, b, x):
                before = best[last.i, k - last.devices, x - last.degrees] if k >= last.devices else math.inf
                if max(before, last.time) == best[j, k, x] < math.inf:
                    break
            else:
                raise AssertionError("an entry of the table has no origin")
            i, d, x = last.i, last.d, x - last.degrees
            if level == 1:
                found.append((d, self._stage(last, j)))
            else:
                below = self.split(level - 1, i, last.y)
                assert below is not None  # it was found before
                found.append((d, self._parts(level - 1, i, j, last.y, last.degrees // d, below)))
            j, k = i, k - last.devices
        return found

    def _last_parts(self, level: int, start: int, j: int, b: int, x: int) -> "Iterator[_Part]":
        """What may be at the input side of downset j minus ``start``, whose degrees sum to x."""
        links, K = self.links, self.counts[level - 1]
        for i in range(start, j):
            first, last = links.pair_start[i : i + 2].tolist()
            z = first + int(np.searchsorted(links.larger[first:last], j))
            if z == last or links.larger[z] != j or not self._holds(start, i):
                continue
            if level > 1:
                for d in range(1, K + 1):
                    for inner in range(1, min(x // d, self.most_x[level - 2]) + 1):
                        y = -(-(b + x - d * inner) // d) if self.precise else 0
                        time = max(float(self.link[level - 1][z, d]), float(self.inside[level - 2][z, y, inner]) / d)
                        yield _Part(i, d, d, d * inner, y, time)
                continue
            for q, t in enumerate(self.profile.tp_degrees.tolist()):
                for d in range(1, min(x, K // t, len(self.profile.dp_degrees)) + 1):
                    y = self._in_flight(b + x, d)
                    time = float(self.times[z, self.column[q, d] + y])
                    if time < math.inf:  # NaN if it was of no use
                        yield _Part(i, d, d * t, d, y, time, q)

    def _holds(self, start: int, i: int) -> bool:
        first, last = self.links.pair_start[start : start + 2].tolist()
        return i == start or i in self.links.larger[first:last]

    def _in_flight(self, s: int, d: int) -> int:
        crude = self.instance.memory_model is MemoryModel.CRUDE
        return -(-s // d) if self.precise else -(-self.S // d) if crude else 1

    def _stage(self, part: "_Part", j: int) -> Stage:
        """The stage j minus ``part.i`` as `make_plan` makes it, with TMPCs as the knapsack rule chooses them."""
        index = int(np.searchsorted(self.profile.dp_degrees, part.d))
        self.scratch.size[0] = -1
        published.stage_tps(
            self.profile, self.lattice, self.capacity, self.rule, part.q, part.i, j, index, part.y, self.orders,
            self.scratch, True, np.zeros(1, np.uint8),
        )  # fmt: skip
        m = int(self.scratch.size[0])
        chosen = (self.scratch.nodes[:m].tolist(), part.d, part.q, self.scratch.choice[:m].tolist())
        return make_plan(self.instance.flat, self.profile, [chosen]).stages[0]


class _Part(NamedTuple):
    """A stage or superstage downset j minus i: d, devices, degrees that it adds to x, and its time.

    ``y`` micro-batches are in flight in a stage, whose t is the q-th; of a superstage it is b inside.
    """

    i: int
    d: int
    devices: int
    degrees: int
    y: int
    time: float
    q: int = 0


def solve(
    instance: HierarchicalInstance, _limits: Limits, watch: Watch, knapsack: str = "auto"
) -> Answer[HierarchicalPlan]:
    """The best plan that the recursion finds with the knapsack heuristic of section 4 at level 1.

    ``knapsack``: as of the flat problem's ``piper``: ``rerank`` (the paper's text), ``sort-once``, ``truncating`` or
    ``exact``.
    Returns: ``infeasible`` is a proof: every rule ends at the lightest choice before it gives up. The bound is the work
    of all devices; with ``exact`` it is the plan's own objective.
    """
    rule = resolve(instance.flat, knapsack)
    options, flag = {"knapsack": rule}, np.frombuffer(watch.flag, np.uint8)
    downsets = all_downsets(instance.flat, MAX_LEVEL_DOWNSETS)
    if downsets is None:
        reason = too_many(len(instance.flat.layers), MAX_LEVEL_DOWNSETS)
        return Answer(stop=Stop.SIZE_LIMIT, reason=reason, options=options)
    try:
        program = Program(instance, RULES[rule], downsets, flag)
    except SizeError as error:
        return Answer(stop=Stop.SIZE_LIMIT, reason=str(error), options=options)
    bound = float(program.lattice.work[-1]) / program.profile.num_devices
    watch.bound(bound, Prover.BOUNDS)
    best = program.split(len(program.counts), 0, 0) if program.run() else None
    if best is None:
        return Answer(bound=bound, stop=watch.why(), options=options)
    stats = {"downsets": len(downsets), "pairs": len(program.links.larger), "priced": program.priced}
    if math.isinf(best[-1, -1].min()):
        return Answer(infeasible=True, stop=Stop.PROVED, options=options, stats=stats)
    plan = program.plan(best)
    objective = evaluate(instance, plan)
    watch.plan(plan, objective)
    if rule == "exact":
        bound = objective * (1 - PRECISION)
        watch.bound(bound)
    return Answer(plan=plan, bound=bound, options=options, stats=stats)


def solve_exact_knapsack(instance: HierarchicalInstance, limits: Limits, watch: Watch) -> Answer[HierarchicalPlan]:
    """The same recursion with exact knapsacks, which makes it exact."""
    return solve(instance, limits, watch, knapsack="exact")
