"""The quantities of a schedule that requirements may speak of: both follow from the order of a stage's passes."""

from formulations.contract.quantities import Domain, Quantity

_STAGE = Domain("stage", lambda instance: range(len(instance.stages)))

VOCABULARY = (
    Quantity(
        "warm_up",
        "forward passes of a stage before its first backward pass",
        lambda _, plan, stage: [task.is_forward for task in plan.by_stage[stage]].index(False),
        (_STAGE,),
    ),
    Quantity(
        "in_flight",
        "most micro-batches that a stage has in flight at once",
        lambda _, plan, stage: plan.peak_in_flight(stage),
        (_STAGE,),
    ),
)
