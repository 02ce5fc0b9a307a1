"""Large files: the time to load one grows as the file does; numbers that are none are found in them."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import planner
from instances.errors import InstanceError
from planner.files.read import parse_json


def chained(count: int) -> list[tuple[int, int]]:
    return [(u, v) for u in range(count) for v in range(u + 1, min(count, u + 3))]


def schedule(count: int) -> dict[str, Any]:
    return {
        "problem": "microbatch_schedule",
        "minibatch": 1,
        "stages": [{"forward_s": 1, "backward_s": 2}] * count,
        "edges": [{"source": u, "target": v} for u, v in chained(count)],
    }


def graph(count: int) -> dict[str, Any]:
    passes = {"forward": {"per_sample_s": 1}, "backward": {"per_sample_s": 2}}
    return {
        "problem": "stage_graph",
        "num_devices": 2,
        "memory_bytes": 1,
        "minibatch": 2,
        "operators": [{"id": f"v{v}", **passes} for v in range(count)],
        "edges": [{"source": f"v{u}", "target": f"v{v}"} for u, v in chained(count)],
    }


def knapsack(count: int) -> dict[str, Any]:
    options = [{"id": f"x{x}", "time": 1.5, "memory_bytes": 2.5} for x in range(3)]
    return {
        "problem": "tmpc_knapsack",
        "capacity_bytes": 1,
        "nodes": [{"id": v, "options": options} for v in range(count)],
    }


def layers(count: int) -> dict[str, Any]:
    tmpc = {"id": "x", "time": 1, "weight_bytes": 1, "activation_bytes": 1, "static_bytes": 1}
    return {
        "problem": "stage_partitioning",
        "schema_version": 1,
        "num_devices": 2,
        "memory_bytes": 1,
        "bandwidth": 1,
        "num_microbatches": 1,
        "layers": [{"id": v, "tmpcs": {"1": [tmpc]}} for v in range(count)],
        "edges": [{"source": u, "target": v, "bytes": 1} for u, v in chained(count)],
    }


def cpu_seconds(path: Path) -> float:
    began = time.process_time()
    planner.load(path)
    return time.process_time() - began


@pytest.mark.parametrize("make", [schedule, graph, knapsack, layers])
def test_loading_takes_time_in_proportion_to_the_file(make: Callable[[int], dict[str, Any]], tmp_path: Path) -> None:
    small, large = tmp_path / "small.json", tmp_path / "large.json"
    small.write_text(json.dumps(make(500)))
    large.write_text(json.dumps(make(4000)))
    cpu_seconds(small)  # imports
    ratios = []
    for _ in range(4):  # 8 where it is linear, 64 where it is quadratic
        ratios.append(cpu_seconds(large) / cpu_seconds(small))
        if ratios[-1] < 20:
            return
    raise AssertionError(f"eight times the file, and {ratios} times the time")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": [1, {"b": NaN}]}', "line 1: a[1].b is 'NaN'"),
        ('{"a":\n [1,\n {"b": -Infinity}]}', "line 3: a[1].b is '-Infinity'"),
        ('{"a": "NaN",\n "c[": {"d\\n": "1e999"}, "b": [\n2, [], {}, -1e999]}', "line 3: b[3] is '-1e999'"),
        ('{"long": 0.' + "1" * 400 + ', "n": {"x": {"y": 1}, "z":\r\n 1E+400}}', "line 2: n.z is '1E+400'"),
        ('[1e308, "\\"", ' + "9" * 309 + "]", "line 1: [2] is '99999"),
        ('{"a": {"b":\n-' + "9" * 5000 + "}}", "line 2: a.b is '-9999"),
        ("1e999", "line 1: content is '1e999'"),
        ('[0e-400, 0.0, {"a": -1E-400}]', "line 1: [2].a is '-1E-400'"),
    ],
)
def test_a_number_that_no_float_holds_is_named_with_field_and_line(text: str, place: str) -> None:
    with pytest.raises(InstanceError) as caught:
        parse_json(text, "some.json")
    assert str(caught.value).startswith(f"some.json: {place}")
    assert str(caught.value).endswith("expected a number that a 64-bit float can hold")


def test_numbers_that_floats_hold_are_read() -> None:
    assert parse_json('[1e308, 5e-324, 0e-400, 0, "1e999", 12345678901234567890]', "x") == [
        1e308,
        5e-324,
        0.0,
        0,
        "1e999",
        12345678901234567890,
    ]
