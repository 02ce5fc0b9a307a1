"""Operator partitioning as a MILP (Pyomo, HiGHS): operators assigned to stages, what the stages send and take.

The sentences of CP-SAT's model, on the instance's numbers but for their scale. A load that no plan as fast as a known
one has counts as no larger: HiGHS's bounds are wrong beside numbers that are far too large.

Source: this project; the objective is Parmesan's, Equations 1 and 3.
"""

import math
from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.modelling.solve_model import add_requirements, prove
from formulations.operator_partitioning.costs.shapes import longest_operators, shortage
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import evaluate, violations
from formulations.operator_partitioning.definition.quantities import VOCABULARY
from formulations.operator_partitioning.models import partition
from formulations.operator_partitioning.models.assignment_data import Data, data_of
from formulations.operator_partitioning.models.first_plan import first_plan
from instances.problems.operator_partitioning import OperatorInstance
from solvers.milp import backend as milp
from solvers.milp.backend import in_units, weighted_sum
from solvers.outcome import Limits, Watch

#: Room in rows of sizes, in the model's units, for what HiGHS drops; what it lets through is cut off.
_SPARE = 1e-6


def times_of(data: Data, known_s: float | None) -> tuple[float, float]:
    """The unit of time, and a load than which none of interest is larger, given a known plan's objective; seconds."""
    largest_s, replicas = data.largest_load_s, data.common_replicas
    if data.instance.flushed:
        reduced_s = max(math.fsum(data.all_reduce_s(r).values()) for r in data.replicas)
        largest_s = largest_s * (len(data.stages) + data.after_first()) + reduced_s
    if not known_s:
        return largest_s / milp.NATURAL or 1.0, largest_s
    spread = 1 if data.instance.flushed else data.instance.num_devices or replicas
    top_s = known_s * spread * (1 + milp.ROOM)
    return known_s * replicas / milp.NATURAL, min(largest_s, top_s)


def add_partition(model: pyo.ConcreteModel, data: Data) -> None:
    """Operators, replicas and memory of the stages, without the time that they take."""
    instance, operators, stages, after = data.instance, data.operators, data.stages, data.after
    last, of_replicas = stages[-1], stages if data.is_free else ()

    # fmt: off
    model.holds = pyo.Var(operators, stages, domain=pyo.Binary, doc=
        "holds[v,s]: operator v is in stage s, from 0 at the input side")
    model.done = pyo.Var(operators, stages[:-1], domain=pyo.Binary, doc=
        "done[v,s]: operator v is in stage s or an earlier one; not of the last stage")
    model.replicas = pyo.Var(stages, data.numbers, domain=pyo.Binary, doc=
        "replicas[s,r]: stage s has r replicas; where their number is free")
    model.keeps = pyo.Var(data.feeding, stages, domain=pyo.Binary, doc=
        "keeps[v,s]: stage s keeps the output of v, an operator of an earlier stage, as an input; for training")
    model.awaited = pyo.Var(list(data.awaiting), stages, domain=pyo.Binary, doc=
        "awaited[v,k,s]: the output of v, in stage s, is awaited by its k-th successor there or by a later one; for "
        "recomputation")
    model.forbidden = pyo.ConstraintList(doc=
        "an assignment with more bytes than fit, which only rounding admitted, is cut off")

    def members(m: Any, s: int) -> Any:
        return weighted_sum((1.0, m.holds[v, s]) for v in operators)

    def counted(m: Any, v: int, s: int) -> Any:
        return (m.done[v, s] if s < last else 1.0) == (m.done[v, s - 1] if s else 0.0) + m.holds[v, s]

    model.one_stage = pyo.Constraint(
        operators, rule=lambda m, v: weighted_sum((1.0, m.holds[v, s]) for s in stages) == 1, doc=
        "every operator is in one stage: sum over s of holds[v,s] = 1")
    model.counted = pyo.Constraint(operators, stages if last else (), rule=counted, doc=
        "it is done from that stage on, and at last: done[v,s] = done[v,s-1] + holds[v,s], done[v,S-1] = 1")
    model.order = pyo.Constraint(
        list(instance.edges), stages[:-1], rule=lambda m, u, v, s: m.done[v, s] <= m.done[u, s], doc=
        "a stage comes after those that feed it: where v is done, so is every u that feeds it")
    model.not_empty = pyo.Constraint(
        () if instance.at_most else stages, rule=lambda m, s: members(m, s) >= 1, doc=
        "no stage is empty: sum over v of holds[v,s] >= 1")
    model.empty_first = pyo.Constraint(
        operators, stages[:-1] if instance.at_most else (), rule=lambda m, v, s: m.holds[v, s] <= members(m, s + 1),
        doc="behind a stage that is used, none is empty: holds[v,s] <= sum over w of holds[w,s+1]")
    model.one_number = pyo.Constraint(
        of_replicas, rule=lambda m, s: weighted_sum((1.0, m.replicas[s, r]) for r in data.numbers) == 1, doc=
        "every stage has a number of replicas: sum over r of replicas[s,r] = 1")
    model.some_replica = pyo.Constraint(
        operators, of_replicas if instance.at_most else (), rule=lambda m, v, s: m.holds[v, s] + m.replicas[s, 0] <= 1,
        doc="a stage that is used has some replica: holds[v,s] + replicas[s,0] <= 1")
    if data.is_free:
        used = weighted_sum((r, each) for (_, r), each in model.replicas.items() if r)
        model.devices = pyo.Constraint(expr=used <= instance.num_devices, doc=
            "together the stages use no more than the devices: sum of r replicas[s,r] <= devices")

    def memory(m: Any, s: int, now: int) -> Any:
        needs = data.needs(s, now)
        sizes = [*((size, m.holds[v, s]) for v, size in enumerate(needs.own)),
                 *((-r * needs.room_each, m.replicas[s, r]) for r in data.numbers if r and needs.room_each),
                 *((size, m.keeps[v, s]) for v, size in needs.kept.items()),
                 *((size, m.awaited[v, k, s]) for (v, k), size in needs.live.items())]
        if not any(size for size, _ in sizes):
            return pyo.Constraint.Skip
        byte = max(needs.room, *(abs(size) for size, _ in sizes)) / milp.NATURAL or 1.0
        return weighted_sum((size / byte, each) for size, each in sizes) <= needs.room / byte + _SPARE

    model.kept = pyo.Constraint(
        [(v, w, s) for v in data.feeding for s in stages for w in after[v]],
        rule=lambda m, v, w, s: m.keeps[v, s] >= m.holds[w, s] - m.holds[v, s], doc=
        "a stage keeps what comes from outside: the outputs of operators that are not in it, yet feed one that is")
    model.alive = pyo.Constraint(
        list(data.awaiting), stages,
        rule=lambda m, v, k, s: m.awaited[v, k, s] >= m.holds[v, s] + m.holds[data.awaiting[v, k], s] - 1, doc=
        "an output is awaited as long as one of the stage's operators that it feeds, from the k-th on, is to come")
    model.until = pyo.Constraint(
        [(v, k) for v, k in data.awaiting if k], stages,
        rule=lambda m, v, k, s: m.awaited[v, k, s] <= m.awaited[v, k - 1, s], doc=
        "what a later successor awaits, an earlier place does as well: awaited[v,k,s] <= awaited[v,k-1,s]")
    model.memory = pyo.Constraint(stages, data.running, rule=memory, doc=
        "every stage fits its memory, whichever operator runs [reconstructed]")
    # fmt: on


def build(data: Data, unit: float, top_s: float) -> pyo.ConcreteModel:
    """The model of all partitions into S stages, in ``unit`` seconds; no load of interest is above ``top_s``."""
    tensors, stages, model = data.instance.tensors, data.stages, pyo.ConcreteModel()
    add_partition(model, data)

    # fmt: off
    model.takes = pyo.Var(list(data.send_s), stages[1:], domain=pyo.Binary, doc=
        "takes[t,s]: stage s receives tensor t from an earlier one")
    model.leaves = pyo.Var(data.single, stages[:-1], domain=pyo.Binary, doc=
        "leaves[t,s]: stage s sends tensor t, which has one target")
    model.sends = pyo.Var([(t, s, q) for t in data.several for s in stages for q in stages[s + 1:]], domain=pyo.Binary,
        doc="sends[t,s,q]: stage s sends tensor t, which has several targets, to stage q")
    # M(s, s') of Equations 1 and 3: nothing but load keeps these variables down, so they need no upper rows.
    model.received = pyo.Constraint(
        [(t, target, s) for t in data.send_s for s in stages[1:] for target in tensors[t].targets],
        rule=lambda m, t, target, s: m.takes[t, s] >= m.holds[target, s] - m.holds[tensors[t].source, s], doc=
        "a stage that runs a target of a tensor, and not its source, receives it: takes[t,s] >= holds[target,s] - "
        "holds[source,s] [Parmesan, Equation 3]")
    model.left = pyo.Constraint(
        data.single, stages[:-1],
        rule=lambda m, t, s: m.leaves[t, s] >= m.holds[tensors[t].source, s] - m.holds[tensors[t].targets[0], s], doc=
        "a tensor of one target leaves if its source is here and its target is not [Parmesan, Equation 3]")
    model.sent = pyo.Constraint(
        list(model.sends),
        rule=lambda m, t, s, q: m.sends[t, s, q] >= m.holds[tensors[t].source, s] + m.takes[t, q] - 1, doc=
        "a tensor of several is sent from the stage of its source to every stage that takes it: sends[t,s,q] >= "
        "holds[source,s] + takes[t,q] - 1 [Parmesan, Equation 3]")

    # fmt: on
    if data.instance.flushed:
        add_step(model, data, unit, top_s)
    else:
        add_slowest(model, data, unit, top_s)
    return model


def time_of(model: Any, data: Data, unit: float, top_s: float, s: int, times: int = 1) -> Any:
    """So many times what stage s takes; what takes far longer than any load of interest counts as twice as long."""
    last = data.stages[-1]
    seconds = [
        *((each, model.holds[v, s]) for v, each in data.compute_s.items()),
        *((each, model.takes[t, s]) for t, each in data.send_s.items() if s),
        *((data.send_s[t], model.leaves[t, s]) for t in data.single if s < last),
        *((data.send_s[t], model.sends[t, s, q]) for t in data.several for q in data.stages[s + 1 :]),
    ]
    return weighted_sum((in_units(min(times * each, 2 * top_s), unit), variable) for each, variable in seconds)


def add_slowest(model: pyo.ConcreteModel, data: Data, unit: float, top_s: float) -> None:
    """The objective of a pipeline that is never flushed."""
    # fmt: off
    model.slowest = pyo.Var(bounds=(0, None), doc=
        "time of the slowest stage over its replicas [Parmesan, Equation 1]")

    def stage_time(m: Any, s: int, *number: int) -> Any:
        time = time_of(m, data, unit, top_s, s)
        if not number:  # all stages have R replicas, so that is left to the objective
            return time <= m.slowest
        # Big-M: no load of interest is above the largest one, so without r replicas the row says nothing.
        return time <= number[0] * m.slowest + top_s / unit * (1 - m.replicas[s, *number])

    model.stage_time = pyo.Constraint(
        *([data.stages, [r for r in data.numbers if r]] if data.is_free else [data.stages]), rule=stage_time, doc=
        "the slowest stage is as slow as every stage: t(s) = sum of c(v) holds[v,s] + sum of M(s,s') / B <= slowest, "
        "times r if it has r replicas and their number is free [Parmesan, Equation 1]")
    # fmt: on
    model.objective = pyo.Objective(expr=model.slowest)


def add_feeds(model: pyo.ConcreteModel, data: Data) -> list[tuple[int, int]]:
    """Which stages feed which later ones; the pairs of a stage and a later one."""
    pairs = [(s, q) for s in data.stages for q in data.stages[s + 1 :]]
    # fmt: off
    model.feeds = pyo.Var(pairs, bounds=(0, 1), doc="feeds[s,q]: an operator of stage s feeds one of stage q")
    model.fed = pyo.Constraint(
        pairs, list(data.instance.edges),
        rule=lambda m, s, q, u, v: m.feeds[s, q] >= m.holds[u, s] + m.holds[v, q] - 1, doc=
        "a stage feeds another one if an operator of it feeds one there")
    # fmt: on
    return pairs


def add_step(model: pyo.ConcreteModel, data: Data, unit: float, top_s: float) -> None:
    """The objective of a flushed pipeline (`definition.problem.step_parts`)."""
    instance, stages, top = data.instance, data.stages, top_s / unit
    pairs = add_feeds(model, data)
    reduced_s = {r: data.all_reduce_s(r) for r in data.replicas}

    def unless(m: Any, most: float, s: int, r: int) -> Any:
        return most * (1 - m.replicas[s, r]) if data.is_free else 0.0

    def steady(m: Any, s: int, r: int) -> Any:
        count = data.after_first(r)
        return m.others >= time_of(m, data, unit, top_s, s, count) - unless(m, count * top, s, r)

    def all_reduce(m: Any, s: int, r: int) -> Any:
        terms = [(in_units(min(each, 2 * top_s), unit), m.holds[v, s]) for v, each in reduced_s[r].items()]
        return m.reduced >= weighted_sum(terms) - unless(m, sum(each for each, _ in terms), s, r)

    # fmt: off
    model.lasts = pyo.Var(stages, bounds=(0, None), doc="lasts[s]: time of a micro-batch on one replica of stage s")
    model.stage_lasts = pyo.Constraint(
        stages, rule=lambda m, s: m.lasts[s] >= time_of(m, data, unit, top_s, s), doc=
        "a stage computes, receives and sends: t(s) = sum of c(v) holds[v,s] + sum of M(s,s') / B <= lasts[s] "
        "[Parmesan, Equation 3]")
    model.path = pyo.Var(stages, bounds=(0, None), doc=
        "path[s]: time of the heaviest path of stages that ends with stage s")
    model.path_begins = pyo.Constraint(
        stages, rule=lambda m, s: m.path[s] >= m.lasts[s], doc="a path may begin with any stage")
    model.path_goes_on = pyo.Constraint(
        pairs, rule=lambda m, s, q: m.path[q] >= m.path[s] + m.lasts[q] - top * (1 - m.feeds[s, q]), doc=
        "it goes on to each stage that is fed; big-M: the longest path of interest")
    # A path of operators runs through the stages of one path, so no plan fills in less than its computing.
    model.first = pyo.Var(bounds=(in_units(longest_operators(instance), unit) * (1 - milp.ROOM), None), doc=
        "time of the first micro-batch, there and back: while the pipeline fills and drains")
    model.fill = pyo.Constraint(
        stages, rule=lambda m, s: m.first >= m.path[s], doc=
        "the first micro-batch passes the heaviest path of stages")
    model.others = pyo.Var(bounds=(0, None), doc="time of all other micro-batches where they take longest")
    model.steady = pyo.Constraint(
        stages, data.replicas, rule=steady, doc=
        "a replica runs its other micro-batches one by one: ceil(G / r) - 1 of them if its stage has r; big-M: of the "
        "largest time of interest")
    model.reduced = pyo.Var(bounds=(0, None), doc="time of the longest all-reduce")
    model.all_reduce = pyo.Constraint(
        stages, data.replicas, rule=all_reduce, doc=
        "gradients are summed at last, over the r replicas of a stage; big-M: of all parameters "
        "[Parmesan, Equation 7]")
    # fmt: on
    model.objective = pyo.Objective(expr=model.first + model.others + model.reduced)


@dataclass
class Partition(milp.ByName, partition.Partition):
    """The partition of a model that has its variables and rows (`add_partition`)."""

    model: Any
    data: Data

    def cut_off(self, _plan: OperatorPlan, values: Any) -> None:
        """Not this assignment, which is within the tolerance of a row of sizes, yet too large; nor any no smaller."""
        variables, parts = self.no_smaller(values)
        self.model.forbidden.add(weighted_sum((1.0, each) for each in variables) <= parts - 1)


@dataclass
class Model(Partition, milp.Runnable):
    """The model of ``data`` in units of ``unit`` seconds."""

    unit: float

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return milp.proved_bound(bound, to_scale=True) * self.unit / self.data.common_replicas


def model_of(instance: OperatorInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance, with its requirements.

    A load that no plan as fast as the best one that the watch knows has counts as no larger, unless ``complete``.
    """
    data = data_of(instance)
    unit, top_s = times_of(data, None if complete or watch is None else watch.best_objective)
    return add_requirements(Model(build(data, unit, top_s), data, unit), VOCABULARY, instance)


def solve(instance: OperatorInstance, limits: Limits, watch: Watch) -> Answer[OperatorPlan]:
    """The best plan, with a bound less what HiGHS's tolerances may add to it (`milp.proved_bound`)."""
    reason = shortage(instance)
    if reason is not None:
        return infeasible_by_counting(reason)

    def model() -> Model:
        return model_of(instance, watch)

    first, reason = first_plan(instance), "no assignment fits"
    return prove(instance, model, evaluate, violations, limits, watch, reason=reason, to_scale=True, first=first)
