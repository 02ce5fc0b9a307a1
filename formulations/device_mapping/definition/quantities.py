"""The quantities of a mapping that requirements may speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formulations.contract.quantities import Domain, Quantity
from instances.problems.device_mapping import DeviceMapping

if TYPE_CHECKING:
    from formulations.device_mapping.definition.plan import Mapping

_STAGE = Domain("stage", lambda instance: range(instance.num_stages))
_REPLICA = Domain("replica", lambda instance: range(instance.replicas))
_DEVICE = Domain("device", lambda instance: range(instance.num_devices))


def device_of(_: DeviceMapping, plan: Mapping, stage: int, replica: int) -> int:
    """The device of a stage's replica."""
    return plan.devices[stage][replica]


def on(_: DeviceMapping, plan: Mapping, stage: int, replica: int, device: int) -> int:
    """1 if a stage's replica is on a device."""
    return int(plan.devices[stage][replica] == device)


def runs(_: DeviceMapping, plan: Mapping, device: int, stage: int) -> int:
    """1 if a device runs some replica of a stage."""
    return int(device in plan.devices[stage])


def stage_of(_: DeviceMapping, plan: Mapping, device: int) -> int:
    """The stage that a device runs."""
    return next(stage for stage, devices in enumerate(plan.devices) if device in devices)


VOCABULARY = (
    Quantity("device_of", "device of a replica of a stage; all count from 0", device_of, (_STAGE, _REPLICA)),
    Quantity("on", "whether a replica of a stage is on a device", on, (_STAGE, _REPLICA, _DEVICE), is_yes_no=True),
    Quantity("runs", "whether a device runs a replica of a stage, whichever", runs, (_DEVICE, _STAGE), is_yes_no=True),
    Quantity("stage_of", "number of the stage that a device runs", stage_of, (_DEVICE,)),
)
