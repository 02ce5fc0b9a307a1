"""Certificates of micro-batch schedules: heads and tails prove what brute force confirms, and nothing else."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from itertools import count

import pytest
from certificate_cases import Spoiling, claimed, parsed, proves
from oracles.microbatch_schedule import optimum
from small_instances import known_optimum, random_case

import planner
from formulations.contract.checker.frame import RejectedError
from formulations.contract.family import UncertifiedError
from formulations.microbatch_schedule.certificate import checker
from formulations.microbatch_schedule.certificate.writer import write
from instances.problems.microbatch_schedule import ScheduleEdge, ScheduleInstance, ScheduleStage, chain
from solvers.outcome import Watch


def small(number: int) -> ScheduleInstance:
    """With few enough orders of passes to try them all."""
    drawn = (random_case("microbatch_schedule", 16, 1000 * number + k) for k in count())
    return next(each for each in drawn if known_optimum("microbatch_schedule", each)[0])


def least(instance: ScheduleInstance) -> float:
    """The optimum in float64, and what it rounds; infinite if there is no plan."""
    best = optimum(instance)
    return math.inf if best is None else best * (1 + 1e-15)


HEADS_AND_TAILS = {"kind": "bound", "name": "heads and tails"}


def claim(instance: ScheduleInstance, bound: Fraction | None) -> dict:
    return claimed(instance, bound, HEADS_AND_TAILS)


def accepts(instance: ScheduleInstance, bound: Fraction | None) -> bool:
    return proves(instance, bound, HEADS_AND_TAILS)


def test_no_bound_from_the_optimum_on_is_accepted(cases: int) -> None:
    """Nor one within the tolerance of the definition; and where there is a plan, no claim that there is none."""
    proved = 0
    for number in range(cases):
        instance = small(number)
        best = optimum(instance)
        if best is None:
            continue
        assert not accepts(instance, None), number
        if best:
            for higher in (1.0, 1 + 1e-9, 1.5, 4.0):
                assert not accepts(instance, Fraction(best) * Fraction(higher)), (number, higher)
            if instance.objective == "time":
                assert not accepts(instance, Fraction(best) * (1 - Fraction(1, 10**10))), number
            proved += accepts(instance, Fraction(best) * (1 - Fraction(1, 10**6)))
    assert proved >= cases // 4


SPOILING = Spoiling(small, least, rejected=0.2)


def two_stages(**changes: object) -> ScheduleInstance:
    """Passes of 1 and 2 s, two micro-batches, a message of 1 s: F0 F1, then B after both ways there and back."""
    stage = ScheduleStage(1.0, 2.0)
    return replace(ScheduleInstance("hand", 2, (stage, stage), (ScheduleEdge(0, 1, 1.0),)), **changes)


@pytest.mark.parametrize(
    ("changes", "best"),
    [
        ({}, 11),  # the second stage: its head is 2 s, its passes take 6 s, its tail 3 s
        ({"stages": (ScheduleStage(1.0, 2.0, in_flight=1), ScheduleStage(1.0, 2.0))}, 16),  # one after the other
        ({"stages": (ScheduleStage(1.0, 2.0, in_flight=1), ScheduleStage(1.0, 2.0, microbatch=2))}, math.inf),
        ({"deadline_s": 10.9}, math.inf),
        ({"deadline_s": 11.0}, 11),
        ({"objective": "memory", "deadline_s": 15.0,
          "stages": (ScheduleStage(1.0, 2.0, activation_bytes=3.0), ScheduleStage(1.0, 2.0, activation_bytes=1.0))}, 6),
        ({"objective": "memory", "stages": (ScheduleStage(1.0, 2.0, weight_bytes=2.0, activation_bytes=3.0),) * 2}, 5),
    ],
)  # fmt: skip
def test_optima_by_hand(changes: dict, best: float) -> None:
    instance = two_stages(**changes)
    assert (optimum(instance) or math.inf) == best
    if best == math.inf:
        assert accepts(instance, None) is (instance.deadline_s is not None)
        assert accepts(instance, Fraction(10**6))  # of a cycle within any time there is none
        return
    assert accepts(instance, best * (1 - Fraction(1, 10**6)))
    assert not accepts(instance, Fraction(best))


@pytest.mark.parametrize(
    ("place", "change", "reason"),
    [
        ((0, 3), -1.0, "starts and times"), ((0, 4), 1.5, "starts and times"), ((0, 1), "B", "every pass once"),
        ((0, 2), 2, "passes that exist"), ((0, 0), 1, "every pass once"), ((1, 3), 0.5, "starts and times"),
        ("B0 too early", None, "a pass waits"), ("late", None, "the deadline"), ("overlap", None, "one pass at a time"),
        ("last", None, "every pass"), ((0, 1), "FB", "passes that exist"), ((0, 1), "W", "passes that exist"),
    ],
)  # fmt: skip
def test_plans_that_break_a_rule_are_rejected_by_name(place: object, change: object, reason: str) -> None:
    instance = two_stages(deadline_s=12.0)
    plan = json.loads(json.dumps(planner.solve(instance, exact=True).plan))
    tasks = plan["tasks"]
    assert checker.plan_value(checker.Instance(parsed(instance)), plan) == 11
    if isinstance(place, tuple):
        tasks[place[0]][place[1]] = change
    elif place == "last":
        tasks.pop()
    else:
        chosen = [task for task in tasks if task[:3] == [0, "B", 0]]
        if place == "late":
            chosen = [max(tasks, key=lambda task: task[4])]
        elif place == "overlap":
            chosen = [task for task in tasks if task[:3] == [0, "F", 1]]
        moved = {"late": 2.0, "overlap": -0.5}.get(str(place), -1.0)
        for task in chosen:
            task[3:] = [task[3] + moved, task[4] + moved]
    with pytest.raises(RejectedError, match=reason):
        checker.plan_value(checker.Instance(parsed(instance)), plan)


@pytest.mark.parametrize(
    ("changes", "order", "begin", "reason"),
    [
        ({}, "F0 F1 B1 B0", 0.0, "passes in turn"), ({}, "F0 F1 B0 B1", -1.0, "starts and times"),
        ({"in_flight": 1}, "F0 F1 B0 B1", 0.0, "room in flight"), ({"memory_bytes": 6.9}, "F0 F1 B0 B1", 0.0, "memory"),
        ({"in_flight": 1, "weight_s": 1.0}, "F0 B0 F1 W0 B1 W1", 0.0, "room in flight"),
        ({"memory_bytes": 6.9, "weight_s": 1.0}, "F0 B0 F1 W0 B1 W1", 0.0, "memory"),
    ],
)  # fmt: skip
def test_plans_that_break_one_rule_alone_are_rejected(changes: dict, order: str, begin: float, reason: str) -> None:
    """A device holds 1 byte of weights, and 3 of each micro-batch; without the rule, the plan would be one."""
    stage, rows, clock = ScheduleStage(1.0, 2.0, weight_bytes=1.0, activation_bytes=3.0), [], begin
    for kind, j in order.split():
        rows.append([0, kind, int(j), clock, clock + (2.0 if kind == "B" else 1.0)])
        clock = rows[-1][4]
    for objective, value in (("time", clock), ("memory", 7)):
        instance = ScheduleInstance("one", 2, (replace(stage, **changes),), objective=objective)
        assert not planner.check(instance, {"tasks": rows}).feasible
        with pytest.raises(RejectedError, match=reason):
            checker.plan_value(checker.Instance(parsed(instance)), {"tasks": rows})
        if "F0 F1 B1" not in order and not begin:
            free = replace(instance, stages=(replace(stage, weight_s=changes.get("weight_s")),))
            assert checker.plan_value(checker.Instance(parsed(free)), {"tasks": rows}) == value


def test_without_time_there_is_no_plan() -> None:
    assert accepts(two_stages(deadline_s=0.0), None)


def test_a_plan_within_the_tolerance_of_the_definition_is_not_excluded() -> None:
    """Four passes, each of which begins 1e-9 of the iteration too early, and ends as much earlier."""
    instance = ScheduleInstance("one", 2, (ScheduleStage(1.0, 2.0),))
    tolerance, rows, clock = 6e-9 * 0.99, [], 0.0
    for kind, j, u in (("F", 0, 1.0), ("F", 1, 1.0), ("B", 0, 2.0), ("B", 1, 2.0)):
        start = clock - tolerance
        clock = start + u - tolerance
        rows.append([0, kind, j, start, clock])
    checked = planner.check(instance, {"tasks": rows})
    assert checked.feasible and checked.objective is not None and checked.objective < 6 * (1 - 7e-9)
    assert not accepts(instance, Fraction(checked.objective))
    assert accepts(instance, 6 * (1 - Fraction(9, 10**9)))
    late = replace(instance, deadline_s=checked.objective * (1 - 9.9e-10))  # which the tolerance admits as well
    assert planner.check(late, {"tasks": rows}).feasible and not accepts(late, None)
    assert accepts(replace(instance, deadline_s=6 * (1 - 1.1e-8)), None)


def test_passes_that_the_tolerance_swallows_are_refused() -> None:
    instance = ScheduleInstance("short", 2, (ScheduleStage(1.0, 1e-9),))
    found = checker.verify(parsed(instance), claim(instance, Fraction(1)))
    assert found["reason"].startswith("short: a pass takes no more than the tolerance")


def test_what_is_not_certified_says_why() -> None:
    with pytest.raises(UncertifiedError, match="heads and tails do not meet the bound"):
        write(two_stages(), None, 12.0, Watch())
    with pytest.raises(UncertifiedError, match="heads and tails alone do not exclude all plans"):
        write(two_stages(deadline_s=12.0), None, math.inf, Watch())


def test_passes_of_no_time_are_no_instance() -> None:
    """They would keep a deadline of 0 s, within which nothing else has a plan."""
    instance = replace(chain(2, 2), deadline_s=0.0)
    assert accepts(instance, None)
    content = parsed(instance)
    for stage in content["stages"]:
        stage |= {"forward_s": 0.0, "backward_s": 0.0}
    with pytest.raises(ValueError, match="passes that take time"):
        checker.verify(content, claim(instance, None))
