"""Tarnawski et al. 2020: the max-load dynamic program over all downsets, beside the optimum of the definition here."""

from collections.abc import Iterator
from typing import Any

from instances.problems.operator_partitioning import OperatorInstance
from planner.files.load import load, published_file
from planner.reproduction.claim import Evidence, Note, Optima, verified_result
from solvers.outcome import Limits

#: Inputs of its release, if they are there, and models of the catalog.
GRAPHS = ("bert24_inference", "bert24_training", "bert_l-3_inference", "resnet50_inference")
MODELS = ("resnet50", "resnet152", "bert-l", "swin-l", "gnmt")
STAGES = (2, 4, 8, 16)


def run(inputs: str | None, note: Note, limit: float = 60.0) -> Evidence:
    """Every graph in 2 to 16 stages, without replicas."""
    rows: list[dict[str, Any]] = []
    optima, missing = Optima(), []
    for name in (*GRAPHS, *MODELS):
        path = published_file(f"{name}.json", inputs) if name in GRAPHS else name
        if path is None:
            missing.append(name)
            continue
        for row, instance in _settings(name, path):
            note(f"{name}, {row['stages']} stages")
            found = verified_result(instance, "max-load-dp", limits=Limits(time_s=limit))
            if found.objective is None:  # fewer operators than stages
                continue
            best = optima.result(instance, f"{name} {row['stages']}", limits=Limits(time_s=limit)).objective
            assert best is not None
            row |= {
                "best_s": best,
                "max_load_s": found.stats["max_load"],
                "lost_percent": 100 * (found.objective / best - 1),
            }
            for method in ("parmesan", "pipedream"):
                other = verified_result(instance, method).objective
                row[f"{method}_percent"] = None if other is None else 100 * (other / best - 1)
            rows.append(row)
    return Evidence(
        tuple(rows),
        f"its release's and the catalog's; not here: {', '.join(missing)}"
        if missing
        else "its release's and the catalog's",
        notes=(
            "max_load_s: the program's own value, where a tensor that leaves a stage counts once; here it does "
            "for each stage that takes it",
            "percent: of the slowest stage above best_s",
            optima.sentence(),
        ),
    )


def _settings(name: str, path: Any) -> Iterator[tuple[dict[str, Any], OperatorInstance]]:
    for stages in STAGES:
        instance: Any = load(path, stages=stages)
        yield {"graph": name, "operators": len(instance.operators), "stages": stages}, instance
