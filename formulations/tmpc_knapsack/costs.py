"""Tables that the methods share: the instance as flat arrays, and back from positions to a plan."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.contract.rounding import amount_text, bytes_text, round_up
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.problem import MEMORY_SLACK
from instances.parameters import MAX_AMOUNT
from instances.problems.tmpc_knapsack import KnapsackInstance


class Arrays(NamedTuple):
    """Options of all nodes, node by node: node v has ``node_start[v]`` to ``node_start[v + 1] - 1`` of the other two.

    ``node_start`` has shape (nodes + 1,); ``time`` and ``memory`` (bytes) have shape (options,); ``capacity`` is in
    bytes. In this order they are the first arguments of the kernels.
    """

    node_start: NDArray[np.int64]
    time: NDArray[np.float64]
    memory: NDArray[np.float64]
    capacity: float


def arrays(instance: KnapsackInstance) -> Arrays:
    """The instance as arrays."""
    options = [option for node in instance.nodes for option in node.options]
    return Arrays(
        np.cumsum([0, *(len(node.options) for node in instance.nodes)], dtype=np.int64),
        np.array([option.time for option in options], dtype=np.float64),
        np.array([option.memory_bytes for option in options], dtype=np.float64),
        float(instance.capacity_bytes),
    )


def plan_of(instance: KnapsackInstance, choice: Sequence[int] | NDArray[np.int64]) -> KnapsackPlan:
    """The plan that takes option ``choice[v]`` of the v-th node."""
    return KnapsackPlan(
        {node.id: node.options[int(position)].id for node, position in zip(instance.nodes, choice, strict=True)}
    )


def least_memory(instance: KnapsackInstance) -> float:
    """Bytes of the smallest options together."""
    return math.fsum(min(option.memory_bytes for option in node.options) for node in instance.nodes)


def infeasible_answer(instance: KnapsackInstance) -> Answer[KnapsackPlan]:
    """The answer to an instance whose smallest options do not fit together, with what would help."""
    return infeasible_by_counting(shortage(instance))


def least_capacity(instance: KnapsackInstance) -> float:
    """The least rounded capacity that is feasible, in bytes."""
    return round_up(least_memory(instance), MEMORY_SLACK)


def shortage(instance: KnapsackInstance) -> str:
    """Why an infeasible instance is infeasible, and what would suffice, in a sentence."""
    need, least = least_memory(instance), least_capacity(instance)
    way = f"feasible with --memory {amount_text(least)}"
    if least > MAX_AMOUNT:
        way = f"no memory up to {amount_text(MAX_AMOUNT)} bytes would suffice"
    declared = bytes_text(instance.capacity_bytes)
    return f"the smallest options together need {bytes_text(need, up=True)} and the capacity is {declared}: {way}"
