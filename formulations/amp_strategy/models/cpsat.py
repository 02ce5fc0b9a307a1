"""Training strategies for CP-SAT: degrees, micro-batch, placement class and cuts in one model.

A candidate c is a choice of degrees and micro-batch with a class of placements (`candidates`); stages are cut as in
formulations/layer_assignment/models/cpsat.py, as many of them as the candidate has:

    chosen[c]   the strategy is candidate c
    begun[j,l]  stage j begins at layer l or before; 0 for all layers where the candidate has no stage j

No row has a big-M: what holds at one candidate is enforced by its literal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from formulations.amp_strategy.definition.plan import StrategyPlan
from formulations.amp_strategy.definition.problem import evaluate, violations
from formulations.amp_strategy.definition.quantities import DEGREES, VOCABULARY
from formulations.amp_strategy.models.candidates import Candidate, choice, infeasible_answer
from formulations.amp_strategy.models.first_plan import first_plan
from formulations.contract.family import Answer
from formulations.modelling.solve_model import WithoutSizes, go_on, prove, require
from instances.problems.amp_strategy import AmpInstance
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch
from solvers.scaling import Scale, cost_scale

Linear = Any

weighted_sum = cp_model.LinearExpr.weighted_sum

SENTENCES = {
    "chosen": "chosen[c]: the strategy is candidate c",
    "one_strategy": "degrees, micro-batch and placement are chosen once [AMP, section 6.2]",
    "begun": "begun[j,l]: stage j begins at layer l or before",
    "stays_begun": "what has begun stays so: begun[j,l] <= begun[j,l+1]",
    "not_empty": "stage j has a layer before stage j + 1 begins: begun[j+1,l+1] <= begun[j,l]",
    "stages": "stage j begins at all if the candidate has more than j stages",
    "waiting": "seconds of waiting for the slowest stage",
    "stage_time": "at its candidate waiting takes as long as for every stage: >= (gas - 1) t_j [AMP, section 6.4]",
    "sending": "seconds of all cuts",
    "cuts": "at its candidate sending takes as long as the cuts: the sum of e [AMP, section 6.4]",
    "all_reduce": "seconds of the slowest all-reduce",
    "stage_all_reduce": "at its candidate the slowest all-reduce takes as long as every stage's [reconstructed]",
    "holds": "holds[j,i]: stage j has a layer with the tied parameters i",
    "shared": "a stage with any of the tied layers holds what they share: holds[j,i] >= its layers of i",
    "least": "implied: at a candidate the slowest stage takes as long as the mean and any layer, cuts as the cheapest",
}


@dataclass
class Model(cpsat.Runnable, WithoutSizes):
    """``chosen[c]``; ``begun[j][l]`` for stages 0 to S and layers 0 to L - 1, constants where there is no choice."""

    model: cpsat.SpokenModel
    candidates: list[Candidate]
    chosen: list[Any]
    begun: list[list[Any]]
    scale: Scale

    def decode(self, values: Any) -> StrategyPlan:
        """The plan of a solution."""
        number = next(number for number, each in enumerate(self.chosen) if values[each])
        found = self.candidates[number]
        counts = [
            sum(each if isinstance(each, int) else int(values[each]) for each in row)
            for row in self.begun[: found.degrees.pp_degree]
        ]
        return found.plan(tuple(here - after for here, after in itertools.pairwise([*counts, 0])))

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a strategy, as sums over candidates and what has begun."""

        def chosen(name: str) -> Callable[[], Any]:
            return lambda: weighted_sum(self.chosen, [getattr(each.degrees, name) for each in self.candidates])

        def layers(stage: int) -> Any:
            return sum(self.begun[stage]) - sum(self.begun[stage + 1]) if stage + 1 < len(self.begun) else 0

        return {**{each.name: chosen(each.name) for each in DEGREES}, "layers": layers}

    def values_of(self, plan: StrategyPlan) -> Iterator[tuple[Any, int]]:
        """The values of what is chosen, and of all cuts, in a plan."""
        starts = [0, *itertools.accumulate(plan.lengths)]
        yield from ((each, int(found.holds(plan))) for each, found in zip(self.chosen, self.candidates, strict=True))
        for j, row in enumerate(self.begun[:-1]):
            start = starts[j] if j < len(plan.lengths) else len(row)
            yield from ((each, int(layer >= start)) for layer, each in enumerate(row) if not isinstance(each, int))

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        return self.scale.restore(max(0, cpsat.whole(bound))) * (1 - 1e-12)


def build(instance: AmpInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of all strategies, with the requirements; all costs are rounded down to units.

    Candidates that take longer than the watch's best plan (a balanced assignment is reported to it) are left out, and
    costs are cut off at it, unless ``complete``.

    Raises
    ------
    Stopped
        Once ``watch`` is stopped.
    """
    watch = watch or Watch()
    found, _, most_s, quick_s = choice(instance, watch, complete=complete)
    model = cpsat.SpokenModel()
    model.sentences |= SENTENCES
    chosen = [model.new_bool_var(f"chosen[{c}]") for c in range(len(found))]
    model.add_exactly_one(chosen).with_name("one_strategy")
    begun = _cut(model, found, chosen, len(instance.layers))
    units = _Units.of(found, most_s, quick_s)
    seconds = _Seconds(model, found, chosen, begun, units, watch)
    total = seconds.filling() + seconds.waiting() + seconds.sending() + seconds.all_reduce()
    seconds.add_least()
    model.minimize(total)
    built = Model(model, found, chosen, begun, units.scale)
    require(built, VOCABULARY, instance)
    return built


def _cut(model: cpsat.SpokenModel, found: list[Candidate], chosen: list[Any], layers: int) -> list[list[Any]]:
    """The stages' beginnings; stage j has j layers in front of it at least."""
    stages = max((each.degrees.pp_degree for each in found), default=1)
    begun: list[list[Any]] = [[1] * layers]
    for j in range(1, stages):
        begun.append([0] * j + [model.new_bool_var(f"begun[{j},{layer}]") for layer in range(j, layers)])
        more = [each for each, own in zip(chosen, found, strict=True) if own.degrees.pp_degree > j]
        model.add(begun[j][layers - 1] == sum(more)).with_name(f"stages[{j}]")
        for layer in range(j, layers - 1):
            model.add(begun[j][layer] <= begun[j][layer + 1]).with_name(f"stays_begun[{j},{layer}]")
        for layer in range(j - 1, layers - 1) if j > 1 else ():
            model.add(begun[j][layer + 1] <= begun[j - 1][layer]).with_name(f"not_empty[{j - 1},{layer}]")
    return [*begun, [0] * layers]


@dataclass(frozen=True)
class _Units:
    """Whole units of seconds; what costs more than ``most_s`` counts as that."""

    scale: Scale
    most_s: float

    @classmethod
    def of(cls, found: list[Candidate], most_s: float, quick_s: float) -> _Units:
        """Units for costs of these candidates, of which the best balanced assignment takes ``quick_s``."""
        if not found:
            return cls(Scale(0), most_s)
        layers, stages = found[0].priced.num_layers, max(each.degrees.pp_degree for each in found)
        ties = len(found[0].priced.tied)
        largest = (
            max(each.filling for each in found)
            + max(each.weight * each.filling for each in found)
            + max(min(most_s, float(each.table.cut.max())) for each in found) * stages
            + max((_most_syncing(each, most_s) for each in found), default=0.0)
        )
        # No strategy is better than the best balanced assignment by more than a factor of S + 3.
        return cls(cost_scale(quick_s / (stages + 3), 2 * layers + stages + ties + 4, largest), most_s)

    def __call__(self, seconds: float) -> int:
        """Rounded down."""
        return self.scale.floor(min(seconds, self.most_s))


def _most_syncing(each: Candidate, most_s: float) -> float:
    """What no stage's all-reduce exceeds, if no layer's counts as more than ``most_s``."""
    priced = each.priced
    sizes = math.fsum([*priced.parameters, *(tie.parameters for tie in priced.tied)])
    ring = max(priced.ring_s_per_parameter, default=0.0)
    return min(sizes * ring, most_s * (priced.num_layers + len(priced.tied)))


@dataclass
class _Seconds:
    """The terms of Equation 4 in units."""

    model: cpsat.SpokenModel
    found: list[Candidate]
    chosen: list[Any]
    begun: list[list[Any]]
    units: _Units
    watch: Watch

    def __post_init__(self) -> None:
        #: At each candidate what waiting, cuts and the all-reduce take whatever the cuts.
        self.least = {name: [0] * len(self.found) for name in ("waiting", "sending", "all_reduce")}
        self.variables: dict[str, Any] = {}
        layers = range(len(self.begun[0]))
        self.assigned = [
            [here[layer] - after[layer] for layer in layers] for here, after in itertools.pairwise(self.begun)
        ]

    def _variable(self, name: str, most: list[int]) -> Any:
        found = self.variables[name] = self.model.new_int_var(0, max(most, default=0), name)
        return found

    def filling(self) -> Linear:
        """All stages once: a constant of each candidate."""
        return weighted_sum(self.chosen, [self.units.scale.floor(each.filling) for each in self.found])

    def waiting(self) -> Linear:
        """(gas - 1) max t of section 6.4."""
        rows = [
            [self.units.scale.floor(each.weight * time) for time in each.priced.layer_time_s] for each in self.found
        ]
        waiting = self._variable("waiting", [sum(row) for row in rows])
        for c, (each, row) in enumerate(zip(self.found, rows, strict=True)):
            go_on(self.watch)
            stages = each.degrees.pp_degree
            self.least["waiting"][c] = max(*row, -(-sum(row) // stages))
            for j in range(stages):
                time = sum(units * layer for units, layer in zip(row, self.assigned[j], strict=True))
                self.model.add(waiting >= time).with_name(f"stage_time[{c},{j}]").only_enforce_if(self.chosen[c])
        return waiting

    def sending(self) -> Linear:
        """The sum of e of section 6.4."""
        costs = [
            [[self.units(float(each.table.cut[layer, j])) for layer in range(1, each.priced.num_layers)]
             for j in range(1, each.degrees.pp_degree)]
            for each in self.found
        ]  # fmt: skip
        sending = self._variable("sending", [sum(max(row) for row in rows) for rows in costs])
        for c, rows in enumerate(costs):
            go_on(self.watch)
            self.least["sending"][c] = sum(map(min, rows))
            total = sum(
                units * (self.begun[j][layer] - self.begun[j][layer - 1])
                for j, row in enumerate(rows, start=1)
                for layer, units in enumerate(row, start=1)
            )
            if rows:
                self.model.add(sending >= total).with_name(f"cuts[{c}]").only_enforce_if(self.chosen[c])
        return sending

    def all_reduce(self) -> Linear:
        """The slowest all-reduce, 0 if there is none."""
        rings = [c for c, each in enumerate(self.found) if each.priced.ring_s_per_parameter]
        if not rings:
            return 0
        holds = self._holds()
        most = [self.units.scale.ceil(_most_syncing(self.found[c], self.units.most_s)) for c in rings]
        longest = self._variable("all_reduce", most)
        for c in rings:
            go_on(self.watch)
            priced = self.found[c].priced
            for j in range(self.found[c].degrees.pp_degree):
                ring = priced.ring(j)
                costs = [
                    *(self.units(ring * size) * layer
                      for size, layer in zip(priced.parameters, self.assigned[j], strict=True)),
                    *(self.units(ring * tie.parameters) * holds[j][i] for i, tie in enumerate(priced.tied)),
                ]  # fmt: skip
                row = self.model.add(longest >= sum(costs)).with_name(f"stage_all_reduce[{c},{j}]")
                row.only_enforce_if(self.chosen[c])
            least = min(priced.ring(j) for j in range(self.found[c].degrees.pp_degree))
            self.least["all_reduce"][c] = max(self.units(least * size) for size in priced.parameters)
        return longest

    def _holds(self) -> list[list[Any]]:
        """Which stages have which tied parameters."""
        found = []
        for j, row in enumerate(self.assigned):
            found.append([self.model.new_bool_var(f"holds[{j},{i}]") for i in range(len(self.found[0].priced.tied))])
            for i, tie in enumerate(self.found[0].priced.tied):
                for layer in sorted(set(tie.layers)):
                    self.model.add(found[j][i] >= row[layer]).with_name(f"shared[{j},{i},{layer}]")
        return found

    def add_least(self) -> None:
        """What follows from each candidate's rows, without its literal: the linear relaxation of the model."""
        for name, variable in self.variables.items():
            row = self.model.add(variable >= weighted_sum(self.chosen, self.least[name]))
            row.with_name(f"least[{name}]")


def solve(instance: AmpInstance, limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """The best strategy; the bound is within 1e-7 of it unless 56 bits are too few for the spread of the costs."""
    infeasible = infeasible_answer(instance)
    if infeasible is not None:
        return infeasible
    first = first_plan(instance, limits)
    return prove(
        instance, lambda: build(instance, watch), evaluate, violations, limits, watch, to_scale=True, first=first
    )
