"""The fill by replicas: the definition by hand and against fixed orders, and every method against brute force."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from certificate_cases import certified, parsed
from oracles.flushed_partitioning import brute_force

import planner
from formulations.flushed_partitioning import FAMILY
from formulations.flushed_partitioning.certificate import checker
from formulations.flushed_partitioning.definition.problem import evaluate, fill_time, later_rounds, simulate_batch
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from instances.problems.flushed_partitioning import Fill, FlushedInstance, Schedule, flush_pipeline
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from solvers.outcome import Limits, Watch


def chain(times: str, m: int, sent: float = 0.0) -> FlushedInstance:
    """A layer for each digit, which is its time; weights of 10 bytes."""
    layers = tuple(Layer(v, {1: (Tmpc("x", float(time), 10.0, 0.0, 1.0),)}) for v, time in enumerate(times))
    edges = tuple(Edge(v, v + 1, sent) for v in range(len(times) - 1))
    flat = StageInstance("chain", layers, edges, 64, 100.0, 10.0, m)
    return replace(flush_pipeline(flat), fill=Fill.REPLICAS)


def plan(*stages: tuple[tuple[int, ...], int]) -> StagePlan:
    return StagePlan(tuple(Stage(nodes, d, 1, dict.fromkeys(nodes, "x")) for nodes, d in stages))


def test_by_hand() -> None:
    """Stages of 8 + 4 and 6 + 4 s; of four micro-batches two run on each replica of the first, four on the second."""
    instance, made = chain("86", 4, sent=20.0), plan(((0,), 2), ((1,), 1))
    assert (fill_time(instance, made), later_rounds(instance, made)) == (22.0, [12.0, 30.0])
    assert evaluate(instance, made) == pytest.approx((22 + 30) / 4 + 4 * 1 / 2 * 10 / 10 / 4)
    five = chain("86", 5, sent=20.0)  # three on the busier replica of the first
    assert later_rounds(five, made) == [24.0, 40.0]


def test_only_the_heaviest_path_fills() -> None:
    """1 s in front of 2 s beside 5 s, both in front of 3 s: a path takes 9 s, and not 11."""
    layers = tuple(Layer(v, {1: (Tmpc("x", time, 0.0, 0.0, 1.0),)}) for v, time in enumerate((1.0, 2.0, 5.0, 3.0)))
    edges = tuple(Edge(u, v, 0.0) for u, v in ((0, 1), (0, 2), (1, 3), (2, 3)))
    instance = replace(flush_pipeline(StageInstance("diamond", layers, edges, 8, 9.0, 1.0, 8)), fill=Fill.REPLICAS)
    made = plan(((0,), 1), ((1,), 2), ((2,), 1), ((3,), 1))
    assert fill_time(instance, made) == 9.0
    assert evaluate(instance, made) == pytest.approx((9 + 7 * 5) / 8)


@pytest.mark.parametrize("schedule", list(Schedule))
def test_equal_stages_take_what_fixed_orders_take(schedule: Schedule, cases: int) -> None:
    """With equal degrees, any number of micro-batches: the formula by stages is below, by more with more replicas."""
    below = 0
    for seed in range(cases):
        rng = random.Random(seed)
        p, d = rng.randint(1, 5), rng.randint(1, 4)
        instance = replace(chain("3" * p, rng.randint(p * d, 24)), schedule=schedule)
        made = plan(*(((v,), d) for v in range(p)))
        time = simulate_batch(instance, made)
        assert evaluate(instance, made) == pytest.approx(time, rel=1e-12), seed
        below += evaluate(replace(instance, fill=Fill.STAGES), made) < time * (1 - 1e-9)
    assert below > cases / 4


def test_gpipe_takes_the_formula_whatever_the_stages(cases: int) -> None:
    for seed in range(cases):
        rng = random.Random(seed)
        times, d = "".join(rng.choices("123456789", k=rng.randint(1, 5))), rng.randint(1, 3)
        instance = replace(chain(times, d * rng.randint(5, 9)), schedule=Schedule.GPIPE)
        made = plan(*(((v,), d) for v in range(len(times))))
        assert evaluate(instance, made) == pytest.approx(simulate_batch(instance, made), rel=1e-12), seed


def test_more_replicas_are_tried_where_they_need_less_memory() -> None:
    """6 s with one micro-batch's 4 bytes, or 9 s with none; behind b the first stage has 1 + ceil(1/d) in flight.

    Up to d = 3 of a the fast choice is too large beside the one micro-batch of 12 that each replica would hold.
    """
    a = Layer("a", {1: (Tmpc("fast", 6.0, 0.0, 4.0, 0.0), Tmpc("slow", 9.0, 0.0, 0.0, 0.0))})
    b = Layer("b", {1: (Tmpc("x", 1.0, 0.0, 0.0, 8.0),)})
    for devices, schedule in ((3, Schedule.GPIPE), (5, Schedule.GPIPE), (3, Schedule.ONE_F_ONE_B)):
        flat = StageInstance("ab", (a, b), (Edge("a", "b", 0.0),), devices, 8.0, 1.0, 6)
        instance = replace(flush_pipeline(flat, schedule), fill=Fill.REPLICAS)
        answer = FAMILY.method("labels").solve(instance, Limits(), Watch())
        assert evaluate(instance, answer.plan) == pytest.approx(brute_force(instance)), (devices, schedule)


def test_certificates_say_which_fill_they_are_of() -> None:
    """One of the other fill is of another instance."""
    by_replicas = chain("8642", 4)
    by_stages = replace(by_replicas, fill=Fill.STAGES)
    for instance, other in ((by_replicas, by_stages), (by_stages, by_replicas)):
        result, content = certified(instance)
        assert checker.verify(parsed(instance), content)["accepted"]
        assert float(Fraction(content["objective"])) == pytest.approx(result.objective)
        assert not checker.verify(parsed(other), content)["accepted"]


@pytest.mark.parametrize("method", ["cpsat", "milp", "milp-columns"])
def test_a_path_that_takes_aeons_is_in_no_number_of_a_model(method: str) -> None:
    """A known plan of one stage bounds S: what no good plan sends is no number beyond 64 bits."""
    slow = chain("86", 4, sent=1e20)
    found = planner.solve(replace(slow, flat=replace(slow.flat, num_devices=2)), method=method)
    assert (found.status, found.objective) == ("optimal", pytest.approx((14 + 14) / 4 + 1))
