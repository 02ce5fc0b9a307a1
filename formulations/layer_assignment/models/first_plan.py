"""What the declarative models begin with: the balanced plan, improved by a local search that knows no bound."""

import random

import numpy as np

from formulations.compiled.array_types import Floats
from formulations.layer_assignment.costs import Tables, balance, plan_of, tables
from formulations.layer_assignment.definition.problem import evaluate
from formulations.modelling.warm_start import First
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.outcome import Limits, Watch

#: So often the best cuts so far are shaken, so many of them at a time, and improved again: some 0.6 s for 400 layers.
_SHAKES, _AT_A_TIME = 100, 3

#: A move that gains less than this, relatively, is none: sums in another order would make it endless.
_GAIN = 1e-12


def first_plan(instance: LayerAssignmentInstance, limits: Limits) -> First:
    """The best plan of a local search that moves one cut at a time, from the balanced plan and from near the best."""

    def find(watch: Watch) -> None:
        plan = balance(instance)
        watch.plan(plan, evaluate(instance, plan))
        table, weight = tables(instance), float(instance.num_microbatches - 1)
        rng, stages = random.Random(limits.seed), instance.num_stages
        ends = np.array([0, *np.cumsum(plan.lengths)])
        best = np.inf
        for shake in range(_SHAKES + 1):
            if watch.stopped() or stages == 1:
                return
            trial = ends.copy()
            for _ in range(_AT_A_TIME if shake else 0):
                j = rng.randrange(1, stages)
                trial[j] = rng.randrange(trial[j - 1] + 1, trial[j + 1])
            while sum(_move_cut(table, weight, trial, j) for j in range(1, stages)) and not watch.stopped():
                pass
            plan = plan_of(np.diff(trial))
            objective = evaluate(instance, plan)
            if objective < best:
                ends, best = trial, objective
                watch.plan(plan, objective)

    return First("balanced cuts, moved one by one", find)


def _move_cut(table: Tables, weight: float, ends: Floats, j: int) -> bool:
    """Move the cut before stage j to where it is best while the others stay; whether that gains anything."""
    before, after = ends[j - 1], ends[j + 1]
    at = np.arange(before + 1, after)
    stages = np.arange(len(ends) - 1)
    times = table.elapsed[stages, ends[1:]] - table.elapsed[stages, ends[:-1]]
    others, (left, right) = np.delete(times, [j - 1, j]).max(initial=0.0), table.elapsed[j - 1 : j + 1]
    both = np.maximum(left[at] - left[before], right[after] - right[at])
    cost = weight * np.maximum(others, both) + table.cut[at, j] + table.extra[j - 1, at] - table.extra[j, at]
    cost += table.extra[j, after] - table.extra[j - 1, before]
    if len(table.ring):
        held, ring = table.held, table.ring
        others = np.delete(ring * held[ends[:-1], ends[1:]], [j - 1, j]).max(initial=0.0)
        cost += np.maximum(others, np.maximum(ring[j - 1] * held[before, at], ring[j] * held[at, after]))
    best = int(np.argmin(cost))
    if not cost[best] < cost[ends[j] - before - 1] * (1 - _GAIN):
        return False
    ends[j] = at[best]
    return True
