"""GraphPipe's Table 2: counts that are known by hand or by an independent program, and what a schedule says of them."""

import json

import pytest

from planner.cli.app import main
from planner.reproduction.reproduce import reproduce


@pytest.mark.parametrize(
    ("ratio", "equal", "too_small", "too_large"), [("1:1", 1024, 0, 0), ("1:2", 912, 112, 0), ("2:1", 880, 0, 144)]
)
def test_powers_of_two_to_8(ratio: str, equal: int, too_small: int, too_large: int) -> None:
    found = reproduce("graphpipe-table-2", ratio=ratio, max=8, powers_of_two=True).to_json()
    counts = [found[name] for name in ("cases", "equal", "too_small", "too_large", "rule_wrong")]
    assert counts == [1024, equal, too_small, too_large, 0]
    assert sum(row["cases"] for row in found["rows"]) == 1024 and len(found["rows"]) == 10
    assert (found["smallest"] is None) == (equal == 1024)
    if too_small:
        assert {row["row"] for row in found["rows"] if row["too_small"]} == {1, 3, 5, 8}


def test_the_smallest_case_is_scheduled(capsys: pytest.CaptureFixture[str]) -> None:
    """With the table's 6 samples an iteration takes longer than with 7, which are as good as any number."""
    assert main(["reproduce", "graphpipe-table-2", "--ratio", "1:2", "--max", "4", "--powers-of-two", "--json"]) == 0
    case = json.loads(capsys.readouterr().out)["smallest"]
    assert [case[name] for name in ("b_x", "k_x", "b_y", "k_y", "i_y")] == [1, 4, 1, 4, 4]
    assert (case["table"], case["exact"]) == (6, 7)
    assert case["iteration_s_with_table"] == 106 > 99 == case["iteration_s_with_exact"] == case["iteration_s_with_all"]
    assert case["exact_in_any_order"] == 5


def test_integers_that_are_no_powers_of_two() -> None:
    found = reproduce("graphpipe-table-2", ratio="1:2", max=3).to_json()
    assert found["cases"] == 4 * 3**4 and found["too_small"] > 0
    assert found["smallest_too_small"]["k_x"] == 3
