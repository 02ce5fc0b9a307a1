"""Tables that the methods share, and what all of them answer to an instance without a plan."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import evaluate, violations
from formulations.modelling.solve_model import begin_with
from instances.errors import expect
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.memory_budget import demand
from solvers.outcome import Watch


class Tables(NamedTuple):
    """The instance as arrays; L layers, S stages.

    ``elapsed[j, c]``: seconds of the first c layers in stage j, and ``extra[j, c]`` how much more that is than each in
    the stage where it takes least, shape (S, L + 1). ``cut[c, j]``: seconds of a cut after the first c layers, between
    stage j - 1 and stage j, shape (L + 1, S). ``held[c, i]``: parameters of layers c to i - 1, shape (L + 1, L + 1),
    and ``ring[j]``: all-reduce seconds per parameter of stage j, shape (S,); both empty where there is no all-reduce.
    """

    elapsed: NDArray[np.float64]
    extra: NDArray[np.float64]
    cut: NDArray[np.float64]
    held: NDArray[np.float64]
    ring: NDArray[np.float64]

    @property
    def filled_cut(self) -> NDArray[np.float64]:
        """``cut``, and what it changes in the seconds of all stages once, beside all layers in the last one."""
        found = self.cut.copy()
        found[:, 1:] -= np.diff(self.extra, axis=0).T
        return found


def filling(instance: LayerAssignmentInstance, table: Tables) -> float:
    """Seconds of all stages once, but for what ``filled_cut`` says of cuts: all layers in the last stage."""
    return math.fsum(instance.least_time_s) + float(table.extra[-1, -1])


def tables(instance: LayerAssignmentInstance, all_reduce: bool = True) -> Tables:
    """The instance as arrays, with its all-reduce or without."""
    layers, stages = instance.num_layers, instance.num_stages
    demand(32.0 * (layers + 1) * stages, "the tables of layers and cuts of all stages")
    cut = np.zeros((layers + 1, stages))
    if layers > 1 and stages > 1:
        cut[1:layers, 1:] = np.array(instance.cut_cost_s)  # one column stands for all
    elapsed = np.tile(running_sums(instance.layer_time_s), (stages, 1))
    extra = np.zeros_like(elapsed)
    for stage, times in enumerate(instance.stage_time_s):
        elapsed[stage] = running_sums(times)
        extra[stage] = running_sums([time - least for time, least in zip(times, instance.least_time_s, strict=True)])
    if not (all_reduce and instance.ring_s_per_parameter):
        return Tables(elapsed, extra, cut, np.zeros((0, 0)), np.zeros(0))
    rings = np.array([instance.ring(stage) for stage in range(stages)])
    return Tables(elapsed, extra, cut, parameter_sums(instance), rings)


#: Bytes for each pair of layers: the table, what it is summed from, and the levels that are sorted.
_HELD_BYTES = 56


def running_sums(values: Sequence[float]) -> NDArray[np.float64]:
    """The sums of the first 0, 1, ... values, each rounded once; shape (L + 1,)."""
    ratios = [value.as_integer_ratio() for value in values]
    unit = max((below for _, below in ratios), default=1)  # powers of two: the largest is a multiple of all
    sums = accumulate((above * (unit // below) for above, below in ratios), initial=0)
    return np.array([each / unit for each in sums])


def parameter_sums(instance: LayerAssignmentInstance) -> NDArray[np.float64]:
    """``Tables.held``; what lies below the diagonal means nothing.

    Every entry is a sum of its own layers: in a difference of running sums a large layer would swallow the small ones
    behind it, and a slow ring makes those count. Sums of more layers are never smaller, rounded as they are.
    """
    layers = instance.num_layers
    demand(_HELD_BYTES * (layers + 1.0) ** 2, "the table of what every possible stage holds")
    held = np.zeros((layers + 1, layers + 1))
    held[:-1, 1:] = np.triu(np.broadcast_to(np.array(instance.parameters), (layers, layers)))
    held = np.cumsum(held, axis=1)
    position = np.arange(layers + 1)
    for tie in instance.tied:
        # A stage from c on holds the tie once it reaches the tie's first layer from c on.
        ordered = np.array([*sorted(set(tie.layers)), layers])
        first = ordered[np.minimum(np.searchsorted(ordered, position), len(ordered) - 1)]
        held += tie.parameters * (position[None, :] > first[:, None])
    return held


def rounding(instance: LayerAssignmentInstance) -> float:
    """How much of a computed value a bound gives up for sums of floats, relatively.

    A stage's time is a difference of running sums, so it is off by a few roundings of all stages' time, of which the
    slowest stage has at least one part in S; the published program adds S such differences. A stage's parameters are
    sums of up to L + ties terms.
    """
    terms = 4 * instance.num_stages**2 + 2 * (instance.num_layers + len(instance.tied)) + 32
    return 1e-12 + terms * 2.0**-53


def rounding_by_stage_s(instance: LayerAssignmentInstance) -> float:
    """Seconds that a bound gives up beside `rounding` where stages differ: sums are as large as on the slowest ones."""
    most = math.fsum(map(max, zip(*instance.stage_time_s, strict=True)))
    return 4 * instance.num_microbatches * rounding(instance) * most


def balance_factor(instance: LayerAssignmentInstance) -> int:
    """No assignment is better than `balance` by more than this; where stages differ, so may all of them together."""
    return instance.num_stages * (2 if instance.stage_time_s else 1) + 3


def balance(instance: LayerAssignmentInstance) -> LayerPlan:
    """The assignment whose largest single cost is least, less than `balance_factor` times as slow as the best one.

    A single cost is a cut, or a stage's time for all micro-batches with its all-reduce: whatever pays it is
    at least as slow. The models of ``cpsat`` and ``milp`` leave out what costs more than this assignment, which keeps
    their numbers within a few magnitudes.
    """
    table, stages, layers = tables(instance), instance.num_stages, instance.num_layers
    demand(16.0 * (stages + 1) * (layers + 1), "the table of stages and layers")
    largest = np.full((stages + 1, layers + 1), np.inf)  # of the first i layers in j stages
    largest[0, 0] = 0.0
    back = np.zeros((stages + 1, layers + 1), np.int64)
    for end in range(1, layers + 1):
        for stage in range(max(0, end - layers + stages - 1), min(stages, end)):
            times = instance.num_microbatches * (table.elapsed[stage, end] - table.elapsed[stage, :end])
            cost = times + table.ring[stage] * table.held[:end, end] if len(table.ring) else times
            cost = np.maximum(np.maximum(cost, table.cut[:end, stage]), largest[stage, :end])
            back[stage + 1, end] = np.argmin(cost)
            largest[stage + 1, end] = cost[back[stage + 1, end]]
    lengths, end = [], layers
    for stage in range(stages, 0, -1):
        lengths.append(end - back[stage, end])
        end = int(back[stage, end])
    return plan_of(reversed(lengths))


#: Where no assignment is known that meets the requirements, costs count up to so many times those of `balance`.
_FAR = 1e3


def within_reach(instance: LayerAssignmentInstance, *, has_requirements: bool) -> LayerAssignmentInstance:
    """The instance whose layers take no longer in a stage than `balance` takes in all; with requirements, far longer.

    An assignment with such a layer is worse than `balance`. As costs only fall, bounds hold for the instance as it is,
    and sums of layers that no stage of a good assignment has do not round the others away.
    """
    if not instance.stage_time_s or shortage(instance) is not None:
        return instance
    most = evaluate(instance, balance(instance)) * (_FAR if has_requirements else 1 + 1e-9) / instance.num_microbatches
    return replace(
        instance, stage_time_s=tuple(tuple(min(time, most) for time in own) for own in instance.stage_time_s)
    )


def ceiling(instance: LayerAssignmentInstance, watch: Watch, *, complete: bool) -> tuple[float | None, float, float]:
    """What a model needs to know of the size of its costs, in seconds.

    The objective of the best assignment that the watch knows (`balance` is reported to it; ``None``: none, or
    ``complete``); what more expensive parts may as well cost; and that of `balance`, whether or not it meets the
    requirements: no assignment is better by more than its `balance_factor`. `InstanceError` if there are fewer layers
    than stages: such an instance has no assignment, and its models no costs.
    """
    expect(shortage(instance) is None, instance.name, "layers", instance.num_layers, f">= {instance.num_stages} stages")
    first = balance(instance)
    balanced_s = evaluate(instance, first)
    if complete:
        return None, math.inf, balanced_s
    begin_with(instance, first, evaluate, violations, watch)
    known = watch.best_objective
    return known, _FAR * balanced_s if known is None else known, balanced_s


def plan_of(lengths: Iterable[int]) -> LayerPlan:
    """A plan of whatever integers."""
    return LayerPlan(tuple(int(length) for length in lengths))


def shortage(instance: LayerAssignmentInstance) -> str | None:
    """Why there is no plan: more stages than layers; ``None`` if there is one."""
    if instance.num_stages <= instance.num_layers:
        return None
    stages, layers = instance.num_stages, instance.num_layers
    return f"{stages} stages need a layer each and there are {layers}"


def infeasible_answer(instance: LayerAssignmentInstance) -> Answer[LayerPlan] | None:
    """The proof that there is no plan, or ``None``."""
    reason = shortage(instance)
    return None if reason is None else infeasible_by_counting(reason)
