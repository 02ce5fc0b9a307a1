"""The whole table of optima over devices and micro-batches, from one run.

Source: Piper, section 4: dp[V][k][s] (its Figure 2). The recursion is the paper's, knapsacks are exact, and "at most"
replaces "exactly" for both k and s, which lets most of the work be skipped (`kernels.frontier_table.fill`). Graphs of
many downsets are treated entry by entry (`entry_by_entry`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.compiled.array_types import Floats, Words
from formulations.compiled.downsets import all_downsets, chain_downsets, linear_orders, too_many
from formulations.compiled.rows_in_threads import Team, counters
from formulations.modelling import bisection
from formulations.modelling.bisection import minimise
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.exact import threshold
from formulations.stage_partitioning.exact.threshold import ThresholdSearch, better
from formulations.stage_partitioning.kernels import frontier_table
from formulations.stage_partitioning.kernels.tables import Lattice, Profile, build_lattice, build_profile
from formulations.stage_partitioning.methods import MAX_DOWNSETS
from instances.problems.stage_partitioning import StageInstance
from solvers.memory_budget import SizeError, demand
from solvers.outcome import Watch

#: Most entries of the table over downsets, 8 bytes each.
MAX_ENTRIES = 250_000_000
#: Most steps over pairs of downsets, degrees and sums: minutes.
MAX_STEPS = 2e11
#: With more downsets than this each entry is proved by itself, in a second or two, and there may be so many: minutes.
_ENTRIES_FROM = 2000
MAX_PROOFS = 300


@dataclass(frozen=True)
class Frontier:
    """``times[k, s]``: the least time per sample on at most k devices with data-parallel degrees summing to at most s.

    Shape (K + 1, min(N, K) + 1), infinite where no plan is feasible; exact up to rounding.
    """

    times: Floats
    stats: dict[str, Any]


def frontier(instance: StageInstance, watch: Watch, threads: int = 1) -> Frontier | None:
    """The table of an instance whose K and N are the largest of interest, by so many threads; ``None`` if stopped.

    The cost model is that of the instance at every s: under the released one, degrees divide the instance's own N.

    `SizeError` if the graph has too many downsets, or the table too many entries.
    `ValueError` if the instance requires a sum of exactly N: the table is about at most s.
    """
    if instance.exactly:
        raise ValueError("a frontier is over sums of at most s; leave --exactly out")
    profile = build_profile(instance, prune=True)
    downsets = all_downsets(instance, MAX_DOWNSETS)
    if downsets is None:
        raise SizeError(f"{too_many(len(instance.layers), MAX_DOWNSETS)}; try --linearize")
    D, K, S = len(downsets), instance.num_devices, profile.max_s
    proofs = num_entries(K, S, max(instance.tp_degrees, default=1))
    steps = 0.5 * D * D * len(instance.tp_degrees) * S * K
    is_large = D * (S + 1) * (K + 1) > MAX_ENTRIES or steps > MAX_STEPS
    if proofs > MAX_PROOFS if D > _ENTRIES_FROM else is_large:
        raise SizeError(
            f"{D} downsets, {K} devices and {S} micro-batches are too much for a table of all of them; "
            "try --linearize, fewer --devices or --microbatches"
        )
    lattice = None if D > _ENTRIES_FROM else build_lattice(profile, downsets)
    if lattice is None or _is_blurred(profile, lattice):
        if proofs > MAX_PROOFS:
            raise SizeError("the weights differ too much in size for a table that large; try fewer --devices")
        with Team(threads) as team:
            return entry_by_entry(instance, downsets, watch, team)
    demand(8.0 * D * (S + 1) * (K + 1), "the table of all devices and sums")
    table = np.full((D, S + 1, K + 1), np.inf)
    table[0] = 0.0
    counts, scratches = counters(threads, 3), [threshold.make_scratch(profile, threads) for _ in range(threads)]
    floor = float(lattice.work[-1]) / K * (1 - bisection.PRECISION)

    def fill(*rows: int) -> int:
        part = rows[-2]
        return int(
            frontier_table.fill(
                profile, lattice, profile.memory, floor, table, *rows, scratches[part], counts[part],
                np.frombuffer(watch.flag, np.uint8),
            )
        )  # fmt: skip

    with Team(threads) as team:
        if team.fill(0, D, fill, threshold.ROWS):
            return None
    pairs, knapsacks, updates = counts.sum(axis=0).tolist()
    stats = {"downsets": D, "pairs": pairs, "knapsacks": knapsacks, "updates": updates}
    return Frontier(np.ascontiguousarray(table[-1].T), stats)


def _is_blurred(profile: Profile, lattice: Lattice) -> bool:
    """Whether weights differ so much in size that differences of their running sums are not to be trusted.

    A test at a fixed time cuts them to what matters there (`costs.heaviest`); the table has no such time.
    """
    seconds = float(lattice.weight[:, -1].max(initial=0.0)) * float(
        (profile.resync / profile.dp_degrees).max(initial=0.0)
    )
    blur = profile.num_tmpcs.shape[1] * float(np.finfo(float).eps) * seconds
    return bool(blur > bisection.PRECISION * float(lattice.work[-1]) / profile.num_devices)


def corners(times: NDArray[np.float64]) -> list[tuple[int, int, float]]:
    """The (k, s, time) that no other entry matches with fewer devices or a smaller s: all the table says."""
    finite = np.isfinite(times)
    fewer, smaller = np.full_like(times, np.inf), np.full_like(times, np.inf)
    fewer[1:], smaller[:, 1:] = times[:-1], times[:, :-1]
    k, s = np.nonzero(finite & (times < fewer) & (times < smaller))
    return list(zip(k.tolist(), s.tolist(), times[k, s].tolist(), strict=True))


Found = tuple[StagePlan, float] | None


def num_entries(K: int, S: int, largest_t: int) -> int:
    """How many entries differ from a neighbour's at all: degrees t up to ``largest_t`` use up both bounds."""
    return sum(max(0, min(K, s * largest_t) - s + 1) for s in range(1, S + 1))


def entry_by_entry(instance: StageInstance, downsets: Words, watch: Watch, team: Team) -> Frontier | None:
    """The table where there are many downsets: each entry proved by threshold tests; ``None`` if stopped.

    The recursion visits every pair of downsets for all entries at once, and finds the least time of each stage. With
    tens of thousands of downsets and few entries it is far cheaper to prove each entry by the exact method: its tests
    only visit the pairs that some plan may use, its start is the best plan of single linear orders or of a neighbouring
    entry, and most entries take a test or two.
    """
    quiet, flag = watch.part(silent=True), np.frombuffer(watch.flag, np.uint8)
    profile = build_profile(instance, prune=True)
    K, S, largest_t = instance.num_devices, profile.max_s, max(instance.tp_degrees, default=1)
    chains = [
        ThresholdSearch(instance, profile, build_lattice(profile, chain_downsets(order)), flag)
        for order in linear_orders(instance)
    ]
    search = ThresholdSearch(instance, profile, build_lattice(profile, downsets), flag, team)
    best: list[list[Found]] = [[None] * (S + 1) for _ in range(K + 1)]
    for k in range(1, K + 1):
        for s in range(1, S + 1):
            best[k][s] = better(best[k - 1][s], best[k][s - 1])
            if s > k or k > s * largest_t:  # the sum cannot be used up, or the devices cannot
                continue
            for lattice in chains:
                lattice.limit_cluster(k, s)
                best[k][s] = minimise(lattice, quiet, 0.0, start=best[k][s], chain=True)[0]
            search.limit_cluster(k, s)
            best[k][s] = minimise(search, quiet, 0.0, start=best[k][s])[0]
            if watch.stopped():
                return None
    times = np.array([[np.inf if found is None else found[1] for found in row] for row in best])
    pairs, _, knapsacks = search.counts_of.sum(axis=0).tolist()
    stats = {"downsets": len(downsets), "tests": search.tests, "pairs": pairs, "knapsacks": knapsacks}
    return Frontier(times, stats)
