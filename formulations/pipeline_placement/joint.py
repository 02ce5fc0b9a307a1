"""Both phases as one CP-SAT model: where operators go, where stages go, and what then crosses which link.

``x[v, s]`` operator v is in stage s (with the rules of the partition, from its own assignment model); ``at[s, r, d]``
replica r of stage s is on device d; ``cross[t, s, q]`` tensor t goes from stage s to stage q. A link has a level for
every distinct bandwidth: ``slow[k]`` of a pair of stage replicas says that its link is no faster than level k, and then
the seconds of what the pair exchanges are at least those at that level. So no volume is ever multiplied by a bandwidth
that is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ortools.sat.python import cp_model

from formulations.device_mapping.problem import Mapping
from formulations.family import Answer, infeasible_by_counting
from formulations.modelled import prove
from formulations.operator_partitioning.models import assignment
from formulations.operator_partitioning.shapes import shortage
from formulations.pipeline_placement.phases import Found, compute_bound, decoupled
from formulations.pipeline_placement.problem import PlacementPlan, evaluate, violations
from formulations.pipeline_placement.simulate import simulate_plan
from instances.pipeline_placement import PlacementInstance
from solvers import cpsat
from solvers.outcome import Limits, Prover, Watch
from solvers.scaling import Scale, cost_scale, size_scale

#: The share of the time for a first plan, one phase after the other.
_HINT_SHARE = 0.25


@dataclass
class Joint(cpsat.Runnable):
    """The model and what is needed to read it: columns of the partition, places of stage replicas, the unit.

    ``top`` units are more than any plan of interest takes.
    """

    instance: PlacementInstance
    model: Any = field(default_factory=cp_model.CpModel)
    columns: dict[Any, Any] = field(default_factory=dict)
    at: dict[tuple[int, int, int], Any] = field(default_factory=dict)
    scale: Scale = field(default_factory=lambda: Scale(0))
    top: int = 0
    slowest: Any = None

    def decode(self, values: Any) -> PlacementPlan:
        """The plan that the values of a solution describe."""
        chosen = [name for name, variable in self.columns.items() if values[variable]]
        device = {(s, r): d for (s, r, d), variable in self.at.items() if values[variable]}
        stages, replicas = self.instance.num_stages, self.instance.operators.replicas
        places = tuple(tuple(device[s, r] for r in range(replicas)) for s in range(stages))
        return PlacementPlan(assignment.plan_of(self.instance.operators, chosen), Mapping(places))

    def units(self, seconds: float) -> int:
        """Seconds in units, rounded down; beyond ``top`` no more needs to be known, and sums stay small."""
        return min(self.scale.floor(seconds), self.top)

    def cut_off(self, _plan: PlacementPlan, values: Any) -> None:
        """Not this partition, of which only rounded sizes fit."""
        chosen = [variable for name, variable in self.columns.items() if name[0] == "x" and values[variable]]
        self.model.add_bool_or([variable.negated() for variable in chosen])

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        return max(0.0, self.scale.restore(cpsat.whole(bound)) * (1 - 1e-14))


def build(instance: PlacementInstance, lower: float, upper: float | None = None) -> Joint:
    """The model; ``lower`` is a bound, for the units alone, and ``upper`` the time of a plan, in seconds, if any."""
    built = Joint(instance)
    top = _largest(instance) if upper is None else upper * (1 + 1e-9)
    terms = len(instance.operators.operators) + 2 * len(instance.operators.tensors) * instance.num_stages
    # Every variable of seconds and every term of a sum may be as large as the slowest stage.
    built.scale = cost_scale(lower, 2 * terms, top * (terms + 2 * instance.num_devices * (instance.num_stages + 2)))
    built.top = built.scale.ceil(top) + 1
    built.slowest = built.model.new_int_var(0, built.top - 1, "slowest")
    _partition(built)
    _place(built)
    crossing = _crossings(built) if instance.objective != "allreduce" else {}
    rings = _rings(built) if instance.objective != "p2p" else {}
    sent = _sent(built, crossing)
    for s in range(instance.num_stages):
        work = _sum(
            [built.columns["x", v, s] for v in range(len(instance.operators.operators))],
            [built.units(each.compute_s) for each in instance.operators.operators],
        )
        for r in range(instance.operators.replicas):
            parts = [work, *sent.get((s, r), [])]
            built.model.add(sum([*parts, *([rings[s]] if s in rings else [])]) <= built.slowest)
    built.model.minimize(built.slowest)
    return built


def _largest(instance: PlacementInstance) -> float:
    """No stage takes longer than this, whatever the plan."""
    graph, slowest = instance.operators, 1.0 / min(_bandwidths(instance), default=1.0)
    sent = math.fsum(tensor.volume_bytes * max(1, len(tensor.targets)) for tensor in graph.tensors)
    reduced = 2 * math.fsum(operator.parameter_bytes for operator in graph.operators)
    return (graph.total_compute_s + (2 * sent + reduced) * slowest) * (1 + 1e-9)


def _bandwidths(instance: PlacementInstance) -> list[float]:
    """Distinct bandwidths between devices, fastest first."""
    matrix = instance.bandwidth_bytes_per_s
    return sorted({matrix[d][e] for d in range(len(matrix)) for e in range(d)}, reverse=True)


def _sum(variables: list[Any], factors: list[int]) -> Any:
    return cp_model.LinearExpr.weighted_sum(variables, factors)


def _partition(built: Joint) -> None:
    """The rules of operator partitioning, on its own assignment model without its loads."""
    rows = assignment.build(built.instance.operators)
    model, columns = built.model, built.columns
    columns.update({name: model.new_bool_var("_".join(map(str, name))) for name in rows.columns})
    for choice in rows.choices:
        model.add_exactly_one([columns[name] for name in choice])
    for row in rows.counts:
        model.add(_sum([columns[name] for name in row.terms], [int(f) for f in row.terms.values()]) <= int(row.limit))
    for row in rows.sizes:
        sizes = [abs(value) for value in row.terms.values()]
        unit = size_scale([*sizes, row.limit], max(row.limit, max(sizes, default=0.0)), math.fsum(sizes))
        terms = _sum([columns[name] for name in row.terms], [unit.floor(value) for value in row.terms.values()])
        model.add(terms <= unit.ceil(row.limit))


def _place(built: Joint) -> None:
    """One device for every stage replica and the other way round; replicas that can be renamed are in order."""
    instance, model = built.instance, built.model
    stages, replicas, devices = instance.num_stages, instance.operators.replicas, instance.num_devices
    for s in range(stages):
        for r in range(replicas):
            for d in range(devices):
                built.at[s, r, d] = model.new_bool_var(f"at_{s}_{r}_{d}")
            model.add_exactly_one([built.at[s, r, d] for d in range(devices)])
    for d in range(devices):
        model.add_exactly_one([built.at[s, r, d] for s in range(stages) for r in range(replicas)])
    number = {
        (s, r): _sum([built.at[s, r, d] for d in range(devices)], list(range(devices)))
        for s in range(stages)
        for r in range(replicas)
    }
    # Rings by number only keep their neighbours under a rotation; without them replicas may be renamed at will.
    for s in range(stages if instance.objective == "allreduce" else 1):
        for r in range(1, replicas):
            free = instance.objective == "p2p" or replicas <= 3
            model.add(number[s, r - 1 if free else 0] + 1 <= number[s, r])


def _crossings(built: Joint) -> dict[tuple[int, int], list[tuple[Any, float]]]:
    """For each pair of stages the tensors that may go from the first to the second, and their bytes."""
    graph, model, stages = built.instance.operators, built.model, built.instance.num_stages
    found: dict[tuple[int, int], list[tuple[Any, float]]] = {}
    for t, tensor in enumerate(graph.tensors):
        if not tensor.volume_bytes:
            continue
        for s in range(stages):
            for q in range(s + 1, stages):
                cross = model.new_bool_var(f"cross_{t}_{s}_{q}")
                for target in tensor.targets:
                    model.add_bool_or(
                        [
                            cross,
                            built.columns["x", tensor.source, s].negated(),
                            built.columns["x", target, q].negated(),
                        ]
                    )
                found.setdefault((s, q), []).append((cross, tensor.volume_bytes))
    return found


def _sent(built: Joint, crossing: dict[tuple[int, int], list[tuple[Any, float]]]) -> dict[tuple[int, int], list[Any]]:
    """For each stage replica the seconds that it exchanges tensors, one variable for each stage at the other end."""
    found: dict[tuple[int, int], list[Any]] = {}
    for (s, q), tensors in crossing.items():
        for r in range(built.instance.operators.replicas):
            seconds = _at_level(built, (s, r), (q, r), tensors, f"sent_{s}_{q}_{r}")
            found.setdefault((s, r), []).append(seconds)
            found.setdefault((q, r), []).append(seconds)
    return found


def _rings(built: Joint) -> dict[int, Any]:
    """Seconds of each stage's all-reduce: the slowest of its ring's links."""
    graph, replicas = built.instance.operators, built.instance.operators.replicas
    if replicas == 1:
        return {}
    found = {}
    factor = 2 * (replicas - 1) / replicas
    for s in range(built.instance.num_stages):
        bytes_ = [
            (built.columns["x", v, s], factor * operator.parameter_bytes)
            for v, operator in enumerate(graph.operators)
            if operator.parameter_bytes
        ]
        seconds = built.model.new_int_var(0, built.top, f"ring_{s}")
        for r in range(replicas if replicas > 2 else 1):
            link = _at_level(built, (s, r), (s, (r + 1) % replicas), bytes_, f"ring_{s}_{r}")
            built.model.add(seconds >= link)
        found[s] = seconds
    return found


def _at_level(
    built: Joint, one: tuple[int, int], other: tuple[int, int], volumes: list[tuple[Any, float]], name: str
) -> Any:
    """Seconds of some volumes on the link between two stage replicas, at least; rounded down."""
    model, levels = built.model, _bandwidths(built.instance)
    seconds = model.new_int_var(0, built.top, name)
    slow = [None, *(model.new_bool_var(f"{name}_slow_{k}") for k in range(1, len(levels)))]
    for k, bandwidth in enumerate(levels):
        row = seconds >= _sum([variable for variable, _ in volumes], [built.units(v / bandwidth) for _, v in volumes])
        if slow[k] is None:
            model.add(row)
        else:
            model.add(row).only_enforce_if(slow[k])
        if k > 1:
            model.add_implication(slow[k], slow[k - 1])
    for k, faster in _pairs_by_level(built.instance, levels):
        if k:
            for d, e in faster:
                model.add_bool_or([slow[k], built.at[(*one, d)].negated(), built.at[(*other, e)].negated()])
    return seconds


def _pairs_by_level(instance: PlacementInstance, levels: list[float]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """For each level the ordered pairs of devices whose link has just that bandwidth."""
    matrix = instance.bandwidth_bytes_per_s
    for k, bandwidth in enumerate(levels):
        yield (
            k,
            [(d, e) for d in range(len(matrix)) for e in range(len(matrix)) if d != e and matrix[d][e] == bandwidth],
        )


def solve(instance: PlacementInstance, limits: Limits, watch: Watch) -> Answer[PlacementPlan]:
    """The best plan of both phases at once; starts from the best of one phase after the other."""
    reason = shortage(instance.operators)
    if reason is not None:
        return infeasible_by_counting(reason)
    stats = _first_plan(instance, limits, watch)
    if watch.stopped():
        plan, _ = watch.incumbent()
        return Answer(plan, compute_bound(instance), stop=watch.why(), stats=stats)
    _, known = watch.incumbent()
    lower = compute_bound(instance)
    watch.bound(lower, Prover.BOUNDS)
    found = prove(
        instance,
        lambda: build(instance, lower, known),
        evaluate,
        violations,
        limits,
        watch,
        reason="no partition fits",
    )
    if found.plan is not None:
        stats["step_s"] = simulate_plan(instance, found.plan).seconds
    if known and watch.best_objective is not None:
        stats["decoupling_loss"] = known / watch.best_objective - 1
    return replace(found, stats={**found.stats, **stats})


def _first_plan(instance: PlacementInstance, limits: Limits, watch: Watch) -> dict[str, Any]:
    """Report the best plan of one phase after the other, within a share of the time; what it took and gave."""
    left = watch.remaining_s()
    own = watch.part(None if left is None else _HINT_SHARE * left)
    found = decoupled(instance, limits, own)
    return {"decoupled_objective": found.objective} if isinstance(found, Found) else {}
