"""What follows from all strategies of one of AMP's experiments, in sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from formulations.amp_strategy.definition.problem import layer_assignment
from formulations.layer_assignment.definition import problem as assignment
from formulations.layer_assignment.definition.plan import LayerPlan
from instances.problems.amp_strategy import AmpInstance
from planner.reproduction.amp.event_by_event import makespan_s
from planner.reproduction.amp.strategies import Strategy, examine
from planner.training.runtime.fidelity import spearman

#: A slow network between nodes: 0.5 Gbit/s.
_SLOW_BYTES_PER_S = 0.5e9 / 8
_CLEARLY = 1 + 1e-9


def sentences(instance: AmpInstance, found: Sequence[Strategy], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the columns mean, what an exact assignment gains, and how far Equation 4 is from a simulation."""
    slow_nodes = tuple(replace(node, inter_bytes_per_s=_SLOW_BYTES_PER_S) for node in instance.nodes)
    slow_instance = replace(instance, nodes=slow_nodes)
    slow = examine(slow_instance)
    above = sum(each.exact_s > each.predicted_s * _CLEARLY for each in found)
    notes = [
        "predicted_s, exact_s and exact_joint_s are seconds of a whole step, all-reduce included; the columns with "
        "pipeline are Equation 4 alone. AMP's program cuts layers for Equation 4 and adds the all-reduce afterwards: "
        "predicted as released, exact with the best cuts for Equation 4, which the all-reduce makes slower than "
        f"predicted in {above} strategies; exact_joint has the best cuts for the whole step",
        "measured_s: one run of the authors, where it is in the published file; - where it is not",
        f"{len(found)} strategies. {_improvement(found)}",
        f"With 0.5 Gbit/s between nodes: {_improvement(slow)}",
        "Equation 4 is what a simulation gives where links carry any number of messages at once. With one at a time "
        f"{_equation_4(instance, found)}; with 0.5 Gbit/s between nodes {_equation_4(slow_instance, slow)}",
    ]
    pairs = [(row["predicted_s"], row["measured_s"]) for row in rows if row["measured_s"] is not None]
    if len(pairs) > 2:
        correlation = spearman([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        notes.append(f"Spearman correlation of predicted and measured: {correlation:.3f} over {len(pairs)} rows")
    return notes


def _ratio(above: float, below: float) -> float:
    return above / below if below else 1.0  # nothing is faster than no time


def _improvement(found: Sequence[Strategy]) -> str:
    pipelines = [_ratio(each.predicted_pipeline_s, each.exact_pipeline_s) for each in found]
    wholes = [_ratio(each.predicted_s, each.exact_joint_s) for each in found]
    better = [sum(ratio > _CLEARLY for ratio in ratios) for ratios in (pipelines, wholes)]
    return (
        f"Equation 4 alone: the exact assignment is better in {better[0]}, by up to "
        f"{100 * (max(pipelines) - 1):.2f} %; with the all-reduce inside: in {better[1]}, by up to "
        f"{100 * (max(wholes) - 1):.2f} %"
    )


def _equation_4(instance: AmpInstance, found: Sequence[Strategy]) -> str:
    """How far Equation 4 is from a pipeline whose links carry one message at a time (section 6.1)."""
    short = []
    for each in found:
        layers = layer_assignment(instance, each.degrees, tuple(range(instance.num_devices)))
        ends = assignment.cuts(LayerPlan(each.lengths))
        stages = [sum(layers.layer_time_s[ends[j] : ends[j + 1]]) for j in range(len(each.lengths))]
        links = [layers.cut_cost(ends[j + 1] - 1, j) for j in range(len(each.lengths) - 1)]
        simulated = makespan_s(stages, links, layers.num_microbatches, one_message_at_a_time=True)
        short.append(_ratio(simulated, each.predicted_pipeline_s) - 1)
    off = sum(share > _CLEARLY - 1 for share in short)
    return f"it is too low in {off} of {len(found)} strategies, by up to {100 * max(short):.2f} %"
