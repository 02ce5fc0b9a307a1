"""Training strategies as a MILP (Pyomo, HiGHS): cuts, ways to run layers, and when each action of the orders ends.

Of several degrees c one is chosen, and all that belongs to others is 0, so the relaxation is as strong as the least of
their own. `strategy_model.solve` runs the model for one after another. As the orders of a schedule are fixed, an
iteration is a longest path. Symbols as in the README.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.models import strategy_model
from formulations.training_strategy.models.layout_data import MARGIN, Cuts, Indices, Layouts, Priced, layouts_of
from instances.problems.training_strategy import StrategyInstance
from solvers.build_stop import is_stopped, stops_with
from solvers.milp import backend as milp
from solvers.outcome import Limits, Watch


def build(data: Sequence[Layouts], known: float | None = None) -> Any:
    """The model of all layouts at some degrees, or else of a plan that is known to take so long."""
    index, model = Indices(data), pyo.ConcreteModel()
    binary, time = partial(pyo.Var, domain=pyo.Binary), partial(pyo.Var, domain=pyo.NonNegativeReals)
    # fmt: off
    model.chosen = binary(index.degrees, doc="chosen[c]: the plan has degrees c")
    model.kept = binary(bounds=(0, int(known is not None)), doc="the plan is the one that is known")
    model.begun = binary(index.cuts, doc="begun[c,g,l]: chunk g begins at layer l or before")
    model.runs = binary(index.runs, doc="runs[c,g,l,x]: chunk g runs layer l by TMPC x")
    model.crosses = pyo.Var(index.skips, bounds=(0, 1),
        doc="crosses[c,g,u,v,x]: an edge that skips layers leaves chunk g (x is 1), or enters it (x is 0)")
    model.forward = time(index.chunks, doc="forward[c,g]: time of F in chunk g, and of W; B takes that or twice that")
    model.backward = time(index.split, doc="backward[c,g]: time of B in chunk g alone, where W is no third")
    model.weight = time(index.split, doc="weight[c,g]: time of W in chunk g, where layers say how long it takes")
    model.again = time(index.chunks, doc="again[c,g]: time of recomputation in chunk g")
    model.end = time(index.actions, doc="end[c,k]: when action k of the orders ends")
    model.summed = time(index.sums, doc="summed[c,g]: sum of chunk g's gradients beside passes")
    model.exposed = time(index.exposed,
        doc="exposed[c,0]: what of the first chunk's sum its last backward pass exposes")
    model.made = time(index.again, doc="made[c,i]: bytes that one layer of device i makes again")
    model.makespan = time(index.degrees, doc="makespan[c]: when all devices have ended")
    model.gradients = time(index.degrees, doc="gradients[c]: the longest sum of gradients")

    cuts, again = Cuts(data, model.chosen, model.begun), set(index.again)

    def ends_after(c: int, k: int, others: Sequence[int]) -> Any:
        if is_stopped():
            return pyo.Constraint.Skip
        terms = ((factor, getattr(model, name)[c, at]) for factor, (name, at) in data[c].summands(k, others))
        return milp.weighted_sum(terms) >= 0

    # Chunks are intervals of the chain, none of them empty, and each layer runs by one TMPC.
    model.one_choice = pyo.Constraint(expr=model.kept + sum(model.chosen.values()) == 1,
        doc="degrees are chosen once, or the known plan: sum of chosen[c] + kept = 1")
    model.stays_begun = pyo.Constraint(index.cuts, rule=lambda m, c, g, v: m.begun[c, g, v] <= cuts.begun(c, g, v + 1),
        doc="what has begun stays so: begun[c,g,l] <= begun[c,g,l+1]")
    model.not_empty = pyo.Constraint(index.cuts,
        rule=lambda m, c, g, v: m.begun[c, g, v] <= cuts.begun(c, g - 1, v - 1),
        doc="chunk g - 1 has a layer before chunk g begins: begun[c,g,l] <= begun[c,g-1,l-1]")
    model.one_way = pyo.Constraint(index.places, rule=lambda m, c, g, v: cuts.holds(c, g, v) == sum(
        m.runs[c, g, v, x] for x in range(len(data[c].ways[v])) if (g, v, x) in data[c].again),
        doc="a layer runs by one TMPC in its chunk: sum of runs[c,g,l,x] over x = begun[c,g,l] - begun[c,g+1,l]")
    model.crossing = pyo.Constraint(index.skips, rule=lambda m, *at: m.crosses[at] >= cuts.crosses(*at),
        doc="an edge leaves a chunk that has its source if its target is behind, and enters that of its target; "
        "in a V not if both are on one device")

    # Times of passes [definition.problem.chunk_times], and their order [Narayanan et al. 2021, section 2.2].
    model.forward_time = pyo.Constraint(index.chunks,
        rule=lambda m, c, g: m.forward[c, g] >= cuts.thirds(c, g, m.crosses),
        doc="F is a third of what layers compute and of what crosses the chunk's ends")
    model.weight_time = pyo.Constraint(index.split,
        rule=lambda m, c, g: m.weight[c, g] >= cuts.total(c, g, data[c].weight), doc="W is what layers declare")
    model.backward_time = pyo.Constraint(index.split,
        rule=lambda m, c, g: m.backward[c, g] >= cuts.backward(c, g, m.crosses),
        doc="B without recomputation is two thirds of what layers compute and of what crosses, less W")
    model.recomputation = pyo.Constraint(index.chunks, rule=lambda m, c, g: m.again[c, g] >= sum(
        more * m.runs[(c, *at)] for at, more in data[c].again.items() if at[0] == g),
        doc="recomputation is what TMPCs take longer than the fastest of their layers")
    model.after_own = pyo.Constraint(index.actions, rule=lambda _, c, k: ends_after(c, k, data[c].orders.before),
        doc="an action follows the one before it on its device: end[c,k] >= end[c,that] + its time")
    model.after_other = pyo.Constraint(index.actions, rule=lambda _, c, k: ends_after(c, k, data[c].orders.needs),
        doc="and what it needs of another device, F of the chunk before, B of the one behind: the same")
    model.ended = pyo.Constraint(index.last, rule=lambda m, c, k: m.makespan[c] >= m.end[c, k],
        doc="all devices have ended: makespan[c] >= end[c,k], k the last action of each")

    # Gradients beside passes [definition.problem.Behind].
    model.sum_beside = pyo.Constraint(index.sums,
        rule=lambda m, c, g: m.summed[c, g] >= cuts.total(c, g, data[c].summed),
        doc="gradients of a chunk that are summed beside passes")
    model.exposed_sum = pyo.Constraint(index.layers, rule=lambda m, c, v: m.exposed[c, 0] >= cuts.exposed(c, v),
        doc="of the first chunk's those from layer l on that the backward passes behind it do not hide")

    model.gradient_sum = pyo.Constraint(index.devices, rule=lambda m, c, i: m.gradients[c] >= cuts.gradients(c, i),
        doc="gradients behind all passes: gradients[c] >= 4 (d-1)/d * weights / B of each device, or what is left")
    model.made_again = pyo.Constraint(index.made,
        rule=lambda m, c, g, *at: m.made[c, data[c].degrees.devices[g]] >= data[c].made[g, *at] * m.runs[c, g, *at],
        doc="a device has what one of its layers makes again: made[c,i] >= bytes of runs[c,g,l,x], g on i")
    model.memory = pyo.Constraint(index.memory,
        rule=lambda m, c, *row: milp.weighted_sum((size, m.runs[(c, *at)]) for at, size in data[c].sizes[row].items())
        + (m.made[c, row[0]] if (c, row[0]) in again else 0) <= milp.NATURAL * (1 + MARGIN) * m.chosen[c],
        doc="static bytes, and activations of micro-batches in flight, fit at a device's fullest moments")
    # fmt: on
    # A batch is an iteration and the sum of gradients behind it, or that of the known plan.
    model.batch = pyo.Objective(
        expr=(known or 0.0) * model.kept + sum(model.makespan[c] + model.gradients[c] for c in index.degrees)
    )
    model.forbidden = pyo.ConstraintList(doc="ways to run the layers of a device that only tolerances admitted")
    return model


@dataclass
class Model(strategy_model.StrategyModel, milp.Runnable):
    """The model of ``data``, or of the plan ``known``, in units of so much time."""

    model: Any
    data: Sequence[Layouts]
    instance: StrategyInstance
    known: StrategyPlan | None
    unit: float

    def of(self, name: str) -> Any:
        """The variables of a name, by their indices."""
        return getattr(self.model, name)

    def forbid(self, variables: list[Any]) -> None:
        """Not all of these are 1."""
        self.model.forbidden.add(milp.weighted_sum((1.0, each) for each in variables) <= len(variables) - 1)

    def lower_bound(self, bound: float) -> float:
        """A bound in the instance's unit, less HiGHS's tolerance."""
        return milp.proved_bound(bound, to_scale=True) * self.unit


#: Without a known plan, all that may take time adds up to at most so many times the scale: HiGHS calls feasible models
#: with coefficients of 1e14 infeasible. What is small beside it counts as 0 until a plan makes a new scale.
_RANGE = 1e5


def _scale(instance: StrategyInstance, found: Sequence[Priced]) -> float:
    """The least bound of some degrees, in the instance's unit, or more where the longest batch is far from it."""
    longest = (layouts_of(instance, each, math.inf, float, float, float).longest for each in found)
    return max(min((each.least for each in found), default=0.0), max(longest, default=0.0) / _RANGE)


def _cover(time: float, unit: float) -> float:
    """What hides sums of gradients, in units; where it is too small for HiGHS, the least that is not."""
    return max(time / unit, milp.SMALLEST) if time else 0.0


def _model(instance: StrategyInstance, found: Sequence[Priced], watch: Watch) -> Model:
    """That of some degrees, in parts of the best time known, or else of their least bound; `Stopped` as the watch."""
    plan, best = watch.incumbent()
    unit = (_scale(instance, found) if best is None else best) / milp.NATURAL or 1.0
    byte = instance.flat.memory_bytes / milp.NATURAL or 1.0
    cost, size = partial(milp.in_units, unit=unit), partial(milp.in_units, unit=byte)
    with stops_with(watch):
        most = math.inf if best is None else best
        data = [layouts_of(instance, each, most, cost, size, partial(_cover, unit=unit)) for each in found]
        made = Model(build(data, None if best is None else best / unit), data, instance, plan, unit)
        made.begin_with([] if best is None else [(made.model.kept, 1)])
        return made


def model_of(instance: StrategyInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model that `strategy_model.shown` makes."""
    made: Model = strategy_model.shown(instance, watch, _model, complete=complete)
    return made


def solve(instance: StrategyInstance, limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """The best plan, with a bound less what HiGHS's tolerances may add to it (`milp.proved_bound`)."""
    return strategy_model.solve(instance, limits, watch, _model)
