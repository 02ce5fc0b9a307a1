"""Micro-batch schedules as a MILP (Pyomo, HiGHS): which of a forward and a backward pass comes first, pair by pair.

Source: reconstructed; the rules are those of GraphPipe, sections 3 (C4) and 6.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.microbatch_schedule.bounds import SAFE
from formulations.microbatch_schedule.chains import Chains, chains
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.definition.quantities import VOCABULARY
from formulations.microbatch_schedule.models.quantities import SENTENCES
from formulations.microbatch_schedule.models.solving import ScheduleModel, opened, solve_by
from formulations.microbatch_schedule.models.units import natural_seconds
from formulations.modelling.solve_model import require
from formulations.simulation.simulate_graph import PassGraph, run
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.milp import backend as milp
from solvers.outcome import Limits, Run, Watch


@dataclass
class Model(ScheduleModel, milp.Runnable):
    """``model.start[p]``, ``model.backward_first[f, b]`` of two passes, ``model.iteration``; in units of ``unit_s``.

    ``unit_bytes``: where bytes are minimised, their unit.
    """

    graph: PassGraph
    deadline_s: float | None
    model: Any
    unit_s: float
    unit_bytes: float = 0.0
    peaks: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.backward_first = self.model.backward_first

    def new_integer(self, name: str, index: tuple[int, ...], most: int) -> Any:
        """A new variable ``name[index]`` from 0 to ``most``."""
        if self.model.component(name) is None:
            variables = pyo.Var(pyo.Any, domain=pyo.NonNegativeIntegers, dense=False, doc=SENTENCES[name])
            self.model.add_component(name, variables)
        found = self.model.component(name)[index]
        found.setub(most)
        return found

    def hold(self, name: str, index: tuple[int, ...], row: Any) -> None:
        """Add a constraint ``name[index]``."""
        if self.model.component(name) is None:
            self.model.add_component(name, pyo.Constraint(pyo.Any, doc=SENTENCES[name]))
        self.model.component(name)[index] = row

    def orders(self, values: Any) -> list[str]:
        """The order of each stage's passes."""
        return self.words(values)

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
        """A bound in seconds, or bytes, less HiGHS's tolerance."""
        if self.of_bytes:
            return milp.trusted(bound) * self.unit_bytes * SAFE
        return milp.trusted(bound) * self.unit_s * SAFE

    def version(self) -> str:
        """HiGHS's."""
        return milp.version()

    def run_solver(
        self, limits: Limits, watch: Watch, on_solution: Callable[[Any], None], on_bound: Callable[[float], None]
    ) -> Run:
        """Run HiGHS."""
        return milp.run(self.model, limits, watch, on_solution=on_solution, on_bound=on_bound, hint=self.hint())


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
) -> Model:
    """The model of a graph, with iterations as short as that of the orders, and as the deadline.

    Iterations that are longer by `milp.ROOM` are let in: a deadline is compared with what comes back. So the shortest
    iteration is minimised wherever there is one; without, and not ``minimised``, any schedule will do. ``of_bytes``:
    the bytes of the stage that holds most are minimised instead.
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
    model.start = pyo.Var(
        passes,
        bounds=lambda _, number: (early[number], max(early[number], late[number])),
        doc=SENTENCES["start"],
    )
    model.iteration = pyo.Var(bounds=(0, latest / unit), doc=SENTENCES["iteration"])

    def precedence(model: Any, number: int, position: int) -> Any:
        earlier, lag = graph.before[number][position]
        return model.start[number] >= model.start[earlier] + seconds[earlier] + lag / unit

    waits = [(number, position) for number in passes for position in range(len(graph.before[number]))]
    model.precedence = pyo.Constraint(waits, rule=precedence, doc=SENTENCES["precedence"])

    def ended(model: Any, stage: int) -> Any:
        last = graph.number(stage, False, graph.counts[stage] - 1)
        return model.iteration >= model.start[last] + seconds[last]

    model.ended = pyo.Constraint(stages, rule=ended, doc=SENTENCES["ended"])

    # A row is switched off by what the two may overlap at most: a pass ends no later than its late end, and starts no
    # sooner than its early start.
    def forward_waits(model: Any, forward: int, backward: int) -> Any:
        overlap = max(0.0, late[backward] + seconds[backward] - early[forward])
        is_off = 1 - model.backward_first[forward, backward]
        return model.start[forward] >= model.start[backward] + seconds[backward] - overlap * is_off

    def backward_waits(model: Any, forward: int, backward: int) -> Any:
        overlap = max(0.0, late[forward] + seconds[forward] - early[backward])
        is_off = model.backward_first[forward, backward]
        return model.start[backward] >= model.start[forward] + seconds[forward] - overlap * is_off

    pairs = _pairs(graph)
    model.backward_first = pyo.Var(pairs, domain=pyo.Binary, doc=SENTENCES["backward_first"])
    model.forward_waits = pyo.Constraint(pairs, rule=forward_waits, doc=SENTENCES["forward_waits"])
    model.backward_waits = pyo.Constraint(pairs, rule=backward_waits, doc=SENTENCES["backward_waits"])
    _add_turns(model)
    _add_between(model, graph, seconds)
    built = Model(graph, deadline_s, model, unit)
    if of_bytes:
        _minimise_bytes(built)
    else:
        model.objective = pyo.Objective(expr=model.iteration if minimised or deadline_s is not None else 0.0)
    require(built, VOCABULARY, graph.instance)
    return built


def _minimise_bytes(built: Model) -> None:
    """What stages hold grows by the same bytes with every micro-batch in flight."""
    graph, model, stages = built.graph, built.model, built.graph.instance.stages
    unit = max(stage.bytes_held(1) for stage in stages) / milp.NATURAL or 1.0
    built.of_bytes, built.unit_bytes = True, unit
    model.bytes = pyo.Var(domain=pyo.NonNegativeReals, doc=SENTENCES["bytes"])

    def bytes_held(m: Any, number: int, j: int) -> Any:
        weights = milp.in_units(stages[number].weight_bytes, unit)
        each = milp.in_units(stages[number].microbatch * stages[number].activation_bytes, unit)
        return m.bytes >= weights + each * built.held(number, j)

    backward = [(number, j) for number, count in enumerate(graph.counts) for j in range(count)]
    model.bytes_held = pyo.Constraint(backward, rule=bytes_held, doc=SENTENCES["bytes_held"])
    model.objective = pyo.Objective(expr=model.bytes)


def _add_turns(model: Any) -> None:
    """Starts imply them, but for HiGHS's tolerances; the quantities count pairs, and so do the rows between passes."""
    first = model.backward_first
    implied = [(f, b, *other) for f, b in first for other in ((f + 1, b), (f, b - 1)) if other in first]
    model.in_turn = pyo.Constraint(
        implied, rule=lambda _, f, b, *other: first[f, b] <= first[other], doc=SENTENCES["in_turn"]
    )


def _add_between(model: Any, graph: PassGraph, seconds: list[float]) -> None:
    """What a stage runs between two of its passes takes time, too: rows without big-Ms, which starts imply."""

    def is_first(stage: int, i: int, j: int) -> Any:
        """Whether backward pass j comes before forward pass i: a variable where either may be first."""
        pair = graph.number(stage, True, i), graph.number(stage, False, j)
        return model.backward_first[pair] if pair in model.backward_first else float(i > j)

    def end(stage: int, is_forward: bool, i: int) -> Any:
        number = graph.number(stage, is_forward, i)
        return model.start[number] + seconds[number]

    def each(stage: int, is_forward: bool) -> float:
        """A coefficient: too short a pass counts as none, as HiGHS's tolerances require."""
        return milp.in_units(seconds[graph.number(stage, is_forward, 0)], 1.0)

    def forward(_: Any, stage: int, i: int) -> Any:
        between = sum(is_first(stage, i + 1, j) - is_first(stage, i, j) for j in range(i + 1))
        return model.start[graph.number(stage, True, i + 1)] >= end(stage, True, i) + each(stage, False) * between

    def backward(_: Any, stage: int, j: int) -> Any:
        between = sum(is_first(stage, i, j) - is_first(stage, i, j + 1) for i in range(j + 1, graph.counts[stage]))
        return model.start[graph.number(stage, False, j + 1)] >= end(stage, False, j) + each(stage, True) * between

    def both(_: Any, stage: int, j: int) -> Any:
        forwards = sum(1 - is_first(stage, i, j) for i in range(j + 1, graph.counts[stage]))
        backwards = sum(1 - is_first(stage, j, k) for k in range(j))
        between = each(stage, True) * forwards + each(stage, False) * backwards
        return model.start[graph.number(stage, False, j)] >= end(stage, True, j) + between

    pairs = [(stage, i) for stage, count in enumerate(graph.counts) for i in range(count - 1)]
    model.between_forward = pyo.Constraint(pairs, rule=forward, doc=SENTENCES["between_forward"])
    model.between_backward = pyo.Constraint(pairs, rule=backward, doc=SENTENCES["between_backward"])
    micro_batches = [(stage, j) for stage, count in enumerate(graph.counts) for j in range(count)]
    model.between_both = pyo.Constraint(micro_batches, rule=both, doc=SENTENCES["between_both"])


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
    return solve_by(build_graph, instance, limits, watch)
