"""Models of Parmesan's experiments as operator graphs, cut into stages."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from formulations.pipeline_placement.definition.stages import mapping_of
from instances.generators import operator_graphs, operator_sequences
from instances.generators.topologies import topology
from planner.process.errors import UsageError
from planner.reproduction.claim import verified_result
from solvers.outcome import Limits

#: A partition gets so many seconds at least: the time limit is for mappings.
PARTITION_S = 10.0
#: The models by the paper's names; sizes as published with the models, micro-batches as the generators' defaults.
MODELS: Mapping[str, Callable[[], Any]] = {
    "resnet-152": partial(operator_graphs.resnet, "resnet-152", (3, 8, 36, 3)),
    "bert-l": operator_sequences.bert,
    "swin-l": operator_sequences.swin,
    "semantic-fpn": operator_graphs.semantic_fpn,
}


def partition_model(model: str, method: str, stages: int, replicas: int, time_limit: float) -> tuple[Any, Any]:
    """The operator graph of a model and its plan by a method of operator partitioning.

    Raises
    ------
    UsageError
        If the method finds no plan in its time.
    """
    graph = replace(MODELS[model](), num_stages=stages, replicas=replicas)
    return graph, plan_of(graph, method, time_limit)


def plan_of(graph: Any, method: str, time_limit: float) -> Any:
    """The plan of a graph by a method of operator partitioning; `UsageError` if there is none in the time."""
    result = verified_result(graph, method, limits=Limits(time_s=max(time_limit, PARTITION_S)))
    if result.plan is None:
        rule = f"more: {method} cut {graph.name} into no {graph.num_stages} stages in that time"
        raise UsageError.at("--time-limit", time_limit, rule)
    return result.own_plan


def map_partition(graph: Any, plan: Any, replicas: int, kind: str, objective: str) -> Any:
    """The device mapping of a partition on a kind of network, seed 0."""
    devices = len(plan.stages) * replicas
    return mapping_of(graph, plan, topology(kind, devices, seed=0), objective)
