"""Stage partitioning for pipelines that are flushed after every batch: a flat instance, a schedule, and machines.

Nouns only; the objective is in the family's ``problem.py``. Source: Piper, section 6 (future work).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

from instances.errors import InstanceError, expect
from instances.exchange import FileOf, in_files
from instances.problems import stage_partitioning
from instances.problems.stage_partitioning import AroundFlat, StageInstance
from instances.requirements import expect_none
from instances.rules import Bandwidth, Count, member_of


class Schedule(StrEnum):
    """Backward passes as soon as they can (1F1B), or after all forward passes (GPipe)."""

    ONE_F_ONE_B = "1f1b"
    GPIPE = "gpipe"


class Fill(StrEnum):
    """How long filling and draining take: by the stages on the longest path, or by what each replica runs."""

    STAGES = "stages"
    REPLICAS = "replicas"


class Objective(StrEnum):
    """What is minimised: a formula of a batch, or the batch as it is simulated."""

    FORMULA = "formula"
    ITERATION = "iteration"


@in_files(
    "schedule",
    "fill?",
    "objective?",
    "devices_per_machine?",
    "inner_bandwidth?",
    "flat",
    problem="flushed_partitioning",
    types={"flat": Annotated[Mapping[str, Any], FileOf(StageInstance, "a file of Piper's release")]},
)
@dataclass(frozen=True)
class FlushedInstance(AroundFlat):
    """A flat instance whose N micro-batches (m) are one batch, after which the pipeline is flushed.

    Parameters
    ----------
    devices_per_machine
        K_1: devices 0 to K_1 - 1 share a machine, and so on; ``None``: one network for all.
    inner_bandwidth
        B_1, among the devices of a machine, bytes per time unit of ``flat``, whose bandwidth is that between machines;
        given if and only if ``devices_per_machine`` is.
    fill
        Which formula of a batch is minimised (``definition.problem``).
    objective
        Whether that formula is minimised, or a simulated batch.
    """

    schedule: Annotated[Schedule, member_of(Schedule)] = Schedule.ONE_F_ONE_B
    devices_per_machine: Count | None = None
    inner_bandwidth: Bandwidth | None = None
    fill: Annotated[Fill, member_of(Fill)] = Fill.STAGES
    objective: Annotated[Objective, member_of(Objective)] = Objective.FORMULA

    @property
    def options(self) -> Mapping[str, str | int | float | bool]:
        """How the flat instance was made, the schedule, and a fill and an objective that are not the default."""
        made: dict[str, str | int | float | bool] = {**self.flat.options, "schedule": str(self.schedule)}
        if self.fill is not Fill.STAGES:
            made["fill"] = str(self.fill)
        if self.objective is not Objective.FORMULA:
            made["objective"] = str(self.objective)
        if self.devices_per_machine is not None and self.inner_bandwidth is not None:
            made |= {"devices-per-machine": self.devices_per_machine, "inner-bandwidth": self.inner_bandwidth}
        return made

    @cached_property
    def weightless(self) -> StageInstance:
        """The flat instance without weights: its stages are never synchronised."""
        layers = tuple(
            replace(
                layer, tmpcs={t: tuple(replace(x, weight_bytes=0.0) for x in found) for t, found in layer.tmpcs.items()}
            )
            for layer in self.flat.layers
        )
        return replace(self.flat, layers=layers)


def flush_pipeline(
    flat: StageInstance,
    schedule: Schedule = Schedule.ONE_F_ONE_B,
    where: str = "instance",
    devices_per_machine: int | None = None,
    inner_bandwidth: float | None = None,
) -> FlushedInstance:
    """The flushed instance of a flat one, on one network or on machines with a network of their own.

    Raises
    ------
    InstanceError
        If the flat instance requires degrees that sum to exactly N; if machines have no bandwidth or a bandwidth no
        machines, they do not make up all devices, or their own network is the slower one.
    """
    expect_none(flat, where, "flat")
    expect(not flat.exactly, where, "exactly", True, "false: a batch has N micro-batches whatever the degrees")
    if devices_per_machine is None or inner_bandwidth is None:
        missing = "inner_bandwidth" if devices_per_machine is not None else "devices_per_machine"
        if devices_per_machine is not inner_bandwidth:
            raise InstanceError.missing(where, missing, "both of devices_per_machine and inner_bandwidth")
    else:
        whole = flat.num_devices % devices_per_machine == 0
        rule = f"a divisor of the {flat.num_devices} devices"
        expect(whole, where, "devices_per_machine", devices_per_machine, rule)
        rule = f"at least {flat.bandwidth:g}, the bandwidth between machines"
        expect(inner_bandwidth >= flat.bandwidth, where, "inner_bandwidth", inner_bandwidth, rule)
    return FlushedInstance(flat, schedule, devices_per_machine, inner_bandwidth)


def check(instance: FlushedInstance, where: str) -> None:
    """The rules of the flat instance, and those of `flush_pipeline`; `InstanceError` if one is broken."""
    stage_partitioning.check(instance.flat, f"{where}: flat")
    flush_pipeline(instance.flat, instance.schedule, where, instance.devices_per_machine, instance.inner_bandwidth)
