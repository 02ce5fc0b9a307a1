"""A training strategy in figures: times, gradients and memory of every chunk, and the iteration as it runs."""

import math
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from formulations.contract.figures.gantt import MOST_SHOWN, beside_objective, waiting_share
from formulations.contract.figures.plan_figures import (
    Breakdown,
    Item,
    Passes,
    Picture,
    Stack,
    Stage,
    Strip,
    Task,
    stages_of,
)
from formulations.contract.figures.throughput import samples, throughput
from formulations.simulation.iteration import Iteration
from formulations.simulation.orders import SCHEDULES
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import (
    chosen,
    chunk_times,
    evaluate,
    gradient_sum,
    host_time,
    iteration,
    peak_memory,
)
from instances.problems.training_strategy import StrategyInstance

_BEHIND = " of a batch, counts what passes do not hide of the sums of gradients behind them"
#: What plans share, and what they do if they share nothing.
_SHARED = {each.name: each.default for each in fields(StrategyPlan) if each.default is not MISSING}
_SAYS = " of a batch, adds the longest sum of gradients to the end of these passes"


def breakdown(instance: StrategyInstance, plan: StrategyPlan) -> Breakdown:
    """Every chunk's times of a micro-batch, its sum of gradients, and what its device holds at most.

    ``exposed_gradients`` has ``host_time`` in it, what states there take behind these sums. The bubble is the part of
    all devices' time, until gradients are summed, in which they wait.
    """
    times = [chunk_times(instance, plan, chunk) for chunk in plan.chunks]
    sums = [gradient_sum(instance, plan, chunk) for chunk in plan.chunks]
    hosts = [host_time(instance, plan, chunk) for chunk in plan.chunks]
    memory = peak_memory(instance, plan)
    ran, total = iteration(instance, plan), evaluate(instance, plan)
    m = instance.flat.num_microbatches // plan.dp_degree
    steps = [own.forward + own.backward + own.weight for own in times]
    busy = m * math.fsum(steps)
    home = SCHEDULES[plan.schedule].devices(plan.pp_degree, plan.virtual_stages)
    rows = [
        {
            "layers": list(plan.chunks[g]),
            "devices": [home[g]],
            "forward_time": own.forward,
            "backward_time": own.backward + own.weight,
            "gradient_time": summed,
            "memory_bytes": memory[home[g]],
            "slack_bytes": instance.flat.memory_bytes - memory[home[g]],
        }
        for g, (own, summed) in enumerate(zip(times, sums, strict=True))
    ]
    per_sample = total / instance.flat.num_microbatches
    lanes = plan.pp_degree * ran.makespan_s
    figures: dict[str, Any] = {
        "schedule": str(plan.schedule),
        "degrees": f"pp {plan.pp_degree} x dp {plan.dp_degree} x tp {plan.tp_degree}",
        **{name: own for name, least in _SHARED.items() if (own := getattr(plan, name)) != least},
        "batch_time": total,
        **({"host_time": max(math.fsum(hosts[g] for g in own) for own in plan.held)} if any(hosts) else {}),
        **({"exposed_gradients": total - ran.makespan_s} if instance.overlaps_gradients else {}),
        "bubble_share": max(0.0, 1 - busy / lanes) if lanes > 0 else 0.0,
        "devices_used": plan.num_devices,
        **(throughput(instance.flat, per_sample) or samples(instance.flat, per_sample)),
    }
    stages = stages_of(steps)
    return Breakdown(
        tuple(rows),
        figures,
        lambda: _pictures(instance, plan, ran, stages, total),
        lambda: _strip(instance, plan, stages),
        "stage" if len(plan.chunks) == plan.pp_degree else "chunk",
        [(plan.dp_degree, plan.tp_degree)] * len(plan.chunks),
        (figures["devices_used"], instance.flat.num_devices),
    )


def _pictures(
    instance: StrategyInstance, plan: StrategyPlan, ran: Iteration, stages: Sequence[Stage], total: float
) -> tuple[Picture, ...]:
    flat, p = instance.flat, plan.pp_degree
    times = [chunk_times(instance, plan, chunk) for chunk in plan.chunks]
    parts = {
        "forward": [own.forward for own in times],
        "backward": [own.backward for own in times],
        "weight gradients": [own.weight for own in times],
    }
    static = [
        math.fsum(chosen(instance, plan, v).static_bytes for g in own for v in plan.chunks[g]) for own in plan.held
    ]
    peak = peak_memory(instance, plan)
    devices = tuple(Stage(str(device)) for device in range(p))
    held = {
        "always stored (one sum)": static,
        "activations in flight": [b - a for a, b in zip(static, peak, strict=True)],
    }
    says, longest = _BEHIND if instance.overlaps_gradients else _SAYS, total - ran.makespan_s
    what = "sum of gradients" + (" with what hosts take" if instance.host_bandwidth is not None else "")
    return (
        _strip(instance, plan, stages),
        Stack("A micro-batch in each chunk", stages, {k: v for k, v in parts.items() if any(v)} or parts,
              "time of a micro-batch", flat.time_unit),
        Stack("Memory of each device of a pipeline", devices, held, "memory of a device", "bytes",
              [flat.memory_bytes] * p),
        beside_objective(_passes(ran, stages, p, flat.time_unit), total, says, longest, what),
    )  # fmt: skip


def _passes(ran: Iteration, stages: Sequence[Stage], p: int, unit: str) -> Passes:
    """What runs when; W is drawn as a backward pass, and of long iterations the first passes."""
    tasks = sorted(
        (
            Task(stage, "F" if kind == "F" else "B", j, end - ran.stages.seconds(action), end)
            for action, end in ran.end_s.items()
            for kind, stage, j in [action]
        ),
        key=lambda task: task.start,
    )
    share = waiting_share(tasks, p, 0.0, ran.makespan_s)
    title = "An iteration, simulated"
    if len(tasks) > MOST_SHOWN:
        title = f"{title}: the first {MOST_SHOWN} of {len(tasks)} passes"
    return Passes(title, sorted(tasks[:MOST_SHOWN]), stages, share, unit, end=ran.makespan_s)


def _strip(instance: StrategyInstance, plan: StrategyPlan, stages: Sequence[Stage]) -> Strip:
    """The layers, chunk by chunk, as wide as a micro-batch takes, with the TMPCs chosen for them."""
    flat, items = instance.flat, []
    for position, chunk in enumerate(plan.chunks):
        for node in chunk:
            layer, x = flat.layers[flat.index[node]], chosen(instance, plan, node)
            amounts = "time", "weight_bytes", "activation_bytes", "static_bytes"
            figures = {"id": layer.id} | {name: getattr(x, name) for name in amounts}
            has_choice = len(layer.tmpcs[plan.tp_degree]) > 1
            items.append(Item(layer.name or str(layer.id), position, x.time, x.id if has_choice else "", figures))
    return Strip("Layers by chunk", items, stages, f"compute of a micro-batch, {flat.time_unit}")
