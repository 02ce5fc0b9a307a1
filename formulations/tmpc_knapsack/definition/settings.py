"""What an instance of tmpc knapsack is read from, and what a caller may change of it."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from formulations.contract.family import OwnJson
from instances.errors import InstanceError
from instances.parameters import Setting
from instances.problems.tmpc_knapsack import KnapsackInstance, check
from instances.units import parse_bytes

_JSON = OwnJson(KnapsackInstance, check)

MEMORY = Setting("memory", parse_bytes, "capacity of the knapsack: 8GiB (2^30 bytes) or 8GB (10^9)", metavar="SIZE")
#: What is minimised.
MINIMISES = {"": "sum of the times of all nodes"}
OVERRIDES = (MEMORY,)


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> KnapsackInstance:
    """The instance that ``content`` (see ``recognise``) and the overrides declare; `InstanceError` if it is bad."""
    memory = overrides.get("memory")
    if memory is not None:
        try:
            memory = MEMORY.parse(memory)
        except ValueError as error:
            raise InstanceError.at(where, "--memory", memory, str(error)) from None
    if memory is not None and isinstance(content, dict):
        content = {**content, "capacity_bytes": memory}
    instance = _JSON.read(content, where)
    return instance if memory is None else replace(instance, capacity_bytes=memory)


def num_options(instance: KnapsackInstance) -> int:
    """Options of all nodes together."""
    return sum(len(node.options) for node in instance.nodes)


def unit(_: KnapsackInstance) -> str:
    """The objective's unit."""
    return ""


def describe(instance: KnapsackInstance) -> dict[str, Any]:
    """The key figures of an instance."""
    return {
        "nodes": len(instance.nodes),
        "options": num_options(instance),
        "capacity_bytes": instance.capacity_bytes,
        **{f"origin.{key}": value for key, value in instance.origin.items()},
    }


def memory_pressure(instance: KnapsackInstance) -> float | None:
    """What the fastest options need together, over the capacity: above 1 the knapsack is not trivial."""
    fastest = [min(node.options, key=lambda option: (option.time, option.memory_bytes)) for node in instance.nodes]
    room = instance.capacity_bytes
    return math.fsum(option.memory_bytes for option in fastest) / room if room else None
