"""Random training strategies, brute force with Megatron's placement, and all plans; shares no code with the room."""

import math
import random
from collections.abc import Iterator
from itertools import combinations, pairwise, permutations
from typing import Any

from instances.problems.amp_strategy import AmpInstance, ModelLayer, Node
from instances.problems.layer_assignment import TiedParameters


def random_instance(rng: random.Random) -> AmpInstance:
    layers = rng.randint(2, 7)
    kinds = ("slow", "fast")
    return AmpInstance(
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


def brute_force(instance: AmpInstance) -> float:
    """The least step time with Megatron's placement, priced once more; ``inf`` if no degrees have a plan."""
    size, devices, batch = instance.devices_per_node, instance.num_devices, instance.global_batch

    def link(a: int, b: int) -> float:
        first, second = instance.nodes[a // size], instance.nodes[b // size]
        if a // size == b // size:
            return first.intra_bytes_per_s
        return min(first.inter_bytes_per_s, second.inter_bytes_per_s)

    def seconds(tp: int, dp: int, pp: int, mbs: int, ends: tuple[int, ...]) -> float:
        def who(stage: int, d: int, m: int) -> int:
            return stage * tp * dp + d * tp + m

        times, syncs, sending = [], [0.0], 0.0
        for stage in range(pp):
            mine = range(ends[stage], ends[stage + 1])
            forward = [sum(instance.layers[i].forward_s[n.gpu][tp] for n in instance.nodes) for i in mine]
            times.append(instance.passes * mbs * sum(forward) / len(instance.nodes))
            held = sum(instance.layers[i].parameters for i in mine)
            held += sum(tie.parameters for tie in instance.tied if set(mine) & set(tie.layers))
            for m in range(tp if dp > 1 else 0):
                slowest = min(link(who(stage, d, m), who(stage, (d + 1) % dp, m)) for d in range(dp))
                syncs.append(2 * (dp - 1) / dp * instance.parameter_bytes * held / tp / slowest)
            if stage + 1 < pp:
                last = instance.layers[ends[stage + 1] - 1]
                volume = mbs * last.activation_bytes / (tp if last.split_activation else 1)
                for d in range(dp):
                    sending += volume / min(link(who(stage, d, m), who(stage + 1, d, m)) for m in range(tp)) / dp
        return (batch // dp // mbs - 1) * max(times) + sum(times) + sending + max(syncs)

    layers = len(instance.layers)
    steps = (
        seconds(tp, dp, devices // tp // dp, mbs, (0, *cuts, layers))
        for tp in range(1, size + 1)
        for dp in range(1, devices + 1)
        if size % tp == 0 and devices % (tp * dp) == 0 and batch % dp == 0
        for mbs in range(1, batch + 1)
        if batch % (dp * mbs) == 0
        for cuts in combinations(range(1, layers), devices // tp // dp - 1)
    )
    return min(steps, default=math.inf)


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
