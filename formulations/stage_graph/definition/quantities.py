"""The quantities of a plan that requirements may speak of; stages have no natural numbers, so operators name them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from formulations.contract.quantities import Domain, Quantity
from instances.problems.stage_graph import StageGraph
from instances.requirements import requirements_of

if TYPE_CHECKING:
    from formulations.stage_graph.definition.plan import Stage, StagePlan

_OPERATOR = Domain("operator", lambda instance: instance.ids or range(instance.num_operators))


def _stage(instance: StageGraph, plan: StagePlan, operator: int | str) -> Stage | None:
    node = instance.index[operator]
    return next((stage for stage in plan.stages if node in stage.nodes), None)


def num_stages(_: StageGraph, plan: StagePlan) -> int:
    """Stages of the plan."""
    return len(plan.stages)


def same_stage(instance: StageGraph, plan: StagePlan, operator: int | str, other: int | str) -> int:
    """1 if two operators are in one stage."""
    return int(_stage(instance, plan, operator) is _stage(instance, plan, other))


def devices_of(instance: StageGraph, plan: StagePlan, operator: int | str) -> int:
    """Devices of the stage that has an operator."""
    stage = _stage(instance, plan, operator)
    return 0 if stage is None else stage.devices


def in_flight_of(instance: StageGraph, plan: StagePlan, operator: int | str) -> int:
    """Samples in flight of the stage that has an operator."""
    stage = _stage(instance, plan, operator)
    return 0 if stage is None else stage.in_flight


def microbatch(_: StageGraph, plan: StagePlan) -> int:
    """Samples of the largest micro-batch of any stage."""
    return max((stage.microbatch for stage in plan.stages), default=0)


def idle_devices(instance: StageGraph, plan: StagePlan) -> int:
    """Devices that no stage has."""
    return instance.num_devices - sum(stage.devices for stage in plan.stages)


VOCABULARY = (
    Quantity("num_stages", "number of stages", num_stages),
    Quantity(
        "same_stage", "whether two operators are in one stage", same_stage, (_OPERATOR, _OPERATOR), is_yes_no=True
    ),
    Quantity("devices_of", "devices of the stage that an operator is in", devices_of, (_OPERATOR,)),
    Quantity(
        "in_flight_of", "samples that the stage of an operator keeps in flight at most", in_flight_of, (_OPERATOR,)
    ),
    Quantity("microbatch", "samples of a micro-batch; of the largest if stages have their own sizes", microbatch),
    Quantity("idle_devices", "devices that no stage has", idle_devices),
)


NO_SIZE = "no micro-batch size is as required"


def at_required_sizes(instance: StageGraph) -> StageGraph | None:
    """The instance with the micro-batch sizes that are required, and no other requirement; ``None``: there is none."""
    sizes = required_sizes(instance)
    return replace(instance, microbatches=sizes, requirements=()) if sizes else None


def required_sizes(instance: StageGraph) -> tuple[int, ...]:
    """Micro-batch sizes, ascending, that the instance and its requirements on ``microbatch`` allow; there may be none.

    For plans with one size for all stages.
    """
    wanted = [each for each in requirements_of(instance) if each.quantity == "microbatch"]
    return tuple(size for size in instance.microbatch_sizes if all(each.holds(size) for each in wanted))
