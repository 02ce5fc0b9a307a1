"""Micro-batch schedules as a MILP (Pyomo, HiGHS): which of a forward and a backward pass comes first, pair by pair."""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pyomo.environ as pyo

from formulations.family import Answer
from formulations.microbatch_schedule.bounds import SAFE
from formulations.microbatch_schedule.chains import Chains, chains
from formulations.microbatch_schedule.feasibility import SLACK, offer
from formulations.microbatch_schedule.model_solving import posed, prove
from formulations.microbatch_schedule.problem import SchedulePlan
from formulations.microbatch_schedule.units import natural_seconds
from formulations.simulate_graph import PassGraph, run
from instances.microbatch_schedule import ScheduleInstance
from solvers import milp
from solvers.outcome import Limits, Prover, Run, Stop, Watch


@dataclass
class MilpModel:
    """``model.start[p]``, ``model.backward_first[f, b]`` of two passes, ``model.iteration``; in units of ``unit_s``."""

    model: Any
    graph: PassGraph
    unit_s: float

    def orders(self, values: Any) -> list[str]:
        """The order of each stage's passes."""
        graph, found = self.graph, []
        for stage, count in enumerate(graph.counts):
            forward = backward = 0
            word = ""
            while backward < count:
                pair = graph.number(stage, True, forward), graph.number(stage, False, backward)
                if forward == backward:
                    is_forward = True
                elif forward == count or forward - backward >= graph.rooms[stage]:
                    is_forward = False
                else:
                    is_forward = values[self.model.backward_first[pair]] < 0.5
                word += "F" if is_forward else "B"
                forward, backward = forward + is_forward, backward + (not is_forward)
            found.append(word)
        return found

    def seconds(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return milp.trusted(bound) * self.unit_s * SAFE


def build(graph: PassGraph, orders: list[str] | None = None, *, deadline_s: float | None = None) -> MilpModel:
    """The model of a graph, with iterations as short as that of the orders, and as the deadline.

    Iterations that are longer by `milp.ROOM` are let in: a deadline is compared with what comes back.
    """
    unit, known = natural_seconds(graph) / milp.NATURAL, _windows(graph)
    latest = math.fsum(graph.seconds) + len(graph.seconds) * max(lag for waits in graph.before for _, lag in waits)
    if orders is not None:
        latest = run(graph, orders).iteration_s
    if deadline_s is not None:
        latest = min(latest, deadline_s)
    latest *= 1 + milp.ROOM
    passes = range(len(graph.stage))
    early = [known.heads[number] / unit for number in passes]
    late = [(latest - known.tails[number] - graph.seconds[number]) / unit for number in passes]
    seconds = [graph.seconds[number] / unit for number in passes]
    model = pyo.ConcreteModel()
    model.start = pyo.Var(passes, bounds=lambda _, number: (early[number], max(early[number], late[number])))
    model.iteration = pyo.Var(bounds=(0, latest / unit))
    model.precedence = pyo.ConstraintList()
    # A pass starts when all it waits for has ended and come.
    for number, waits in enumerate(graph.before):
        for earlier, lag in waits:
            model.precedence.add(model.start[number] >= model.start[earlier] + seconds[earlier] + lag / unit)
    # The iteration lasts until the last backward pass of every stage.
    for stage, count in enumerate(graph.counts):
        last = graph.number(stage, False, count - 1)
        model.precedence.add(model.iteration >= model.start[last] + seconds[last])
    pairs = [
        (graph.number(stage, True, i), graph.number(stage, False, j))
        for stage, count in enumerate(graph.counts)
        for j in range(count)
        for i in range(j + 1, min(count, j + graph.rooms[stage]))
    ]
    model.backward_first = pyo.Var(pairs, domain=pyo.Binary)
    model.disjunction = pyo.ConstraintList()
    # One of the two waits for the other; what a pair may overlap at most switches the other row off.
    for forward, backward in pairs:
        first = model.backward_first[forward, backward]
        slack = max(0.0, late[backward] + seconds[backward] - early[forward])
        model.disjunction.add(model.start[forward] >= model.start[backward] + seconds[backward] - slack * (1 - first))
        slack = max(0.0, late[forward] + seconds[forward] - early[backward])
        model.disjunction.add(model.start[backward] >= model.start[forward] + seconds[forward] - slack * first)
    model.objective = pyo.Objective(expr=model.iteration)
    return MilpModel(model, graph, unit)


def _windows(graph: PassGraph) -> Chains:
    """What must lie before and after a pass, which keeps big-Ms small; nothing where passes wait in a circle."""
    nothing = [0.0] * len(graph.stage)
    return chains(graph) if graph.is_possible() else Chains(nothing, nothing)


def solve(instance: ScheduleInstance, limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """The best schedule, with a bound some 1e-7 of it below."""
    return prove(instance, limits, watch, _Backend(instance, limits, watch))


@dataclass
class _Backend:
    instance: ScheduleInstance
    limits: Limits
    watch: Watch

    def build(self, graph: PassGraph, orders: list[str] | None) -> MilpModel:
        """The model of a question."""
        graph, deadline = posed(self.instance, graph)
        return build(graph, orders, deadline_s=deadline)

    def minimise(self, graph: PassGraph, orders: list[str] | None) -> Run:
        """The shortest iteration; the watch is told."""
        built = self.build(graph, orders)

        def listen(values: Any) -> None:
            offer(self.instance, self.watch, run(graph, built.orders(values)))

        def told(bound: float) -> None:
            self.watch.bound(built.seconds(bound), Prover.SOLVER)

        outcome = milp.run(built.model, self.limits, self.watch, on_solution=listen, on_bound=told)
        if outcome.values is not None:
            listen(outcome.values)
        if self._is_late(built, outcome):
            return replace(outcome, stop=Stop.PROVED, values=None, bound=None, infeasible=True)
        if outcome.bound is not None:
            told(outcome.bound)
        return outcome

    def decide(self, graph: PassGraph) -> tuple[Run, list[str] | None]:
        """Whether the deadline can be kept, and how."""
        built = self.build(graph, None)
        if self.instance.deadline_s is None:
            built.model.objective.set_value(0.0)  # any schedule will do

        def listen(values: Any) -> None:
            orders = built.orders(values)
            if not self._is_beyond(run(graph, orders).iteration_s):
                raise _Kept(orders)

        try:
            outcome = milp.run(built.model, self.limits, self.watch, on_solution=listen)
            if outcome.values is not None:
                listen(outcome.values)
        except _Kept as kept:
            return Run(Stop.COMPLETED, solver=milp.version()), kept.orders
        return replace(outcome, infeasible=outcome.infeasible or self._is_late(built, outcome)), None

    def _is_beyond(self, iteration_s: float) -> bool:
        deadline = self.instance.deadline_s
        return deadline is not None and iteration_s > deadline * (1 + SLACK)

    def _is_late(self, built: MilpModel, outcome: Run) -> bool:
        """Whether every schedule that the model allows is proved to be beyond the deadline."""
        return outcome.bound is not None and self._is_beyond(built.seconds(outcome.bound))


class _Kept(Exception):  # noqa: N818 - not an error: a schedule that keeps the deadline ends the search
    def __init__(self, orders: list[str]) -> None:
        super().__init__()
        self.orders = orders
