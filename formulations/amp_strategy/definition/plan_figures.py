"""A strategy in figures: those of the layer assignment that its degrees and placement leave."""

from dataclasses import replace
from itertools import product

from formulations.amp_strategy.definition.plan import StrategyPlan
from formulations.amp_strategy.definition.problem import evaluate, layer_assignment
from formulations.contract.figures.plan_figures import Breakdown, Network, Picture, Place, Strip
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.plan_figures import breakdown as of_layers
from instances.problems.amp_strategy import AmpInstance


def breakdown(instance: AmpInstance, plan: StrategyPlan) -> Breakdown:
    """The stages of the strategy's pipeline, and the devices they are on."""
    degrees = plan.degrees
    left = layer_assignment(instance, degrees, plan.placement)
    words = f"dp {degrees.dp_degree} x tp {degrees.tp_degree}"
    found = of_layers(left, LayerPlan(plan.lengths), words)

    def draw() -> tuple[Picture, ...]:
        strip, *others = found.pictures
        assert isinstance(strip, Strip)
        stages = [replace(stage, replicas=degrees.dp_degree) for stage in strip.stages]
        return (replace(strip, stages=stages), *others, _network(instance, plan, strip))

    ranks = list(product(range(degrees.dp_degree), range(degrees.tp_degree)))
    homes = [[plan.placement[degrees.rank(stage, *own)] for own in ranks] for stage in range(degrees.pp_degree)]
    step = evaluate(instance, plan)
    return replace(
        found,
        rows=tuple({**row, "devices": home} for row, home in zip(found.rows, homes, strict=True)),
        figures={
            **found.figures,
            "microbatch": degrees.microbatch,
            "samples_per_s": instance.global_batch / step if step > 0 else None,
        },
        draw=draw,
        degrees=[(degrees.dp_degree, degrees.tp_degree)] * degrees.pp_degree,
        devices=(degrees.pp_degree * degrees.dp_degree * degrees.tp_degree, instance.num_devices),
    )


def _network(instance: AmpInstance, plan: StrategyPlan, strip: Strip) -> Network:
    """Every device in its node, with the stage and the data-parallel rank that it has."""
    degrees, rows = plan.degrees, instance.devices_per_node
    places = []
    for stage in range(degrees.pp_degree):
        for replica in range(degrees.dp_degree):
            for shard in range(degrees.tp_degree):
                device = plan.placement[degrees.rank(stage, replica, shard)]
                places.append(Place(device, device // rows, device % rows, device // rows, stage, replica))
    names = [node.gpu for node in instance.nodes]
    return Network("Devices of each stage", sorted(places, key=lambda p: p.device), (), strip.stages, names)
