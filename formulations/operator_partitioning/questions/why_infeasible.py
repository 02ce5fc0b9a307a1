"""What would make an infeasible instance feasible: other stages or devices where these are short, the least memory.

Memory by searches of all chains of downsets (`chains.Search`) without a limit on time. Every setting that is named has
been tried.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.rounding import Least, amount_text, least_amount
from formulations.operator_partitioning.costs.chains import Search
from formulations.operator_partitioning.costs.downsets import all_downsets
from formulations.operator_partitioning.costs.shapes import instances_by_shape, shortage
from formulations.operator_partitioning.definition.problem import MEMORY_SLACK, most_memory
from formulations.operator_partitioning.definition.settings import apply
from formulations.operator_partitioning.methods import MAX_DOWNSETS
from instances.parameters import MAX_AMOUNT
from instances.problems.operator_partitioning import OperatorInstance
from solvers.outcome import Limits, Watch

_UNKNOWN = "no more is known"


def why_infeasible(instance: OperatorInstance, _limits: Limits, watch: Watch) -> tuple[str, dict[str, float]]:
    """A sentence with settings that help, and the least memory (bytes) where that alone is short."""
    short = shortage(instance)
    if short is not None:
        return f"{short}; {_other_shape(instance, watch)}", {}
    return lacking_memory(instance, watch)


def lacking_memory(instance: OperatorInstance, watch: Watch) -> tuple[str, dict[str, float]]:
    """The sentence and the figure where stages and devices are not short."""
    memory = least_memory(instance, watch)
    least = memory.proved and memory.amount is not None and memory.amount <= MAX_AMOUNT
    return _memory_text(memory), {"least_memory_bytes": memory.amount} if least and memory.amount is not None else {}


def least_memory(instance: OperatorInstance, watch: Watch) -> Least:
    """The least rounded memory of a device with a plan; nothing where the graph has too many downsets."""
    bits = all_downsets(instance, MAX_DOWNSETS)
    if bits is None or instance.memory_bytes is None:
        return Least()
    every = [replace(each, memory_bytes=math.inf) for each in instances_by_shape(instance).values()]
    searches = [(each, Search(each, bits, watch)) for each in every]

    def fits(memory: float) -> float | None:
        for each, search in searches:
            search.limit_memory(memory)
            plan = search.any_plan()
            if plan is not None:
                return most_memory(each, plan)
        return None

    with alarm(watch):
        return least_amount(fits, watch, MEMORY_SLACK)


def _memory_text(memory: Least, others: str = "") -> str:
    """What is known of the memory that is needed, with the text of other settings that are changed as well."""
    if memory.amount is None or (memory.amount > MAX_AMOUNT and not memory.proved):
        return _UNKNOWN
    if memory.amount > MAX_AMOUNT:
        most = "" if memory.amount == math.inf else f" up to {amount_text(MAX_AMOUNT)} bytes"
        return f"no memory{most} would suffice"
    return f"feasible with {others}--memory {amount_text(memory.amount)}" + ("" if memory.proved else ", maybe less")


def _other_shape(instance: OperatorInstance, watch: Watch) -> str:
    """Stages or devices that would suffice, where the declared ones are short; with the memory that they need."""
    settings = _settings(instance)
    changed = apply(instance, settings, "instance")
    text = " ".join(f"--{name}" if value is True else f"--{name} {value}" for name, value in settings.items())
    if changed.memory_bytes is None:
        return f"feasible with {text}"
    memory = least_memory(changed, watch)
    if memory.amount is not None and memory.amount <= changed.memory_bytes:
        return f"feasible with {text}"
    return _memory_text(memory, f"{text} ")


def _settings(instance: OperatorInstance) -> Mapping[str, Any]:
    """Overrides with which neither stages nor devices are short."""
    count, stages, devices = len(instance.operators), instance.num_stages, instance.num_devices
    if stages is None:
        assert devices is not None and instance.step_microbatches is not None
        replicas = (each for each in range(1, devices) if instance.step_microbatches % each == 0)
        return {"devices": max(each * min(count, (devices - 1) // each) for each in replicas)}
    if stages > count and not instance.at_most:
        return {"stages": count}
    return {"stages": stages, "devices": 1 if instance.at_most else stages, "variable-replicas": True}
