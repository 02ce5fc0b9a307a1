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


VOCABULARY = (
    Quantity("num_stages", "number of stages", lambda _, plan: len(plan.stages)),
    Quantity(
        "same_stage",
        "whether two operators are in one stage",
        lambda instance, plan, one, other: int(_stage(instance, plan, one) is _stage(instance, plan, other)),
        (_OPERATOR, _OPERATOR),
        is_yes_no=True,
    ),
    Quantity(
        "devices_of",
        "devices of the stage that an operator is in",
        lambda *of: 0 if (stage := _stage(*of)) is None else stage.devices,
        (_OPERATOR,),
    ),
    Quantity(
        "in_flight_of",
        "samples that the stage of an operator keeps in flight at most",
        lambda *of: 0 if (stage := _stage(*of)) is None else stage.in_flight,
        (_OPERATOR,),
    ),
    Quantity(
        "microbatch",
        "samples of a micro-batch; of the largest if stages have their own sizes",
        lambda _, plan: max((stage.microbatch for stage in plan.stages), default=0),
    ),
    Quantity(
        "idle_devices",
        "devices that no stage has",
        lambda instance, plan: instance.num_devices - sum(stage.devices for stage in plan.stages),
    ),
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
