"""AMP's layer assignment, as the paper means it and as released, and the splits that it is compared with.

| Paper              | Here                                                        |
|--------------------|-------------------------------------------------------------|
| gas                | ``num_microbatches``                                        |
| pp                 | ``num_stages``                                              |
| t_l                | ``layer_time_s[l]``; t_{1,i'}, t_{2,i'}: sums of stages     |
| e_{i',j}           | ``cut_cost(i' - 1, j - 1)``                                 |
| m                  | the slowest stage to the right                              |
| dp[i][j][m]        | ``before`` and ``here`` in `kernels.published`              |

Source: AMP's supplement, section 6.4; the release's deviations: its specification (see README.md).
"""

import math

import numpy as np

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer
from formulations.layer_assignment.costs import (
    infeasible_answer,
    parameter_sums,
    plan_of,
    rounding,
    running_sums,
    tables,
)
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import evaluate
from formulations.layer_assignment.kernels import published
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.memory_budget import demand
from solvers.outcome import Limits, Stop, Watch


def solve_amp(instance: LayerAssignmentInstance, _limits: Limits, watch: Watch) -> Answer[LayerPlan]:
    """Equation 6 solved as section 6.4 means it: the optimum, unless an all-reduce is declared, which it ignores.

    Its own value is a bound either way, as the all-reduce only adds to it; not where stages differ, which it ignores.
    """
    return _program(instance, watch, forgets=False)


def solve_released(instance: LayerAssignmentInstance, _limits: Limits, watch: Watch) -> Answer[LayerPlan]:
    """The released program: its incumbents forget their cut's cost, and one micro-batch gets Megatron's split."""
    if instance.num_microbatches == 1 and instance.num_stages > 1:
        return solve_megatron(instance, _limits, watch)
    return _program(instance, watch, forgets=True)


def _program(instance: LayerAssignmentInstance, watch: Watch, forgets: bool) -> Answer[LayerPlan]:
    infeasible = infeasible_answer(instance)
    if infeasible is not None:
        return infeasible
    table, elapsed = tables(instance, all_reduce=False), running_sums(instance.layer_time_s)
    demand(40.0 * len(elapsed) ** 2, "the table of sums of neighbouring layers")
    sums, rank = _distinct_sums(elapsed)
    lengths = np.zeros(instance.num_stages, np.int64)
    demand(4.0 * instance.num_stages * len(elapsed) * len(sums), "the published program's table")
    back = np.zeros((instance.num_stages, len(elapsed), len(sums)), np.int32)
    weight = float(instance.num_microbatches - 1)
    with alarm(watch):
        flag = np.frombuffer(watch.flag, np.uint8)
        value = published.assign(sums, rank, table.cut, weight, forgets, back, lengths, flag)
    if math.isinf(value):
        return Answer(stop=watch.why())
    plan = plan_of(lengths)
    watch.plan(plan, evaluate(instance, plan))
    is_other = forgets or bool(instance.stage_time_s)
    bound = None if is_other else (value + math.fsum(instance.layer_time_s)) * (1 - rounding(instance))
    if bound is not None:
        watch.bound(bound)
    return Answer(plan=plan, bound=bound, stop=Stop.COMPLETED, stats={"sums": len(sums)})


def _distinct_sums(elapsed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    differences = np.maximum(elapsed[None, :] - elapsed[:, None], 0.0)
    sums, rank = np.unique(differences, return_inverse=True)
    return sums, np.ascontiguousarray(rank.reshape(differences.shape))


def solve_uniform(instance: LayerAssignmentInstance, _limits: Limits, watch: Watch) -> Answer[LayerPlan]:
    """As many layers for each stage as for the others, the first ones one more."""
    return _answer(instance, watch, _even_lengths(instance.num_layers, instance.num_stages))


def solve_megatron(instance: LayerAssignmentInstance, _limits: Limits, watch: Watch) -> Answer[LayerPlan]:
    """Equal blocks split evenly; the first stage also takes the head, the last one the tail.

    With fewer blocks than stages it has no answer.
    """
    head, tail, stages = instance.head_layers, instance.tail_layers, instance.num_stages
    lengths = _even_lengths(instance.num_layers - head - tail, stages)
    lengths[0] += head
    lengths[-1] += tail
    return _answer(instance, watch, lengths)


def solve_parameters(instance: LayerAssignmentInstance, _limits: Limits, watch: Watch) -> Answer[LayerPlan]:
    """The largest stage holds as few parameters as it can; earlier stages are filled first."""
    infeasible = infeasible_answer(instance)
    if infeasible is not None:
        return infeasible
    held = parameter_sums(instance)
    levels = np.unique(held[np.triu_indices(len(held), 1)])
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        if _fill_stages(held, levels[middle], instance.num_stages) is None:
            low = middle + 1
        else:
            high = middle
    return _answer(instance, watch, _fill_stages(held, levels[high], instance.num_stages) or [])


def _fill_stages(held: np.ndarray, limit: float, num_stages: int) -> list[int] | None:
    """Stages filled in turn up to the limit, leaving a layer for each later one; ``None`` if layers are left over."""
    lengths, start, num_layers = [], 0, len(held) - 1
    for later in range(num_stages - 1, -1, -1):
        end = int(np.searchsorted(held[start, start + 1 :], limit, side="right")) + start
        end = min(end, num_layers - later)
        if end == start:
            return None
        lengths.append(end - start)
        start = end
    return lengths if start == num_layers else None


def _even_lengths(count: int, parts: int) -> list[int]:
    each, more = divmod(count, parts)
    return [each + (part < more) for part in range(parts)]


def _answer(instance: LayerAssignmentInstance, watch: Watch, lengths: list[int]) -> Answer[LayerPlan]:
    infeasible = infeasible_answer(instance)
    if infeasible is not None:
        return infeasible
    if min(lengths) < 1:
        return Answer(reason="fewer blocks than stages", stop=Stop.COMPLETED)
    plan = plan_of(lengths)
    watch.plan(plan, evaluate(instance, plan))
    return Answer(plan=plan, stop=Stop.COMPLETED)
