"""GraphPipe's planner and the baselines of its evaluation, as methods.

Every micro-batch size is searched on its own, from large to small. That is Algorithm 1 with the loop over
configurations outside the binary search; it ends with the same target and also finds what every size would give, as the
bottleneck alone (Equation 1) says nothing of filling and draining the pipeline. A row for each size is in
``stats.sweep``.

Source: GraphPipe, Algorithms 1 and 2, section 7.1 and Appendix A.2.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer, infeasible_by_counting
from formulations.stage_graph.costs.costs import Costs, assemble, identical, shortage
from formulations.stage_graph.costs.iteration import iteration_s, objective_of
from formulations.stage_graph.costs.series_parallel import chain, decompose
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import bottleneck_s, depth, memory_bytes
from formulations.stage_graph.paper.device_graph import in_order, least_machine
from formulations.stage_graph.paper.program import Reach, TooLargeError
from formulations.stage_graph.paper.search import TOLERANCE, Search, powers_of_two
from formulations.stage_graph.upsets.bounds import cheap_bound
from instances.problems.stage_graph import StageGraph
from solvers.memory_budget import SizeError
from solvers.outcome import Limits, Stop, Watch

if TYPE_CHECKING:
    from formulations.stage_graph.paper.per_stage import PerStage

_NO_PLAN = "no plan keeps the memory limit in the space that this method searches"


def solve_graphpipe(
    instance: StageGraph,
    limits: Limits,  # noqa: ARG001
    watch: Watch,
    *,
    any_degree: bool = False,
    rank: str = "in-flight",
    terminals: str = "branch",
) -> Answer[StagePlan]:
    """GraphPipe: series-parallel decomposition; one micro-batch size and 1F1B, or what the instance's schedule allows.

    ``any_degree``: data-parallel degrees need not be powers of two.
    ``rank``: of the plans of a part of the graph that meet the target, the one with the fewest samples ``in-flight`` at
    its source stage is kept (section 5: "the number of in-flight micro-batches for the source stage [...] is
    minimized"), or the one with the least peak ``memory`` (the comment on PickBetter in Algorithm 1).
    ``terminals``: who owns an operator at which branches fork or join: one ``branch`` may (as in the paper's example),
    or only the enclosing ``series``.
    Source: GraphPipe, Algorithm 1, by default in its default configuration (section 6).
    """
    costs = Costs(least_machine(instance))
    order = decompose(costs)
    reach = reach_of(terminals)
    degrees = degrees_of(instance, any_degree)
    try:
        search = Search(costs, order.segment, reach, degrees, rank == "memory", False, watch)
        wider = None if instance.schedule == "uniform" else _per_stage(search)
    except TooLargeError as error:
        return Answer(stop=watch.why(Stop.SIZE_LIMIT), reason=str(error))
    return _searched(instance, watch, search, wider, order.loss())


def _per_stage(search: Search) -> "PerStage":
    """Imported here: its kernels are half of what methods that begin with a plan of this module would compile."""
    from formulations.stage_graph.paper.per_stage import PerStage

    return PerStage(search)


def solve_pipedream(
    instance: StageGraph,
    limits: Limits,  # noqa: ARG001
    watch: Watch,
    *,
    any_degree: bool = False,
    rank: str = "in-flight",
) -> Answer[StagePlan]:
    """PipeDream: a chain of all operators, a sequential pipeline with 1F1B; ``rank`` as in `solve_graphpipe`.

    Source: GraphPipe, section 7.1: linearised, all cuts tried, 1F1B; the same costs and the same search as
    ``graphpipe``.
    """
    costs = Costs(least_machine(instance))
    try:
        degrees = degrees_of(instance, any_degree)
        search = Search(costs, chain(costs), Reach.NONE, degrees, rank == "memory", True, watch)
    except TooLargeError as error:
        return Answer(stop=watch.why(Stop.SIZE_LIMIT), reason=str(error))
    return _searched(instance, watch, search, None, {})


def solve_data_parallel(
    instance: StageGraph,
    limits: Limits,  # noqa: ARG001
    watch: Watch,
) -> Answer[StagePlan]:
    """One stage on as many devices as keep it fastest: data parallelism alone."""
    costs = Costs(least_machine(instance))

    def best_at(microbatch: int) -> StagePlan | None:
        degrees = range(1, min(instance.num_devices, microbatch) + 1)
        choices = [
            (costs.tps(costs.everything, microbatch, devices), devices)
            for devices in itertools.takewhile(lambda _: not watch.stopped(), degrees)
            if costs.memory(costs.everything, microbatch, devices, microbatch) <= costs.instance.memory_bytes
        ]
        return assemble(costs.instance, [(costs.everything, min(choices)[1])], microbatch) if choices else None

    plans = each_size(instance, watch, best_at, list(_descending(instance)))
    return answer_of(instance, watch, plans, {"transitions": len(instance.microbatch_sizes) * instance.num_devices})


def _searched(
    instance: StageGraph, watch: Watch, search: Search, wider: "PerStage | None", stats: dict[str, Any]
) -> Answer[StagePlan]:
    """Plans with one micro-batch size, then (``wider``) better ones with a size for each stage."""
    too_large = ""
    with alarm(watch):
        plans = each_size(instance, watch, search.best_at, published_sizes(instance))
        if wider is not None:
            one_size = min((bottleneck_s(wider.costs.instance, plan) for plan in plans), default=math.inf)
            try:
                for plan in map(partial(in_order, instance), wider.below(one_size)):
                    if plan is not None:
                        plans.append(plan)
                        watch.plan(plan, objective_of(instance, plan))
            except (TooLargeError, SizeError) as error:
                too_large = str(error)
    counts = {
        "transitions": search.transitions + (wider.transitions if wider else 0),
        "rounds": search.rounds + (wider.rounds if wider else 0),
        "states": search.tables.num_states,
    }
    answer = answer_of(instance, watch, plans, {**counts, **stats})
    return replace(answer, stop=watch.why(Stop.SIZE_LIMIT), reason=too_large) if too_large else answer


def each_size(
    instance: StageGraph, watch: Watch, best_at: Callable[[int], StagePlan | None], sizes: list[int]
) -> list[StagePlan]:
    """The plans that a search finds at these micro-batch sizes, reported as they are found; on devices in order."""
    plans = []
    for microbatch in sizes:
        plan = in_order(instance, best_at(microbatch))
        if plan is not None:
            plans.append(plan)
            watch.plan(plan, objective_of(instance, plan))
        if watch.stopped():
            break
    return plans


def default_search(instance: StageGraph, watch: Watch) -> Search:
    """The search of ``graphpipe`` without options; `TooLargeError` if it has too many transitions."""
    costs = Costs(instance)
    return Search(costs, decompose(costs).segment, reach_of(), degrees_of(instance, False), False, False, watch)


def reach_of(terminals: str = "branch") -> Reach:
    """Who owns an operator at which branches fork or join."""
    return Reach.OWNER if terminals == "branch" else Reach.NONE


def degrees_of(instance: StageGraph, any_degree: bool) -> Sequence[int]:
    """Data-parallel degrees: powers of two, or all."""
    return range(1, instance.num_devices + 1) if any_degree else powers_of_two(instance.num_devices)


def _descending(instance: StageGraph) -> Iterable[int]:
    return reversed(instance.microbatch_sizes)


def published_sizes(instance: StageGraph) -> list[int]:
    """Powers of two, from large to small; all sizes where the instance allows no power of two."""
    sizes = [size for size in _descending(instance) if size & (size - 1) == 0]
    return sizes or list(_descending(instance))


def answer_of(instance: StageGraph, watch: Watch, plans: list[StagePlan], stats: dict[str, Any]) -> Answer[StagePlan]:
    """The plan with the least objective, and a row of ``stats.sweep`` for each plan found.

    Among plans that the binary search does not distinguish the one with the least peak memory is taken (PickBetter).
    """
    if not plans:
        short = shortage(instance)
        if short:
            return replace(infeasible_by_counting(short), stats=stats)
        return Answer(stop=watch.why(), stats=stats, reason=_NO_PLAN)
    rows = [row(instance, plan) for plan in plans]
    quickest = min(range(len(rows)), key=lambda number: float(rows[number]["iteration_s"]))
    chosen = quickest if instance.objective == "iteration" else _better(rows)
    bound, by = cheap_bound(Costs(identical(instance)), watch, plans[chosen])
    return Answer(
        plan=plans[chosen],
        bound=bound,
        stop=watch.why(),
        proved_by=by,
        stats={**stats, **rows[chosen], "quickest_iteration": rows[quickest], "sweep": rows},
    )


def _better(rows: list[dict[str, Any]]) -> int:
    least = min(each["tps_s"] for each in rows)
    close = [number for number, each in enumerate(rows) if each["tps_s"] <= least * (1 + TOLERANCE)]
    return min(close, key=lambda number: float(rows[number]["peak_memory_bytes"]))


def row(instance: StageGraph, plan: StagePlan) -> dict[str, Any]:
    """What a table shows of a plan: both objectives, and what explains them."""
    seconds = iteration_s(instance, plan)
    return {
        "microbatch": max(stage.microbatch for stage in plan.stages),
        "tps_s": bottleneck_s(instance, plan),
        "iteration_s": seconds,
        "samples_per_s": instance.minibatch / seconds if seconds > 0 else None,
        "stages": len(plan.stages),
        "depth": depth(plan),
        "idle_devices": plan.idle_devices,
        "peak_memory_bytes": max(memory_bytes(instance, stage) for stage in plan.stages),
    }
