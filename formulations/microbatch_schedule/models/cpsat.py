"""Micro-batch schedules for CP-SAT: an interval for each pass, and one at a time on each device.

Durations are fixed, so a start is all there is to decide; the order of a stage's passes of a kind is given, so what is
decided is where backward passes go between forward passes, and stages between stages. A schedule that comes back is run
once more with its orders and the seconds as declared. The model knows no bounds but its own; it begins with the
schedule of ``best-of``.

Source: reconstructed; the rules are those of GraphPipe, sections 3 (C4) and 6; split backward passes and several stages
on a device as in Qi et al. 2024.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.definition.quantities import VOCABULARY
from formulations.microbatch_schedule.feasibility import SLACK
from formulations.microbatch_schedule.models import data as numbers
from formulations.microbatch_schedule.models.data import Data
from formulations.microbatch_schedule.models.schedule_model import ScheduleModel, solve_by
from formulations.modelling.solve_model import add_requirements
from formulations.simulation.simulate_graph import PassGraph
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch

#: Up to so many open pairs of passes a variable for each pays off: with little room proofs take a tenth of
#: the conflicts, with much room they take several times as long.
_DECIDED_PAIRS = 350


def data_of(instance: ScheduleInstance, watch: Watch | None, *, complete: bool, graph: PassGraph | None = None) -> Data:
    """The instance in whole units, with pairs of passes where they are few, or something speaks of them."""
    found = numbers.data_of(
        instance, watch, numbers.whole_seconds, numbers.whole_bytes, complete=complete, declared=graph
    )
    speaks = found.bytes or instance.requirements or (found.deadline_s is not None and not found.units.is_exact)
    found = replace(found, latest=float(int(found.latest * (1 + 2 * SLACK))))
    if found.bytes is not None:
        always, each = tuple(map(int, found.bytes.always)), tuple(map(int, found.bytes.each))
        found = replace(found, bytes=replace(found.bytes, always=always, each=each))
    return found if speaks or len(found.pairs) <= _DECIDED_PAIRS else replace(found, pairs=())


def build(data: Data) -> tuple[cpsat.SpokenModel, list[Any], dict[tuple[int, int], Any], Any]:
    """The model, the starts, which of a pair of passes comes first (where that is decided), and the iteration."""
    graph, latest = data.graph, int(data.latest)
    seconds = [int(time) for time in graph.seconds]
    passes, devices = range(len(seconds)), range(len(graph.instance.stages_on))

    model = cpsat.SpokenModel()
    model.says("start", "start[p]: when pass p starts; passes count stage by stage, forward ones first")
    start = [model.new_int_var(0, max(0, latest - seconds[p]), f"start[{p}]") for p in passes]
    model.says(
        "iteration",
        "time of the iteration, from 0 to the end of its last pass; at most that of a known one, and the deadline",
    )
    iteration = model.new_int_var(0, latest, "iteration")

    model.says(
        "precedence",
        "a pass starts when all it waits for has ended and come: start[p] >= end of q + message; "
        "so does forward pass j + c for backward pass j, or W, where c micro-batches have room [GraphPipe, sections 3 "
        "(C4) and 6]",
    )
    for p in passes:
        for q, message in graph.before[p]:
            model.add(start[p] >= start[q] + seconds[q] + int(message)).with_name(f"precedence[{p},{q}]")

    model.says("pass", "pass[p]: the time from the start to the end of pass p")
    model.says("one_at_a_time", "a device runs one pass at a time [GraphPipe, section 3 (C4)]")
    interval = [model.new_fixed_size_interval_var(start[p], seconds[p], f"pass[{p}]") for p in passes]
    for d in devices:
        model.add_no_overlap([interval[p] for p in graph.on(d)]).with_name(f"one_at_a_time[{d}]")

    model.says("ended", "the iteration lasts until the last backward pass of every stage, or W: iteration >= end of p")
    for s in range(len(graph.counts)):
        last = graph.release(s, graph.counts[s] - 1)
        model.add(iteration >= start[last] + seconds[last]).with_name(f"ended[{s}]")

    model.says("backward_first", "backward_first[p,q]: pass q comes before pass p of its device; p is the forward one")
    model.says(
        "forward_waits",
        "one pass at a time: the forward pass starts after the backward one if that comes "
        "first [GraphPipe, section 3 (C4)]",
    )
    model.says(
        "backward_waits",
        "one pass at a time: the backward pass starts after the forward one if that comes "
        "first [GraphPipe, section 3 (C4)]",
    )
    first = {(f, b): model.new_bool_var(f"backward_first[{f},{b}]") for f, b in data.pairs}
    for (f, b), is_first in first.items():
        forward_waits = model.add(start[f] >= start[b] + seconds[b]).only_enforce_if(is_first)
        forward_waits.with_name(f"forward_waits[{f},{b}]")
        backward_waits = model.add(start[b] >= start[f] + seconds[f]).only_enforce_if(~is_first)
        backward_waits.with_name(f"backward_waits[{f},{b}]")

    if data.bytes is None:
        model.minimize(iteration)
        return model, start, first, iteration

    model.says(
        "shared_memory",
        "stages of a device have one memory: weights + activations of what they hold when backward pass p starts, or "
        "W, at whose end they hold less <= room of the device",
    )
    for d, room in data.bytes.rooms.items():
        for p in data.releases(d):
            model.add(data.bytes_held(first, d, p) <= int(room)).with_name(f"shared_memory[{d},{p}]")
    if not data.of_bytes:
        model.minimize(iteration)
        return model, start, first, iteration

    model.says("bytes", "bytes of the device that holds most")
    model.says(
        "bytes_held",
        "as many as every device holds when backward pass p starts, or W: bytes >= weights + activations of "
        "what it holds",
    )
    most = sum(w + m * each for w, each, m in zip(data.bytes.always, data.bytes.each, graph.counts, strict=True))
    fullest = model.new_int_var(0, int(most), "bytes")
    for d in devices:
        for p in data.releases(d):
            model.add(fullest >= data.bytes_held(first, d, p)).with_name(f"bytes_held[{d},{p}]")
    model.minimize(fullest)
    return model, start, first, iteration


def strengthen(model: cpsat.SpokenModel, data: Data, first: dict[tuple[int, int], Any]) -> None:
    """Rows that follow: passes of a kind of a stage are in turn."""
    model.says(
        "in_turn",
        "with a forward pass all later ones wait for the backward pass, and for all earlier ones: "
        "backward_first[i,j] <= backward_first[i+1,j], backward_first[i,j-1]",
    )
    for f, b, then_f, then_b in data.in_turn(first):
        model.add_implication(first[f, b], first[then_f, then_b]).with_name(f"in_turn[{f},{b}]")


@dataclass
class Model(ScheduleModel, cpsat.ByName, cpsat.Runnable):
    """The model of ``data``."""

    data: Data
    model: cpsat.SpokenModel
    start: list[cp_model.IntVar]
    pairs: dict[tuple[int, int], cp_model.IntVar]
    iteration: cp_model.IntVar
    peaks: dict[int, Any] = field(default_factory=dict)

    def orders(self, values: Any) -> list[list[int]]:
        """The order of each device's passes; passes that take no whole unit may start together."""
        if self.pairs:
            return super().orders(values)
        graph = self.data.graph
        place = {number: position for position, number in enumerate(graph.sorted())}
        devices = range(len(graph.instance.stages_on))
        return [sorted(graph.on(device), key=lambda p: (values[self.start[p]], place[p])) for device in devices]

    def values_of(self, plan: SchedulePlan) -> Iterator[tuple[Any, int]]:
        """The values of a plan, which are whole."""
        return ((variable, int(value)) for variable, value in super().values_of(plan))

    def lower_bound(self, bound: float) -> float:
        """A bound in seconds, or bytes; units are whole, so it may be rounded up."""
        return self.data.units.lower_bound(max(0, cpsat.whole(bound)))


def model_of(
    instance: ScheduleInstance, watch: Watch | None = None, *, complete: bool = False, graph: PassGraph | None = None
) -> Model:
    """The model of an instance (`data_of`), with its requirements."""
    data = data_of(instance, watch, complete=complete, graph=graph)
    model, start, first, iteration = build(data)
    strengthen(model, data, first)
    return add_requirements(Model(data, model, start, first, iteration), VOCABULARY, instance)


def solve(instance: ScheduleInstance, limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """The best schedule, and a bound that is exact where all seconds are multiples of one decimal fraction."""
    return solve_by(model_of, instance, limits, watch)
