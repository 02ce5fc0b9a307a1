"""Training strategies for CP-SAT: cuts, ways to run layers, and when each action of the orders ends.

The rows of models/milp.py in whole numbers: times and bytes are rounded down, so a bound stays a bound.
`strategy_model.solve` runs the model for one choice of degrees after another.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from formulations.contract.family import Answer
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.models import strategy_model
from formulations.training_strategy.models.layout_data import Cuts, Indices, Layouts, Priced, layouts_of
from instances.problems.training_strategy import StrategyInstance
from solvers.build_stop import stops_with
from solvers.cpsat import backend as cpsat
from solvers.outcome import OPTIMAL_GAP, Limits, Watch
from solvers.scaling import Scale, cost_scale, size_scale

#: A plan that takes more than this part of the best time known is no better: that much is left for rounding.
_WORSE = 1 - OPTIMAL_GAP / 2


def build(data: Sequence[Layouts], limit: int, most: int, known: int | None = None) -> cpsat.SpokenModel:
    """The model of all layouts at some degrees, or else of a plan that is known to take so long.

    No action ends after ``most``, and a device holds ``limit`` at most.
    """
    index, model = Indices(data), cpsat.SpokenModel()
    time = partial(model.integers, low=0, high=most)
    # fmt: off
    chosen = model.booleans("chosen", index.degrees, "chosen[c]: the plan has degrees c")
    kept = model.integer("kept", 0, 1, "the plan is the one that is known")
    begun = model.booleans("begun", index.cuts, "begun[c,g,l]: chunk g begins at layer l or before")
    runs = model.booleans("runs", index.runs, "runs[c,g,l,x]: chunk g runs layer l by TMPC x")
    crosses = model.booleans("crosses", index.skips,
        "crosses[c,g,u,v,x]: an edge that skips layers leaves chunk g (x is 1), or enters it (x is 0)")
    time("forward", index.chunks, doc="forward[c,g]: time of F in chunk g, and of W; B takes that or twice that")
    time("backward", index.split, doc="backward[c,g]: time of B in chunk g alone, where W is no third")
    time("weight", index.split, doc="weight[c,g]: time of W in chunk g, where layers say how long it takes")
    time("again", index.chunks, doc="again[c,g]: time of recomputation in chunk g")
    time("end", index.actions, doc="end[c,k]: when action k of the orders ends")
    summed = time("summed", index.sums, doc="summed[c,g]: sum of chunk g's gradients beside passes")
    exposed = time("exposed", index.exposed,
        doc="exposed[c,0]: what of the first chunk's sum its last backward pass exposes")
    made = model.integers("made", index.again, low=0, high=limit,
        doc="made[c,i]: bytes that one layer of device i makes again")
    makespan = time("makespan", index.degrees, doc="makespan[c]: when all devices have ended")
    gradients = time("gradients", index.degrees, doc="gradients[c]: the longest sum of gradients")
    cuts, of = Cuts(data, chosen, begun), model.variables

    def ends_after(c: int, k: int, others: Sequence[int]) -> Any:
        terms = ((factor, of[name][c, at]) for factor, (name, at) in data[c].summands(k, others))
        return cpsat.weighted_sum(terms) >= 0

    # Chunks are intervals of the chain, none of them empty, and each layer runs by one TMPC.
    model.row("one_choice", (0 if known is None else kept) + sum(chosen.values()) == 1,
        "degrees are chosen once, or the known plan: sum of chosen[c] + kept = 1")
    model.rows("stays_begun", index.cuts, lambda c, g, v: begun[c, g, v] <= cuts.begun(c, g, v + 1),
        "what has begun stays so: begun[c,g,l] <= begun[c,g,l+1]")
    model.rows("not_empty", index.cuts, lambda c, g, v: begun[c, g, v] <= cuts.begun(c, g - 1, v - 1),
        "chunk g - 1 has a layer before chunk g begins: begun[c,g,l] <= begun[c,g-1,l-1]")
    model.rows("one_way", index.places, lambda c, g, v: cuts.holds(c, g, v) == sum(
        runs[c, g, v, x] for x in range(len(data[c].ways[v])) if (g, v, x) in data[c].again),
        "a layer runs by one TMPC in its chunk: sum of runs[c,g,l,x] over x = begun[c,g,l] - begun[c,g+1,l]")
    model.rows("crossing", index.skips, lambda *at: crosses[at] >= cuts.crosses(*at),
        "an edge leaves a chunk that has its source if its target is behind, and enters that of its target; "
        "in a V not if both are on one device")

    # Times of passes [definition.problem.chunk_times], and their order [Narayanan et al. 2021, section 2.2].
    model.rows("forward_time", index.chunks, lambda c, g: of["forward"][c, g] >= cuts.thirds(c, g, crosses),
        "F is a third of what layers compute and of what crosses the chunk's ends")
    model.rows("weight_time", index.split, lambda c, g: of["weight"][c, g] >= cuts.total(c, g, data[c].weight),
        "W is what layers declare")
    model.rows("backward_time", index.split, lambda c, g: of["backward"][c, g] >= cuts.backward(c, g, crosses),
        "B without recomputation is two thirds of what layers compute and of what crosses, less W")
    model.rows("recomputation", index.chunks, lambda c, g: of["again"][c, g] >= sum(
        more * runs[(c, *at)] for at, more in data[c].again.items() if at[0] == g),
        "recomputation is what TMPCs take longer than the fastest of their layers")
    model.rows("after_own", index.actions, lambda c, k: ends_after(c, k, data[c].orders.before),
        "an action follows the one before it on its device: end[c,k] >= end[c,that] + its time")
    model.rows("after_other", index.actions, lambda c, k: ends_after(c, k, data[c].orders.needs),
        "and what it needs of another device, F of the chunk before, B of the one behind: the same")
    model.rows("ended", index.last, lambda c, k: makespan[c] >= of["end"][c, k],
        "all devices have ended: makespan[c] >= end[c,k], k the last action of each")

    # Gradients beside passes [definition.problem.Behind].
    model.rows("sum_beside", index.sums, lambda c, g: summed[c, g] >= cuts.total(c, g, data[c].summed),
        "gradients of a chunk that are summed beside passes")
    model.rows("exposed_sum", index.layers, lambda c, v: exposed[c, 0] >= cuts.exposed(c, v),
        "of the first chunk's those from layer l on that the backward passes behind it do not hide")

    model.rows("gradient_sum", index.devices, lambda c, i: gradients[c] >= cuts.gradients(c, i),
        "gradients behind all passes: gradients[c] >= 4 (d-1)/d * weights / B of each device, or what is left")
    model.rows("made_again", index.made,
        lambda c, g, *at: made[c, data[c].degrees.devices[g]] >= data[c].made[g, *at] * runs[c, g, *at],
        "a device has what one of its layers makes again: made[c,i] >= bytes of runs[c,g,l,x], g on i")
    model.rows("memory", index.memory,
        lambda c, *row: sum(size * runs[(c, *at)] for at, size in data[c].sizes[row].items())
        + made.get((c, row[0]), 0) <= limit * chosen[c],
        "static bytes, and activations of micro-batches in flight, fit at a device's fullest moments")
    # fmt: on
    # A batch is an iteration and the sum of gradients behind it, or that of the known plan.
    model.minimize((known or 0) * kept + sum(makespan[c] + gradients[c] for c in index.degrees))
    return model


@dataclass
class Model(strategy_model.StrategyModel, cpsat.Runnable):
    """The model of ``data``, or of the plan ``known``, in units of ``scale``."""

    model: cpsat.SpokenModel
    data: Sequence[Layouts]
    instance: StrategyInstance
    known: StrategyPlan | None
    scale: Scale

    def of(self, name: str) -> Any:
        """The variables of a name, by their indices."""
        found = self.model.variables[name]
        return found.get((), found)

    def forbid(self, variables: list[Any]) -> None:
        """Not all of these are 1."""
        self.model.says("forbidden", "ways to run the layers of a device that only rounding admitted")
        number = len(self.model.proto.constraints)
        self.model.add(sum(variables) <= len(variables) - 1).with_name(f"forbidden[{number}]")

    def lower_bound(self, bound: float) -> float:
        """A bound in the instance's unit; units are whole, so it may be rounded up."""
        return self.scale.restore(max(0, cpsat.whole(bound))) * (1 - 1e-12)


def _model(instance: StrategyInstance, found: Sequence[Priced], watch: Watch) -> Model:
    """That of some degrees, in whole units; `Stopped` as the watch."""
    plan, best = watch.incumbent()
    most = math.inf if best is None else best * _WORSE
    natural = [layouts_of(instance, each, most, float, float, float) for each in found]
    longest, terms = sum(own.longest for own in natural), max((own.num_terms for own in natural), default=0)
    # The objective has two variables of each choice of degrees, a row of an action up to five.
    largest = (2 * len(found) + 5) * longest
    scale = cost_scale(min((each.least for each in found), default=0.0), terms, largest)
    held = [size for own in natural for row in (*own.sizes.values(), own.made) for size in row.values()]
    byte = size_scale(held, instance.flat.memory_bytes, math.fsum(held))
    limit = byte.floor(instance.flat.memory_bytes * MEMORY_SLACK)
    if most > largest:  # whatever fits at these degrees is better: the plan that is known is no choice
        plan = best = None
    known = None if best is None else scale.floor(most)
    with stops_with(watch):
        data = [layouts_of(instance, each, most, scale.floor, byte.floor, scale.ceil) for each in found]
        made = Model(build(data, limit, scale.ceil(longest), known), data, instance, plan, scale)
        made.begin_with([] if best is None else [(made.of("kept"), 1)])
        return made


def model_of(instance: StrategyInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model that `strategy_model.shown` makes."""
    made: Model = strategy_model.shown(instance, watch, _model, complete=complete)
    return made


def solve(instance: StrategyInstance, limits: Limits, watch: Watch) -> Answer[StrategyPlan]:
    """The best plan; the bound is within 1e-6 of it unless 56 bits are too few for the spread of the times."""
    return strategy_model.solve(instance, limits, watch, _model)
