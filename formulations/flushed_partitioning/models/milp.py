"""Flushed stage partitioning as a MILP: the flat model of blocks with depth, bottleneck and synchronisation apart.

A batch of m micro-batches takes (1 + (L - 1) / m) C + R per sample, where C is the slowest stage's step, L the stages
on the longest path and R the longest synchronisation. The product of L and C is one row for each depth.
Where replicas fill it is (S + P) / m + R, with S the longest path in times t of a replica, and P the most of
(ceil(m/d) - 1) t.

Source: this project; symbols as in the flat problem's model (`stage_partitioning.models.milp`), Piper's.
"""

from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.flushed_partitioning.definition.problem import evaluate, violations
from formulations.flushed_partitioning.definition.quantities import VOCABULARY
from formulations.flushed_partitioning.models.blocks import FlushedBlocks, FlushedModel, data_of
from formulations.flushed_partitioning.models.first_plan import first_plan
from formulations.modelling.solve_model import add_requirements, prove
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.models import milp as flat
from instances.problems.flushed_partitioning import FlushedInstance
from solvers.build_stop import stops_with
from solvers.milp import backend as milp
from solvers.milp.backend import in_units, weighted_sum
from solvers.outcome import Limits, Watch


def build(data: FlushedBlocks) -> pyo.ConcreteModel:
    """The flat model of the instance without weights (``time`` is C), with L, R and the objective added."""
    model, second = flat.build(data), flat.unit_of_time(data)
    model.synchronisation = pyo.Var(
        domain=pyo.NonNegativeReals, doc="R, the longest synchronisation of a stage per micro-batch"
    )
    model.total = pyo.Var(domain=pyo.NonNegativeReals, doc="the objective: (1 + (L - 1) / m) C + R, or (S + P) / m + R")
    model.stage_synchronisation = pyo.Constraint(
        range(len(data.blocks)),
        rule=lambda m, b: (
            weighted_sum((in_units(data.synchronisation(b, o), second), m.choice[b, o]) for o in data.blocks[b].times)
            <= m.synchronisation
        ),
        doc="R is at least the synchronisation of a stage: 4 (d-1)/d sum of X.w / (B m) <= R [reconstructed]",
    )
    (_fill_by_replicas if data.by_replicas else _fill_by_stages)(model, data)
    model.del_component(model.objective)
    model.objective = pyo.Objective(expr=model.total)
    return model


def _in_front(model: pyo.ConcreteModel, data: FlushedBlocks, path: Any, own: Any, most: float, doc: str) -> None:
    """``path[s]``, up to ``most``, is at least ``own[s]`` more than that of a smaller sum to which an edge leads."""
    sums = range(1, data.terms.max_s + 1)

    def in_front(m: Any, u: int, v: int, s: int, after: int) -> Any:
        both = m.done[u, s] - m.done[u, s - 1] + m.done[v, after] - m.done[v, after - 1]
        return path[s] >= path[after] + own[s] - most * (2 - both)

    pairs = ((s, after) for s in sums for after in range(1, s))
    model.in_front = pyo.Constraint(data.flushed.flat.edge_indices, pairs, rule=in_front, doc=doc)


def _fill_by_stages(model: pyo.ConcreteModel, data: FlushedBlocks) -> None:
    """L, and the rows of the objective."""
    m, most, second = data.microbatches, len(data.terms.stages), flat.unit_of_time(data)
    sums = range(1, data.terms.max_s + 1)
    # fmt: off
    model.level = pyo.Var(sums, bounds=(1, most),
        doc="level[s]: at least the stages on the longest path from sum s on, itself included")
    model.deep = pyo.Var(range(2, most + 1), domain=pyo.Binary, doc="deep[l]: some path may have l stages or more")

    def batch_time(model: Any, depth: int) -> Any:
        longest = data.most / second * (1 + milp.ROOM)
        spared = (depth - 1) / m * longest * (1 - model.deep[depth]) if depth > 1 else 0.0
        return model.total >= (1 + (depth - 1) / m) * model.time + model.synchronisation - spared

    _in_front(
        model, data, model.level, dict.fromkeys(sums, 1), most,
        "an edge (u,v) from sum s to a smaller one puts s in front of it: level_s > level_after; big-M: levels are "
        "from 1 to the number of stages",
    )  # fmt: skip
    model.shallow = pyo.Constraint(range(2, most + 1), sums,
        rule=lambda m, depth, s: m.level[s] <= depth - 1 + (most - depth + 1) * m.deep[depth],
        doc="no path is longer unless it is said to be: level_s <= l - 1 if not deep[l]")
    model.deeper = pyo.Constraint(range(3, most + 1), rule=lambda m, depth: m.deep[depth] <= m.deep[depth - 1],
        doc="a path of l stages has one of l - 1 in it: deep[l] <= deep[l-1]")
    model.batch_time = pyo.Constraint(range(1, most + 1), rule=batch_time,
        doc="with l stages on a path a batch takes m + l - 1 steps: total >= (1 + (l - 1)/m) C + R if deep[l]; "
        "big-M: without the path the row asks for (l - 1)/m C less, and C is at most that of a known plan")
    # fmt: on


def _fill_by_replicas(model: pyo.ConcreteModel, data: FlushedBlocks) -> None:
    """S and P, and the rows of the objective."""
    m, second, sums = data.microbatches, flat.unit_of_time(data), range(1, data.terms.max_s + 1)
    # S is at most that of a known plan, whose objective ``most`` is, or what all layers take in stages of their own.
    longest = min(m * data.most, data.terms.largest_time) / second * (1 + milp.ROOM)
    every = range(len(data.blocks))

    def replica_time(model: Any, b: int, factor: int) -> Any:
        return weighted_sum(
            (in_units(factor * each, second), model.component(name)[b, at])
            for (name, at), each in data.replica_times(b)
        )

    # fmt: off
    model.own = pyo.Var(sums, bounds=(0, longest),
        doc="own[s]: t of the stage of sum s, its time for a micro-batch on a replica; 0 without one")
    model.path = pyo.Var(sums, bounds=(0, longest),
        doc="path[s]: at least the sum of t on the heaviest path from sum s on, itself included")
    model.fill = pyo.Var(bounds=(0, longest), doc="S, the sum of t on the heaviest path")
    model.later = pyo.Var(domain=pyo.NonNegativeReals,
        doc="P, the most that the busiest replica of a stage runs behind its first micro-batch")
    model.replica_time = pyo.Constraint(every,
        rule=lambda model, b: replica_time(model, b, 1) <= model.own[data.blocks[b].s],
        doc="t of a stage, d times its compute and communication: sum of X.p and of what it pays at its boundary "
        "<= own[s]")
    _in_front(
        model, data, model.path, model.own, 2 * longest,
        "an edge (u,v) from sum s to a smaller one puts s in front of it: path_s >= own_s + path_after; big-M: no path "
        "and no stage takes longer than a known plan, or all layers one by one",
    )  # fmt: skip
    model.path_ends = pyo.Constraint(sums, rule=lambda m, s: m.path[s] >= m.own[s],
        doc="a path has its first stage: path_s >= own_s")
    model.heaviest = pyo.Constraint(sums, rule=lambda m, s: m.path[s] <= m.fill,
        doc="no path is heavier than S: path_s <= S")
    model.later_rounds = pyo.Constraint(every,
        rule=lambda model, b: replica_time(model, b, data.later(b)) <= model.later,
        doc="the busiest of d replicas runs ceil(m/d) micro-batches, one of them in S: (ceil(m/d) - 1) t <= P")
    model.batch_time = pyo.Constraint(expr=m * model.total >= model.fill + model.later + m * model.synchronisation,
        doc="a batch takes a micro-batch on the heaviest path, and all others of the busiest replica: "
        "m total >= S + P + m R")
    model.steps = pyo.Constraint(expr=model.total >= model.time + model.synchronisation,
        doc="implied: m C is at most what a replica runs, of which S has one micro-batch and P the others")
    # fmt: on


class Model(FlushedModel, flat.Model):
    """The model of ``data``."""

    data: FlushedBlocks


def model_of(instance: FlushedInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements; `solve_model.Stopped` once the watch is."""
    data = data_of(instance, watch or Watch(), complete=complete)
    with stops_with(data.watch):
        return add_requirements(Model(build(data), data), VOCABULARY, instance)


def solve(instance: FlushedInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by HiGHS."""
    return prove(
        instance, lambda: model_of(instance, watch), evaluate, violations, limits, watch, to_scale=True,
        first=first_plan(instance),
    )  # fmt: skip
