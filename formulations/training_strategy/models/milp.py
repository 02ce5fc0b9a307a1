"""Training strategies as a MILP (Pyomo, HiGHS): cuts, ways to run layers, and when each action of the orders ends.

Of several degrees c one is chosen, and all that belongs to others is 0, so the relaxation is as strong as the least of
their own. `solve` runs the model for one after another. As the orders of a schedule are fixed, an iteration is a
longest path. Symbols as in the README.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.modelling.solve_model import add_requirements, prove
from formulations.modelling.warm_start import First
from formulations.training_strategy.costs import NO_PLAN, Degrees
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import evaluate, peak_memory, violations
from formulations.training_strategy.definition.quantities import VOCABULARY
from formulations.training_strategy.heuristics import even
from formulations.training_strategy.models.layout_data import MARGIN, Layouts, Priced, layouts_of, priced_degrees
from instances.problems.training_strategy import Schedule, StrategyInstance
from solvers.build_stop import is_stopped, stops_with
from solvers.milp import backend as milp
from solvers.outcome import OPTIMAL_GAP, Limits, Prover, Stop, Watch


def build(data: Sequence[Layouts], known: float | None = None) -> Any:
    """The model of all layouts at some degrees, or else of a plan that is known to take so long."""
    all_c, model = range(len(data)), pyo.ConcreteModel()
    chunks = [(c, g) for c in all_c for g in range(data[c].degrees.num_chunks)]
    cuts = [(c, g, v) for c, g in chunks if g for v in range(g, g + data[c].spare)]
    places = [(c, g, v) for c, g in chunks for v in range(g, g + data[c].spare + 1)]
    skips = [(c, *at) for c in all_c for at in data[c].crossings if at[2] > at[1] + 1]
    actions = [(c, k) for c in all_c for k in range(len(data[c].orders.stage))]
    devices = [(c, i) for c in all_c for i in range(data[c].degrees.p)]
    binary, time = partial(pyo.Var, domain=pyo.Binary), partial(pyo.Var, domain=pyo.NonNegativeReals)
    # fmt: off
    model.chosen = binary(all_c, doc="chosen[c]: the plan has degrees c")
    model.kept = binary(bounds=(0, int(known is not None)), doc="the plan is the one that is known")
    model.begun = binary(cuts, doc="begun[c,g,l]: chunk g begins at layer l or before")
    model.runs = binary([(c, *at) for c in all_c for at in data[c].again],
        doc="runs[c,g,l,x]: chunk g runs layer l by TMPC x")
    model.crosses = pyo.Var(skips, bounds=(0, 1),
        doc="crosses[c,g,u,v,x]: an edge that skips layers leaves chunk g (x is 1), or enters it (x is 0)")
    model.forward = time(chunks, doc="forward[c,g]: time of F in chunk g, and of W; B takes that or twice that")
    model.again = time(chunks, doc="again[c,g]: time of recomputation in chunk g")
    model.end = time(actions, doc="end[c,k]: when action k of the orders ends")
    model.makespan = time(all_c, doc="makespan[c]: when all devices have ended")
    model.gradients = time(all_c, doc="gradients[c]: the longest sum of gradients")

    def begun(c: int, g: int, v: int) -> Any:  # 1 if chunk g begins at layer v or before
        if g == data[c].degrees.num_chunks or v < g:
            return 0
        return model.chosen[c] if g == 0 or v >= g + data[c].spare else model.begun[c, g, v]

    def holds(c: int, g: int, v: int) -> Any:  # 1 if chunk g has layer v: it has begun there, and the next one has not
        return begun(c, g, v) - begun(c, g + 1, v)

    def crosses(c: int, g: int, u: int, v: int, leaves: bool) -> Any:  # 1, else at most 0; of neighbours just that
        if v == u + 1:
            return begun(c, g + leaves, v) - begun(c, g + leaves, u)
        return holds(c, g, u) + begun(c, g + 1, v) - model.chosen[c] if leaves else holds(c, g, v) - begun(c, g, u)

    def ends_after(c: int, k: int, others: Sequence[int]) -> Any:  # end >= end of the other one, if any, + own time
        if is_stopped():
            return pyo.Constraint.Skip
        own, is_backward = data[c].orders, data[c].orders.kind[k] == 1
        share = 2.0 if is_backward and data[c].degrees.schedule is not Schedule.ZB_H1 else 1.0
        times = [(-share, model.forward[c, own.stage[k]])] + [(-1.0, model.again[c, own.stage[k]])] * is_backward
        others_end = [(-1.0, model.end[c, others[k]])] if others[k] < len(own.stage) else []
        return milp.weighted_sum([(1.0, model.end[c, k]), *times, *others_end]) >= 0

    # Chunks are intervals of the chain, none of them empty, and each layer runs by one TMPC.
    model.one_choice = pyo.Constraint(expr=model.kept + sum(model.chosen.values()) == 1,
        doc="degrees are chosen once, or the known plan: sum of chosen[c] + kept = 1")
    model.stays_begun = pyo.Constraint(cuts, rule=lambda m, c, g, v: m.begun[c, g, v] <= begun(c, g, v + 1),
        doc="what has begun stays so: begun[c,g,l] <= begun[c,g,l+1]")
    model.not_empty = pyo.Constraint(cuts, rule=lambda m, c, g, v: m.begun[c, g, v] <= begun(c, g - 1, v - 1),
        doc="chunk g - 1 has a layer before chunk g begins: begun[c,g,l] <= begun[c,g-1,l-1]")
    model.one_way = pyo.Constraint(places, rule=lambda m, c, g, v: holds(c, g, v) == sum(
        m.runs[c, g, v, x] for x in range(len(data[c].ways[v])) if (g, v, x) in data[c].again),
        doc="a layer runs by one TMPC in its chunk: sum of runs[c,g,l,x] over x = begun[c,g,l] - begun[c,g+1,l]")
    model.crossing = pyo.Constraint(skips, rule=lambda m, *at: m.crosses[at] >= crosses(*at),
        doc="an edge leaves a chunk that has its source if its target is behind, and enters that of its target")

    # Times of passes [definition.problem.chunk_times], and their order [Narayanan et al. 2021, section 2.2].
    model.forward_time = pyo.Constraint(chunks, rule=lambda m, c, g: m.forward[c, g] >= sum(
        data[c].forward[v] * holds(c, g, v) for v in range(g, g + data[c].spare + 1)) + sum(
        third * (m.crosses[(c, *at)] if at[2] > at[1] + 1 else crosses(c, *at))
        for at, third in data[c].crossings.items() if at[0] == g),
        doc="F is a third of what layers compute and of what crosses the chunk's ends")
    model.recomputation = pyo.Constraint(chunks, rule=lambda m, c, g: m.again[c, g] >= sum(
        more * m.runs[(c, *at)] for at, more in data[c].again.items() if at[0] == g),
        doc="recomputation is what TMPCs take longer than the fastest of their layers")
    model.after_own = pyo.Constraint(actions, rule=lambda _, c, k: ends_after(c, k, data[c].orders.before),
        doc="an action follows the one before it on its device: end[c,k] >= end[c,that] + its time")
    model.after_other = pyo.Constraint(actions, rule=lambda _, c, k: ends_after(c, k, data[c].orders.needs),
        doc="and what it needs of another device, F of the chunk before, B of the one behind: the same")
    model.ended = pyo.Constraint(
        [(c, k) for c in all_c for k in sorted({*range(len(data[c].orders.stage))} - {*data[c].orders.before})],
        rule=lambda m, c, k: m.makespan[c] >= m.end[c, k],
        doc="all devices have ended: makespan[c] >= end[c,k], k the last action of each")

    model.gradient_sum = pyo.Constraint(devices, rule=lambda m, c, i: m.gradients[c] >= sum(
        data[c].gradients[v] * holds(c, g, v) for g in range(i, data[c].degrees.num_chunks, data[c].degrees.p)
        for v in range(g, g + data[c].spare + 1)),
        doc="gradients are summed when all have ended: gradients[c] >= 4 (d-1)/d * weights / B of each device")
    model.memory = pyo.Constraint([(c, *row) for c in all_c for row in data[c].sizes],
        rule=lambda m, c, *row: milp.weighted_sum((size, m.runs[(c, *at)]) for at, size in data[c].sizes[row].items())
        <= milp.NATURAL * (1 + MARGIN) * m.chosen[c],
        doc="static bytes, and activations of micro-batches in flight, fit at a device's fullest moments")
    # fmt: on
    # A batch is an iteration and the sum of gradients behind it, or that of the known plan.
    model.batch = pyo.Objective(
        expr=(known or 0.0) * model.kept + sum(model.makespan[c] + model.gradients[c] for c in all_c)
    )
    model.forbidden = pyo.ConstraintList(doc="ways to run the layers of a device that only tolerances admitted")
    return model


@dataclass
class Model(milp.Runnable):
    """The model of ``data``, or of the plan ``known``, in units of so much time."""

    model: Any
    data: Sequence[Layouts]
    instance: StrategyInstance
    known: StrategyPlan | None
    unit: float

    def _taken(self, values: Any) -> list[tuple[int, ...]]:
        return [at for at, variable in self.model.runs.items() if values[variable] > 0.5]

    def decode(self, values: Any) -> StrategyPlan:
        """The plan of a solution."""
        if self.known is not None and values[self.model.kept] > 0.5:
            return self.known
        taken = self._taken(values)
        return self.data[taken[0][0]].plan((g, v, x) for _, g, v, x in taken)

    def cut_off(self, plan: StrategyPlan, values: Any) -> None:
        """Forbid what the devices of a plan hold that have not the memory for it."""
        for device, held in enumerate(peak_memory(self.instance, plan)):
            own = [at for at in self._taken(values) if at[1] % plan.pp_degree == device]
            if held > self.data[own[0][0]].chain.limit:
                together = milp.weighted_sum((1.0, self.model.runs[at]) for at in own)
                self.model.forbidden.add(together <= len(own) - 1)

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of degrees, as sums over those that may be chosen."""

        def total(value: Callable[[Degrees], int]) -> Any:
            return milp.weighted_sum((value(own.degrees), self.model.chosen[c]) for c, own in enumerate(self.data))

        fields = {"pp_degree": "p", "tp_degree": "t", "dp_degree": "d", "virtual_stages": "V"}
        found = {name: lambda field=field: total(operator.attrgetter(field)) for name, field in fields.items()}
        return {**found, "schedule": lambda name: total(lambda degrees: int(degrees.schedule == name))}

    def lower_bound(self, bound: float) -> float:
        """A bound in the instance's unit, less HiGHS's tolerance."""
        return milp.proved_bound(bound, to_scale=True) * self.unit


def _model(instance: StrategyInstance, found: Sequence[Priced], watch: Watch) -> Model:
    """That of some degrees, in parts of the best time known, or else of their least bound; `Stopped` as the watch."""
    plan, best = watch.incumbent()
    unit = (min((each.least for each in found), default=0.0) if best is None else best) / milp.NATURAL or 1.0
    byte = instance.flat.memory_bytes / milp.NATURAL or 1.0
    cost, size = partial(milp.in_units, unit=unit), partial(milp.in_units, unit=byte)
    with stops_with(watch):
        data = [layouts_of(instance, each, math.inf if best is None else best, cost, size) for each in found]
        made = Model(build(data, None if best is None else best / unit), data, instance, plan, unit)
        made.begin_with([] if best is None else [(made.model.kept, 1)])
        return made


def model_of(instance: StrategyInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of all degrees together that may be better than the watch's best plan, with the requirements.

    `solve` runs it for one after another. `Stopped` once the watch is: 50,000 passes take ten seconds to build.
    """
    watch = Watch() if complete or watch is None else watch
    every, best = priced_degrees(instance) or priced_degrees(replace(instance, requirements=())), watch.best_objective
    found = [each for each in every if best is None or each.least <= best]
    return add_requirements(_model(instance, found, watch), VOCABULARY, instance)


def solve(instance: StrategyInstance, limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """The best plan: degrees in the order of a bound that needs no search, with the model of each.

    It has to beat the best plan so far, that of Megatron's even split at first, or to keep it; its bound, less what
    HiGHS's tolerances may add to it (`milp.proved_bound`), is the proof. The exact search is no part of it.
    """
    queue = priced_degrees(instance)
    if not queue:
        return infeasible_by_counting(NO_PLAN)
    first = First("Megatron's even split", lambda own: even(instance, limits, own))
    known = first.report(instance, evaluate, violations, watch)
    closed, models, solver, stop, reason = math.inf, 0, "", Stop.COMPLETED, ""

    def best() -> float:
        return math.inf if watch.best_objective is None else watch.best_objective

    for priced in queue:
        watch.bound(min(closed, priced.least, best()), Prover.BOUNDS if closed >= priced.least else Prover.SOLVER)
        if priced.least >= best() * (1 - limits.gap) or watch.stopped():
            closed = min(closed, priced.least)  # that of all degrees which are left
            break
        part = watch.part(bounds=False)
        if watch.best_objective is not None:
            part.receive(watch.best_plan, watch.best_objective)
        build_one = partial(_model, instance, [priced], part)
        found = prove(instance, build_one, evaluate, violations, limits, part, to_scale=True)
        closed = min(closed, math.inf if found.infeasible else max(found.bound or 0.0, priced.least))
        models, solver = models + 1, found.solver or solver
        if found.stop is not Stop.PROVED:
            stop, reason = found.stop, found.reason
    bound, by = min(closed, best()), Prover.SOLVER if solver else Prover.BOUNDS
    stats = {"degrees": len(queue), "models": models, **first.origin(known, watch)}
    answer = Answer(watch.best_plan, bound, proved_by=by, solver=solver, stats=stats)
    if bound == math.inf:
        return replace(answer, bound=None, infeasible=True, stop=Stop.PROVED, reason=NO_PLAN)
    watch.bound(bound, by)
    is_proved = best() - bound <= OPTIMAL_GAP * best() < math.inf
    return replace(answer, stop=Stop.PROVED if is_proved else watch.why(stop), reason="" if is_proved else reason)
