"""The CP-SAT model against the recursion, and its constraints one by one."""

from __future__ import annotations

import math
from dataclasses import replace

from oracles.hierarchical_partitioning import random_hierarchical

from formulations.hierarchical_partitioning import cpsat, paper
from formulations.hierarchical_partitioning.problem import evaluate, violations
from solvers.outcome import Limits, Stop, Watch


def test_the_recursion_agrees(cases: int) -> None:
    infeasible, limits = 0, Limits(time_s=20)
    for seed in range(max(30, cases // 2)):
        instance = random_hierarchical(seed, max_nodes=3)
        expected, answer = paper.solve(instance, Limits(), Watch()), cpsat.solve(instance, limits, Watch(limits))
        assert answer.infeasible == expected.infeasible, seed
        if answer.infeasible:
            infeasible += 1
            continue
        assert answer.plan is not None and answer.bound is not None and answer.stop is Stop.PROVED
        assert violations(instance, answer.plan) == ()
        optimum = evaluate(instance, expected.plan)
        assert math.isclose(evaluate(instance, answer.plan), optimum, rel_tol=1e-6, abs_tol=1e-9), seed
        assert answer.bound <= optimum * (1 + 1e-9)
    assert infeasible


def test_a_bound_under_a_literal_is_no_bound() -> None:
    """CP-SAT 9.15 without presolve called this infeasible, until `solvers.cpsat` switched a detection off."""
    instance = random_hierarchical(71, max_nodes=3)
    assert not cpsat.solve(instance, Limits(time_s=20), Watch()).infeasible


def test_zero_machines_left_is_infeasible() -> None:
    """A plan on two machines is cut off by K_2 = 1 when no machine holds everything."""
    for seed in range(200):
        instance = random_hierarchical(seed, max_nodes=3, memory="tight")
        if instance.num_machines < 2:
            continue
        wide = paper.solve(instance, Limits(), Watch())
        narrow = paper.solve(replace_machines(instance), Limits(), Watch())
        if wide.infeasible or not narrow.infeasible:
            continue
        assert not cpsat.solve(instance, Limits(time_s=20), Watch()).infeasible
        assert cpsat.solve(replace_machines(instance), Limits(time_s=20), Watch()).infeasible
        return
    raise AssertionError("no instance needs its second machine")


def replace_machines(instance):
    flat = replace(instance.flat, num_devices=instance.devices_per_machine)
    return replace(instance, flat=flat, num_machines=1)
