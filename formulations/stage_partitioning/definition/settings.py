"""What a caller may change of a stage-partitioning instance: the family's settings, and their order of application.

Order: ``layers``, ``first``, ``tp``, ``forbid-tmpc``, ``linearize``, the cost model, then the numbers, then
``time-unit`` and last ``fix-units``. Everything given is recorded in the instance's ``options``.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from formulations.contract.family import lazy, parse_overrides
from formulations.stage_partitioning.definition.trainers import TRAINERS
from instances.errors import InstanceError
from instances.memory_schemes import SCHEME, SCHEMES
from instances.parameters import Setting, choice, flag, one_of, parse_count, parse_degrees, parse_names
from instances.problems import stage_edits
from instances.problems.published import UNIT_WARNING
from instances.problems.stage_partitioning import CostModel, StageInstance
from instances.requirements import Requirement, with_requirements
from instances.units import parse_bandwidth, parse_bytes

_readers = lazy("instances.readers")

#: The number of micro-batches is Piper's N, and the objective is time per sample.
SWEEPABLE = "sample"

#: How many of each time unit make a second.
PER_SECOND = {"s": 1, "ms": 1000}


def _order(value: Any) -> str:
    """One topological order by name; several of them are handled by `planner.analysis.sweep`."""
    known = " or ".join(stage_edits.ORDERS)
    if isinstance(value, str) and "," in value:
        raise ValueError(f"one order here, {known}: planner sweep --orders takes several")
    return one_of(*stage_edits.ORDERS)(value)


#: What is minimised.
MINIMISES = {"": "time per sample of the slowest stage"}
OVERRIDES: tuple[Setting, ...] = (
    Setting("devices", parse_count, "number of devices", metavar="K"),
    Setting("memory", parse_bytes, "memory per device: 8GiB (2^30 bytes) or 8GB (10^9)", metavar="SIZE"),
    Setting(
        "bandwidth",
        parse_bandwidth,
        "network bandwidth, such as 25GiB/s, per time unit of the instance unless --fix-units",
        metavar="SIZE/S",
    ),
    Setting(
        "microbatches",
        parse_count,
        "micro-batches of a batch: at most so many replicas of all stages together",
        metavar="N",
    ),
    choice(
        "cost-model",
        CostModel,
        "paper: any data-parallel degree; released: divisors of --microbatches; runtime: the same, and tensors go on "
        "from stage to stage, as planner run sends them",
    ),
    flag("exactly", "replicas of all stages together are exactly --microbatches"),
    Setting("max-dp", parse_count, "largest data-parallel degree of a stage", metavar="D"),
    Setting("tp", parse_degrees, "tensor-parallel degrees to keep, such as 1 or 1,2", metavar="T,..."),
    Setting(
        "forbid-tmpc",
        parse_names,
        "layer configurations (TMPCs) to leave out, such as 'activation recomp'",
        metavar="ID,...",
    ),
    choice(
        SCHEME,
        SCHEMES,
        "what is stored of weights where static_bytes are left out: the weights; Adam in their precision (4 times); "
        "mixed precision (8), with two versions (9), or one for each micro-batch in flight (7, and 1 for each)",
    ),
    Setting("layers", parse_count, "transformer layers of a published BERT, which is lengthened", metavar="L"),
    Setting("first", parse_count, "keep only the first nodes in topological order (ties by id)", metavar="COUNT"),
    Setting(
        "linearize",
        _order,
        "make the stages intervals of a topological order; several with commas: the best is kept (solve)",
        metavar="|".join(stage_edits.ORDERS),
    ),
    Setting(
        "realizable",
        one_of(*TRAINERS),
        f"only plans that this trainer can run, on all devices: {', '.join(TRAINERS)}",
        metavar="TRAINER",
    ),
    choice("time-unit", PER_SECOND, "unit of the times in the file", default="s"),
    flag("fix-units", "the bandwidth is per second; convert it to the time unit of the instance"),
)


def _with_cost_model(instance: StageInstance, name: str) -> StageInstance:
    """The instance with another cost model; ``ValueError`` if it has forgotten what that one counts."""
    wanted = CostModel(name)
    if wanted is CostModel.RUNTIME:
        return stage_edits.as_run(instance)
    if instance.cost_model is CostModel.RUNTIME:
        raise ValueError("runtime: the edges of this instance have what passes between layers")
    return replace(instance, cost_model=wanted)


_EDITS: dict[str, Callable[[StageInstance, Any], StageInstance]] = {
    "layers": stage_edits.lengthen,
    "first": stage_edits.first_nodes,
    "tp": stage_edits.with_degrees,
    "forbid-tmpc": stage_edits.without_tmpcs,
    "linearize": stage_edits.linearise,
    "cost-model": _with_cost_model,
}
_FIELDS = {
    "devices": "num_devices",
    "memory": "memory_bytes",
    "bandwidth": "bandwidth",
    "microbatches": "num_microbatches",
    "exactly": "exactly",
    "max-dp": "max_dp_degree",
}


def apply(instance: StageInstance, overrides: Mapping[str, Any], where: str) -> StageInstance:
    """The instance as the caller declares it.

    ``overrides``: values by setting name (dashes or underscores), as text or parsed; ``None`` and ``False`` mean not
    given.
    ``where``: names the instance in errors.
    `InstanceError`: unknown setting, a value that its setting refuses, or an edit that this instance does not allow.
    """
    given = parse_overrides(overrides, OVERRIDES, where)
    made = instance.options.get(SCHEME)
    if given.get(SCHEME, made) != made:
        rule = f"{'none' if made is None else made}: no layer leaves out its static_bytes"
        raise InstanceError.at(where, f"--{SCHEME}", given[SCHEME], rule)
    for name, edit in _EDITS.items():
        if name in given:
            try:
                instance = edit(instance, given[name])
            except ValueError as error:
                raise InstanceError.at(where, f"--{name}", _plain(given[name]), str(error)) from None
    fields = {field: given[name] for name, field in _FIELDS.items() if name in given}
    instance = _with_units(replace(instance, **fields), given)
    if "realizable" in given:
        instance = with_requirements(instance, [Requirement("realizable", (given["realizable"],), "==", 1)])
    recorded = {name: _plain(value) for name, value in given.items()}
    return replace(instance, options={**instance.options, **recorded})


def _with_units(instance: StageInstance, given: Mapping[str, Any]) -> StageInstance:
    """The time unit given, and a bandwidth per that unit, or the warning that it may be per second."""
    unit = given.get("time-unit", instance.time_unit)
    doubtful = UNIT_WARNING in instance.warnings or "bandwidth" in given or "time-unit" in given
    warnings = [warning for warning in instance.warnings if warning != UNIT_WARNING]
    bandwidth = instance.bandwidth
    if doubtful and PER_SECOND[unit] != 1:
        if "fix-units" in given:
            bandwidth /= PER_SECOND[unit]
        else:
            warnings.append(UNIT_WARNING)
    return replace(instance, time_unit=unit, bandwidth=bandwidth, warnings=tuple(warnings))


def _plain(value: Any) -> str | int | float | bool:
    """A value as results and JSON show it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return value if isinstance(value, bool | int | float) else str(value)


#: Top-level keys that mark a file of Piper's release (kept here too, so that recognising one imports no reader).
_PIPER_MARKS = frozenset({"maxDevices", "maxMemoryPerDevice", "mbsInBatch", "maxBatchSize"})


def recognise(content: Any) -> bool:
    """Whether this is an instance of the family: built already, own JSON, or JSON of Piper's release."""
    if isinstance(content, StageInstance):
        return True
    if not isinstance(content, dict):
        return False
    return content.get("problem") == "stage_partitioning" or (
        "problem" not in content and "nodes" in content and not _PIPER_MARKS.isdisjoint(content)
    )


def reading(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides that say how a file is read, before any of the others changes what it declares."""
    return {name: value for name, value in overrides.items() if name.replace("_", "-") == SCHEME}


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> StageInstance:
    """The instance that ``content`` (see ``recognise``) and the overrides declare; `InstanceError` if it is bad."""
    if isinstance(content, StageInstance):
        instance = content
    elif isinstance(content, dict) and "problem" in content:
        scheme = parse_overrides(overrides, OVERRIDES, where).get(SCHEME)
        instance = _readers.stage_json.read(content, where, scheme)
    else:
        instance = _readers.piper_json.read(content, where)
    return apply(instance, overrides, where)


def warnings(instance: StageInstance) -> tuple[str, ...]:
    """What its file gives reason to say."""
    return instance.warnings


def unit(instance: StageInstance) -> str:
    """The objective's unit."""
    return instance.time_unit


def describe(instance: StageInstance) -> dict[str, Any]:
    """The key figures of an instance."""
    return {
        "nodes": len(instance.layers),
        "edges": len(instance.edges),
        "devices": instance.num_devices,
        "memory_bytes": instance.memory_bytes,
        "bandwidth": instance.bandwidth,
        "microbatches": instance.num_microbatches,
        "cost_model": str(instance.cost_model),
        "time_unit": instance.time_unit,
        "tp_degrees": list(instance.tp_degrees),
        "exactly": instance.exactly,
        "max_dp_degree": instance.max_dp_degree,
        "memory_scheme": instance.options.get(SCHEME),
    }


def memory_pressure(instance: StageInstance) -> float | None:
    """What the least hungry TMPCs hold on all their devices, one micro-batch in flight, over the memory of the cluster.

    A lower bound on the share of the cluster's memory that any plan fills.
    """
    needed = math.fsum(
        min(t * (tmpc.static_bytes + tmpc.activation_bytes) for t, tmpcs in layer.tmpcs.items() for tmpc in tmpcs)
        for layer in instance.layers
    )
    room = instance.num_devices * instance.memory_bytes
    return needed / room if room else None
