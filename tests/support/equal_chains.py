"""Chains of equal layers, and training strategies of equal chunks."""

from dataclasses import replace
from typing import Any

from formulations.training_strategy.definition.plan import StrategyPlan
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.problems.training_strategy import Schedule, StrategyInstance, of_chain

F1B, GPIPE, INTERLEAVED, ZB, ZB_H2, ZB_V, DUALPIPE_V = Schedule


def equal_layers(count: int, **given: Any) -> StrategyInstance:
    """Layers of 3 (F 1, B 2, or B 1 and W 1), 2 bytes of weights, 1 of activations; recomputed: 4, and none."""
    ways = (Tmpc("keep", 3.0, 2.0, 1.0, 4.0), Tmpc("again", 4.0, 2.0, 0.0, 4.0))
    layers = tuple(Layer(v, {1: ways}) for v in range(count))
    flat = {"num_devices": 4, "memory_bytes": 1e9, "bandwidth": 1.0, "num_microbatches": 8, **given}
    schedules, V = flat.pop("schedules", (F1B,)), flat.pop("V", 1)
    edges = tuple(Edge(v, v + 1, 0.0) for v in range(count - 1))
    return of_chain(StageInstance("equal", layers, edges, **flat), schedules, V)


def plan(p: int, count: int, schedule: Schedule = F1B, d: int = 1, V: int = 1, way: str = "keep") -> StrategyPlan:
    """Equal chunks."""
    size = count // (p * V)
    chunks = tuple(tuple(range(size * g, size * (g + 1))) for g in range(p * V))
    return StrategyPlan(p, 1, d, V, schedule, chunks, dict.fromkeys(range(count), way))


def saying(instance: StrategyInstance, *times: float | None) -> StrategyInstance:
    """The layers say how long gradients of their weights take, but for those of ``None``."""
    layers = tuple(
        layer if own is None else replace(layer, weight_times={1: own})
        for layer, own in zip(instance.flat.layers, times, strict=True)
    )
    return replace(instance, flat=replace(instance.flat, layers=layers))


CHAIN = equal_layers(3).flat
