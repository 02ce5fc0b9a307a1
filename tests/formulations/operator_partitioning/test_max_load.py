"""The max-load dynamic program: a lower bound by its own value, and the optimum where tensors have one target."""

import random
from dataclasses import replace
from itertools import islice, product

import pytest
from oracles.operator_partitioning import optimum, random_instance

from formulations.operator_partitioning.definition.problem import evaluate, violations
from formulations.operator_partitioning.paper import parmesan
from instances.problems.operator_partitioning import OperatorInstance, per_pair
from planner.solving.solve import solve
from solvers.outcome import Limits, Status, Watch


def drawn(number: int) -> OperatorInstance | None:
    """A small graph with a given number of stages and of replicas of each."""
    instance = random_instance(random.Random(f"max load {number}"), 6)
    if instance.num_stages is None or instance.flushed:
        return None
    return replace(instance, num_devices=None)


@pytest.mark.parametrize("single", [False, True])
def test_its_value_is_a_bound_and_the_optimum_where_tensors_have_one_target(cases: int, single: bool) -> None:
    met = below = 0
    for number in range(2 * cases):
        instance = drawn(number)
        if instance is None:
            continue
        instance = per_pair(instance) if single else instance
        answer = parmesan.solve_max_load(instance, Limits(), Watch())
        best = optimum(instance)
        if best is None:
            assert answer.plan is None
            continue
        assert answer.plan is not None and not violations(instance, answer.plan)
        value, own = answer.stats["max_load"], evaluate(instance, answer.plan)
        assert value <= best * (1 + 1e-9) and own >= best * (1 - 1e-9)
        assert not single or own == pytest.approx(best, rel=1e-9)
        met += own <= best * (1 + 1e-9)
        below += value < best * (1 - 1e-9)
    assert met > cases // 4 and (single or cases < 100 or below)
    assert not single or not below


def least(instance: OperatorInstance, contiguous: bool) -> float | None:
    """The least load of the busiest device, by trying every split; ``None``: nothing fits."""
    homes = product(range(instance.num_stages or 1), repeat=len(instance.operators))
    return min((each for home in homes if (each := busiest(instance, contiguous, home)) is not None), default=None)


def busiest(instance: OperatorInstance, contiguous: bool, home: tuple[int, ...]) -> float | None:
    """The load of the busiest device; ``None``: it does not fit."""
    n, loads = len(instance.operators), []
    reach = {(tensor.source, target) for tensor in instance.tensors for target in tensor.targets}
    for middle, a, b in product(range(n), repeat=3):
        if (a, middle) in reach and (middle, b) in reach:
            reach.add((a, b))
    if contiguous and any(home[a] == home[b] != home[v] for a, v in reach for w, b in reach if v == w):
        return None
    for device in range(instance.num_stages or 1):
        own = {v for v in range(n) if home[v] == device}
        ends = [(t.source in own, own.issuperset(t.targets), own.isdisjoint(t.targets)) for t in instance.tensors]
        moved = [not all_in if source else not none_in for source, all_in, none_in in ends]
        bytes_moved = sum(t.volume_bytes for t, moves in zip(instance.tensors, moved, strict=True) if moves)
        if sum(instance.operators[v].memory_bytes for v in own) > (instance.memory_bytes or 1e9):
            return None
        busy = sum(instance.operators[v].compute_s for v in own)
        loads.append(busy + bytes_moved / instance.bandwidth_bytes_per_s)
    return max(loads)


@pytest.mark.usefixtures("split_problem")
def test_devices_that_hold_any_operators_and_contiguous_ones_are_proved(cases: int) -> None:
    from planner.reproduction.baselines.max_load_splits import PROBLEM, Split, splits

    gained = none = 0
    for number in range(23, 23 + max(8, cases // 20 if cases < 1000 else cases)):
        rng = random.Random(f"splits {number}")
        plain = random_instance(rng, 6, plain=True)
        room = rng.choice([None, float(rng.randint(3, 9))])
        instance = replace(plain, num_stages=rng.randint(2, 3), memory_bytes=room, training=None)
        best = [least(instance, contiguous) for contiguous in (False, True)]
        for contiguous in (False, True):
            some = splits(instance, contiguous=contiguous)
            for home in islice(product(*(range(min(v + 1, some.devices)) for v in range(len(some.operators)))), 50):
                taken = busiest(instance, contiguous, home)
                assert (taken is None) is bool(PROBLEM.family.violations(some, Split(home))), (number, home)
                assert taken is None or PROBLEM.family.evaluate(some, Split(home)) == pytest.approx(taken)
            found, wanted = solve(some, method="cpsat"), best[contiguous]
            assert found.status is (Status.INFEASIBLE if wanted is None else Status.OPTIMAL), number
            assert found.objective == (wanted and pytest.approx(wanted, rel=1e-6)), (number, contiguous)
        gained += best[0] is not None and (best[1] is None or best[0] < best[1] * (1 - 1e-9))
        none += best[0] is None
    assert gained and (cases < 100 or none)
