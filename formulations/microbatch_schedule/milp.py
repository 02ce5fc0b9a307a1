"""Micro-batch schedules as a MILP (Pyomo, HiGHS): which of a forward and a backward pass comes first, pair by pair.

Source: reconstructed; the rules are those of GraphPipe, sections 3 (C4) and 6.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from formulations.family import Answer
from formulations.microbatch_schedule.bounds import SAFE
from formulations.microbatch_schedule.chains import Chains, chains
from formulations.microbatch_schedule.model_solving import ScheduleModel, solve_by
from formulations.microbatch_schedule.problem import SchedulePlan
from formulations.microbatch_schedule.units import natural_seconds
from formulations.simulate_graph import PassGraph, run
from instances.microbatch_schedule import ScheduleInstance
from solvers import milp
from solvers.outcome import Limits, Run, Watch


@dataclass
class MilpModel(ScheduleModel, milp.Hinted):
    """``model.start[p]``, ``model.backward_first[f, b]`` of two passes, ``model.iteration``; in units of ``unit_s``."""

    graph: PassGraph
    deadline_s: float | None
    model: Any
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

    def values_of(self, plan: SchedulePlan) -> Iterator[tuple[Any, float]]:
        """The starts of all passes in a plan, which of two comes first, and its iteration."""
        model, start = self.model, {}
        trace = run(self.graph, self.orders_of(plan))
        for task in trace.passes:
            start[self.graph.number(task.stage, task.is_forward, task.index)] = task.start_s
        yield from ((model.start[number], seconds / self.unit_s) for number, seconds in start.items())
        for (forward, backward), variable in model.backward_first.items():
            yield variable, float(start[backward] < start[forward])
        yield model.iteration, trace.iteration_s / self.unit_s

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, less HiGHS's tolerance."""
        return milp.trusted(bound) * self.unit_s * SAFE

    def version(self) -> str:
        """HiGHS's."""
        return milp.version()

    def run_solver(
        self, limits: Limits, watch: Watch, on_solution: Callable[[Any], None], on_bound: Callable[[float], None]
    ) -> Run:
        """Run HiGHS."""
        return milp.run(self.model, limits, watch, on_solution=on_solution, on_bound=on_bound, hint=self.hint())


def build(
    graph: PassGraph, orders: list[str] | None = None, *, deadline_s: float | None = None, minimised: bool = True
) -> MilpModel:
    """The model of a graph, with iterations as short as that of the orders, and as the deadline.

    Iterations that are longer by `milp.ROOM` are let in: a deadline is compared with what comes back. So the shortest
    iteration is minimised wherever there is one; without, and not ``minimised``, any schedule will do.
    """
    unit, known = natural_seconds(graph) / milp.NATURAL, _windows(graph)
    latest = math.fsum(graph.seconds) + len(graph.seconds) * max(lag for waits in graph.before for _, lag in waits)
    if orders is not None:
        latest = run(graph, orders).iteration_s
    if deadline_s is not None:
        latest = min(latest, deadline_s)
    latest *= 1 + milp.ROOM
    passes, stages = range(len(graph.stage)), range(len(graph.counts))
    early = [known.heads[number] / unit for number in passes]
    late = [(latest - known.tails[number] - graph.seconds[number]) / unit for number in passes]
    seconds = [graph.seconds[number] / unit for number in passes]
    model = pyo.ConcreteModel()
    model.start = pyo.Var(passes, bounds=lambda _, number: (early[number], max(early[number], late[number])))
    model.iteration = pyo.Var(bounds=(0, latest / unit))

    # A pass starts when all it waits for has ended and come (section 6; rooms are such waits, too).
    def precedence(model: Any, number: int, position: int) -> Any:
        earlier, lag = graph.before[number][position]
        return model.start[number] >= model.start[earlier] + seconds[earlier] + lag / unit

    waits = [(number, position) for number in passes for position in range(len(graph.before[number]))]
    model.precedence = pyo.Constraint(waits, rule=precedence)

    # The iteration lasts until the last backward pass of every stage.
    def ended(model: Any, stage: int) -> Any:
        last = graph.number(stage, False, graph.counts[stage] - 1)
        return model.iteration >= model.start[last] + seconds[last]

    model.ended = pyo.Constraint(stages, rule=ended)

    # One pass at a time (C4): of a forward and a backward pass one waits for the other. A row is switched off by what
    # the two may overlap at most: a pass ends no later than its late end, and starts no sooner than its early start.
    def forward_waits(model: Any, forward: int, backward: int) -> Any:
        overlap = max(0.0, late[backward] + seconds[backward] - early[forward])
        is_off = 1 - model.backward_first[forward, backward]
        return model.start[forward] >= model.start[backward] + seconds[backward] - overlap * is_off

    def backward_waits(model: Any, forward: int, backward: int) -> Any:
        overlap = max(0.0, late[forward] + seconds[forward] - early[backward])
        is_off = model.backward_first[forward, backward]
        return model.start[backward] >= model.start[forward] + seconds[forward] - overlap * is_off

    pairs = _pairs(graph)
    model.backward_first = pyo.Var(pairs, domain=pyo.Binary)
    model.forward_waits = pyo.Constraint(pairs, rule=forward_waits)
    model.backward_waits = pyo.Constraint(pairs, rule=backward_waits)
    model.objective = pyo.Objective(expr=model.iteration if minimised or deadline_s is not None else 0.0)
    return MilpModel(graph, deadline_s, model, unit)


def _pairs(graph: PassGraph) -> list[tuple[int, int]]:
    """The forward and backward passes of a stage of which either may come first."""
    return [
        (graph.number(stage, True, i), graph.number(stage, False, j))
        for stage, count in enumerate(graph.counts)
        for j in range(count)
        for i in range(j + 1, min(count, j + graph.rooms[stage]))
    ]


def _windows(graph: PassGraph) -> Chains:
    """What must lie before and after a pass, which keeps big-Ms small; nothing where passes wait in a circle."""
    nothing = [0.0] * len(graph.stage)
    return chains(graph) if graph.is_possible() else Chains(nothing, nothing)


def solve(instance: ScheduleInstance, limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """The best schedule, with a bound some 1e-7 of it below."""
    return solve_by(build, instance, limits, watch)
