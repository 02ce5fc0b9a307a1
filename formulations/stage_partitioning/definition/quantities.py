"""The quantities of a plan that requirements may speak of; flushed pipelines have the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from formulations.contract.quantities import Domain, Quantity
from formulations.stage_partitioning.definition.trainers import TRAINERS, realizable
from instances.problems.stage_partitioning import StageInstance
from instances.rules import NodeId

if TYPE_CHECKING:
    from formulations.stage_partitioning.definition.plan import Stage, StagePlan


def num_stages(_: Any, plan: StagePlan) -> int:
    """Stages of the plan."""
    return len(plan.stages)


def num_devices(_: Any, plan: StagePlan) -> int:
    """Devices that its stages take: the sum of d t."""
    return sum(stage.dp_degree * stage.tp_degree for stage in plan.stages)


def same_stage(instance: Any, plan: StagePlan, node: NodeId, other: NodeId) -> int:
    """1 if two nodes are in one stage."""
    return int(stage_of(instance, plan, node) == stage_of(instance, plan, other))


def stage_of(_: Any, plan: StagePlan, node: NodeId) -> int:
    """Stages in front of the one that has a node."""
    return next(position for position, stage in enumerate(plan.stages) if node in stage.nodes)


def nodes(_: Any, plan: StagePlan, stage: int) -> int:
    """Nodes of a stage."""
    return len(plan.stages[stage].nodes) if stage < len(plan.stages) else 0


def tp_degree(_: Any, plan: StagePlan, stage: int) -> int:
    """Tensor-parallel degree of a stage."""
    return plan.stages[stage].tp_degree if stage < len(plan.stages) else 0


def dp_degree(_: Any, plan: StagePlan, stage: int) -> int:
    """Data-parallel degree of a stage."""
    return plan.stages[stage].dp_degree if stage < len(plan.stages) else 0


def tp_degree_of(instance: Any, plan: StagePlan, node: NodeId) -> int:
    """Tensor-parallel degree of a node's stage."""
    return _of(instance, plan, node).tp_degree


def dp_degree_of(instance: Any, plan: StagePlan, node: NodeId) -> int:
    """Data-parallel degree of a node's stage."""
    return _of(instance, plan, node).dp_degree


def _of(instance: Any, plan: StagePlan, node: NodeId) -> Stage:
    return plan.stages[stage_of(instance, plan, node)]


def vocabulary(flat: Callable[[Any], StageInstance]) -> tuple[Quantity, ...]:
    """The quantities; ``flat(instance)`` has the layers."""
    node = Domain("node", lambda instance: flat(instance).index)
    stage = Domain("stage", lambda instance: range(len(flat(instance).layers)), in_every_plan=False)
    return (
        Quantity("num_stages", "number of stages", num_stages),
        Quantity("num_devices", "devices that the stages take together", num_devices),
        Quantity("same_stage", "whether two nodes are in one stage", same_stage, (node, node), is_yes_no=True),
        Quantity("stage_of", "number of the stage that has a node, from 0 at the input side", stage_of, (node,)),
        Quantity("nodes", "number of nodes of a stage; 0 if there is no such stage", nodes, (stage,)),
        Quantity("tp_degree", "tensor-parallel degree of a stage; 0 if there is none", tp_degree, (stage,)),
        Quantity("dp_degree", "data-parallel degree of a stage; 0 if there is none", dp_degree, (stage,)),
        Quantity("tp_degree_of", "tensor-parallel degree of the stage that has a node", tp_degree_of, (node,)),
        Quantity("dp_degree_of", "data-parallel degree of the stage that has a node", dp_degree_of, (node,)),
    )


#: What the models express.
MODELLED = vocabulary(lambda instance: instance)
VOCABULARY = (
    *MODELLED,
    Quantity(
        "realizable",
        f"whether a trainer can run the plan, on all devices ({', '.join(TRAINERS)})",
        realizable,
        (Domain("trainer", lambda _: TRAINERS),),
        is_yes_no=True,
    ),
)
