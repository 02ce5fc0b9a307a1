"""The quantities of a plan on machines that requirements may speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formulations.contract.quantities import Domain, Quantity
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan, spans
from instances.problems.hierarchical_partitioning import HierarchicalInstance as Instance
from instances.rules import NodeId

if TYPE_CHECKING:
    from formulations.stage_partitioning.definition.plan import Stage

_NODE = Domain("node", lambda instance: instance.flat.index)
_SUPERSTAGE = Domain("superstage", lambda instance: range(len(instance.flat.layers)), in_every_plan=False)


def num_superstages(_: Instance, plan: HierarchicalPlan) -> int:
    """Superstages of the plan."""
    return len(plan.stages)


def num_stages(_: Instance, plan: HierarchicalPlan) -> int:
    """Stages of all superstages."""
    return sum(len(found.inner) for found in plan.stages)


def num_machines(_: Instance, plan: HierarchicalPlan) -> int:
    """Machines of all superstages: the sum of d_2 ... d_L."""
    return sum(span.replicas for span in spans(plan)[0])


def num_devices(_: Instance, plan: HierarchicalPlan) -> int:
    """Devices of all machines: the sum of t d_1 d_2 ... d_L."""
    return sum(span.replicas * plan.stages[span.first].num_devices for span in spans(plan)[0])


def superstage_of(_: Instance, plan: HierarchicalPlan, node: NodeId) -> int:
    """Superstages in front of the one that has a node."""
    return _place(plan, node)[0]


def same_superstage(_: Instance, plan: HierarchicalPlan, node: NodeId, other: NodeId) -> int:
    """1 if two nodes are in one superstage."""
    return int(_place(plan, node)[0] == _place(plan, other)[0])


def same_stage(_: Instance, plan: HierarchicalPlan, node: NodeId, other: NodeId) -> int:
    """1 if two nodes are in one stage of one superstage."""
    return int(_place(plan, node) == _place(plan, other))


def nodes(_: Instance, plan: HierarchicalPlan, superstage: int) -> int:
    """Nodes of a superstage."""
    found = plan.stages[superstage : superstage + 1]
    return sum(len(stage.nodes) for each in found for stage in each.inner)


def machines(_: Instance, plan: HierarchicalPlan, superstage: int) -> int:
    """Machines of a superstage."""
    return sum(span.replicas for span in spans(plan)[0][superstage : superstage + 1])


def tp_degree_of(_: Instance, plan: HierarchicalPlan, node: NodeId) -> int:
    """Tensor-parallel degree of a node's stage."""
    return _stage(plan, node).tp_degree


def dp_degree_of(_: Instance, plan: HierarchicalPlan, node: NodeId) -> int:
    """Data-parallel degree of a node's stage inside each machine."""
    return _stage(plan, node).dp_degree


def _place(plan: HierarchicalPlan, node: NodeId) -> tuple[int, int]:
    return next(
        (p, r) for p, found in enumerate(plan.stages) for r, stage in enumerate(found.inner) if node in stage.nodes
    )


def _stage(plan: HierarchicalPlan, node: NodeId) -> Stage:
    superstage, stage = _place(plan, node)
    return plan.stages[superstage].inner[stage]


VOCABULARY = (
    Quantity("num_superstages", "number of superstages", num_superstages),
    Quantity("num_stages", "number of stages of all superstages", num_stages),
    Quantity("num_machines", "machines that the superstages take together", num_machines),
    Quantity("num_devices", "devices that the stages take together, on all machines", num_devices),
    Quantity("superstage_of", "number of a node's superstage, from 0 at the input side", superstage_of, (_NODE,)),
    Quantity(
        "same_superstage", "whether two nodes are in one superstage", same_superstage, (_NODE, _NODE), is_yes_no=True
    ),
    Quantity("same_stage", "whether two nodes are in one stage", same_stage, (_NODE, _NODE), is_yes_no=True),
    Quantity("nodes", "number of nodes of a superstage; 0 if there is no such one", nodes, (_SUPERSTAGE,)),
    Quantity(
        "machines", "machines of a superstage, d_2 (... d_L); 0 if there is no such one", machines, (_SUPERSTAGE,)
    ),
    Quantity("tp_degree_of", "tensor-parallel degree of a node's stage, t", tp_degree_of, (_NODE,)),
    Quantity("dp_degree_of", "data-parallel degree of a node's stage in each machine, d_1", dp_degree_of, (_NODE,)),
)
