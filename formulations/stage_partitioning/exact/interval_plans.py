"""A good plan with a bound for graphs that have too many downsets to walk over.

Stages are cut from a few topological orders at a time: the downsets that end pieces of those orders form a small
lattice, on which the exact search finds the best plan. Each round draws new orders that keep the incumbent's stages
together, and adds the downsets that are a few nodes away from those that end its stages, so the next lattice contains
the incumbent and its neighbourhood.

Source: reconstructed. The paper linearises graphs for its Table 1; the rounds and the bound are this project's.
"""

import random

import numpy as np

from formulations.compiled.array_types import Words
from formulations.compiled.downsets import chain_downsets, downsets_near, linear_orders, random_order
from formulations.contract.family import Answer
from formulations.modelling.bisection import minimise
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.exact.threshold import ThresholdSearch, statistics
from formulations.stage_partitioning.kernels.tables import build_lattice, build_profile
from formulations.stage_partitioning.methods import MAX_LABELS
from instances.graph import adjacency
from instances.problems.stage_partitioning import StageInstance
from solvers.outcome import Limits, Prover, Stop, Watch

#: Rounds without a better plan after which the search ends.
_PATIENCE = 3

#: New orders in every round.
_ORDERS = 4

#: Downsets of one round's lattice (the search takes time with their square), and those near the incumbent's stages.
_MAX_DOWNSETS, _NEAR = 6000, 2000


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """A plan whose stages are pieces of linear orders, and the work bound.

    Returns: never ``infeasible``: that no linear order gave a plan proves nothing (unless the work bound meets the
    plan, nothing is proved optimal either). ``Stop.SIZE_LIMIT`` without a plan if not even one order fits.
    """
    rng = random.Random(limits.seed)
    flag = np.frombuffer(watch.flag, np.uint8)
    profile = build_profile(instance, prune=True)
    most = min(_MAX_DOWNSETS, MAX_LABELS // (profile.max_s + 1))
    n = len(instance.layers)
    if most <= n:
        return Answer(stop=Stop.SIZE_LIMIT, reason=f"{n} nodes times {profile.max_s} micro-batches do not fit")
    best: tuple[StagePlan, float] | None = None
    bound: float | None = None
    rounds, patience, stats = 0, _PATIENCE, {}
    orders, near = linear_orders(instance), None
    while patience and not watch.stopped():
        rounds += 1
        chains = [chain_downsets(order) for order in orders]
        downsets = union(chains, most) if near is None else np.unique(np.concatenate([*chains[:1], near]), axis=0)
        lattice = build_lattice(profile, downsets)
        search = ThresholdSearch(instance, profile, lattice, flag)
        if bound is None:
            bound = search.work_bound
            watch.bound(bound, Prover.BOUNDS)
        found = minimise(search, watch, limits.gap, start=best, chain=True)[0]
        stats = statistics(search)
        is_better = found is not None and found is not best
        patience, best = _PATIENCE if is_better else patience - 1, found
        if best is not None and best[1] <= bound * (1 + limits.gap):
            break
        stage_of = stages_of(instance, best[0]) if best else None
        orders = [random_order(instance, rng, stage_of) for _ in range(_ORDERS)]
        near = near_plan(instance, best[0], min(_NEAR, most - n - 1)) if best and is_better else None
    return Answer(
        plan=best[0] if best else None,
        bound=bound,
        stop=watch.why(),
        reason="" if best else "no linear order tried gives a feasible plan, which proves nothing",
        stats={"rounds": rounds, **stats},
    )


def union(chains: list[Words], most: int) -> Words:
    """The downsets of several chains, each once, as far as ``most`` allows (whole chains only)."""
    kept = chains[: max(1, most // len(chains[0]))]
    return np.unique(np.concatenate(kept), axis=0)


def near_plan(instance: StageInstance, plan: StagePlan, most: int) -> Words:
    """The downsets with which a plan's stages begin, and those that are the fewest nodes away: ``most``, or all."""
    ends = [0]
    for stage in reversed(plan.stages):
        ends.append(ends[-1] | sum(1 << instance.index[node] for node in stage.nodes))
    return downsets_near(*adjacency(len(instance.layers), instance.edge_indices), ends, most)


def stages_of(instance: StageInstance, plan: StagePlan) -> list[int]:
    """The stage of every node, by position."""
    stage_of = [0] * len(instance.layers)
    for number, stage in enumerate(plan.stages):
        for node in stage.nodes:
            stage_of[instance.index[node]] = number
    return stage_of
