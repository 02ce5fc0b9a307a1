"""Wrong instances and wrong arguments from Python: `InstanceError` or `UsageError`, and nothing else."""

import dataclasses
import json
import math
import random
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fuzzing import VALUES, assert_one_line, documented
from thinned import thinned

import planner
from formulations import FAMILIES
from instances.errors import InstanceError
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc

NAMES = [family.name for family in FAMILIES]
REFUSALS = (InstanceError, planner.UsageError)
#: Values that only Python has, beside those of files.
ODD: tuple[Any, ...] = (
    *VALUES, math.nan, math.inf, -math.inf, 1j, b"x", object(), int, (), (None,), (1, 2), {1}, 10**400, 10**5000, ...,
)  # fmt: skip


@cache
def example(name: str, folder: Path) -> Any:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(documented()[name]))
    return planner.load(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("python")


def changed(instance: Any, rng: random.Random) -> Any:
    """The instance with one value somewhere in it replaced: in a field, a tuple, a mapping or a part's field."""
    if dataclasses.is_dataclass(instance) and not isinstance(instance, type):
        each = rng.choice([field for field in dataclasses.fields(instance) if field.name != "options"])
        return dataclasses.replace(instance, **{each.name: _maybe(getattr(instance, each.name), rng)})
    if isinstance(instance, tuple) and instance:
        at = rng.randrange(len(instance))
        kind = rng.randrange(6)
        if kind == 0:
            return instance[:at] + instance[at + 1 :]
        if kind == 1:
            return (*instance, instance[at])
        if kind == 2:
            return list(instance)
        return (*instance[:at], _maybe(instance[at], rng), *instance[at + 1 :])
    if isinstance(instance, Mapping) and instance:
        key = rng.choice(list(instance))
        rest = {name: value for name, value in instance.items() if name != key}
        if rng.random() < 0.3:
            odd = rng.choice([value for value in ODD if value.__hash__ is not None])
            return {**rest, odd: instance[key]}
        return {**rest, key: _maybe(instance[key], rng)}
    if isinstance(instance, int | float) and not isinstance(instance, bool) and rng.random() < 0.5:
        return instance * rng.choice([-1, 0, 0.5, 3, 1e20])
    return rng.choice(ODD)


def _maybe(value: Any, rng: random.Random) -> Any:
    deep = dataclasses.is_dataclass(value) or isinstance(value, tuple | Mapping)
    return (
        changed(value, rng)
        if deep and rng.random() < 0.85
        else changed(0, rng)
        if rng.random() < 0.1
        else changed_leaf(value, rng)
    )


def changed_leaf(value: Any, rng: random.Random) -> Any:
    return changed(value, rng) if isinstance(value, int | float) else rng.choice(ODD)


def examine(name: str, folder: Path, count: int, solved: int) -> None:
    instance = example(name, folder)
    rng = random.Random(f"python {name}")
    accepted = 0
    for number in range(count):
        wrong = changed(instance, rng)
        try:
            verdict = planner.check(wrong, {})
        except REFUSALS as refused:
            assert_one_line(refused)
        except Exception as error:
            raise AssertionError(f"{name} {number}: check of {wrong!r:.2000}") from error
        else:
            assert verdict.violations
        try:
            planner.files.load.validate(wrong)
        except REFUSALS:
            continue
        accepted += 1
        json.dumps(planner.files.load.family_of(wrong).to_json(wrong), allow_nan=False)
        if accepted <= solved:
            result = planner.solve(wrong, limits=planner.Limits(time_s=0.05))
            json.dumps(result.to_json(), allow_nan=False, default=str)
    assert accepted < count


@pytest.mark.parametrize("name", NAMES)
def test_wrong_instances_are_refused(name: str, folder: Path, many: int) -> None:
    examine(name, folder, many or 60, many or 1)


def stages(**changes: Any) -> StageInstance:
    """A chain of two layers; a change may be of the instance, of the first layer's TMPC, or of the edges."""
    tmpc = {name: changes.pop(name) for name in ("time", "weight_bytes") if name in changes}
    first = dataclasses.replace(Tmpc("x", 1.0, 1.0, 1.0, 1.0), **tmpc)
    layers = (Layer(0, {changes.pop("degree", 1): (first,)}), Layer(1, {1: (Tmpc("x", 1.0, 1.0, 1.0, 1.0),)}))
    return dataclasses.replace(StageInstance("two", layers, (Edge(0, 1, 1.0),), 2, 10.0, 1.0, 2), **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"time": math.nan}, "layers[0].tmpcs[1][0].time is nan; expected 0 or a positive number from 1e-30"),
        ({"time": True}, "layers[0].tmpcs[1][0].time is True"),
        ({"weight_bytes": -1.0}, "layers[0].tmpcs[1][0].weight_bytes is -1.0"),
        ({"degree": 0}, "layers[0].tmpcs is 0; expected a positive integer"),
        ({"degree": -1}, "layers[0].tmpcs is -1"),
        ({"num_devices": -1}, "num_devices is -1; expected an integer from 1 to 1000000"),
        ({"num_devices": 2.0}, "num_devices is 2.0"),
        ({"num_devices": True}, "num_devices is True"),
        ({"num_devices": 10**5000}, "num_devices is an integer of 16610 bits"),
        ({"bandwidth": 0.0}, "bandwidth is 0.0; expected a positive number"),
        ({"edges": (Edge(0, 1, math.nan),)}, "edges[0].bytes is nan"),
        ({"edges": (Edge(0, 7, 1.0),)}, "edges[0].target is 7; expected the id of a node"),
        ({"edges": (Edge(0, "1", 1.0),)}, "edges[0].target is '1'; expected the id of a node"),
        (
            {"edges": (Edge(0, 1, 1.0), Edge(1, 0, 1.0))},
            "edges is 'cycle 1 -> 0 -> 1'; expected a graph without cycles",
        ),
        ({"edges": (Edge(0, 1, 1.0),) * 2}, "edges[1] is '0 -> 1'; expected an edge that is not listed before"),
        ({"edges": [Edge(0, 1, 1.0)]}, "edges is [Edge("),
        ({"layers": ()}, "layers is []; expected at least one node"),
        ({"layers": (Layer(0, {1: ()}),), "edges": ()}, "layers[0].tmpcs is 'empty'"),
        ({"layers": None}, "layers is None; expected a tuple"),
        ({"layers": ("a",)}, "layers[0] is 'a'; expected an instance of Layer"),
        ({"cost_model": "paper"}, "cost_model is 'paper'; expected paper or released or runtime"),
        ({"name": ""}, "name is ''"),
    ],
)
def test_rules_of_an_instance_hold_wherever_it_is_given(changes: dict[str, Any], words: str) -> None:
    instance = stages(**changes)
    for call in (planner.solve, planner.crosscheck, lambda wrong: planner.check(wrong, {"stages": []})):
        with pytest.raises(InstanceError) as caught:
            call(instance)
        assert words in str(caught.value)


def test_a_valid_instance_is_solved() -> None:
    assert planner.solve(stages(), exact=True).objective == 2.0


def test_integers_where_floats_are_declared_become_floats() -> None:
    given = stages(memory_bytes=10, bandwidth=2**63, time=1)
    admitted = planner.files.load.validate(given)
    assert admitted == given
    numbers = (admitted.memory_bytes, admitted.bandwidth, admitted.layers[0].tmpcs[1][0].time)
    assert [type(number) for number in numbers] == [float, float, float]
    assert type(given.bandwidth) is int


CALLS: dict[str, Callable[[Any], Any]] = {
    "load": planner.load,
    "load inputs": lambda value: planner.load("chain8", inputs=value),
    "load problem": lambda value: planner.load("chain8", problem=value),
    "load devices": lambda value: planner.load("chain8", devices=value),
    "load memory": lambda value: planner.load("chain8", memory=value),
    "load unknown": lambda value: planner.load("chain8", unknown=value),
    "solve instance": planner.solve,
    "solve method": lambda value: planner.solve(stages(), method=value),
    "solve exact": lambda value: planner.solve(stages(), exact=value),
    "solve limits": lambda value: planner.solve(stages(), limits=value),
    "solve options": lambda value: planner.solve(stages(), options=value),
    "solve option": lambda value: planner.solve(
        stages(), method="cpsat", options={value if value.__hash__ else "x": value}
    ),
    "solve listen": lambda value: planner.solve(stages(), listen=value),
    "solve notice": lambda value: planner.solve(stages(), notice=value),
    "crosscheck instance": planner.crosscheck,
    "crosscheck methods": lambda value: planner.crosscheck(stages(), methods=value),
    "crosscheck a method": lambda value: planner.crosscheck(stages(), methods=["exact", value]),
    "crosscheck limits": lambda value: planner.crosscheck(stages(), limits=value),
    "crosscheck options": lambda value: planner.crosscheck(stages(), methods=["exact"], options=value),
    "crosscheck ended": lambda value: planner.crosscheck(stages(), methods=["exact"], ended=value),
    "validate sources": lambda value: planner.validate(value, methods=["exact"], out="/dev/null/out"),
    "validate methods": lambda value: planner.validate([stages()], methods=value, out="/dev/null/out"),
    "validate against": lambda value: planner.validate([stages()], against=value, out="/dev/null/out"),
    "validate out": lambda value: planner.validate([stages()], methods=["exact"], out=value, count="no"),
    "validate count": lambda value: planner.validate(["chain8"], methods=["exact"], out="/dev/null/out", count=value),
    "validate jobs": lambda value: planner.validate([stages()], methods=["exact"], out="/dev/null/out", jobs=value),
    "check instance": lambda value: planner.check(value, {}),
    "check plan": lambda value: planner.check(stages(), value),
    "check where": lambda value: planner.check(stages(), {}, where=value),
    "time_s": lambda value: planner.Limits(time_s=value),
    "gap": lambda value: planner.Limits(gap=value),
    "seed": lambda value: planner.Limits(seed=value),
    "threads": lambda value: planner.Limits(threads=value),
}


@thinned("call", CALLS)
def test_wrong_arguments_are_refused(call: str, many: int) -> None:
    """By default a quarter of the values, of each argument another one."""
    tried, refused = ODD if many else ODD[[*CALLS].index(call) % 4 :: 4], 0
    for value in tried:
        if value is int and call.endswith(("listen", "notice", "ended")):
            continue  # a function like others
        if isinstance(value, str) and call == "load inputs":
            continue  # folders that do not exist are looked into in vain
        try:
            CALLS[call](value)
        except REFUSALS as error:
            assert_one_line(error)
            refused += 1
        except Exception as error:
            raise AssertionError(f"{call} with {value!r:.200}") from error
    assert refused > len(tried) / 3
