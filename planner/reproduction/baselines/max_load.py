"""Tarnawski et al. 2020: its dynamic program beside the optimum of the definition here, and its integer programs."""

import math
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
#: Of the integer programs. The release has 3 devices for bert_l-3_inference and 6 for the others, of so many bytes.
SPLIT_GRAPHS = ("bert24_inference", "bert_l-3_inference", "resnet50_inference")
SPLIT_MODELS = ("resnet50", "gnmt")
DEVICES = (2, 3, 6)
MEMORY = "17185374208B"


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


def run_splits(inputs: str | None, note: Note, limit: float = 60.0) -> Evidence:
    """Splits whose devices hold any operators, beside contiguous ones, on at most 2, 3 and 6 devices."""
    from planner.reproduction.baselines.max_load_splits import splits  # makes a problem that lists then have

    rows: list[dict[str, Any]] = []
    optima, missing = Optima(), []
    for name in (*SPLIT_GRAPHS, *SPLIT_MODELS):
        released = name in SPLIT_GRAPHS
        path = published_file(f"{name}.json", inputs) if released else name
        if path is None:
            missing.append(name)
            continue
        for devices in DEVICES:
            note(f"{name}, {devices} devices")
            chained: Any = load(path, stages=devices, at_most=True, **({"memory": MEMORY} if released else {}))
            table = verified_result(chained, "max-load-dp", limits=Limits(time_s=limit))
            found = [
                optima.result(
                    splits(chained, contiguous=contiguous), f"{name} {devices} {rule}", method="cpsat",
                    limits=Limits(time_s=limit),
                )
                for contiguous, rule in ((True, "contiguous"), (False, "any"))
            ]  # fmt: skip
            best_s, least_s = ([getattr(each, of) or math.nan for each in found] for of in ("objective", "bound"))
            rows.append({
                "graph": name, "operators": len(chained.operators), "devices": devices,
                "dp_s": table.stats["max_load"],
                "contiguous_s": best_s[0],
                "any_s": best_s[1],
                "any_bound_s": least_s[1],
                "lost_percent": 100 * max(0.0, least_s[0] / best_s[1] - 1),
                "at_most_percent": 100 * (best_s[0] / least_s[1] - 1),
            })  # fmt: skip
    left = f"; not here: {', '.join(missing)}" if missing else ""
    return Evidence(
        tuple(rows),
        f"its release's and the catalog's{left}",
        notes=(
            "dp_s: the dynamic program's, whose devices follow each other; contiguous_s: no path leaves a device and "
            "comes back; any_s: devices hold any operators",
            "percent: what contiguity adds to the load of the busiest device, at least and at most; equal where both "
            "are proved",
            optima.sentence(),
        ),
    )
