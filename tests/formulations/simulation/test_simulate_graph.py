"""The event simulation of stage graphs: idle time by phase, orders that get stuck, and mending."""

import math
import random

import pytest
from oracles.microbatch_schedule import finish, random_instance

from formulations.simulation.simulate_graph import PassGraph, kfkb, run
from instances.problems.microbatch_schedule import chain


def test_idle_time_by_phase_of_a_chain_of_equal_stages() -> None:
    """Stage s waits s forward and as many backward passes, and the passes back and forth below it while it fills."""
    graph = PassGraph(chain(3, 6), (3, 2, 1))
    trace = run(graph)
    assert trace.iteration_s == (6 + 2) * 3 and not trace.stuck
    first, last = trace.idle(0), trace.idle(2)
    assert (first.fill, first.steady, first.drain) == (4, 0, 2)
    assert (last.fill, last.steady, last.drain) == (2, 0, 4)


def test_idle_and_busy_time_are_the_iteration(cases: int) -> None:
    rng = random.Random("idle")
    for _ in range(cases):
        instance = random_instance(rng)
        trace = run(PassGraph(instance))
        for stage in range(len(instance.stages)):
            idle, busy = trace.idle(stage), sum(task.end_s - task.start_s for task in trace.of(stage))
            assert math.isclose(idle.fill + idle.steady + idle.drain + busy, trace.iteration_s, abs_tol=1e-9)


def test_orders_are_run_as_early_as_they_can(cases: int) -> None:
    """Against brute force's own simulation, stuck orders included; mending ends every one of them."""
    rng = random.Random("orders")
    stuck = 0
    for _ in range(cases):
        instance = random_instance(rng)
        counts = [instance.num_microbatches(stage) for stage in range(len(instance.stages))]
        graph = PassGraph(instance, counts)
        orders = tuple(kfkb(count, rng.randint(1, count), rng.randint(1, 2)) for count in counts)
        trace, expected = run(graph, orders), finish(instance, orders)
        assert bool(trace.stuck) == (expected is None)
        if expected is None:
            stuck += 1
            repaired = run(graph, orders, repair=True)
            assert not repaired.stuck and len(repaired.passes) == instance.num_passes
        else:
            assert math.isclose(trace.iteration_s, expected)
            assert run(graph, orders, repair=True) == trace
    assert stuck


@pytest.mark.parametrize("rooms", [(1, 1), (2, 1), (3, 3)])
def test_backwards_in_time_an_iteration_is_as_long(rooms: tuple[int, int]) -> None:
    graph = PassGraph(chain(2, 5), rooms)
    backwards = run(graph.mirrored(), priority=lambda number: graph.kind[number] == "B")
    again = run(graph, [order[::-1] for order in graph.orders_of(backwards.passes)])
    assert not again.stuck and again.iteration_s == backwards.iteration_s


def test_rooms_that_are_too_small_end_instead_of_looping() -> None:
    trace = run(PassGraph(chain(2, 3), (0, 1)))
    assert trace.stuck == (0, 1) and not trace.passes
