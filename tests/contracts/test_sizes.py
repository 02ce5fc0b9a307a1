"""Absurd sizes: every method answers or refuses in a line, within seconds and two gibibytes."""

import copy
import json
import os
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from absurd_sizes import ABSURD, branches, layers, stages, strategies
from fuzzing import assert_one_line, documented, places
from load import allowed_s
from paths import ROOT, SUPPORT
from small_instances import family_named, random_case
from thinned import thinned

import planner
from formulations import FAMILIES
from formulations.modelling.solve_model import Stopped
from formulations.stage_graph.models.cpsat import model_from
from formulations.stage_graph.models.data import Data
from instances.errors import InstanceError
from instances.parameters import MAX_AMOUNT, MIN_AMOUNT
from instances.problems.stage_partitioning import Layer, StageInstance, Tmpc
from instances.units import parse_bandwidth, parse_bytes, parse_time
from planner import Limits, Status, Stop, UsageError
from solvers import memory_budget
from solvers.memory_budget import SizeError, demand
from solvers.outcome import Watch
from solvers.scaling import Scale

LIMIT = 2**31

#: Every method of an instance under a limit of memory, each in a second; what each reported, one to a line.
_ALL = """
import json, os, resource, sys
import planner
from absurd_sizes import ABSURD
from planner import Limits, UsageError
from planner.files.load import family_of

family_name, number, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
instance = ABSURD[family_name][number]()
family = family_of(instance)
family.load()
for method in family.methods:
    method.load()
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for method in (None, *(method.name for method in family.methods)):
    try:
        result = planner.solve(instance, method=method, limits=Limits(time_s=1.0))
    except UsageError as error:
        print(json.dumps([method, "refused", str(error), 0.0]), flush=True)
        continue
    print(json.dumps([method, result.status, result.stop, result.seconds]), flush=True)
os._exit(0)  # methods that were left behind are still at work
"""


def child(code: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    """A fresh process."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(SUPPORT)])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "number"), [(name, number) for name, made in ABSURD.items() for number in range(len(made))]
)
def test_every_method_answers_or_refuses_in_two_gibibytes(family: str, number: int) -> None:
    done = child(_ALL, family, number, LIMIT)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == 1 + len(next(each.methods for each in FAMILIES if each.name == family))
    for method, status, words, seconds in said:
        assert "\n" not in words and seconds < allowed_s(5.0), (method, status, words, seconds)
    assert "Traceback" not in done.stderr


def test_every_family_has_absurd_instances() -> None:
    assert set(ABSURD) == {family.name for family in FAMILIES}


@pytest.mark.parametrize(
    ("make", "method", "table"),
    [
        (lambda: layers(20_000, 2_000, 64), "parameters", "what every possible stage holds"),
        (lambda: strategies(300, 200_000, "megatron"), "megatron", "a placement of 1600000 devices"),
        (lambda: stages(2_000, 1, 15_000, 15_000), "exact", "the sums of 2001 downsets"),
        (lambda: stages(60, 1, 60_000, 60_000), "exact", "labels of 61 downsets at 60000 sums of degrees"),
    ],
)
def test_a_refusal_says_how_many_bytes_would_be_needed(
    make: Callable[[], Any], method: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_budget, "_free_bytes", lambda _: 2.0**26)
    result = planner.solve(make(), method=method, limits=Limits(time_s=20))
    assert (result.status, result.stop, result.objective) == (Status.UNKNOWN, Stop.SIZE_LIMIT, None)
    assert re.search(rf"{table} would need \S+ bytes; expected at most 3.36e\+07", result.reason)


def test_room_is_what_the_machine_and_the_limits_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "_free_bytes", lambda _: 1000.0)
    demand(500.0, "a table")
    with pytest.raises(SizeError, match="a table would need 501 bytes; expected at most 500"):
        demand(501.0, "a table")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(memory_budget, "_free_bytes", lambda _: 1e15)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (used + 2_000_000 * (which == resource.RLIMIT_AS), -1))
    assert 0 <= memory_budget.room() <= 1_000_000


@thinned(("family", "number"), [("operator_partitioning", 1), ("stage_graph", 0), ("stage_partitioning", 1)])
def test_choosing_and_refusing_are_quick(family: str, number: int) -> None:
    """Also where no method is made for the instance: 20,000 operators, or a million devices."""
    instance = ABSURD[family][number]()
    own = next(each for each in FAMILIES if each.name == family)
    own.load()
    began = time.process_time()
    for exact in (False, True):
        assert own.choose(instance, Limits(time_s=5.0), exact)
    for method in own.methods:
        method.supports(instance)
        method.effort(instance)
    assert time.process_time() - began < 4.0


def test_building_the_cpsat_model_of_a_large_stage_graph_is_given_up_in_time() -> None:
    """Its rows take ten seconds; each loop looks at the watch."""
    instance, watch = branches(400, 4, 32), Watch(Limits(time_s=0.5))
    began = time.process_time()
    with pytest.raises(Stopped):
        model_from(Data(instance, ((64,),), Scale(0), 100, watch))
    assert time.process_time() - began < 2.0


NAMES = [family.name for family in FAMILIES]
#: Of no amount: below the smallest, above the largest, and where sums overflow.
BEYOND = (5e-324, 1e-310, MIN_AMOUNT * (1 - 1e-15), MAX_AMOUNT * (1 + 1e-15), 1e308, sys.float_info.max)
#: Of amounts, those of many magnitudes.
WITHIN = {float: (0.0, MIN_AMOUNT, 3e-28, 1e-20, 1e-12, 1e12, 1e20, MAX_AMOUNT), int: (0, 1, 10**6, 10**12, 10**20)}


def numbers(content: Any) -> list[tuple[Any, Any]]:
    """Where the measured numbers of an instance stand; all its numbers, if none is written with a point."""
    every = [
        (inside, key)
        for inside, key in places(content)
        if isinstance(inside[key], int | float) and not isinstance(inside[key], bool) and key != "schema_version"
    ]
    return [(inside, key) for inside, key in every if isinstance(inside[key], float)] or every


@pytest.mark.parametrize("name", NAMES)
def test_numbers_beyond_the_declared_range_are_refused_by_field(name: str) -> None:
    content = copy.deepcopy(documented()[name])
    for inside, key in numbers(content):
        declared = inside[key]
        for value in BEYOND:
            inside[key] = value
            with pytest.raises(InstanceError) as caught:
                planner.load(content)
            assert_one_line(caught.value, "; expected ")
        inside[key] = declared


def test_instances_of_python_keep_the_range() -> None:
    for value in BEYOND:
        layer = Layer("a", {1: (Tmpc("x", value, 0.0, 0.0, 0.0),)})
        with pytest.raises(InstanceError, match=r"time is .*; expected 0 or a positive number from 1e-30 to 1e\+30$"):
            planner.solve(StageInstance("beyond", (layer,), (), 1, 1.0, 1.0, 1))


def measured() -> list[tuple[str, str]]:
    kinds = (parse_bytes, parse_bandwidth, parse_time)
    return [(family.name, each.name) for family in FAMILIES for each in family.overrides if each.parse in kinds]


@pytest.mark.parametrize(("name", "override"), measured())
def test_overrides_keep_the_range(name: str, override: str) -> None:
    for value in ("1e-320", "1e-400", "9e-31", "1.1e30", "1e308", "1e400", 5e-324):
        with pytest.raises(UsageError) as caught:
            planner.load(documented()[name], **{override: value})
        assert_one_line(caught.value, f"--{override} is ", "a positive number from 1e-30 to 1e+30")


def cases(name: str, count: int) -> list[Any]:
    """Small instances with some of their numbers at the ends of the range."""
    found: list[Any] = []
    for number in range(10 * count):
        rng = random.Random(f"extremes {name} {number}")
        content = family_named(name).to_json(random_case(name, 7, number))
        amounts = numbers(content)
        for inside, key in rng.sample(amounts, min(len(amounts), rng.choice((1, 2, 4, len(amounts))))):
            inside[key] = rng.choice(WITHIN[type(inside[key])])
        try:
            found.append(planner.load(content))
        except InstanceError:  # such as a matrix that is no longer symmetric
            continue
    return found[:count]


@thinned("name", NAMES)
def test_extreme_numbers_are_solved(name: str, many: int) -> None:
    """Every method answers or refuses in a line."""
    count = min(many, 100) or 2
    found = cases(name, count)
    assert len(found) == count
    for number, instance in enumerate(found):
        methods = [method.name for method in family_named(name).methods]
        for method in (None, random.Random(number).choice(methods)):
            try:
                planner.solve(instance, method=method, limits=Limits(time_s=0.5))
            except UsageError as refused:
                assert_one_line(
                    refused, "takes the instance" if method is None else "a method that supports this instance"
                )
