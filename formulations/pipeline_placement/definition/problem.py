"""Pipeline placement: the definition, naively and without any solver.

A plan is a partition of the operators and a mapping of the stages it makes. Its rules are those of the two problems,
its cost that of the mapping: what its stages compute, send and reduce over the links they really have.

Source: Parmesan, Equations 2 to 7; that both phases are one problem is the future work of its conclusion.
"""

from __future__ import annotations

from dataclasses import replace

from formulations.contract.violation import Violation
from formulations.device_mapping.definition import problem as mapping_problem
from formulations.operator_partitioning.definition import problem as partition_problem
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.stages import mapping_of
from instances.problems.device_mapping import DeviceMapping
from instances.problems.pipeline_placement import PlacementInstance


def second_phase(instance: PlacementInstance, partition: OperatorPlan) -> DeviceMapping:
    """The mapping problem that a partition leaves."""
    left = mapping_of(instance.operators, partition, instance.bandwidth_bytes_per_s, instance.objective)
    return replace(left, ring=instance.ring, microbatches=instance.microbatches)


def evaluate(instance: PlacementInstance, plan: PlacementPlan) -> float:
    """Seconds of the slowest stage replica, on the links of the mapping.

    Raises
    ------
    ValueError
        If the plan breaks a rule.
    """
    broken = violations(instance, plan)
    if broken:
        raise ValueError("; ".join(map(str, broken)))
    return mapping_problem.evaluate(second_phase(instance, plan.partition), plan.mapping)


def violations(instance: PlacementInstance, plan: PlacementPlan) -> tuple[Violation, ...]:
    """The rules of the partition that the plan breaks; if there are none, those of the mapping."""
    found = partition_problem.violations(instance.operators, plan.partition)
    if found:
        return found
    return mapping_problem.violations(second_phase(instance, plan.partition), plan.mapping)
