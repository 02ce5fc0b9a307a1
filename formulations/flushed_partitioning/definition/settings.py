"""What an instance of flushed partitioning is read from, and what a caller may change of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from formulations.contract.family import lazy, parse_overrides
from formulations.stage_partitioning.definition import settings as flat_overrides
from formulations.stage_partitioning.definition.settings import describe as describe_flat
from formulations.stage_partitioning.definition.settings import read as read_flat
from formulations.stage_partitioning.definition.settings import recognise as recognise_flat
from instances.parameters import Setting, choice, parse_count
from instances.problems.flushed_partitioning import Fill, FlushedInstance, Objective, Schedule, flush_pipeline
from instances.problems.published import UNIT_WARNING
from instances.problems.stage_partitioning import StageInstance
from instances.units import parse_bandwidth

#: The number of micro-batches is Piper's N, and the objective is time per sample.
SWEEPABLE = "sample"
#: A flat network, too, with the overrides that put it under a flush.
also_reads = recognise_flat

SCHEDULE = choice("schedule", Schedule, "1f1b: ceil(s/d) micro-batches in flight; gpipe: the whole batch")

FILL = choice(
    "fill", Fill, "stages: (L-1)/m more rounds of the slowest stage; replicas: each replica runs its own micro-batches"
)

OBJECTIVE = choice(
    "objective",
    Objective,
    "minimise a formula of a batch (--fill), or a batch that is simulated in the fixed orders of the schedule; of a "
    "network read as one of this problem iteration, with --fill formula",
)

_MACHINES = (
    Setting("devices-per-machine", parse_count, "number of devices of a machine", metavar="K1"),
    Setting(
        "inner-bandwidth",
        parse_bandwidth,
        "network bandwidth inside a machine, per time unit of the instance unless --fix-units",
        metavar="SIZE/S",
    ),
)
_NOT_SHARED = {"exactly", "realizable"}
#: What is minimised, by the objective of an instance.
MINIMISES = {"formula": "time per sample of a batch", "iteration": "time per sample of a simulated batch"}
#: The flat family's settings, but a batch has N micro-batches whatever the degrees.
OVERRIDES = (
    *(setting for setting in flat_overrides.OVERRIDES if setting.name not in _NOT_SHARED),
    SCHEDULE,
    FILL,
    OBJECTIVE,
    *_MACHINES,
)


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> FlushedInstance:
    """The instance that ``content`` and the overrides declare; `InstanceError` if it is bad.

    The ``flat`` part of the JSON is any content that stage partitioning reads, also a file of Piper's release; such
    content alone is an instance with the default schedule, whose objective is the iteration: trainers flush. A fill
    that is given is one of the formula, and so states that.
    """
    names = {setting.name for setting in (SCHEDULE, FILL, OBJECTIVE, *_MACHINES)}
    given = parse_overrides(overrides, OVERRIDES, where)
    own = {name: value for name, value in given.items() if name in names}
    shared = {name: value for name, value in given.items() if name not in names}
    if recognise_flat(content):
        objective = Objective.FORMULA if "fill" in own else Objective.ITERATION
        made = FlushedInstance(read_flat(content, where, shared), objective=objective)
    else:
        if not isinstance(content, FlushedInstance):
            given = lazy("instances.validation:read_keys")(FlushedInstance, content, where)
            flat = read_flat(given.pop("flat"), f"{where}: flat", flat_overrides.reading(shared))
            content = replace(flush_pipeline(flat, where=where), **given)
        made = replace(content, flat=flat_overrides.apply(content.flat, shared, where))
        doubtful = UNIT_WARNING in content.flat.warnings or "time-unit" in shared
        if doubtful and "fix-units" in shared and made.inner_bandwidth is not None:
            made = replace(made, inner_bandwidth=_per_unit(made.inner_bandwidth, made.flat))
    found = _with_own(made, own, per_second="fix-units" in shared)
    checked = flush_pipeline(found.flat, found.schedule, where, found.devices_per_machine, found.inner_bandwidth)
    return replace(checked, fill=found.fill, objective=found.objective, requirements=made.requirements)


def _per_unit(per_second: float, flat: StageInstance) -> float:
    return per_second / flat_overrides.PER_SECOND[flat.time_unit]


def _with_own(instance: FlushedInstance, own: Mapping[str, Any], *, per_second: bool) -> FlushedInstance:
    """The instance with the schedule, the fill, the objective and the machines that are given.

    Their network's bandwidth is ``per_second``, without it per time unit.
    """
    fields = {name.replace("-", "_"): value for name, value in own.items()}
    if "schedule" in fields:
        fields["schedule"] = Schedule(fields["schedule"])
    if "fill" in fields:
        fields["fill"] = Fill(fields["fill"])
    if "objective" in fields:
        fields["objective"] = Objective(fields["objective"])
    if "inner_bandwidth" in fields and per_second:
        fields["inner_bandwidth"] = _per_unit(fields["inner_bandwidth"], instance.flat)
    return replace(instance, **fields)


def describe(instance: FlushedInstance) -> dict[str, Any]:
    """The key figures of an instance."""
    figures = {**describe_flat(instance.flat), "schedule": str(instance.schedule)}
    if instance.fill is not Fill.STAGES:
        figures["fill"] = str(instance.fill)
    if instance.objective is not Objective.FORMULA:
        figures["objective"] = str(instance.objective)
    if instance.devices_per_machine is not None:
        figures |= {"devices_per_machine": instance.devices_per_machine, "inner_bandwidth": instance.inner_bandwidth}
    return figures


def memory_pressure(instance: FlushedInstance) -> float | None:
    """That of the flat instance."""
    return flat_overrides.memory_pressure(instance.flat)
