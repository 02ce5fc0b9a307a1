"""Bounds and heuristics first, CP-SAT's model for what they leave open: the quickest way to a proof, whosever it is."""

import math
from dataclasses import replace
from functools import partial

from formulations.contract.family import Answer
from formulations.microbatch_schedule.bounds import SAFE, wider_paths
from formulations.microbatch_schedule.definition.plan import SchedulePlan
from formulations.microbatch_schedule.definition.problem import evaluate, violations
from formulations.microbatch_schedule.feasibility import begin, figures, no_schedule, offer
from formulations.microbatch_schedule.heuristics.memory import least_memory
from formulations.microbatch_schedule.heuristics.search import EFFORT, behind, search
from formulations.microbatch_schedule.models import cpsat
from formulations.modelling.solve_model import prove
from formulations.simulation.simulate_graph import PassGraph, run
from instances.problems.microbatch_schedule import ScheduleInstance
from solvers.cpsat.backend import run as run_cpsat
from solvers.outcome import Limits, Prover, Stop, Watch, relative_gap

#: The work of the heuristics before the model, as part of what they do alone.
_SHARE = 3

#: Beyond so many passes the model takes too long to build: bounds and heuristics prove the iteration, or leave a gap.
MODELLED_PASSES = 20_000

#: A gap that rounding alone explains.
_NOISE = 1e-9


def solve(instance: ScheduleInstance, limits: Limits, watch: Watch) -> Answer[SchedulePlan]:
    """The best schedule, proved by bounds or by the model."""
    return begin(instance, watch, partial(_solve, instance, limits, watch))


def _solve(
    instance: ScheduleInstance, limits: Limits, watch: Watch, graph: PassGraph, bound: float
) -> Answer[SchedulePlan]:
    goal = bound * (1 + _NOISE)
    if instance.objective == "memory":
        found = least_memory(instance, limits, watch, EFFORT // _SHARE)
        if found.infeasible:
            return found
    else:
        search(graph, watch, limits.seed, lambda trace: offer(instance, watch, trace), goal, EFFORT // _SHARE)
        _widen(instance, watch, graph)
    if watch.stopped() or _is_closed(watch):
        return Answer(watch.best_plan, watch.best_bound, stop=watch.why(), stats=figures(instance, watch.best_plan))

    if instance.num_passes > MODELLED_PASSES:
        stop = Stop.SIZE_LIMIT
        return Answer(watch.best_plan, watch.best_bound, stop=stop, stats=figures(instance, watch.best_plan))

    def model() -> cpsat.Model:
        built = cpsat.model_of(instance, watch)
        if watch.best_plan is not None:
            built.begin_with(built.values_of(watch.best_plan))
        return built

    found = prove(instance, model, evaluate, violations, limits, watch, reason=no_schedule(instance), by="cpsat")
    return replace(found, stats={**figures(instance, found.plan), **found.stats})


def _widen(instance: ScheduleInstance, watch: Watch, graph: PassGraph) -> None:
    """Raise the bound by more stages beside the narrowest path, and try their orders, until the gap is closed."""
    wider = wider_paths(graph, math.inf if watch.best_objective is None else watch.best_objective)
    while not watch.stopped() and not _is_closed(watch) and (along := next(wider, None)) is not None:
        watch.bound(along.seconds * SAFE, Prover.BOUNDS)
        for trace in behind(graph, along):
            offer(instance, watch, trace)


def _is_closed(watch: Watch) -> bool:
    gap = relative_gap(watch.best_objective, watch.best_bound)
    return gap is not None and gap <= _NOISE


def proved_seconds(graph: PassGraph, limits: Limits) -> float | None:
    """The seconds of the shortest iteration of a graph; ``None`` if there is none, or no proof within the limits."""
    if not graph.is_possible():
        return None
    built = cpsat.model_of(graph.instance, graph=graph)
    found = run_cpsat(built.model, limits)
    if found.stop is not Stop.PROVED or found.values is None:
        return None
    return run(graph, built.orders(found.values)).iteration_s
