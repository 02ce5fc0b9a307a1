"""Brute force and random instances of operator partitioning; shares no code with the room."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from instances.problems.operator_partitioning import (
    Operator,
    OperatorInstance,
    Tensor,
    TrainingMemory,
    in_topological_order,
)


def stage_time(instance: OperatorInstance, home: tuple[int, ...], stage: int) -> float:
    """Computation, and every tensor once for each pair of stages that it joins."""
    total = sum(o.compute_s for v, o in enumerate(instance.operators) if home[v] == stage)
    for tensor in instance.tensors:
        takers = {home[v] for v in tensor.targets if home[v] != home[tensor.source]}
        if home[tensor.source] == stage:
            total += len(takers) * tensor.volume_bytes / instance.bandwidth_bytes_per_s
        elif stage in takers:
            total += tensor.volume_bytes / instance.bandwidth_bytes_per_s
    return total


#: The definition lets a sum of bytes exceed the memory by this part of it.
ROUNDING = 1e-12


def stage_memory(instance: OperatorInstance, home: tuple[int, ...], stage: int, count: int) -> float:
    """What the stage holds when ``count`` stages are in the pipeline."""
    members = [v for v in range(len(home)) if home[v] == stage]
    total = sum(instance.operators[v].memory_bytes for v in members)
    training = instance.training
    if training is None:
        return total
    total += training.weight_copies * sum(instance.operators[v].parameter_bytes for v in members)
    entering = {t.source for t in instance.tensors if home[t.source] != stage and stage in {home[v] for v in t.targets}}
    flying = training.microbatches if training.schedule == "gpipe" else min(training.microbatches, count - stage)
    total += flying * sum(instance.operators[v].activation_bytes for v in entering)
    outputs = {v: instance.operators[v].activation_bytes for v in members}
    if not training.recompute:
        return total + training.microbatches * sum(outputs.values())
    waiting = {
        v: {w for t in instance.tensors if t.source == v for w in t.targets if home[w] == stage} for v in members
    }
    alive: set[int] = set()
    peak = 0.0
    for v in members:
        alive.add(v)
        peak = max(peak, sum(outputs[w] for w in alive))
        for w in list(alive):
            waiting[w].discard(v)
            if not waiting[w]:
                alive.discard(w)
    return total + peak


def optimum(instance: OperatorInstance) -> float | None:
    """The least objective over every assignment of operators to ordered stages; ``None`` if there is none."""
    best: float | None = None
    for stages, each in shapes(instance):
        for home in product(range(stages), repeat=len(instance.operators)):
            if len(set(home)) < stages or any(home[t.source] > home[v] for t in instance.tensors for v in t.targets):
                continue
            value = _value(instance, home, stages, each)
            if value is not None and (best is None or value < best):
                best = value
    return best


def shapes(instance: OperatorInstance) -> list[tuple[int, int]]:
    """(S, R) to be tried; R is 0 where replicas are free."""
    n = len(instance.operators)
    if instance.num_stages is None:
        devices, step = instance.num_devices, instance.step_microbatches
        assert devices is not None and step is not None
        every = [(devices // r, r) for r in range(1, devices + 1) if devices % r == 0 and step % r == 0]
        return [(s, r) for s, r in every if s <= n]
    counts = range(1, instance.num_stages + 1) if instance.at_most else [instance.num_stages]
    return [(s, 0 if instance.num_devices else instance.replicas) for s in counts if s <= n]


def _value(instance: OperatorInstance, home: tuple[int, ...], stages: int, each: int) -> float | None:
    times = [stage_time(instance, home, stage) for stage in range(stages)]
    memory = instance.memory_bytes
    needs = [stage_memory(instance, home, stage, stages) for stage in range(stages)] if memory is not None else []
    if each == 0:
        return _spread(instance, home, times, needs)
    room = (memory or 0.0) * (each if instance.pooled_memory else 1)
    if any(need > room * (1 + ROUNDING) for need in needs):
        return None
    if instance.flushed:
        return step_time(instance, home, times, (each,) * stages)
    if instance.num_stages is not None:
        return max(times) / each
    assert instance.step_microbatches is not None
    syncs = [
        2 * (each - 1) * sum(o.parameter_bytes for v, o in enumerate(instance.operators) if home[v] == stage) / each
        for stage in range(stages)
    ]
    return (instance.step_microbatches // each + stages - 1) * max(times) + max(syncs) / instance.bandwidth_bytes_per_s


def step_time(instance: OperatorInstance, home: tuple[int, ...], times: list[float], counts: tuple[int, ...]) -> float:
    """A flushed step: every path of stages, the other micro-batches of every replica, every all-reduce."""
    fed = {(home[t.source], home[v]) for t in instance.tensors for v in t.targets} - {(s, s) for s in range(len(times))}

    def longest(stage: int) -> float:
        return times[stage] + max([longest(after) for before, after in fed if before == stage], default=0)

    sizes = [
        sum(o.parameter_bytes for v, o in enumerate(instance.operators) if home[v] == s) for s in range(len(times))
    ]
    own = [range(0, instance.step_microbatches or 0, count) for count in counts]
    return (
        max(longest(stage) for stage in range(len(times)))
        + max(max(0, len(each) - 1) * time for each, time in zip(own, times, strict=True))
        + max(2 * (r - 1) * size / r / instance.bandwidth_bytes_per_s for r, size in zip(counts, sizes, strict=True))
    )


def _spread(instance: OperatorInstance, home: tuple[int, ...], times: list[float], needs: list[float]) -> float | None:
    """Every way to share the devices."""
    devices = instance.num_devices or 0
    best: float | None = None
    for counts in product(range(1, devices + 1), repeat=len(times)):
        if sum(counts) > devices:
            continue
        rooms = [(instance.memory_bytes or 0.0) * (c if instance.pooled_memory else 1) for c in counts]
        if any(need > room * (1 + ROUNDING) for need, room in zip(needs, rooms, strict=False)):
            continue
        value = max(time / count for time, count in zip(times, counts, strict=True))
        if instance.flushed:
            value = step_time(instance, home, times, counts)
        best = value if best is None else min(best, value)
    return best


def random_instance(rng: random.Random, max_operators: int = 7, plain: bool = False) -> OperatorInstance:
    """Small, of integers (many ties) or floats; sparse or dense; tensors of one target or of several."""
    n = rng.randint(1, max_operators)
    whole = rng.random() < 0.6

    def number(most: float) -> float:
        return float(rng.randint(0, int(most))) if whole else rng.uniform(0, most)

    operators = [Operator(f"v{v}", number(9), number(4), number(5), number(3) * (rng.random() < 0.5)) for v in range(n)]
    tensors = []
    for source in range(n - 1):
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            later = range(source + 1, min(n, source + 1 + rng.choice([1, 2, n])))
            targets = tuple(rng.sample(later, rng.randint(1, min(3, len(later)))))
            tensors.append(Tensor(source, targets, number(6)))
    graph = in_topological_order(operators, tensors)
    limited = rng.random() < 0.5 and not plain
    training = TrainingMemory(
        float(rng.randint(1, 4)), rng.randint(1, 3), rng.choice(["1f1b", "gpipe"]), rng.random() < 0.6
    )
    kind = 0.0 if plain else rng.random()
    devices = rng.randint(1, 5)
    return OperatorInstance(
        "random",
        *graph,
        num_stages=None if kind > 0.85 else rng.randint(1, min(4, n + (rng.random() < 0.1))),
        replicas=rng.choice([1, 1, 2]),
        bandwidth_bytes_per_s=rng.choice([0.5, 1.0, 4.0]),
        num_devices=devices if kind > 0.65 else None,
        memory_bytes=number(60) if limited else None,
        pooled_memory=limited and rng.random() < 0.3,
        training=training if rng.random() < 0.7 else None,
        at_most=not plain and rng.random() < 0.3,
        step_microbatches=devices * rng.randint(1, 3) if kind > 0.85 else None,
    )


def flushed_instance(rng: random.Random, max_operators: int = 7) -> OperatorInstance:
    """The same with a given number of stages and a step of few micro-batches or of many."""
    found = random_instance(rng, max_operators)
    stages = found.num_stages or min(3, len(found.operators))
    return replace(found, num_stages=stages, flushed=True, step_microbatches=rng.choice([1, 2, 3, 5, 8, 64]))


def plans(instance: OperatorInstance) -> Iterator[dict[str, list[Any]]]:
    """Every assignment to stages in order with all numbers of replicas, memory aside, in JSON form."""
    for stages, each in shapes(instance):
        for home in product(range(stages), repeat=len(instance.operators)):
            if len(set(home)) < stages or any(home[t.source] > home[v] for t in instance.tensors for v in t.targets):
                continue
            members = [[o.id for v, o in enumerate(instance.operators) if home[v] == s] for s in range(stages)]
            for counts in product(range(1, (instance.num_devices or 0) + 1), repeat=stages) if each == 0 else [()]:
                if sum(counts) <= (instance.num_devices or 0) or each:
                    yield {"stages": members, "replicas": list(counts) or [each] * stages}
