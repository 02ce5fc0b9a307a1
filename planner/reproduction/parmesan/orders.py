"""The orders that Algorithm 2 leaves open, each on the cells of Table 2 with 64 devices.

The networks are reconstructed: which order the paper took is not known, only how often each reaches what is printed.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.reproduction.claim import Evidence, Note, verified_result
from planner.reproduction.parmesan.cells import TIME_LIMIT_S
from planner.reproduction.parmesan.table_2 import GRAPHS, PRINTED, SHAPES, instance_of
from solvers.outcome import Limits

#: Order of nodes, order of devices.
VARIANTS = (
    ("auto", "adjacent"),
    ("auto", "number"),
    ("stage-major", "adjacent"),
    ("replica-major", "adjacent"),
    ("longest-ring-first", "adjacent"),
)
#: Devices that one search tries: half a second or so, counted so that no other work on the machine matters.
SEARCH_DEVICES = 1e6
_DEVICES = 64
#: A printed speedup has one decimal.
_HALF_DIGIT = 0.05


def run(_inputs: str | None, note: Note, search_devices: float = SEARCH_DEVICES, graph: str = GRAPHS[1]) -> Evidence:
    """A row for each cell: the printed speedup over consecutive mapping and those found with each order."""
    rows: list[dict[str, Any]] = []
    limits = Limits()
    for kind, printed in PRINTED.items():
        for (stages, replicas), paper in zip(SHAPES, printed, strict=True):
            if stages * replicas != _DEVICES or paper is None:
                continue
            instance = instance_of(graph, kind, stages, replicas, "auto", TIME_LIMIT_S)
            note(f"{kind}, {stages} stages, {replicas} replicas")
            base = verified_result(instance, "consecutive", limits=limits).objective or math.nan
            row = {"topology": kind, "stages": stages, "replicas": replicas, "objective": instance.objective}
            for order, devices in VARIANTS:
                given = {
                    "order": order,
                    "device_order": devices,
                    "search_timeout": "none",
                    "search_devices": str(search_devices),
                }
                found = verified_result(instance, "parmesan", limits=limits, **given)
                row[f"{order}, {devices}"] = base / (found.objective or math.nan)
            rows.append({**row, "paper_speedup": paper})
    notes = ("speedups over consecutive mapping, on reconstructed networks of seed 0", *_sentences(rows))
    return Evidence(tuple(rows), f"stage graphs: {graph}; {search_devices:g} devices tried in a search", notes=notes)


def _sentences(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for order, devices in VARIANTS:
        name = f"{order}, {devices}"
        below = sum(row[name] < row["paper_speedup"] - _HALF_DIGIT for row in rows)
        apart = math.exp(sum(abs(math.log(row[name] / row["paper_speedup"])) for row in rows) / len(rows))
        most = (max(row[", ".join(each)] for each in VARIANTS) for row in rows)
        behind = math.exp(sum(math.log(best / row[name]) for best, row in zip(most, rows, strict=True)) / len(rows))
        yield (
            f"{name}: below the printed speedup in {below} of {len(rows)} cells; a factor of {apart:.2f} from it, and "
            f"of {behind:.2f} behind the best of these orders, in the geometric mean"
        )
