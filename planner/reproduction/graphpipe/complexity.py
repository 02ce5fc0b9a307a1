"""Section 5's time complexity: the operations of one run of Algorithm 1, counted over growing models and devices.

In its default configuration all stages have one micro-batch size and 1F1B, so the factors for configurations are 1 and
the bound on a run is O(N B |D|^2), with N the series-parallel subgraphs, B the mini-batch, and |D| < log2 |V_D|.
"""

import itertools
import math
from collections.abc import Hashable, Sequence
from typing import Any

from formulations.stage_graph.costs.series_parallel import Leaf, Segment, key_of
from formulations.stage_graph.paper.graphpipe import default_search
from planner.files.load import load
from planner.reproduction.claim import Evidence, Note
from planner.reproduction.graphpipe.plans import DEVICES, INPUTS
from solvers.outcome import Watch

#: Samples of a mini-batch, the same for all as B is one of the bound's factors: those of 32 devices in Appendix A.2.
MINIBATCH = 512
#: Samples of a micro-batch: one for each of 32 devices at least.
_MICROBATCH = 32


def run(
    _inputs: str | None,
    note: Note,
    devices: Sequence[int] = DEVICES,
    layers: Sequence[int] = (2, 4, 8),
    branches: int = 4,
) -> Evidence:
    """The multi-modal transformer with so many layers in a branch, on so many devices."""
    rows: list[dict[str, Any]] = []
    for depth in layers:
        for count in devices:
            note(f"{branches} branches of {depth} layers on {count} devices")
            instance: Any = load(
                "mmt", branches=branches, layers=depth, devices=count, minibatch=MINIBATCH, objective="tps"
            )
            search = default_search(instance, Watch())
            search.best_at(_MICROBATCH)
            subgraphs, splits = decompositions(search.segment)
            looked = search.transitions // search.rounds
            rows.append(
                {
                    "layers": depth,
                    "operators": instance.num_operators,
                    "devices": count,
                    "subgraphs": subgraphs,
                    "splits": splits,
                    "loops": splits * count * (count - 1) // 2,
                    "transitions": looked,
                    "over_bound": looked / (subgraphs * MINIBATCH * math.log2(count) ** 2),
                    "over_devices": looked / (subgraphs * MINIBATCH * count**2),
                }
            )
    notes = (
        "subgraphs: N, what series and parallel decompositions lead to, equal branches once; splits: (G_1, G_2) that "
        "lines 33 and 41 of Algorithm 1 go through for all of them; loops: iterations of lines 34 and 43 for each "
        "number of devices, with one configuration; transitions: those of a run of the search here (a target)",
        f"over_bound: transitions over N B (log2 |V_D|)^2, B = {MINIBATCH}; over_devices: over N B |V_D|^2",
        *_growths(rows),
    )
    return Evidence(tuple(rows), INPUTS, notes=notes)


def decompositions(segment: Segment) -> tuple[int, int]:
    """Subgraphs that decompositions lead to, and pairs (G_1, G_2) of all of them.

    A series of k components has k (k + 1) / 2 runs of components, and a run of l is cut in l - 1 ways. Of branches side
    by side one is taken off at a time. Equal subgraphs count once, as a state that has been visited is looked up.
    """
    seen: set[Hashable] = set()
    splits = _visit(segment, seen)
    return len(seen), splits


def _visit(segment: Segment, seen: set[Hashable]) -> int:
    splits = 0
    for first in range(len(segment)):
        for end in range(first + 1, len(segment) + 1):
            key = key_of(segment[first:end])
            if key not in seen:
                seen.add(key)
                splits += end - first - 1
    for component in segment:
        if isinstance(component, Leaf):
            continue
        for taken, branch in enumerate(component.branches):
            splits += _visit(branch, seen)
            rest = component.branches[taken:]
            key = ("branches", *map(key_of, rest))
            if len(rest) > 1 and key not in seen:
                seen.add(key)
                splits += 1
    return splits


def _growths(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What a doubling of the devices, or of the layers, multiplies."""
    notes = []
    for fixed, grown in (("layers", "devices"), ("devices", "layers")):
        most = max(row[fixed] for row in rows)
        here = [row for row in rows if row[fixed] == most]
        for before, after in itertools.pairwise(here):
            growth = f"{after['transitions'] / before['transitions']:.1f} times the transitions"
            bound = after["transitions"] / before["transitions"] / (after["over_bound"] / before["over_bound"])
            notes.append(
                f"{before[grown]} to {after[grown]} {grown} ({most} {fixed}): {growth}, {bound:.1f} times the bound"
            )
    return notes
