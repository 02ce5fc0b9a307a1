"""The quantities of a strategy that requirements may speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formulations.contract.quantities import Domain, Quantity
from instances.problems.amp_strategy import AmpInstance
from instances.requirements import requirements_of

if TYPE_CHECKING:
    from formulations.amp_strategy.definition.plan import Degrees, StrategyPlan

_STAGE = Domain("stage", lambda instance: range(min(instance.num_devices, len(instance.layers))), in_every_plan=False)


def layers(_: AmpInstance, plan: StrategyPlan, stage: int) -> int:
    """Layers of a stage; 0 where the strategy has fewer stages."""
    return plan.lengths[stage] if stage < len(plan.lengths) else 0


#: What a strategy's degrees alone decide.
DEGREES = (
    Quantity("tp_degree", "devices of a tensor-parallel group", lambda _, plan: int(plan.degrees.tp_degree)),
    Quantity("dp_degree", "replicas of every stage", lambda _, plan: int(plan.degrees.dp_degree)),
    Quantity("pp_degree", "number of stages", lambda _, plan: int(plan.degrees.pp_degree)),
    Quantity("microbatch", "samples of a micro-batch", lambda _, plan: int(plan.degrees.microbatch)),
)

VOCABULARY = (
    *DEGREES,
    Quantity("layers", "number of layers of a stage; stages count from 0 at the input side", layers, (_STAGE,)),
)


def allows(instance: AmpInstance, degrees: Degrees) -> bool:
    """Whether degrees meet the instance's requirements on them."""
    return all(
        each.holds(getattr(degrees, each.quantity))
        for each in requirements_of(instance)
        if hasattr(degrees, each.quantity)
    )
