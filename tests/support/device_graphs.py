"""Small models on heterogeneous devices, and all plans of theirs."""

import itertools
import math
import random
from dataclasses import replace

from branching_cases import partitions, random_graph

from formulations.stage_graph.costs.costs import with_in_flight
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import data_edges, evaluate, violations
from instances.problems.stage_graph import DeviceGraph, StageGraph


def heterogeneous_devices(seed: int) -> StageGraph:
    """A small random model on devices with memories and links of their own, some of them missing."""
    rng = random.Random(f"unlike {seed}")
    instance = random_graph(seed + 6000, (2, 4), 3, series_parallel=bool(seed % 2))
    links = [[0.0 if u == v else rng.choice((0.0, 2.0, 5.0, 50.0, 50.0)) for v in range(3)] for u in range(3)]
    memory = tuple(float(int(instance.memory_bytes * rng.uniform(0.6, 1.5))) for _ in range(3))
    graph = DeviceGraph(memory, tuple(map(tuple, links)))
    return replace(instance, device_graph=graph, minibatch=4)


def least_on_devices(instance: StageGraph) -> float:
    """The optimum over all partitions, sets of devices and sizes."""
    best = math.inf
    for parts in partitions(list(range(instance.num_operators))):
        for owner in itertools.product(range(len(parts) + 1), repeat=instance.num_devices):
            held = [tuple(d for d, own in enumerate(owner) if own == stage) for stage in range(len(parts))]
            if not all(held):
                continue
            for size in instance.microbatch_sizes:
                stages = [
                    Stage(tuple(part), len(ids), size, size, device_ids=ids)
                    for part, ids in zip(parts, held, strict=True)
                ]
                idle = instance.num_devices - sum(map(len, held))
                try:
                    plan = with_in_flight(instance, StagePlan(tuple(stages), data_edges(instance, stages), idle))
                except ValueError:
                    continue
                if not violations(instance, plan):
                    best = min(best, evaluate(instance, plan))
    return best
