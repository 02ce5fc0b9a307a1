"""What a plan decides."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from formulations.contract.plan_exchange import exchange
from formulations.device_mapping.definition import plan as mapping
from formulations.device_mapping.definition.plan import Mapping as DeviceMap
from formulations.operator_partitioning.definition import plan as partition
from formulations.operator_partitioning.definition.plan import OperatorPlan
from instances.problems.pipeline_placement import PlacementInstance


@dataclass(frozen=True)
class PlacementPlan:
    """Both phases: which operators make a stage, and which devices run its replicas."""

    partition: OperatorPlan
    mapping: DeviceMap


@dataclass(frozen=True)
class _Declared:
    """A plan as files have it."""

    partition: Mapping[str, Any]
    mapping: Mapping[str, Any]


def _built(instance: PlacementInstance, declared: _Declared, where: str) -> PlacementPlan:
    found = partition.plan_from_json(instance.operators, declared.partition, f"{where}: partition")
    # The mapping's form does not depend on the stages; whether it fits them is a rule.
    return PlacementPlan(found, mapping.plan_from_json(None, declared.mapping, f"{where}: mapping"))


plan_from_json, plan_to_json = exchange(
    '``{"partition": ..., "mapping": ...}``, each as its own problem has it.',
    _Declared,
    _built,
    lambda instance, plan: _Declared(
        partition.plan_to_json(instance.operators, plan.partition), mapping.plan_to_json(None, plan.mapping)
    ),
)
