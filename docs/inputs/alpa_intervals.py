"""Alpa's choice of stages on what it measured: each interval of layers on each submesh has its own cost.

``python alpa_intervals.py compute-cost-DATE.npy --submeshes 1,2,4,8 --devices 8 --microbatches 32 > alpa.json`` makes
an instance of the file that Alpa saves (``--submeshes`` are the devices of each submesh, in its order), and ``planner
solve alpa.json --problem alpa_intervals.py:PROBLEM --exact`` proves its best stages.

Source: alpa-projects/alpa, alpa/pipeline_parallel/stage_construction.py (commit 01d71eb): `get_compute_cost` for the
file, which holds costs (seconds) and how many stages may follow (memory) by first layer, last layer, submesh and
sharding; the algorithm is that of `planner reproduce alpa-submeshes`. Deviation: costs are rounded to whole
nanoseconds, sums are not of 32 bits, costs that no memory allows are no thresholds, and of equal sums another may be
taken.
"""

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from formulations.contract.family import Answer, Claim, Method
from formulations.contract.problem import Instance, Problem
from formulations.modelling.decision_model import cpsat
from instances.rules import Count, Index
from planner.reproduction.baselines.alpa_submeshes import Costs, thresholds
from solvers.outcome import Limits, Watch

#: Thresholds that are closer to the last one are skipped (nanoseconds), as Alpa does.
ALPA_GAP = 1000


@dataclass(frozen=True)
class Interval:
    """Layers ``first`` to ``last`` on ``devices``: a micro-batch takes ``cost_ns``, at most ``later`` stages follow."""

    first: Index
    last: Index
    devices: Count
    cost_ns: Index
    later: Index = 0


@dataclass(frozen=True, kw_only=True)
class Intervals(Instance):
    """What may be a stage; all ``devices`` are used, as in Alpa."""

    intervals: tuple[Interval, ...]
    devices: Count = 2
    microbatches: Count = 4

    @property
    def layers(self) -> int:
        """From 0 on."""
        return 1 + max((each.last for each in self.intervals), default=0)


@dataclass(frozen=True)
class Stages:
    """``starts[l]``: the place of the interval that begins at layer l; -1: none does."""

    starts: tuple[int, ...]


def decisions(instance: Intervals) -> dict[str, Any]:
    """What begins at each layer; something does at the first."""
    found: list[list[int]] = [[] if layer == 0 else [-1] for layer in range(instance.layers)]
    for place, each in enumerate(instance.intervals):
        if each.first <= each.last:
            found[each.first].append(place)
    return {"starts": [own or [-1] for own in found]}


def _chosen(instance: Intervals, plan: Stages) -> list[Interval]:
    return [instance.intervals[place] for place in plan.starts if place >= 0]


def evaluate(instance: Intervals, plan: Stages) -> int:
    """Nanoseconds of a batch by Alpa's formula: all stages once, and the slowest for each other micro-batch."""
    costs = [each.cost_ns for each in _chosen(instance, plan)]
    return sum(costs) + (instance.microbatches - 1) * max(costs, default=0)


def cover(instance: Intervals, plan: Stages) -> str | None:
    """Each layer is in one stage."""
    layers = [layer for each in _chosen(instance, plan) for layer in range(each.first, each.last + 1)]
    return None if sorted(layers) == list(range(instance.layers)) else f"layers {layers} are in stages"


def devices(instance: Intervals, plan: Stages) -> str | None:
    """All devices are used."""
    used = sum(each.devices for each in _chosen(instance, plan))
    return None if used == instance.devices else f"{used} of {instance.devices} devices are used"


def memory(instance: Intervals, plan: Stages) -> str | None:
    """No stage has more behind it than its memory allows."""
    chosen = _chosen(instance, plan)
    over = [place for place, each in enumerate(chosen) if len(chosen) - 1 - place > each.later]
    return f"too many stages follow stage {over[0]}" if over else None


def rows(instance: Intervals, model: Any) -> None:
    """The rows that ``planner model`` shows and ``planner solve`` runs."""
    own, takes = model.model, {each: model.takes["starts", each.first, place] for place, each in _usable(instance)}
    own.says("cover", "each layer is in one stage")
    own.says("devices", "all devices are used")
    own.says("memory", "where a stage is taken, at most `later` stages begin behind it")
    own.says("slowest", "no stage that is taken takes longer than the slowest")
    for layer in range(instance.layers):
        there = [taken for each, taken in takes.items() if each.first <= layer <= each.last]
        own.add(sum(there) == 1).with_name(f"cover[{layer}]")
    used = sum(each.devices * taken for each, taken in takes.items())
    own.add(used == instance.devices).with_name("devices")
    slowest = own.new_int_var(0, max((each.cost_ns for each in takes), default=0), "slowest")
    for place, (each, taken) in enumerate(takes.items()):
        behind = sum(other for stage, other in takes.items() if stage.first > each.last)
        own.add(behind <= each.later).only_enforce_if(taken).with_name(f"memory[{place}]")
        own.add(slowest >= each.cost_ns * taken).with_name(f"slowest[{place}]")
    model.minimise(sum(each.cost_ns * taken for each, taken in takes.items()) + (instance.microbatches - 1) * slowest)


def _usable(instance: Intervals) -> Iterator[tuple[int, Interval]]:
    """The intervals by their places, of equal ones the first."""
    seen: set[Interval] = set()
    for place, each in enumerate(instance.intervals):
        if each.first <= each.last and each not in seen:
            seen.add(each)
            yield place, each


def alpa(instance: Intervals, _limits: Limits, watch: Watch) -> Answer[Stages]:
    """Alpa's program on the least cost of each interval, by how many stages may follow."""
    layers, most = instance.layers, min(instance.layers, instance.devices)
    cost = np.full((most, layers, layers + 1, instance.devices + 1), math.inf)
    places: dict[tuple[int, ...], int] = {}
    for place, each in _usable(instance):
        if each.devices <= instance.devices:
            for later in range(min(each.later + 1, most)):
                at = (later, each.first, each.last + 1, each.devices)
                if each.cost_ns < cost[at]:
                    cost[at], places[at] = each.cost_ns, place
    best: tuple[float, Stages | None] = (math.inf, None)
    widths = range(1, instance.devices + 1)
    for found, stages in thresholds(Costs(cost), instance.devices, instance.microbatches, widths, ALPA_GAP):
        if found < best[0]:
            starts = [-1] * layers
            for place, stage in enumerate(stages):
                starts[stage[0]] = places[(len(stages) - 1 - place, *stage)]
            best = (found, Stages(tuple(starts)))
            watch.plan(best[1], evaluate(instance, best[1]))
        if watch.stopped():
            break
    return Answer(best[1], stop=watch.why())


_EXAMPLE = tuple(
    Interval(first, last, width, (3 + 2 * (last - first)) * 1000 // width, 2)
    for first in range(3)
    for last in range(first, 3)
    for width in (1, 2)
)
PROBLEM = Problem(
    "alpa_intervals",
    Intervals,
    Stages,
    decisions,
    evaluate,
    unit="ns",
    rules={"cover": cover, "devices": devices, "memory": memory},
    methods=(
        Method("alpa", Claim.HEURISTIC, "Zheng et al., 2022, section 5.2; the release skips close thresholds", alpa),
        cpsat(rows, "a row for each layer and each interval"),
    ),
    examples=(Intervals(name="three", intervals=_EXAMPLE, devices=3),),
)


def read(path: str, submeshes: list[int], used: int, microbatches: int) -> dict[str, Any]:
    """An instance as JSON of what Alpa saved; sharding configurations that were not measured are left out."""
    costs, later = (np.asarray(each, dtype=float) for each in np.load(path, allow_pickle=True)[:2])
    if costs.ndim != 4 or costs.shape != later.shape or costs.shape[2] != len(submeshes):
        raise SystemExit(
            f"{path}: costs have shape {costs.shape}; expected (layers, layers, {len(submeshes)}, shardings)"
        )
    found = [
        {"first": int(i), "last": int(j), "devices": submeshes[m], "cost_ns": round(costs[i, j, m, c] * 1e9),
         "later": int(later[i, j, m, c])}
        for i, j, m, c in np.argwhere(np.isfinite(costs) & (later >= 0))
    ]  # fmt: skip
    return {
        "problem": "alpa_intervals", "schema_version": 1, "name": "alpa", "intervals": found, "devices": used,
        "microbatches": microbatches,
    }  # fmt: skip


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    given.add_argument("file")
    given.add_argument("--submeshes", required=True, type=lambda text: [int(each) for each in text.split(",")])
    given.add_argument("--devices", required=True, type=int)
    given.add_argument("--microbatches", required=True, type=int)
    own = given.parse_args()
    print(json.dumps(read(own.file, own.submeshes, own.devices, own.microbatches)))
