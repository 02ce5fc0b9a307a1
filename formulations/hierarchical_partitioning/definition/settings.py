"""What a caller may change of a hierarchical instance: the cluster, and the flat family's settings for the rest."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from formulations.contract.family import lazy, parse_overrides
from formulations.stage_partitioning.definition import settings as flat_overrides
from formulations.stage_partitioning.definition.settings import read as read_flat
from formulations.stage_partitioning.definition.settings import recognise as recognise_flat
from instances.errors import InstanceError
from instances.memory_schemes import SCHEME
from instances.parameters import Setting, choice, parse_count
from instances.problems.hierarchical_partitioning import (
    HierarchicalInstance,
    Level,
    MemoryModel,
    Objective,
    on_machines,
)
from instances.problems.stage_partitioning import StageInstance
from instances.units import parse_bandwidth

#: The number of micro-batches is Piper's N, and the objective is time per sample.
SWEEPABLE = "sample"
#: A flat network, too, with the overrides that put it on machines.
also_reads = recognise_flat

#: The cluster has its own devices and bandwidths; the others are not defined on machines.
_NOT_SHARED = frozenset({"devices", "bandwidth", "cost-model", "exactly", "max-dp", "realizable"})
_WITH_DEFAULT = frozenset({"memory-model", "upper-levels", "objective"})
_SHARED = tuple(setting for setting in flat_overrides.OVERRIDES if setting.name not in _NOT_SHARED)


def parse_levels(value: Any) -> tuple[Level, ...]:
    """Levels from text such as ``4@12.5GB/s,2@3GB/s``, level 3 first, or from levels or pairs; empty text: none.

    >>> parse_levels("4@12.5GB/s")
    (Level(count=4, bandwidth=12500000000.0),)
    """
    rule = "levels such as 4@12.5GB/s,2@3GB/s: devices of level 3 and the bandwidth of each, then of level 4"
    try:
        parts = [part.split("@") for part in filter(None, value.split(","))] if isinstance(value, str) else value
        pairs = [(each.count, each.bandwidth) if isinstance(each, Level) else each for each in parts]
        return tuple(Level(parse_count(count), parse_bandwidth(bandwidth)) for count, bandwidth in pairs)
    except (ValueError, TypeError):
        raise ValueError(rule) from None


_OWN: tuple[Setting, ...] = (
    Setting("devices-per-machine", parse_count, "number of devices of a machine", metavar="K1"),
    Setting(
        "num-machines", parse_count, "number of machines, of one device of level 3 if there are such", metavar="K2"
    ),
    Setting(
        "inner-bandwidth",
        parse_bandwidth,
        "network bandwidth inside a machine, per time unit of the instance unless --fix-units",
        metavar="SIZE/S",
    ),
    Setting(
        "outer-bandwidth",
        parse_bandwidth,
        "network bandwidth of each machine to the others, per time unit of the instance unless --fix-units",
        metavar="SIZE/S",
    ),
    Setting(
        "upper-levels",
        parse_levels,
        "levels above machines: how many are in one device of the next level, and the network bandwidth of each",
        metavar="K3@SIZE/S,...",
        default="none",
    ),
    choice(
        "memory-model",
        MemoryModel,
        "how micro-batches in flight are counted: not at all, by an upper bound, or exactly",
    ),
    choice(
        "objective",
        Objective,
        "minimise a sample's time in a pipeline that is never flushed, or in a batch that is simulated under 1F1B",
    ),
)

#: What is minimised.
MINIMISES = {"steady": "time per sample of the slowest superstage", "iteration": "time per sample of a simulated batch"}
OVERRIDES: tuple[Setting, ...] = (*_SHARED, *_OWN)


def flat_share(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides that are the flat instance's."""
    shared = {setting.name for setting in _SHARED}
    return {name: value for name, value in overrides.items() if name.replace("_", "-") in shared}


def apply(instance: HierarchicalInstance, overrides: Mapping[str, Any], where: str) -> HierarchicalInstance:
    """The instance as the caller declares it.

    `InstanceError`: unknown setting, a value that its setting refuses, or an edit that this instance does not allow.
    """
    flat = flat_overrides.apply(instance.flat, flat_share(overrides), where)
    # The flat bandwidth is that of a machine's link: what --fix-units did to it is done to the network inside, too.
    per_unit = flat_overrides.PER_SECOND[flat.time_unit] if flat.bandwidth != instance.flat.bandwidth else 1
    inner, outer = instance.inner_bandwidth / per_unit, flat.bandwidth
    upper = tuple(Level(level.count, level.bandwidth / per_unit) for level in instance.upper_levels)
    given = {
        "inner_bandwidth": inner, "outer_bandwidth": outer, "upper_levels": upper, **_cluster(flat, overrides, where)
    }  # fmt: skip
    made = replace(instance, **given)
    found = on_machines(
        flat,
        made.devices_per_machine,
        made.num_machines,
        made.inner_bandwidth,
        made.outer_bandwidth,
        made.memory_model,
        where,
        made.upper_levels,
        made.objective,
    )
    return replace(found, requirements=instance.requirements)


def on_cluster(flat: StageInstance, overrides: Mapping[str, Any], where: str) -> HierarchicalInstance:
    """The flat instance on the cluster that the overrides describe; of the flat ones they record what was done to it.

    `InstanceError`: as `apply`, or if the cluster's size or bandwidths are not given.
    """
    given = _cluster(flat, overrides, where)
    for setting in _OWN:
        if setting.name not in _WITH_DEFAULT and setting.name.replace("-", "_") not in given:
            raise InstanceError.missing(where, f"--{setting.name}", f"the {setting.help.partition(',')[0]}")
    return on_machines(flat, **given, where=where)


def _cluster(flat: StageInstance, overrides: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of the cluster that are given, bandwidths per time unit of ``flat``."""
    shared = flat_share(overrides)
    given = parse_overrides({name: value for name, value in overrides.items() if name not in shared}, _OWN, where)
    if "fix-units" in flat.options:
        per_unit = flat_overrides.PER_SECOND[flat.time_unit]
        for name in given.keys() & {"inner-bandwidth", "outer-bandwidth"}:
            given[name] /= per_unit
        if "upper-levels" in given:
            given["upper-levels"] = tuple(
                Level(level.count, level.bandwidth / per_unit) for level in given["upper-levels"]
            )
    for name, kind in (("memory-model", MemoryModel), ("objective", Objective)):
        if name in given:
            given[name] = kind(given[name])
    return {name.replace("-", "_"): value for name, value in given.items()}


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> HierarchicalInstance:
    """The instance that ``content`` and the overrides declare; `InstanceError` if it is bad.

    The ``flat`` part of the JSON is any content that stage partitioning reads, also a file of Piper's release; such
    content alone is put on the cluster that the overrides describe.
    """
    if isinstance(content, HierarchicalInstance):
        return apply(content, overrides, where)
    if recognise_flat(content):
        return on_cluster(read_flat(content, where, flat_share(overrides)), overrides, where)
    given = lazy("instances.validation:read_keys")(HierarchicalInstance, content, where)
    flat = read_flat(given.pop("flat"), f"{where}: flat", flat_overrides.reading(overrides))
    requirements = given.pop("requirements")
    made = on_machines(flat, **given, where=where)
    return apply(replace(made, requirements=requirements), overrides, where)


def describe(instance: HierarchicalInstance) -> dict[str, Any]:
    """The key figures of an instance."""
    flat = instance.flat
    return {
        "nodes": len(flat.layers),
        "edges": len(flat.edges),
        "machines": instance.all_machines,
        "devices_per_machine": instance.devices_per_machine,
        "inner_bandwidth": instance.inner_bandwidth,
        "outer_bandwidth": instance.outer_bandwidth,
        **({"upper_levels": ",".join(map(str, instance.upper_levels))} if instance.upper_levels else {}),
        "memory_bytes": flat.memory_bytes,
        "memory_model": str(instance.memory_model),
        "microbatches": flat.num_microbatches,
        "time_unit": flat.time_unit,
        "tp_degrees": list(flat.tp_degrees),
        "memory_scheme": flat.options.get(SCHEME),
        **({"objective": str(instance.objective)} if instance.objective is not Objective.STEADY else {}),
    }
