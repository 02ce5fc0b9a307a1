"""The quantities of a plan that requirements may speak of; degrees alone decide them."""

from __future__ import annotations

from formulations.contract.quantities import Domain, Quantity

_SCHEDULE = Domain("schedule", lambda instance: [str(each) for each in instance.schedules])

VOCABULARY = (
    Quantity("pp_degree", "devices of a pipeline", lambda _, plan: int(plan.pp_degree)),
    Quantity("tp_degree", "devices of a tensor-parallel group", lambda _, plan: int(plan.tp_degree)),
    Quantity("dp_degree", "replicas of the pipeline", lambda _, plan: int(plan.dp_degree)),
    Quantity("virtual_stages", "chunks of layers of a device", lambda _, plan: int(plan.virtual_stages)),
    Quantity("schedule", "whether it is run", lambda _, plan, name: int(plan.schedule == name), (_SCHEDULE,), True),
)
