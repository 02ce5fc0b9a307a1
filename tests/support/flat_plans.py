"""A flat plan on machines: as superstages where its degrees allow it, else replica by replica, and what it costs there.

This is how docs/findings.md measures what the flat network model promises (Piper, Appendix E).

Source: this project; the costs are those of Piper, Appendix E, and `spread_time` is their only extension.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan, Superstage
from formulations.hierarchical_partitioning.definition.problem import superstage_time, whole_weight
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import stage_time
from instances.problems.hierarchical_partitioning import HierarchicalInstance

#: Replicas of every stage on every machine: ``spread[stage][machine]``.
Spread = Sequence[Sequence[int]]


def place(instance: HierarchicalInstance, plan: StagePlan) -> HierarchicalPlan | None:
    """The fastest hierarchical plan that flattens to ``plan``; ``None`` if there is none.

    Stages, nodes, TMPCs, t and d = d_1 d_2 stay as they are; a recursion over the stages finds the best superstages.
    ``best[i][m]`` is the least time of the first i stages on m machines, and the plan that has it. A stage does not
    straddle machines but by replicas: d_2 divides the degree of every stage of a superstage.
    """
    K1, K2, n = instance.devices_per_machine, instance.num_machines, len(plan.stages)
    best: list[list[tuple[float, tuple[Superstage, ...]]]] = [[(math.inf, ())] * (K2 + 1) for _ in range(n + 1)]
    best[0] = [(0.0, ())] * (K2 + 1)
    for i in range(n):
        for j in range(i + 1, n + 1):
            stages = plan.stages[i:j]
            for d2 in range(1, K2 + 1):
                if any(stage.dp_degree % d2 for stage in stages):
                    continue
                inner = tuple(replace(stage, dp_degree=stage.dp_degree // d2) for stage in stages)
                superstage = Superstage(d2, inner)
                if superstage.num_devices > K1:
                    continue
                time = superstage_time(instance, superstage)
                for m in range(d2, K2 + 1):
                    before, earlier = best[i][m - d2]
                    if max(before, time) < best[j][m][0]:
                        best[j][m] = (max(before, time), (*earlier, superstage))
    time, found = best[n][K2]
    return HierarchicalPlan(found) if math.isfinite(time) else None


def spread_replicas(instance: HierarchicalInstance, plan: StagePlan) -> Spread | None:
    """Replicas put one by one on the first machine with t free devices; ``None`` if one finds no machine.

    In the order of the stages, so that neighbours share machines; where that leaves no room, by falling t, which wastes
    no device if every t divides the larger ones and a machine.
    """
    stages = list(enumerate(plan.stages))
    return _first_fit(instance, plan, [i for i, _ in stages]) or _first_fit(
        instance, plan, [i for i, _ in sorted(stages, key=lambda found: -found[1].tp_degree)]
    )


def _first_fit(instance: HierarchicalInstance, plan: StagePlan, order: list[int]) -> Spread | None:
    free = [instance.devices_per_machine] * instance.num_machines
    counts = [[0] * instance.num_machines for _ in plan.stages]
    for i in order:
        t = plan.stages[i].tp_degree
        for _ in range(plan.stages[i].dp_degree):
            machine = next((m for m, left in enumerate(free) if left >= t), None)
            if machine is None:
                return None
            free[machine] -= t
            counts[i][machine] += 1
    return counts


def spread_time(instance: HierarchicalInstance, plan: StagePlan, counts: Spread) -> float:
    """Time per sample of a flat plan whose replicas are spread over machines in any way.

    A machine takes its share f of a stage's samples, the part of the stage's replicas that it holds. Over its link
    goes, for every edge, what the shares of the two ends differ by: 2 c |f - f'|. The weights of a stage on m machines
    take 4 (m-1)/m w / m of each link, and 4 (d_1-1)/d_1 w / d of a device, d_1 being the most replicas of the stage on
    one machine. On superstages all of this is the appendix's cost.
    """
    flat, machines = instance.flat, range(instance.num_machines)
    held = {node: i for i, stage in enumerate(plan.stages) for node in stage.nodes}
    layers = {layer.id: layer for layer in flat.layers}
    share = [[count / stage.dp_degree for count in row] for row, stage in zip(counts, plan.stages, strict=True)]
    weights = [math.fsum(whole_weight(layers[node]) for node in stage.nodes) for stage in plan.stages]
    used = [sum(count > 0 for count in row) for row in counts]
    worst = 0.0
    for machine in machines:
        volume = [
            2 * edge.bytes * abs(share[held[edge.source]][machine] - share[held[edge.target]][machine])
            for edge in flat.edges
        ]
        volume += [
            4 * (m - 1) / m * weight / m for m, weight, row in zip(used, weights, counts, strict=True) if row[machine]
        ]
        worst = max(worst, math.fsum(volume) / instance.outer_bandwidth)
    for stage, row in zip(plan.stages, counts, strict=True):
        d1 = max(row)
        # One stage of d_1 replicas in a machine, which d / d_1 machines share.
        worst = max(worst, stage_time(instance.inner, replace(stage, dp_degree=d1)) * d1 / stage.dp_degree)
    return worst
