"""What may be in conflict in a choice of TMPCs, and what may repair it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from formulations.contract.rounding import bytes_text
from formulations.contract.what_if import (
    Change,
    Member,
    More,
    layers_among,
    more_memory,
    one_requirement_less,
    other_memory,
    requirement_members,
    rules_among,
    share,
    without_requirements,
)
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.problem import MEMORY_SLACK, total_memory
from instances.parameters import MAX_AMOUNT
from instances.problems.tmpc_knapsack import KnapsackInstance, KnapsackNode


def members(instance: KnapsackInstance) -> tuple[Member, ...]:
    """Requirements, the memory, and the nodes, those that need little first."""
    memory = Member("rule", "memory", f"all nodes together have {bytes_text(instance.capacity_bytes)}")
    nodes = sorted(instance.nodes, key=_least)
    said = [Member("layer", node.id, f"node {node.id} needs at least {bytes_text(_least(node))}") for node in nodes]
    return (*requirement_members(instance), memory, *said)


def _least(node: KnapsackNode) -> float:
    return min(option.memory_bytes for option in node.options)


def relax(instance: KnapsackInstance, dropped: frozenset[Member]) -> list[KnapsackInstance]:
    """The instance without some rules, and with nodes whose every TMPC needs nothing."""
    kept, free = without_requirements(instance, dropped), layers_among(dropped)
    if "memory" in rules_among(dropped):
        kept = replace(kept, capacity_bytes=MAX_AMOUNT)
    return [replace(kept, nodes=tuple(_without_memory(node) if node.id in free else node for node in kept.nodes))]


def _without_memory(node: KnapsackNode) -> KnapsackNode:
    return replace(node, options=tuple(replace(option, memory_bytes=0.0) for option in node.options))


def repairs(instance: KnapsackInstance, _: Sequence[int | str]) -> list[list[Change[KnapsackInstance]]]:
    """More memory, a requirement less."""
    return [[_memory(instance)], *([each] for each in one_requirement_less(instance))]


def _memory(instance: KnapsackInstance) -> Change[KnapsackInstance]:
    return other_memory(
        instance.capacity_bytes,
        lambda amount: replace(instance, capacity_bytes=amount),
        lambda plan: total_memory(instance, plan),
        MEMORY_SLACK,
        says="{}",
    )


def resources(instance: KnapsackInstance) -> list[More[KnapsackInstance]]:
    """One more GiB."""
    return [more_memory(_memory(instance), where="")]


def rows(instance: KnapsackInstance, plan: KnapsackPlan) -> list[dict[str, Any]]:
    """The one stage that all nodes are in."""
    held = total_memory(instance, plan)
    memory = {"memory_bytes": held, "memory_share": share(held, instance.capacity_bytes)}
    return [{"stage": 0, "time_share": 1.0, **memory}]
