"""What a caller may change of an operator-partitioning instance.

Stages and devices together: S stages with R = devices / S replicas; with ``--variable-replicas`` any replicas that use
no more devices. Devices alone: the number of stages is free, and a training step is what is minimised, as it is with
``--objective step``.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from formulations.contract.family import lazy
from instances.errors import InstanceError
from instances.parameters import Setting, choice, flag, parse_amount, parse_count
from instances.problems.operator_partitioning import SCHEDULES, OperatorInstance, TrainingMemory, expect_held, per_pair
from instances.units import parse_bandwidth, parse_bytes

_readers = lazy("instances.readers")

WEIGHT_COPIES = Setting(
    "weight-copies",
    parse_amount,
    "memory of weights, gradients and optimiser state, in copies of the weights",
    metavar="N",
)
#: What is minimised, by the objective of an instance.
MINIMISES = {"stage": "time of a micro-batch in the slowest stage", "step": "time of a training step"}
OVERRIDES: tuple[Setting, ...] = (
    Setting("stages", parse_count, "number of pipeline stages", metavar="S"),
    Setting("replicas", parse_count, "number of replicas of every stage", metavar="R"),
    Setting(
        "devices",
        parse_count,
        "number of devices (stages x replicas); without --stages the stage count is optimised",
        metavar="D",
    ),
    flag("variable-replicas", "replicas may differ by stage, --devices at most in all"),
    flag("at-most", "allow fewer stages"),
    Setting("bandwidth", parse_bandwidth, "bandwidth of every link, such as 12GB/s", metavar="SIZE/S"),
    Setting("memory", parse_bytes, "memory per device: 16GiB or 16GB", metavar="SIZE"),
    flag("pooled-memory", "replicas of a stage share their memory, as in Equation 2"),
    choice(
        "count",
        ("stage", "pair"),
        "a tensor is sent once to each stage with consumers, or once to each consumer (pair)",
    ),
    choice("part", ("forward", "whole"), "forward nodes only, or the whole of a training graph"),
    choice("schedule", SCHEDULES, "pipeline schedule, which decides how many inputs a stage keeps"),
    Setting(
        "microbatches", parse_count, "micro-batches of a training step, for the memory of the schedule", metavar="MB"
    ),
    flag("stash", "keep activations instead of recomputing them"),
    WEIGHT_COPIES,
    choice("objective", MINIMISES, "the slowest stage of a pipeline that is never flushed, or a step of one that is"),
    Setting(
        "step-microbatches",
        parse_count,
        "micro-batches of a training step for all replicas together, where a step is minimised",
        metavar="G",
    ),
)


def apply(instance: OperatorInstance, overrides: Mapping[str, Any], where: str) -> OperatorInstance:
    """The instance as the caller declares it; `InstanceError` if the settings contradict each other."""
    given = {key: value for key, value in overrides.items() if value is not None and value is not False}
    if given.get("count") == "pair":
        instance = per_pair(instance)
    fields: dict[str, Any] = {}
    for setting, name in (("bandwidth", "bandwidth_bytes_per_s"), ("memory", "memory_bytes")):
        if setting in given:
            fields[name] = given[setting]
    for setting in ("pooled-memory", "at-most"):
        if setting in given:
            fields[setting.replace("-", "_")] = True
    instance = replace(instance, **fields, training=_training(instance.training, given))
    instance = _set_objective(_set_shape(instance, given, where), given, where)
    return replace(instance, options={**instance.options, **given})


def _set_objective(instance: OperatorInstance, given: Mapping[str, Any], where: str) -> OperatorInstance:
    """A flush, where the number of stages is given; by default each replica has the schedule's micro-batches."""
    wanted = given.get("objective", instance.objective)
    if instance.num_stages is None:
        if wanted == "stage":
            raise InstanceError.at(where, "--objective", wanted, "step, or --stages: the number of stages is free")
        return instance
    if wanted == "stage" or not (instance.flushed or "objective" in given):
        return replace(instance, flushed=False)
    replicas = instance.replicas if instance.num_devices is None else instance.num_devices // instance.num_stages
    return replace(instance, flushed=True, step_microbatches=_step(instance, given, max(1, replicas)))


def _training(training: TrainingMemory | None, given: Mapping[str, Any]) -> TrainingMemory | None:
    fields: dict[str, Any] = {
        name.replace("-", "_"): given[name] for name in ("schedule", "microbatches", "weight-copies") if name in given
    }
    if "stash" in given:
        fields["recompute"] = False
    return replace(training or TrainingMemory(), **fields) if fields else training


def _set_shape(instance: OperatorInstance, given: Mapping[str, Any], where: str) -> OperatorInstance:
    stages, devices, replicas = (given.get(name) for name in ("stages", "devices", "replicas"))
    if devices is None:
        if "variable-replicas" in given:
            devices = (stages or instance.num_stages or 1) * (replicas or instance.replicas)
        else:
            free = instance.num_stages is None and stages is None
            return replace(
                instance,
                num_stages=stages or instance.num_stages,
                replicas=replicas or instance.replicas,
                num_devices=instance.num_devices if free or not (stages or replicas) else None,
                step_microbatches=_step(instance, given, instance.num_devices) if free else instance.step_microbatches,
            )
    if stages is None and replicas is None and "variable-replicas" not in given:
        return replace(
            instance, num_stages=None, num_devices=devices, step_microbatches=_step(instance, given, devices)
        )
    stages = stages or (devices // replicas if replicas else instance.num_stages) or 1
    if "variable-replicas" in given:
        return replace(instance, num_stages=stages, num_devices=devices)
    if devices % stages or (replicas and replicas * stages != devices):
        rule = f"a multiple of {stages} stages" if not replicas else f"{stages} stages times {replicas} replicas"
        raise InstanceError.at(where, "--devices", devices, f"{rule}, or --variable-replicas")
    return replace(instance, num_stages=stages, replicas=devices // stages, num_devices=None)


def _step(instance: OperatorInstance, given: Mapping[str, Any], devices: int | None) -> int:
    """Micro-batches of a step: given, declared, or the schedule's for every device (given S: replica)."""
    each = given.get("microbatches") or (instance.training or TrainingMemory()).microbatches
    return int(given.get("step-microbatches") or instance.step_microbatches or each * (devices or 1))


def recognise(content: Any) -> bool:
    """Whether this is an instance of the family: built already, own JSON, PipeDream's profile, a placement graph."""
    if isinstance(content, OperatorInstance):
        return True
    if isinstance(content, str):  # kept here too, so that recognising a file imports no reader
        return "forward_compute_time=" in content.lstrip().split("\n", 1)[0]
    if not isinstance(content, dict):
        return False
    if "problem" in content:
        return bool(content["problem"] == "operator_partitioning")
    return "nodes" in content and ("maxFPGAs" in content or "maxSizePerFPGA" in content)


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> OperatorInstance:
    """The instance that ``content`` (see ``recognise``) and the overrides declare; `InstanceError` if it is bad."""
    if isinstance(content, OperatorInstance):
        instance = content
    elif isinstance(content, str):
        instance = _readers.pipedream_profile.read(content, where)
    elif "problem" in content:
        instance = _readers.operator_json.read(content, where)
    else:
        part = overrides.get("part") or "forward"
        instance = _readers.placement_json.read(content, where, part)
    found = apply(instance, overrides, where)
    if isinstance(content, dict) and "problem" in content:
        expect_held(found, content, where)
    return found


def describe(instance: OperatorInstance) -> dict[str, Any]:
    """The key figures of an instance."""
    return {
        "operators": len(instance.operators),
        "tensors": len(instance.tensors),
        "stages": instance.num_stages,
        "replicas": instance.replicas,
        "devices": instance.num_devices,
        "bandwidth_bytes_per_s": instance.bandwidth_bytes_per_s,
        "memory_bytes": instance.memory_bytes,
        "weight_copies": instance.weight_copies,
        "compute_s": instance.total_compute_s,
    }


def memory_pressure(instance: OperatorInstance) -> float | None:
    """Copies of all weights and what operators hold beside, over the memory of all stages; ``None``: stages are free.

    A lower bound on the share of the memory that any plan fills.
    """
    if not instance.memory_bytes or instance.num_stages is None:
        return None
    copies = instance.weight_copies or 0.0
    needed = math.fsum(each.memory_bytes + copies * each.parameter_bytes for each in instance.operators)
    shares = instance.replicas if instance.pooled_memory else 1
    return needed / (instance.num_stages * shares * instance.memory_bytes)
