"""Parmesan's partitioning as published: operator clustering, dynamic programming, iterative refinement.

| paper      | here |
|------------|------|
| K          | ``clusters`` |
| alpha      | ``alpha`` |
| I          | `refinement.MOVES` |
| T_{F,d,s}  | ``best`` of `kernels.published.fill_table`, with d = R s |

Where the clustered graph has too many downsets for Equation 2, fusions go on until it has few enough, down to 2 S
clusters; then one topological order has to do (``stats.linearised``).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from formulations.compiled.array_types import Words
from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer
from formulations.operator_partitioning.costs.chains import Search, fill, plan_of_table
from formulations.operator_partitioning.costs.costs import graph, load_bound, rows
from formulations.operator_partitioning.costs.downsets import (
    all_downsets,
    downsets_of_clusters,
    membership,
    order_downsets,
    quotient_edges,
)
from formulations.operator_partitioning.costs.shapes import Flow, answer_of
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import evaluate, stage_seconds, violations
from formulations.operator_partitioning.methods import MAX_DOWNSETS as MAX_LISTED
from formulations.operator_partitioning.paper.clustering import ALPHA, Fusions, default_clusters, fuse
from formulations.operator_partitioning.paper.refinement import refine
from instances.graph import topological_order
from instances.problems.operator_partitioning import OperatorInstance, Tensor
from solvers.memory_budget import SizeError
from solvers.outcome import Limits, Watch

Clusters = tuple[tuple[int, ...], ...]

#: What cuts the clustered graph: `dynamic_program`, or `best_chain`.
Program = Callable[..., tuple[OperatorPlan | None, int]]

#: A clustered graph with more downsets is fused further.
MAX_DOWNSETS = 10_000


@dataclass(frozen=True)
class Clustered:
    """The clusters, the downsets that split none of them, and whether these are of a single order."""

    clusters: Clusters
    bits: Words
    linearised: bool


def cluster(instance: OperatorInstance, watch: Watch, alpha: float = ALPHA, clusters: int | None = None) -> Clustered:
    """Clusters as section 4.2 makes them, few enough for Equation 2."""
    assert instance.num_stages is not None
    wanted = max(clusters or default_clusters(instance.num_stages), instance.num_stages)
    least = min(wanted, max(2 * instance.num_stages, 8))
    fusions = fuse(instance, least, alpha, watch.stopped)
    n, count = len(instance.operators), wanted
    while True:
        found = fusions.clusters(count)
        bits = downsets_of_clusters(found, instance.edges, n, MAX_DOWNSETS)
        if bits is not None:
            return Clustered(found, bits, linearised=False)
        if count <= least or len(found) > count:
            found = fusions.clusters(wanted)
            return Clustered(found, order_downsets(found, instance.edges, n), linearised=True)
        count = max(least, count * 3 // 4)


def pair_tensors(instance: OperatorInstance, clusters: Sequence[Sequence[int]]) -> list[Tensor]:
    """One tensor for each pair of adjacent clusters; what has several targets in a cluster counts once there."""
    home = membership(clusters, len(instance.operators))
    volumes: dict[tuple[int, int], list[float]] = {}
    for tensor in instance.tensors:
        for target in {home[each] for each in tensor.targets} - {home[tensor.source]}:
            volumes.setdefault((home[tensor.source], target), []).append(tensor.volume_bytes)
    return [Tensor(clusters[a][0], (clusters[b][0],), math.fsum(found)) for (a, b), found in sorted(volumes.items())]


def dynamic_program(instance: OperatorInstance, family: Clustered, watch: Watch) -> tuple[OperatorPlan | None, int]:
    """Equations 2 and 3 on the clustered graph: the plan (``None``: there is none) and the steps taken.

    With replicas as a variable the same optimum comes from the search by thresholds.
    """
    assert instance.num_stages is not None
    if instance.num_devices is not None:
        found = Search(instance, family.bits, watch).least(load_bound(instance), report=False)
        return found.plan, found.steps
    table = graph(instance, pair_tensors(instance, family.clusters))
    each = rows(instance, table, family.bits)
    best, before, steps = fill(instance, table, each, math.inf, watch)
    if steps < 0 or best[-1, instance.num_stages] == math.inf:
        return None, abs(steps)
    return plan_of_table(instance, each, before), steps


def best_chain(instance: OperatorInstance, family: Clustered, watch: Watch) -> tuple[OperatorPlan | None, int]:
    """The best plan that splits no cluster, each tensor sent once to a stage; and the steps taken."""
    found = Search(instance, family.bits, watch).least(load_bound(instance), report=False)
    return found.plan, found.steps


def partition(
    instance: OperatorInstance,
    watch: Watch,
    *,
    program: Program = dynamic_program,
    alpha: float = ALPHA,
    clusters: int | None = None,
    refined: bool = True,
    report_losses: bool = False,
) -> Flow:
    """The three steps on an instance with a given S, ``program`` being the second.

    ``report_losses``: against the optimum, where it can be found.
    """
    family = cluster(instance, watch, alpha, clusters)
    plan, steps = program(instance, family, watch)
    stats: dict[str, Any] = {
        "clusters": len(family.clusters),
        "downsets": len(family.bits),
        "linearised": family.linearised,
        "steps": steps,
    }
    if plan is None:
        return Flow(None, stats)
    stats["dynamic_program"] = evaluate(instance, plan)
    first = plan
    if refined:
        plan, stats["moves"] = refine(instance, plan, stopped=watch.stopped)
    if report_losses:
        from formulations.operator_partitioning.questions.studies.losses import losses

        stats["losses"] = losses(instance, family.bits, first, plan, watch)
    return Flow(plan, stats)


def _solve(instance: OperatorInstance, watch: Watch, flow: Callable[[OperatorInstance], Flow]) -> Answer[OperatorPlan]:
    with alarm(watch):
        return answer_of(instance, watch, flow)


def solve(
    instance: OperatorInstance,
    _limits: Limits,
    watch: Watch,
    *,
    alpha: float = ALPHA,
    clusters: int | None = None,
    report_losses: bool = False,
) -> Answer[OperatorPlan]:
    """All three steps."""

    def flow(each: OperatorInstance) -> Flow:
        return partition(each, watch, alpha=alpha, clusters=clusters, report_losses=report_losses)

    return _solve(instance, watch, flow)


def solve_dp(
    instance: OperatorInstance, _limits: Limits, watch: Watch, *, alpha: float = ALPHA, clusters: int | None = None
) -> Answer[OperatorPlan]:
    """Clustering and dynamic programming, without refinement."""
    return _solve(instance, watch, lambda each: partition(each, watch, alpha=alpha, clusters=clusters, refined=False))


def solve_best_chain(instance: OperatorInstance, _limits: Limits, watch: Watch) -> Answer[OperatorPlan]:
    """All three steps, the second one exactly on the clusters it is given."""
    return _solve(instance, watch, lambda each: partition(each, watch, program=best_chain))


def solve_cluster(
    instance: OperatorInstance, _limits: Limits, watch: Watch, *, alpha: float = ALPHA
) -> Answer[OperatorPlan]:
    """Clustering alone, until every cluster is a stage."""

    def flow(each: OperatorInstance) -> Flow:
        assert each.num_stages is not None
        fusions: Fusions = fuse(each, each.num_stages, alpha, watch.stopped)
        found = fusions.clusters(each.num_stages)
        stats = {"clusters": len(found)}
        if len(found) != each.num_stages:
            return Flow(None, stats)
        order = topological_order(len(found), quotient_edges(membership(found, len(each.operators)), each.edges))
        return Flow(_spread(each, [found[cluster] for cluster in order]), stats)

    return _solve(instance, watch, flow)


def solve_equal(instance: OperatorInstance, _limits: Limits, watch: Watch) -> Answer[OperatorPlan]:
    """The declared order cut where the seconds are shared evenly."""
    return _solve(instance, watch, lambda each: Flow(equal(each)))


def solve_refine(instance: OperatorInstance, _limits: Limits, watch: Watch) -> Answer[OperatorPlan]:
    """Refinement alone, from the even cut."""

    def flow(each: OperatorInstance) -> Flow:
        plan = equal(each)
        if plan is None or violations(each, plan):
            return Flow(None)
        plan, moves = refine(each, plan, stopped=watch.stopped)
        return Flow(plan, {"moves": moves})

    return _solve(instance, watch, flow)


def solve_pipedream(instance: OperatorInstance, _limits: Limits, watch: Watch) -> Answer[OperatorPlan]:
    """The best cut of the declared order into intervals."""

    def flow(each: OperatorInstance) -> Flow:
        singles = [(operator,) for operator in range(len(each.operators))]
        bits = order_downsets(singles, each.edges, len(each.operators))
        found = Search(each, bits, watch).least(load_bound(each), report=False)
        return Flow(found.plan, {"downsets": len(bits), "steps": found.steps})

    return _solve(instance, watch, flow)


def intervals(instance: OperatorInstance, watch: Watch) -> OperatorPlan | None:
    """A good cut of the declared order, by Equation 2; ``None``: there is none, or replicas are free."""
    if instance.num_devices is not None or instance.num_stages is None:
        return None
    n = len(instance.operators)
    return by_table(instance, order_downsets([(operator,) for operator in range(n)], instance.edges, n), watch).plan


class Tabled(NamedTuple):
    """The plan of the table of Equation 2 (``None``: there is none, or it was stopped), its value there, the steps."""

    plan: OperatorPlan | None
    value: float
    steps: int


def by_table(instance: OperatorInstance, bits: Words, watch: Watch) -> Tabled:
    """Equation 2 over a family of downsets, every tensor counted once where it leaves a stage."""
    assert instance.num_stages is not None
    table = graph(instance)
    family = rows(instance, table, bits)
    best, before, steps = fill(instance, table, family, math.inf, watch)
    value = float(best[-1, instance.num_stages])
    if steps < 0 or value == math.inf:
        return Tabled(None, math.inf, abs(steps))
    return Tabled(plan_of_table(instance, family, before), value, steps)


def solve_max_load(instance: OperatorInstance, _limits: Limits, watch: Watch) -> Answer[OperatorPlan]:
    """The table over all downsets of the graph itself: no cluster, and no stage left out.

    Source: Tarnawski et al. 2020, the dynamic program for contiguous splits, as Piper, section 3.2, describes it: the
    load of a device is its nodes' time and what comes in or leaves. ``stats.max_load`` is its own value: what leaves
    counts once, where the definition counts it for each stage that takes it.
    """

    def flow(each: OperatorInstance) -> Flow:
        bits = all_downsets(each, MAX_LISTED)
        if bits is None:
            raise SizeError(f"the graph has more than {MAX_LISTED} downsets, or more than there is memory for")
        found = by_table(each, bits, watch)
        return Flow(found.plan, {"downsets": len(bits), "steps": found.steps, "max_load": found.value})

    return _solve(instance, watch, flow)


def equal(instance: OperatorInstance) -> OperatorPlan | None:
    """Stages of the declared order, each until its share of all seconds is done; ``None`` with too few operators."""
    n, stages = len(instance.operators), instance.num_stages or 1
    if instance.at_most:
        stages = min(stages, n)
    if stages > n:
        return None
    share, done, cut = instance.total_compute_s / stages, 0.0, [0]
    for operator in range(n):
        done += instance.operators[operator].compute_s
        left = stages - len(cut)
        enough = done >= share * len(cut) or n - operator - 1 == left
        if left and enough and n - operator - 1 >= left:
            cut.append(operator + 1)
    return _spread(instance, [range(start, end) for start, end in zip(cut, [*cut[1:], n], strict=True)])


def _spread(instance: OperatorInstance, stages: Sequence[Sequence[int]]) -> OperatorPlan | None:
    """These stages with replicas as declared; free ones go where the most time is left, one by one."""
    plan = OperatorPlan(tuple(map(tuple, stages)), (instance.replicas,) * len(stages))
    if instance.num_devices is None:
        return plan
    if instance.num_devices < len(stages):
        return None
    plan = replace(plan, replicas=(1,) * len(stages))

    seconds, counts = stage_seconds(instance, plan), [1] * len(stages)
    for _ in range(min(instance.num_devices - len(stages), 10_000)):
        slowest = max(range(len(stages)), key=lambda stage: seconds[stage] / counts[stage])
        counts[slowest] += 1
    return replace(plan, replicas=tuple(counts))
