"""What every method of every family must keep, found through `FAMILIES`: a new room is examined without a change here.

A new family adds its small examples to `EXAMPLES`.
"""

import dataclasses
import inspect
import itertools
import json
import math
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
from fuzzing import documented
from load import allowed_s
from small_instances import family_named, random_case
from stopping import StopsAfter
from thinned import thinned

import planner
from formulations import FAMILIES
from formulations.contract.family import Claim, Family, Method
from instances.exchange import to_json
from instances.problems.flushed_partitioning import flush_pipeline
from instances.problems.hierarchical_partitioning import on_machines
from instances.problems.microbatch_schedule import pipeline
from instances.requirements import parse, with_requirements
from planner.cli.solve import solve_command
from planner.files.write import as_json
from planner.solving.worker import any_left_behind
from solvers.outcome import Limits, Status, Stop

LAYERS = {
    "problem": "layer_assignment", "schema_version": 1, "num_stages": 2, "num_microbatches": 4,
    "layer_time_s": [1, 2, 1, 3], "cut_cost_s": [[1], [0], [2]], "parameters": [3, 1, 1, 1],
}  # fmt: skip
_TIMES = {"new": {"1": 0.01, "2": 0.006}, "old": {"1": 0.02, "2": 0.013}}
STRATEGIES = {
    "problem": "amp_strategy", "schema_version": 1, "devices_per_node": 2, "global_batch": 8,
    "nodes": [{"gpu": gpu, "intra_bytes_per_s": 8e9, "inter_bytes_per_s": 1e9} for gpu in ("new", "old")],
    "layers": [{"forward_s": _TIMES, "activation_bytes": 4e6, "parameters": 1e6}],
}  # fmt: skip
OPERATORS = {
    "problem": "operator_partitioning", "schema_version": 1, "num_stages": 2, "bandwidth_bytes_per_s": 2,
    "operators": [{"id": v, "compute_s": v + 1, "parameter_bytes": 1, "activation_bytes": 2} for v in range(5)],
    "tensors": [
        {"source": 0, "targets": [1, 2], "volume_bytes": 3}, {"source": 1, "targets": [3], "volume_bytes": 1},
        {"source": 2, "targets": [3, 4], "volume_bytes": 2},
    ],
    "training": {"microbatches": 2},
}  # fmt: skip
DEVICES = {"memory_bytes": [100, 60, 100], "bandwidth_bytes_per_s": [[0, 4, 2], [4, 0, 1], [2, 2, 0]]}
GRAPH = {
    "problem": "stage_graph", "schema_version": 1, "num_devices": 3, "memory_bytes": 100, "bandwidth_bytes_per_s": 4,
    "latency_s": 0.25, "minibatch": 4,
    "operators": [
        {"id": name, "forward": {"fixed_s": 1, "per_sample_s": 2}, "weight_bytes": 3, "activation_bytes": 2,
         "backward": {"samples": [1, 2, 4], "seconds": [3, 5, 9]}}
        for name in ("sink", "left", "right", "source")
    ],
    "edges": [
        {"source": u, "target": v, "bytes_per_sample": 1}
        for u, v in (("source", "left"), ("source", "right"), ("left", "sink"), ("right", "sink"))
    ],
}  # fmt: skip
MAPPING = {
    "problem": "device_mapping", "schema_version": 1, "objective": "full", "replicas": 2,
    "stages": [{"compute_s": 1, "parameter_bytes": 4}, {"compute_s": 2, "parameter_bytes": 9}],
    "edges": [{"source": 0, "target": 1, "volume_bytes": 6}],
    "bandwidth_bytes_per_s": [[0, 4, 2, 1], [4, 0, 1, 3], [2, 1, 0, 5], [1, 3, 5, 0]],
}  # fmt: skip
PLACEMENT = {
    "problem": "pipeline_placement", "schema_version": 1, "bandwidth_bytes_per_s": MAPPING["bandwidth_bytes_per_s"],
    "operators": {name: value for name, value in OPERATORS.items() if name != "problem"} | {"replicas": 2},
}  # fmt: skip


def _hierarchical(name: str, devices: int, machines: int, **given: Any) -> Any:
    flat = planner.load(name)
    instance = on_machines(flat, devices, machines, 10 * flat.bandwidth, flat.bandwidth)
    return family_named("hierarchical_partitioning").read(instance, name, given)


def _file(content: dict[str, Any], **more: Any) -> Callable[..., Any]:
    """What reads a file with that content."""
    return lambda **given: family_named(content["problem"]).read({**content, **more}, "example", given)


def _page(problem: str, **more: Any) -> Callable[..., Any]:
    """What reads the example of the problem's page."""
    return lambda **given: _file(documented()[problem], **more)(**given)


#: Small feasible instances of each family, and overrides that starve the first of them.
EXAMPLES: dict[str, tuple[Callable[..., Any], ...]] = {
    "stage_partitioning": (
        lambda **given: planner.load("diamond", **given),
        lambda **given: planner.load("chain8", **{"devices": 4, **given}),
    ),
    "layer_assignment": (_file(LAYERS), _file(LAYERS, ring_s_per_parameter=[0.5])),
    "mesh_tiling": (_page("mesh_tiling"),),
    "operator_strategies": (_page("operator_strategies"),),
    "amp_strategy": (_file(STRATEGIES), _file(STRATEGIES, placement="oriented")),
    "operator_partitioning": (
        _file(OPERATORS),
        lambda **given: family_named("operator_partitioning").read(OPERATORS, "example", {"at-most": True, **given}),
    ),
    "stage_graph": (
        _file(GRAPH), _file(GRAPH, num_devices=4, memory_bytes=56), _file(GRAPH, objective="iteration"),
        _file(GRAPH, schedule="per-stage"), _file(GRAPH, device_graph=DEVICES),
    ),
    "tmpc_knapsack": (_page("tmpc_knapsack"),),
    "flushed_partitioning": (
        lambda **given: family_named("flushed_partitioning").read(flush_pipeline(planner.load("diamond")), "it", given),
        lambda **given: planner.load("chain8-flushed", **{"objective": "iteration", **given}),
    ),
    "training_strategy": (
        lambda **given: planner.load("chain8-strategy", **given),
        lambda **given: planner.load("chain8", problem="training_strategy", **{"schedule": "1f1b,gpipe", **given}),
    ),
    "serving_strategy": (_page("serving_strategy"), _page("serving_strategy", objective="latency", requests=3)),
    "hierarchical_partitioning": (
        lambda **given: _hierarchical("diamond", 2, 2, **given),
        lambda **given: _hierarchical("chain8", 2, 2, **{"objective": "iteration", **given}),
    ),
    "microbatch_schedule": (
        _page("microbatch_schedule"), _page("microbatch_schedule", objective="memory", deadline_s=30),
        *(_file(to_json(pipeline(*each))) for each in (((0, 1), 3, 1, 1, 1), ((0, 1, 0, 1), 2), ((0, 0), 2, 1, 1, 1))),
    ),
    "device_mapping": (_file(MAPPING), _file(MAPPING, objective="allreduce")),
    "pipeline_placement": (_file(PLACEMENT), _file(PLACEMENT, objective="p2p")),
}  # fmt: skip
STARVED = {family.name: {"memory": 1.0} for family in FAMILIES} | {
    "layer_assignment": {"stages": 5},
    "mesh_tiling": {"tp-degree": 4},
    "operator_strategies": {"usage-limit": 27},
    "amp_strategy": {"global-batch": 1},
}
#: Whatever these families declare has a plan.
NEVER_STARVED = {"device_mapping"}
#: One thread of a slow machine proves the examples in this time.
LIMITS = Limits(time_s=30.0)

METHODS = {f"{family.name}-{method.name}": (family, method) for family in FAMILIES for method in family.methods}
ANY_FAMILY = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
ANY_METHOD = pytest.mark.parametrize(("family", "method"), METHODS.values(), ids=METHODS)
#: By default of each family the first, fourth, ...
SOME_METHODS = thinned(("family", "method"), METHODS.values(), of=lambda family, _: family.name, ids=METHODS)


def given(method: Method[Any, Any], instance: Any) -> Any:
    """The instance, with the requirement that the method is for."""
    return with_requirements(instance, [parse(method.needs)]) if method.needs else instance


@cache
def proved_optimum(family_name: str, number: int, method_name: str = "") -> float:
    """The optimum of an example (for a method of that name), proved by the method that the dispatcher trusts."""
    instance = EXAMPLES[family_name][number]()
    if method_name:
        instance = given(family_named(family_name).method(method_name), instance)
    result = planner.solve(instance, exact=True, limits=LIMITS)
    assert result.status is Status.OPTIMAL and result.objective is not None
    return result.objective


@SOME_METHODS
def test_results_are_verified_and_bracket_the_optimum(family: Family[Any, Any], method: Method[Any, Any]) -> None:
    supported = 0
    for number, example in enumerate(EXAMPLES[family.name]):
        instance = given(method, example())
        if method.supports(instance) is not None:
            continue
        supported += 1
        result = planner.solve(instance, method=method.name, limits=LIMITS)
        optimum = proved_optimum(family.name, number, method.name if method.needs else "")
        assert result.verified and result.objective is not None
        assert result.objective >= optimum * (1 - 1e-9)
        assert result.bound is None or result.bound <= optimum * (1 + 1e-6)
        if method.claim is Claim.EXACT:
            assert result.status is Status.OPTIMAL
            assert math.isclose(result.objective, optimum, rel_tol=1e-6)
        _round_trip(family, instance, result)
    assert supported, "no example is small enough for this method"


def _round_trip(family: Family[Any, Any], instance: Any, result: planner.Result) -> None:
    """The result is JSON, and its plan checks after having been text."""
    shown = json.loads(as_json(result.to_json()))
    assert shown["status"] == result.status.value and shown["objective"] == result.objective
    verdict = planner.check(instance, shown["plan"])
    assert verdict.feasible and verdict.objective == result.objective
    plan = family.plan_from_json(instance, shown["plan"])
    assert family.plan_to_json(instance, result.own_plan) == result.plan and "own_plan" not in shown
    assert family.plan_to_json(instance, plan) == shown["plan"]


@SOME_METHODS
def test_starved_instances_are_proved_infeasible(family: Family[Any, Any], method: Method[Any, Any]) -> None:
    if family.name in NEVER_STARVED:
        pytest.skip("every instance is feasible")
    instance = given(method, EXAMPLES[family.name][0](**STARVED[family.name]))
    if method.supports(instance) is not None:
        pytest.skip("the example is too large for this method")
    result = planner.solve(instance, method=method.name, limits=LIMITS)
    assert result.plan is None and result.objective is None
    if method.claim is Claim.EXACT:
        assert result.status is Status.INFEASIBLE
        assert len(result.reason) > len("requested by the user"), "it does not say what would help"
    else:
        assert result.status in (Status.INFEASIBLE, Status.UNKNOWN)


@ANY_METHOD
def test_a_method_stopped_anywhere_says_nothing_false(family: Family[Any, Any], method: Method[Any, Any]) -> None:
    """Before it starts, and at later polls, as long as there are any; a small instance may be done before it looks."""
    method.load()
    for number, example in enumerate(EXAMPLES[family.name]):
        instance = given(method, example())
        if method.supports(instance) is not None:
            continue
        best = proved_optimum(family.name, number, method.name if method.needs else "")
        for polls in (0, 1, 3, 8, 20, 50, 120):
            watch = StopsAfter(polls, Stop.INTERRUPTED)
            watch.evaluate = partial(family.evaluate, instance)
            answer = method.solve(instance, Limits(), watch)
            assert not answer.infeasible, polls
            assert answer.plan is not None or answer.stop is Stop.INTERRUPTED, polls
            for bound in (answer.bound, watch.best_bound):
                assert bound is None or bound <= best * (1 + 1e-6), polls
            for plan in (answer.plan, watch.best_plan):
                if plan is not None:
                    assert not family.judge(instance, plan), polls
                    assert family.evaluate(instance, plan) >= best * (1 - 1e-9), polls
            if watch.left >= 0:
                break


@SOME_METHODS
def test_time_limits_are_kept(family: Family[Any, Any], method: Method[Any, Any]) -> None:
    instance = _large(family, method)
    method.load()
    # A busy machine may be late, or the first that imports; a method that keeps its limit is not late every time.
    took, limit = [_seconds_within(instance, method, 0.03)], allowed_s(1.033)
    while took[-1] > limit:
        assert len(took) < 3, f"a limit of 0.03 s, and it took {took}"
        took.append(_seconds_within(instance, method, 0.03))


def _seconds_within(instance: Any, method: Method[Any, Any], limit: float) -> float:
    began = time.perf_counter()
    result = planner.solve(instance, method=method.name, limits=Limits(time_s=limit))
    took = time.perf_counter() - began
    assert result.status is not Status.OPTIMAL or result.verified
    while any_left_behind():  # the runner answers in time for a method that is slow to stop, but it must stop
        assert time.perf_counter() - began < allowed_s(10), "the method did not stop by itself"
        time.sleep(0.05)
    return took


# A signal raises the flag of a limit: the first method of each family will do.
@thinned(("family", "method"), METHODS.values(), len(METHODS), of=lambda family, _: family.name, ids=METHODS)
def test_an_interruption_gives_a_result(family: Family[Any, Any], method: Method[Any, Any]) -> None:
    instance = _large(family, method)
    method.load()
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, lambda *_: None)  # the method may be done before the signal comes
    try:
        timer.start()
        result = planner.solve(instance, method=method.name, limits=Limits(time_s=20))
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    if result.signal is not None and result.status in (Status.FEASIBLE, Status.UNKNOWN):
        assert result.stop is Stop.INTERRUPTED
    assert result.seconds < allowed_s(2.0) or result.signal is None


def _large(family: Family[Any, Any], method: Method[Any, Any]) -> Any:
    """An instance on which slow methods take a while; the largest example where the method supports no larger one."""
    larger = [planner.load("bert32")] if family.name == "stage_partitioning" else []
    every = [*larger, *(example() for example in reversed(EXAMPLES[family.name]))]
    return next(instance for instance in (given(method, each) for each in every) if method.supports(instance) is None)


#: Words of a result: a reason must hold for infeasible and unproved ones as well.
_PROMISES = re.compile(r"\b(prove[sd]?|optim\w+|is exact|gives?|a proof over|until the best|a good plan)\b")


@ANY_FAMILY
def test_a_choice_is_of_the_requested_claim_and_says_what_runs_and_not_what_it_finds(family: Family[Any, Any]) -> None:
    for instance in (example() for example in EXAMPLES[family.name]):
        for exact, limits in itertools.product((False, True), (LIMITS, Limits(time_s=1e-6))):
            name, reason = family.choose(instance, limits, exact)
            method = family.method(name)
            assert method.supports(instance) is None and reason and not _PROMISES.search(reason), reason
            assert method.claim is Claim.EXACT or not exact


@ANY_FAMILY
def test_instances_survive_being_text(family: Family[Any, Any], cases: int) -> None:
    drawn = (random_case(family.name, 3, number) for number in range(cases))
    for number, instance in enumerate((*drawn, *(example() for example in EXAMPLES[family.name]))):
        shown = family.to_json(instance)
        content = json.loads(json.dumps(shown, allow_nan=False))
        assert shown["problem"] == family.name and shown["schema_version"] == 1 and family.recognise(content)
        again = family.read(content, "again", {})
        assert family.to_json(again) == shown, number
        declared = [each.name for each in dataclasses.fields(instance) if each.name != "options"]
        assert all(getattr(again, name) == getattr(instance, name) for name in declared), number


@ANY_FAMILY
def test_a_method_that_refuses_instances_says_which_it_takes(family: Family[Any, Any]) -> None:
    takes_all = Method.__dataclass_fields__["supports"].default
    for method in family.methods:
        assert bool(method.limits) == (method.supports is not takes_all), method.name
        assert not method.limits.endswith("."), method.name


@ANY_FAMILY
def test_names_are_unique_and_sourced(family: Family[Any, Any]) -> None:
    fixed = {name.replace("_", "-") for name in inspect.signature(solve_command).parameters}
    settings = [setting.name for setting in family.overrides]
    options = {option.name for method in family.methods for option in method.options}
    names = [method.name for method in family.methods]
    assert len(set(settings)) == len(settings) and len(set(names)) == len(names)
    assert not fixed & {*settings, *options} and not options & set(settings)
    assert names and all(method.source for method in family.methods)
    assert not any(
        other.recognise(family.to_json(EXAMPLES[family.name][0]())) for other in FAMILIES if other is not family
    )
