"""Figure 2: time per sample against devices, for two numbers of micro-batches, from one run each."""

import math
from typing import Any

from formulations.stage_partitioning import baselines
from planner.analysis.frontier import frontier
from planner.reproduction.claim import Evidence, Note
from planner.reproduction.piper.inputs import PUBLISHED, bert, source

MICROBATCHES = (512, 960)
_RESTRICTIONS: dict[str, dict[str, Any]] = {
    "exact": {},
    "no_dp": {"max_dp": 1},
    "no_tp": {"tp": 1},
    "no_ar": {"forbid_tmpc": "activation recomp"},
}
#: What the release's main() runs for the figure (commit d7fc8cf): ``parallelizabilityExperiment(32, 8, 960)`` and
#: ``(32, 8, 512)``, which leave the file's own bandwidth as it is. The figure prints neither.
_MEMORY, _BANDWIDTH, _COST_MODEL = "8GiB", "25GB/s", "released"
#: Times that differ by less, relative, are one: a sum in another order differs in the last place.
_EQUAL = 1e-9
Curve = list[float | None]


def run(
    inputs: str | None,
    note: Note,
    devices: int = 2048,
    memory: str = _MEMORY,
    bandwidth: str = _BANDWIDTH,
    cost_model: str = _COST_MODEL,
) -> Evidence:
    """Every curve of the figure at the devices of a grid, and what the text says of their shapes."""
    rows: list[dict[str, Any]] = []
    published = source(inputs, "bert32a100")
    own = (memory, bandwidth, cost_model) == (_MEMORY, _BANDWIDTH, _COST_MODEL)
    whose = "as the release's main() runs it" if own else "not the release's setting"
    notes = [f"time per sample in s, {cost_model} cost model, {memory} and {bandwidth} a device: {whose}"]
    for microbatches in MICROBATCHES:
        given = {
            "devices": devices,
            "memory": memory,
            "microbatches": microbatches,
            "bandwidth": bandwidth,
            "cost_model": cost_model,
        }
        curves: dict[str, Curve] = {}
        for name, restriction in _RESTRICTIONS.items():
            note(f"{microbatches} micro-batches: {name}")
            curves[name] = _whole(bert(inputs, **given, **restriction))
        graph = bert(inputs, **given)
        curves["equi"] = _finite(baselines.by_devices(graph)[1:].tolist())
        curves["equi_no_tp"] = _finite(baselines.by_devices(graph, (1,))[1:].tolist())
        rows += [
            {"microbatches": microbatches, "devices": k, **{name: curve[k - 1] for name, curve in curves.items()}}
            for k in _grid(devices)
        ]
        notes.append(_shapes(microbatches, curves, printed=published == PUBLISHED))
    return Evidence(tuple(rows), published, notes=tuple(notes))


def _whole(instance: Any) -> Curve:
    found = frontier(instance)
    if found.signal:
        raise SystemExit(128 + found.signal)
    return found.best


def _shapes(microbatches: int, curves: dict[str, Curve], *, printed: bool) -> str:
    """What the paper states about the curves, measured on them, and ``printed`` beside it."""
    worse = sorted(
        equal / best - 1
        for equal, best in zip(curves["equi"], curves["exact"], strict=True)
        if equal is not None and best is not None
    )
    parts = [
        (f"no DP stops improving at k = {_last_gain(curves['no_dp'])}", "22"),
        (f"no TP at k = {_last_gain(curves['no_tp'])}", "N"),
    ]
    if worse:
        low, middle, high = (worse[len(worse) * share // 100] for share in (25, 50, 75))
        within = sum(0.1 <= loss <= 0.15 for loss in worse) / len(worse)
        spread = f"{100 * low:.0f} to {100 * high:.0f} % for the middle half of all k, median {100 * middle:.1f} %"
        parts.append((f"equi is worse by {spread}; by 10 to 15 % for {100 * within:.0f} % of all k", "10-15 %"))
    shown = ", ".join(f"{found} (printed: {paper})" if printed else found for found, paper in parts)
    return f"N = {microbatches}: {shown}"


def _last_gain(curve: Curve) -> int:
    """The largest k at which one more device made a difference; 0 if the curve is empty."""
    padded = [None, *curve]
    return max((k for k in range(1, len(padded)) if _differ(padded[k - 1], padded[k])), default=0)


def _differ(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after - before) > _EQUAL * before


def _finite(times: list[float]) -> Curve:
    return [time if math.isfinite(time) else None for time in times]


def _grid(most: int) -> list[int]:
    """Device counts that are shown: dense where the curves bend, then every 64."""
    return sorted({k for k in (*range(2, 32, 2), *range(32, 64, 8), *range(64, most, 64), most) if k <= most})
