"""Samples in flight: Table 2 against the rule and the exact procedure, and that against timelines written out."""

import random
from fractions import Fraction
from itertools import product

import pytest

from formulations.microbatch_schedule.definition.in_flight import Ratio, Successor, exact, rule, table2

POWERS = (1, 2, 4, 8)


def _written_out(y: Successor, b: int, k: int, ratio: Ratio, y_ratio: Ratio, delay: int) -> int:
    """The least samples in flight from two explicit timelines, tried one by one."""
    (f, g), (f_y, g_y), ahead_y = ratio, y_ratio, -(-y.in_flight // y.microbatch)
    num = 6 * k * b * y.k * y.microbatch
    end_b, start_f, clock = {}, {}, 0
    for block in range(num // (y.k * y.microbatch)):
        for m in range(block * y.k, (block + 1) * y.k):
            clock += g_y * y.microbatch
            end_b[m] = clock
        for m in range(block * y.k, (block + 1) * y.k):
            start_f[m + ahead_y] = clock
            clock += f_y * y.microbatch
    in_flight = k - 1
    while True:
        in_flight += 1
        start_b, end_f, clock = {}, {}, 0
        for block in range(num // (k * b)):
            for m in range(block * k, (block + 1) * k):
                start_b[m] = clock
                clock += g * b
            for m in range(block * k, (block + 1) * k):
                clock += f * b
                end_f[m + in_flight] = clock
        shift = max(end_b[((m + 1) * b - 1) // y.microbatch] + delay - start for m, start in start_b.items())
        if all(
            end_f[((m + 1) * y.microbatch - 1) // b] + shift + delay <= start
            for m, start in start_f.items()
            if ((m + 1) * y.microbatch - 1) // b in end_f
        ):
            return in_flight * b


def test_the_exact_procedure_agrees_with_timelines_written_out(cases: int) -> None:
    rng = random.Random(5)
    for _ in range(cases):
        b, k, b_y, k_y = (rng.randint(1, 4) for _ in range(4))
        y = Successor(b_y * rng.randint(k_y, k_y + 3), b_y, k_y)
        ratio = rng.choice([(1, 1), (1, 2), (2, 1), (2, 3)])
        y_ratio = rng.choice([ratio, ratio[::-1]])
        delay = rng.choice([0, 0, 1, 3])
        found = exact(y, b, k, ratio, successor_ratio=y_ratio, delay=delay)
        assert found == _written_out(y, b, k, ratio, y_ratio, delay), (y, b, k, ratio, y_ratio, delay)


@pytest.mark.parametrize(("ratio", "smaller", "larger"), [((1, 1), 0, 0), ((1, 2), 112, 0), ((2, 1), 0, 144)])
def test_table_2_on_powers_of_two(ratio: Ratio, smaller: int, larger: int) -> None:
    too_small = too_large = 0
    for b, k, b_y, k_y in product(POWERS, repeat=4):
        for ahead in range(k_y, k_y + 4):
            y = Successor(ahead * b_y, b_y, k_y)
            table, needed = -(-table2(y, b, k)[1] // b) * b, exact(y, b, k, ratio)
            too_small += table < needed
            too_large += table > needed
            assert rule([y], b, k, ratio) == needed
    assert (too_small, too_large) == (smaller, larger)


def test_one_row_of_table_2_applies_and_others_agree() -> None:
    """Exhaustive over the integers to 12, and each row is met."""
    rows = {
        table2(Successor(k_y * b_y, b_y, k_y), b, k)[0]
        for b, k, b_y, k_y in product(range(1, 13), range(1, 13), range(1, 13), range(1, 13))
    }
    assert rows == set(range(1, 11))


def test_the_smallest_case_that_the_table_underestimates() -> None:
    y = Successor(4, 1, 4)
    assert table2(y, 1, 4) == (8, 6)
    assert exact(y, 1, 4, (1, 2)) == 7 and exact(y, 1, 4, (1, 1)) == 6


@pytest.mark.parametrize(("delay", "more"), [(0, 1), (1, 2), (2, 3), (6, 5)])
def test_links_that_take_time(delay: int, more: int) -> None:
    for ahead in range(1, 4):
        assert exact(Successor(ahead, 1, 1), 1, 1, (1, 2), delay=delay) == ahead + more


def test_delays_are_exact_numbers() -> None:
    """Half of the forward pass and its half more than three passes: at and above the step."""
    assert exact(Successor(1, 1, 1), 1, 1, (1, 2), delay=Fraction(3, 2)) == 3
    assert exact(Successor(1, 1, 1), 1, 1, (1, 2), delay=Fraction(301, 200)) == 4


def test_the_rule_takes_the_largest_of_several_successors_and_k_b_of_none() -> None:
    assert rule([], 2, 3) == 6
    assert rule([(1, 1, 1), (3, 1, 1)], 1, 1) == 4
    assert rule([(1, 1, 1)], 4, 1) == 8 == rule([(0, 4, 1), (1, 1, 1)], 4, 1)
    assert rule([(0, 2, 1)], 2, 3) == 6


def test_the_case_of_figure_5() -> None:
    """Micro-batches of 1, 2 and 4 samples keep 10 samples at the first stage, of 4 throughout 12."""
    last = rule([], 4, 1)
    middle = rule([(last, 4, 1)], 2, 1)
    assert rule([(middle, 2, 1)], 1, 1) == 10
    assert rule([(rule([(last, 4, 1)], 4, 1), 4, 1)], 4, 1) == 12


@pytest.mark.parametrize(
    ("y", "b", "y_ratio", "delay"),
    [((1, 1, 1), 0, None, 0), ((1, 0, 1), 1, None, 0), ((1, 1, 1), 1, (2, 2), 0), ((1, 1, 1), 1, None, -1)],
)
def test_what_has_no_steady_state_is_refused(
    y: tuple[int, int, int], b: int, y_ratio: Ratio | None, delay: int
) -> None:
    with pytest.raises(ValueError, match="expected"):
        exact(Successor(*y), b, 1, successor_ratio=y_ratio, delay=delay)
