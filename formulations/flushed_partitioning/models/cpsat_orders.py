"""The shortest iteration in CP-SAT: the flat model of blocks, and when every pass of the schedule's orders ends.

A *shape* is the degrees of a plan's stages, from the input side on. It says which passes each replica runs, and in
which order (`simulation.orders.replicated`), so that a plan of the shape takes as long as the longest path through
them. All shapes that the devices and micro-batches allow are in the model, so it is one of small chains.

Source: this project; the flat problem's rows are Piper's (`stage_partitioning.models.cpsat`), what waits for what is
Narayanan et al. 2021, section 2.2. Nothing of the search (`exact.iteration`) is in it, neither bounds nor orders.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from formulations.contract.family import Answer
from formulations.flushed_partitioning.definition.problem import evaluate, violations
from formulations.flushed_partitioning.definition.quantities import VOCABULARY
from formulations.flushed_partitioning.exact.effort import degrees_of_chains, passes_too_many
from formulations.flushed_partitioning.models import cpsat as formula
from formulations.flushed_partitioning.models.blocks import FlushedBlocks, data_of
from formulations.flushed_partitioning.models.first_plan import first_plan
from formulations.modelling.solve_model import add_requirements, prove
from formulations.simulation.orders import Action, replicated
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.models import cpsat as flat
from instances.problems.flushed_partitioning import Fill, FlushedInstance, Objective
from solvers.build_stop import stops_with
from solvers.cpsat import backend as cpsat
from solvers.memory_budget import SizeError
from solvers.outcome import Limits, Watch


@dataclass(frozen=True)
class Shape:
    """The stages of a plan by (s, d), s the sum of the degrees of one and of all behind it, and their passes.

    ``before`` has of every pass the one before it on its replica, and ``last`` the last one of each replica.
    """

    stages: tuple[tuple[int, int], ...]
    before: Mapping[Action, Action | None]
    last: tuple[Action, ...]

    def need(self, action: Action) -> Action | None:
        """What a pass waits for of another stage: F of the one in front, B of the one behind."""
        kind, stage, j = action
        other = stage - 1 if kind == "F" else stage + 1
        return Action(kind, other, j) if 0 <= other < len(self.stages) else None


def shapes_of(data: FlushedBlocks) -> list[Shape]:
    """Those of all plans whose stages are blocks."""
    here = {(block.s, block.dp_degree) for block in data.blocks}
    found = []
    for degrees in degrees_of_chains(data.flushed.flat):
        stages = tuple((sum(degrees[i:]), d) for i, d in enumerate(degrees))
        if here.issuperset(stages):
            # Replicas of one degree are pipelines of their own; the first of them runs the most micro-batches.
            orders = replicated(str(data.flushed.schedule), degrees, data.microbatches, all_replicas=False)
            before = {each: order[n - 1] if n else None for order in orders for n, each in enumerate(order)}
            found.append(Shape(stages, before, tuple(order[-1] for order in orders if order)))
    return found


def build(data: FlushedBlocks, shapes: Sequence[Shape]) -> cpsat.SpokenModel:
    """The flat model of the instance without weights (``time`` is C), with a plan's shape and its passes."""
    model = flat.build(data)
    second, m, every = flat.scales(data)[0], data.microbatches, range(len(data.blocks))
    taken, choice = model.variables["taken"], model.variables["choice"]
    # A batch takes no longer than all passes in turn, nor than that of a known plan; times are rounded down.
    latest, longest = second.ceil(m * data.most) + 1, second.ceil(data.longest) + 1
    # fmt: off
    model.says("time", "C, compute and communication of the slowest stage per micro-batch, in whole units")
    ordered = model.booleans("ordered", range(len(shapes)),
        "ordered[h]: the plan's stages have the degrees of shape h, and its passes their orders")
    forward = model.integers("forward", range(1, data.terms.max_s + 1), 0, latest,
        "forward[s]: F of a micro-batch on a replica of the stage of sum s, B takes twice as long; 0 without one")
    end = model.integers("end", [(h, *action) for h, shape in enumerate(shapes) for action in shape.before], 0, latest,
        "end[h,k,i,j]: when pass k (F or B) of micro-batch j ends in stage i of a plan of shape h")
    synchronisation = model.integer("synchronisation", 0, longest,
        "R, the longest synchronisation of a stage per micro-batch, in whole units")
    total = model.integer("total", 0, latest + m * longest, "the objective, times m, in whole units")

    def of_shape(s: int, d: int) -> Any:
        own = [taken[b] for b in every if (data.blocks[b].s, data.blocks[b].dp_degree) == (s, d)]
        return sum(own) == sum(ordered[h] for h, shape in enumerate(shapes) if (s, d) in shape.stages)

    def ends_after(h: int, action: Action, other: Action | None) -> tuple[Any, Any]:
        passed = (1 if action.kind == "F" else 2) * forward[shapes[h].stages[action.stage][0]]
        return end[(h, *action)] >= passed + (0 if other is None else end[(h, *other)]), ordered[h]

    # The plan has one shape, that of its blocks.
    model.row("one_shape", model.add_exactly_one(ordered.values()), "a plan has one shape: sum of ordered[h] = 1")
    model.rows("of_shape", sorted({(block.s, block.dp_degree) for block in data.blocks}), of_shape,
        "its stages are those of the shape: sum of taken[b] over b = (s,t,d) = sum of ordered[h] over h with (s,d)")
    # Passes, in the orders of the schedule [Narayanan et al. 2021, section 2.2].
    model.rows("forward_time", every, lambda b: _forward(model, data, b) <= forward[data.blocks[b].s],
        "F is a third of what a replica takes: (sum of X.p and of what the stage pays at its boundary) / 3")
    model.rows("after_own", end, lambda h, *at: ends_after(h, Action(*at), shapes[h].before[Action(*at)]),
        "a pass follows the one before it on its replica: end[h,k] >= end[h,that] + its time if ordered[h]")
    model.rows("after_other", [at for at in end if shapes[at[0]].need(Action(*at[1:])) is not None],
        lambda h, *at: ends_after(h, Action(*at), shapes[h].need(Action(*at))),
        "and what it needs of another stage, F of the one in front, B of the one behind: the same")
    # Weights are synchronised when all replicas have ended.
    model.rows("stage_synchronisation", every, lambda b: cpsat.weighted_sum(
        (second.floor(data.synchronisation(b, o)), choice[b, o]) for o in data.blocks[b].times) <= synchronisation,
        "R is at least the synchronisation of a stage: 4 (d-1)/d sum of X.w / (B m) <= R [reconstructed]")
    model.rows("ended", [(h, *action) for h, shape in enumerate(shapes) for action in shape.last],
        lambda *at: (total >= end[at] + m * synchronisation, ordered[at[0]]),
        "a batch ends when all replicas have, and all weights are synchronised: total >= end[h,last] + m R")
    # Implied: in front of a stage's first pass is F of all stages in front, behind its last one their B.
    model.rows("head_and_tail", every, lambda b: total >= m * synchronisation
        + 3 * data.rounds(b) * _forward(model, data, b) + 3 * sum(forward[s] for s in forward if s > data.blocks[b].s),
        "implied: a replica runs ceil(m/d) micro-batches between F and B of one in all stages in front of it")
    # fmt: on
    model.minimize(total)
    return model


def _forward(model: cpsat.SpokenModel, data: FlushedBlocks, b: int) -> Any:
    """F of block b: thirds of t, each rounded down."""
    second = flat.scales(data)[0]
    return cpsat.weighted_sum(
        (second.floor(each / 3), model.variables[name][b, at]) for (name, at), each in data.replica_times(b)
    )


class Model(formula.Model):
    """The model of ``data``."""

    def lower_bound(self, bound: float) -> float:
        """Times are rounded down, and the objective is a whole number, times m."""
        return max(0.0, flat.scales(self.data)[0].restore(cpsat.whole(bound)) / self.data.microbatches * (1 - 1e-12))


def model_of(instance: FlushedInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements; `solve_model.Stopped` once the watch is.

    `SizeError` if there are too many passes, or choices.
    """
    if (reason := passes_too_many(instance)) is not None:
        raise SizeError(reason)
    data = data_of(instance, watch or Watch(), complete=complete)
    with stops_with(data.watch):
        return add_requirements(Model(build(data, shapes_of(data)), data), VOCABULARY, instance)


def solve(instance: FlushedInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The shortest iteration by CP-SAT."""
    first = first_plan(replace(instance, objective=Objective.FORMULA, fill=Fill.REPLICAS))
    return prove(instance, lambda: model_of(instance, watch), evaluate, violations, limits, watch, first=first)
