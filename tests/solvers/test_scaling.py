"""Integer scaling: rounds costs down, keeps what is feasible, and stays within its promise."""

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from solvers.scaling import MAX_SUM, PRECISION, Scale, cost_scale, size_scale

positive = st.floats(min_value=1e-6, max_value=1e6)


@given(value=st.floats(min_value=0, max_value=1e9), exponent=st.integers(-20, 30))
def test_floor_and_ceil_enclose_the_value(value: float, exponent: int) -> None:
    scale = Scale(exponent)
    exact = Fraction(value) * Fraction(2) ** exponent
    assert (scale.floor(value), scale.ceil(value)) == (math.floor(exact), math.ceil(exact))


def test_restore_undoes_exact_units() -> None:
    assert Scale(4).restore(Scale(4).floor(2.25)) == 2.25
    assert Scale(1).restore(Scale(1).floor(2.25)) == 2.0


@given(lower_bound=positive, num_terms=st.integers(1, 1000))
def test_rounding_stays_below_the_promise(lower_bound: float, num_terms: int) -> None:
    scale = cost_scale(lower_bound, num_terms, 100 * lower_bound)
    assert scale.precise
    assert scale.restore(num_terms) <= PRECISION * lower_bound * (1 + 1e-9)
    assert scale.restore(num_terms) > PRECISION * lower_bound / 2.1  # and not finer than it must be


@given(lower_bound=positive, spread=st.integers(0, 60))
def test_sums_stay_below_the_guard(lower_bound: float, spread: int) -> None:
    largest = lower_bound * 2.0**spread
    scale = cost_scale(lower_bound, 100, largest)
    assert scale.ceil(largest) + 100 < MAX_SUM
    assert scale.precise is (scale.restore(100) <= PRECISION * lower_bound)


def test_nothing_relative_is_promised_at_zero() -> None:
    scale = cost_scale(0.0, 10, 5.0)
    assert not scale.precise and scale.ceil(5.0) < MAX_SUM


@given(sizes=st.lists(st.floats(min_value=0, max_value=1e12), min_size=1, max_size=8), slack=st.floats(0, 10))
def test_what_fits_still_fits(sizes: list[float], slack: float) -> None:
    limit = math.fsum(sizes) + slack
    scale = size_scale(sizes, limit, 4 * limit)
    assert sum(map(scale.floor, sizes)) <= scale.floor(limit)


@given(sizes=st.lists(st.integers(0, 2**40), min_size=1, max_size=8), limit=st.integers(1, 2**42))
def test_integer_sizes_are_exact(sizes: list[int], limit: int) -> None:
    scale = size_scale(sizes, limit, sum(sizes))
    assert scale.precise
    assert (sum(map(scale.floor, sizes)) <= scale.floor(limit)) is (sum(sizes) <= limit)


def test_fractions_of_a_limit_are_seen() -> None:
    scale = size_scale([0.5, 0.6], 1.0, 1.1)
    assert scale.floor(0.5) + scale.floor(0.6) > scale.floor(1.0)


def test_sizes_beyond_the_guard_are_coarser() -> None:
    scale = size_scale([2.0**63, 1.0], 2.0**70, 2.0**70)
    assert not scale.precise and scale.floor(2.0**70) < MAX_SUM
