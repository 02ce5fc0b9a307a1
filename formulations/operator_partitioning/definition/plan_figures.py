"""A plan of operator partitioning in figures: what a stage computes and sends, and what it holds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from formulations.contract.figures.gantt import beside_objective, forward_and_backward, one_f_one_b
from formulations.contract.figures.graph_condensation import model_graph, stage_graph
from formulations.contract.figures.objective_parts import flush_parts
from formulations.contract.figures.plan_figures import (
    Breakdown,
    Graph,
    Passes,
    Picture,
    Stack,
    Stage,
    slowest,
    stages_of,
    states,
)
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import (
    all_reduce_seconds,
    capacity_bytes,
    crossing_bytes,
    evaluate,
    heaviest_path,
    memory_bytes,
    memory_terms,
    microbatches_each,
    stage_of,
    stage_seconds,
)
from instances.problems.microbatch_schedule import ScheduleEdge, ScheduleInstance, ScheduleStage
from instances.problems.operator_partitioning import OperatorInstance

#: Micro-batches of a picture where the instance declares none.
_MICROBATCHES = 4


def breakdown(instance: OperatorInstance, plan: OperatorPlan) -> Breakdown:
    """Every stage's seconds for a micro-batch, its share of communication, its all-reduce, and its memory."""
    seconds = stage_seconds(instance, plan)
    shares = plan.replicas if instance.objective == "stage" else (1,) * len(plan.stages)
    rows: list[dict[str, Any]] = []
    for stage, (members, replicas) in enumerate(zip(plan.stages, plan.replicas, strict=True)):
        compute = math.fsum(instance.operators[operator].compute_s for operator in members)
        held = memory_bytes(instance, members, len(plan.stages) - stage)
        capacity = capacity_bytes(instance, replicas)
        room = {} if math.isinf(capacity) else {"slack_bytes": capacity - held}
        rows.append(
            {
                "nodes": [instance.operators[operator].id for operator in members],
                "stage_s": seconds[stage] / shares[stage],
                "compute_s": compute,
                "communication_s": seconds[stage] - compute,
                "all_reduce_s": all_reduce_seconds(instance, members, replicas),
                "memory_bytes": held,
                **room,
            }
        )
    return Breakdown(
        tuple(rows),
        {"bottleneck": f"stage {slowest([row['stage_s'] for row in rows])}"},
        lambda: pictures(instance, plan, rows, shares),
        degrees=[(replicas, 1) for replicas in plan.replicas],
        devices=None if instance.num_devices is None else (sum(plan.replicas), instance.num_devices),
    )


def pictures(
    instance: OperatorInstance, plan: OperatorPlan, rows: Sequence[Mapping[str, Any]], shares: Sequence[int]
) -> tuple[Picture, ...]:
    """The graph of the model and that of the stages, time and memory of each, and a simulated iteration."""
    times = [row["stage_s"] for row in rows]
    stages = stages_of(times, [f"{count} replicas" if count > 1 else "" for count in plan.replicas], plan.replicas)
    volumes = crossing_bytes(instance, plan)
    parts = {
        "compute": [row["compute_s"] / share for row, share in zip(rows, shares, strict=True)],
        "transfer": [row["communication_s"] / share for row, share in zip(rows, shares, strict=True)],
    }
    parts = {name: values for name, values in parts.items() if name == "compute" or any(values)}
    texts = [f"{len(members)} operators" for members in plan.stages]
    ids = [[instance.operators[each].id for each in members] for members in plan.stages]
    graph = operators_graph(instance, plan, stages)
    return (
        *([graph] if len(graph.nodes) > len(stages) else []),
        stage_graph("Stages", texts, ids, [(a, b, size) for (a, b), size in volumes.items()], stages),
        Stack("Time of a micro-batch in each stage", stages, parts, "time of a micro-batch", "s"),
        *_together(instance, plan, rows, stages),
        *memory_stack(instance, plan, stages),
        _passes(instance, plan, times, list(volumes), stages),
    )


def memory_stack(instance: OperatorInstance, plan: OperatorPlan, stages: Sequence[Stage]) -> list[Stack]:
    """What a replica of each stage holds, in the parts that the instance declares; none where it declares no bytes."""
    training, count = instance.training, len(plan.stages)
    terms = [memory_terms(instance, members, count - stage) for stage, members in enumerate(plan.stages)]
    held = {name: [math.fsum(each[name]) for each in terms] for name in (terms[0] if terms else ())}
    parts = {"declared (one sum)": held.pop("declared", [])}
    if training is not None:
        weights = [math.fsum(instance.operators[each].parameter_bytes for each in members) for members in plan.stages]
        working = "activations of a micro-batch" if training.recompute else "activations in flight"
        parts |= states(weights, training.weight_copies)
        parts |= {"inputs in flight": held["inputs"], working: held["activations"]}
    parts = {name: values for name, values in parts.items() if any(values)}
    limits = None if instance.memory_bytes is None else [capacity_bytes(instance, each) for each in plan.replicas]
    return [Stack("Memory of each stage", stages, parts, "memory of a stage", "bytes", limits)] if parts else []


def _together(
    instance: OperatorInstance, plan: OperatorPlan, rows: Sequence[Mapping[str, Any]], stages: Sequence[Stage]
) -> list[Stack]:
    """Where a step is minimised, what each stage adds to it."""
    if instance.objective == "stage":
        return []
    times, rings = [row["stage_s"] for row in rows], [row["all_reduce_s"] for row in rows]
    if instance.flushed:
        path = heaviest_path(times, crossing_bytes(instance, plan))
        filling = [time if stage in path else 0.0 for stage, time in enumerate(times)]
        counts = (microbatches_each(instance, replicas) - 1 for replicas in plan.replicas)
        times, rounds = [count * time for count, time in zip(counts, times, strict=True)], 1
    else:
        rounds, slow = microbatches_each(instance, plan.replicas[0]), slowest(times)
        filling = [(len(times) - 1) * time if stage == slow else 0.0 for stage, time in enumerate(times)]
    found = flush_parts(times, rounds, filling, rings, stages, "step", "s")
    return [] if found is None else [found]


def _passes(
    instance: OperatorInstance,
    plan: OperatorPlan,
    times: Sequence[float],
    edges: Sequence[tuple[int, int]],
    stages: Sequence[Stage],
) -> Passes:
    """An iteration of one replica, which the objective counts in another way."""
    is_step = instance.objective == "step"
    if is_step:
        count = microbatches_each(instance, min(plan.replicas))
    else:
        count = instance.training.microbatches if instance.training else _MICROBATCHES
    schedule = ScheduleInstance(
        instance.name,
        count,
        tuple(ScheduleStage(*forward_and_backward(time)) for time in times),
        tuple(ScheduleEdge(source, target) for source, target in edges),
    )
    passes, objective = one_f_one_b(schedule, stages), evaluate(instance, plan)
    if not is_step:
        says = (
            " for a micro-batch, is the slowest stage's alone, as if the pipeline were always full; here it fills and "
            "drains, too"
        )
        return beside_objective(passes, objective, says)
    ring = max(all_reduce_seconds(instance, *of) for of in zip(plan.stages, plan.replicas, strict=True))
    if instance.flushed:
        says = (
            " for a step, counts the heaviest path of stages once, and all other micro-batches where they take longest"
        )
        return beside_objective(passes, objective, says, ring)
    sooner = "; here faster stages fill and drain the pipeline sooner" if len(times) > 1 else ""
    says = f" for a step, counts {count} + {len(times) - 1} rounds of the slowest stage{sooner}"
    return beside_objective(passes, objective, says, ring)


def operators_graph(instance: OperatorInstance, plan: OperatorPlan, stages: Sequence[Stage]) -> Graph:
    """The model's graph, operators in the colours of their stages."""
    tensors = [(t.source, t.targets, t.volume_bytes) for t in instance.tensors]
    figures = [{"compute_s": o.compute_s, "parameter_bytes": o.parameter_bytes} for o in instance.operators]
    names, ids = [each.name for each in instance.operators], [each.id for each in instance.operators]
    return model_graph("Operators by stage", names, ids, figures, tensors, stage_of(plan), stages)
