"""The quantities of a partition that requirements may speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formulations.contract.quantities import Domain, Quantity
from instances.problems.operator_partitioning import OperatorInstance
from instances.rules import NodeId

if TYPE_CHECKING:
    from formulations.operator_partitioning.definition.plan import OperatorPlan

_OPERATOR = Domain("operator", lambda instance: [operator.id for operator in instance.operators])


def stage_of(instance: OperatorInstance, plan: OperatorPlan, operator: NodeId) -> int:
    """Stages in front of the one that has an operator."""
    ids = [each.id for each in instance.operators]
    return next(stage for stage, members in enumerate(plan.stages) if ids.index(operator) in members)


def same_stage(instance: OperatorInstance, plan: OperatorPlan, operator: NodeId, other: NodeId) -> int:
    """1 if two operators are in one stage."""
    return int(stage_of(instance, plan, operator) == stage_of(instance, plan, other))


VOCABULARY = (
    Quantity("num_stages", "number of stages", lambda _, plan: len(plan.stages)),
    Quantity("stage_of", "number of the stage that has an operator, from 0 at the input side", stage_of, (_OPERATOR,)),
    Quantity(
        "same_stage", "whether two operators are in one stage", same_stage, (_OPERATOR, _OPERATOR), is_yes_no=True
    ),
    Quantity(
        "replicas_of",
        "replicas of the stage that has an operator",
        lambda instance, plan, operator: plan.replicas[stage_of(instance, plan, operator)],
        (_OPERATOR,),
    ),
)
