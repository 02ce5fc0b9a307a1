"""Both phases as one CP-SAT model: where operators go, where stages go, and what then crosses which link.

The partition has the rules of operator partitioning's own model. A link has a level for every distinct bandwidth; a
literal says that the link of a pair of stage replicas is no faster than level k, and then the seconds of what the pair
exchanges are at least those at that level. So no volume is ever multiplied by a bandwidth that is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.device_mapping.definition.plan import Mapping as Places
from formulations.modelling.solve_model import add_requirements
from formulations.operator_partitioning.models.partition import Partition
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.quantities import VOCABULARY
from formulations.pipeline_placement.models.shared import (
    bandwidths,
    first_of_order,
    largest_time,
    ordered_stages,
    solve_with,
)
from formulations.pipeline_placement.models.two_phase import compute_bound
from instances.problems.pipeline_placement import PlacementInstance
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch
from solvers.scaling import Scale, cost_scale

_SENTENCES = {
    "slowest": "time of the slowest stage replica, in whole units [Parmesan, Equation 5]",
    "at": "at[s,r,d]: replica r of stage s is on device d",
    "placed": "every stage replica has a device: sum over d of at[s,r,d] = 1",
    "one_node": "every device has a stage replica: sum over s, r of at[s,r,d] = 1",
    "in_order": "replicas that can be numbered otherwise are in the order of their devices",
    "crosses": "crosses[t,s,q]: tensor t goes from stage s to stage q",
    "crossing": "it does if its source is in the first and one of its targets in the second",
    "sent": "sent[s,q,r]: time in which replica r sends from stage s to stage q",
    "allreduce": "allreduce[s]: time of the all-reduce of stage s",
    "ring": "ring[s,r]: time of the all-reduce on the link of replica r to the next one",
    "slowest_link": "the slowest link of a ring decides: allreduce[s] >= ring[s,r] [Parmesan, Equation 7]",
    **{
        f"{name}_{part}": text
        for name, what in (("sent", "what is sent"), ("ring", "the all-reduce"))
        for part, text in (
            ("slow", f"{name}_slow[.,k]: the link is no faster than level k of the distinct bandwidths, fastest first"),
            ("time", f"{what} takes as long as at level k if the link is no faster [Parmesan, Equations 6 and 7]"),
            ("levels", "a link that is no faster than a level is no faster than the levels before"),
            ("level", "a link is as slow as the devices that its ends are on have it"),
        )
    },
    "stage_time": "the slowest one takes as long as every stage replica: it computes, exchanges tensors and reduces "
    "its gradients [Parmesan, Equations 6 and 7]",
}


@dataclass
class Model(cpsat.Runnable):
    """The partition, the places of stage replicas, and the unit of times.

    ``at[s, r, d]``: replica r of stage s is on device d. ``top`` units are more than any plan of interest takes.
    """

    instance: PlacementInstance
    scale: Scale
    top: int

    def __post_init__(self) -> None:
        self.model = cpsat.SpokenModel()
        self.partition = Partition(self.instance.operators, self.model)
        for name, text in _SENTENCES.items():
            self.model.says(name, text)
        self.slowest = self.model.new_int_var(0, self.top - 1, "slowest")
        stages, replicas = self.instance.num_stages, self.instance.operators.replicas
        places = product(range(stages), range(replicas), range(self.instance.num_devices))
        self.at = self.partition.booleans("at", places)

    def decode(self, values: Any) -> PlacementPlan:
        """The plan that the values of a solution describe."""
        device = {(s, r): d for (s, r, d), variable in self.at.items() if values[variable]}
        stages, replicas = self.instance.num_stages, self.instance.operators.replicas
        places = tuple(tuple(device[s, r] for r in range(replicas)) for s in range(stages))
        return PlacementPlan(self.partition.decode(values), Places(places))

    def values_of(self, plan: PlacementPlan) -> Iterator[tuple[Any, int]]:
        """The values of the partition and of all places in a plan."""
        yield from self.partition.values_of(plan.partition)
        for (s, r, d), variable in self.at.items():
            yield variable, int(plan.mapping.devices[s][r] == d)

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a placement, as sums over both phases."""
        stages, at = range(self.instance.num_stages), self.at
        replicas, partition = range(self.instance.operators.replicas), self.partition.quantities()
        return {
            "stage_of": partition["stage_of"],
            "same_stage": partition["same_stage"],
            "runs": lambda device, stage: sum(at[stage, r, device] for r in replicas),
            "stage_on": lambda device: sum(s * at[s, r, device] for s in stages for r in replicas),
        }

    def units(self, seconds: float) -> int:
        """Seconds in units, rounded down; beyond ``top`` no more needs to be known, and sums stay small."""
        return min(self.scale.floor(seconds), self.top)

    def cut_off(self, plan: PlacementPlan, values: Any) -> None:
        """Not this partition, of which only rounded sizes fit."""
        self.partition.cut_off(plan.partition, values)

    def lower_bound(self, bound: float) -> float:
        """A bound of the model in seconds; units are whole, so it may be rounded up."""
        return max(0.0, self.scale.restore(cpsat.whole(bound)) * (1 - 1e-14))


def build(instance: PlacementInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model. Plans slower than the best one that the watch knows are left out, unless ``complete``.

    So are plans that only number the replicas of a stage otherwise, which no requirement can tell apart.
    """
    graph = instance.operators
    upper = None if complete or watch is None else watch.best_objective
    top = largest_time(instance) if upper is None else upper * (1 + 1e-9)
    terms = len(graph.operators) + 2 * len(graph.tensors) * instance.num_stages
    # Every variable of seconds and every term of a sum may be as large as the slowest stage.
    scale = cost_scale(
        compute_bound(instance), 2 * terms, top * (terms + 2 * instance.num_devices * (instance.num_stages + 2))
    )
    built = Model(instance, scale, scale.ceil(top) + 1)
    _place(built, in_order=not complete)
    sent = _sent(built, _crossings(built) if instance.objective != "allreduce" else {})
    rings = _rings(built) if instance.objective != "p2p" else {}
    compute = [built.units(each.compute_s) for each in graph.operators]
    for s in range(instance.num_stages):
        work = _sum([built.partition.holds[v, s] for v in range(len(graph.operators))], compute)
        for r in range(graph.replicas):
            seconds = sum([work, *sent.get((s, r), []), *([rings[s]] if s in rings else [])])
            built.model.add(seconds <= built.slowest).with_name(f"stage_time[{s},{r}]")
    built.model.minimize(built.slowest)
    add_requirements(built, VOCABULARY, instance)
    return built


def _sum(variables: list[Any], factors: list[int]) -> Any:
    return cp_model.LinearExpr.weighted_sum(variables, factors)


def _place(built: Model, *, in_order: bool) -> None:
    """One device for every stage replica and the other way round; ``in_order``: as are replicas that can be renamed."""
    instance, model = built.instance, built.model
    stages, replicas, devices = range(instance.num_stages), instance.operators.replicas, range(instance.num_devices)
    for s in stages:
        for r in range(replicas):
            model.add_exactly_one([built.at[s, r, d] for d in devices]).with_name(f"placed[{s},{r}]")

    for d in devices:
        model.add_exactly_one([built.at[s, r, d] for s in stages for r in range(replicas)]).with_name(f"one_node[{d}]")

    if not in_order:
        return
    number = {
        (s, r): _sum([built.at[s, r, d] for d in devices], list(devices)) for s in stages for r in range(replicas)
    }
    for s in ordered_stages(instance):
        for r in range(1, replicas):
            before = number[s, first_of_order(instance, r)]
            model.add(before + 1 <= number[s, r]).with_name(f"in_order[{s},{r}]")


def _crossings(built: Model) -> dict[tuple[int, int], list[tuple[Any, float]]]:
    """For each pair of stages the tensors that may go from the first to the second, and their bytes."""
    graph, model, stages = built.instance.operators, built.model, built.instance.num_stages
    holds = built.partition.holds
    found: dict[tuple[int, int], list[tuple[Any, float]]] = {}
    for t, tensor in enumerate(graph.tensors):
        if not tensor.volume_bytes:
            continue
        for s in range(stages):
            for q in range(s + 1, stages):
                crosses = model.new_bool_var(f"crosses[{t},{s},{q}]")
                for target in tensor.targets:
                    ends = holds[tensor.source, s].negated(), holds[target, q].negated()
                    model.add_bool_or([crosses, *ends]).with_name(f"crossing[{t},{target},{s},{q}]")
                found.setdefault((s, q), []).append((crosses, tensor.volume_bytes))
    return found


def _sent(built: Model, crossing: dict[tuple[int, int], list[tuple[Any, float]]]) -> dict[tuple[int, int], list[Any]]:
    """For each stage replica the seconds that it exchanges tensors, one variable for each stage at the other end."""
    found: dict[tuple[int, int], list[Any]] = {}
    for (s, q), tensors in crossing.items():
        for r in range(built.instance.operators.replicas):
            seconds = _at_level(built, (s, r), (q, r), tensors, "sent", f"{s},{q},{r}")
            found.setdefault((s, r), []).append(seconds)
            found.setdefault((q, r), []).append(seconds)
    return found


def _rings(built: Model) -> dict[int, Any]:
    """Seconds of each stage's all-reduce: the slowest of its ring's links."""
    graph, replicas = built.instance.operators, built.instance.operators.replicas
    if replicas == 1:
        return {}
    found = {}
    factor = 2 * (replicas - 1) / replicas
    for s in range(built.instance.num_stages):
        bytes_ = [
            (built.partition.holds[v, s], factor * operator.parameter_bytes)
            for v, operator in enumerate(graph.operators)
            if operator.parameter_bytes
        ]
        seconds = built.model.new_int_var(0, built.top, f"allreduce[{s}]")
        for r in range(replicas if replicas > 2 else 1):
            link = _at_level(built, (s, r), (s, (r + 1) % replicas), bytes_, "ring", f"{s},{r}")
            built.model.add(seconds >= link).with_name(f"slowest_link[{s},{r}]")
        found[s] = seconds
    return found


def _at_level(
    built: Model, one: tuple[int, int], other: tuple[int, int], volumes: list[tuple[Any, float]], name: str, of: str
) -> Any:
    """Seconds of some volumes on the link between two stage replicas, at least; rounded down."""
    model, levels = built.model, bandwidths(built.instance)
    seconds = model.new_int_var(0, built.top, f"{name}[{of}]")
    slow = [None, *(model.new_bool_var(f"{name}_slow[{of},{k}]") for k in range(1, len(levels)))]
    for k, bandwidth in enumerate(levels):
        row = seconds >= _sum([variable for variable, _ in volumes], [built.units(v / bandwidth) for _, v in volumes])
        added = model.add(row).with_name(f"{name}_time[{of},{k}]")
        if slow[k] is not None:
            added.only_enforce_if(slow[k])
        if k > 1:
            model.add_implication(slow[k], slow[k - 1]).with_name(f"{name}_levels[{of},{k}]")
    for k, pairs in _pairs_by_level(built.instance, levels):
        for d, e in pairs if k else []:
            ends = built.at[(*one, d)].negated(), built.at[(*other, e)].negated()
            model.add_bool_or([slow[k], *ends]).with_name(f"{name}_level[{of},{d},{e}]")
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
    """The best plan of both phases at once, by CP-SAT (`models.solve_with`)."""
    return solve_with(lambda: build(instance, watch), instance, limits, watch, to_scale=bool(instance.requirements))
