"""Exact operator partitioning without clustering: thresholds over chains of all downsets, from Parmesan's plan on.

Where the number of stages is free, the slowest all-reduce is part of the objective: after each optimum, a better plan
must have less parameters in its largest stage, so the cap on them falls until nothing is left.

Source: this project.
"""

import math
from typing import Any

import numpy as np

from formulations.compiled.downsets import downsets_near, too_many
from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer, infeasible_by_counting
from formulations.contract.quantities import judge
from formulations.operator_partitioning.costs.chains import Found, Search, effort_stats
from formulations.operator_partitioning.costs.costs import ROUNDING, load_bound
from formulations.operator_partitioning.costs.downsets import all_downsets
from formulations.operator_partitioning.costs.shapes import (
    instances_by_shape,
    shortage,
    step_bound,
    step_seconds_per_byte,
)
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import evaluate, microbatches_each, violations
from formulations.operator_partitioning.methods import MAX_DOWNSETS, NEAR
from formulations.operator_partitioning.paper.parmesan import intervals, partition
from instances.graph import adjacency
from instances.problems.operator_partitioning import OperatorInstance
from solvers.memory_budget import SizeError
from solvers.outcome import Limits, Prover, Stop, Watch


def solve(instance: OperatorInstance, _limits: Limits, watch: Watch) -> Answer[OperatorPlan]:
    """The best plan and a bound within 1e-9 of it; with a limit or a stop, the best so far and its bound."""
    reason = shortage(instance)
    if reason is not None:
        return infeasible_by_counting(reason)
    if watch.stopped():
        return Answer(stop=watch.why())
    with alarm(watch):
        if instance.num_stages is None:
            return _free(instance, watch)
        bits = all_downsets(instance, MAX_DOWNSETS)
        if bits is None:
            return _near(instance, watch)
        return _answer(Search(instance, bits, watch).least(load_bound(instance), _start(instance, watch)), len(bits))


def _near(instance: OperatorInstance, watch: Watch) -> Answer[OperatorPlan]:
    """Of too many downsets those near the best plan's stages, again and again: its plans, and the bound of the work."""
    n, bound = len(instance.operators), load_bound(instance) * (1 - ROUNDING)
    after, before = adjacency(n, instance.edges)
    watch.bound(bound, Prover.BOUNDS)
    plan, value, better = _start(instance, watch), math.inf, math.inf
    stats: dict[str, Any] = {"rounds": 0, "downsets": 0, "steps": 0, "tests": 0}
    while plan is not None and (better := evaluate(instance, plan)) < value * (1 - ROUNDING) and not watch.stopped():
        value = better
        watch.plan(plan, value)
        ends = [0]
        for stage in plan.stages:
            ends.append(ends[-1] | sum(1 << operator for operator in stage))
        bits = np.unique(downsets_near(before, after, ends, NEAR), axis=0)
        found = Search(instance, bits, watch).least(bound, plan, report=False)
        plan, stats["downsets"], stats["rounds"] = found.plan, len(bits), stats["rounds"] + 1
        stats["steps"], stats["tests"] = stats["steps"] + found.steps, stats["tests"] + found.tests
    words = "none near the stages of the best plan gives a better one" if plan else "Parmesan's plans do not fit"
    reason = f"{too_many(n, MAX_DOWNSETS)}: {words}"
    return Answer(plan, bound, stop=watch.why(Stop.SIZE_LIMIT), reason=reason, stats=stats)


def _enumerate_downsets(instance: OperatorInstance) -> Any:
    """All downsets; `SizeError` if they are too many, where memory is shorter than when the method was chosen, too."""
    bits = all_downsets(instance, MAX_DOWNSETS)
    if bits is None:
        raise SizeError(f"the graph has more than {MAX_DOWNSETS} downsets, or more than there is memory for")
    return bits


def _start(instance: OperatorInstance, watch: Watch) -> OperatorPlan | None:
    """The better of Parmesan's plan and a good cut of one order."""
    plans = [partition(instance, watch).plan, intervals(instance, watch)]
    feasible = [plan for plan in plans if plan is not None and not judge(violations, instance, plan)]
    return min(feasible, key=lambda plan: evaluate(instance, plan), default=None)


def _answer(found: Found, downsets: int) -> Answer[OperatorPlan]:
    return Answer(
        plan=found.plan,
        bound=None if found.infeasible else found.bound,
        infeasible=found.infeasible,
        stop=found.stop,
        reason="no chain of downsets fits" if found.infeasible else "",
        stats=effort_stats(found, downsets),
    )


def _free(instance: OperatorInstance, watch: Watch) -> Answer[OperatorPlan]:
    """Every (S, R), the one of the least bound first; each only as far as it may beat the best."""
    bits = _enumerate_downsets(instance)
    every = instances_by_shape(instance)
    bounds = {shape: step_bound(instance, shape, load_bound(each)) for shape, each in every.items()}
    stats: dict[str, Any] = {"downsets": len(bits), "steps": 0, "tests": 0}
    rest, proved = [], True
    for shape in sorted(every, key=lambda shape: bounds[shape]):
        if watch.best_objective is not None and bounds[shape] >= watch.best_objective:
            rest.append(bounds[shape])
            continue
        bound, stop = _least_step(instance, every[shape], Search(every[shape], bits, watch), watch, stats)
        rest.append(bound)
        if stop is not Stop.PROVED:
            proved = False
            done = len(rest)
            rest += [bounds[other] for other in sorted(every, key=lambda shape: bounds[shape])[done:]]
            break
    plan, value = watch.incumbent()
    if proved and plan is None:
        return Answer(infeasible=True, stop=Stop.PROVED, reason="no (S, R) has a plan that fits", stats=stats)
    bound = min([*rest, *([] if value is None else [value])])
    watch.bound(bound)
    return Answer(plan, bound, stop=Stop.PROVED if proved else watch.why(Stop.SIZE_LIMIT), stats=stats)


def _least_step(
    instance: OperatorInstance, each: OperatorInstance, search: Search, watch: Watch, stats: dict[str, Any]
) -> tuple[float, Stop]:
    """A bound on the steps of one (S, R), and why its search ended; plans go to the watch."""
    assert each.num_stages is not None
    rounds = (microbatches_each(instance, each.replicas) + each.num_stages - 1) * each.replicas
    per_byte = step_seconds_per_byte(instance, each.replicas)
    lower, cap, least = load_bound(each), math.inf, math.inf
    start = _start(each, watch)
    while True:
        found = search.least(lower, start if cap == math.inf else None, cap, report=False)
        stats["steps"], stats["tests"] = stats["steps"] + found.steps, stats["tests"] + found.tests
        if found.plan is None:
            ended = found.infeasible
            return (least if ended else min(least, rounds * lower)), Stop.PROVED if ended else found.stop
        value = evaluate(instance, found.plan)
        watch.plan(found.plan, value)
        lower = max(lower, found.bound)
        if found.stop is not Stop.PROVED:
            return min(least, rounds * lower), found.stop
        largest = max(
            math.fsum(instance.operators[operator].parameter_bytes for operator in stage) for stage in found.plan.stages
        )
        best = watch.best_objective if watch.best_objective is not None else value
        least = best * (1 - 10 * ROUNDING)
        # What is better has slowest stages of at least ``lower``, so its all-reduce must make up for it.
        cap = min(largest, (best - rounds * lower) / per_byte if per_byte else 0.0) * (1 - ROUNDING)
        if cap <= 0:
            return least, Stop.PROVED
