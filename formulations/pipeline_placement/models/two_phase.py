"""One phase after the other: Parmesan as published, both phases exactly, and in turns.

Source: Parmesan, sections 4 and 5; turns are made for this project.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from formulations.contract.family import Answer
from formulations.device_mapping import exact as exact_mapping
from formulations.device_mapping import paper as paper_mapping
from formulations.device_mapping.annealing import near
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.models.machine_groups import cycles
from formulations.operator_partitioning import exact as exact_partition
from formulations.operator_partitioning.costs.shapes import longest_operators
from formulations.operator_partitioning.definition import problem as partition_problem
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import stage_of
from formulations.operator_partitioning.paper import parmesan as paper_partition
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.problem import second_phase, seconds
from formulations.pipeline_placement.definition.simulate import simulate_plan
from instances.problems.device_mapping import DeviceMapping, with_objective
from instances.problems.operator_partitioning import OperatorInstance
from instances.problems.pipeline_placement import PlacementInstance
from solvers.outcome import OPTIMAL_GAP, Limits, Stop, Watch, relative_gap

#: The share of the time that the first phase may take.
_FIRST = 0.5
#: Rounds in turns end when a move is no better than by this.
_BETTER = 1e-9
#: Of `partition_bound`: its share of the time, its relative rounding, and the most replicas whose cycles are looked at.
_BOUND, _ROUNDING, _CYCLES = 0.1, 1e-9, 4
#: Annealing in a model's first plan: on thirty random graphs of 4 to 9 devices more levels and starts found nothing
#: better, and a start for every twelve devices left two plans worse, one of them by 6 %.
_LEVELS, _DEVICES_PER_START = 2, 2


@dataclass(frozen=True)
class Found:
    """A plan in two phases, its time, and the statistics of both."""

    plan: PlacementPlan
    objective: float
    stats: dict[str, Any]


Partition = Callable[..., Answer[OperatorPlan]]
Place = Callable[..., Answer[Mapping]]


def in_phases(
    instance: PlacementInstance,
    limits: Limits,
    watch: Watch,
    partition: Partition,
    place: Place,
    instantiate: Callable[[DeviceMapping], DeviceMapping] = lambda stages: stages,
) -> Found | Answer[PlacementPlan]:
    """Partition, then place; an answer without a plan where the first phase has none.

    ``instantiate`` may replace what the second phase minimises; the plan is judged by the instance's own objective.
    """
    left = watch.remaining_s()
    own = watch.part(None if left is None else _FIRST * left, silent=True)
    first = partition(instance.operators, replace(limits, time_s=own.remaining_s()), own)
    stages = _plan_of(first, own)
    if stages is None:
        reason = f"the first phase: {first.reason}" if first.reason else "the first phase found no partition"
        return Answer(infeasible=first.infeasible, stop=first.stop, reason=reason, stats=first.stats)
    second = instantiate(second_phase(instance, stages))
    watched = _mapping_part(instance, watch, stages, second.objective)
    placed = place(second, replace(limits, time_s=watched.remaining_s()), watched)
    mapping = _plan_of(placed, watched)
    if mapping is None:
        return Answer(stop=placed.stop, reason=placed.reason)
    plan = PlacementPlan(stages, mapping)
    objective = seconds(instance, plan)
    watch.plan(plan, objective)
    stats = {
        "partition_load_s": partition_problem.evaluate(instance.operators, stages),
        "partition_proved": first.stop is Stop.PROVED,
        "mapping_bound_s": _bound_of(placed, watched),
        "mapping_objective": second.objective,
    }
    return Found(plan, objective, stats)


def _mapping_part(instance: PlacementInstance, watch: Watch, partition: OperatorPlan, objective: str) -> Watch:
    """The watch of a mapping: its plans are plans of both phases, its bounds are of this partition only.

    Where the mapping has another ``objective``, as for a step, they are not reported.
    """
    if instance.objective != objective:
        return watch.part(silent=True)
    return watch.part(bounds=False, plan_of=lambda mapping: PlacementPlan(partition, mapping))


def _plan_of(answer: Answer[Any], watch: Watch) -> Any:
    return answer.plan if answer.plan is not None else watch.incumbent()[0]


def _bound_of(answer: Answer[Any], watch: Watch) -> float | None:
    return max((bound for bound in (answer.bound, watch.best_bound) if bound is not None), default=None)


def compute_bound(instance: PlacementInstance) -> float:
    """Seconds that no plan beats: an even share of all computing, or the longest operator.

    Of a step that is what all micro-batches but one take; the other one passes each path of operators.
    """
    operators = instance.operators.operators
    share = instance.operators.total_compute_s / instance.num_stages
    longest = max((operator.compute_s for operator in operators), default=0.0)
    slowest = max(share, longest)
    if instance.objective == "step":
        slowest = max(slowest, longest_operators(instance.operators)) + (instance.microbatches - 1) * slowest
    return slowest * (1 - 1e-12)


def on_fastest_links(instance: PlacementInstance) -> OperatorInstance:
    """The operators on a flat network of the fastest links, computing longer by their share of the fastest ring.

    Nothing is placed faster: R times the load of its best partition is a bound, but for ``step``, which it leaves out.
    The slowest link of a ring is at most that of the fastest cycle; of more than four replicas, at most the second best
    link of the device that is R-th in it.
    """
    graph, count, speed = instance.operators, instance.operators.replicas, np.array(instance.bandwidth_bytes_per_s)
    np.fill_diagonal(speed, 0.0)
    ring = fastest = float(speed.max(initial=0.0)) or np.inf
    if 2 < count <= _CYCLES:
        near = ((each, [np.nonzero(row >= each)[0].tolist() for row in speed]) for each in np.unique(speed)[::-1])
        ring = next(each for each, reached in near if any(True for _ in cycles(reached, count)))
    elif count > _CYCLES:
        ring = np.sort(np.sort(speed, axis=1)[:, -2])[-count]
    seconds = 2 * (count - 1) / count / float(ring) if instance.objective != "p2p" else 0.0
    longer = tuple(replace(each, compute_s=each.compute_s + each.parameter_bytes * seconds) for each in graph.operators)
    flat = np.inf if instance.objective == "allreduce" else fastest
    return replace(graph, operators=longer, bandwidth_bytes_per_s=flat)


def partition_bound(instance: PlacementInstance, limits: Limits, watch: Watch) -> float:
    """Seconds that no plan beats: `compute_bound`, or R times the best load `on_fastest_links`."""
    if instance.objective == "step" or watch.stopped():
        return compute_bound(instance)
    own = watch.part(None if limits.time_s is None else _BOUND * limits.time_s, silent=True)
    found = _bound_of(exact_partition.solve(on_fastest_links(instance), limits, own), own)
    return max(compute_bound(instance), instance.operators.replicas * (found or 0.0) * (1 - _ROUNDING))


def _answer(instance: PlacementInstance, watch: Watch, found: Found | Answer[PlacementPlan]) -> Answer[PlacementPlan]:
    if isinstance(found, Answer):
        return found
    stats = {**found.stats, "step_s": simulate_plan(instance, found.plan).seconds}
    return Answer(found.plan, bound=compute_bound(instance), stop=watch.why(), stats=stats)


def solve(
    instance: PlacementInstance, limits: Limits, watch: Watch, instantiation: str = "objective"
) -> Answer[PlacementPlan]:
    """Parmesan: clustering, dynamic program and refinement, then Algorithm 1.

    ``instantiation``: what Algorithm 1 minimises: ``objective``, the instance's own, of a step that of ``full``;
    ``p2p`` or ``allreduce``, the two instantiations of section 5.2; ``auto``, the one that its ratio rule chooses.
    """

    def instantiate(stages: DeviceMapping) -> DeviceMapping:
        return stages if instantiation == "objective" else with_objective(stages, instantiation)

    found = in_phases(instance, limits, watch, paper_partition.solve, paper_mapping.solve, instantiate)
    return replace(_answer(instance, watch, found), options={"instantiation": instantiation})


def solve_decoupled(instance: PlacementInstance, limits: Limits, watch: Watch) -> Answer[PlacementPlan]:
    """The best partition for the flat network, then the best mapping of it; together they need not be the best."""
    return _answer(instance, watch, in_phases(instance, limits, watch, exact_partition.solve, exact_mapping.solve))


def solve_turns(instance: PlacementInstance, limits: Limits, watch: Watch) -> Answer[PlacementPlan]:
    """Partition moves on the links of the mapping, then swaps of devices, in turns until neither helps."""
    return turns(instance, limits, watch, near.solve)


def turns(
    instance: PlacementInstance,
    limits: Limits,
    watch: Watch,
    place: Place,
    tried: Callable[[PlacementPlan], None] = lambda _: None,
    partition: Partition = paper_partition.solve,
) -> Answer[PlacementPlan]:
    """The same with any methods of both; ``tried`` is called with each move that is looked at, its mapping kept."""
    found = in_phases(instance, limits, watch, partition, place)
    if isinstance(found, Answer):
        return found
    best, objective, rounds, moves = found.plan, found.objective, 0, 0
    while not watch.stopped():
        rounds += 1
        moved, moved_objective, count = _refine(instance, best, objective, watch, tried)
        moves += count
        if not count:
            break
        second = second_phase(instance, moved.partition)
        watched = _mapping_part(instance, watch, moved.partition, second.objective)
        answer = place(second, limits, watched, levels=2)
        mapping = _plan_of(answer, watched)
        best, objective = moved, moved_objective
        if mapping is not None:
            placed = PlacementPlan(moved.partition, mapping)
            value = seconds(instance, placed)
            if value < objective:
                best, objective = placed, value
        watch.plan(best, objective)
    stats = {**found.stats, "rounds": rounds, "moves": moves, "decoupled_objective": found.objective}
    stats["step_s"] = simulate_plan(instance, best).seconds
    return Answer(best, bound=compute_bound(instance), stop=watch.why(), stats=stats)


def best_start(instance: PlacementInstance, limits: Limits, watch: Watch) -> None:
    """What the models begin with, for the watch: the best of four starts in turns, without a model of the mapping.

    They are those of ``turns``, and the best partitions for flat networks as declared, of the slowest links and
    `on_fastest_links`. What a start places was not placed before, and none follows a plan that `compute_bound` proves.
    """
    slowest = min((min(row[:d]) for d, row in enumerate(instance.bandwidth_bytes_per_s) if d), default=0.0)
    placed: list[tuple[DeviceMapping, Answer[Mapping]]] = []

    def for_slowest(operators: OperatorInstance, own: Limits, part: Watch) -> Answer[OperatorPlan]:
        return exact_partition.solve(replace(operators, bandwidth_bytes_per_s=slowest), own, part)

    def place(stages: DeviceMapping, own: Limits, part: Watch, levels: int = _LEVELS) -> Answer[Mapping]:
        found = next((answer for before, answer in placed if before == stages), None)
        if found is None:
            starts = max(1, min(near.MAX_STARTS, stages.num_devices // _DEVICES_PER_START))
            found = near.solve(stages, own, part, levels=levels, most_starts=starts)
            placed.append((stages, found))
        return found

    def for_fastest(_: OperatorInstance, own: Limits, part: Watch) -> Answer[OperatorPlan]:
        return exact_partition.solve(on_fastest_links(instance), own, part)

    starts: list[Partition] = [paper_partition.solve, for_fastest, for_slowest, exact_partition.solve]
    for partition in starts if slowest else (starts[0], starts[3]):
        gap = relative_gap(watch.best_objective, compute_bound(instance))
        if watch.stopped() or (gap is not None and gap <= OPTIMAL_GAP):
            return
        turns(instance, limits, watch, place, partition=partition)


def solve_best_mapping(instance: PlacementInstance, limits: Limits, watch: Watch) -> Answer[PlacementPlan]:
    """Parmesan with the best mapping of its partition."""
    return _answer(instance, watch, in_phases(instance, limits, watch, paper_partition.solve, exact_mapping.solve))


def solve_best_partition(instance: PlacementInstance, limits: Limits, watch: Watch) -> Answer[PlacementPlan]:
    """Parmesan with the best partition for the flat network, mapped by Algorithm 1."""
    return _answer(instance, watch, in_phases(instance, limits, watch, exact_partition.solve, paper_mapping.solve))


def _refine(
    instance: PlacementInstance,
    plan: PlacementPlan,
    objective: float,
    watch: Watch,
    tried: Callable[[PlacementPlan], None],
) -> tuple[PlacementPlan, float, int]:
    """Move operators next to a cut to the other side while that lowers the true time; how many moves there were."""
    count = 0
    while not watch.stopped():
        better = _best_move(instance, plan, objective, tried)
        if better is None:
            break
        plan, objective = better
        watch.plan(plan, objective)
        count += 1
    return plan, objective, count


def _best_move(
    instance: PlacementInstance, plan: PlacementPlan, objective: float, tried: Callable[[PlacementPlan], None]
) -> tuple[PlacementPlan, float] | None:
    best, least = None, objective * (1 - _BETTER)
    home = stage_of(plan.partition)
    joined = {pair for u, v in instance.operators.edges for pair in ((u, home[v]), (v, home[u])) if home[u] != home[v]}
    for operator, stage in sorted(joined):
        moved = PlacementPlan(_move(plan.partition, operator, home[operator], stage), plan.mapping)
        if partition_problem.violations(instance.operators, moved.partition):
            continue
        tried(moved)
        value = seconds(instance, moved)
        if value < least:
            best, least = moved, value
    return None if best is None else (best, least)


def _move(partition: OperatorPlan, operator: int, source: int, target: int) -> OperatorPlan:
    stages = list(partition.stages)
    stages[source] = tuple(each for each in stages[source] if each != operator)
    stages[target] = tuple(sorted((*stages[target], operator)))
    return replace(partition, stages=tuple(stages))
