"""What both solvers' models of placement share: the largest time, the distinct bandwidths, and how they are run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.modelling.solve_model import Model, prove
from formulations.modelling.warm_start import First
from formulations.operator_partitioning.costs.shapes import shortage
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.problem import evaluate, violations
from formulations.pipeline_placement.definition.simulate import simulate_plan
from formulations.pipeline_placement.models.two_phase import best_start, compute_bound
from instances.problems.pipeline_placement import PlacementInstance
from solvers.outcome import Limits, Prover, Watch


def largest_time(instance: PlacementInstance) -> float:
    """No stage takes longer than this, whatever the plan."""
    graph, slowest = instance.operators, 1.0 / min(bandwidths(instance), default=1.0)
    sent = math.fsum(tensor.volume_bytes * max(1, len(tensor.targets)) for tensor in graph.tensors)
    reduced = 2 * math.fsum(operator.parameter_bytes for operator in graph.operators)
    return (graph.total_compute_s + (2 * sent + reduced) * slowest) * (1 + 1e-9)


def bandwidths(instance: PlacementInstance) -> list[float]:
    """Distinct bandwidths between devices, fastest first."""
    matrix = instance.bandwidth_bytes_per_s
    return sorted({matrix[d][e] for d in range(len(matrix)) for e in range(d)}, reverse=True)


def first_of_order(instance: PlacementInstance, r: int) -> int:
    """The replica of its stage that replica r > 0 may follow in the order of devices, without loss of generality.

    Where the rings go by number, only a rotation keeps each replica's neighbours: then it is the first one alone.
    """
    return r - 1 if instance.objective == "p2p" or instance.operators.replicas <= 3 else 0


def ordered_stages(instance: PlacementInstance) -> range:
    """The stages whose replicas may be numbered at will: without tensors between stages all, else the first."""
    return range(instance.num_stages if instance.objective == "allreduce" else min(1, instance.num_stages))


def solve_with(
    build: Callable[[], Model[PlacementPlan]],
    instance: PlacementInstance,
    limits: Limits,
    watch: Watch,
    *,
    to_scale: bool,
) -> Answer[PlacementPlan]:
    """The best plan of both phases at once; starts from the best of both in turns (`best_start`).

    ``to_scale``: as for `formulations.modelling.solve_model.prove`.
    """
    reason = shortage(instance.operators)
    if reason is not None:
        return infeasible_by_counting(reason)
    watch.bound(compute_bound(instance), Prover.BOUNDS)
    found = prove(
        instance,
        build,
        evaluate,
        violations,
        limits,
        watch,
        reason="no partition fits",
        to_scale=to_scale,
        first=First("turns", lambda part: best_start(instance, limits, part)),
    )
    if found.plan is None:
        return found
    return replace(found, stats={**found.stats, "step_s": simulate_plan(instance, found.plan).seconds})
