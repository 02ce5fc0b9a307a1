"""What would make an infeasible flushed instance feasible: the least memory at its devices, the fewest devices at its.

Both by passes of the recursion without any limit on time (`labels`), exact for the instance with that one number
changed. Under 1F1B the limits are those of the flat family, and so is the answer.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from formulations.compiled.downsets import all_downsets, too_many
from formulations.contract.rounding import Least, least_amount
from formulations.flushed_partitioning.exact.labels import Search
from formulations.flushed_partitioning.exact.pareto_set import Found
from formulations.flushed_partitioning.methods import MAX_DOWNSETS
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK, stage_memory
from formulations.stage_partitioning.questions import why_infeasible as flat_infeasible
from formulations.stage_partitioning.questions.why_infeasible import least_needs
from instances.problems.flushed_partitioning import FlushedInstance, Schedule
from solvers.memory_budget import SizeError
from solvers.outcome import Limits, Watch


def why_infeasible(instance: FlushedInstance, limits: Limits, watch: Watch) -> tuple[str, Mapping[str, Any]]:
    """A sentence and its figures; what the time limit cuts off is left out. Nothing yet of machines."""
    flat = instance.flat
    if instance.devices_per_machine is not None:
        return "", {}
    if instance.schedule is not Schedule.GPIPE:
        return flat_infeasible.why_infeasible(flat, limits, watch)
    memory = least_needs(lambda: least_memory(instance, watch))
    devices = least_needs(lambda: fewest_devices(instance, watch))
    sentence, figures = flat_infeasible.explain_needs(flat, memory, devices)
    if flat_infeasible.is_feasible(flat, watch):
        sentence += "; so would --schedule 1f1b"
    return sentence, figures


def least_memory(instance: FlushedInstance, watch: Watch) -> Least:
    """The least rounded M (bytes) with a plan under GPipe, infinite if none does.

    `SizeError` if there are too many downsets or labels.
    """
    m = instance.flat.num_microbatches
    search = _search(replace(instance, flat=replace(instance.flat, memory_bytes=math.inf)), watch)

    def fits(memory: float) -> float | None:
        search.limit_memory(memory)
        found = search.least_bottleneck(math.inf)
        if not isinstance(found, Found):
            return None
        return max(stage_memory(instance.flat, stage, m) for stage in found.plan.stages)

    return least_amount(fits, watch, MEMORY_SLACK)


def fewest_devices(instance: FlushedInstance, watch: Watch) -> Least:
    """The smallest K with a plan under GPipe, infinite if there is none. Raises as above."""
    most = flat_infeasible.unlimited_devices(instance.flat)
    search = _search(replace(instance, flat=replace(instance.flat, num_devices=most)), watch)
    labels = search.labels_at(math.inf, np.empty(0), plain=True)
    if labels is None or watch.stopped():
        return Least()
    return Least(min((float(search.pool.devices[label]) for label in labels), default=math.inf), proved=True)


def _search(instance: FlushedInstance, watch: Watch) -> Search:
    """Passes over all downsets; `SizeError` if there are too many."""
    downsets = all_downsets(instance.flat, MAX_DOWNSETS)
    if downsets is None:
        raise SizeError(too_many(len(instance.flat.layers), MAX_DOWNSETS))
    return Search(instance, downsets, watch)
