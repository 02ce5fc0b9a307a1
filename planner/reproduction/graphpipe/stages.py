"""Hand-made plans from given stages, for comparison with what the methods find."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from formulations.stage_graph.costs.costs import with_in_flight
from formulations.stage_graph.definition.plan import Stage, StagePlan, plan_from_json
from formulations.stage_graph.definition.problem import data_edges, schedule_of, violations
from formulations.stage_graph.paper.graphpipe import row
from instances.problems.stage_graph import StageGraph

__all__ = ["by_hand", "schedule_of", "table_row", "with_sizes", "without_row"]

Edges = Iterable[tuple[int, int]]


def without_row(instance: StageGraph, plan: Mapping[str, Any]) -> dict[str, Any]:
    """What a table shows of a sequential plan (as JSON) if its stages wait for tensors only, not for the stage before.

    Stages of a chain never wait in a circle, and keep no more samples without that order.
    """
    found = plan_from_json(instance, dict(plan))
    edges = data_edges(instance, found.stages)
    return row(instance, with_in_flight(instance, StagePlan(found.stages, edges, found.idle_devices)))


def by_hand(instance: StageGraph, stages: Sequence[Sequence[int]], microbatch: int, edges: Edges) -> StagePlan:
    """Stages on one device each with one micro-batch size, ordered by ``edges``, which may leave tensors out."""
    made = [Stage(tuple(nodes), 1, microbatch, microbatch) for nodes in stages]
    return with_in_flight(instance, StagePlan(tuple(made), tuple(edges), instance.num_devices - len(made)))


def table_row(instance: StageGraph, plan: StagePlan) -> dict[str, Any]:
    """What a table shows of a plan, also of one that breaks rules (their names are in ``breaks``)."""
    broken = sorted({violation.rule for violation in violations(instance, plan)})
    return {**row(instance, plan), "first_in_flight": plan.stages[0].in_flight, "breaks": ", ".join(broken) or None}


def with_sizes(instance: StageGraph, sizes: Sequence[int]) -> StagePlan:
    """One operator to a stage and one device to each, with these micro-batch sizes and the least in flight."""
    made = tuple(Stage((node,), 1, size, size) for node, size in enumerate(sizes))
    return with_in_flight(instance, StagePlan(made, data_edges(instance, made), instance.num_devices - len(made)))
