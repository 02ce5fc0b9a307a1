"""A placed pipeline in figures: its mapping's, and a simulated step of the slowest replica."""

from collections.abc import Sequence
from dataclasses import replace

from formulations.contract.figures.gantt import beside_objective, of_passes
from formulations.contract.figures.objective_parts import flush_parts
from formulations.contract.figures.plan_figures import Breakdown, Network, Picture, Stack, Stage
from formulations.device_mapping.definition.plan_figures import breakdown as of_mapping
from formulations.device_mapping.definition.problem import ring_seconds
from formulations.operator_partitioning.definition.plan_figures import memory_stack, operators_graph
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.problem import evaluate, second_phase, slowest_pipeline
from formulations.pipeline_placement.definition.simulate import simulate_plan
from instances.problems.pipeline_placement import PlacementInstance


def breakdown(instance: PlacementInstance, plan: PlacementPlan) -> Breakdown:
    """The mapping's stages; the bubble is the part of the pipeline's time in which a stage of that replica waits."""
    mapped = of_mapping(second_phase(instance, plan.partition), plan.mapping)
    step = simulate_plan(instance, plan)
    busy = sum(task.end_s - task.start_s for task in step.passes)
    whole = step.pipeline_s * instance.num_stages
    bubble = 1 - busy / whole if whole > 0 else 0.0

    def draw() -> tuple[Picture, ...]:
        network, *others = mapped.pictures
        assert isinstance(network, Network)
        stages = network.stages
        graph = operators_graph(instance.operators, plan.partition, stages)
        parts = []
        if instance.objective == "step":
            says = (
                ", counts the heaviest path of stages once, all other micro-batches where they take longest, and what "
                "is sent as part of a stage; here stages compute while others send"
            )
            parts = [found for found in [_step(instance, plan, stages)] if found is not None]
        else:
            says = (
                ", is the slowest stage's alone, as if the pipeline were always full and nothing overlapped; here it "
                "fills and drains, and stages compute while others send"
            )
        passes = of_passes("A step of the slowest replica, simulated (1F1B)", step.passes, stages)
        passes = beside_objective(passes, evaluate(instance, plan), says, step.allreduce_s)
        memory = memory_stack(instance.operators, plan.partition, stages)
        return (network, graph, *others, *parts, *memory, passes)

    figures = {**mapped.figures, "simulated_step_s": step.seconds, "bubble_share": bubble}
    ids = [[instance.operators.operators[each].id for each in members] for members in plan.partition.stages]
    rows = tuple({"nodes": own, **row} for own, row in zip(ids, mapped.rows, strict=True))
    return replace(mapped, rows=rows, figures=figures, draw=draw)


def _step(instance: PlacementInstance, plan: PlacementPlan, stages: Sequence[Stage]) -> Stack | None:
    """What each stage of the slowest replica adds to a step."""
    second, (times, path) = second_phase(instance, plan.partition), slowest_pipeline(instance, plan)
    others = [(instance.microbatches - 1) * time for time in times]
    filling = [time if stage in path else 0.0 for stage, time in enumerate(times)]
    rings = [ring_seconds(second, plan.mapping, stage) for stage in range(second.num_stages)]
    return flush_parts(others, 1, filling, rings, stages, "step", "s")
