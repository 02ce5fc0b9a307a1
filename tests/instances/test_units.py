"""Quantities with units, and the parsers of parameters."""

import random
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.errors import InstanceError, closest
from instances.graph import depth_first_order, downsets, find_cycle, lifo_order, topological_order
from instances.parameters import one_of, parse_amount, parse_count, parse_degrees, parse_flag, parse_names, within
from instances.units import parse_bandwidth, parse_bytes, parse_time


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GiB", 8 * 2**30), ("8GB", 8e9), ("8 gb", 8e9), ("1.5KiB", 1536), (".5MB", 5e5), ("2TiB", 2 * 2**40),
        ("3e9", 3e9), ("12B", 12), ("0", 0), (7, 7), (2.5, 2.5),
    ],
)  # fmt: skip
def test_bytes(text: Any, size: float):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "8XB", "-1GB", "8GB/s", "1e999", "nan", "inf", "8 GB 3", True, None, [8]])
def test_bad_bytes(text: Any):
    with pytest.raises(ValueError, match="a size such as 8GiB"):
        parse_bytes(text)


def test_numbers_that_no_float_holds():
    for parse in (parse_bytes, parse_bandwidth, parse_time, parse_amount):
        with pytest.raises(ValueError):  # noqa: PT011
            parse(10**400)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("25GiB/s", 25 * 2**30), ("25GB/s", 25e9), ("25GB", 25e9), ("200Gbit/s", 25e9), ("8 Mbps", 1e6), (5, 5)],
)
def test_bandwidth(text: Any, rate: float):
    assert parse_bandwidth(text) == rate


@pytest.mark.parametrize("text", ["0", "0GB/s", "fast", "-1GB/s", "25GB/h", 0, False])
def test_bad_bandwidth(text: Any):
    with pytest.raises(ValueError, match="a bandwidth such as 25GiB/s"):
        parse_bandwidth(text)


@pytest.mark.parametrize(("text", "time"), [("1.3ms", 1.3e-3), ("20us", 2e-5), ("20µs", 2e-5), ("2s", 2), (3, 3)])
def test_time(text: Any, time: float):
    assert parse_time(text) == pytest.approx(time)


@pytest.mark.parametrize(("value", "count"), [("64", 64), (64, 64), (64.0, 64), (" 7 ", 7), (10**6, 10**6)])
def test_count(value: Any, count: int):
    assert parse_count(value) == count and isinstance(parse_count(value), int)


@pytest.mark.parametrize("value", [0, -1, 10**6 + 1, "1e3", "", "1.0", 1.5, True, None, float("nan"), float("inf")])
def test_bad_count(value: Any):
    with pytest.raises(ValueError, match="an integer from 1 to 1000000"):
        parse_count(value)


def test_other_parsers():
    assert parse_flag("true") is True and parse_flag(False) is False
    assert parse_names("a, b ,a") == ("a", "b")
    assert parse_names(["activation recomp"]) == ("activation recomp",)
    assert parse_degrees(4) == (4,) and parse_degrees([2, 1]) == (1, 2)
    assert one_of("s", "ms")("ms") == "ms"
    assert within(parse_bytes, 1.0)("1B") == 1
    for parse, bad in (
        (parse_flag, "yes"),
        (parse_names, " , "),
        (parse_names, 3),
        (parse_degrees, "1,x"),
        (parse_degrees, ""),
        (one_of("s"), "m"),
        (within(parse_bytes, 1.0), "0"),
        (parse_amount, "x"),
        (parse_amount, True),
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            parse(bad)


@pytest.mark.parametrize("parse", [parse_bytes, parse_bandwidth, parse_time, parse_count, parse_amount, parse_degrees])
def test_any_text_is_a_number_or_a_value_error(parse: Callable[[str], Any]):
    rng = random.Random("units")
    for _ in range(500):
        with suppress(ValueError):
            assert (
                parse("".join(rng.choices("0123456789.,-+_eEnaifGMKkBbsu/µ \x00\n٣²\ud800é", k=rng.randint(0, 9))))
                is not None
            )


def test_errors_are_one_line_and_short():
    error = InstanceError.at("f.json", "a.b", {"long": ["value\n" * 100] * 100}, "a number")
    assert str(error).startswith("f.json: a.b is {'long'") and str(error).endswith("; expected a number")
    assert "\n" not in str(error) and len(str(error)) < 200
    assert str(InstanceError.missing("f.json", "a")) == "f.json: a is missing; expected a value"
    assert closest("memry", ["memory", "devices"]) == " (closest: memory)"
    assert closest("zzz", ["memory"]) == ""


DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]


@st.composite
def dags(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """A DAG whose nodes are shuffled."""
    n = draw(st.integers(1, 6))
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    kept = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    name = draw(st.permutations(range(n)))
    return n, [(name[u], name[v]) for u, v in kept]


def test_orders_of_a_diamond():
    assert topological_order(4, DIAMOND) == [0, 1, 2, 3]
    assert topological_order(4, DIAMOND, key=lambda node: -node) == [0, 2, 1, 3]
    assert lifo_order(4, DIAMOND) == [0, 2, 1, 3]
    assert depth_first_order(4, DIAMOND) == [0, 1, 2, 3]


@given(dags())
def test_orders_put_sources_before_targets(graph: tuple[int, list[tuple[int, int]]]):
    n, edges = graph
    for order in (topological_order(n, edges), lifo_order(n, edges), depth_first_order(n, edges)):
        assert sorted(order) == list(range(n))
        assert all(order.index(u) < order.index(v) for u, v in edges)
    assert find_cycle(n, edges) == []


def test_a_cycle_is_found_in_the_direction_of_its_edges():
    edges = [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)]
    cycle = find_cycle(5, edges)
    assert sorted(cycle) == [1, 2, 3]
    assert all(pair in edges for pair in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    assert len(topological_order(5, edges)) < 5
    assert find_cycle(1, [(0, 0)]) == [0]


@given(dags())
def test_downsets_are_the_sets_closed_under_successors(graph: tuple[int, list[tuple[int, int]]]):
    n, edges = graph
    closed = {
        sum(bit << node for node, bit in enumerate(bits))
        for bits in product((0, 1), repeat=n)
        if all(bits[v] or not bits[u] for u, v in edges)
    }
    found = downsets(n, edges, 1000)
    assert found is not None
    assert set(found) == closed and len(found) == len(closed)
    assert downsets(n, edges, len(closed)) is not None
    assert downsets(n, edges, len(closed) - 1) is None


@pytest.mark.parametrize("n", [1, 5, 40])
def test_a_chain_has_one_downset_more_than_nodes(n: int):
    assert len(downsets(n, [(i, i + 1) for i in range(n - 1)], 100) or []) == n + 1
