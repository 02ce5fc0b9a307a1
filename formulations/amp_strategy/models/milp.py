"""Training strategies as a MILP (Pyomo, HiGHS): degrees, micro-batch, placement class and cuts in one model.

A candidate c is a choice of degrees and micro-batch with a class of placements; each has a path through the layers of
its own, one arc for each stage, as in formulations/layer_assignment/models/milp.py, and one path is taken:

    chosen[c]         the strategy is candidate c
    carries[c,j,a,b]  it is, and its stage j takes layers a to b - 1

The arcs know a stage's whole cost at their candidate, so no row has a big-M; waiting and all-reduce are variables of
each, so the relaxation is as strong as the least of the candidates' own.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyomo.environ as pyo

from formulations.amp_strategy.definition.plan import StrategyPlan
from formulations.amp_strategy.definition.problem import evaluate, violations
from formulations.amp_strategy.definition.quantities import DEGREES, VOCABULARY
from formulations.amp_strategy.models.candidates import MARGIN, Candidate, choice, infeasible_answer
from formulations.amp_strategy.models.first_plan import first_plan
from formulations.compiled.memory_budget import SizeError
from formulations.contract.family import Answer
from formulations.modelling.solve_model import WithoutSizes, go_on, prove, require
from instances.problems.amp_strategy import AmpInstance
from solvers.milp import backend as milp
from solvers.outcome import Limits, Watch

#: More arcs are not given to HiGHS: they take ten seconds to build.
MAX_ARCS = 200_000

#: Candidate, stage, first layer, and the layer after the last.
Arc = tuple[int, int, int, int]


@dataclass
class Model(milp.Runnable, WithoutSizes):
    """``model.chosen[c]`` and ``model.carries[c, j, a, b]``; the objective is all seconds, in units of ``unit``."""

    model: Any
    candidates: list[Candidate]
    unit: float

    def decode(self, values: Any) -> StrategyPlan:
        """The plan of a solution."""
        taken = sorted(arc for arc, variable in self.model.carries.items() if values[variable] > 0.5)
        found: Candidate = self.candidates[taken[0][0]]
        return found.plan(tuple(end - start for _, _, start, end in taken))

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a strategy, as sums over candidates and arcs."""

        def chosen(name: str) -> Callable[[], Any]:
            degrees = [getattr(each.degrees, name) for each in self.candidates]
            return lambda: milp.weighted_sum(zip(degrees, self.model.chosen.values(), strict=True))

        def layers(stage: int) -> Any:
            own = ((arc, variable) for arc, variable in self.model.carries.items() if arc[1] == stage)
            return milp.weighted_sum((end - start, variable) for (_, _, start, end), variable in own)

        return {**{each.name: chosen(each.name) for each in DEGREES}, "layers": layers}

    def values_of(self, plan: StrategyPlan) -> Iterator[tuple[Any, float]]:
        """The values of what is chosen, and of all arcs, in a plan."""
        number = next(number for number, each in enumerate(self.candidates) if each.holds(plan))
        borders = itertools.pairwise([0, *itertools.accumulate(plan.lengths)])
        taken = {(number, j, *ends) for j, ends in enumerate(borders)}
        yield from ((variable, float(c == number)) for c, variable in self.model.chosen.items())
        yield from ((variable, float(arc in taken)) for arc, variable in self.model.carries.items())

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return milp.trusted(bound) * self.unit


def build(instance: AmpInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of all strategies, with the requirements.

    Candidates, and stages, that alone cost more than the watch's best plan (a balanced assignment is reported to it)
    are left out, unless ``complete``; where no plan is known costs are cut off (`Choice`).

    Raises
    ------
    SizeError
        If too many arcs are left.
    Stopped
        Once ``watch`` is stopped.
    """
    watch = watch or Watch()
    found, known, most_s, quick_s = choice(instance, watch, complete=complete)
    unit = (quick_s if known is None else known) / milp.NATURAL or 1.0
    most = math.inf if known is None else known * (1 + MARGIN)
    every = (arc for c, each in enumerate(found) for arc in _arcs(c, each, most, watch))
    arcs = list(itertools.islice(every, MAX_ARCS + 1))
    if len(arcs) > MAX_ARCS:
        raise SizeError(f"a model of more than {MAX_ARCS} arcs")
    model = pyo.ConcreteModel()
    model.chosen = pyo.Var(range(len(found)), domain=pyo.Binary, doc="chosen[c]: the strategy is candidate c")
    model.carries = pyo.Var(arcs, domain=pyo.Binary, doc="carries[c,j,a,b]: its stage j takes layers a to b - 1")
    model.waiting = pyo.Var(
        range(len(found)), domain=pyo.NonNegativeReals, doc="waiting[c]: seconds of waiting for its slowest stage"
    )
    model.all_reduce = pyo.Var(
        range(len(found)), domain=pyo.NonNegativeReals, doc="all_reduce[c]: seconds of its slowest all-reduce"
    )
    model.one_strategy = pyo.Constraint(
        expr=milp.weighted_sum((1.0, each) for each in model.chosen.values()) == 1,
        doc="degrees, micro-batch and placement are chosen once [AMP, section 6.2]",
    )
    _add_paths(model, found, arcs, watch)
    _add_times(model, found, arcs, lambda seconds: milp.in_units(min(seconds, most_s), unit), watch)
    go_on(watch)
    built = Model(model, found, unit)
    require(built, VOCABULARY, instance)
    return built


def _arcs(c: int, each: Candidate, most: float, watch: Watch) -> Iterator[Arc]:
    """Stages that alone cost no more than ``most``: all stages once, waiting for this one, its cut, its all-reduce."""
    stages, layers, table = each.degrees.pp_degree, each.priced.num_layers, each.table
    for j in range(stages):
        go_on(watch)
        starts = np.arange(j, layers - stages + j + 1 if j else 1)[:, None]
        ends = np.arange(j + 1 if j < stages - 1 else layers, layers - stages + j + 2)[None]
        alone = each.filling + each.weight * (table.elapsed[ends] - table.elapsed[starts]) + table.cut[starts, j]
        if len(table.ring):
            alone = alone + table.ring[j] * table.held[starts, ends]
        for start, end in np.argwhere((starts < ends) & (alone <= most)).tolist():
            yield c, j, int(starts[start, 0]), int(ends[0, end])


def _add_paths(model: Any, found: list[Candidate], arcs: list[Arc], watch: Watch) -> None:
    """The chosen candidate's first stage takes one arc, and each later stage begins where the one before it ends."""
    begins: dict[tuple[int, int, int], list[Any]] = {}
    ends: dict[tuple[int, int, int], list[Any]] = {}
    for arc in arcs:
        c, j, start, end = arc
        begins.setdefault((c, j, start), []).append(model.carries[arc])
        ends.setdefault((c, j, end), []).append(model.carries[arc])
    model.first = pyo.Constraint(
        range(len(found)),
        rule=milp.until_stopped(
            watch, lambda m, c: milp.weighted_sum((1.0, each) for each in begins.get((c, 0, 0), [])) == m.chosen[c]
        ),
        doc="stage 0 of the chosen candidate begins at layer 0: sum over b of carries[c,0,0,b] = chosen[c]",
    )
    ended = {(c, j + 1, layer) for c, j, layer in ends if j + 1 < found[c].degrees.pp_degree}
    borders = sorted(ended | {border for border in begins if border[1]})

    def follows(_: Any, c: int, j: int, layer: int) -> Any:
        return pyo.quicksum(ends.get((c, j - 1, layer), [])) == pyo.quicksum(begins.get((c, j, layer), []))

    model.follows = pyo.Constraint(
        borders,
        rule=milp.until_stopped(watch, follows),
        doc="stage j begins where j - 1 ends: sum of carries[c,j-1,a,l] over a = sum of carries[c,j,l,b] over b",
    )


def _add_times(
    model: Any, found: list[Candidate], arcs: list[Arc], cost: Callable[[float], float], watch: Watch
) -> None:
    """Equation 4 at each candidate, with the all-reduce; ``cost`` makes units of seconds."""
    own: dict[tuple[int, int], list[Arc]] = {}
    for arc in arcs:
        own.setdefault(arc[:2], []).append(arc)

    def stage_time(m: Any, c: int, j: int) -> Any:
        each, elapsed = found[c], found[c].table.elapsed
        times = ((arc, cost(each.weight * (elapsed[arc[3]] - elapsed[arc[2]]))) for arc in own[c, j])
        return m.waiting[c] >= pyo.quicksum(time * m.carries[arc] for arc, time in times)

    def stage_all_reduce(m: Any, c: int, j: int) -> Any:
        table = found[c].table
        times = ((arc, cost(table.ring[j] * table.held[arc[2], arc[3]])) for arc in own[c, j])
        return m.all_reduce[c] >= pyo.quicksum(time * m.carries[arc] for arc, time in times)

    model.stage_time = pyo.Constraint(
        list(own),
        rule=milp.until_stopped(watch, stage_time),
        doc="waiting takes as long as for every stage: waiting[c] >= (gas - 1) t_j [AMP, section 6.4]",
    )
    model.stage_all_reduce = pyo.Constraint(
        [stage for stage in own if len(found[stage[0]].table.ring)],
        rule=milp.until_stopped(watch, stage_all_reduce),
        doc="the slowest all-reduce takes as long as every stage's: all_reduce[c] >= A_j [reconstructed]",
    )
    filling = pyo.quicksum(cost(each.filling) * model.chosen[c] for c, each in enumerate(found))
    # A stage that begins at a layer pays for the cut before it.
    sending = pyo.quicksum(cost(found[c].table.cut[a, j]) * model.carries[c, j, a, b] for c, j, a, b in arcs if j)
    slowest = pyo.quicksum(model.waiting.values()) + pyo.quicksum(model.all_reduce.values())
    model.step = pyo.Objective(expr=filling + sending + slowest)


def solve(instance: AmpInstance, limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """The best strategy, with a bound less what HiGHS's tolerances may add to it (`milp.trusted`)."""
    infeasible = infeasible_answer(instance)
    if infeasible is not None:
        return infeasible
    first = first_plan(instance, limits)
    return prove(
        instance, lambda: build(instance, watch), evaluate, violations, limits, watch, to_scale=True, first=first
    )
