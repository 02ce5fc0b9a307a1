"""What GraphPipe solves inside: parts of a graph cost on their own what they cost in the whole."""

import random
from dataclasses import replace
from itertools import product

import branching_cases
import pytest

from formulations.stage_graph.costs.costs import Costs, bits
from formulations.stage_graph.definition.problem import evaluate, iteration_s
from formulations.stage_graph.questions.studies.inside import induced_graph, parts_of_graphpipe, schedules_of_graphpipe
from instances.problems.stage_graph import StageGraph, TableTime, check
from solvers.outcome import Limits, Watch


@pytest.mark.parametrize("seed", range(30))
def test_a_stage_costs_the_same_in_a_part_and_in_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    whole = branching_cases.uneven_graph(seed, (4, 9))
    if seed % 3 == 0:  # times from tables
        table = TableTime((2, 5), (0.5, 1.0))
        whole = replace(whole, operators=tuple(replace(each, forward=table) for each in whole.operators))
    nodes = sorted(rng.sample(range(whole.num_operators), rng.randint(1, whole.num_operators)))
    mask = sum(1 << node for node in nodes)
    part = induced_graph(whole, mask, 3)
    check(part, "part")
    inside = rng.sample(range(len(nodes)), rng.randint(1, len(nodes)))
    there, here = sum(1 << nodes[each] for each in inside), sum(1 << each for each in inside)
    costs, own = Costs(whole), Costs(part)
    for size, devices in product(whole.microbatch_sizes, (1, 2, 3)):
        if devices <= size:
            assert own.tps(here, size, devices) == pytest.approx(costs.tps(there, size, devices), rel=1e-12)
            assert own.memory(here, size, devices, size) == pytest.approx(costs.memory(there, size, devices, size))


def _graph(seed: int) -> StageGraph:
    return replace(branching_cases.random_graph(seed, (5, 7), 3, series_parallel=True), memory_bytes=1e9)


def test_the_recursion_visits_parts_up_to_the_whole() -> None:
    instance = _graph(2)
    found = [each() for each in parts_of_graphpipe(instance, Limits(), Watch())]
    parts = {str(each.origin["nodes"]) for each in found}
    assert len(found) == len(parts) * instance.num_devices
    assert f"{(1 << instance.num_operators) - 1:x}" in parts
    for each in found:
        members = list(bits(int(str(each.origin["nodes"]), 16)))
        assert each.instance.ids == tuple(instance.id_of(node) for node in members)
        assert each.instance.num_devices == each.origin["devices"]
    least = min(found, key=lambda each: each.instance.num_operators)
    assert least.plan is not None


def test_schedules_are_those_that_plans_are_priced_at() -> None:
    for seed in range(6):
        instance = _graph(seed)
        found = [each() for each in schedules_of_graphpipe(instance, Limits(), Watch())][::2]
        assert found
        for each in found:
            schedule, plan = each.instance, each.plan
            assert plan is not None and schedule.minibatch == instance.minibatch
            for number, stage in enumerate(schedule.stages):
                assert plan.peak_in_flight(number) * stage.microbatch <= stage.in_flight


def test_the_whole_on_all_devices_is_the_method_itself() -> None:
    from formulations.stage_graph.paper.graphpipe import solve_graphpipe

    instance = _graph(4)
    whole = [each for each in (found() for found in parts_of_graphpipe(instance, Limits(), Watch()))
             if each.instance.num_operators == instance.num_operators
             and each.instance.num_devices == instance.num_devices]  # fmt: skip
    plan, own = solve_graphpipe(instance, Limits(), Watch()).plan, whole[0].plan
    assert plan is not None and own is not None
    assert evaluate(whole[0].instance, own) == pytest.approx(evaluate(instance, plan), rel=1e-12)
    assert iteration_s(instance, own) > 0
