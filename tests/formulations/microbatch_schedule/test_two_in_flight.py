"""The bound from two micro-batches in flight, against optima that CP-SAT and brute force prove without it."""

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from oracles.microbatch_schedule import optimum, random_instance

import planner
from formulations.microbatch_schedule.bounds import chains, iteration_bound, two_in_flight
from formulations.microbatch_schedule.exact import proved_seconds
from formulations.microbatch_schedule.two_in_flight import two_jobs
from formulations.simulation.simulate_graph import PassGraph
from instances.problems.microbatch_schedule import ScheduleEdge, ScheduleInstance, ScheduleStage, chain, generate
from solvers.outcome import Limits


def _random(rng: random.Random) -> ScheduleInstance:
    """Two to four stages, most with room for two micro-batches; some split, on one device, or of other sizes."""
    n, m, whole = rng.randint(2, 4), rng.choice([3, 4, 5, 6]), rng.random() < 0.7
    sizes = [1] * n if m % 2 or rng.random() < 0.8 else [rng.choice([1, 2]) for _ in range(n)]

    def seconds(most: int) -> float:
        return float(rng.randint(1, most)) if whole else 0.1 + rng.random() * most

    devices = [rng.randrange(n - 1) if rng.random() < 0.3 else s for s in range(n)] if rng.random() < 0.5 else []
    pairs = {(rng.randrange(v), v) for v in range(1, n)}
    pairs |= {(u, v) for v in range(n) for u in range(v) if rng.random() < 0.15}
    stages = tuple(
        ScheduleStage(
            seconds(4), seconds(6), size, in_flight=2 * max(sizes) if rng.random() < 0.8 else rng.choice([None, 2, 4]),
            weight_s=seconds(3) if rng.random() < 0.25 else None,
        )
        for size in sizes
    )  # fmt: skip
    edges = tuple(ScheduleEdge(u, v, seconds(2) if rng.random() < 0.3 else 0.0) for u, v in sorted(pairs))
    return ScheduleInstance("two", m, stages, edges, devices=tuple(sorted(set(devices)).index(d) for d in devices))


def _least(graph: PassGraph) -> tuple[float, float]:
    """What the bound says of the iteration, and what the longest chain of passes does."""
    known = chains(graph)
    longest = max(h + s + t for h, s, t in zip(known.heads, graph.seconds, known.tails, strict=True))
    return max((bound for bound, _ in two_in_flight(graph, known)), default=0.0), longest


def test_no_bound_is_above_what_a_model_proves(cases: int) -> None:
    """And in most cases it is that, and more than a longest chain."""
    rng, seen = random.Random("two in flight"), Counter[str]()
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
    rng, met = random.Random("two, all orders"), 0
    for _ in range(cases * 40):
        instance = replace(random_instance(rng), objective="time", deadline_s=None)
        graph = PassGraph(instance)
        least = _least(graph)[0] if graph.is_possible() else 0.0
        best = optimum(instance) if least else None
        assert best is None or least <= best * (1 + 1e-12), instance
        met += best is not None and least > best * (1 - 1e-9)
    assert met > cases


@pytest.mark.parametrize(("stages", "count", "takes"), [(2, 4, 15), (3, 4, 21), (3, 3, 18), (4, 4, 27)])
def test_two_in_flight_by_hand(stages: int, count: int, takes: int) -> None:
    """Equal stages of 1 and 2 s: micro-batch j + 2 begins as j ends, and the one between a stage's 3 s after j."""
    assert two_jobs(PassGraph(chain(stages, count, in_flight=2)), 0)[0] == takes


def test_scarce_memory_is_proved_by_bounds() -> None:
    """12 stages, 32 micro-batches, three quarters of the room: heads and tails alone leave 7 and 9 % open."""
    for seed, takes in ((2, 1260), (5, 1330)):
        instance = generate(12, 32, tight=0.75, seed=seed)
        assert iteration_bound(PassGraph(instance)) == pytest.approx(takes, rel=1e-9)
        found = planner.solve(instance, method="exact")
        assert (found.objective, found.status, found.proved_by) == (takes, "optimal", "bounds")


def test_passes_of_both_jobs_start_when_the_path_has_them(cases: int) -> None:
    """On a chain whose stages all have room for two: one at a time, in turn, and done in the seconds of the bound."""
    rng = random.Random("starts of two")
    for _ in range(cases):
        seconds = [(float(rng.randint(1, 4)), float(rng.randint(1, 6))) for _ in range(rng.randint(2, 4))]
        stages = tuple(ScheduleStage(f, b, in_flight=2) for f, b in seconds)
        edges = tuple(ScheduleEdge(s, s + 1) for s in range(len(stages) - 1))
        graph = PassGraph(ScheduleInstance("chain", 7, stages, edges))
        takes, starts = two_jobs(graph, 0)
        assert len(starts) == len(graph.stage)
        assert max(starts[number] + graph.seconds[number] for number in starts) == takes
        for number, waits in enumerate(graph.before):
            assert all(starts[earlier] + graph.seconds[earlier] <= starts[number] for earlier, _ in waits)
        for device in range(len(stages)):
            order = sorted(graph.on(device), key=lambda number: starts[number])
            assert all(starts[p] + graph.seconds[p] <= starts[q] for p, q in pairwise(order))
