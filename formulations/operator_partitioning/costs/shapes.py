"""Where the number of stages is free: every (S, R) is an instance of its own, the best step wins.

Source: Parmesan, Appendix E. Source: reconstructed (it is not published).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.contract.quantities import judge
from formulations.operator_partitioning.costs.costs import ROUNDING, load_bound, most_replicas
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import evaluate, microbatches_each, shapes, violations
from instances.graph import adjacency
from instances.problems.operator_partitioning import OperatorInstance
from solvers.outcome import Prover, Watch


@dataclass(frozen=True)
class Flow:
    """What a heuristic made of an instance with a given S."""

    plan: OperatorPlan | None
    stats: Mapping[str, Any] = field(default_factory=dict)


def instances_by_shape(instance: OperatorInstance) -> dict[tuple[int, int], OperatorInstance]:
    """By (S, R): the instance with these, whose slowest stage is minimised; only itself where S is given."""
    if instance.num_stages is not None:
        return {(instance.num_stages, instance.replicas): replace(instance, flushed=False)}
    return {
        (stages, each): replace(instance, num_stages=stages, replicas=each, num_devices=None, at_most=False)
        for stages, each in shapes(instance)
        if stages <= len(instance.operators)
    }


def lower_bound(instance: OperatorInstance, least: Mapping[tuple[int, int], float] | None = None) -> float:
    """A bound on the objective from bounds on the slowest stage of every (S, R) (``least``; default: `load_bound`).

    The slowest all-reduce has at least an even share of the parameters, and the largest operator's.
    """
    bounds = []
    for shape, each in instances_by_shape(instance).items():
        load = load_bound(each) if least is None else least[shape]
        if instance.flushed:
            bounds.append(flushed_bound(instance, load))
        else:
            bounds.append(load if instance.num_stages is not None else step_bound(instance, shape, load))
    return min(bounds, default=0.0)


def flushed_bound(instance: OperatorInstance, load: float) -> float:
    """A bound on a flushed step whose slowest stage takes at least ``load`` over its replicas.

    With r replicas that stage takes r times as long for each of at least G / r micro-batches: all but the first take at
    least (G - r) load. A path of operators goes through stages of one path. Of free replicas each stage may have one,
    and no all-reduce.
    """
    assert instance.num_stages is not None and instance.step_microbatches is not None
    most = most_replicas(instance)
    others = max(0, instance.step_microbatches - most) * load
    sizes = [operator.parameter_bytes for operator in instance.operators]
    reduced = 0.0
    if instance.num_devices is None:
        reduced = max(max(sizes), sum(sizes) / instance.num_stages) * step_seconds_per_byte(instance, most)
    return (max(longest_operators(instance), load) + others + reduced) * (1 - ROUNDING)


def longest_operators(instance: OperatorInstance) -> float:
    """Seconds of the operators on the longest path of them."""
    until: list[float] = []
    into = adjacency(len(instance.operators), instance.edges)[1]
    for v, operator in enumerate(instance.operators):
        until.append(operator.compute_s + max((until[u] for u in into[v]), default=0.0))
    return max(until)


def step_bound(instance: OperatorInstance, shape: tuple[int, int], load: float) -> float:
    """A bound on a step with (S, R) whose slowest stage takes at least ``load`` over R."""
    stages, replicas = shape
    sizes = [operator.parameter_bytes for operator in instance.operators]
    largest = max(max(sizes), sum(sizes) / stages)
    rounds = microbatches_each(instance, replicas) + stages - 1
    return (rounds * load * replicas + largest * step_seconds_per_byte(instance, replicas)) * (1 - ROUNDING)


def step_seconds_per_byte(instance: OperatorInstance, replicas: int) -> float:
    """Seconds of an all-reduce for each byte of parameters."""
    return 2 * (replicas - 1) / (replicas * instance.bandwidth_bytes_per_s)


def answer_of(
    instance: OperatorInstance, watch: Watch, flow: Callable[[OperatorInstance], Flow]
) -> Answer[OperatorPlan]:
    """The best feasible plan that ``flow`` makes of any (S, R), and a bound that needs no search."""
    reason = shortage(instance)
    if reason is not None:
        return infeasible_by_counting(reason)
    stats: dict[str, Any] = {}
    broken, best = "", None
    tried = []
    for shape, each in instances_by_shape(instance).items():
        if watch.stopped():
            break
        found = flow(each)
        objective = None
        if found.plan is not None:
            rules = judge(violations, instance, found.plan)
            broken = broken or ", ".join(map(str, rules[:1]))
            objective = None if rules else evaluate(instance, found.plan)
        if objective is not None:
            if best is None or objective < best:
                best, stats = objective, dict(found.stats)
            watch.plan(found.plan, objective)
        elif best is None:
            stats = dict(found.stats)
        tried.append({"stages": shape[0], "replicas": shape[1], "objective": objective})
    if instance.num_stages is None:
        stats["shapes"] = tried
    watch.bound(lower_bound(instance), Prover.BOUNDS)
    reason = f"its plan breaks a rule: {broken}" if broken and watch.best_plan is None else ""
    return Answer(watch.best_plan, watch.best_bound, stop=watch.why(), reason=reason, stats=stats)


def shortage(instance: OperatorInstance) -> str | None:
    """Why there is no plan, whatever the memory, where that is plain to see; ``None`` otherwise."""
    count = len(instance.operators)
    if instance.num_stages is None:
        return (
            None if instances_by_shape(instance) else f"every (S, R) has more stages than there are operators, {count}"
        )
    if instance.num_stages > count and not instance.at_most:
        return f"{instance.num_stages} stages need an operator each, and there are {count}"
    least = 1 if instance.at_most else instance.num_stages
    if instance.num_devices is not None and instance.num_devices < least:
        return f"{least} stages need a device each, and there are {instance.num_devices}"
    return None
