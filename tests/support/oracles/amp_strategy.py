"""Random training strategies, brute force with Megatron's placement, and all plans; shares no code with the room."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise, permutations
from typing import Any

from instances.problems.amp_strategy import AmpInstance, ModelLayer, Node
from instances.problems.layer_assignment import TiedParameters


def random_instance(rng: random.Random) -> AmpInstance:
    layers = rng.randint(2, 7)
    kinds = ("slow", "fast")
    found = AmpInstance(
        "random",
        tuple(Node(rng.choice(kinds), float(rng.randint(4, 9)), float(rng.randint(1, 5))) for _ in range(2)),
        2,
        tuple(
            ModelLayer(
                {kind: {1: float(rng.randint(1, 9)), 2: float(rng.randint(1, 6))} for kind in kinds},
                float(rng.randint(0, 20)),
                float(rng.randint(0, 4)),
                rng.random() < 0.3,
            )
            for _ in range(layers)
        ),
        rng.choice([2, 4, 8]),
        tied=(TiedParameters((0, layers - 1), 3.0),) if rng.random() < 0.5 else (),
    )
    return replace(found, layer_times=random.Random(repr(found)).choice(["mean", "slowest"]))


def price(instance: AmpInstance, plan: dict) -> float:
    """The time of a plan, once more; exactly, where the numbers of the instance are fractions."""
    t, d, S, b = (plan[name] for name in ("tp_degree", "dp_degree", "pp_degree", "microbatch"))
    at, size = plan["placement"], instance.devices_per_node

    def link(x: int, y: int) -> float:
        here, there = instance.nodes[x // size], instance.nodes[y // size]
        if x // size == y // size:
            return here.intra_bytes_per_s
        return min(here.inter_bytes_per_s, there.inter_bytes_per_s)

    def who(stage: int, rank: int, m: int) -> int:
        return at[(stage * d + rank) * t + m]

    times, reduced, sent, begin = [], [0], 0, 0
    for stage, length in enumerate(plan["lengths"]):
        mine = range(begin, begin + length)
        begin += length
        having = {who(stage, rank, m) // size for rank in range(d) for m in range(t)}
        rows = [[instance.layers[v].forward_s[node.gpu][t] for node in instance.nodes] for v in mine]
        slowest, mean = sum(max(row[x] for x in having) for row in rows), sum(map(sum, rows)) / len(instance.nodes)
        times.append(instance.passes * b * (mean if instance.layer_times == "mean" else slowest))
        held = sum(instance.layers[v].parameters for v in mine)
        held += sum(tie.parameters for tie in instance.tied if {*mine} & {*tie.layers})
        for m in range(t if d > 1 else 0):
            slowest = min(link(who(stage, rank, m), who(stage, (rank + 1) % d, m)) for rank in range(d))
            reduced.append(2 * (d - 1) * instance.parameter_bytes * held / d / t / slowest)
        if stage + 1 < S:
            last = instance.layers[begin - 1]
            volume = b * last.activation_bytes / (t if last.split_activation else 1)
            pairs = [min(link(who(stage, rank, m), who(stage + 1, rank, m)) for m in range(t)) for rank in range(d)]
            sent += sum(volume / slowest for slowest in pairs) / d
    return (instance.global_batch // d // b - 1) * max(times) + sum(times) + sent + max(reduced)


def brute_force(instance: AmpInstance) -> float:
    """The least step time with Megatron's placement; ``inf`` if no degrees have a plan."""
    return min((price(instance, plan) for plan in plans(replace(instance, placement="megatron"))), default=math.inf)


def plans(instance: AmpInstance) -> Iterator[dict[str, Any]]:
    """All degrees, micro-batches and cuts, in JSON form, with Megatron's placement or any order of devices."""
    layers, devices, batch = len(instance.layers), instance.num_devices, instance.global_batch
    orders = [tuple(range(devices))] if instance.placement == "megatron" else list(permutations(range(devices)))
    for tp in range(1, devices + 1):
        for dp in range(1, devices // tp + 1):
            pp = devices // (tp * dp)
            for mbs in range(1, batch // dp + 1):
                if tp * dp * pp != devices or batch % (dp * mbs) or instance.devices_per_node % tp:
                    continue
                for cuts in combinations(range(1, layers), pp - 1):
                    lengths = [after - here for here, after in pairwise((0, *cuts, layers))]
                    for order in orders:
                        yield {"microbatch": mbs, "tp_degree": tp, "dp_degree": dp, "pp_degree": pp,
                               "lengths": lengths, "placement": list(order)}  # fmt: skip
