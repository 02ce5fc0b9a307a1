"""The best plan that a trainer can run, exactly: one pair of degrees for all stages, on all devices.

Degrees (t, d) with t d dividing K are enumerated; p = K / (t d) stages then cut the chain of pieces (`pieces.Chain`),
and the stage with r stages from itself to the output holds r micro-batches. Where a layer's recomputation is a choice
of its own, or nothing is recomputed, the threshold search runs on all pairs of degrees at once, with its knapsacks;
where a number n of leading layers, or all or none, decide it, nothing is left to choose within a stage, and a dynamic
program over (stages left, first piece) runs for each n.

Source: reconstructed; the restriction is the trainers' (`trainers`).
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from formulations.compiled.array_types import Words
from formulations.contract.family import Answer
from formulations.modelling.bisection import minimise
from formulations.stage_partitioning.baselines import work_bound
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import allowed_dp_degrees, evaluate
from formulations.stage_partitioning.definition.trainers import TRAINERS, Degrees, Recompute, Trainer, shape_faults
from formulations.stage_partitioning.exact.effort import exact_supports
from formulations.stage_partitioning.exact.recompute_first_n import Cuts
from formulations.stage_partitioning.exact.threshold import ThresholdSearch
from formulations.stage_partitioning.exact.threshold import solve as solve_freely
from formulations.stage_partitioning.exact.trainer_chain import Chain
from formulations.stage_partitioning.kernels.tables import build_lattice, build_profile
from instances.problems.stage_partitioning import StageInstance
from instances.requirements import requirements_of
from solvers.outcome import Limits, Prover, Watch

#: Sums taken in another order may differ by this part of themselves.
_NOISE = 1e-12


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """Least time per sample over the plans that the trainer of the instance's requirement can run, with a proof.

    Returns: ``stats``: pairs of ``degrees``, and, where the free optimum was proved in the time that is left, that
    optimum as ``free_optimum`` and the ``price`` of the restriction, objective / free_optimum - 1.
    """
    trainer = TRAINERS[str(requirements_of(instance)[0].arguments[0])]
    free = replace(instance, requirements=())
    chain = Chain(free, trainer)
    reason = next(shape_faults(free, chain.pieces, trainer), None)
    if reason is not None:
        return Answer(infeasible=True, reason=reason)
    pairs = list(_degrees(free, trainer, len(chain.pieces)))
    watch.bound(work_bound(free), Prover.BOUNDS)
    if trainer.recompute in (Recompute.EACH, Recompute.NONE):
        answer = _by_threshold(chain, pairs, limits, watch)
    else:
        answer = _by_cuts(chain, pairs, watch)
    price = _price(free, answer, limits, watch)
    reason = ""
    if price:
        slower = f"{price['price']:.3%} slower than" if price["price"] > limits.gap else "as fast as"
        reason = f"{slower} the free optimum {price['free_optimum']:.9g}"
    stats = {"pieces": len(chain.pieces), "degrees": len(pairs), **answer.stats, **price}
    return replace(answer, reason=reason, stats=stats)


def _degrees(instance: StageInstance, trainer: Trainer, most_stages: int) -> Iterator[tuple[int, int, int]]:
    """(t, d, number of stages) on all devices."""
    K, N = instance.num_devices, instance.num_microbatches
    for t in instance.tp_degrees:
        for d in allowed_dp_degrees(instance):
            stages, rest = divmod(K, t * d)
            total = stages * d
            if trainer.degrees is Degrees.NONE and t * d > 1:
                continue
            if not rest and 1 <= stages <= most_stages and (total == N if instance.exactly else total <= N):
                yield t, d, stages


class _Joint:
    """Threshold searches, one for each pair of degrees, as one (`bisection.ThresholdSearch`)."""

    def __init__(self, chain: Chain, pairs: list[tuple[int, int, int]], flag: NDArray[np.uint8]) -> None:
        self.chain, self.tests, self.work_bound = chain, 0, work_bound(chain.instance)
        at = {t: chain.at(t) for t, _, _ in pairs}
        found = ((at[t], d, stages) for t, d, stages in pairs)
        self.searches = [
            _search(flat, chain.downsets, d, stages, flag) for flat, d, stages in found if flat is not None
        ]
        self._failed = [0.0] * len(self.searches)  # times that were too short
        self._last = 0

    def test(self, T: float) -> int:
        """As the protocol says; the search that found a plan is tried first the next time."""
        self.tests += 1
        order = sorted(range(len(self.searches)), key=lambda number: number != self._last)
        for number in order:
            if self._failed[number] >= T:
                continue
            label = self.searches[number].test(T)
            if label != -1:
                self._last = number
                return label
            self._failed[number] = T
        return -1

    def plan(self, label: int, T: float) -> StagePlan:
        """The plan behind a label of the last test."""
        return self.chain.plan(self.searches[self._last].plan(label, T))

    def evaluate(self, plan: StagePlan) -> float:
        """Time per sample of a plan."""
        return evaluate(self.chain.instance, plan)


def _search(flat: StageInstance, downsets: Words, d: int, stages: int, flag: NDArray[np.uint8]) -> ThresholdSearch:
    """The search for exactly so many stages of degree d: their degrees sum to d times as much."""
    profile = build_profile(flat, prune=True)
    kept = profile.dp_degrees == d
    profile = profile._replace(dp_degrees=profile.dp_degrees[kept], resync=profile.resync[kept], max_s=stages * d)
    lattice = build_lattice(profile, downsets)
    return ThresholdSearch(replace(flat, exactly=True, num_microbatches=stages * d), profile, lattice, flag)


def _by_threshold(chain: Chain, pairs: list[tuple[int, int, int]], limits: Limits, watch: Watch) -> Answer[StagePlan]:
    search = _Joint(chain, pairs, np.frombuffer(watch.flag, np.uint8))
    best, bound, infeasible = minimise(search, watch, limits.gap)
    plan = None if best is None else best[0]
    return Answer(plan=plan, bound=bound, infeasible=infeasible, stop=watch.why(), stats={"tests": search.tests})


def _by_cuts(chain: Chain, pairs: list[tuple[int, int, int]], watch: Watch) -> Answer[StagePlan]:
    at = {t: chain.at(t) for t, _, _ in pairs}
    limit, best = math.inf, None
    cuts: list[Cuts] = []

    def better(found: tuple[float, StagePlan]) -> float:
        nonlocal best
        best = chain.plan(found[1])
        objective = evaluate(chain.instance, best)
        if not math.isclose(objective, found[0], rel_tol=1e-9):
            raise AssertionError(f"the tables give a plan of {objective!r} the time {found[0]!r}")
        watch.plan(best, objective)
        return objective

    for t, d, stages in pairs:
        flat = at[t]
        if flat is None or watch.stopped():
            continue
        cuts.append(Cuts(chain, flat, t, d, stages))
        found = cuts[-1].recompute_all(limit)
        limit = limit if found is None else better(found)
    for each in cuts:
        for found in each.others(limit, watch):
            limit = better(found)
    stats = {"programs": sum(each.programs for each in cuts)}
    if watch.stopped():
        return Answer(plan=best, stop=watch.why(), stats=stats)
    bound = None if best is None else limit * (1 - _NOISE)  # the tables and the definition agree
    return Answer(plan=best, bound=bound, infeasible=best is None, stats=stats)


def _price(instance: StageInstance, answer: Answer[StagePlan], limits: Limits, watch: Watch) -> dict[str, float]:
    """What the restriction costs, if the free optimum is proved in what is left of the time."""
    if answer.plan is None or watch.stopped() or exact_supports(instance) is not None:
        return {}
    found = solve_freely(instance, limits, watch.part(silent=True))
    if found.plan is None or found.bound is None:
        return {}
    optimum = evaluate(instance, found.plan)
    if optimum > found.bound * (1 + 1e-6) or optimum <= 0:
        return {}
    return {"free_optimum": optimum, "price": max(0.0, evaluate(instance, answer.plan) / optimum - 1)}
