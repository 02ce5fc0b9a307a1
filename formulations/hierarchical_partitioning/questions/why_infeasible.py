"""What would make an infeasible hierarchical instance feasible: the least memory of its devices.

By threshold tests without a limit on time (`paper.Search`), exact for the instance with that one number changed.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from formulations.compiled.downsets import all_downsets, too_many
from formulations.contract.rounding import Least, least_amount, plural
from formulations.hierarchical_partitioning.definition.problem import most_memory
from formulations.hierarchical_partitioning.effort import TWO_LEVELS
from formulations.hierarchical_partitioning.paper import Search
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK
from formulations.stage_partitioning.methods import MAX_DOWNSETS
from formulations.stage_partitioning.questions.why_infeasible import least_needs, memory_sentence
from instances.parameters import MAX_AMOUNT
from instances.problems.hierarchical_partitioning import HierarchicalInstance
from solvers.memory_budget import SizeError
from solvers.outcome import Limits, Watch


def why_infeasible(instance: HierarchicalInstance, _limits: Limits, watch: Watch) -> tuple[str, Mapping[str, Any]]:
    """A sentence and its figures; what the time limit cuts off is left out, and what the method is too small for."""
    memory = least_needs(lambda: least_memory(instance, watch))
    machines, devices = plural(instance.all_machines, "machine"), plural(instance.devices_per_machine, "device")
    said = memory_sentence(memory, f"{machines} with {devices}")
    figures = {}
    if memory.proved and memory.amount is not None and memory.amount <= MAX_AMOUNT:
        figures["least_memory_bytes"] = memory.amount
    return "infeasible: " + (said or "no plan fits the machines and their memory"), figures


def least_memory(instance: HierarchicalInstance, watch: Watch) -> Least:
    """The least rounded bytes of a device with a plan, infinite if no memory has one.

    `SizeError` if the graph has too many downsets, or pairs of them, or there are levels above machines.
    """
    if instance.upper_levels:
        raise SizeError(TWO_LEVELS)
    downsets = all_downsets(instance.flat, MAX_DOWNSETS)
    if downsets is None:
        raise SizeError(too_many(len(instance.flat.layers), MAX_DOWNSETS))
    roomy = replace(instance, flat=replace(instance.flat, memory_bytes=math.inf))
    search = Search(roomy, downsets, np.frombuffer(watch.flag, np.uint8))

    def fits(memory: float) -> float | None:
        search.limit_memory(memory)
        s = search.test(math.inf)
        return most_memory(roomy, search.plan(s, math.inf)) if s >= 0 else None

    return least_amount(fits, watch, MEMORY_SLACK)
