"""Hierarchical stage partitioning: a layer graph and a cluster of machines with a network inside and one between them.

Machines may stand in racks, racks in rooms and so on, each with a network of its own. Nouns only; the objective is in
the family's ``problem.py``. Source: Piper, Appendix E, with L >= 2 levels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod
from typing import Annotated, Any

from instances.errors import InstanceError, expect
from instances.exchange import FileOf, in_files
from instances.parameters import MAX_COUNT
from instances.problems import stage_partitioning
from instances.problems.stage_partitioning import AroundFlat, CostModel, StageInstance
from instances.requirements import expect_none
from instances.rules import Bandwidth, Count, member_of


class MemoryModel(StrEnum):
    """How memory is counted (Appendix E): not at all, with an upper bound on s (crude), or with s itself (precise)."""

    NONE = "none"
    CRUDE = "crude"
    PRECISE = "precise"


class Objective(StrEnum):
    """What is minimised: a pipeline that is never flushed, or one batch as it is simulated."""

    STEADY = "steady"
    ITERATION = "iteration"


@dataclass(frozen=True)
class Level:
    """``count`` devices of a level (K_l) in each of the next one, and the ``bandwidth`` (B_l) of each to the others."""

    count: Count
    bandwidth: Bandwidth

    def __str__(self) -> str:
        return f"{self.count}@{self.bandwidth!r}"


@in_files(
    *("devices_per_machine", "num_machines", "inner_bandwidth", "outer_bandwidth", "upper_levels?", "memory_model"),
    "objective?",
    "flat",
    problem="hierarchical_partitioning",
    types={"flat": Annotated[Mapping[str, Any], FileOf(StageInstance, "a file of Piper's release")]},
)
@dataclass(frozen=True)
class HierarchicalInstance(AroundFlat):
    """``num_machines`` machines (K_2) of ``devices_per_machine`` devices (K_1) each, and what runs on them.

    ``inner_bandwidth`` (B_1, among the devices of a machine) and ``outer_bandwidth`` (B_2, of a machine's link) are
    bytes per time unit of ``flat``: the layers, the memory of a device and the number of micro-batches, as the
    flat network model has them. ``upper_levels`` are levels 3 to L; then K_2 machines are in each device of level 3.
    With the ``objective`` iteration the micro-batches are one batch. Make one with `on_machines`.
    """

    devices_per_machine: Count
    num_machines: Count
    inner_bandwidth: Bandwidth
    outer_bandwidth: Bandwidth
    memory_model: Annotated[MemoryModel, member_of(MemoryModel)] = MemoryModel.PRECISE
    upper_levels: tuple[Level, ...] = ()
    objective: Annotated[Objective, member_of(Objective)] = Objective.STEADY

    @property
    def levels(self) -> tuple[Level, ...]:
        """Levels 2 to L: the machines first."""
        return (Level(self.num_machines, self.outer_bandwidth), *self.upper_levels)

    @property
    def all_machines(self) -> int:
        """Machines of the whole cluster: K_2 ... K_L."""
        return prod(level.count for level in self.levels)

    @property
    def options(self) -> Mapping[str, str | int | float | bool]:
        """How the flat instance was made, and the cluster."""
        return {
            **self.flat.options,
            "devices-per-machine": self.devices_per_machine,
            "num-machines": self.num_machines,
            "inner-bandwidth": self.inner_bandwidth,
            "outer-bandwidth": self.outer_bandwidth,
            "memory-model": str(self.memory_model),
            **({"upper-levels": ",".join(map(str, self.upper_levels))} if self.upper_levels else {}),
            **({"objective": str(self.objective)} if self.objective is not Objective.STEADY else {}),
        }

    @property
    def inner(self) -> StageInstance:
        """The flat instance whose network is the one inside a machine."""
        return replace(self.flat, bandwidth=self.inner_bandwidth)


def on_machines(
    flat: StageInstance,
    devices_per_machine: int,
    num_machines: int,
    inner_bandwidth: float,
    outer_bandwidth: float,
    memory_model: MemoryModel = MemoryModel.PRECISE,
    where: str = "instance",
    upper_levels: tuple[Level, ...] = (),
    objective: Objective = Objective.STEADY,
) -> HierarchicalInstance:
    """The hierarchical instance of a flat one; its number of devices and its bandwidth are replaced by the cluster's.

    Raises
    ------
    InstanceError
        If the flat instance has what the appendix does not treat: the released cost model (its synchronisation
        once per batch is not shared among replicas), a sum of degrees of exactly N, a largest data-parallel degree;
        if there are more than ``MAX_COUNT`` devices.
    """
    expect_none(flat, where, "flat")
    devices = devices_per_machine * num_machines * prod(level.count for level in upper_levels)
    counts = "devices_per_machine x num_machines" + " x counts of upper_levels" * bool(upper_levels)
    expect(devices <= MAX_COUNT, where, counts, devices, f"at most {MAX_COUNT} devices")
    if flat.cost_model is not CostModel.PAPER:
        raise InstanceError.at(where, "cost_model", str(flat.cost_model), "paper, the only one on machines")
    if flat.exactly or flat.max_dp_degree is not None:
        field = "exactly" if flat.exactly else "max_dp_degree"
        raise InstanceError.at(where, field, getattr(flat, field), "nothing: it does not exist on machines")
    flat = replace(flat, num_devices=devices, bandwidth=outer_bandwidth)
    return HierarchicalInstance(
        flat, devices_per_machine, num_machines, inner_bandwidth, outer_bandwidth, memory_model, upper_levels, objective
    )


def check(instance: HierarchicalInstance, where: str) -> None:
    """The rules of the flat instance, and those of `on_machines`; `InstanceError` if one is broken."""
    flat = instance.flat
    stage_partitioning.check(flat, f"{where}: flat")
    made = on_machines(
        flat,
        instance.devices_per_machine,
        instance.num_machines,
        instance.inner_bandwidth,
        instance.outer_bandwidth,
        instance.memory_model,
        where,
        instance.upper_levels,
    )
    for name in ("num_devices", "bandwidth"):
        declared, needed = getattr(flat, name), getattr(made.flat, name)
        expect(declared == needed, where, f"flat.{name}", declared, f"{needed:g}, the cluster's (see on_machines)")
