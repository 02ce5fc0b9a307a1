"""Models of Parmesan's experiments as operator graphs, cut into stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from formulations.device_mapping.partition import mapping_of
from instances import operator_graphs, operator_sequences
from instances.topologies import topology
from planner.claims.claim import examined
from planner.loading import family_of
from solvers.outcome import Limits

#: The models by the paper's names; sizes as published with the models, micro-batches as the generators' defaults.
MODELS: Mapping[str, Callable[[], Any]] = {
    "resnet-152": partial(operator_graphs.resnet, "resnet-152", (3, 8, 36, 3)),
    "bert-l": operator_sequences.bert,
    "swin-l": operator_sequences.swin,
    "semantic-fpn": operator_graphs.semantic_fpn,
}


def partitioned(model: str, method: str, stages: int, replicas: int, time_limit: float) -> tuple[Any, Any]:
    """The operator graph of a model and its plan by a method of operator partitioning.

    Raises
    ------
    ValueError
        If the method finds no plan in its time.
    """
    graph = replace(MODELS[model](), num_stages=stages, replicas=replicas)
    result = examined(graph, method, limits=Limits(time_s=time_limit))
    if result.plan is None:
        raise ValueError(f"{method} cut {model} into no {stages} stages within {time_limit:g} s")
    return graph, family_of(graph).plan_from_json(graph, result.plan)


def mapped(graph: Any, plan: Any, replicas: int, kind: str, objective: str) -> Any:
    """The device mapping of a partition on a kind of network, seed 0."""
    devices = len(plan.stages) * replicas
    return mapping_of(graph, plan, replicas, topology(kind, devices, seed=0), objective)
