"""Layer assignment for CP-SAT: ``begun[j, l]`` is 1 if stage j begins at layer l or before.

Without an all-reduce and requirements `solve` searches intervals of the slowest stage's time (`by_slowest`): within a
cap on it the same variables need nothing but implications (`within_cap`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.layer_assignment.costs import ceiling, infeasible_answer, plan_of
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import evaluate, violations
from formulations.layer_assignment.definition.quantities import VOCABULARY
from formulations.layer_assignment.models import threshold_search
from formulations.layer_assignment.models.first_plan import first_plan
from formulations.layer_assignment.models.within_cap import WithinCap
from formulations.modelling.solve_model import WithoutSizes, prove, require
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Run, Watch
from solvers.scaling import Scale, cost_scale

Linear = Any


@dataclass
class Model(cpsat.Runnable, WithoutSizes):
    """``begun[j][l]`` for stages 0 to S and layers 0 to L - 1; constants where there is no choice.

    ``times[l]`` and ``cuts[j - 1][l]`` are seconds in whole units, the latter of the cut between layer l and the one
    before, for stage j; ``weight`` is N - 1. ``searches``: run it by the time of the slowest stage; not where there
    is an all-reduce or a requirement, or where others may have changed the model.
    """

    model: cp_model.CpModel
    begun: list[list[Any]]
    scale: Scale
    constant: float
    times: list[int]
    cuts: list[list[int]]
    weight: int
    searches: bool = False

    def run(
        self,
        limits: Limits,
        watch: Watch,
        on_solution: Callable[[Any], None] | None = None,
        on_bound: Callable[[float], None] | None = None,
    ) -> Run:
        """Search by the time of the slowest stage (`by_slowest`), or run the model as it is."""
        if not self.searches or on_solution is None or on_bound is None:
            return super().run(limits, watch, on_solution, on_bound)
        units = WithinCap(self.times, self.cuts, self.weight, replace(limits, gap=0.0), watch)

        def within(cap: float) -> threshold_search.Cheapest | None:
            found = units.cheapest(cap)
            if found is None:
                return None
            cheapest, starts = found
            return cheapest._replace(values=self._values(starts)) if starts else cheapest

        plan = watch.best_plan
        known = math.inf if plan is None else units.objective(plan.lengths)
        found = threshold_search.search(units.caps(known), within, known, limits, watch, on_solution, on_bound)
        variables, constraints = units.size
        stats = {"variables": variables, "constraints": constraints, **found.stats}
        return replace(found, solver=cpsat.version(), stats=stats)

    def _values(self, starts: list[int]) -> cpsat.Values:
        """The model's solution for stages that start at these layers."""
        lengths = [end - start for start, end in itertools.pairwise(starts)]
        known = {variable.index: value for variable, value in self.values_of(plan_of(lengths))}
        return cpsat.Values(lambda variable: known[variable.index])

    def lengths(self, values: Any) -> list[int]:
        """Layers of each stage in a solution."""

        def begun(entry: Any) -> int:
            return entry if isinstance(entry, int) else int(values[entry])

        counts = [sum(begun(entry) for entry in row) for row in self.begun]
        return [here - after for here, after in itertools.pairwise(counts)]

    def decode(self, values: Any) -> LayerPlan:
        """The plan of a solution."""
        return plan_of(self.lengths(values))

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of an assignment, as sums over what has begun."""
        begun = self.begun

        def stage_of(layer: int) -> Any:
            return sum(row[layer] for row in begun[1:])

        def same_stage(layer: int, other: int) -> Any:
            stages_between = stage_of(max(layer, other)) - stage_of(min(layer, other))
            return self.is_zero(f"together[{layer},{other}]", stages_between)

        return {
            "layers": lambda stage: sum(begun[stage]) - sum(begun[stage + 1]),
            "stage_of": stage_of,
            "same_stage": same_stage,
        }

    def values_of(self, plan: LayerPlan) -> Iterator[tuple[Any, int]]:
        """The values of all cuts in a plan."""
        starts = [0, *itertools.accumulate(plan.lengths)]
        for j, row in enumerate(self.begun):
            yield from ((each, int(layer >= starts[j])) for layer, each in enumerate(row) if not isinstance(each, int))

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        return (self.constant + self.scale.restore(max(0, cpsat.whole(bound)))) * (1 - 1e-14)


def build(instance: LayerAssignmentInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model; all costs are rounded down to units. The sum of all stages is a constant and stays outside.

    Nothing is left out for a known assignment, but costs may be cut off at it (`ceiling`), unless ``complete``.
    """
    layers, stages = instance.num_layers, instance.num_stages
    model = cpsat.SpokenModel()
    # Stage j has j layers in front of it at least, and leaves a layer for itself and each later stage.
    free = [
        [model.new_bool_var(f"begun[{j},{layer}]") for layer in range(j, layers - stages + j)] for j in range(1, stages)
    ]
    middle: list[list[Any]] = [[0] * j + row + [1] * (stages - j) for j, row in enumerate(free, 1)]
    begun = [[1] * layers, *middle, [0] * layers]
    model.says("begun", "begun[j,l]: stage j begins at layer l or before")
    model.says("together", "together[l,m]: layers l and m are in one stage, for a requirement")
    model.says("together_if", "then no stage begins between them")
    model.says("together_unless", "else some stage does")
    model.says("stays_begun", "what has begun stays so: begun[j,l] <= begun[j,l+1]")
    model.says("not_empty", "stage j has a layer before stage j + 1 begins: begun[j+1,l+1] <= begun[j,l]")
    for j in range(1, stages):
        for layer in range(layers - 1):
            model.add(begun[j][layer] <= begun[j][layer + 1]).with_name(f"stays_begun[{j},{layer}]")
            model.add(begun[j][layer + 1] <= begun[j - 1][layer]).with_name(f"not_empty[{j - 1},{layer}]")

    # Whatever costs more than a known assignment may as well cost that much.
    _, most_s, balanced_s = ceiling(instance, watch or Watch(), complete=complete)
    scale = _scale(instance, most_s, balanced_s)
    slowest = _slowest(model, instance, begun, scale)
    cuts = [
        [0, *(scale.floor(min(instance.cut_cost(layer - 1, j - 1), most_s)) for layer in range(1, layers))]
        for j in range(1, stages)
    ]
    sending = [
        cuts[j - 1][layer] * (begun[j][layer] - begun[j][layer - 1])
        for j in range(1, stages)
        for layer in range(1, layers)
    ]
    all_reduce = _all_reduce(model, instance, begun, scale, most_s)
    # Section 6.4 without the sum of t:  (gas - 1) max t + sum of e  (plus the all-reduce, reconstructed)
    model.minimize((instance.num_microbatches - 1) * slowest + sum(sending) + all_reduce)
    times = [scale.floor(time) for time in instance.layer_time_s]
    weight = instance.num_microbatches - 1
    found = Model(model, begun, scale, math.fsum(instance.layer_time_s), times, cuts, weight)
    require(found, VOCABULARY, instance)
    return found


def _scale(instance: LayerAssignmentInstance, most_s: float, balanced_s: float) -> Scale:
    total = math.fsum(instance.layer_time_s)
    weight, stages = instance.num_microbatches - 1, instance.num_stages
    waiting = weight * max(max(instance.layer_time_s), total / stages)
    sending = min(math.fsum(max(row, default=0.0) for row in instance.cut_cost_s), most_s) * stages
    syncing = _most_syncing(instance, most_s)
    terms = instance.num_layers * (weight + 2) + stages
    least = max(total + waiting, balanced_s / (stages + 3))  # `balanced` is not farther off
    return cost_scale(least, terms, (weight + 1) * total + sending + syncing)


def _most_syncing(instance: LayerAssignmentInstance, most_s: float) -> float:
    """What no stage's all-reduce exceeds, if no layer's counts as more than ``most_s``."""
    sizes = math.fsum([*instance.parameters, *(tie.parameters for tie in instance.tied)])
    terms = instance.num_layers + len(instance.tied)
    return min(sizes * max(instance.ring_s_per_parameter, default=0.0), most_s * terms)


def _slowest(
    model: cpsat.SpokenModel, instance: LayerAssignmentInstance, begun: list[list[Any]], scale: Scale
) -> Linear:
    """max t of section 6.4."""
    model.says("slowest", "seconds of the slowest stage")
    model.says("stage_time", "the slowest stage takes as long as every stage: slowest >= t_j [AMP, section 6.4]")
    times = [scale.floor(time) for time in instance.layer_time_s]
    slowest = model.new_int_var(0, sum(times), "slowest")
    for j, (here, after) in enumerate(itertools.pairwise(begun)):
        assigned = [here[layer] - after[layer] for layer in range(instance.num_layers)]
        stage_time = sum(time * layer for time, layer in zip(times, assigned, strict=True))
        model.add(slowest >= stage_time).with_name(f"stage_time[{j}]")
    return slowest


def _all_reduce(
    model: cpsat.SpokenModel, instance: LayerAssignmentInstance, begun: list[list[Any]], scale: Scale, most_s: float
) -> Linear:
    """At least the all-reduce of every stage; 0 if there is none."""
    model.says("all_reduce", "seconds of the slowest all-reduce")
    model.says("stage_all_reduce", "the slowest all-reduce takes as long as every stage's [reconstructed]")
    model.says("holds", "holds[j,i]: stage j has a layer with the tied parameters i")
    model.says("shared", "a stage with any of the tied layers holds what they share: holds[j,i] >= its layers of i")
    if not instance.ring_s_per_parameter:
        return 0
    all_reduce_s = _most_syncing(instance, most_s)
    longest = model.new_int_var(0, scale.ceil(all_reduce_s), "all_reduce")
    for j in range(instance.num_stages):
        ring = instance.ring(j)
        assigned = [begun[j][layer] - begun[j + 1][layer] for layer in range(instance.num_layers)]
        costs = [
            scale.floor(min(ring * size, most_s)) * layer
            for size, layer in zip(instance.parameters, assigned, strict=True)
        ]
        for number, tie in enumerate(instance.tied):
            holds = model.new_bool_var(f"holds[{j},{number}]")
            for layer in tie.layers:
                model.add(holds >= assigned[layer]).with_name(f"shared[{j},{number},{layer}]")
            costs.append(scale.floor(min(ring * tie.parameters, most_s)) * holds)
        model.add(longest >= sum(costs)).with_name(f"stage_all_reduce[{j}]")
    return longest


def solve(instance: LayerAssignmentInstance, limits: Limits, watch: Watch) -> Answer[LayerPlan]:
    """The best assignment; the bound is within 1e-7 of it unless 56 bits are too few for the spread of the costs."""
    infeasible = infeasible_answer(instance)
    if infeasible is not None:
        return infeasible
    first = first_plan(instance, limits)

    def model() -> Model:
        found = build(instance, watch)
        found.searches = not instance.ring_s_per_parameter and not instance.requirements
        return found

    return prove(instance, model, evaluate, violations, limits, watch, to_scale=True, first=first)
