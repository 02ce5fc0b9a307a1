"""Brute force for micro-batch schedules: every order of passes of every stage; shares no code with the room."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

from instances.problems.microbatch_schedule import ScheduleEdge, ScheduleInstance, ScheduleStage


def words(count: int, room: int) -> Iterator[str]:
    """Orders of a stage's passes with at most ``room`` micro-batches in flight."""

    def grow(word: str, forward: int, backward: int) -> Iterator[str]:
        if backward == count:
            yield word
        if forward < count and forward - backward < room:
            yield from grow(word + "F", forward + 1, backward)
        if backward < forward:
            yield from grow(word + "B", forward, backward + 1)

    yield from grow("", 0, 0)


def seconds(stage: ScheduleStage, kind: str) -> float:
    """Of a forward (F) or a backward pass (B)."""
    return stage.forward_s if kind == "F" else stage.backward_s


def finish(instance: ScheduleInstance, orders: tuple[str, ...]) -> float | None:
    """When the iteration ends with these orders; ``None`` if it gets stuck."""
    ends = pass_ends(instance, orders)
    return None if ends is None else max(ends.values())


def pass_ends(instance: ScheduleInstance, orders: tuple[str, ...]) -> dict[tuple[int, str, int], float] | None:
    """When each pass ends with these orders, (stage, kind, number); ``None`` if they get stuck."""
    stages = instance.stages
    done: dict[tuple[int, str, int], float] = {}
    free = [0.0] * len(stages)
    turn = [0] * len(stages)
    moved = True
    while moved:
        moved = False
        for s, order in enumerate(orders):
            while turn[s] < len(order):
                kind = order[turn[s]]
                j = order[: turn[s]].count(kind)
                waits: list[tuple[tuple[int, str, int], float]] = [((s, "F", j), 0.0)] if kind == "B" else []
                for edge in instance.edges:
                    ends = (edge.source, edge.target) if kind == "F" else (edge.target, edge.source)
                    if ends[1] != s:
                        continue
                    sender = stages[ends[0]]
                    delay = edge.delay_s + instance.latency_s
                    if instance.bandwidth_bytes_per_s:
                        delay += edge.bytes_per_sample * sender.microbatch / instance.bandwidth_bytes_per_s
                    last = (j + 1) * stages[s].microbatch - 1
                    waits.append(((ends[0], kind, last // sender.microbatch), delay))
                if any(task not in done for task, _ in waits):
                    break
                start = max([free[s], *(done[task] + delay for task, delay in waits)])
                free[s] = done[s, kind, j] = start + seconds(stages[s], kind)
                turn[s] += 1
                moved = True
    return done if all(turn[s] == len(order) for s, order in enumerate(orders)) else None


def _all_orders(instance: ScheduleInstance) -> Iterator[tuple[str, ...]]:
    """All orders of all stages that keep their rooms."""
    choices = []
    for stage in instance.stages:
        count = instance.minibatch // stage.microbatch
        room = count if stage.in_flight is None else min(count, stage.in_flight // stage.microbatch)
        if stage.memory_bytes is not None:
            each = stage.microbatch * stage.activation_bytes
            while room and stage.weight_bytes + room * each > stage.memory_bytes:
                room -= 1
        choices.append(list(words(count, room)))
    return product(*choices)


def plans(instance: ScheduleInstance) -> Iterator[dict[str, list[list[Any]]]]:
    """The schedules of all orders that do not get stuck, every pass as early as they let it, in JSON form."""
    for orders in _all_orders(instance):
        ends = pass_ends(instance, orders)
        if ends is not None:
            took = {kind: [seconds(each, kind) for each in instance.stages] for kind in "FB"}
            yield {"tasks": [[s, kind, j, end - took[kind][s], end] for (s, kind, j), end in ends.items()]}


def optimum(instance: ScheduleInstance) -> float | None:
    """The least objective; ``None`` if no schedule keeps the rules."""
    best = None
    for orders in _all_orders(instance):
        end = finish(instance, orders)
        if end is None or (instance.deadline_s is not None and end > instance.deadline_s * (1 + 1e-9)):
            continue
        value = end if instance.objective == "time" else max(map(_held, instance.stages, orders))
        best = value if best is None else min(best, value)
    return best


def _held(stage: ScheduleStage, order: str) -> float:
    peak = max(order[:end].count("F") - order[:end].count("B") for end in range(len(order) + 1))
    return stage.weight_bytes + peak * stage.microbatch * stage.activation_bytes


def random_instance(rng: random.Random) -> ScheduleInstance:
    """Two to four stages, some of which no schedule serves; whole and fractional times, links, memory, deadlines."""
    count = rng.choice([2, 2, 3, 3, 4])
    batch = 4 if count < 4 else 2
    whole = rng.random() < 0.6

    def time(most: int) -> float:
        return float(rng.randint(1, most)) if whole else rng.uniform(0.1, most)

    stages = []
    for _ in range(count):
        b = rng.choice([1, 1, 2, 4] if batch == 4 else [1, 1, 2])
        cap = rng.choice([None, None, 1, 2, 3, 4, 4])
        memory = rng.choice([None, None, None, None, 17.0, 30.0])
        stages.append(
            ScheduleStage(
                time(5), time(8), b, rng.randint(1, 2), cap, float(rng.randint(0, 6)), float(rng.randint(0, 9)), memory
            )
        )
    edges = []
    for v in range(1, count):
        for u in rng.sample(range(v), min(v, rng.choice([0, 1, 1, 2]))):
            edges.append(ScheduleEdge(u, v, rng.choice([0.0, 0.0, time(4)]), float(rng.randint(0, 3))))
    return ScheduleInstance(
        "random",
        batch,
        tuple(stages),
        tuple(edges),
        rng.choice([None, 2.0]),
        rng.choice([0.0, 0.5]),
        rng.choice(["time", "time", "memory"]),
        rng.choice([None, None, 20.0 + time(5) * 12]),
    )
