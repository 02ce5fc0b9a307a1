"""Micro-batch schedules as a MILP (Pyomo, HiGHS): which of a forward and a backward pass comes first, pair by pair.

Source: reconstructed; the rules are those of GraphPipe, sections 3 (C4) and 6; split backward passes and several stages
on a device as in Qi et al. 2024.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.microbatch_schedule.bounds import Chains, chains
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.definition.problem import TOLERANCE
from formulations.microbatch_schedule.definition.quantities import VOCABULARY
from formulations.microbatch_schedule.models import data as numbers
from formulations.microbatch_schedule.models.data import Data, Units
from formulations.microbatch_schedule.models.schedule_model import ScheduleModel, solve_by
from formulations.modelling.solve_model import add_requirements
from formulations.simulation.simulate_graph import PassGraph
from instances.problems.microbatch_schedule import Kind, ScheduleInstance
from solvers.milp import backend as milp
from solvers.outcome import Limits, OnBound, OnSolution, Run, Stop, Watch

#: Rooms of devices in natural units may be exceeded by so much; a plan that does is cut off.
_ROOM = 1e-6


def data_of(instance: ScheduleInstance, watch: Watch | None, *, complete: bool) -> Data:
    """The instance in natural units.

    Iterations that are longer by `milp.ROOM` are let in: a deadline is compared with what comes back.
    """

    def seconds(graph: PassGraph) -> Units:
        unit = numbers.natural_seconds(graph) / milp.NATURAL
        return Units(Fraction(unit), lambda time: time / unit)

    def size(instance: ScheduleInstance) -> Units:
        devices, one = range(len(instance.stages_on)), [1] * len(instance.stages)
        unit = max(instance.bytes_held(device, one) for device in devices) / milp.NATURAL or 1.0
        return Units(Fraction(unit), lambda amount: milp.in_units(amount, unit), loss=_ROOM)

    found = numbers.data_of(instance, watch, seconds, size, complete=complete)
    return replace(found, latest=found.latest * (1 + milp.ROOM))


def build(data: Data) -> Any:
    """The model: the shortest iteration, or the fewest bytes of the device that holds most."""
    graph, pairs, seconds = data.graph, data.pairs, data.graph.seconds
    passes, stages = range(len(seconds)), range(len(graph.counts))
    devices = range(len(graph.instance.stages_on))
    early, late = _windows(data)

    model = pyo.ConcreteModel()
    # fmt: off
    model.start = pyo.Var(passes, bounds=lambda _, p: (early[p], max(early[p], late[p])),
        doc="start[p]: when pass p starts; passes count stage by stage, forward ones first")
    model.iteration = pyo.Var(bounds=(0, data.latest),
        doc="time of the iteration, from 0 to the end of its last pass; at most that of a known one, and the deadline")
    model.backward_first = pyo.Var(pairs, domain=pyo.Binary,
        doc="backward_first[p,q]: pass q comes before pass p of its device; p is the forward one")
    start, first = model.start, dict(model.backward_first.items())
    model.precedence = pyo.Constraint([(p, i) for p in passes for i in range(len(graph.before[p]))],
        rule=lambda _, p, i: start[p] >= start[q := graph.before[p][i][0]] + seconds[q] + graph.before[p][i][1],
        doc="a pass starts when all it waits for has ended and come: start[p] >= end of q + message; so does forward "
        "pass j + c for backward pass j, or W, where c micro-batches have room [GraphPipe, sections 3 (C4) and 6]")
    model.ended = pyo.Constraint([graph.release(s, graph.counts[s] - 1) for s in stages],
        rule=lambda _, p: model.iteration >= start[p] + seconds[p],
        doc="the iteration lasts until the last backward pass of every stage, or W: iteration >= end of p")
    # Big-M: what two passes may overlap at most, as a pass ends no later than its late end, and starts no sooner than
    # its early start.
    model.forward_waits = pyo.Constraint(pairs,
        rule=lambda _, f, b: (
            start[f] >= start[b] + seconds[b] - max(0.0, late[b] + seconds[b] - early[f]) * (1 - first[f, b])
        ),
        doc="one pass at a time: the forward pass starts after the backward one if that comes first "
        "[GraphPipe, section 3 (C4)]")
    model.backward_waits = pyo.Constraint(pairs,
        rule=lambda _, f, b: (
            start[b] >= start[f] + seconds[f] - max(0.0, late[f] + seconds[f] - early[b]) * first[f, b]
        ),
        doc="one pass at a time: the backward pass starts after the forward one if that comes first "
        "[GraphPipe, section 3 (C4)]")
    model.forbidden = pyo.Constraint(pyo.Any, doc="orders that only tolerances find in time are cut off")
    rooms = {} if data.bytes is None else data.bytes.rooms
    model.shared_memory = pyo.Constraint([(d, p) for d in rooms for p in data.releases(d)],
        rule=lambda _, d, p: data.bytes_held(first, d, p) <= rooms[d],
        doc="stages of a device have one memory: weights + activations of what they hold when backward pass p starts, "
        "or W, at whose end they hold less <= room of the device")
    if not data.of_bytes:
        model.objective = pyo.Objective(expr=model.iteration)
        return model

    model.bytes = pyo.Var(domain=pyo.NonNegativeReals, doc="bytes of the device that holds most")
    model.bytes_held = pyo.Constraint([(d, p) for d in devices for p in data.releases(d)],
        rule=lambda _, d, p: model.bytes >= data.bytes_held(first, d, p),
        doc="as many as every device holds when backward pass p starts, or W: bytes >= weights + activations of "
        "what it holds")
    # fmt: on
    model.objective = pyo.Objective(expr=model.bytes)
    return model


def strengthen(model: Any, data: Data) -> None:
    """Rows that starts imply, but for HiGHS's tolerances, and without a big-M: what lies between passes takes time."""
    graph, seconds, start = data.graph, data.graph.seconds, model.start
    first = dict(model.backward_first.items())
    stages = [(s, range(count)) for s, count in enumerate(graph.counts)]

    def goes_first(s: int, i: int, j: int) -> Any:
        return data.goes_first(first, graph.number(s, "F", i), graph.number(s, "B", j))

    def end(s: int, kind: Kind, i: int) -> Any:
        return start[graph.number(s, kind, i)] + seconds[graph.number(s, kind, i)]

    def each(s: int, kind: Kind) -> float:
        """A coefficient: too short a pass counts as none, as HiGHS's tolerances require."""
        return milp.in_units(seconds[graph.number(s, kind, 0)], 1.0)

    # Forward passes are in turn, and so are backward passes.
    # fmt: off
    model.in_turn = pyo.Constraint(list(data.in_turn(first)), rule=lambda _, f, b, *other: first[f, b] <= first[other],
        doc="with a forward pass all later ones wait for the backward pass, and for all earlier ones: "
        "backward_first[i,j] <= backward_first[i+1,j], backward_first[i,j-1]")
    # A backward pass that comes before forward pass i + 1 and not before i lies between the two.
    model.between_forward = pyo.Constraint([(s, i) for s, own in stages for i in own[:-1]],
        rule=lambda _, s, i: (
            start[graph.number(s, "F", i + 1)]
            >= end(s, "F", i) + each(s, "B") * sum(goes_first(s, i + 1, j) - goes_first(s, i, j) for j in range(i + 1))
        ),
        doc="what comes between two forward passes takes its time: start[i+1] >= end[i] + seconds of the backward "
        "passes between, g_s times the sum over j of backward_first[i+1,j] - backward_first[i,j]")
    # A forward pass that comes after backward pass j and not after j + 1 lies between the two.
    model.between_backward = pyo.Constraint([(s, j) for s, own in stages for j in own[:-1]],
        rule=lambda _, s, j: (
            start[graph.number(s, "B", j + 1)]
            >= end(s, "B", j)
            + each(s, "F") * sum(goes_first(s, i, j) - goes_first(s, i, j + 1) for i in range(j + 1, graph.counts[s]))
        ),
        doc="so does what comes between two backward passes: start[j+1] >= end[j] + f_s times the sum over i of "
        "backward_first[i,j] - backward_first[i,j+1]")
    # Later forward passes that come before backward pass j, and earlier backward passes that come after forward pass j.
    model.between_both = pyo.Constraint([(s, j) for s, own in stages for j in own],
        rule=lambda _, s, j: (
            start[graph.number(s, "B", j)]
            >= end(s, "F", j)
            + each(s, "F") * sum(1 - goes_first(s, i, j) for i in range(j + 1, graph.counts[s]))
            + each(s, "B") * sum(1 - goes_first(s, j, k) for k in range(j))
        ),
        doc="and between the passes of a micro-batch: start >= end + f_s times the sum over i > j of 1 - "
        "backward_first[i,j] + g_s times the sum over k < j of 1 - backward_first[j,k]")
    # fmt: on


def _windows(data: Data) -> tuple[list[float], list[float]]:
    """The earliest and the latest start of each pass by chains of passes, which keeps big-Ms small."""
    graph, nothing = data.graph, [0.0] * len(data.graph.seconds)
    known = chains(graph) if graph.is_possible() else Chains(nothing, nothing)
    late = [data.latest - tail - time for tail, time in zip(known.tails, graph.seconds, strict=True)]
    return known.heads, late


@dataclass
class Model(ScheduleModel, milp.ByName, milp.Runnable):
    """The model of ``data``."""

    data: Data
    model: Any
    peaks: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        model = self.model
        self.start, self.pairs, self.iteration = model.start, dict(model.backward_first.items()), model.iteration

    def run(self, limits: Limits, watch: Watch, on_solution: OnSolution = None, on_bound: OnBound = None) -> Run:
        """Run HiGHS; where even the shortest iteration is late, by its bound, there is no schedule."""
        found, deadline_s = super().run(limits, watch, on_solution, on_bound), self.data.deadline_s
        if self.data.of_bytes or deadline_s is None or found.bound is None:
            return found
        if self.lower_bound(found.bound) * (1 - TOLERANCE) > deadline_s:
            return replace(found, stop=Stop.PROVED, values=None, bound=None, infeasible=True)
        return found

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, or bytes, less HiGHS's tolerance."""
        return self.data.units.lower_bound(milp.proved_bound(bound))


def model_of(instance: ScheduleInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements."""
    data = data_of(instance, watch, complete=complete)
    model = build(data)
    strengthen(model, data)
    return add_requirements(Model(data, model), VOCABULARY, instance)


def solve(instance: ScheduleInstance, limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """The best schedule, with a bound some 1e-7 of it below."""
    return solve_by(model_of, instance, limits, watch)
