"""Brute force for micro-batch schedules: every order of passes of every stage; shares no code with the room."""

import math
import random
from collections.abc import Iterator
from itertools import product
from typing import Any

from instances.problems.microbatch_schedule import ScheduleEdge, ScheduleInstance, ScheduleStage

#: What a device runs next: the stage and the kind of the pass.
Step = tuple[int, str]


def device_orders(instance: ScheduleInstance, device: int) -> Iterator[tuple[Step, ...]]:
    """Orders of a device's passes within its stages' samples in flight and its bytes."""
    own = [s for s in range(len(instance.stages)) if _device(instance, s) == device]
    rooms = [instance.stages[s].memory_bytes for s in own]
    bytes_ = min([room for room in rooms if room is not None], default=None)

    def grow(order: tuple[Step, ...], done: dict[Step, int]) -> Iterator[tuple[Step, ...]]:
        if all(done[s, kind] == instance.minibatch // instance.stages[s].microbatch for s in own for kind in kinds(s)):
            yield order
        for s in own:
            for place, kind in enumerate(kinds(s)):
                count, most = done[s, kind], instance.minibatch // instance.stages[s].microbatch
                after = {**done, (s, kind): count + 1}
                if count < most and (not place or count < done[s, kinds(s)[place - 1]]) and fits(after):
                    yield from grow((*order, (s, kind)), after)

    def kinds(s: int) -> str:
        return "FB" if instance.stages[s].weight_s is None else "FBW"

    def fits(done: dict[Step, int]) -> bool:
        for s in own:
            stage, flying = instance.stages[s], done[s, "F"] - done[s, kinds(s)[-1]]
            if stage.in_flight is not None and flying * stage.microbatch > stage.in_flight:
                return False
        return bytes_ is None or _bytes(instance, own, done) <= bytes_

    yield from grow((), {(s, kind): 0 for s in own for kind in kinds(s)})


def _bytes(instance: ScheduleInstance, own: list[int], done: dict[Step, int]) -> float:
    whole = 0.0
    for s in own:
        stage = instance.stages[s]
        flying = done[s, "F"] - done[s, "B" if stage.weight_s is None else "W"]
        whole += stage.weight_bytes + flying * stage.microbatch * stage.activation_bytes
    return whole


def _device(instance: ScheduleInstance, stage: int) -> int:
    return instance.devices[stage] if instance.devices else stage


def seconds(stage: ScheduleStage, kind: str) -> float:
    """Of a forward (F) or a backward pass (B), or of the gradient of the weights (W)."""
    return {"F": stage.forward_s, "B": stage.backward_s, "W": stage.weight_s or 0.0}[kind]


def finish(instance: ScheduleInstance, orders: tuple[str, ...]) -> float | None:
    """When the iteration ends with these orders of stages, a device each; ``None`` if it gets stuck."""
    steps = tuple(tuple((s, kind) for kind in order) for s, order in enumerate(orders))
    ends = pass_ends(instance, steps)
    return None if ends is None else max(ends.values())


def pass_ends(
    instance: ScheduleInstance, orders: tuple[tuple[Step, ...], ...]
) -> dict[tuple[int, str, int], float] | None:
    """When each pass ends with these orders of devices, (stage, kind, number); ``None`` if they get stuck."""
    stages = instance.stages
    done: dict[tuple[int, str, int], float] = {}
    free = [0.0] * len(orders)
    turn = [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for d, order in enumerate(orders):
            while turn[d] < len(order):
                s, kind = order[turn[d]]
                j = order[: turn[d]].count((s, kind))
                own = {"F": [], "B": [((s, "F", j), 0.0)], "W": [((s, "B", j), 0.0)]}
                waits: list[tuple[tuple[int, str, int], float]] = list(own[kind])
                for edge in instance.edges if kind != "W" else ():
                    ends = (edge.source, edge.target) if kind == "F" else (edge.target, edge.source)
                    if ends[1] != s:
                        continue
                    sender = stages[ends[0]]
                    delay = edge.delay_s + instance.latency_s
                    if instance.bandwidth_bytes_per_s:
                        delay += edge.bytes_per_sample * sender.microbatch / instance.bandwidth_bytes_per_s
                    if _device(instance, ends[0]) == d:
                        delay = 0.0
                    last = (j + 1) * stages[s].microbatch - 1
                    waits.append(((ends[0], kind, last // sender.microbatch), delay))
                if any(task not in done for task, _ in waits):
                    break
                start = max([free[d], *(done[task] + delay for task, delay in waits)])
                free[d] = done[s, kind, j] = start + seconds(stages[s], kind)
                turn[d] += 1
                moved = True
    return done if all(turn[d] == len(order) for d, order in enumerate(orders)) else None


def _all_orders(instance: ScheduleInstance) -> Iterator[tuple[tuple[Step, ...], ...]]:
    """All orders of all devices that keep their rooms."""
    devices = 1 + max(_device(instance, s) for s in range(len(instance.stages)))
    return product(*(list(device_orders(instance, d)) for d in range(devices)))


def plans(instance: ScheduleInstance) -> Iterator[dict[str, list[list[Any]]]]:
    """The schedules of all orders that do not get stuck, every pass as early as they let it, in JSON form."""
    for orders in _all_orders(instance):
        ends = pass_ends(instance, orders)
        if ends is not None:
            took = [{kind: seconds(each, kind) for kind in "FBW"} for each in instance.stages]
            yield {"tasks": [[s, kind, j, end - took[s][kind], end] for (s, kind, j), end in ends.items()]}


def optimum(instance: ScheduleInstance) -> float | None:
    """The least objective; ``None`` if no schedule keeps the rules."""
    best = None
    for orders in _all_orders(instance):
        ends = pass_ends(instance, orders)
        end = None if ends is None else max(ends.values())
        if end is None or (instance.deadline_s is not None and end > instance.deadline_s * (1 + 1e-9)):
            continue
        value = end if instance.objective == "time" else max(_held(instance, order) for order in orders)
        best = value if best is None else min(best, value)
    return best


def _held(instance: ScheduleInstance, order: tuple[Step, ...]) -> float:
    """Most bytes on the device of an order."""
    own = sorted({s for s, _ in order})
    ends = range(len(order) + 1)
    counts = ({(s, kind): order[:end].count((s, kind)) for s in own for kind in "FBW"} for end in ends)
    return max(_bytes(instance, own, done) for done in counts)


def num_orders(instance: ScheduleInstance) -> int:
    """How many orders all devices have together, whatever they hold."""
    found = 1
    for d in range(1 + max(_device(instance, s) for s in range(len(instance.stages)))):
        passes, each = 0, 1
        for s, stage in enumerate(instance.stages):
            if _device(instance, s) == d:
                m = instance.minibatch // stage.microbatch
                own = 2 * m if stage.weight_s is None else 3 * m
                # Standard Young tableaux of 2 or 3 rows of m: the orders of one stage.
                alone = math.comb(2 * m, m) // (m + 1)
                if stage.weight_s is not None:
                    f = math.factorial
                    alone = 2 * f(3 * m) // (f(m) * f(m + 1) * f(m + 2))
                passes += own
                each *= alone * math.comb(passes, own)
        found *= each
    return found


def shared_instance(rng: random.Random, most: int = 3000) -> ScheduleInstance:
    """Split backward passes, several stages on a device, or both; at most so many orders of all devices together."""
    while True:
        count, devices, batch = rng.choice([1, 2, 2, 3, 4]), rng.choice([1, 2, 2]), rng.choice([1, 2, 2, 3])
        is_split, is_whole, counts_chunks = rng.random() < 0.6, rng.random() < 0.6, rng.random() < 0.5
        memory = rng.choice([None, None, 3.0, 4.0, 6.0, 9.0])

        def time(most: int, whole: bool = is_whole) -> float:
            return float(rng.randint(1, most)) if whole else rng.uniform(0.1, most)

        stages = []
        for _ in range(count):
            held = (0.0, 1.0) if counts_chunks else (float(rng.randint(0, 2)), rng.choice([0.1, 0.3, 1.0, 2.0]))
            b = rng.choice([1, batch]) if rng.random() < 0.3 else 1
            cap = rng.choice([None, None, None, 1, 2, 3])
            weight_s = time(4) if is_split and rng.random() < 0.9 else None
            stages.append(ScheduleStage(time(5), time(8), b, 1, cap, *held, memory, weight_s))
        edges = [
            ScheduleEdge(v - 1, v, rng.choice([0.0, 0.0, time(3)])) for v in range(1, count) if rng.random() < 0.85
        ]
        if count > 2 and rng.random() < 0.3:
            edges.append(ScheduleEdge(0, count - 1))
        where = [rng.randrange(devices) for _ in range(count)]
        numbers = {device: place for place, device in enumerate(dict.fromkeys(where))}
        objective, deadline_s = rng.choice(["time", "time", "memory"]), rng.choice([None, None, None, 10 + time(5) * 6])
        on = tuple(numbers[device] for device in where)
        found = ScheduleInstance(
            "shared", batch, tuple(stages), tuple(edges), None, 0.0, objective, deadline_s, devices=on
        )
        if num_orders(found) <= most:
            return found


def random_schedule(rng: random.Random) -> ScheduleInstance:
    """One in three with split backward passes or several stages on a device."""
    return shared_instance(rng, 200) if rng.random() < 1 / 3 else random_instance(rng)


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
        "random", batch, tuple(stages), tuple(edges), rng.choice([None, 2.0]), rng.choice([0.0, 0.5]),
        rng.choice(["time", "time", "memory"]), rng.choice([None, None, 20.0 + time(5) * 12]),
    )  # fmt: skip
