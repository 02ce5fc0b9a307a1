"""Kinds of stages and their colours: equal ones share one, which stands for no other and can be distinguished."""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise

import numpy
import pytest
from rich.console import Console

import planner
from formulations.contract.figures.plan_figures import Breakdown, Heat, Stage, Strip
from planner.display import palette, tables
from planner.display.kinds import kind_key, kinds, looks, of_kinds, pictures
from planner.display.palette import DARK, STAGES, THEMES, Theme, contrast, stage_colour, text_on
from planner.files.node_names import names_in_brief, names_of_nodes, with_names


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


Run = Callable[..., tuple[int, str, str]]


def test_a_plan_is_printed_with_the_names_of_its_nodes(run: Run) -> None:
    _, out, _ = run("solve", "chain8", "--memory", "40MB")
    assert [re.split("  +", line)[1:3] for line in out.splitlines() if "4 x keep" in line] == [
        ["0, 1, 2, 3", "layer 0 .. layer 3"],
        ["4, 5, 6, 7", "layer 4 .. layer 7"],
    ]
    _, out, _ = run("solve", "bert32", "--first", "8", "--devices", "2", "--memory", "40GiB")
    assert "token ids .. transformer layer" in out and " x transformer layer" in out
    _, out, _ = run("solve", "chain8-machines")  # a plan in a plan
    assert "inside" in out and "layer 4 .. layer 7" in out


def test_names_that_are_the_ids_are_not_repeated(run: Run) -> None:
    for instance in ("diamond", "mesh", "schedule"):
        code, out, _ = run("solve", instance, "--time-limit", "5")
        assert code == 0 and "names" not in out
        assert names_of_nodes(planner.load(instance)) == {}


def test_operators_have_names_and_edges_between_stages_have_none() -> None:
    instance = planner.load("gnmt")
    operators = tuple(replace(each, name=f"op {v}") for v, each in enumerate(instance.operators))
    names = names_of_nodes(replace(instance, operators=operators))
    first, second = operators[0].id, operators[1].id
    shown = with_names({"stages": [[first, second], [second]], "edges": [[0, 1]]}, names)
    assert shown["stages"] == [
        {"nodes": [first, second], "names": "op 0 .. op 1"},
        {"nodes": [second], "names": "op 1"},
    ]
    assert shown["edges"] == [[0, 1]]


def test_long_names_keep_their_ends() -> None:
    names = {"0": "transformer layer with attention 0", "1": "transformer layer with attention 1"}
    assert names_in_brief([0, 1], names) == "transfor...ention 0 .. transfor...ention 1"


def test_a_plan_with_names_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = planner.load("bert32", devices=8)
    result = planner.solve(instance)
    out = Console(file=io.StringIO(), width=80, soft_wrap=True, highlight=False)
    monkeypatch.setattr(tables, "console", lambda: out)
    tables.show_result(replace(result, stats={}))
    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    stages = lines[next(place for place, line in enumerate(lines) if line.startswith(" stage")) :]
    assert max(map(len, stages)) <= 80 and "memory" in stages[0]


#: Colour-blindness as simulated: at full severity these are the dichromacies.
SEEN = (None, "deuteranomaly", "protanomaly", "tritanomaly")


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: str(theme.name))
@pytest.mark.parametrize("kind", SEEN)
def test_kinds_of_stages_can_be_told_apart(kind: str | None, theme: Theme) -> None:
    """Distances in CAM02-UCS: 2 can just be seen; any two kinds are far above, those that follow each other farther."""
    colorspacious = pytest.importorskip("colorspacious", reason="colorspacious is not installed")

    def seen(colour: str, severity: int) -> object:
        red_green_blue = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        if kind is not None:
            space = {"name": "sRGB1+CVD", "cvd_type": kind, "severity": severity}
            red_green_blue = numpy.clip(colorspacious.cspace_convert(red_green_blue, space, "sRGB1"), 0, 1)
        return colorspacious.cspace_convert(red_green_blue, "sRGB1", "CAM02-UCS")

    for severity in (50, 100):
        colours = [seen(stage_colour(look, theme), severity) for look in range(len(palette.STAGES))]
        assert all(numpy.linalg.norm(a - b) >= 17 for a, b in combinations(colours, 2))
        assert all(numpy.linalg.norm(a - b) >= 30 for a, b in pairwise(colours))


def test_texts_can_be_read() -> None:
    for colour in (*palette.STAGES, *palette.STAGES_ON_DARK, palette.NO_STAGE):
        assert contrast(text_on(colour), colour) >= 4.5
    for theme in THEMES:
        for text in (theme.ink, theme.quiet, theme.alarm):
            assert contrast(text, theme.paper) >= 4.5, theme.name
        for part in range(len(palette.SHARES)):
            for colour in theme.stages:
                mixed = palette.part_colour(colour, part, theme)
                assert contrast(text_on(mixed), mixed) >= 4.5
    for line in palette.LINES:
        assert all(contrast(line, theme.paper) >= 3 for theme in THEMES), line


def test_stages_can_be_seen_on_dark_paper() -> None:
    """A contrast of 3 for graphics, as a library has the luminance; patterns over stages suit both themes."""
    colorspacious = pytest.importorskip("colorspacious", reason="colorspacious is not installed")

    def luminance(colour: str) -> float:
        red_green_blue = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        return float(colorspacious.cspace_convert(red_green_blue, "sRGB1", "XYZ1")[1])

    for colour in (*DARK.stages, DARK.quiet, palette.NO_STAGE):
        ratio = (luminance(colour) + 0.05) / (luminance(DARK.paper) + 0.05)
        assert ratio >= 3 and ratio == pytest.approx(contrast(colour, DARK.paper), rel=1e-3)
    assert [text_on(colour) for colour in DARK.stages] == [text_on(colour) for colour in palette.STAGES]


def test_parts_of_a_bar_differ_in_lightness() -> None:
    """At most three parts are in one bar: they differ from each other and from the paper."""
    for theme in THEMES:
        for colour in theme.stages:
            parts = [palette.part_colour(colour, part, theme) for part in range(3)]
            assert len({*parts, theme.paper}) == 4


def test_patterns_differ() -> None:
    given = palette.patterns(["b", "a", "", "c", "b"])
    assert given[""] == 0 and all(x != y for x, y in combinations(given.values(), 2))
    assert palette.patterns(["b", "a"])["b"] == 0, "where all have a name, the first has no pattern"
