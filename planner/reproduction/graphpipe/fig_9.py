"""Figure 9: where the gain comes from, parallel stages or the larger micro-batches that they leave memory for."""

from collections.abc import Mapping, Sequence
from typing import Any

from formulations.contract.family import lazy
from planner.files.load import load
from planner.reproduction.claim import Evidence, Note
from planner.reproduction.graphpipe.plans import (
    INPUTS,
    MEMORY,
    MODELS,
    SHAPES,
    TERMINALS,
    TIME_LIMIT_S,
    memory_near,
    plan_by,
    ratio,
    settings_of,
    spread,
)

_code = lazy("planner.reproduction.graphpipe")

DEVICES = (32,)
_KEYS = ("microbatch", "stages", "depth", "tps_s", "iteration_s", "samples_per_s", "peak_memory_bytes")
#: Speedups over a sequential pipeline.
_PRINTED = {"parallel": "1.12 to 1.40", "graphpipe": "1.25 to 1.61"}
Row = dict[str, Any]


def run(
    _inputs: str | None,
    note: Note,
    devices: Sequence[int] = DEVICES,
    models: Sequence[str] = MODELS,
    memory: float | None = None,
    near: float | None = None,
    shapes: str = "appendix",
    terminals: str = TERMINALS[0],
    time_limit: float = TIME_LIMIT_S,
) -> Evidence:
    """The strategies on every model, compared by the simulated iteration of their quickest plans."""
    rows: list[Row] = []
    for model in models:
        for count in devices:
            given = settings_of(count, SHAPES[shapes][model], memory)
            given |= memory_near(model, near, time_limit, note, **given)
            rows += _strategies(model, given, terminals, time_limit, note)
    notes = (
        "sequential: pipedream's quickest plan; same-stages: its stages without the order that the chain adds; "
        "parallel: graphpipe at that micro-batch size; graphpipe, graphpipe-plus: the quickest plan of all sizes",
        "tps_s is the bottleneck of the plan shown, speedup the ratio of simulated iterations to the sequential plan's",
        MEMORY,
        *_sentences(rows),
    )
    return Evidence(tuple(rows), INPUTS, notes=notes)


def _strategies(model: str, given: Mapping[str, Any], terminals: str, time_limit: float, note: Note) -> list[Row]:
    """Plans of least simulated iteration: the results' own plans, as the instance declares that objective."""
    given = {**given, "objective": "iteration"}
    row = plan_by(model, "pipedream", time_limit, note, **given)
    graph, plus = (
        plan_by(model, method, time_limit, note, terminals, **given) for method in ("graphpipe", "graphpipe-plus")
    )
    found: dict[str, Mapping[str, Any]] = {"sequential": _quickest(row), "same-stages": {}, "parallel": {}}
    if row.plan is not None:
        instance = load(model, **given)
        found["same-stages"] = _code.stages.without_row(instance, row.plan)
        found["parallel"] = _quickest(graph, found["sequential"]["microbatch"])
    found |= {"graphpipe": _quickest(graph), "graphpipe-plus": _quickest(plus)}
    base = found["sequential"].get("samples_per_s")
    return [
        {
            "model": row.instance,
            "devices": given["devices"],
            "strategy": name,
            **{key: each.get(key) for key in _KEYS},
            "speedup": ratio(each.get("samples_per_s"), base),
        }
        for name, each in found.items()
    ]


def _quickest(found: Any, microbatch: int | None = None) -> Mapping[str, Any]:
    sweep = [row for row in found.stats.get("sweep", ()) if microbatch in (None, row["microbatch"])]
    return min(sweep, key=lambda row: float(row["iteration_s"]), default={})


def _sentences(rows: Sequence[Row]) -> list[str]:
    notes = []
    for strategy in ("same-stages", "parallel", "graphpipe", "graphpipe-plus"):
        own = [row for row in rows if row["strategy"] == strategy]
        beside = f" (printed: {_PRINTED[strategy]})" if strategy in _PRINTED else ""
        notes.append(f"{strategy} over sequential: {spread(row['speedup'] for row in own)}{beside}")
    sizes = {(row["model"], row["devices"], row["strategy"]): row["microbatch"] for row in rows}
    for model, devices in dict.fromkeys((row["model"], row["devices"]) for row in rows):
        before, after = (sizes[model, devices, name] or "no plan" for name in ("sequential", "graphpipe"))
        notes.append(f"{model} on {devices}: the chain's micro-batch size {before}, graphpipe's {after}")
    return notes
