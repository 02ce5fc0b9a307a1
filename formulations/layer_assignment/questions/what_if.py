"""What may be in conflict in an instance of layer assignment, what may repair it, and which numbers may be off."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from formulations.contract.what_if import (
    Change,
    Factor,
    Member,
    More,
    one_requirement_less,
    requirement_members,
    rules_among,
    stage_rows,
    with_fewer_stages,
    without_requirements,
)
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import cuts
from formulations.layer_assignment.definition.settings import Instance, is_per_stage

#: An instance with some of its costs so many times what they are.
Scaled = Callable[[Instance, float], Instance]


def members(instance: Instance) -> tuple[Member, ...]:
    """The number of stages, and the requirements."""
    S, L = instance.num_stages, instance.num_layers
    stages = Member("rule", "stages", f"there are {S} stages, each with at least one of the {L} layers")
    return (stages, *requirement_members(instance))


def relax(instance: Instance, dropped: frozenset[Member]) -> list[Instance]:
    """Without the rule there may be any number of stages."""
    kept = without_requirements(instance, dropped)
    if "stages" not in rules_among(dropped):
        return [kept]
    if not kept.requirements:
        return [with_stages(kept, min(kept.num_stages, kept.num_layers))]
    return [
        with_stages(kept, stages) for stages in (kept.num_stages, *_other_stages(kept)) if stages <= kept.num_layers
    ]


def _other_stages(instance: Instance) -> list[int]:
    """Other numbers of stages, the nearest first, that the requirements on absent stages allow."""
    every = sorted(range(1, instance.num_layers + 1), key=lambda stages: abs(stages - instance.num_stages))
    return [each for each in every if each != instance.num_stages and _kept(instance, each) is not None]


def _kept(instance: Instance, stages: int) -> tuple[str, ...] | None:
    return with_fewer_stages(instance, stages, frozenset({"layers"}))


def with_stages(instance: Instance, stages: int) -> Instance:
    """The instance with another number of stages; costs of single stages are cut off, or those of the last repeated."""

    def fitted(row: tuple[float, ...], count: int) -> tuple[float, ...]:
        return row if len(row) <= 1 else (*row, *(row[-1],) * count)[: max(1, count)]

    return replace(
        instance,
        num_stages=stages,
        cut_cost_s=tuple(fitted(row, stages - 1) for row in instance.cut_cost_s),
        ring_s_per_parameter=fitted(instance.ring_s_per_parameter, stages),
        stage_time_s=(*instance.stage_time_s, *instance.stage_time_s[-1:] * stages)[:stages],
        requirements=_kept(instance, stages) or (),
    )


def repairs(instance: Instance, _: Any) -> list[list[Change[Instance]]]:
    """Another number of stages, a requirement less."""
    steps = _other_stages(instance) if instance.requirements else [instance.num_layers]
    return [[_stages(instance, steps)], *([each] for each in one_requirement_less(instance))]


def _stages(instance: Instance, steps: list[int]) -> Change[Instance]:
    return Change(
        "stages",
        lambda amount: f"{amount:.0f} stage{'s' * (amount != 1)}",
        lambda amount: with_stages(instance, int(amount)),
        steps,
        same_times=not is_per_stage(instance),
        in_turn=True,
    )


def resources(instance: Instance) -> list[More[Instance]]:
    """A stage more or less, where costs are not those of single stages; cuts and the all-reduce at half the time."""
    change, found = _stages(instance, []), []
    if not is_per_stage(instance):
        near = {instance.num_stages + 1: "one more stage", instance.num_stages - 1: "one stage less"}
        allowed = [] if not instance.requirements else _other_stages(instance)
        kept = {number for number in near if number >= 1 and (number in allowed or not instance.requirements)}
        found = [More(change, text, number) for number, text in near.items() if number in kept]
    found.append(More(_faster(instance, "cut costs", _cuts), "sending across cuts twice as fast", 2.0))
    if instance.ring_s_per_parameter:
        found.append(More(_faster(instance, "all-reduce", _rings), "an all-reduce twice as fast", 2.0))
    return found


def _faster(instance: Instance, name: str, scaled: Scaled) -> Change[Instance]:
    return Change(name, lambda times: f"{name} 1/{times:g}", lambda times: scaled(instance, 1 / times))


def _cuts(instance: Instance, factor: float) -> Instance:
    return replace(instance, cut_cost_s=tuple(tuple(cost * factor for cost in row) for row in instance.cut_cost_s))


def _rings(instance: Instance, factor: float) -> Instance:
    return replace(instance, ring_s_per_parameter=tuple(cost * factor for cost in instance.ring_s_per_parameter))


def rows(instance: Instance, plan: LayerPlan) -> list[dict[str, Any]]:
    """Layers and time of every stage."""
    times = [instance.stage_s(stage, *part) for stage, part in enumerate(itertools.pairwise(cuts(plan)))]
    return stage_rows(({"layers": length} for length in plan.lengths), "time_s", times)


def factors(instance: Instance) -> list[Factor[Instance]]:
    """What cuts and the all-reduce cost (the objective is linear in each), and the time of every layer.

    Where stages are equal, all plans have the sum of all layers' times; beside it a layer's time counts for all further
    micro-batches in the slowest stage alone, so that lines rise equally.
    """
    found: list[tuple[str, Scaled]] = [("cut costs", _cuts)]
    if instance.ring_s_per_parameter:
        found.append(("all-reduce", _rings))
    every = [Factor(name, name, _scale_layer(instance, scaled), connected=True) for name, scaled in found]
    # A layer that takes other times in other stages grows at another pace in each plan, and at two where it is slowest.
    is_one = not instance.stage_time_s
    layers = [(f"time of layer {layer}", _layer(layer)) for layer in range(instance.num_layers)]
    return every + [Factor(name, name, _scale_layer(instance, scaled), connected=is_one) for name, scaled in layers]


def _scale_layer(instance: Instance, scaled: Scaled) -> Callable[[float], Instance]:
    return lambda factor: scaled(instance, factor)


def _layer(layer: int) -> Scaled:
    def scaled(instance: Instance, factor: float) -> Instance:
        def of(times: tuple[float, ...]) -> tuple[float, ...]:
            return (*times[:layer], times[layer] * factor, *times[layer + 1 :])

        by_stage = tuple(map(of, instance.stage_time_s))
        return replace(instance, layer_time_s=of(instance.layer_time_s), stage_time_s=by_stage)

    return scaled


def noisy(instance: Instance, draw: Callable[[], float]) -> Instance:
    """A factor on the time of every layer (in every stage), on every cut cost, and on the all-reduce of every stage."""
    return replace(
        instance,
        layer_time_s=tuple(time * draw() for time in instance.layer_time_s),
        stage_time_s=tuple(tuple(time * draw() for time in row) for row in instance.stage_time_s),
        cut_cost_s=tuple(tuple(cost * draw() for cost in row) for row in instance.cut_cost_s),
        ring_s_per_parameter=tuple(cost * draw() for cost in instance.ring_s_per_parameter),
    )
