"""Piper as published: dynamic programming over downsets with a bang-per-buck knapsack.

Source: Piper, section 4. dp[D][k][s] is the least time per sample of downset D on k devices with data-parallel degrees
summing to s. Deviation, which changes no plan: s is the sum itself, where the paper's dp[empty][k][s] = 0 for all s
also admits larger values. With ``--cutoff exact``, which is not the paper's, entries that no plan better than one of
the exact method can use are not kept.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.compiled.array_types import Floats, Ints, Shorts2
from formulations.compiled.downsets import all_downsets, position_masks, too_many
from formulations.compiled.rows_in_threads import Team, counters
from formulations.contract.family import Answer
from formulations.modelling.bisection import PRECISION
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import evaluate, suffix_sums
from formulations.stage_partitioning.exact import threshold
from formulations.stage_partitioning.kernels import labels, published
from formulations.stage_partitioning.kernels.arrays import SwapOrders
from formulations.stage_partitioning.kernels.tables import (
    Lattice,
    Profile,
    build_lattice,
    build_profile,
    make_plan,
    restrict,
    usable,
)
from formulations.stage_partitioning.methods import MAX_DOWNSETS
from formulations.stage_partitioning.paper.appendix_d import appendix_d
from instances.problems.stage_partitioning import CostModel, StageInstance
from solvers.errors import UsageError
from solvers.memory_budget import SizeError, demand
from solvers.outcome import Limits, Prover, Stop, Watch

RULES = {
    "rerank": published.RERANK,
    "sort-once": published.SORT_ONCE,
    "truncating": published.TRUNCATING,
    "exact": published.EXACT,
}

#: Most entries of the table, 8 bytes each.
MAX_ENTRIES = 400_000_000

#: The exact method's plan that sets a cutoff need not be the best.
_CUTOFF_GAP = 1e-3


class Table(NamedTuple):
    """dp[D][k][s] as `kernels.published.fill_table` lays it out."""

    low: Ints
    width: Ints
    offset: Ints
    entries: Floats
    smallest: Ints
    largest: Ints
    fewest: Shorts2


class Program:
    """The dynamic program over one lattice under one knapsack rule; no plan slower than ``upper`` is of interest.

    The ``team`` shares the rows of its table.
    """

    def __init__(self, instance: StageInstance, rule: int, flag: NDArray[np.uint8], upper: float, team: Team) -> None:
        downsets = all_downsets(instance, MAX_DOWNSETS)
        if downsets is None:
            raise SizeError(too_many(len(instance.layers), MAX_DOWNSETS))
        self.instance, self.rule, self.flag = instance, rule, flag
        self.profile = build_profile(instance, prune=False)
        if rule == published.EXACT:  # the heuristics' choices depend on TMPCs that they do not take
            self.profile = restrict(self.profile, usable(self.profile, upper))
        self.lattice = build_lattice(self.profile, downsets)
        self.orders = swap_orders(self.profile) if rule <= published.SORT_ONCE else no_orders(self.profile)
        self.team = team
        self.scratches = [threshold.make_scratch(self.profile, team.threads) for _ in range(team.threads)]
        self.scratch, self.counts = self.scratches[0], counters(team.threads, 3)

    def run(self, cutoff: float) -> tuple[Table, int] | None:
        """The table for plans of time <= ``cutoff`` and the s of the best entry; ``None`` if stopped."""
        table = new_table(self.profile, self.lattice, cutoff)
        table.smallest[:], table.largest[:] = self.profile.max_s + 1, -1
        table.smallest[0], table.largest[0], table.fewest[0, 0] = 0, 0, 0

        def rows(*places: int) -> int:
            part = places[-2]
            return int(
                published.fill_table(
                    self.profile, self.lattice, self.instance.memory_bytes, self.rule, cutoff, *table, self.orders,
                    *places, self.scratches[part], self.counts[part], self.flag,
                )
            )  # fmt: skip

        if self.team.fill(0, len(self.lattice.bits), rows, threshold.ROWS):
            return None
        D, K, N = len(self.lattice.bits), self.profile.num_devices, self.instance.num_microbatches
        last = [
            self.entry(table, D - 1, K, s) if not self.instance.exactly or s == N else math.inf
            for s in range(self.profile.max_s + 1)
        ]
        return table, int(np.argmin(last))

    def entry(self, table: Table, i: int, k: int, s: int) -> float:
        """dp[i][k][s]; infinite where the table has no entry."""
        if i == 0:
            return 0.0 if s == 0 and k >= 0 else math.inf
        at = k - int(table.low[i])
        if s < 0 or not 0 <= at < int(table.width[i]):
            return math.inf
        return float(table.entries[int(table.offset[i]) + s * int(table.width[i]) + at])

    def plan(self, table: Table, s: int) -> StagePlan:
        """A plan that attains dp[all nodes][K][s]: the first (D', t, d) that gives each entry its value."""
        stages = []
        j, k = len(self.lattice.bits) - 1, self.profile.num_devices
        while j > 0:
            i, q, index = self._origin(table, j, k, s)
            d, t = int(self.profile.dp_degrees[index]), int(self.profile.tp_degrees[q])
            stages.append(self._stage(i, j, q, index, s))
            j, k, s = i, k - d * t, s - d
        return make_plan(self.instance, self.profile, stages)

    def _origin(self, table: Table, j: int, k: int, s: int) -> tuple[int, int, int]:
        found = np.empty(3, np.int64)
        if not published.find_origin(
            self.profile, self.lattice, self.instance.memory_bytes, self.rule, table.low, table.width, table.offset,
            table.entries, self.orders, j, k, s, found, self.scratch, np.zeros(1, np.uint8),
        ):  # fmt: skip
            raise AssertionError("an entry of the table has no origin")
        i, q, index = found.tolist()
        return i, q, index

    def restate(self, plan: StagePlan) -> StagePlan:
        """A plan with TMPCs as the knapsack rule chooses them."""
        position = {mask: i for i, mask in enumerate(position_masks(self.lattice.bits))}
        degrees, tp = self.profile.dp_degrees.tolist(), self.profile.tp_degrees.tolist()
        later, stages = 0, []
        for stage, s in zip(reversed(plan.stages), reversed(suffix_sums(plan)), strict=True):
            now = later | sum(1 << self.instance.index[node] for node in stage.nodes)
            q, index = tp.index(stage.tp_degree), degrees.index(stage.dp_degree)
            stages.append(self._stage(position[later], position[now], q, index, s))
            later = now
        return make_plan(self.instance, self.profile, stages[::-1])

    def _stage(self, i: int, j: int, q: int, index: int, s: int) -> tuple[list[int], int, int, list[int]]:
        """Stage j minus i as `make_plan` takes it."""
        d = int(self.profile.dp_degrees[index])
        self.scratch.size[0] = -1
        published.stage_tps(
            self.profile, self.lattice, self.instance.memory_bytes, self.rule, q, i, j, index, -(-s // d), self.orders,
            self.scratch, True, np.zeros(1, np.uint8),
        )  # fmt: skip
        m = int(self.scratch.size[0])
        return self.scratch.nodes[:m].tolist(), d, q, self.scratch.choice[:m].tolist()


def solve(
    instance: StageInstance, limits: Limits, watch: Watch, knapsack: str = "auto", cutoff: str = "none"
) -> Answer[StagePlan]:
    """The best plan that the published dynamic program finds.

    ``knapsack``: ``rerank`` (the paper's text), ``sort-once`` (the released program; at most two TMPCs per (v, t)),
    ``truncating``; ``auto``: sort-once under the released cost model where it applies, else rerank.
    ``cutoff``: ``exact``: the stages and degrees of a plan of `exact.threshold`, with TMPCs by this knapsack rule, say
    what no better plan can use. The plan that comes back is as good; seconds and ``stats`` are not those of the paper.
    Returns: ``infeasible`` is a proof: every rule ends at the lightest choice before it gives up. The bound is the work
    bound; with ``knapsack="exact"`` it is the plan's own objective, which is then optimal.
    """
    rule = resolve(instance, knapsack)
    flag, options, known = np.frombuffer(watch.flag, np.uint8), {"knapsack": rule, "cutoff": cutoff}, None
    if cutoff == "exact":
        first = threshold.solve(
            instance, Limits(gap=_CUTOFF_GAP, seed=limits.seed, threads=limits.threads), watch.part(silent=True)
        )
        if first.plan is None:
            whose = "exact" if first.infeasible else ""
            return Answer(
                infeasible=first.infeasible, stop=first.stop, proved_by=whose, reason=first.reason, options=options
            )
        known = first.plan
    try:
        with Team(limits.threads) as team:
            upper = math.inf if known is None else evaluate(instance, known)
            program = Program(instance, RULES[rule], flag, upper, team)
            bound, most = float(program.lattice.work[-1]) / instance.num_devices, math.inf
            watch.bound(bound, Prover.BOUNDS)
            if known is not None:
                known = program.restate(known)
                most = evaluate(instance, known)
                watch.plan(known, most)
            done = program.run(most * (1 + PRECISION))
    except SizeError as reason:
        return Answer(stop=Stop.SIZE_LIMIT, reason=str(reason), options=options)
    if done is None:
        return Answer(bound=bound, stop=watch.why(), options=options, stats=statistics(program))
    table, s = done
    if math.isinf(program.entry(table, len(program.lattice.bits) - 1, program.profile.num_devices, s)):
        return Answer(infeasible=True, stop=Stop.PROVED, options=options, stats=statistics(program))
    plan = program.plan(table, s)
    objective = evaluate(instance, plan)
    watch.plan(plan, objective)
    if rule == "exact":
        bound = objective * (1 - PRECISION)
        watch.bound(bound)
    return Answer(plan=plan, bound=bound, options=options, stats=statistics(program))


def solve_exact_knapsack(
    instance: StageInstance, limits: Limits, watch: Watch, cutoff: str = "none"
) -> Answer[StagePlan]:
    """The same program with exact knapsacks, which makes it exact (Piper, Appendix C)."""
    return solve(instance, limits, watch, knapsack="exact", cutoff=cutoff)


def resolve(instance: StageInstance, knapsack: str) -> str:
    """The name of the rule to use; `UsageError` if sort-once meets more than two TMPCs."""
    pairs = all(len(found) <= 2 for layer in instance.layers for found in layer.tmpcs.values())
    if knapsack == "auto":
        return "sort-once" if pairs and instance.cost_model is CostModel.RELEASED else "rerank"
    if knapsack == "sort-once" and not pairs:
        raise UsageError("--knapsack sort-once needs at most two TMPCs per node and degree; use --knapsack rerank")
    return knapsack


def swap_orders(profile: Profile) -> SwapOrders:
    """The orders of all degrees where they can be used."""
    use = (profile.uniform > 0) & (profile.num_tmpcs.max(axis=1) <= 2)
    P, n, Y = len(use), profile.num_tmpcs.shape[1], profile.max_s + 2
    demand(20.0 * P * Y * n, "the orders of swaps")
    orders = SwapOrders(
        use.astype(np.int64),
        np.zeros((P, Y), np.int64),
        np.empty((P, Y, n), np.int32),
        np.empty((P, Y, n)),
        np.empty((P, Y, n)),
    )
    published.swap_orders(profile, orders)
    return orders


def no_orders(profile: Profile) -> SwapOrders:
    """No degree uses an order."""
    none = np.zeros((1, 1, 1))
    use = np.zeros(len(profile.tp_degrees), np.int64)
    return SwapOrders(use, np.zeros((1, 1), np.int64), none.astype(np.int32), none, none)


def new_table(profile: Profile, lattice: Lattice, cutoff: float) -> Table:
    """An empty table for plans of time <= ``cutoff``."""
    D, K = len(lattice.bits), profile.num_devices
    rest = np.ones(D, np.int64)  # whatever is outside a downset takes a device
    rest[-1] = 0
    if math.isfinite(cutoff):
        rest[:] = labels.NO_DEVICES
        labels.rest_of_rows(profile, lattice, cutoff * (1 + 1e-9), rest, np.empty(D, np.int64), 0, D, D, D, 0, 0)
    least = np.ceil(lattice.work / cutoff * (1 - 1e-9) - 1e-9) if cutoff > 0 else np.ones(D)
    low: Ints = np.maximum(least, 1).astype(np.int64)
    low[0] = 0
    width = np.maximum(K - rest - low + 1, 0)
    sizes = width * (profile.max_s + 1)
    sizes[0] = 0
    offset = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    if sizes.sum() > MAX_ENTRIES:
        raise SizeError(f"the table dp[D][k][s] would have {sizes.sum():.3g} entries")
    demand(8.0 * float(sizes.sum()) + 4.0 * D * (profile.max_s + 1), "the table dp[D][k][s]")
    entries, fewest = np.full(int(sizes.sum()), np.inf), np.full((D, profile.max_s + 1), labels.NO_DEVICES, np.int32)
    return Table(low, width, offset, entries, np.empty(D, np.int64), np.empty(D, np.int64), fewest)


def statistics(program: Program) -> dict[str, Any]:
    """Counts that explain the effort, and ``formula_*``: what they would be by Appendix D, without any pruning."""
    pairs, knapsacks, updates = program.counts.sum(axis=0).tolist()
    formula = appendix_d(program.profile, len(program.lattice.bits))
    return {
        "downsets": len(program.lattice.bits),
        "pairs": pairs,
        "knapsacks": knapsacks,
        "updates": updates,
        **{f"formula_{name}": count for name, count in formula.items()},
    }
