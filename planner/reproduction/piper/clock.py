"""Section 6: with flushes, how far a plan that is best by a formula of a batch is from the shortest iteration."""

from typing import Any

from formulations.flushed_partitioning.definition.problem import (
    formula_time,
    replica_time,
    simulate_batch,
    synchronisation_times,
)
from formulations.stage_partitioning.definition.batch import stage_edges
from formulations.stage_partitioning.definition.plan import StagePlan
from instances.problems.flushed_partitioning import Fill, FlushedInstance
from planner.files.load import load
from planner.reproduction.claim import Evidence, Note, Optima
from planner.reproduction.piper.inputs import require_some
from solvers.outcome import Limits

#: Model of the catalog, devices, micro-batches of a batch.
SETTINGS = (
    *(("gpt", 8, 32), ("gpt", 16, 32), ("gpt", 16, 128), ("gpt", 64, 64), ("gpt", 64, 256)),
    *(("bert", 8, 32), ("bert", 16, 32), ("bert", 64, 64), ("bert", 64, 256)),
    *(("bert32", 8, 32), ("bert32", 16, 128), ("gpt3-175b", 64, 64)),
)
#: Of every device.
_MEMORY, _BANDWIDTH = "80GB", "100GB/s"


def run(_inputs: str | None, note: Note, devices: int = 64, limit: float = 30.0) -> Evidence:
    """The optimum by either formula and the shortest iteration, each proved, and what the first take on the clock."""
    require_some(devices, (count for _, count, _ in SETTINGS))
    rows: list[dict[str, Any]] = []
    optima, limits = Optima(), Limits(time_s=limit)
    for model, count, m in SETTINGS:
        if count > devices:
            continue
        place = f"{model}, {count} devices, {m} micro-batches"
        note(place)
        given: dict[str, Any] = {"devices": count, "microbatches": m, "memory": _MEMORY, "bandwidth": _BANDWIDTH}
        given |= {"problem": "flushed_partitioning"}
        shortest = optima.result(
            load(model, **given, objective="iteration"), f"{place} (iteration)", method="best-first", limits=limits
        )
        for fill in Fill:
            instance: Any = load(model, **given, fill=fill)
            found = optima.result(instance, f"{place} ({fill})", method="labels", limits=limits)
            rows.append(
                {
                    "model": model, "devices": count, "microbatches": m, "fill": str(fill),
                    **_figures("formula", instance, found.own_plan), **_figures("best", instance, shortest.own_plan),
                    "gap": shortest.gap,
                }
            )  # fmt: skip
    for row in rows:
        for name in ("simulated", "any_order"):
            row[f"lost_{name}_percent"] = 100 * (row[f"formula_{name}"] / row["best_simulated"] - 1)
    return Evidence(
        tuple(rows),
        f"analytic instances of the catalog, {_MEMORY} and {_BANDWIDTH} a device",
        notes=(
            "formula: the optimum by the formula of that fill; best: the shortest iteration (1F1B); gap: of the latter",
            "simulated: one batch in fixed orders, seconds per sample; those of unequal degrees are reconstructed",
            "any_order: what the plan takes at least, whatever the order of its passes",
            "lost: what the formula's optimum takes more; optima of one formula may differ on the clock",
            optima.sentence(),
        ),
    )


def _figures(name: str, instance: FlushedInstance, plan: StagePlan | None) -> dict[str, Any]:
    """What a plan takes; every setting has one."""
    assert plan is not None
    return {
        f"{name}_plan": says(plan),
        f"{name}_objective": formula_time(instance, plan),
        f"{name}_simulated": simulate_batch(instance, plan),
        f"{name}_any_order": in_any_order(instance, plan),
    }


def says(plan: StagePlan) -> str:
    """Number of stages, and their degrees.

    >>> from formulations.stage_partitioning.definition.plan import Stage
    >>> says(StagePlan((Stage((0,), 2, 1, {}), Stage((1,), 4, 1, {}))))
    'pp2 dp2-4 tp1'
    """
    ranges = [sorted({stage.dp_degree for stage in plan.stages}), sorted({stage.tp_degree for stage in plan.stages})]
    dp, tp = ("-".join(map(str, dict.fromkeys((found[0], found[-1])))) for found in ranges)
    return f"pp{len(plan.stages)} dp{dp} tp{tp}"


def in_any_order(instance: FlushedInstance, plan: StagePlan) -> float:
    """Time per sample that a batch takes at least, whatever the order of passes on each replica.

    Before the first pass of a stage comes a forward pass on each stage of a path into it, and after its last pass a
    backward pass on each of them. Between them a replica runs all of its micro-batches, one pass at a time.
    """
    m, times = instance.flat.num_microbatches, [replica_time(instance, stage) for stage in plan.stages]
    heads, edges = [0.0] * len(times), stage_edges(instance.flat, plan)
    for number in range(len(times)):
        before = [heads[source] + times[source] for source, target in edges if target == number]
        heads[number] = max(before, default=0.0)
    spans = [
        head + -(-m // stage.dp_degree) * time for head, stage, time in zip(heads, plan.stages, times, strict=True)
    ]
    return max(spans) / m + max(synchronisation_times(instance, plan))
