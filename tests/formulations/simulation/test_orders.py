"""Schedules as orders and the iterations that they make: values of the published schedules, and an oracle."""

import random

import pytest
from oracles.iteration import iteration_s

from formulations.simulation.iteration import DeadlockError, Stages, simulate
from formulations.simulation.orders import SCHEDULES, Action, Order, Schedule, one_forward_one_backward
from formulations.simulation.simulate_graph import peak_in_flight

#: Makespan and peak of device 0 for (p, m) = (2, 4), (4, 8), (8, 32): schedule, V, and seconds of F, B, W of a chunk.
#: Source: the papers' closed forms where there are some (the test below); the others of a second implementation, whose
#: orders are PyTorch's.
VALUES = [
    ("gpipe", 1, (1, 2), [(15, 4), (33, 8), (117, 32)]), ("1f1b", 1, (1, 2), [(15, 2), (33, 4), (117, 8)]),
    ("interleaved", 2, (1, 2), [(27, 5), (57, 11), (213, 23)]),
    ("interleaved", 4, (1, 2), [(51, 9), (105, 19), (405, 39)]),
    ("zb-h1", 1, (1, 1, 1), [(13, 2), (27, 4), (103, 8)]), ("zb-h1", 1, (2, 2, 1), [(23, 2), (49, 4), (181, 8)]),
    ("zb-h2", 1, (1, 1, 1), [(13, 3), (27, 7), (103, 15)]), ("zb-h2", 1, (2, 2, 1), [(22, 3), (46, 7), (174, 15)]),
    ("zb-v", 2, (1, 1, 1), [(25, 4), (51, 8), (199, 16)]), ("zb-v", 2, (2, 2, 1), [(42, 4), (86, 8), (334, 16)]),
    ("dualpipe-v", 2, (1, 1, 1), [(25, 5), (51, 9), (199, 17)]),
    ("dualpipe-v", 2, (2, 2, 1), [(43, 5), (89, 9), (341, 17)]),
    ("dualpipe", 1, (1, 1, 1), [(12, 3), (25, 5), (99, 9)]),
]  # fmt: skip


def equal_stages(schedule: Schedule, p: int, V: int, seconds: tuple[float, ...]) -> Stages:
    count = len(schedule.devices(p, V))
    split = (float(seconds[2]),) * count if len(seconds) > 2 else ()
    return Stages((float(seconds[0]),) * count, (float(seconds[1]),) * count, schedule.edges(p, V), split)


@pytest.mark.parametrize(("name", "V", "seconds", "values"), VALUES, ids=lambda value: str(value)[:20])
def test_equal_stages_take_as_long_as_published(
    name: str, V: int, seconds: tuple[float, ...], values: list[tuple[float, int]]
) -> None:
    schedule = SCHEDULES[name]
    for (p, m), (makespan, peak) in zip(((2, 4), (4, 8), (8, 32)), values, strict=True):
        orders = schedule.orders(p, m, V)
        found = simulate(equal_stages(schedule, p, V, seconds), orders)
        assert (found.makespan_s, peak_in_flight(orders[0])) == (makespan, peak), (p, m)


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("m", [8, 16, 40])
def test_bubbles_are_those_of_the_papers(p: int, m: int) -> None:
    """Narayanan et al., section 2.2: (p - 1)(f + b) / V; Qi et al., Table 2: (p - 1)(f + b - w) for ZB-H1."""
    f, b, w = 3.0, 5.0, 2.0
    for name, V, seconds, bubble in (
        ("gpipe", 1, (f, b + w), (p - 1) * (f + b + w)),
        ("1f1b", 1, (f, b + w), (p - 1) * (f + b + w)),
        ("interleaved", 2, (f / 2, (b + w) / 2), (p - 1) * (f + b + w) / 2),
        ("zb-h1", 1, (f, b, w), (p - 1) * (f + b - w)),
        ("zb-h2", 1, (f, b, w), (p - 1) * max(f, f + b - 2 * w)),
    ):
        schedule = SCHEDULES[name]
        if schedule.refusal(p, m, V) is None and m >= 2 * p - 1:
            found = simulate(equal_stages(schedule, p, V, seconds), schedule.orders(p, m, V)).makespan_s
            assert found == pytest.approx(m * (f + b + w) + bubble), name


def complete(orders: tuple[Order, ...], schedule: Schedule, p: int, m: int, V: int) -> bool:
    """Whether every action is there once, on the device of its stage."""
    home, kinds = schedule.devices(p, V), "FBW" if schedule.is_split else "FB"
    each = m // 2 if schedule.layout == "two-way" else m
    wanted = {(kind, stage, j) for kind in kinds for stage in range(len(home)) for j in range(each)}
    found = [action for order in orders for action in order]
    placed = all(home[action.stage] == i for i, order in enumerate(orders) for action in order)
    return placed and len(found) == len(wanted) and set(found) == wanted


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_action_is_there_once_and_none_waits_for_ever(name: str) -> None:
    schedule, rng, taken = SCHEDULES[name], random.Random(7), 0
    for p in range(1, 7):
        for m in (*range(1, 13), 16, 20, 24):
            for V in (1, 2, 3):
                if schedule.refusal(p, m, V) is None:
                    orders = schedule.orders(p, m, V)
                    assert complete(orders, schedule, p, m, V), (p, m, V)
                    simulate(random_stages(rng, schedule, p, V), orders)
                    taken += 1
    assert taken > 10


def random_stages(rng: random.Random, schedule: Schedule, p: int, V: int, *, delays: bool = False) -> Stages:
    count, edges = len(schedule.devices(p, V)), schedule.edges(p, V)
    forward, backward, weight = ([float(rng.randint(1, 9)) for _ in range(count)] for _ in range(3))
    late = {edge: float(rng.randint(0, 3)) for edge in edges} if delays else {}
    return Stages(tuple(forward), tuple(backward), edges, tuple(weight) if schedule.is_split else (), late)


@pytest.mark.parametrize("name", SCHEDULES)
def test_iterations_equal_the_oracle_s(name: str, cases: int) -> None:
    schedule, rng = SCHEDULES[name], random.Random(name)
    compared = 0
    while compared < max(5, cases // 4):
        p, m, V = rng.randint(1, 4), rng.randint(1, 9), rng.randint(1, 2)
        if schedule.refusal(p, m, V) is not None:
            continue
        stages, orders = random_stages(rng, schedule, p, V, delays=True), schedule.orders(p, m, V)
        seconds = {"F": stages.forward_s, "B": stages.backward_s, "W": stages.weight_s}
        found = simulate(stages, orders)
        assert found.makespan_s == iteration_s(orders, seconds, stages.edges, stages.delay_s), (p, m, V)
        compared += 1


def test_orders_that_wait_for_each_other_are_an_error() -> None:
    """Interleaved 1F1B asks for multiples of p: 5 micro-batches on 4 devices of 3 chunks would never end."""
    schedule = SCHEDULES["interleaved"]
    assert "multiples of 4" in str(schedule.refusal(4, 5, 3))
    with pytest.raises(DeadlockError, match="deadlock"):
        simulate(equal_stages(schedule, 4, 3, (1, 2)), schedule.build(4, 5, 3))


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("1f1b", (2, 4, 2)), ("zb-v", (2, 4, 1)), ("dualpipe", (3, 8, 1)), ("dualpipe-v", (4, 7, 2)),
        ("gpipe", (2, 0, 1)),
    ],
)  # fmt: skip
def test_what_a_schedule_has_no_order_for_is_refused(name: str, numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        SCHEDULES[name].orders(*numbers)


def test_delays_cost_about_two_a_microbatch() -> None:
    """Eight equal stages of 1 and 2 s, 32 micro-batches, 0.1 s between devices: 123.8 s, not 117 + 14 * 0.1."""
    schedule = SCHEDULES["1f1b"]
    stages = equal_stages(schedule, 8, 1, (1, 2))
    late = Stages(stages.forward_s, stages.backward_s, stages.edges, (), dict.fromkeys(stages.edges, 0.1))
    orders = schedule.orders(8, 32)
    assert simulate(late, orders).makespan_s == pytest.approx(123.8)
    serial = Stages(late.forward_s, late.backward_s, late.edges, (), late.delay_s, links=True)
    assert simulate(serial, orders).makespan_s == pytest.approx(123.8)  # 0.1 s is sent before the next is ready


def test_links_send_one_thing_at_a_time() -> None:
    """GPipe on two stages, 1 s each, links of 3 s: the four outputs leave at 1, 4, 7, 10 and arrive 3 s later."""
    schedule = SCHEDULES["gpipe"]
    one = Stages((1.0, 1.0), (1.0, 1.0), ((0, 1),), (), {(0, 1): 3.0})
    orders = schedule.orders(2, 4)
    assert simulate(one, orders).makespan_s == 7 + 1 + 4 + 3 + 1  # all have arrived at 7; the last F, four B, back, B
    serial = Stages(one.forward_s, one.backward_s, one.edges, (), one.delay_s, links=True)
    found = simulate(serial, orders)
    assert [found.end_s[Action("F", 1, j)] for j in range(4)] == [5.0, 8.0, 11.0, 14.0]
    assert [found.end_s[Action("B", 0, j)] for j in range(4)] == [19.0, 22.0, 25.0, 28.0]


def test_gradients_are_summed_when_declared() -> None:
    """Two stages on two devices; device 1 ends sooner, so its long sum is hidden unless all wait for all."""
    schedule = SCHEDULES["1f1b"]
    found = simulate(equal_stages(schedule, 2, 1, (1, 2)), schedule.orders(2, 4))
    assert found.makespan_s == 15 and found.end_s[Action("B", 1, 3)] == 13
    assert found.with_gradients([1.0, 4.0], "barrier") == 19
    assert found.with_gradients([1.0, 4.0], "after") == 17
    assert found.with_gradients([1.0, 4.0], "overlapped") == 17
    two = SCHEDULES["interleaved"]
    chunks = simulate(equal_stages(two, 2, 2, (1, 2)), two.orders(2, 4, 2))
    ends = [max(end for action, end in chunks.end_s.items() if action.stage == stage) for stage in range(4)]
    sums = [5.0, 0.0, 5.0, 0.0]  # chunk 2 of device 0 is done before chunk 0: its sum begins while that runs
    assert chunks.with_gradients(sums, "overlapped") == max(ends[2] + 5, ends[0]) + 5
    assert chunks.with_gradients(sums, "after") == ends[0] + 10


def test_branches_wait_for_all_before_and_all_behind() -> None:
    """Stages 0 and 1 hand to 2; micro-batch 0 of stage 2 waits for the slower one."""
    stages = Stages((1.0, 5.0, 1.0), (1.0, 1.0, 1.0), ((0, 2), (1, 2)))
    orders = tuple(one_forward_one_backward(stage, 3, range(2)) for stage in (0, 1, 2))
    found = simulate(stages, orders)
    assert found.end_s[Action("F", 2, 0)] == 6.0
    # Stage 2 runs one in turn, stage 1 begins two; B of micro-batch 0 ends at 7 on stage 2, and then on both others.
    assert found.end_s[Action("B", 2, 0)] == 7.0 and found.end_s[Action("B", 0, 0)] == 8.0
    assert found.end_s[Action("F", 1, 1)] == 10.0 and found.end_s[Action("B", 1, 0)] == 11.0
    assert found.makespan_s == iteration_s(orders, {"F": stages.forward_s, "B": stages.backward_s}, stages.edges, {})
