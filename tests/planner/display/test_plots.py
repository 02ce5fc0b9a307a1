"""Pictures: plain data in, charts out, units on the axes; and files through --plot."""

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from formulations.contract.figures.plan_figures import Arc, Graph, Item, Node, Passes, Stack, Strip, Task, stages_of
from planner.cli.app import main
from planner.display import plots
from planner.display.layers import place_in_layers
from planner.display.plots.chart import Chart
from planner.results.events import Event

pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")


EVENTS = [
    Event("p", "i", "a", 0.1, None, 1.0),
    Event("p", "i", "a", 0.5, 3.0, 2.0),
    Event("p", "i", "b", 0.2, 4.0, None),
]


def rows(chart: Chart, *columns: str) -> list[tuple[Any, ...]]:
    """Of the chart's only data set these columns."""
    [found] = chart.datasets.values()
    return [tuple(row[column] for column in columns) for row in found]


def test_bars_mark_the_largest_and_show_the_limit() -> None:
    chart = plots.bars(["a", "b", "c"], [1.0, 3.0, 2.0], "time, s", limit=4.0)
    assert rows(chart, "label", "value", "said") == [("a", 1.0, "1"), ("b", 3.0, "3"), ("c", 2.0, "2")]
    bar, _, line = chart.spec["layer"]
    assert bar["encoding"]["stroke"]["condition"] == {"test": "datum.value === 3.0", "value": "@ink"}
    assert bar["encoding"]["y"]["title"] == "time, s" and line["encoding"]["y"]["datum"] == 4.0
    assert bar["encoding"]["y"]["scale"]["domain"][1] > 4.0, "the limit is seen"


def test_gap_over_time_has_a_line_for_incumbents_and_one_for_bounds() -> None:
    chart = plots.gap_over_time(EVENTS, "ms")
    lines: dict[str, list[float]] = {}
    for name, value in rows(chart, "name", "y"):
        lines.setdefault(name, []).append(value)
    assert lines == {"a": [3.0, 3.0], "a, bound": [1.0, 2.0, 2.0], "b": [4.0, 4.0]}
    first, bound, other = chart.spec["encoding"]["color"]["scale"]["range"]
    assert first == bound != other
    assert chart.spec["encoding"]["strokeDash"]["scale"]["range"] == [[1, 0], [6, 3], [1, 0]]
    assert "ms" in chart.spec["encoding"]["y"]["title"] and "seconds" in chart.spec["encoding"]["x"]["title"]


def test_gap_histogram() -> None:
    bins = [{"above": 0.0, "up_to": 0.01, "count": 5}, {"above": 0.01, "up_to": None, "count": 2}]
    assert rows(plots.gap_histogram(bins), "bin", "count") == [("1 %", 5), ("> 1 %", 2)]


def test_frontier_leaves_out_what_is_infeasible() -> None:
    chart = plots.frontier([[None, 4.0], [3.0, 2.0]], "s")
    assert rows(chart, "name", "x", "y") == [("sum <= 2", 1, 4.0), ("sum <= 2", 2, 2.0), ("sum <= 1", 2, 3.0)]
    assert chart.spec["encoding"]["y"]["title"].endswith(", s")


def test_losses_say_what_is_optimal_and_what_is_unknown() -> None:
    chart = plots.losses([("exact", 0.0), ("piper", 0.047), ("other", None)], "optimum")
    assert rows(chart, "name", "said") == [("exact", "optimal"), ("piper", "4.7 %"), ("other", "no loss known")]
    assert [value for [value] in rows(chart, "value")] == [0.0, pytest.approx(4.7), None]


def test_an_instance_counts_in_a_distribution_only_where_there_is_a_plan() -> None:
    chart = plots.ecdf({"a": [0.0, 0.1, None, 0.02], "b": [None] * 4})
    assert rows(chart, "name", "x", "y") == [("a", 0.0, 0.25), ("a", 2.0, 0.5), ("a", 10.0, 0.75), ("a", 10.0, 0.75)]
    assert "b (no loss known)" in str(chart.spec)
    ratios = plots.profile({"a": [1.0, 4.0, None], "b": [2.0, 1.0, None]})
    assert rows(ratios, "name", "x", "y")[:3] == [("a", 1.0, 0.0), ("a", 1.0, 1 / 3), ("a", 4.0, 2 / 3)]
    [points] = plots.quantiles([3, None, 5, 3], {"a": [0.1, 0.2, None, 0.0]}, "size")
    assert rows(points, "x", "count", "q50", "q95", "worst") == [(3, 2, 0.0, 10.0, 10.0)]


def test_a_thousand_losses_are_a_dozen_strokes_and_methods_share_an_axis() -> None:
    values = [place % 500 for place in range(1000)]
    found = {"a": [value / 1e3 for value in values], "b": [0.0] * 1000}
    first, second = plots.quantiles(values, found, "layers")
    assert len(first.datasets["strokes"]) == 12 and sum(count for [count] in rows(first, "count")) == 1000
    assert first.spec["layer"][0]["encoding"]["y"]["scale"] == second.spec["layer"][0]["encoding"]["y"]["scale"]
    assert all(low <= middle <= high for low, middle, high in rows(first, "q25", "q50", "q75"))
    assert {each["worst"] for each in second.datasets["strokes"]} == {0.0}


MATRIX = ((0.0, 3e9, 1e9), (3e9, 0.0, 1e9), (1e9, 1e9, 0.0))


def test_bandwidth_in_gigabytes_and_no_diagonal() -> None:
    chart = plots.bandwidth(MATRIX)
    assert [row["speed"] for row in chart.datasets["cells"]] == [None, 3.0, 1.0, 3.0, None, 1.0, 1.0, 1.0, None]
    assert not chart.datasets["stages"], "nothing is known of stages"


def test_a_topology_draws_every_device_and_leaves_out_the_slowest_links() -> None:
    chart = plots.topology(MATRIX)
    assert [row["device"] for row in chart.datasets["devices"]] == [0, 1, 2]
    assert {row["link"] for row in chart.datasets["links"]} == {"1-0"} and chart.text == "links faster than 1 GB/s"


def test_a_graph_stands_in_the_order_of_its_edges() -> None:
    nodes = [Node(name, text, 0) for name, text in enumerate(["in", "a", "b", "out"])]
    arcs = [Arc(0, 1, 2e6, True), Arc(0, 2), Arc(1, 3), Arc(2, 3)]
    [chart] = plots.graph(Graph("", nodes, arcs, stages_of([1.0])))
    at = {row["name"]: (row["x"], row["y"]) for row in chart.datasets["nodes"]}
    assert at["in"][0] < at["a"][0] == at["b"][0] < at["out"][0] and at["a"][1] != at["b"][1]
    assert [row["said"] for row in chart.datasets["cuts"]] == ["1.91 MiB"]


def test_a_long_edge_goes_around_the_nodes_between() -> None:
    nodes = [Node(name, str(name), 0) for name in range(3)]
    found = place_in_layers(Graph("", nodes, [Arc(0, 1), Arc(1, 2), Arc(0, 2)], stages_of([1.0])))
    if importlib.util.find_spec("igraph") is not None:
        assert found.routes[2][1][1] != found.places[1][1]


def test_solve_draws_its_plan_and_crosscheck_gap_over_time(tmp_path: Path) -> None:
    plan, gap = tmp_path / "plan.png", tmp_path / "gap.svg"
    assert main(["solve", "chain8", "--memory", "40MB", "--quiet", "--plot", str(plan)]) == 0
    assert plan.read_bytes().startswith(b"\x89PNG")
    assert main(["crosscheck", "chain8", "--methods", "exact,piper", "--quiet", "--plot", str(gap)]) == 0
    assert ElementTree.fromstring(gap.read_text()).tag.endswith("svg")


def test_wide_pictures_have_a_row_and_others_share_one_where_there_is_room() -> None:
    wide, narrow = (Chart("T", "", {"height": 50, "mark": "point"}, {}, is_wide=each) for each in (True, False))
    for width, expected in ((1200, [1, 2, 1]), (400, [1, 1, 1, 1])):
        sheet = plots.Sheet([wide, narrow, narrow, narrow], width=width)
        assert [len(row) for row in sheet._rows()] == expected
        assert f'width="{width}"' in sheet.svg()[:200]


def test_long_titles_are_lines_that_fit_and_numbers_keep_their_units() -> None:
    text = "a sentence that goes on for some time until it says 3.5 ms, and then goes on and on, to its end of 12 GiB"
    words = re.findall(
        r"<text[^>]*>([^<]*)</text>", plots.Sheet([Chart("T", text, {"mark": "point"}, {})], width=400).svg()
    )
    assert len(words) == 3 and all(len(line) < 400 / 6 for line in words)
    assert " ".join(words[1:]).replace("\N{NO-BREAK SPACE}", " ") == text
    assert any("3.5\N{NO-BREAK SPACE}ms" in line for line in words)


def test_the_same_numbers_make_the_same_file_in_every_theme() -> None:
    strip = Strip("Strip", [Item("a", 0, 1.0, "keep"), Item("b", 1, 2.0, "swap")], stages_of([1.0, 2.0]), "time, s")
    charts = plots.panels_of(strip)
    light, again, dark = (plots.Sheet(charts, theme=theme).svg() for theme in (plots.LIGHT, plots.LIGHT, plots.DARK))
    assert light == again != dark and plots.DARK.paper in dark and plots.DARK.stages[0] in dark
    assert {"keep", "swap"} <= set(re.findall(r">([^<>]+)</text>", light)) and "url(#hatch-1-" in light
    own = plots.Sheet(charts, theme=replace(plots.PRINT, font="Some Serif")).svg()
    assert own.count("Some Serif") > 3 and plots.LIGHT.font not in own


def test_two_charts_of_a_sheet_do_not_share_names() -> None:
    passes = Passes("Passes", [Task(0, "F", 0, 0.0, 1.0)], stages_of([1.0]), 0.0)
    text = plots.Sheet([*plots.panels_of(passes), *plots.panels_of(passes)]).svg()
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names)) and any("clip" in name for name in names)
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(names)


def test_a_chart_can_be_given_to_other_programs() -> None:
    [chart] = plots.panels_of(Stack("Time", stages_of([1.0]), {"": [1.0]}, "time", "s"))
    whole = plots.vega_lite(chart, 240)
    assert whole["width"] == 240 and whole["datasets"]["parts"][0]["end"] == 1.0
    assert "@" not in json.dumps(whole)


@pytest.mark.parametrize(("name", "target"), [("chain8", "plan.docx"), ("chain8", "none/plan.png"), ("mesh", "x.docx")])
def test_refusals_come_before_the_work(name: str, target: str, tmp_path: Path, capsys: Any) -> None:
    assert main(["solve", name, "--plot", str(tmp_path / target)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("--plot is") and "expected" in said


def test_without_a_plan_there_is_no_picture_and_a_word_about_it(tmp_path: Path, capsys: Any) -> None:
    target = tmp_path / "plan.png"
    assert main(["solve", "chain8", "--memory", "1B", "--plot", str(target)]) == 4
    assert "--plot" in capsys.readouterr().err and not target.exists()


def test_names_are_no_markup(tmp_path: Path) -> None:
    odd = "<b>&$\\frac$'\" \N{GRINNING FACE}\u202e"
    charts = [plots.bars([odd, odd], [1.0, 2.0], odd, limit=3.0, xlabel=odd, title=odd, text=odd)]
    charts.append(plots.over_devices({odd: [2.0, 1.0], "b": [1.0]}, "s", odd))
    charts.append(plots.losses([(odd, 0.5)], odd, odd))
    text = plots.Sheet(charts, odd).svg()
    ElementTree.fromstring(text)
    assert "frac" in text and "<b>" not in text and "\u202e" not in text
    for suffix in ("pdf",):
        plots.save(charts, str(tmp_path / f"picture.{suffix}"), odd)
        assert (tmp_path / f"picture.{suffix}").stat().st_size > 1000
