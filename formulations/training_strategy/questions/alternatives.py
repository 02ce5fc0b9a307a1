"""Which plans are distinct, and what they take beside time."""

from dataclasses import replace

from formulations.contract.alternatives import Axis, Nearby, Pin
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import most_chunks, peak_memory
from instances.problems.training_strategy import StrategyInstance


def pins(instance: StrategyInstance, plan: StrategyPlan) -> list[Pin]:
    """The degrees, the schedule, and what is shared: by one replica nothing, whatever the level."""
    flat, K = instance.flat, instance.flat.num_devices
    ends = {
        "pp_degree": (1, K),
        "tp_degree": (flat.tp_degrees[0], flat.tp_degrees[-1]),
        "dp_degree": (1, K),
        "virtual_stages": (1, most_chunks(instance)),
        "cp_degree": (min(instance.cp_degrees), max(instance.cp_degrees)),
        "ep_degree": (min(instance.ep_degrees), max(instance.ep_degrees)),
        "shard_groups": (1, max(instance.groups(1), default=1) if instance.shard_groups else K),
        "sequence_parallel": (0, 1),
    }
    if plan.replicas > 1:
        ends["sharding"] = min(instance.levels), max(instance.levels)
    found = [Pin(name, (), int(getattr(plan, name)), least, most) for name, (least, most) in ends.items()]
    return [*found, *(Pin("schedule", (name,), int(plan.schedule == name), 0, 1) for name in instance.schedules[1:])]


NEARBY = Nearby(
    "degrees, schedule, or what devices share; chunks and recomputation are the best for these",
    pins,
    {
        "memory": Axis(
            lambda instance, plan: max(peak_memory(instance, plan)),
            lambda instance, amount: replace(instance, flat=replace(instance.flat, memory_bytes=amount)),
            lambda instance: instance.flat.memory_bytes,
            "B",
        ),
        "devices": Axis(
            lambda _, plan: plan.num_devices,
            lambda instance, amount: replace(instance, flat=replace(instance.flat, num_devices=amount)),
            lambda instance: instance.flat.num_devices,
        ),
    },
)
