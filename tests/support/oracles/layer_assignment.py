"""Brute force and random instances of layer assignment; shares no code with the room."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise

from instances.problems.layer_assignment import LayerAssignmentInstance, TiedParameters


def step_seconds(instance: LayerAssignmentInstance, lengths: list[int]) -> float:
    """The objective, once more: slowest stage per further micro-batch, all stages, all cuts, slowest all-reduce."""
    layer, times, sending, syncs = 0, [], 0, [0]
    for stage, length in enumerate(lengths):
        mine = set(range(layer, layer + length))
        own = instance.stage_time_s[stage] if instance.stage_time_s else instance.layer_time_s
        times.append(sum(own[each] for each in mine))
        layer += length
        if stage + 1 < len(lengths):
            row = instance.cut_cost_s[layer - 1]
            sending += row[stage] if len(row) > 1 else row[0]
        if instance.ring_s_per_parameter:
            rings = instance.ring_s_per_parameter
            size = sum(instance.parameters[each] for each in mine)
            size += sum(tie.parameters for tie in instance.tied if mine & set(tie.layers))
            syncs.append(size * (rings[stage] if len(rings) > 1 else rings[0]))
    return max(times) * (instance.num_microbatches - 1) + sum(times) + sending + max(syncs)


def optimum(instance: LayerAssignmentInstance) -> float | None:
    """The least objective over all assignments; ``None`` if there is none."""
    layers, stages = len(instance.layer_time_s), instance.num_stages
    values = []
    for cuts in combinations(range(1, layers), stages - 1):
        ends = [0, *cuts, layers]
        values.append(step_seconds(instance, [after - here for here, after in pairwise(ends)]))
    return min(values, default=None)


def random_instance(rng: random.Random, max_layers: int = 9, all_reduce: bool | None = None) -> LayerAssignmentInstance:
    """Small, of integers (many ties) or floats, one column of cut costs or one for each stage; a third by stage."""
    layers = rng.randint(1, max_layers)
    stages = rng.randint(1, layers + 1) if rng.random() < 0.1 else rng.randint(1, layers)
    columns = rng.choice([1, max(1, stages - 1)])
    whole = rng.random() < 0.5

    def number(most: float) -> float:
        return float(rng.randint(0, int(most))) if whole else rng.uniform(0, most)

    syncs = rng.random() < 0.5 if all_reduce is None else all_reduce
    tied = tuple(
        TiedParameters(tuple(rng.sample(range(layers), rng.randint(1, layers))), number(30))
        for _ in range(rng.randint(0, 2) if syncs else 0)
    )
    found = LayerAssignmentInstance(
        "random",
        tuple(number(19) for _ in range(layers)),
        tuple(tuple(number(29) for _ in range(columns)) for _ in range(layers - 1)),
        stages,
        rng.choice([1, 2, 4, 16]),
        parameters=tuple(number(20) for _ in range(layers)) if syncs else (),
        tied=tied,
        ring_s_per_parameter=tuple(number(5) for _ in range(rng.choice([1, stages]))) if syncs else (),
    )
    rng = random.Random(repr(found))  # what `number` draws from
    by_stage = tuple(tuple(number(19) for _ in range(layers)) for _ in range(stages))
    return replace(found, stage_time_s=by_stage) if rng.random() < 1 / 3 else found


def spread(rng: random.Random, low: float, high: float) -> float:
    """A number of any magnitude in between, sometimes 0."""
    return 0.0 if rng.random() < 0.1 else 10 ** rng.uniform(low, high)


def spread_instance(rng: random.Random, max_layers: int = 8, all_reduce: bool = True) -> LayerAssignmentInstance:
    """Times, costs, sizes and rings that each span up to forty powers of ten."""
    layers = rng.randint(2, max_layers)
    stages = rng.randint(1, layers)
    times, costs = rng.choice([(-9, 9), (0, 3), (-30, 30), (15, 19)]), rng.choice([(-9, 9), (0, 3), (-30, 30)])
    sizes, rings = rng.choice([(0, 4), (15, 19), (-5, 19), (0, 30)]), rng.choice([(-22, 0), (-1, 0), (-30, 10)])

    def size() -> float:
        return spread(rng, 15, 19) if rng.random() < 0.4 else spread(rng, *sizes)

    return LayerAssignmentInstance(
        "spread",
        tuple(spread(rng, *times) for _ in range(layers)),
        tuple(tuple(spread(rng, *costs) for _ in range(max(1, stages - 1))) for _ in range(layers - 1)),
        stages,
        rng.choice([1, 2, 16, 1000, 10**6]),
        parameters=tuple(size() for _ in range(layers)) if all_reduce else (),
        tied=(TiedParameters(tuple(rng.sample(range(layers), 2)), size()),)
        if all_reduce and rng.random() < 0.3
        else (),
        ring_s_per_parameter=tuple(spread(rng, *rings) for _ in range(stages)) if all_reduce else (),
    )


def plans(instance: LayerAssignmentInstance) -> Iterator[dict[str, list[int]]]:
    """Every assignment, in JSON form."""
    layers, stages = len(instance.layer_time_s), instance.num_stages
    for cuts in combinations(range(1, layers), stages - 1):
        ends = [0, *cuts, layers]
        yield {"lengths": [after - here for here, after in pairwise(ends)]}
