"""The ablation that Parmesan's Appendix J announces: each part of the flow left out or turned, one at a time.

The appendix is not published: which models, networks and values it takes is reconstructed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from formulations.pipeline_placement.definition.simulate import simulate
from formulations.pipeline_placement.definition.stages import step_seconds
from planner.files.load import family_of
from planner.reproduction.claim import Evidence, Note, verified_result
from planner.reproduction.parmesan.cells import SEARCH, TIME_LIMIT_S
from planner.reproduction.parmesan.models import MODELS, map_partition
from planner.results.result import Result
from solvers.outcome import Limits

ALPHAS = ("0", "0.0001", "0.001", "0.01", "0.1")
CLUSTERS = ("16", "32", "64", "128")
SEARCHES = ("1e4", "1e5", "1e6")
TARGETS = ("1", "2", "4")
OBJECTIVES = ("p2p", "allreduce", "full")
#: Variants of the first phase: name, method, options.
PARTITIONS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("as published", "parmesan", {}),
    ("no refinement", "dp", {}),
    ("no dynamic program", "cluster", {}),
    ("refinement alone", "refine", {}),
    ("no clustering: all downsets", "exact", {}),
    *((f"alpha {alpha}", "parmesan", {"alpha": alpha}) for alpha in ALPHAS),
    *((f"K {clusters}", "parmesan", {"clusters": clusters}) for clusters in CLUSTERS),
)


def run(
    _inputs: str | None,
    note: Note,
    time_limit: float = TIME_LIMIT_S,
    models: tuple[str, ...] = ("resnet-152", "semantic-fpn"),
    network: str = "two-level",
    stages: int = 8,
    replicas: int = 4,
) -> Evidence:
    """A row for each variant of each phase; the other phase is as published."""
    rows: list[dict[str, Any]] = []
    for model in models:
        graph = replace(MODELS[model](), num_stages=stages, replicas=replicas)
        limits = Limits(time_s=time_limit)
        exact = verified_result(graph, "exact", limits=limits) if _supported(graph, "exact") else None
        known = exact.bound if exact is not None else None
        published: Any = None
        for name, method, options in PARTITIONS:
            if not _supported(graph, method):
                continue
            note(f"{model}: {name}")
            found = verified_result(graph, method, limits=limits, **options)
            if found.plan is None:
                rows.append(_row(model, "partition", name, found, known, None, None))
                continue
            plan = found.own_plan
            published = published or plan
            instance = map_partition(graph, plan, replicas, network, "auto")
            placed = verified_result(instance, "parmesan", limits=limits, **SEARCH)
            rows.append(_row(model, "partition", name, found, known, instance, placed))
        rows += _mappings(model, graph, published, replicas, network, limits, note)
    notes = (
        "phase partition: load is the slowest stage on a flat network, its loss against the proved bound of the exact "
        "method (no number where it proves none in time); phase mapping: load is the slowest stage replica by the "
        "variant's own objective, its loss against the proved bound",
        "step: predicted seconds of four micro-batches and an all-reduce, after Algorithm 1; simulated: by events",
        *_sentences(rows),
    )
    return Evidence(tuple(rows), f"models generated at operator level on {network}", notes=notes)


def _sentences(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What the partition loses without each part, and which variant's simulated step is the quickest."""
    named = ("as published", "no refinement", "no dynamic program", "refinement alone")
    for model in dict.fromkeys(row["model"] for row in rows):
        own = {row["variant"]: row for row in rows if row["model"] == model and row["phase"] == "partition"}
        losses = [(name, own[name]["loss"]) for name in named if name in own]
        shown = ", ".join(f"{name} {100 * loss:.1f} %" for name, loss in losses if loss is not None)
        if shown:
            yield f"{model}, above the optimal partition: {shown}"
        steps = {name: row["simulated_step_s"] for name, row in own.items() if row["simulated_step_s"] is not None}
        if "as published" in steps:
            best = min(steps, key=lambda name: steps[name])
            yield (
                f"{model}, simulated step after Algorithm 1: as published {1e3 * steps['as published']:.1f} ms, the "
                f"quickest {1e3 * steps[best]:.1f} ms ({best})"
            )


def _mappings(
    model: str, graph: Any, plan: Any, replicas: int, network: str, limits: Limits, note: Note
) -> list[dict[str, Any]]:
    rows = []
    variants = [
        *((f"{most} devices tried in a search", "auto", {"search_devices": most}) for most in SEARCHES),
        *((f"{count} targets at a time", "auto", {"targets": count}) for count in TARGETS),
        *((f"objective {objective}", objective, {}) for objective in OBJECTIVES),
    ]
    bounds: dict[str, float | None] = {}
    for name, objective, options in variants:
        note(f"{model}: {name}")
        instance = map_partition(graph, plan, replicas, network, objective)
        if instance.objective not in bounds:
            bounds[instance.objective] = verified_result(instance, "exact", limits=limits).bound
        found = verified_result(instance, "parmesan", limits=limits, **{**SEARCH, **options})
        rows.append(_row(model, "mapping", name, found, bounds[instance.objective], instance, found))
    return rows


def _row(
    model: str, phase: str, variant: str, found: Result, bound: float | None, instance: Any, placed: Result | None
) -> dict[str, Any]:
    load = found.objective
    plan = None if placed is None else placed.own_plan
    return {
        "model": model,
        "phase": phase,
        "variant": variant,
        "objective": None if instance is None else instance.objective,
        "load_s": load,
        "loss": load / bound - 1 if load is not None and bound else None,
        "seconds": found.seconds,
        "step_s": None if plan is None else step_seconds(instance, plan),
        "simulated_step_s": None if plan is None else simulate(instance, plan).seconds,
    }


def _supported(graph: Any, method: str) -> bool:
    return family_of(graph).method(method).supports(graph) is None
