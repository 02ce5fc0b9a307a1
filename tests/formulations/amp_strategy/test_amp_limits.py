"""Limits of a strategy search reach into the layer assignment of a single strategy."""

import random
import threading
import time
from dataclasses import replace

import pytest
from load import allowed_s

from formulations.amp_strategy import FAMILY
from formulations.amp_strategy.definition.problem import violations
from instances.problems.amp_strategy import AmpInstance, ModelLayer, Node
from solvers.outcome import Limits, Stop, Watch


def many_layers(count: int) -> AmpInstance:
    """Sixteen devices and layers, no two identical: the published program has as many sums as it can have."""
    rng = random.Random(count)
    layers = [ModelLayer({"G": {1: rng.uniform(1, 2)}}, rng.uniform(0, 1), rng.uniform(0, 1)) for _ in range(count)]
    return AmpInstance("many layers", (Node("G", 9.0, 2.0),) * 4, 4, tuple(layers), 32)


@pytest.mark.parametrize("name", ["amp", "amp-released", "amp-sa"])
def test_a_search_that_runs_out_of_time_has_a_plan(name: str) -> None:
    method, instance, limits = FAMILY.method(name), many_layers(140), Limits(time_s=0.5)
    method.load()
    answer = method.solve(instance, limits, Watch(limits))
    assert answer.stop is Stop.TIME_LIMIT
    assert answer.plan is not None and violations(instance, answer.plan) == ()


#: Eight or sixteen stages alone: each program takes seconds.
LONG = replace(many_layers(180), global_batch=2)


@pytest.mark.parametrize("name", ["amp", "amp-released", "amp-sa"])
def test_a_limit_ends_the_program_of_a_single_strategy(name: str) -> None:
    method, limits = FAMILY.method(name), Limits(time_s=0.2)
    method.load()
    began = time.perf_counter()
    answer = method.solve(LONG, limits, Watch(limits))
    assert time.perf_counter() - began < allowed_s(1.1 * 0.2 + 1)
    assert answer.stop is Stop.TIME_LIMIT


def test_a_request_to_stop_counts_inside_a_strategy() -> None:
    method, watch = FAMILY.method("amp"), Watch()
    method.load()
    timer = threading.Timer(0.3, watch.stop, [Stop.INTERRUPTED])
    timer.start()
    began = time.perf_counter()
    answer = method.solve(LONG, Limits(), watch)
    assert time.perf_counter() - began < allowed_s(1.3)
    assert answer.stop is Stop.INTERRUPTED


def test_programs_that_are_too_large_are_refused() -> None:
    assert all(method.supports(many_layers(140)) is None for method in FAMILY.methods)
    assert "expected at most 5000000" in str(FAMILY.method("milp").supports(many_layers(400)))
    assert "1001 layers" in str(FAMILY.method("cpsat").supports(many_layers(1001)))
    for name in ("amp", "amp-released", "amp-sa"):
        assert "states of the published program at 16 stages" in str(FAMILY.method(name).supports(many_layers(400)))
    assert FAMILY.method("exhaustive").supports(many_layers(400)) is None
    vast = many_layers(4001)
    assert "4001 layers" in str(FAMILY.method("exhaustive").supports(vast))
    assert FAMILY.choose(vast, Limits(), False)[0] == "megatron"
    assert FAMILY.choose(vast, Limits(), True)[0] == "exhaustive"
