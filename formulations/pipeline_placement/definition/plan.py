"""What a plan decides."""

from __future__ import annotations

from dataclasses import dataclass

from formulations.device_mapping.definition.plan import Mapping
from formulations.operator_partitioning.definition.plan import OperatorPlan


@dataclass(frozen=True)
class PlacementPlan:
    """Both phases: which operators make a stage, and which devices run its replicas."""

    partition: OperatorPlan
    mapping: Mapping
