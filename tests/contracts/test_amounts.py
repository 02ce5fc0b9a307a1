"""Rounded amounts: the text says all of them, they are enough, and one step less is not."""

import random

import pytest

from formulations.contract.rounding import Least, amount_text, exactly, least_amount, round_up, step_below
from planner.results.texts import facts
from solvers.outcome import Stop, Watch


def number(rng: random.Random) -> float:
    """Bytes of any magnitude, whole or not, many of them next to a number that is rounded already."""
    drawn = rng.choice(
        [
            rng.uniform(0, 50),
            rng.random() * 10 ** rng.uniform(-290, 290),
            float(rng.randint(0, 10 ** rng.randint(1, 16))),
            rng.randint(1, 10**9) / 10 ** rng.randint(0, 9),
            rng.randint(1, 999) * 10.0 ** rng.randint(-30, 30),
        ]
    )
    return drawn * (1 + rng.choice([0, 0, 1e-12, -1e-12, 9e-13, 2e-16, -2e-16, 1.1e-12]))


@pytest.mark.parametrize("slack", [1.0, 1 + 1e-12])
def test_rounded_amounts(slack: float) -> None:
    rng = random.Random(slack)
    for _ in range(5000):
        needed = number(rng)
        amount = round_up(needed, slack)
        assert float(amount_text(amount)) == amount and amount * slack >= needed
        assert amount <= needed * (1 + 1.1e-8) or amount <= needed + 1
        if amount:
            less = step_below(amount)
            assert less < amount and float(amount_text(less)) == less and less * slack < needed
        assert float(exactly(needed)) == needed


def test_the_least_amount_of_plans_of_any_needs() -> None:
    rng = random.Random(1)
    for _ in range(300):
        needs = sorted(number(rng) for _ in range(rng.randint(0, 5)))

        def fits(limit: float, needs: list[float] = needs) -> float | None:
            return next((need for need in reversed(needs) if need <= limit), None)  # the worst that fits

        found = least_amount(fits, Watch())
        assert found == Least(round_up(needs[0]) if needs else float("inf"), proved=True)


def test_noise_is_no_plan() -> None:
    """A test that finds plans a little above its limit, as float noise may, is not repeated for ever."""
    asked = []

    def fits(limit: float) -> float | None:
        asked.append(limit)
        return 3.0 if limit > 2.9 else None

    assert least_amount(fits, Watch()) == Least(3.0, proved=True)
    assert asked == [float("inf"), 1.5, 2.99999999]


def test_a_stop_leaves_what_is_known() -> None:
    watch = Watch()

    def fits(limit: float) -> float | None:
        if limit < 5:
            watch.stop(Stop.INTERRUPTED)
            return None
        return min(limit, 5.5)

    assert least_amount(fits, watch) == Least(5.5)


def test_the_least_amounts_of_a_result_are_shown_as_they_are() -> None:
    """Other sizes are shown to four digits, which may be too few bytes to type again."""
    assert facts({"least_memory_bytes": 1183560576.0, "memory_bytes": 1183560576.0}) == (
        "least_memory 1183560576 B, memory 1.102 GiB"
    )
