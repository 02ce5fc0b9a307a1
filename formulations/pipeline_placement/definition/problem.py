"""Pipeline placement: the definition, naively and without any solver.

A plan is a partition of the operators and a mapping of the stages it makes. Its rules are those of the two problems,
its cost that of the mapping: what its stages compute, send and reduce over the links they really have.

The objective ``step`` is a training step of a synchronous pipeline, which is flushed after it (docs/the-clock.md): each
replica r is a pipeline of its own, with m micro-batches; t(s, r) is what (s, r) computes and sends for one of them, and
Q(r) the largest sum of t(s, r) on a path of stages::

    max over r of (Q(r) + (m - 1) max over s of t(s, r)) + the slowest all-reduce

Source: Parmesan, Equations 2 to 7; that both phases are one problem is the future work of its conclusion. A step: what
p equal stages take under 1F1B or GPipe (Narayanan et al. 2021, section 2.2), for stages that differ.
"""

import math
from dataclasses import replace

from formulations.contract.violation import Violation
from formulations.device_mapping.definition import problem as mapping_problem
from formulations.operator_partitioning.definition import problem as partition_problem
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import Step, heaviest_path
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.stages import mapping_of
from instances.problems.device_mapping import DeviceMapping
from instances.problems.pipeline_placement import PlacementInstance


def second_phase(instance: PlacementInstance, partition: OperatorPlan) -> DeviceMapping:
    """The mapping problem that a partition leaves; of a step the one of ``full``, which counts the same times."""
    objective = "full" if instance.objective == "step" else instance.objective
    left = mapping_of(instance.operators, partition, instance.bandwidth_bytes_per_s, objective)
    return replace(left, ring=instance.ring, microbatches=instance.microbatches)


def evaluate(instance: PlacementInstance, plan: PlacementPlan) -> float:
    """Seconds of the slowest stage replica, on the links of the mapping; or of a step.

    `ValueError` if the plan breaks a rule.
    """
    broken = violations(instance, plan)
    if broken:
        raise ValueError("; ".join(map(str, broken)))
    return seconds(instance, plan)


def seconds(instance: PlacementInstance, plan: PlacementPlan) -> float:
    """The objective of a plan whose partition breaks no rule."""
    if instance.objective == "step":
        return math.fsum(step_parts(instance, plan))
    return mapping_problem.evaluate(second_phase(instance, plan.partition), plan.mapping)


def step_parts(instance: PlacementInstance, plan: PlacementPlan) -> Step:
    """What a step adds up, of the slowest replica."""
    second, (times, path) = second_phase(instance, plan.partition), slowest_pipeline(instance, plan)
    return Step(
        math.fsum(times[stage] for stage in path),
        (instance.microbatches - 1) * max(times),
        max(mapping_problem.ring_seconds(second, plan.mapping, stage) for stage in range(second.num_stages)),
    )


def slowest_pipeline(instance: PlacementInstance, plan: PlacementPlan) -> tuple[list[float], tuple[int, ...]]:
    """Of the slowest replica: what each stage computes and sends for a micro-batch, and the heaviest path of stages."""
    second, found = second_phase(instance, plan.partition), []
    for replica in range(second.replicas):
        times = [
            math.fsum([part.compute_s, *mapping_problem.sending_seconds(second, plan.mapping, stage, replica)])
            for stage, part in enumerate(second.stages)
        ]
        path = heaviest_path(times, [(edge.source, edge.target) for edge in second.edges])
        whole = math.fsum(times[stage] for stage in path) + (instance.microbatches - 1) * max(times)
        found.append((whole, times, path))
    return max(found)[1:]


def violations(instance: PlacementInstance, plan: PlacementPlan) -> tuple[Violation, ...]:
    """The rules of the partition that the plan breaks; if there are none, those of the mapping."""
    found = partition_problem.violations(instance.operators, plan.partition)
    if found:
        return found
    return mapping_problem.violations(second_phase(instance, plan.partition), plan.mapping)
