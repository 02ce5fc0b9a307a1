"""PipeDream's planner: a chain cut into stages with data parallelism, as if memory had no limit.

No tensor parallelism, and no recomputation: without a memory limit the fastest configuration of every layer is taken.
A graph that is no chain becomes one along a topological order (Kahn's algorithm with a stack).

Source: PipeDream (Narayanan et al., SOSP 2019), as Piper, sections 2.5 and 5, describes it; on a flat network and with
Piper's cost model. Deviation: the best plan on the chain is found with the exact method's threshold search instead of
PipeDream's own recursion, which has the same optimum.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from formulations.compiled.downsets import chain_downsets
from formulations.contract.family import Answer
from formulations.contract.quantities import judge
from formulations.modelling.bisection import minimise
from formulations.stage_partitioning.baselines import work_bound
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import evaluate, stage_memory, suffix_sums, violations
from formulations.stage_partitioning.exact.threshold import ThresholdSearch, statistics
from formulations.stage_partitioning.kernels.tables import build_lattice, build_profile
from formulations.stage_partitioning.methods import MAX_LABELS
from instances.graph import lifo_order
from instances.problems.stage_edits import with_degrees
from instances.problems.stage_partitioning import StageInstance
from instances.units import of_room
from solvers.outcome import Limits, Prover, Stop, Watch

#: Why there is no plan.
NEEDS_TP = "PipeDream has no tensor parallelism, and some node needs it"
NO_DEGREES = "no plan on the chain has degrees that the devices and micro-batches allow"


def solve(instance: StageInstance, _limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The best plan on a chain without a memory limit, if it happens to fit.

    Returns: no plan if PipeDream's needs more memory than there is; ``stats`` then has its time per sample
    (``unlimited_objective``) and the memory it needs (``needed_memory_bytes``), and ``reason`` says how to see it.
    """
    bound = work_bound(instance)
    watch.bound(bound, Prover.BOUNDS)
    free = without_memory(instance)
    if free is None:
        return Answer(bound=bound, reason=NEEDS_TP)
    profile = build_profile(free, prune=True)
    n = len(free.layers)
    if (n + 1) * (profile.max_s + 1) > MAX_LABELS:
        return Answer(
            bound=bound, stop=Stop.SIZE_LIMIT, reason=f"{n} nodes times {profile.max_s} micro-batches do not fit"
        )
    lattice = build_lattice(profile, chain_downsets(lifo_order(n, free.edge_indices)))
    search = ThresholdSearch(free, profile, lattice, np.frombuffer(watch.flag, np.uint8))
    best = minimise(search, watch.part(silent=True), 0.0)[0]
    stats = statistics(search)
    if best is None:
        reason = "" if watch.stopped() else NO_DEGREES
        return Answer(bound=bound, stop=watch.why(), reason=reason, stats=stats)
    return fitting(instance, best[0], bound, watch, stats)


def without_memory(instance: StageInstance) -> StageInstance | None:
    """The instance without tensor parallelism and with memory without limit; ``None`` if some node has no t = 1."""
    try:
        return replace(with_degrees(instance, (1,)), memory_bytes=math.inf)
    except ValueError:
        return None


def fitting(
    instance: StageInstance, plan: StagePlan, bound: float, watch: Watch, stats: Mapping[str, Any]
) -> Answer[StagePlan]:
    """The plan, if it fits; else what it needs, and how to see it."""
    objective = evaluate(instance, plan)
    if not judge(violations, instance, plan):
        watch.plan(plan, objective)
        return Answer(plan=plan, bound=bound, stop=watch.why(), stats=stats)
    needed = max(stage_memory(instance, stage, s) for stage, s in zip(plan.stages, suffix_sums(plan), strict=True))
    return Answer(
        bound=bound,
        stop=watch.why(),
        reason=f"PipeDream's plan of {objective:.9g} {instance.time_unit} ignores the memory limit and needs "
        f"{of_room(needed, instance.memory_bytes)} on a device; "
        f"--memory {math.ceil(needed)} shows it",
        stats={"unlimited_objective": objective, "needed_memory_bytes": needed, **stats},
    )
