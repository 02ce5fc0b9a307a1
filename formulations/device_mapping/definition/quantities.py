"""The quantities of a mapping that requirements may speak of."""

from formulations.contract.quantities import Domain, Quantity

_STAGE = Domain("stage", lambda instance: range(instance.num_stages))
_REPLICA = Domain("replica", lambda instance: range(instance.replicas))
_DEVICE = Domain("device", lambda instance: range(instance.num_devices))

VOCABULARY = (
    Quantity(
        "device_of",
        "device of a replica of a stage; all count from 0",
        lambda _, plan, stage, replica: plan.devices[stage][replica],
        (_STAGE, _REPLICA),
    ),
    Quantity(
        "on",
        "whether a replica of a stage is on a device",
        lambda _, plan, stage, replica, device: int(plan.devices[stage][replica] == device),
        (_STAGE, _REPLICA, _DEVICE),
        is_yes_no=True,
    ),
    Quantity(
        "runs",
        "whether a device runs a replica of a stage, whichever",
        lambda _, plan, device, stage: int(device in plan.devices[stage]),
        (_DEVICE, _STAGE),
        is_yes_no=True,
    ),
    Quantity(
        "stage_of",
        "number of the stage that a device runs",
        lambda _, plan, device: next(stage for stage, own in enumerate(plan.devices) if device in own),
        (_DEVICE,),
    ),
)
