"""What an instance of device mapping is read from, and what a caller may change of it."""

from collections.abc import Mapping as Dictionary
from dataclasses import replace
from typing import Any

from instances.parameters import Setting, choice, one_of, parse_count
from instances.problems.device_mapping import AUTO, OBJECTIVES, RINGS, DeviceMapping, allreduce_ratio, with_objective

Instance = DeviceMapping

#: What is minimised, by the objective of an instance.
MINIMISES = {
    "p2p": "time in which the slowest stage replica computes and sends",
    "allreduce": "time in which the slowest stage replica computes and reduces",
    "full": "time in which the slowest stage replica computes, sends and reduces",
}
OVERRIDES = (
    Setting(
        "objective",
        one_of(*OBJECTIVES, AUTO),
        "what counts of a stage's time: tensors between stages, the all-reduce, both, or Parmesan's ratio rule",
        metavar="p2p|allreduce|full|auto",
        default="the file's, or auto",
    ),
    choice("ring", RINGS, "all-reduce rings in the order of the replicas, or in any order", default="index"),
    Setting("microbatches", parse_count, "micro-batches of a training step, for the ratio rule", metavar="N"),
)


def apply(instance: Instance, overrides: Dictionary[str, Any], _: str) -> Instance:
    """The instance as the caller declares it, with the objective that the ratio rule chooses where it is asked to."""
    changed = replace(
        instance,
        ring=overrides.get("ring", instance.ring),
        microbatches=overrides.get("microbatches", instance.microbatches),
        options={**instance.options, **overrides},
    )
    by_rule = "chosen" in instance.options
    return with_objective(changed, overrides.get("objective", AUTO if by_rule else instance.objective))


def describe(instance: Instance) -> dict[str, Any]:
    """The key figures of an instance."""
    return {
        "stages": instance.num_stages,
        "edges": len(instance.edges),
        "replicas": instance.replicas,
        "devices": instance.num_devices,
        "objective": instance.objective,
        "ring": instance.ring,
        "allreduce_ratio": round(allreduce_ratio(instance), 4),
    }
