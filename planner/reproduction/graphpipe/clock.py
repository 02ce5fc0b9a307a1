"""Equation 1: how far the plan of the least bottleneck is from the shortest iteration, both proved."""

from typing import Any

from planner.files.load import load
from planner.reproduction.claim import Evidence, Note, Optima
from planner.reproduction.graphpipe.plans import INPUTS, TIME_LIMIT_S
from solvers.outcome import Limits

#: Models of the catalog and devices, of which both optima are proved in seconds.
SETTINGS = (
    *(("graphpipe-case-study", 4), ("graphpipe-case-study", 8), ("mmt-2", 4), ("mmt-2", 8), ("dlrm-8", 4)),
    *(("candle-uno-8", 4), ("candle-uno", 8), ("candle-uno", 16), ("candle-uno", 32)),
)


def run(
    _inputs: str | None, note: Note, devices: tuple[int, ...] = (4, 8, 16, 32), time_limit: float = TIME_LIMIT_S
) -> Evidence:
    """The optimum of each objective, and both numbers of each."""
    rows: list[dict[str, Any]] = []
    optima, limits = Optima(), Limits(time_s=time_limit)
    for model, count in SETTINGS:
        if count not in devices:
            continue
        note(f"{model} on {count} devices")
        row: dict[str, Any] = {"model": model, "devices": count}
        for name, objective, method in (("tps", "tps", "exact"), ("shortest", "iteration", "branch-and-bound")):
            instance: Any = load(model, devices=count, objective=objective)
            found = optima.result(instance, f"{model} on {count} ({objective})", method=method, limits=limits)
            keys = ("microbatch", "stages", "tps_s", "iteration_s", "samples_per_s")
            row |= {f"{name}_{key}": found.stats[key] for key in keys}
        row["gap"] = found.gap
        row["lost_percent"] = 100 * (row["tps_iteration_s"] / row["shortest_iteration_s"] - 1)
        rows.append(row)
    notes = (
        "tps: the optimum of Equation 1; shortest: of the simulated iteration; gap: of the latter",
        "lost: how much longer the iteration of Equation 1's optimum is; another of its optima may be quicker",
        optima.sentence(),
    )
    return Evidence(tuple(rows), INPUTS, notes=notes)
