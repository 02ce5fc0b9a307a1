"""Operator partitioning for CP-SAT: operators assigned to stages, what the stages send and take, the slowest of them.

Exact for the instance with a given S as declared: costs are rounded down to whole units, sizes down and limits up
(`solvers.scaling`), so the bound holds; a plan that only rounding let through is cut off and the search goes on.

Source: this project; the objective is Parmesan's, Equations 1 and 3.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.modelling.solve_model import add_requirements, prove
from formulations.operator_partitioning.costs.costs import load_bound
from formulations.operator_partitioning.costs.shapes import flushed_bound, longest_operators, shortage
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import evaluate, violations
from formulations.operator_partitioning.definition.quantities import VOCABULARY
from formulations.operator_partitioning.models import partition
from formulations.operator_partitioning.models.assignment_data import Data, data_of
from formulations.operator_partitioning.models.first_plan import bound, first_plan
from instances.problems.operator_partitioning import OperatorInstance
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Prover, Watch
from solvers.scaling import Scale, cost_scale, size_scale

_sum = cp_model.LinearExpr.sum

#: For models of a step: on their large whole numbers CP-SAT 9.15's linear relaxation stalls. It left 12 of 305 small
#: placements open after 2 s that it proves in 0.01 s each without.
UNRELAXED: Mapping[str, Any] = {"linearization_level": 0}


def scale_of(data: Data) -> Scale:
    """Whole units of time."""
    stages, devices = data.stages, data.instance.num_devices or 0
    terms = (
        (s > 0) * len(data.send_s) + (s < stages[-1]) * len(data.single) + (stages[-1] - s) * len(data.several)
        for s in stages
    )
    roundings = len(data.compute_s) + max(terms)
    if data.instance.flushed:
        # A time counts for the first micro-batch and for all others of a replica, beside the all-reduce.
        loads = len(stages) + data.after_first()
        reduced_s = max(math.fsum(data.all_reduce_s(r).values()) for r in data.replicas)
        roundings = loads * roundings + len(data.operators)
        least = flushed_bound(data.instance, load_bound(data.instance))
        return cost_scale(least, roundings, data.largest_load_s * (loads + 1) + reduced_s)
    return cost_scale(load_bound(data.instance), roundings + devices, data.largest_load_s * (1 + devices))


def add_partition(model: cpsat.SpokenModel, data: Data) -> None:
    """Operators, replicas and memory of the stages, without the time that they take."""
    instance, operators, stages, after = data.instance, data.operators, data.stages, data.after

    # fmt: off
    holds = model.booleans("holds", [(v, s) for v in operators for s in stages],
        "holds[v,s]: operator v is in stage s, from 0 at the input side")
    done = model.booleans("done", [(v, s) for v in operators for s in stages[:-1]],
        "done[v,s]: operator v is in stage s or an earlier one; not of the last stage")
    replicas = model.booleans("replicas", [(s, r) for s in stages for r in data.numbers],
        "replicas[s,r]: stage s has r replicas; where their number is free")
    keeps = model.booleans("keeps", [(v, s) for v in data.feeding for s in stages],
        "keeps[v,s]: stage s keeps the output of v, an operator of an earlier stage, as an input; for training")
    awaited = model.booleans("awaited", [(v, k, s) for v, k in data.awaiting for s in stages],
        "awaited[v,k,s]: the output of v, in stage s, is awaited by its k-th successor there or by a later one; for "
        "recomputation")

    model.rows("one_stage", operators, lambda v: model.add_exactly_one([holds[v, s] for s in stages]),
        "every operator is in one stage: sum over s of holds[v,s] = 1")
    model.rows("counted", [(v, s) for v in operators for s in stages if stages[1:]],
        lambda v, s: done.get((v, s), 1) == done.get((v, s - 1), 0) + holds[v, s],
        "it is done from that stage on, and at last: done[v,s] = done[v,s-1] + holds[v,s], done[v,S-1] = 1")
    model.rows("order", [(u, v, s) for u, v in instance.edges for s in stages[:-1]],
        lambda u, v, s: done[v, s] <= done[u, s],
        "a stage comes after those that feed it: where v is done, so is every u that feeds it")
    members = [_sum([holds[v, s] for v in operators]) for s in stages]
    model.rows("not_empty", () if instance.at_most else stages, lambda s: members[s] >= 1,
        "no stage is empty: sum over v of holds[v,s] >= 1")
    model.rows("empty_first", [(v, s) for s in stages[:-1] for v in operators if instance.at_most],
        lambda v, s: holds[v, s] <= members[s + 1],
        "behind a stage that is used, none is empty: holds[v,s] <= sum over w of holds[w,s+1]")
    model.rows("one_number", stages if data.is_free else (),
        lambda s: model.add_exactly_one([replicas[s, r] for r in data.numbers]),
        "every stage has a number of replicas: sum over r of replicas[s,r] = 1")
    model.rows("some_replica", [(v, s) for s in stages for v in operators if data.is_free and instance.at_most],
        lambda v, s: holds[v, s] + replicas[s, 0] <= 1,
        "a stage that is used has some replica: holds[v,s] + replicas[s,0] <= 1")
    model.rows("devices", [()] if data.is_free else (),
        lambda: cpsat.weighted_sum((r, replicas[s, r]) for s, r in replicas if r) <= instance.num_devices,
        "together the stages use no more than the devices: sum of r replicas[s,r] <= devices")

    def memory(s: int, now: int) -> Any:
        needs = data.needs(s, now)
        sizes = [*((size, holds[v, s]) for v, size in enumerate(needs.own)),
                 *((-r * needs.room_each, replicas[s, r]) for r in data.numbers if r and needs.room_each),
                 *((size, keeps[v, s]) for v, size in needs.kept.items()),
                 *((size, awaited[v, k, s]) for (v, k), size in needs.live.items())]
        byte = _byte_scale([abs(size) for size, _ in sizes], needs.room)
        return cpsat.weighted_sum((byte.floor(size), each) for size, each in sizes) <= byte.ceil(needs.room)

    model.rows("kept", [(v, w, s) for v, s in keeps for w in after[v]],
        lambda v, w, s: keeps[v, s] >= holds[w, s] - holds[v, s],
        "a stage keeps what comes from outside: the outputs of operators that are not in it, yet feed one that is")
    model.rows("alive", awaited, lambda v, k, s: awaited[v, k, s] >= holds[v, s] + holds[data.awaiting[v, k], s] - 1,
        "an output is awaited as long as one of the stage's operators that it feeds, from the k-th on, is to come")
    model.rows("until", [(v, k, s) for v, k, s in awaited if k],
        lambda v, k, s: awaited[v, k, s] <= awaited[v, k - 1, s],
        "what a later successor awaits, an earlier place does as well: awaited[v,k,s] <= awaited[v,k-1,s]")
    model.rows("memory", [(s, v) for s in stages for v in data.running], memory,
        "every stage fits its memory, whichever operator runs [reconstructed]")
    # fmt: on


def build(data: Data) -> cpsat.SpokenModel:
    """The model of all partitions into S stages; no plan prunes it."""
    instance, stages, scale, model = data.instance, data.stages, scale_of(data), cpsat.SpokenModel()
    add_partition(model, data)
    holds, tensors = model.variables["holds"], instance.tensors

    # fmt: off
    takes = model.booleans("takes", [(t, s) for t in data.send_s for s in stages[1:]],
        "takes[t,s]: stage s receives tensor t from an earlier one")
    leaves = model.booleans("leaves", [(t, s) for t in data.single for s in stages[:-1]],
        "leaves[t,s]: stage s sends tensor t, which has one target")
    sends = model.booleans("sends", [(t, s, q) for t in data.several for s in stages for q in stages[s + 1:]],
        "sends[t,s,q]: stage s sends tensor t, which has several targets, to stage q")
    # M(s, s') of Equations 1 and 3: nothing but load keeps these variables down, so they need no upper rows.
    model.rows("received", [(t, target, s) for t, s in takes for target in tensors[t].targets],
        lambda t, target, s: takes[t, s] >= holds[target, s] - holds[tensors[t].source, s],
        "a stage that runs a target of a tensor, and not its source, receives it: takes[t,s] >= holds[target,s] - "
        "holds[source,s] [Parmesan, Equation 3]")
    model.rows("left", leaves,
        lambda t, s: leaves[t, s] >= holds[tensors[t].source, s] - holds[tensors[t].targets[0], s],
        "a tensor of one target leaves if its source is here and its target is not [Parmesan, Equation 3]")
    model.rows("sent", sends, lambda t, s, q: sends[t, s, q] >= holds[tensors[t].source, s] + takes[t, q] - 1,
        "a tensor of several is sent from the stage of its source to every stage that takes it: sends[t,s,q] >= "
        "holds[source,s] + takes[t,q] - 1 [Parmesan, Equation 3]")

    # fmt: on
    def time(s: int) -> Any:
        seconds = [
            *((each, holds[v, s]) for v, each in data.compute_s.items()),
            *((each, takes[t, s]) for t, each in data.send_s.items() if s),
            *((data.send_s[t], leaves[t, s]) for t in data.single if s < stages[-1]),
            *((data.send_s[t], sends[t, s, q]) for t in data.several for q in stages[s + 1 :]),
        ]
        return cpsat.weighted_sum((scale.floor(each), variable) for each, variable in seconds)

    times = {s: time(s) for s in stages}
    if instance.flushed:
        add_step(model, data, scale, times)
    else:
        add_slowest(model, data, scale, times)
    return model


def add_slowest(model: cpsat.SpokenModel, data: Data, scale: Scale, times: Mapping[int, Any]) -> None:
    """The objective of a pipeline that is never flushed, of the times of stages."""
    replicas = model.variables["replicas"]

    # fmt: off
    slowest = model.integer("slowest", 0, scale.ceil(data.largest_load_s),
        "time of the slowest stage over its replicas [Parmesan, Equation 1]")

    def stage_time(s: int, *number: int) -> Any:
        time = times[s]
        # All stages have R replicas unless their number is free, so that is left to the objective.
        return (time <= number[0] * slowest, replicas[s, *number]) if number else time <= slowest

    model.rows("stage_time", [(s, r) for s, r in replicas if r] if data.is_free else times, stage_time,
        "the slowest stage is as slow as every stage: t(s) = sum of c(v) holds[v,s] + sum of M(s,s') / B <= slowest, "
        "times r if it has r replicas and their number is free [Parmesan, Equation 1]")
    # fmt: on
    model.minimize(slowest)


def add_step(model: cpsat.SpokenModel, data: Data, scale: Scale, times: Mapping[int, Any]) -> None:
    """The objective of a flushed pipeline (`definition.problem.step_parts`), of the times of stages."""
    instance, stages, most = data.instance, data.stages, scale.ceil(data.largest_load_s)
    holds, replicas = model.variables["holds"], model.variables["replicas"]
    numbers = [(s, r) for s in stages for r in data.replicas]
    least = scale.floor(longest_operators(instance))
    reduced_s = {r: data.all_reduce_s(r) for r in data.replicas}

    def with_number(row: Any, s: int, r: int) -> Any:
        return (row, replicas[s, r]) if data.is_free else row

    feeds = add_feeds(model, data, holds)
    # fmt: off
    lasts = model.integers("lasts", stages, 0, most,
        "lasts[s]: time of a micro-batch on one replica of stage s")
    # An equation, though a bound would do: with a bound CP-SAT left four of 2,500 small instances open after 30 s.
    model.rows("stage_lasts", stages, lambda s: lasts[s] == times[s],
        "a stage computes, receives and sends: t(s) = sum of c(v) holds[v,s] + sum of M(s,s') / B = lasts[s] "
        "[Parmesan, Equation 3]")
    path = model.integers("path", stages, 0, most * len(stages),
        "path[s]: time of the heaviest path of stages that ends with stage s")
    model.rows("path_begins", stages, lambda s: path[s] >= lasts[s], "a path may begin with any stage")
    model.rows("path_goes_on", feeds, lambda s, q: (path[q] >= path[s] + lasts[q], feeds[s, q]),
        "it goes on to each stage that is fed")
    # A path of operators runs through the stages of one path, so no plan fills in less than its computing.
    first = model.integer("first", least, max(least, most * len(stages)),
        "time of the first micro-batch, there and back: while the pipeline fills and drains")
    model.rows("fill", stages, lambda s: first >= path[s], "the first micro-batch passes the heaviest path of stages")
    others = model.integer("others", 0, most * data.after_first(),
        "time of all other micro-batches where they take longest")
    model.rows("steady", numbers,
        lambda s, r: with_number(others >= data.after_first(r) * lasts[s], s, r),
        "a replica runs its other micro-batches one by one: ceil(G / r) - 1 of them if its stage has r")
    reduced = model.integer("reduced", 0, max(scale.ceil(math.fsum(each.values())) for each in reduced_s.values()),
        "time of the longest all-reduce")
    model.rows("all_reduce", numbers,
        lambda s, r: with_number(reduced >= cpsat.weighted_sum(
            (scale.floor(each), holds[v, s]) for v, each in reduced_s[r].items()), s, r),
        "gradients are summed at last, over the r replicas of a stage [Parmesan, Equation 7]")
    # fmt: on
    model.minimize(first + others + reduced)


def add_feeds(model: cpsat.SpokenModel, data: Data, holds: Mapping[Any, Any]) -> dict[Any, Any]:
    """Which stages feed which later ones."""
    stages = data.stages
    feeds = model.booleans(
        "feeds",
        [(s, q) for s in stages for q in stages[s + 1 :]],
        "feeds[s,q]: an operator of stage s feeds one of stage q",
    )
    model.rows(
        "fed",
        [(s, q, u, v) for s, q in feeds for u, v in data.instance.edges],
        lambda s, q, u, v: feeds[s, q] >= holds[u, s] + holds[v, q] - 1,
        "a stage feeds another one if an operator of it feeds one there",
    )
    return feeds


def _byte_scale(sizes: list[float], room: float) -> Scale:
    """Whole units of bytes for a row: sizes are rounded down and the room up."""
    return size_scale([*sizes, room], max(room, max(sizes, default=0.0)), math.fsum(sizes))


@dataclass
class Partition(cpsat.ByName, partition.Partition):
    """The partition of a model that has its variables and rows (`add_partition`)."""

    model: cpsat.SpokenModel
    data: Data

    def cut_off(self, _plan: OperatorPlan, values: Any) -> None:
        """Not this assignment, nor any that is no smaller."""
        variables, parts = self.no_smaller(values)
        self.model.row("forbidden", _sum(variables) <= parts - 1,
                       "an assignment with more bytes than fit, which only rounding admitted, is cut off")  # fmt: skip


@dataclass
class Model(Partition, cpsat.Runnable):
    """The model of ``data``, whose times are in units of ``scale``."""

    scale: Scale

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        # The slowest stage is whole, its load over its replicas may not be; of a step all terms are.
        units = cpsat.whole(bound) - (self.data.is_free and not self.data.instance.flushed)
        return max(0.0, self.scale.restore(units) / self.data.common_replicas * (1 - 1e-14))


class StepModel(Model):
    """The same of a flushed pipeline."""

    parameters = UNRELAXED


def model_of(
    instance: OperatorInstance,
    watch: Watch | None = None,  # noqa: ARG001 - no plan prunes it
    *,
    complete: bool = False,  # noqa: ARG001 - it always is
) -> Model:
    """The model of an instance, with its requirements."""
    data = data_of(instance)
    return add_requirements(
        (StepModel if instance.flushed else Model)(build(data), data, scale_of(data)), VOCABULARY, instance
    )


def solve(instance: OperatorInstance, limits: Limits, watch: Watch) -> Answer[OperatorPlan]:
    """The best plan; the bound is within 1e-7 of it unless 56 bits are too few for the spread of the costs."""
    reason = shortage(instance)
    if reason is not None:
        return infeasible_by_counting(reason)
    watch.bound(bound(instance, watch), Prover.BOUNDS)
    first, reason = first_plan(instance), "no assignment fits"
    return prove(instance, lambda: model_of(instance), evaluate, violations, limits, watch, reason=reason, first=first)
