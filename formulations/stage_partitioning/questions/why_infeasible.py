"""What would make an infeasible instance feasible: the least memory at its devices, the fewest devices at its memory.

Both by threshold tests without a limit on time (`exact.threshold.ThresholdSearch`), exact for the instance with that
one number changed.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from formulations.compiled.downsets import all_downsets, chain_downsets, linear_orders
from formulations.contract.rounding import Least, amount_text, bytes_text, least_amount, plural
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK, stage_memory, suffix_sums
from formulations.stage_partitioning.exact.threshold import ThresholdSearch
from formulations.stage_partitioning.kernels.tables import build_lattice, build_profile
from formulations.stage_partitioning.methods import MAX_DOWNSETS, MAX_LABELS
from instances.parameters import MAX_AMOUNT, MAX_COUNT
from instances.problems.stage_partitioning import StageInstance
from solvers.memory_budget import SizeError
from solvers.outcome import Limits, Watch


def why_infeasible(instance: StageInstance, _limits: Limits, watch: Watch) -> tuple[str, Mapping[str, Any]]:
    """A sentence and its figures; what the time limit cuts off is left out, and what the method is too small for."""
    memory = least_needs(lambda: least_memory(instance, watch))
    devices = least_needs(lambda: fewest_devices(instance, watch))
    return explain_needs(instance, memory, devices)


def least_needs(find: Callable[[], Least]) -> Least:
    """What is found; nothing where the graph has too many downsets."""
    try:
        return find()
    except SizeError:
        return Least()


def explain_needs(instance: StageInstance, memory: Least, devices: Least) -> tuple[str, dict[str, float]]:
    """A sentence and its figures from what is known of the least memory and the fewest devices.

    The figures are the numbers of the sentence, as far as they are proved to be the least.
    """
    parts: list[str] = []
    figures: dict[str, float] = {}
    said = memory_sentence(memory, plural(instance.num_devices, "device"))
    if said:
        parts.append(said)
    if memory.proved and memory.amount is not None and memory.amount <= MAX_AMOUNT:
        figures["least_memory_bytes"] = memory.amount
    if devices.proved and devices.amount is not None:
        declared = bytes_text(instance.memory_bytes)
        if devices.amount < math.inf:
            figures["fewest_devices"] = int(devices.amount)
            parts.append(f"{plural(int(devices.amount), 'device')} of {declared} would suffice")
        elif most_devices(instance) <= MAX_COUNT:
            parts.append(f"no number of devices of {declared} would suffice")
        else:
            parts.append(f"no number of devices up to {MAX_COUNT}, of {declared}, would suffice")
    return "infeasible: " + ("; ".join(parts) if parts else "no plan fits the devices and their memory"), figures


def memory_sentence(memory: Least, devices: str) -> str:
    """What is known of the memory that ``devices`` ("8 devices") need; empty if that is nothing."""
    if memory.amount is None or (memory.amount > MAX_AMOUNT and not memory.proved):
        return ""
    if memory.amount == math.inf:
        return f"no memory would suffice with {devices}"
    if memory.amount > MAX_AMOUNT:
        return f"no memory up to {amount_text(MAX_AMOUNT)} bytes would suffice with {devices}"
    return f"{devices} of {bytes_text(memory.amount, up=True)} would suffice" + (
        "" if memory.proved else ", maybe less"
    )


def is_feasible(instance: StageInstance, watch: Watch) -> bool:
    """Whether a plan was found; also false if the run was stopped, or if the graph has too many downsets."""
    try:
        return _whole(instance, watch).test(math.inf) >= 0
    except SizeError:
        return False


def fewest_devices(instance: StageInstance, watch: Watch) -> Least:
    """The smallest K that makes the instance feasible, infinite if none does.

    `SizeError` if the graph has too many downsets.
    """
    search = _whole(replace(instance, num_devices=unlimited_devices(instance)), watch)
    s = search.test(math.inf, fewest=True)
    if s == -2 or watch.stopped():
        return Least()
    return Least(float(search.labels[-1, s]) if s >= 0 else math.inf, proved=True)


def least_memory(instance: StageInstance, watch: Watch) -> Least:
    """The least rounded M (bytes) that makes the instance feasible, infinite if none does.

    `SizeError` if the graph has too many downsets.
    """
    search = _whole(replace(instance, memory_bytes=math.inf), watch)
    needed = math.inf
    for order in linear_orders(instance):  # cheap, and often the answer already: then one test of all downsets is left
        lattice = build_lattice(search.profile, chain_downsets(order))
        chain = _fits(ThresholdSearch(search.instance, search.profile, lattice, search.flag))
        found = least_amount(chain, watch, MEMORY_SLACK, needed).amount
        needed = needed if found is None else found
    return least_amount(_fits(search), watch, MEMORY_SLACK, needed)


def _fits(search: ThresholdSearch) -> Callable[[float], float | None]:
    """What some plan over the lattice of ``search`` needs that fits into a memory."""

    def needed(memory: float) -> float | None:
        search.limit_memory(memory)
        s = search.test(math.inf)
        if s < 0:
            return None
        plan = search.plan(s, math.inf)
        sums = suffix_sums(plan)
        return max(stage_memory(search.instance, stage, s) for stage, s in zip(plan.stages, sums, strict=True))

    return needed


def _whole(instance: StageInstance, watch: Watch) -> ThresholdSearch:
    profile = build_profile(instance, prune=True)
    downsets = all_downsets(instance, MAX_DOWNSETS)
    if downsets is None or len(downsets) * (profile.max_s + 1) > MAX_LABELS:
        raise SizeError("the graph has too many downsets for the exact method")
    return ThresholdSearch(instance, profile, build_lattice(profile, downsets), np.frombuffer(watch.flag, np.uint8))


def unlimited_devices(instance: StageInstance) -> int:
    """A K that no plan can exceed, every degree at its largest; or the largest that an instance may declare."""
    return min(most_devices(instance), MAX_COUNT)


def most_devices(instance: StageInstance) -> int:
    """A K that no plan can exceed, every degree at its largest."""
    largest_t = max((t for layer in instance.layers for t, found in layer.tmpcs.items() if found), default=1)
    return instance.num_microbatches * largest_t
