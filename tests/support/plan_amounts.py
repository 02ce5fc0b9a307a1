"""What every plan of a tiny instance takes, each figure from the plan's JSON or by formulas of the tests' own."""

import importlib
import math
from itertools import islice
from typing import Any

from formulations.operator_partitioning.definition.problem import most_memory
from formulations.stage_graph.definition.problem import memory_bytes
from formulations.training_strategy.definition.problem import peak_memory
from planner.files.load import family_of

MOST_PLANS = 3_000


def fullest(instance: Any, plan: Any) -> float:
    """Parameters of the stage that holds most: those of its layers, and what some of them share, once."""
    start, found = 0, []
    for length in plan.lengths:
        held = set(range(start, start + length))
        tied = [tie.parameters for tie in instance.tied if held & set(tie.layers)]
        found.append(math.fsum([*(instance.parameters[layer] for layer in held), *tied]))
        start += length
    return max(found)


def of_stage_graph(instance: Any, plan: Any) -> float:
    """Bytes of the device that holds most."""
    return max(memory_bytes(instance, stage) for stage in plan.stages)


OTHERS = {
    "operator_partitioning": most_memory, "stage_graph": of_stage_graph, "layer_assignment": fullest,
    "training_strategy": lambda instance, plan: max(peak_memory(instance, plan)),
}  # fmt: skip


def everything(instance: Any) -> list[dict[str, float]] | None:
    """What every plan takes, each figure from the plan's JSON; ``None``: too many plans."""
    found = plans_with_amounts(instance)
    return None if found is None else [amounts for _, amounts in found]


def plans_with_amounts(instance: Any) -> list[tuple[Any, dict[str, float]]] | None:
    """Every plan with what it takes, as `everything` has it."""
    family = family_of(instance)
    oracle = importlib.import_module(f"oracles.{family.name}")
    listed = list(islice(oracle.plans(instance), MOST_PLANS + 1))
    if len(listed) > MOST_PLANS:
        return None
    plans = [(each, family.plan_from_json(instance, each)) for each in listed]
    return [(plan, taken(instance, each, plan)) for each, plan in plans if not family.judge(instance, plan)]


def taken(instance: Any, content: dict[str, Any], plan: Any) -> dict[str, float]:
    """Time, memory and devices of a plan."""
    family = family_of(instance)
    if family.name in OTHERS:
        devices = {"devices": sum(each.devices for each in plan.stages)} if family.name == "stage_graph" else {}
        if "pp_degree" in content:
            devices["devices"] = content["pp_degree"] * content["tp_degree"] * content["dp_degree"]
        return {"time": family.evaluate(instance, plan), "memory": OTHERS[family.name](instance, plan), **devices}
    flat, is_gpipe = getattr(instance, "flat", instance), getattr(instance, "schedule", "") == "gpipe"
    tmpcs = {(layer.id, t, x.id): x for layer in flat.layers for t, found in layer.tmpcs.items() for x in found}
    memory, later = 0.0, 0
    for stage in reversed(content["stages"]):
        later += stage["dp_degree"]
        in_flight = -(-(flat.num_microbatches if is_gpipe else later) // stage["dp_degree"])
        chosen = [tmpcs[v, stage["tp_degree"], stage["tmpcs"][str(v)]] for v in stage["nodes"]]
        memory = max(memory, sum(x.activation_bytes * in_flight + x.static_bytes for x in chosen))
    devices = sum(stage["dp_degree"] * stage["tp_degree"] for stage in content["stages"])
    return {"time": family.evaluate(instance, plan), "memory": memory, "devices": devices}
