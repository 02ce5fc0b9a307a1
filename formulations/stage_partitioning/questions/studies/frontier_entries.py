"""The table of optima over devices and micro-batches where there are many downsets: entry by entry, by threshold tests.

The recursion of `frontier` visits every pair of downsets for all entries at once, and finds the least time of each
stage. With tens of thousands of downsets and few entries it is far cheaper to prove each entry by the exact method:
its tests only visit the pairs that some plan may use, its start is the best plan of single linear orders or of a
neighbouring entry, and most entries take a test or two.
"""

from __future__ import annotations

import numpy as np

from formulations.compiled.array_types import Floats, Words
from formulations.compiled.downsets import chain_downsets, linear_orders
from formulations.modelling.bisection import minimise
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.exact.threshold import ThresholdSearch, better
from formulations.stage_partitioning.kernels.tables import build_lattice, build_profile
from instances.problems.stage_partitioning import StageInstance
from solvers.outcome import Watch

Found = tuple[StagePlan, float] | None


def num_entries(K: int, S: int, largest_t: int) -> int:
    """How many entries differ from a neighbour's at all: degrees t up to ``largest_t`` use up both bounds."""
    return sum(max(0, min(K, s * largest_t) - s + 1) for s in range(1, S + 1))


def entry_by_entry(instance: StageInstance, downsets: Words, watch: Watch) -> tuple[Floats, dict[str, int]] | None:
    """``times[k, s]`` as in `frontier.Frontier`, and what it took; ``None`` if stopped."""
    quiet, flag = watch.part(silent=True), np.frombuffer(watch.flag, np.uint8)
    profile = build_profile(instance, prune=True)
    K, S, largest_t = instance.num_devices, profile.max_s, max(instance.tp_degrees, default=1)
    chains = [
        ThresholdSearch(instance, profile, build_lattice(profile, chain_downsets(order)), flag)
        for order in linear_orders(instance)
    ]
    search = ThresholdSearch(instance, profile, build_lattice(profile, downsets), flag)
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
    pairs, _, knapsacks = search.counts.tolist()
    return times, {"downsets": len(downsets), "tests": search.tests, "pairs": pairs, "knapsacks": knapsacks}
