"""Micro-batch schedules for CP-SAT: an interval for each pass, and one at a time on each stage.

Durations are fixed, so a start is all there is to decide; the order of the passes of either kind is given, so what is
decided is where backward passes go between forward passes. A schedule that comes back is run once more with its orders
and the seconds as declared. The model knows no bounds but its own; it begins with the greedy schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from formulations.family import Answer
from formulations.microbatch_schedule.feasibility import SLACK, offer
from formulations.microbatch_schedule.model_solving import posed, prove
from formulations.microbatch_schedule.problem import SchedulePlan
from formulations.microbatch_schedule.units import Units, scaled, units
from formulations.simulate_graph import PassGraph, run
from instances.microbatch_schedule import ScheduleInstance
from solvers import cpsat
from solvers.outcome import Limits, Prover, Run, Watch

#: Up to so many open pairs of passes a variable for each is worth its price: with little room proofs take a tenth of
#: the conflicts, with much room they take several times as long.
_DECIDED_PAIRS = 350


@dataclass
class CpsatModel:
    """``start[p]`` of every pass and the ``iteration``, in units; ``whole`` is the graph in whole units.

    ``least``: the iteration takes no fewer units, as whoever built it knows beforehand.
    """

    model: cp_model.CpModel
    start: list[cp_model.IntVar]
    iteration: cp_model.IntVar
    graph: PassGraph
    whole: PassGraph
    units: Units
    least: int = 0

    def orders(self, values: Any) -> list[str]:
        """The order of each stage's passes; passes that take no whole unit may start together."""
        place = {number: position for position, number in enumerate(self.graph.sorted())}
        found = []
        for first, count in zip(self.graph.first, self.graph.counts, strict=True):
            passes = sorted(
                range(first, first + 2 * count), key=lambda number: (values[self.start[number]], place[number])
            )
            found.append("".join("F" if self.graph.forward[number] else "B" for number in passes))
        return found


def build(
    graph: PassGraph, orders: list[str] | None = None, *, deadline_s: float | None = None, resource: str = "cap"
) -> CpsatModel:
    """The model of a graph, without an objective.

    Parameters
    ----------
    orders
        A schedule to begin with; the iteration is at most as long as its own.
    deadline_s
        The iteration takes no longer.
    resource
        How a stage's room is kept: ``cap`` (forward pass j + c waits for backward pass j) or ``cumulative`` (as much as
        that many micro-batches hold at once).
    """
    unit = units(graph)
    first = None if orders is None else run(scaled(graph, unit), orders)
    whole = scaled(graph if resource == "cap" else PassGraph(graph.instance, graph.counts), unit)
    latest = sum(whole.seconds) + len(whole.seconds) * max(lag for waits in whole.before for _, lag in waits)
    if first is not None:
        latest = first.iteration_s
    if deadline_s is not None:
        latest = min(latest, unit.within(deadline_s * (1 + 2 * SLACK)))
    model = cp_model.CpModel()
    start = [
        model.new_int_var(0, max(0, int(latest - seconds)), f"start[{number}]")
        for number, seconds in enumerate(whole.seconds)
    ]
    iteration = model.new_int_var(0, max(0, int(latest)), "iteration")
    model.add(iteration <= int(latest))
    # A pass starts when all it waits for has ended and come.
    for number, waits in enumerate(whole.before):
        for earlier, lag in waits:
            model.add(start[number] >= start[earlier] + int(whole.seconds[earlier] + lag))
    built = CpsatModel(model, start, iteration, graph, whole, unit)
    pairs = sum(count * (room - 1) for count, room in zip(whole.counts, whole.rooms, strict=True))
    for stage in range(len(whole.counts)):
        _add_stage(built, whole, stage)
        if pairs <= _DECIDED_PAIRS or resource == "cumulative":
            _add_order(built, whole, stage)
        if resource == "cumulative":
            _add_room(built, whole, stage, max(0, int(latest)))
    if first is not None:
        for task in first.passes:
            model.add_hint(start[whole.number(task.stage, task.is_forward, task.index)], int(task.start_s))
        model.add_hint(iteration, int(first.iteration_s))
    return built


def _add_stage(built: CpsatModel, whole: PassGraph, stage: int) -> None:
    first, count = whole.first[stage], whole.counts[stage]
    # One pass at a time.
    built.model.add_no_overlap(
        built.model.new_fixed_size_interval_var(built.start[number], int(whole.seconds[number]), f"pass[{number}]")
        for number in range(first, first + 2 * count)
    )
    # The iteration lasts until the last backward pass of every stage.
    last = first + 2 * count - 1
    built.model.add(built.iteration >= built.start[last] + int(whole.seconds[last]))


def _add_order(built: CpsatModel, whole: PassGraph, stage: int) -> None:
    """The same once more as what is decided: whether backward pass j comes before forward pass i.

    Only for pairs that precedences leave open; and with it any later forward and any earlier backward pass.
    """
    model, start, count, room = built.model, built.start, whole.counts[stage], whole.rooms[stage]
    before: dict[tuple[int, int], cp_model.IntVar] = {}
    for j in range(count):
        for i in range(j + 1, min(count, j + room)):
            forward, backward = whole.number(stage, True, i), whole.number(stage, False, j)
            literal = before[i, j] = model.new_bool_var(f"before[{backward},{forward}]")
            model.add(start[forward] >= start[backward] + int(whole.seconds[backward])).only_enforce_if(literal)
            model.add(start[backward] >= start[forward] + int(whole.seconds[forward])).only_enforce_if(~literal)
    for (i, j), literal in before.items():
        for implied in ((i + 1, j), (i, j - 1)):
            if implied in before:
                model.add_implication(literal, before[implied])


def _add_room(built: CpsatModel, whole: PassGraph, stage: int, latest: int) -> None:
    """So many micro-batches at once are between the start of their forward and the end of their backward pass."""
    first, count, room = whole.first[stage], whole.counts[stage], built.graph.rooms[stage]
    held = []
    for forward in range(first, first + count):
        end = built.start[forward + count] + int(whole.seconds[forward + count])
        size = built.model.new_int_var(0, latest, f"held_for[{forward}]")
        held.append(built.model.new_interval_var(built.start[forward], size, end, f"held[{forward}]"))
    built.model.add_cumulative(held, [1] * count, room)


def solve(instance: ScheduleInstance, limits: Limits, watch: Watch, *, resource: str = "cap") -> Answer[SchedulePlan]:
    """The best schedule, and a bound that is exact where all seconds are multiples of one decimal fraction."""
    return prove(instance, limits, watch, Backend(instance, limits, watch, resource))


@dataclass
class Backend:
    """CP-SAT's models of one instance (`proof.Backend`)."""

    instance: ScheduleInstance
    limits: Limits
    watch: Watch
    resource: str = "cap"

    def build(self, graph: PassGraph, orders: list[str] | None) -> CpsatModel:
        """The model of a question."""
        graph, deadline = posed(self.instance, graph)
        return build(graph, orders, deadline_s=deadline, resource=self.resource)

    def hear_bound(self, built: CpsatModel, bound: float) -> None:
        """Tell the watch of a bound on the iteration."""
        self.watch.bound(built.units.seconds(cpsat.whole(bound)), Prover.SOLVER)

    def minimise(self, graph: PassGraph, orders: list[str] | None) -> Run:
        """The shortest iteration; the watch is told."""
        built = self.build(graph, orders)
        built.model.minimize(built.iteration)

        def listen(values: Any) -> None:
            offer(self.instance, self.watch, run(graph, built.orders(values)))

        def told(bound: float) -> None:
            self.hear_bound(built, bound)

        outcome = cpsat.run(built.model, self.limits, self.watch, on_solution=listen, on_bound=told)
        if outcome.values is not None:
            listen(outcome.values)
        if outcome.bound is not None:
            told(outcome.bound)
        return outcome

    def decide(self, graph: PassGraph) -> tuple[Run, list[str] | None]:
        """Whether the deadline can be kept, and how."""
        built = self.build(graph, None)
        outcome = cpsat.run(built.model, self.limits, self.watch)
        return outcome, None if outcome.values is None else built.orders(outcome.values)
