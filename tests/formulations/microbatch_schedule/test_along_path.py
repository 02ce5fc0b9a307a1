"""The bound from the passes of a few stages, against optima that CP-SAT and brute force prove without it."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
from oracles.microbatch_schedule import optimum, random_instance

import planner
from formulations.microbatch_schedule import along_path
from formulations.microbatch_schedule.along_path import along_paths, widened
from formulations.microbatch_schedule.bounds import chains, iteration_bound
from formulations.microbatch_schedule.exact import proved_seconds
from formulations.simulation.simulate_graph import PassGraph, run
from instances.problems.microbatch_schedule import ScheduleEdge, ScheduleInstance, ScheduleStage, chain, generate
from solvers.outcome import Limits


def _random(rng: random.Random) -> ScheduleInstance:
    """Two to four stages, most with room for two or three; some split, on one device, or of other sizes."""
    n, m, whole = rng.randint(2, 4), rng.choice([3, 4, 5, 6]), rng.random() < 0.7
    sizes = [1] * n if m % 2 or rng.random() < 0.5 else [rng.choice([1, 2]) for _ in range(n)]

    def seconds(most: int) -> float:
        return float(rng.randint(1, most)) if whole else 0.1 + rng.random() * most

    devices = [rng.randrange(n - 1) if rng.random() < 0.3 else s for s in range(n)] if rng.random() < 0.5 else []
    pairs = {(rng.randrange(v), v) for v in range(1, n)}
    pairs |= {(u, v) for v in range(n) for u in range(v) if rng.random() < 0.15}
    stages = tuple(
        ScheduleStage(
            seconds(4), seconds(6), size,
            in_flight=rng.choice([2, 2, 3]) * max(sizes) if rng.random() < 0.8 else rng.choice([None, 2, 4]),
            weight_s=seconds(3) if rng.random() < 0.25 else None,
        )
        for size in sizes
    )  # fmt: skip
    edges = tuple(ScheduleEdge(u, v, seconds(2) if rng.random() < 0.3 else 0.0) for u, v in sorted(pairs))
    return ScheduleInstance("two", m, stages, edges, devices=tuple(sorted(set(devices)).index(d) for d in devices))


def _least(graph: PassGraph) -> tuple[float, float]:
    """What the highest bound says of the iteration, and what the longest chain of passes does."""
    known = chains(graph)
    longest = max(h + s + t for h, s, t in zip(known.heads, graph.seconds, known.tails, strict=True))
    found = along_paths(graph, known.heads, known.tails, math.inf)
    wider = (each for along in found for each in widened(graph, known.heads, known.tails, along, math.inf))
    return max((along.seconds for along in (*found, *wider)), default=0.0), longest


def test_no_bound_is_above_what_a_model_proves(cases: int) -> None:
    """And in most cases it is that, and more than a longest chain."""
    rng, seen = random.Random("a few in flight"), Counter[str]()
    for number in range(cases * 3):
        instance = _random(rng)
        graph = PassGraph(instance)
        least, longest = _least(graph) if graph.is_possible() else (0.0, 0.0)
        best = proved_seconds(graph, Limits(time_s=10)) if least else None
        if best is None:
            continue
        assert least <= best * (1 + 1e-9), (number, instance)
        seen["met"] += least > best * (1 - 1e-9)
        seen["more"] += least > longest * (1 + 1e-9)
        seen["split"] += any(stage.weight_s for stage in instance.stages)
        seen["shared"] += instance.shares_devices
        seen["sizes"] += len({stage.microbatch for stage in instance.stages}) > 1
    assert min(seen["met"], seen["more"]) > cases and min(seen.values()) > cases // 10, seen


def test_no_bound_is_above_what_brute_force_finds(cases: int) -> None:
    rng, met = random.Random("few, all orders"), 0
    for _ in range(cases * 10):
        instance = replace(random_instance(rng), objective="time", deadline_s=None)
        graph = PassGraph(instance)
        least = _least(graph)[0] if graph.is_possible() else 0.0
        best = optimum(instance) if least else None
        assert best is None or least <= best * (1 + 1e-12), instance
        met += best is not None and least > best * (1 - 1e-9)
    assert met > cases // 2


def test_merged_states_bound_from_below(cases: int) -> None:
    """A state of each set alone: no more than all states prove, and mostly less than that."""
    rng, less = random.Random("merged"), 0
    for _ in range(cases):
        instance = generate(5, 6, tight=0.75, seed=rng.randrange(10**6))
        graph = PassGraph(instance)
        exact = _least(graph)[0]
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(along_path, "_WIDTH", 1)
            merged = _least(graph)[0]
        assert merged <= exact
        less += merged < exact
    assert less > cases // 3


@pytest.mark.parametrize(("stages", "count", "takes"), [(2, 4, 15), (3, 4, 21), (3, 3, 18), (4, 4, 27)])
def test_two_in_flight_by_hand(stages: int, count: int, takes: int) -> None:
    """Equal stages of 1 and 2 s: micro-batch j + 2 begins as j ends, and the one between a stage's 3 s after j."""
    assert _least(PassGraph(chain(stages, count, in_flight=2)))[0] == takes


@pytest.mark.parametrize(
    ("seed", "narrow", "takes"),
    [(2, 1260, 1260), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((14, 1052, 1065), (18, 1287, 1327)))],
)
def test_scarce_memory_is_proved_by_bounds(seed: int, narrow: int, takes: int) -> None:
    """12 stages, 32 micro-batches, three quarters of the room: heads and tails alone leave 7 to 12 % open.

    Where one path is not enough, more stages beside it are; with 11 states of a set in place of 64 they prove less.
    """
    instance = generate(12, 32, tight=0.75, seed=seed)
    assert iteration_bound(PassGraph(instance)) == pytest.approx(narrow, rel=1e-9)
    found = planner.solve(instance, method="exact")
    assert (found.objective, found.status, found.proved_by) == (takes, "optimal", "bounds")


def test_passes_of_a_path_start_in_the_order_of_the_bound(cases: int) -> None:
    """On a chain whose stages have room for few: in that order they end when the bound says."""
    rng = random.Random("orders of few")
    for _ in range(cases):
        seconds = [(float(rng.randint(1, 4)), float(rng.randint(1, 6))) for _ in range(rng.randint(2, 4))]
        stages = tuple(ScheduleStage(f, b, in_flight=rng.choice([2, 3])) for f, b in seconds)
        edges = tuple(ScheduleEdge(s, s + 1) for s in range(len(stages) - 1))
        graph = PassGraph(ScheduleInstance("chain", 7, stages, edges))
        known = chains(graph)
        found = next(each for each in along_paths(graph, known.heads, known.tails, math.inf) if 0 in each.stages)
        assert sorted(found.passes) == list(range(len(graph.stage)))
        orders = [[number for number in found.passes if graph.device[number] == d] for d in range(len(stages))]
        assert run(graph, orders).iteration_s == found.seconds
