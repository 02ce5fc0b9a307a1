"""What an instance of layer assignment is read from, and what a caller may change of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from instances.errors import InstanceError
from instances.parameters import Setting, flag, parse_count
from instances.problems.layer_assignment import LayerAssignmentInstance

Instance = LayerAssignmentInstance

#: What is minimised.
MINIMISES = {"": "time of a training step"}
OVERRIDES = (
    Setting("stages", parse_count, "number of pipeline stages (no costs may depend on the stage)", metavar="S"),
    Setting("microbatches", parse_count, "micro-batches of a training step", metavar="N"),
    flag("ignore-all-reduce", "ignore the data-parallel all-reduce, as AMP does"),
)


def apply(instance: Instance, overrides: Mapping[str, Any], where: str) -> Instance:
    """The instance as the caller declares it; `InstanceError` for other stages than costs are declared for."""
    stages = overrides.get("stages") or instance.num_stages
    if stages != instance.num_stages and is_per_stage(instance):
        rule = f"{instance.num_stages}, as costs are declared stage by stage"
        raise InstanceError.at(where, "--stages", stages, rule)
    return replace(
        instance,
        num_stages=stages,
        num_microbatches=overrides.get("microbatches") or instance.num_microbatches,
        ring_s_per_parameter=() if overrides.get("ignore-all-reduce") else instance.ring_s_per_parameter,
        options={**instance.options, **overrides},
    )


def describe(instance: Instance) -> dict[str, Any]:
    """The key figures of an instance."""
    return {
        "layers": instance.num_layers,
        "stages": instance.num_stages,
        "microbatches": instance.num_microbatches,
        "all_reduce": bool(instance.ring_s_per_parameter),
    }


def is_per_stage(instance: Instance) -> bool:
    """Whether costs are declared stage by stage."""
    by_stage = bool(instance.stage_time_s) or len(instance.ring_s_per_parameter) > 1
    return by_stage or any(len(row) > 1 for row in instance.cut_cost_s)
