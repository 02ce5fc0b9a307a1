"""The quantities of a placement that requirements may speak of; none of them distinguishes replicas of a stage."""

from formulations.contract.quantities import Domain, Quantity
from formulations.operator_partitioning.definition.quantities import same_stage, stage_of

_OPERATOR = Domain("operator", lambda instance: [operator.id for operator in instance.operators.operators])
_STAGE = Domain("stage", lambda instance: range(instance.num_stages))
_DEVICE = Domain("device", lambda instance: range(instance.num_devices))

VOCABULARY = (
    Quantity(
        "stage_of",
        "number of the stage that has an operator, from 0 at the input side",
        lambda instance, plan, operator: stage_of(instance.operators, plan.partition, operator),
        (_OPERATOR,),
    ),
    Quantity(
        "same_stage",
        "whether two operators are in one stage",
        lambda instance, plan, *pair: same_stage(instance.operators, plan.partition, *pair),
        (_OPERATOR, _OPERATOR),
        is_yes_no=True,
    ),
    Quantity(
        "runs",
        "whether a device runs a replica of a stage, whichever",
        lambda _, plan, device, stage: int(device in plan.mapping.devices[stage]),
        (_DEVICE, _STAGE),
        is_yes_no=True,
    ),
    Quantity(
        "stage_on",
        "number of the stage that a device runs",
        lambda _, plan, device: next(stage for stage, own in enumerate(plan.mapping.devices) if device in own),
        (_DEVICE,),
    ),
)
