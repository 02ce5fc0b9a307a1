"""What would make an infeasible flushed instance feasible: the least memory at its devices, the fewest devices at its.

Both by passes of the recursion without any limit on time (`labels`), exact for the instance with that one number
changed. Under 1F1B the limits are those of the flat family, and so is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from formulations.flushed_partitioning.labels import MOST_DOWNSETS, Search
from formulations.flushed_partitioning.scan import Found
from formulations.stage_partitioning import exact as flat_exact
from formulations.stage_partitioning.bisection import PRECISION
from formulations.stage_partitioning.downsets import all_downsets
from formulations.stage_partitioning.problem import stage_memory
from instances.flushed_partitioning import FlushedInstance, Schedule
from solvers.outcome import Limits, Watch


def why_infeasible(instance: FlushedInstance, limits: Limits, watch: Watch) -> tuple[str, Mapping[str, Any]]:
    """A sentence and its figures; what the time limit cuts off is left out."""
    if instance.schedule is not Schedule.GPIPE:
        return flat_exact.why_infeasible(instance.flat, limits, watch)
    flat = instance.flat
    memory = flat_exact.known(lambda: least_memory(instance, watch), watch)
    devices = flat_exact.known(lambda: fewest_devices(instance, watch), watch)
    sentence, figures = flat_exact.explained(flat, memory, devices)
    without = flat_exact.known(lambda: flat_exact.least_memory(flat, watch), watch)
    if without is not None and without <= flat.memory_bytes:
        sentence += "; so would --schedule 1f1b"
    return sentence, figures


def least_memory(instance: FlushedInstance, watch: Watch) -> float | None:
    """The smallest M in bytes with a plan under GPipe, up to 1e-9; ``None`` if none does or on a stop.

    Raises
    ------
    exact.SizeError
        If there are too many downsets or labels.
    """
    m = instance.flat.num_microbatches
    search = _search(replace(instance, flat=replace(instance.flat, memory_bytes=math.inf)), watch)
    lower, upper = 0.0, math.inf
    while True:
        strict = upper * (1 - PRECISION)
        # Strictly below the known plan first, now and then: it tends to be the best one.
        trial = strict if math.isinf(upper) or search.passes % 2 else min((lower + upper) / 2, strict)
        search.limit_memory(trial)
        found = search.least_bottleneck(math.inf)
        if isinstance(found, Found):
            upper = min(upper, max(stage_memory(instance.flat, stage, m) for stage in found.plan.stages))
        elif found:
            return None
        else:
            lower = trial
        if upper == 0 or lower >= upper * (1 - PRECISION):
            return None if math.isinf(upper) else upper


def fewest_devices(instance: FlushedInstance, watch: Watch) -> int | None:
    """The smallest K with a plan under GPipe; ``None`` if there is none or the run was stopped. Raises as above."""
    most = flat_exact.unlimited_devices(instance.flat)
    search = _search(replace(instance, flat=replace(instance.flat, num_devices=most)), watch)
    labels = search.labels_at(math.inf, np.empty(0), plain=True) or ()
    return min((int(search.pool.devices[label]) for label in labels), default=None)


def _search(instance: FlushedInstance, watch: Watch) -> Search:
    """Passes over all downsets; `exact.SizeError` if there are too many."""
    downsets = all_downsets(instance.flat, MOST_DOWNSETS)
    if downsets is None:
        raise flat_exact.SizeError(f"more than {MOST_DOWNSETS} downsets")
    return Search(instance, downsets, watch)
