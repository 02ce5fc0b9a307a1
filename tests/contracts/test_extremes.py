"""Numbers at the ends of what may be declared are solved, those beyond are refused in a line; by every family."""

import copy
import random
import sys
from typing import Any

import pytest
from fuzzing import assert_one_line, documented, places
from small_instances import family_named, random_case

import planner
from formulations import FAMILIES
from instances.errors import InstanceError
from instances.parameters import MAX_AMOUNT, MIN_AMOUNT
from instances.problems.stage_partitioning import Layer, StageInstance, Tmpc
from instances.units import parse_bandwidth, parse_bytes, parse_time
from planner import Limits, UsageError

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


@pytest.mark.parametrize("name", NAMES)
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
