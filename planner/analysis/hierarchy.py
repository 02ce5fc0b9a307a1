"""What the flat network model costs on machines: plans of the flat model, placed and evaluated on two levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.files.load import load
from planner.process.errors import UsageError
from planner.results.result import html_table
from planner.solving.solve import solve
from solvers.outcome import Limits

#: The cluster of the paper's Fig. 4: 8 machines of 8 GPUs, NVSwitch inside and InfiniBand between them.
CLUSTER: Mapping[str, str] = {
    "devices-per-machine": "8",
    "num-machines": "8",
    "inner-bandwidth": "300GB/s",
    "outer-bandwidth": "25GB/s",
    "memory-model": "precise",
}


@dataclass(frozen=True)
class PlanOnMachines:
    """A plan: the network it was made for, its time there, and its time on the machines (``None``: no room for it).

    ``superstages``: whether it fits the machines as superstages; else its replicas are spread one by one.
    ``loss`` is how much longer a sample takes than in the best hierarchical plan, relatively.
    """

    model: str
    status: str
    own_time: float | None
    time_on_machines: float | None
    superstages: bool
    loss: float | None
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """Rows of flat models and of the hierarchical one, for one instance on one cluster."""

    instance: str
    unit: str
    options: dict[str, Any]
    rows: list[PlanOnMachines]

    def _repr_html_(self) -> str:
        return html_table([vars(row) for row in self.rows])


def compare(name: str, *, inputs: str | None = None, limits: Limits | None = None, **settings: Any) -> Comparison:
    """Solve a stage-partitioning instance with each network as if it were flat, and on both levels.

    Parameters
    ----------
    name
        A file or catalog name of stage partitioning.
    **settings
        Overrides of the instance, and those of the cluster (`CLUSTER` has the defaults). Bandwidths are taken per time
        unit of the instance, or converted with ``fix_units``.

    Raises
    ------
    UsageError
        If the instance is of another family, or a setting breaks its rule.
    """
    from formulations.hierarchical_partitioning.definition.problem import evaluate
    from formulations.hierarchical_partitioning.questions.placement import place, spread_replicas, spread_time
    from instances.problems.stage_partitioning import StageInstance

    rest = {name.replace("_", "-"): value for name, value in settings.items() if value is not None}
    cluster = {name: rest.pop(name, default) for name, default in CLUSTER.items()}
    if not isinstance(load(name, inputs=inputs, **rest), StageInstance):
        raise UsageError.at("INSTANCE", name, "an instance of stage_partitioning")
    on_machines = {**rest, **cluster, "problem": "hierarchical_partitioning"}
    instance: Any = load(name, inputs=inputs, **on_machines)
    bandwidths = {"inner": instance.inner_bandwidth, "outer": instance.outer_bandwidth}
    best = solve(instance, exact=True, limits=limits)
    optimum = best.objective
    rows = []
    for level, bandwidth in bandwidths.items():
        result = solve(replace(instance.flat, bandwidth=bandwidth), exact=True, limits=limits)
        plan = result.own_plan
        placed = place(instance, plan) if plan else None
        counts = spread_replicas(instance, plan) if plan else None
        times = [evaluate(instance, placed)] if placed else []
        times += [spread_time(instance, plan, counts)] if plan and counts else []
        time = min(times, default=None)
        loss = None if time is None or not optimum else time / optimum - 1
        model = f"flat, {level} bandwidth"
        rows.append(
            PlanOnMachines(model, str(result.status), result.objective, time, placed is not None, loss, result.seconds)
        )
    loss = None if optimum is None else 0.0
    rows.append(
        PlanOnMachines("hierarchical", str(best.status), optimum, optimum, optimum is not None, loss, best.seconds)
    )
    return Comparison(instance.name, instance.flat.time_unit, dict(instance.options), rows)
