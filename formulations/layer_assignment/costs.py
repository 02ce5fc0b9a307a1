"""Tables that the methods share, and what all of them answer to an instance without a plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.family import Answer
from formulations.layer_assignment.problem import LayerPlan
from instances.layer_assignment import LayerAssignmentInstance
from solvers.outcome import Stop


class Tables(NamedTuple):
    """The instance as arrays; L layers, S stages.

    ``elapsed[c]``: seconds of the first c layers, shape (L + 1,). ``cut[c, j]``: seconds of a cut after the first c
    layers, between stage j - 1 and stage j, shape (L + 1, S). ``held[c, i]``: parameters of layers c to i - 1, shape
    (L + 1, L + 1), and ``ring[j]``: all-reduce seconds per parameter of stage j, shape (S,); both empty where there is
    no all-reduce.
    """

    elapsed: NDArray[np.float64]
    cut: NDArray[np.float64]
    held: NDArray[np.float64]
    ring: NDArray[np.float64]


def tables(instance: LayerAssignmentInstance, all_reduce: bool = True) -> Tables:
    """The instance as arrays, with its all-reduce or without."""
    layers, stages = instance.num_layers, instance.num_stages
    cut = np.zeros((layers + 1, stages))
    if layers > 1 and stages > 1:
        cut[1:layers, 1:] = np.array(instance.cut_cost_s)  # one column stands for all
    elapsed = np.concatenate([[0.0], np.cumsum(instance.layer_time_s)])
    if not (all_reduce and instance.ring_s_per_parameter):
        return Tables(elapsed, cut, np.zeros((0, 0)), np.zeros(0))
    return Tables(elapsed, cut, held_parameters(instance), np.array([instance.ring(stage) for stage in range(stages)]))


def held_parameters(instance: LayerAssignmentInstance) -> NDArray[np.float64]:
    """``Tables.held``; what lies below the diagonal means nothing."""
    total = np.concatenate([[0.0], np.cumsum(instance.parameters)])
    held: NDArray[np.float64] = total[None, :] - total[:, None]
    position = np.arange(instance.num_layers + 1)
    for tie in instance.tied:
        # A stage from c on holds the tie once it reaches the tie's first layer from c on.
        ordered = np.array([*sorted(set(tie.layers)), instance.num_layers])
        first = ordered[np.minimum(np.searchsorted(ordered, position), len(ordered) - 1)]
        held += tie.parameters * (position[None, :] > first[:, None])
    return held


def plan_of(lengths: Iterable[int]) -> LayerPlan:
    """A plan of whatever integers."""
    return LayerPlan(tuple(int(length) for length in lengths))


def shortage(instance: LayerAssignmentInstance) -> str | None:
    """Why there is no plan: more stages than layers; ``None`` if there is one."""
    if instance.num_stages <= instance.num_layers:
        return None
    stages, layers = instance.num_stages, instance.num_layers
    return f"{stages} stages need a layer each and there are {layers}: feasible with --stages {layers}"


def infeasible_answer(instance: LayerAssignmentInstance) -> Answer[LayerPlan] | None:
    """The proof that there is no plan, or ``None``."""
    reason = shortage(instance)
    return None if reason is None else Answer(infeasible=True, stop=Stop.PROVED, reason=reason)
