"""Training strategies as a MILP (Pyomo, HiGHS): degrees, micro-batch, placement class and cuts in one model.

A candidate c is a choice of degrees and micro-batch with a class of placements; each has a path through the layers of
its own, one arc for each stage, as in formulations/layer_assignment/models/milp.py, and one path is taken. The arcs
know a stage's whole cost at their candidate, so no row has a big-M. Waiting and all-reduce are variables of each
candidate, so the relaxation is as strong as the least of their own.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyomo.environ as pyo

from formulations.amp_strategy.definition.plan import StrategyPlan
from formulations.amp_strategy.definition.problem import evaluate, violations
from formulations.amp_strategy.definition.quantities import DEGREES, VOCABULARY
from formulations.amp_strategy.models.candidates import MARGIN, Candidate, choice, infeasible_answer
from formulations.amp_strategy.models.first_plan import first_plan
from formulations.contract.family import Answer
from formulations.modelling.solve_model import WithoutSizes, add_requirements, check_stop, prove
from instances.problems.amp_strategy import AmpInstance
from solvers.build_stop import stops_with
from solvers.memory_budget import SizeError
from solvers.milp import backend as milp
from solvers.outcome import Limits, Watch

#: More arcs are not given to HiGHS: they take ten seconds to build.
MAX_ARCS = 200_000

#: Candidate, stage, first layer, and the layer after the last.
Arc = tuple[int, int, int, int]


@dataclass(frozen=True)
class Data:
    """The candidates in units of ``unit`` seconds.

    Of candidate c ``filling[c]`` are all stages once. Of its stage j with layers a to b - 1 ``waiting`` is (gas - 1) t,
    what waiting costs if it is the slowest, ``cut`` is e of the cut before it, with what its layers take more than each
    in the stage where it takes least, and ``all_reduce`` is A, if one is declared.
    """

    candidates: list[Candidate]
    filling: list[float]
    waiting: Mapping[Arc, float]
    cut: Mapping[Arc, float]
    all_reduce: Mapping[Arc, float]
    unit: float


def data_of(instance: AmpInstance, watch: Watch, *, complete: bool) -> Data:
    """The candidates and stages that alone cost no more than the watch's best plan (`choice`); all if ``complete``.

    `SizeError` if too many stages are left.
    """
    found, known, most_s, quick_s = choice(instance, watch, complete=complete)
    unit = (quick_s if known is None else known) / milp.NATURAL or 1.0
    most = math.inf if known is None else known * (1 + MARGIN)
    every = (arc for c, each in enumerate(found) for arc in _arcs(c, each, most, watch))
    arcs = list(itertools.islice(every, MAX_ARCS + 1))
    if len(arcs) > MAX_ARCS:
        raise SizeError(f"a model of more than {MAX_ARCS} arcs")

    def units(seconds: float) -> float:
        return milp.in_units(min(seconds, most_s), unit)

    weight, table = [each.weight for each in found], [each.table for each in found]
    by_stage = [each.priced.stage_time_s for each in found]
    return Data(
        found,
        [units(each.filling) for each in found],
        {
            arc: units(weight[c] * (row[b] - row[a]))
            for arc in arcs
            for c, j, a, b in [arc]
            for row in [table[c].elapsed[j]]
        },
        {
            (c, j, a, b): units(table[c].cut[a, j] + table[c].extra[j, b] - table[c].extra[j, a])
            for c, j, a, b in arcs
            if j or len(by_stage[c])
        },
        {(c, j, a, b): units(table[c].ring[j] * table[c].held[a, b]) for c, j, a, b in arcs if len(table[c].ring)},
        unit,
    )


def _arcs(c: int, each: Candidate, most: float, watch: Watch) -> Iterator[Arc]:
    """Stages that alone cost no more than ``most``: all stages once, waiting for this one, its cut, its all-reduce."""
    stages, layers, table = each.degrees.pp_degree, each.priced.num_layers, each.table
    for j in range(stages):
        check_stop(watch)
        starts = np.arange(j, layers - stages + j + 1 if j else 1)[:, None]
        ends = np.arange(j + 1 if j < stages - 1 else layers, layers - stages + j + 2)[None]
        alone = each.filling + each.weight * (table.elapsed[j, ends] - table.elapsed[j, starts]) + table.cut[starts, j]
        alone = alone + table.extra[j, ends] - table.extra[j, starts]
        if len(table.ring):
            alone = alone + table.ring[j] * table.held[starts, ends]
        for start, end in np.argwhere((starts < ends) & (alone <= most)).tolist():
            yield c, j, int(starts[start, 0]), int(ends[0, end])


def build(data: Data) -> Any:
    """The model of all strategies."""
    candidates, arcs = range(len(data.candidates)), list(data.waiting)
    of_stage, begin, end = (defaultdict[Any, list[Arc]](list) for _ in range(3))
    for arc in arcs:
        c, j, a, b = arc
        of_stage[c, j].append(arc)
        begin[c, j, a].append(arc)
        end[c, j, b].append(arc)
    ended = {(c, j + 1, layer) for c, j, layer in end if j + 1 < data.candidates[c].degrees.pp_degree}

    model = pyo.ConcreteModel()
    model.chosen = pyo.Var(candidates, domain=pyo.Binary, doc="chosen[c]: the strategy is candidate c")
    model.carries = pyo.Var(arcs, domain=pyo.Binary, doc="carries[c,j,a,b]: its stage j takes layers a to b - 1")
    # fmt: off
    model.waiting = pyo.Var(candidates, domain=pyo.NonNegativeReals,
        doc="waiting[c]: seconds of waiting for its slowest stage")
    model.all_reduce = pyo.Var(candidates, domain=pyo.NonNegativeReals,
        doc="all_reduce[c]: seconds of its slowest all-reduce")

    def total(own: Iterable[Arc], cost: Mapping[Arc, float] | None = None) -> Any:
        return milp.weighted_sum((1.0 if cost is None else cost[arc], model.carries[arc]) for arc in own)

    model.one_strategy = pyo.Constraint(expr=milp.weighted_sum((1.0, each) for each in model.chosen.values()) == 1,
        doc="degrees, micro-batch and placement are chosen once [AMP, section 6.2]")
    model.first = pyo.Constraint(candidates, rule=lambda m, c: total(begin[c, 0, 0]) == m.chosen[c],
        doc="stage 0 of the chosen candidate begins at layer 0: sum over b of carries[c,0,0,b] = chosen[c]")
    model.follows = pyo.Constraint(sorted(ended | {border for border in begin if border[1]}),
        rule=lambda _, c, j, layer: total(end[c, j - 1, layer]) == total(begin[c, j, layer]),
        doc="stage j begins where j - 1 ends: sum of carries[c,j-1,a,l] over a = sum of carries[c,j,l,b] over b")
    model.stage_time = pyo.Constraint(list(of_stage),
        rule=lambda m, c, j: m.waiting[c] >= total(of_stage[c, j], data.waiting),
        doc="waiting takes as long as for every stage: waiting[c] >= (gas - 1) t_j [AMP, section 6.4]")
    model.stage_all_reduce = pyo.Constraint([stage for stage, own in of_stage.items() if own[0] in data.all_reduce],
        rule=lambda m, c, j: m.all_reduce[c] >= total(of_stage[c, j], data.all_reduce),
        doc="the slowest all-reduce takes as long as every stage's: all_reduce[c] >= A_j [reconstructed]")
    # fmt: on
    # all stages once + (gas - 1) max t + sum of e + A; a stage that begins at a layer pays for the cut before it
    # [AMP, Equation 4]
    filling = milp.weighted_sum(zip(data.filling, model.chosen.values(), strict=True))
    slowest = milp.weighted_sum((1.0, each) for each in (*model.waiting.values(), *model.all_reduce.values()))
    model.step = pyo.Objective(expr=filling + total(data.cut, data.cut) + slowest)
    return model


@dataclass
class Model(milp.Runnable, WithoutSizes):
    """The model of ``data``."""

    model: Any
    data: Data

    def decode(self, values: Any) -> StrategyPlan:
        """The plan of a solution."""
        taken = sorted(arc for arc, variable in self.model.carries.items() if values[variable] > 0.5)
        found: Candidate = self.data.candidates[taken[0][0]]
        return found.plan(tuple(end - start for _, _, start, end in taken))

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a strategy, as sums over candidates and arcs."""

        def chosen(name: str) -> Callable[[], Any]:
            degrees = [getattr(each.degrees, name) for each in self.data.candidates]
            return lambda: milp.weighted_sum(zip(degrees, self.model.chosen.values(), strict=True))

        def layers(stage: int) -> Any:
            own = ((arc, variable) for arc, variable in self.model.carries.items() if arc[1] == stage)
            return milp.weighted_sum((end - start, variable) for (_, _, start, end), variable in own)

        return {**{each.name: chosen(each.name) for each in DEGREES}, "layers": layers}

    def values_of(self, plan: StrategyPlan) -> Iterator[tuple[Any, float]]:
        """The values of what is chosen, and of all arcs, in a plan."""
        number = next(number for number, each in enumerate(self.data.candidates) if each.holds(plan))
        borders = itertools.pairwise([0, *itertools.accumulate(plan.lengths)])
        taken = {(number, j, *ends) for j, ends in enumerate(borders)}
        yield from ((variable, float(c == number)) for c, variable in self.model.chosen.items())
        yield from ((variable, float(arc in taken)) for arc, variable in self.model.carries.items())

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return milp.proved_bound(bound) * self.data.unit


def model_of(instance: AmpInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements; `Stopped` once the watch is."""
    watch = watch or Watch()
    with stops_with(watch):
        data = data_of(instance, watch, complete=complete)
        return add_requirements(Model(build(data), data), VOCABULARY, instance)


def solve(instance: AmpInstance, limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """The best strategy, with a bound less what HiGHS's tolerances may add to it (`milp.proved_bound`)."""
    return infeasible_answer(instance) or prove(
        instance, lambda: model_of(instance, watch), evaluate, violations, limits, watch, to_scale=True,
        first=first_plan(instance, limits),
    )  # fmt: skip
