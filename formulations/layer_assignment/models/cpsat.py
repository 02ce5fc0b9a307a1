"""Layer assignment for CP-SAT: when each stage begins.

With a number in place of the slowest stage's time the rows are implications alone and the cost is that of a minimum
cut, which CP-SAT proves at its root: `Model.run` searches those numbers (`modelling.threshold_search`) where there is
no all-reduce and no requirement. Symbols as in the README.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from operator import lt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.contract.family import Answer
from formulations.layer_assignment.costs import balance_factor, ceiling, infeasible_answer, plan_of, within_reach
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import evaluate, violations
from formulations.layer_assignment.definition.quantities import VOCABULARY
from formulations.layer_assignment.models.first_plan import first_plan
from formulations.modelling.solve_model import WithoutSizes, add_requirements, prove
from formulations.modelling.threshold_search import Cheapest, search_intervals
from instances.problems.layer_assignment import LayerAssignmentInstance
from solvers.cpsat import backend as cpsat
from solvers.memory_budget import demand
from solvers.outcome import Limits, OnBound, OnSolution, Run, Stop, Watch
from solvers.scaling import Scale, cost_scale


@dataclass(frozen=True)
class Data:
    """An instance in whole units of ``scale``, rounded down: L layers, S stages, ``weight`` is gas - 1.

    ``times[j][l]`` is t_l in stage j, and ``extra[j][l]`` what that is more than in the stage where it is least;
    ``cuts[j][l]`` e of the cut before layer l if stage j begins there; ``rings[j][l]`` what layer l adds to the
    all-reduce of stage j, which is at most ``most_all_reduce``, and ``tied[i]`` are layers and what they add together
    to that of each stage: all empty without one. ``constant``: all layers where they take least, in seconds.
    """

    weight: int
    times: list[list[int]]
    extra: list[list[int]]
    cuts: list[list[int]]
    rings: list[list[int]]
    tied: list[tuple[tuple[int, ...], list[int]]]
    most_all_reduce: int
    scale: Scale
    constant: float

    @cached_property
    def elapsed(self) -> NDArray[np.int64]:
        """Of the first c layers in stage j, shape (S, L + 1)."""
        return np.array([[0, *accumulate(times)] for times in self.times], np.int64)

    def end(self, stage: int, start: int, target: int) -> int:
        """Where a stage that begins at a layer ends at the latest, if it takes no longer than a target."""
        own = self.elapsed[stage]
        return int(np.searchsorted(own, own[start] + target, side="right")) - 1

    def windows(self, target: int | None) -> tuple[list[int], list[int]] | None:
        """The first and last layer at which stage j, from 0 to S, may begin; ``None``: no assignment has the target."""
        elapsed, stages = self.elapsed, len(self.cuts)
        layers, most = elapsed.shape[1] - 1, int(elapsed[:, -1].max()) if target is None else target
        last = [0]
        for j in range(1, stages):
            last.append(min(self.end(j - 1, last[-1], most), layers - stages + j))
        first = [layers]
        for j in reversed(range(stages)):
            first.append(max(int(np.searchsorted(elapsed[j], elapsed[j, first[-1]] - most, side="left")), j))
        first, last = first[::-1], [*last, layers]
        holds = all(a <= b for a, b in zip(first, last, strict=True)) and all(map(lt, first, last[1:]))
        return (first, last) if holds else None

    def targets(self, most: float) -> NDArray[np.int64]:
        """What waiting for the slowest stage may cost, ascending, if less than ``most``.

        It is the time of some interval of layers, and no less than the average stage's or the slowest layer's.
        """
        if not self.weight:
            return np.zeros(1, np.int64)
        shortest = [min(times) for times in zip(*self.times, strict=True)]
        least, below = max(-(-sum(shortest) // len(self.cuts)), *shortest), int(min(most / self.weight, 2.0**62)) + 1
        times = []
        for elapsed in np.unique(self.elapsed, axis=0):
            first = np.searchsorted(elapsed, elapsed[:-1] + least, side="left")
            last = np.searchsorted(elapsed, elapsed[:-1] + min(below, 2**62 - int(elapsed[-1])), side="left")
            demand(24.0 * np.maximum(last - first, 0).sum(), "the table of caps on the slowest stage")
            times += [elapsed[a:b] - elapsed[start] for start, (a, b) in enumerate(zip(first, last, strict=True))]
        return np.unique(np.concatenate(times)) * self.weight

    def waiting_cost(self, plan: LayerPlan) -> int:
        """What waiting for the slowest stage costs."""
        ends = [0, *accumulate(plan.lengths)]
        parts = zip(self.elapsed, pairwise(ends), strict=True)
        return self.weight * max(int(own[after] - own[here]) for own, (here, after) in parts)

    def cut_cost(self, plan: LayerPlan) -> int:
        """What all cuts cost, and what layers take more than where they take least."""
        ends = [0, *accumulate(plan.lengths)]
        extra = sum(sum(own[here:after]) for own, (here, after) in zip(self.extra, pairwise(ends), strict=False))
        return extra + sum(row[start] for row, start in zip(self.cuts[1:], ends[1:], strict=False))


def data_of(instance: LayerAssignmentInstance, watch: Watch, *, complete: bool) -> Data:
    """The instance in whole units; what costs more than a known assignment (`ceiling`) may as well cost that much."""
    _, most_s, balanced_s = ceiling(instance, watch, complete=complete)
    if not complete:
        instance = within_reach(instance, has_requirements=bool(instance.requirements))
    layers, stages, weight = instance.num_layers, instance.num_stages, instance.num_microbatches - 1
    total, times = math.fsum(instance.least_time_s), [instance.times(j) for j in range(stages)]
    slowest = total if not instance.stage_time_s else math.fsum(map(max, *times, times[0]))
    rings = [instance.ring(j) for j in range(stages)] if instance.ring_s_per_parameter else []
    sizes = math.fsum([*instance.parameters, *(tie.parameters for tie in instance.tied)])
    syncing = min(sizes * max(rings, default=0.0), most_s * (layers + len(instance.tied)))
    sending = min(math.fsum(max(row, default=0.0) for row in instance.cut_cost_s), most_s) * stages
    least = max(
        total + weight * max(*instance.least_time_s, total / stages), balanced_s / balance_factor(instance)
    )  # `balanced` is not farther off
    terms = layers * (weight + 2) + stages + layers * bool(instance.stage_time_s)
    scale = cost_scale(least, terms, (weight + 1) * slowest + sending + syncing)

    def units(seconds: float) -> int:
        return scale.floor(min(seconds, most_s))

    return Data(
        weight,
        [[scale.floor(time) for time in own] for own in times],
        [
            [scale.floor(time - best) for time, best in zip(own, instance.least_time_s, strict=True)]
            for own in instance.stage_time_s
        ],
        [
            [units(instance.cut_cost(layer - 1, j - 1)) if j and layer else 0 for layer in range(layers)]
            for j in range(stages)
        ],
        [[units(ring * size) for size in instance.parameters] for ring in rings],
        [(tie.layers, [units(ring * tie.parameters) for ring in rings]) for tie in instance.tied if rings],
        scale.ceil(syncing),
        scale,
        total,
    )


def build(data: Data, target: int | None = None) -> tuple[cpsat.SpokenModel, list[list[Any]]]:
    """The model and ``begun``, where 0 and 1 are known; with a target, of stages that take no longer, at its cost."""
    windows = data.windows(target)
    assert windows is not None, "no assignment has the target"
    first, last = windows
    layers, stages = range(len(data.times[0])), range(len(data.cuts))

    # fmt: off
    model = cpsat.SpokenModel()
    free = model.booleans("begun", [(j, layer) for j in stages for layer in range(first[j], last[j])],
        "begun[j,l]: stage j begins at layer l or before")
    begun = [[free.get((j, layer), int(layer >= last[j])) for layer in layers] for j in range(len(stages) + 1)]
    has = [[here - after for here, after in zip(*rows, strict=True)] for rows in pairwise(begun)]
    model.rows("stays_begun", free, lambda j, layer: begun[j][layer] <= begun[j][layer + 1],
        "what has begun stays so: begun[j,l] <= begun[j,l+1]")
    ends = [(j, last[j]) for j in stages if (j - 1, last[j] - 1) in free]  # a layer there is too long for stage j - 1
    model.rows("not_empty", [*free, *ends], lambda j, layer: begun[j][layer] <= begun[j - 1][layer - 1],
        "stage j - 1 has a layer before stage j begins: begun[j,l] <= begun[j-1,l-1]")

    says = ("the slowest stage takes as long as every stage: slowest >= t_j [AMP, section 6.4]; with a number in its "
            "place begun[j,l] <= begun[j+1,r], r the first layer for which layers l to r take longer")
    if target is None:
        slowest = model.integer("slowest", 0, max(map(sum, data.times)), "seconds of the slowest stage")
        model.rows("stage_time", stages, lambda j: slowest >= _total(data.times[j], has[j]), says)
    else:
        slowest, after = target, {(j, layer): (j + 1, data.end(j, layer, target)) for j, layer in free}
        later = [at for at in free if after[at] in free]
        model.rows("stage_time", later, lambda *at: free[at] <= free[after[at]], says)

    sending = [data.cuts[j][layer] * (begun[j][layer] - begun[j][layer - 1])
               for j in stages[1:] for layer in range(first[j], last[j] + 1)]
    sending += map(_total, data.extra, has)

    synced, tied = range(len(data.rings)), list(enumerate(data.tied))
    all_reduce = model.integer("all_reduce", 0, data.most_all_reduce if synced else 0,
        "seconds of the slowest all-reduce")
    holds = model.booleans("holds", [(j, i) for j in synced for i, _ in tied],
        "holds[j,i]: stage j has a layer with the tied parameters i")
    model.rows("shared", [(j, i, layer) for j in synced for i, (own, _) in tied for layer in own],
        lambda j, i, layer: holds[j, i] >= has[j][layer],
        "a stage with any of the tied layers holds what they share: holds[j,i] >= its layers of i")
    model.rows("stage_all_reduce", synced,
        lambda j: all_reduce >= _total(data.rings[j], has[j]) + sum(costs[j] * holds[j, i] for i, (_, costs) in tied),
        "the slowest all-reduce takes as long as every stage's [reconstructed]")
    # fmt: on

    # (gas - 1) max t + sum of e + A [AMP, Equation 4], and what all stages take more than the constant
    model.minimize(data.weight * slowest + sum(sending) + all_reduce)
    return model, begun


def _total(costs: list[int], variables: list[Any]) -> Any:
    return sum(cost * variable for cost, variable in zip(costs, variables, strict=True))


@dataclass
class Model(cpsat.Runnable, WithoutSizes):
    """The model of ``data``; ``searches``: it is built and run with targets."""

    model: cpsat.SpokenModel
    begun: list[list[Any]]
    data: Data
    searches: bool = False

    def run(self, limits: Limits, watch: Watch, on_solution: OnSolution = None, on_bound: OnBound = None) -> Run:
        """Search by the time of the slowest stage, or run the model as it is."""
        if not self.searches or on_solution is None or on_bound is None:
            return super().run(limits, watch, on_solution, on_bound)
        data, exact, size = self.data, replace(limits, gap=0.0), (0, 0)

        def cheapest(target: int) -> Cheapest | None:
            nonlocal size
            time = int(target) // data.weight if data.weight else int(data.elapsed.max())
            if data.windows(time) is None:
                return None
            model, begun = build(data, time)
            size = max(size, (len(model.proto.variables), len(model.proto.constraints)))
            found = cpsat.run(model, exact, watch, parameters=cpsat.INTEGRAL)
            if found.infeasible:
                return None
            if found.stop is not Stop.PROVED or found.values is None or found.bound is None:
                return Cheapest(None, None, None)
            plan = _plan(begun, found.values)
            own = {variable.index: value for variable, value in self.values_of(plan)}
            values = cpsat.Values(lambda variable: own[variable.index])
            return Cheapest(cpsat.whole(found.bound) - data.weight * time, data.waiting_cost(plan), values)

        plan = watch.best_plan
        known = math.inf if plan is None else data.waiting_cost(plan) + data.cut_cost(plan)
        found = search_intervals(data.targets(known), cheapest, known, limits, watch, on_solution, on_bound)
        stats = {"variables": size[0], "constraints": size[1], **found.stats}
        return replace(found, solver=cpsat.version(), stats=stats)

    def decode(self, values: Any) -> LayerPlan:
        """The plan of a solution."""
        return _plan(self.begun, values)

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of an assignment, as sums over what has begun."""
        begun = self.begun

        def stage_of(layer: int) -> Any:
            return sum(row[layer] for row in begun[1:])

        def same_stage(layer: int, other: int) -> Any:
            self.model.says("together", "together[l,m]: layers l and m are in one stage, for a requirement")
            self.model.says("together_if", "then no stage begins between them")
            self.model.says("together_unless", "else some stage does")
            stages_between = stage_of(max(layer, other)) - stage_of(min(layer, other))
            return self.is_zero(f"together[{layer},{other}]", stages_between)

        return {
            "layers": lambda stage: sum(begun[stage]) - sum(begun[stage + 1]),
            "stage_of": stage_of,
            "same_stage": same_stage,
        }

    def measures(self) -> Mapping[str, Callable[..., Any]]:
        """``choice``: 1 if a stage has a layer, which it or one before it has begun, and none behind it has."""
        begun = [*self.begun, [0] * len(self.begun[0])]
        stages, layers = range(len(self.begun)), range(len(self.begun[0]))
        return {"choice": lambda layer, stage: begun[stages[stage]][layers[layer]] - begun[stage + 1][layer]}

    def meaning(self, name: str, index: Any) -> Mapping[str, Any]:
        """The stage that has begun, and the layer."""
        return {"stage": index[0], "layer": index[1]} if name == "begun" else {}

    def values_of(self, plan: LayerPlan) -> Iterator[tuple[Any, int]]:
        """The values of all cuts in a plan."""
        starts = [0, *accumulate(plan.lengths)]
        for j, row in enumerate(self.begun):
            yield from ((each, int(layer >= starts[j])) for layer, each in enumerate(row) if not isinstance(each, int))

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        return (self.data.constant + self.data.scale.restore(max(0, cpsat.whole(bound)))) * (1 - 1e-14)


def _plan(begun: list[list[Any]], values: Any) -> LayerPlan:
    counts = [sum(each if isinstance(each, int) else int(values[each]) for each in row) for row in begun]
    return plan_of(here - after for here, after in pairwise(counts))


def model_of(
    instance: LayerAssignmentInstance, watch: Watch | None = None, *, complete: bool = False, search: bool = False
) -> Model:
    """The model of an instance (`data_of`), with its requirements; to be searched by targets if it has none.

    The sum of all layers where they take least is a constant and stays outside.
    """
    data = data_of(instance, watch or Watch(), complete=complete)
    searches = search and not data.rings and not instance.requirements
    return add_requirements(Model(*build(data), data, searches), VOCABULARY, instance)


def solve(instance: LayerAssignmentInstance, limits: Limits, watch: Watch) -> Answer[LayerPlan]:
    """The best assignment; the bound is within 1e-7 of it unless 56 bits are too few for the spread of the costs."""
    return infeasible_answer(instance) or prove(
        instance, lambda: model_of(instance, watch, search=True), evaluate, violations, limits, watch, to_scale=True,
        first=first_plan(instance, limits),
    )  # fmt: skip
