"""What an instance of stage graph is read from, and what a caller may change of it."""

import math
from collections.abc import Mapping
from typing import Any

from formulations.contract.family import OwnJson, with_overrides
from instances.parameters import Setting, one_of, parse_count, parse_degrees
from instances.problems.stage_graph import OBJECTIVES, SCHEDULES, StageGraph, check, parse_ratio
from instances.units import parse_bandwidth, parse_bytes, parse_time

#: What is minimised, by the objective of an instance.
MINIMISES = {"tps": "time per sample of the slowest stage", "iteration": "time of a simulated iteration"}
OVERRIDES = (
    Setting("devices", parse_count, "number of identical devices", metavar="D", field="num_devices"),
    Setting("memory", parse_bytes, "memory per device", metavar="BYTES", field="memory_bytes"),
    Setting(
        "bandwidth",
        parse_bandwidth,
        "network bandwidth between devices, such as 10GB/s",
        metavar="BYTES/S",
        field="bandwidth_bytes_per_s",
    ),
    Setting("latency", parse_time, "latency of a message", metavar="S", field="latency_s"),
    Setting("minibatch", parse_count, "samples of an iteration (mini-batch)", metavar="B"),
    Setting("microbatches", parse_degrees, "micro-batch sizes that are allowed", metavar="1,2,4"),
    Setting(
        "schedule",
        one_of(*SCHEDULES),
        "one micro-batch size for all stages (1F1B), one for each stage, or kFkB as well",
        metavar="uniform|per-stage|kfkb",
    ),
    Setting(
        "objective",
        one_of(*OBJECTIVES),
        "minimise the time per sample of the slowest stage, or that of a simulated iteration",
        metavar="tps|iteration",
    ),
    Setting(
        "ratio",
        parse_ratio,
        "ratio of forward to backward time, for the samples in flight",
        metavar="F:G",
        field="pass_ratio",
    ),
)


_JSON = OwnJson(StageGraph, check)


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> StageGraph:
    """The instance that ``content`` and the overrides declare.

    A caller who gives a batch (``minibatch``, also of an entry of the catalog) and no objective asks for its iteration,
    but with a size or a k for each stage, whose iterations are planned and seldom proved.
    """
    made: StageGraph = with_overrides(_JSON.read(content, where), overrides, OVERRIDES)
    has_batch = "minibatch" in overrides or (isinstance(content, StageGraph) and "minibatch" in content.options)
    if has_batch and "objective" not in overrides and made.schedule == "uniform":
        made = with_overrides(made, {"objective": "iteration"}, OVERRIDES)
    return made


def unit(instance: StageGraph) -> str:
    """The objective's unit."""
    return "s" if instance.objective == "iteration" else "s/sample"


def describe(instance: StageGraph) -> dict[str, Any]:
    """The key figures of an instance."""
    return {
        "operators": instance.num_operators,
        "edges": len(instance.edges),
        "devices": instance.num_devices,
        "minibatch": instance.minibatch,
        "weight_copies": instance.weight_copies,
        "schedule": instance.schedule,
        **({"tp_degrees": list(instance.tp_degrees)} if len(instance.tp_degrees) > 1 else {}),
    }


def memory_pressure(instance: StageGraph) -> float | None:
    """Copies of all weights over the memory of all devices: a lower bound on the share of it that any plan fills."""
    shards = [each.shards.values() for each in instance.operators]
    needed = instance.weight_copies * math.fsum(min(each.degree * each.weight_bytes for each in own) for own in shards)
    room = math.fsum(instance.memory_of(device) for device in range(instance.num_devices))
    return needed / room if room else None
