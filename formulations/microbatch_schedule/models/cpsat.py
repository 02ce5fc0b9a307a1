"""Micro-batch schedules for CP-SAT: an interval for each pass, and one at a time on each stage.

Durations are fixed, so a start is all there is to decide; the order of the passes of either kind is given, so what is
decided is where backward passes go between forward passes. A schedule that comes back is run once more with its orders
and the seconds as declared. The model knows no bounds but its own; it begins with the greedy schedule.

Source: reconstructed; the rules are those of GraphPipe, sections 3 (C4) and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.microbatch_schedule.bounds import SAFE
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.definition.quantities import VOCABULARY
from formulations.microbatch_schedule.feasibility import SLACK
from formulations.microbatch_schedule.models.quantities import SENTENCES
from formulations.microbatch_schedule.models.solving import ScheduleModel, opened, solve_by
from formulations.microbatch_schedule.models.units import Units, scaled, units
from formulations.modelling.solve_model import require
from formulations.simulation.simulate_graph import PassGraph, run
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Run, Watch
from solvers.scaling import Scale, cost_scale

#: Up to so many open pairs of passes a variable for each pays off: with little room proofs take a tenth of
#: the conflicts, with much room they take several times as long.
_DECIDED_PAIRS = 350

_SENTENCES = {
    **SENTENCES,
    "latest": "the iteration is no longer than a known one, nor than the deadline",
    "pass": "pass[p]: the time from the start to the end of pass p",
    "one_at_a_time": "a stage runs one pass at a time [GraphPipe, section 3 (C4)]",
    "held": "held[p]: the time for which the micro-batch of forward pass p is in flight",
    "held_for": "held_for[p]: how long that is",
    "room": "so many micro-batches at once are in flight, at most [GraphPipe, section 6]",
}


@dataclass
class Model(ScheduleModel, cpsat.Runnable):
    """``start[p]`` of every pass and the ``iteration``, in units; ``whole`` is the graph in whole units.

    ``least``: the iteration takes no fewer units, as is known before the model is built (``None``: nothing is
    known); bounds that repeat it are not the solver's, and not reported. ``bytes_scale``: units of bytes, where these
    are minimised.
    """

    graph: PassGraph
    deadline_s: float | None
    model: cpsat.SpokenModel
    start: list[cp_model.IntVar]
    iteration: cp_model.IntVar
    whole: PassGraph
    units: Units
    least: int | None = None
    backward_first: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)
    peaks: dict[int, cp_model.IntVar] = field(default_factory=dict)
    bytes_scale: Scale | None = None

    def new_integer(self, name: str, index: tuple[int, ...], most: int) -> Any:
        """A new variable ``name[index]`` from 0 to ``most``."""
        return self.model.new_int_var(0, most, f"{name}[{','.join(map(str, index))}]")

    def hold(self, name: str, index: tuple[int, ...], row: Any) -> None:
        """Add a constraint ``name[index]``."""
        self.model.add(row).with_name(f"{name}[{','.join(map(str, index))}]")

    def orders(self, values: Any) -> list[str]:
        """The order of each stage's passes; passes that take no whole unit may start together."""
        if self.of_bytes or self.graph.instance.requirements:  # they speak of pairs
            return self.words(values)
        place = {number: position for position, number in enumerate(self.graph.sorted())}
        found = []
        for first, count in zip(self.graph.first, self.graph.counts, strict=True):
            passes = sorted(
                range(first, first + 2 * count), key=lambda number: (values[self.start[number]], place[number])
            )
            found.append("".join("F" if self.graph.forward[number] else "B" for number in passes))
        return found

    def values_of(self, plan: SchedulePlan) -> Iterator[tuple[Any, int]]:
        """The starts of all passes in a plan's orders, and its iteration."""
        trace = run(self.whole, self.orders_of(plan))
        for task in trace.passes:
            yield self.start[self.whole.number(task.stage, task.is_forward, task.index)], int(task.start_s)
        yield self.iteration, int(trace.iteration_s)

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, or bytes; units are whole, so it may be rounded up."""
        if self.bytes_scale is not None:
            return self.bytes_scale.restore(max(0, cpsat.whole(bound))) * SAFE
        return self.units.seconds(cpsat.whole(bound))

    def version(self) -> str:
        """CP-SAT's."""
        return cpsat.version()

    def run_solver(
        self, limits: Limits, watch: Watch, on_solution: Callable[[Any], None], on_bound: Callable[[float], None]
    ) -> Run:
        """Run CP-SAT; of its bounds those count that say more than ``least``."""

        def report(bound: float) -> None:
            if not self._is_known(bound):
                on_bound(bound)

        found = cpsat.run(self.model, limits, watch, on_solution=on_solution, on_bound=report)
        return replace(found, bound=None) if self._is_known(found.bound) else found

    def _is_known(self, bound: float | None) -> bool:
        return self.least is not None and bound is not None and bound <= self.least + 0.5


def build(instance: ScheduleInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """One model of an instance, whatever its objective (`opened`)."""
    found = opened(build_graph, instance, watch, complete=complete)
    assert isinstance(found, Model)
    return found


def build_graph(
    graph: PassGraph,
    orders: list[str] | None = None,
    *,
    deadline_s: float | None = None,
    minimised: bool = True,
    of_bytes: bool = False,
    resource: str = "cap",
) -> Model:
    """The model of a graph.

    Parameters
    ----------
    orders
        A schedule to begin with; the iteration is at most as long as its own.
    deadline_s
        The iteration takes no longer.
    minimised
        Whether the iteration is minimised, or any schedule will do.
    of_bytes
        Whether the bytes of the stage that holds most are minimised.
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
    model = cpsat.SpokenModel()
    for name, text in _SENTENCES.items():
        model.says(name, text)
    start = [
        model.new_int_var(0, max(0, int(latest - seconds)), f"start[{number}]")
        for number, seconds in enumerate(whole.seconds)
    ]
    iteration = model.new_int_var(0, max(0, int(latest)), "iteration")
    # There is none if the latest end is below 0.
    model.add(iteration <= int(latest)).with_name("latest")
    for number, waits in enumerate(whole.before):
        for earlier, lag in waits:
            ended = start[earlier] + int(whole.seconds[earlier] + lag)
            model.add(start[number] >= ended).with_name(f"precedence[{number},{earlier}]")
    built = Model(graph, deadline_s, model, start, iteration, whole, unit)
    built.of_bytes = of_bytes
    is_ordered = of_bytes or bool(graph.instance.requirements) or resource == "cumulative"
    pairs = sum(count * (room - 1) for count, room in zip(whole.counts, whole.rooms, strict=True))
    for stage in range(len(whole.counts)):
        _add_stage(built, stage)
        if pairs <= _DECIDED_PAIRS or is_ordered:
            _add_order(built, stage)
        if resource == "cumulative":
            _add_room(built, stage, max(0, int(latest)))
    if first is not None:
        built.begin_with(built.values_of(SchedulePlan(first.passes)))
    if minimised:
        model.minimize(iteration)
    if of_bytes:
        _minimise_bytes(built)
    require(built, VOCABULARY, graph.instance)
    return built


def _minimise_bytes(built: Model) -> None:
    """What stages hold grows by the same bytes with every micro-batch in flight; both are rounded down."""
    graph, stages = built.graph, built.graph.instance.stages
    most = max(stage.bytes_held(count) for stage, count in zip(stages, graph.counts, strict=True))
    scale = built.bytes_scale = cost_scale(max(stage.bytes_held(1) for stage in stages), 1 + max(graph.counts), most)
    held = built.model.new_int_var(0, scale.ceil(most), "bytes")
    for number, stage in enumerate(stages):
        each = scale.floor(stage.microbatch * stage.activation_bytes)
        for j in range(graph.counts[number]):
            row = held >= scale.floor(stage.weight_bytes) + each * built.held(number, j)
            built.model.add(row).with_name(f"bytes_held[{number},{j}]")
    built.model.minimize(held)


def _add_stage(built: Model, stage: int) -> None:
    model, start, whole = built.model, built.start, built.whole
    first, count = whole.first[stage], whole.counts[stage]
    passes = [
        model.new_fixed_size_interval_var(start[number], int(whole.seconds[number]), f"pass[{number}]")
        for number in range(first, first + 2 * count)
    ]
    model.add_no_overlap(passes).with_name(f"one_at_a_time[{stage}]")
    last = first + 2 * count - 1
    model.add(built.iteration >= start[last] + int(whole.seconds[last])).with_name(f"ended[{stage}]")


def _add_order(built: Model, stage: int) -> None:
    """The same once more as what is decided: whether backward pass j comes before forward pass i.

    Only for pairs that precedences leave open; and with it any later forward and any earlier backward pass.
    """
    model, start, whole = built.model, built.start, built.whole
    count, room = whole.counts[stage], whole.rooms[stage]
    backward_first: dict[tuple[int, int], cp_model.IntVar] = {}
    for j in range(count):
        for i in range(j + 1, min(count, j + room)):
            forward, backward = whole.number(stage, True, i), whole.number(stage, False, j)
            literal = backward_first[i, j] = model.new_bool_var(f"backward_first[{forward},{backward}]")
            built.backward_first[forward, backward] = literal
            model.add(start[forward] >= start[backward] + int(whole.seconds[backward])).only_enforce_if(
                literal
            ).with_name(f"forward_waits[{forward},{backward}]")
            model.add(start[backward] >= start[forward] + int(whole.seconds[forward])).only_enforce_if(
                ~literal
            ).with_name(f"backward_waits[{forward},{backward}]")
    for (i, j), literal in backward_first.items():
        for implied in ((i + 1, j), (i, j - 1)):
            if implied in backward_first:
                model.add_implication(literal, backward_first[implied]).with_name(f"in_turn[{stage},{i},{j}]")


def _add_room(built: Model, stage: int, latest: int) -> None:
    """So many micro-batches at once are between the start of their forward and the end of their backward pass."""
    model, start, whole = built.model, built.start, built.whole
    first, count, room = whole.first[stage], whole.counts[stage], built.graph.rooms[stage]
    held = []
    for forward in range(first, first + count):
        end = start[forward + count] + int(whole.seconds[forward + count])
        size = model.new_int_var(0, latest, f"held_for[{forward}]")
        held.append(model.new_interval_var(start[forward], size, end, f"held[{forward}]"))
    model.add_cumulative(held, [1] * count, room).with_name(f"room[{stage}]")


def solve(instance: ScheduleInstance, limits: Limits, watch: Watch, *, resource: str = "cap") -> Answer[SchedulePlan]:
    """The best schedule, and a bound that is exact where all seconds are multiples of one decimal fraction."""
    return solve_by(partial(build_graph, resource=resource), instance, limits, watch)
