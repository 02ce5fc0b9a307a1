"""What an instance of pipeline placement is read from, and what a caller may change of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from formulations.contract.family import OwnJson
from formulations.device_mapping.definition import settings as mapping
from formulations.operator_partitioning.definition.settings import WEIGHT_COPIES, apply
from instances.parameters import Setting, choice, parse_count
from instances.problems.device_mapping import RINGS
from instances.problems.operator_partitioning import expect_held
from instances.problems.pipeline_placement import OBJECTIVES, PlacementInstance, check
from instances.units import parse_bytes

_JSON = OwnJson(PlacementInstance, check)

#: What is minimised, by the objective of an instance: that of the mapping, or a step.
MINIMISES = {**mapping.MINIMISES, "step": "time of a training step"}

OVERRIDES = (
    choice(
        "objective",
        OBJECTIVES,
        "what counts of a stage's time: tensors between stages, the all-reduce, both; or a whole step, with its flush",
    ),
    choice("ring", RINGS, "all-reduce rings in the order of the replicas, or in any order"),
    Setting(
        "microbatches",
        parse_count,
        "micro-batches of a replica in a training step, for step and the simulation",
        metavar="N",
    ),
    Setting("memory", parse_bytes, "memory per device: 16GiB or 16GB", metavar="SIZE"),
    WEIGHT_COPIES,
)
_OF_OPERATORS = ("memory", "weight-copies")


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> PlacementInstance:
    """The instance that ``content`` and the overrides declare; `InstanceError` if it is bad."""
    instance = _JSON.read(content, where)
    given = {name: value for name, value in overrides.items() if value is not None}
    operators = apply(instance.operators, {name: given[name] for name in _OF_OPERATORS if name in given}, where)
    operators = replace(operators, options=instance.operators.options)  # they are the placement's
    if isinstance(content, dict):
        expect_held(operators, content["operators"], f"{where}: operators")
    fields = {name: value for name, value in given.items() if name not in _OF_OPERATORS}
    return replace(instance, **fields, operators=operators, options={**instance.options, **given})


def describe(instance: PlacementInstance) -> dict[str, Any]:
    """The key figures of an instance."""
    return {
        "operators": len(instance.operators.operators),
        "stages": instance.num_stages,
        "replicas": instance.operators.replicas,
        "devices": instance.num_devices,
        "weight_copies": instance.weight_copies,
        "objective": instance.objective,
        "ring": instance.ring,
    }
