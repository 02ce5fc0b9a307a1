"""Kinds of stages: equal ones share a colour, and a colour never stands for two kinds."""

import pytest

import planner
from formulations.contract.figures.plan_figures import Breakdown, Heat, Stage, Strip
from planner.display.kinds import kind_key, kinds, looks, of_kinds, pictures
from planner.display.palette import STAGES


def breakdown(times: list[float], degrees: list[tuple[int, int]] | None = None) -> Breakdown:
    """Rows that differ in their times and, without any meaning, in their bytes."""
    rows = tuple({"time_s": time, "memory_bytes": float(place)} for place, time in enumerate(times))
    return Breakdown(rows, degrees=degrees or [])


def test_equal_stages_are_of_one_kind_wherever_they_stand() -> None:
    assert kinds(breakdown([1.0, 2.0, 1.0, 1.0])) == [0, 1, 0, 0]
    assert kinds(breakdown([1.0, 1.0], [(1, 2), (2, 1)])) == [0, 1]


@pytest.mark.parametrize(
    ("count", "degrees", "expected"),
    [
        (6, [(1, 1)] * 6, [0, 1, 2, 3, 4, 5]),
        (7, [(1, 1)] * 3 + [(2, 1)] * 4, [0, 0, 0, 1, 1, 1, 1]),
        (7, [(1, 1)] * 7, [0, 1, 0, 1, 0, 1, 0]),
        (7, [(1, d) for d in range(7)], [0, 1, 0, 1, 0, 1, 0]),
        (7, None, [0, 1, 0, 1, 0, 1, 0]),
    ],
)
def test_more_kinds_than_colours_are_those_of_what_they_run_on_or_take_turns(
    count: int, degrees: list[tuple[int, int]] | None, expected: list[int]
) -> None:
    own = kinds(breakdown([1.0 + place for place in range(count)], degrees))
    assert looks([Stage(str(place), kind=kind) for place, kind in enumerate(own)]) == expected
    assert max(expected) < len(STAGES)


def test_the_key_has_every_kind_with_its_stages_or_nothing() -> None:
    stages = [Stage(str(n), f"dp {1 + (n > 0)}", kind=int(n > 0), is_bottleneck=n == 2) for n in range(4)]
    assert [name for name, _, _ in kind_key(stages)] == ["stage 0 (dp 1)", "stages 1-3 (dp 2), ▼2"]
    scattered = [Stage(str(n), kind=n % 2) for n in range(12)]
    assert [name for name, _, _ in kind_key(scattered)] == ["stages 0, ..., 10", "stages 1, ..., 11"]
    assert kind_key([Stage("0", kind=0), Stage("1", kind=0)]) == [], "one kind needs no key"
    assert kind_key([Stage("0", kind=0), Stage("1", kind=1)]) == [], "numbers say enough"
    assert kind_key([Stage(str(n), kind=n // 2) for n in range(14)]) == [], "two colours that take turns mean nothing"
    assert kind_key([Stage(str(n)) for n in range(3)]) == []


def test_pictures_of_other_things_than_the_rows_stay_as_they_are() -> None:
    strip = Strip("", (), (Stage("0"), Stage("1")), "time")
    assert [stage.kind for stage in of_kinds(strip, [0, 0]).stages] == [0, 0]
    assert of_kinds(strip, [0]) is strip
    heat = Heat("", [1.0], [1.0], [[1.0]], "", "", "")
    assert of_kinds(heat, [0]) is heat


def test_the_stages_of_a_plan_have_one_colour_for_each_kind_in_all_pictures() -> None:
    instance = planner.load("bert32", devices=64, memory="8GiB")
    result = planner.solve(instance, method="exact")
    found = result.breakdown()
    assert found is not None
    drawn, own = pictures(found), kinds(found)
    assert len(own) == 30 and len({*own}) == 5
    assert len(drawn) >= 3 and all([stage.kind for stage in each.stages] == own for each in drawn)
    chart = planner.plots.panels(instance, result.plan)[0]
    assert [name.partition(" (")[0] for name, _, _ in chart.key][:5] == [
        *("stage 0", "stages 1-9", "stages 10-21", "stages 22-28", "stage 29")
    ]
