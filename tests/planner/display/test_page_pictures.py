"""Every kind of picture is drawn for the page: the marks, numbers and names that its data have, and no others."""

from dataclasses import replace
from typing import Any

import pytest

from formulations.contract.figures.plan_figures import (
    Arc,
    Breakdown,
    Graph,
    Heat,
    Item,
    Link,
    Matrix,
    Network,
    Node,
    Option,
    Options,
    Passes,
    Picture,
    Place,
    Stack,
    Stage,
    Strip,
    Task,
    Tile,
    Tiles,
    Total,
    Tradeoff,
)
from planner.display.page.plans import Columns
from planner.display.palette import STAGES
from planner.display.plots import graphs, networks, schedules
from planner.display.plots.chart import Chart
from planner.display.plots.files import Sheet, vega_lite
from planner.display.plots.panels import _DRAWN, _SCALED, charts, highest
from planner.display.plots.theme import schemes

pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")

STAGE = (Stage("0", "dp 2", 2), Stage("1", "dp 4", 4, is_bottleneck=True))
EXAMPLES: tuple[Picture, ...] = (
    Strip(
        "Strip",
        [Item("a", 0, 1.0, "keep", {"time_s": 0.25}), Item("b", 0, 2.0), Item("c", 1, 3.0, "swap"), Item("d", None, 1)],
        STAGE,
        "time, ms",
    ),
    Stack("Memory", STAGE, {"weights": [2.0**30, 2.0**31], "activations": [0.0, 2.0**30]}, "memory", "bytes",
          [4e9, 4e9]),
    Passes("Schedule", [Task(0, "F", 7, 0, 1), Task(1, "F", 7, 1, 3), Task(1, "B", 7, 3, 5), Task(0, "B", 7, 5, 6)],
           STAGE, 0.25),
    Graph("Graph", [Node(4, "in", 0), Node(9, "mid", 1, count=5), Node(7, "out", None)],
          [Arc(4, 9, 2e6, True), Arc(9, 7), Arc(4, 7, 1e6, True)], STAGE),
    Network("Network", [Place(0, 0, 0, 0, 0), Place(1, 1, 0, 0, 1), Place(2, 0, 1, 1, None)],
            [Link(0, 1, 1e9, 1e9), Link(1, 2, 1e9, 1e8, True)], STAGE),
    Matrix("Matrix", [[2, 0], [1]], [[0, 1e9, 8e9], [1e9, 0, 1e9], [8e9, 1e9, 0]], STAGE),
    Tiles("Tiles", 2, 3, [Tile(0, 0, 0, 2, 1), Tile(1, 0, 1, 2, 2)], STAGE),
    Tradeoff("Tradeoff", [Options("n", [Option("x", 1.0, 2.0**20), Option("y", 2.0, 2.0**19)], 0, 1)],
             [Total("optimum", 1.0, 2.0**20), Total("heuristic", 2.0, 2.0**19)],
             [Total("", 2.0, 2.0**19), Total("", 1.0, 2.0**20)], 2.0**20, "s"),
    Heat("Heat", [1, 2], [4, 8], [[1.0, None], [0.5, 0.25]], "devices", "memory", "time", (1, 1)),
)  # fmt: skip


def drawn(chart: Chart) -> str:
    """The chart as SVG."""
    return Sheet([chart], width=500).svg()


def test_the_page_has_what_files_show() -> None:
    """The page's script puts the same values in the place of names, and columns together to the same rows."""
    columns = Columns()
    for chart in charts(Breakdown(draw=lambda: EXAMPLES)):
        content = columns.of(chart)

        def column(place: int) -> Any:
            kept: Any = columns.kept[place]
            return [kept["of"][at] for at in kept["at"]] if isinstance(kept, dict) else kept

        def rows(own: dict[str, int]) -> list[dict[str, Any]]:
            return [dict(zip(own, row, strict=True)) for row in zip(*map(column, own.values()), strict=True)]

        whole = vega_lite(chart)
        assert whole["datasets"] == {name: rows(own) for name, own in content["data"].items()}
        assert content["spec"] is chart.spec and whole["config"].items() >= schemes()["light"]["config"].items()


def test_every_kind_has_an_example() -> None:
    assert {type(picture) for picture in EXAMPLES} == {*_DRAWN, *_SCALED}


def only(picture: Picture) -> Chart:
    [chart] = charts(Breakdown(draw=lambda: (picture,)))
    return chart


def test_a_strip_has_its_layers_side_by_side_and_its_stages_named() -> None:
    chart = only(EXAMPLES[0])
    items = chart.datasets["items"]
    assert [(item["start"], item["end"]) for item in items] == [(0, 1), (1, 3), (3, 6), (6, 7)]
    assert [item["hatch"] for item in items] == [
        *("url(#hatch-1-ffffff)", "transparent", "url(#hatch-2-000000)", "transparent")
    ]
    assert [name for name, _, _ in chart.key] == ["keep", "swap"] and chart.top == 7
    assert [stage["stage_name"] for stage in chart.datasets["stages"]] == ["0 dp 2", "▼ 1 dp 4"]
    assert chart.spec["layer"][-1]["mark"]["limit"] > 7 * len("▼ 0.0 2 machines x dp 16 x tp 16"), "cut off"
    assert (
        chart.details is not None and items[0][next(c for c, t in chart.details[1].items() if t == "time, s")] == "0.25"
    )
    assert items[0]["above"] > items[2]["above"]  # more replicas: higher


def test_neighbours_of_one_stage_have_one_frame() -> None:
    items = [Item(str(place), place // 5, 0.1 * (place + 1)) for place in range(10)]  # whose sums are not exact
    frames = only(Strip("Strip", items, STAGE, "time")).datasets["stages"]
    assert [(frame["stage"], frame["share"] > 0) for frame in frames] == [(0, True), (1, True)]


def test_a_stack_ends_at_its_sum_and_what_is_beside_it_begins_at_zero() -> None:
    picture = Stack(
        "Time", STAGE, {"compute": [1.0, 2.0], "send": [1.0, 1.0]}, "time", "s", beside={"ring": [1.0, 4.0]}
    )
    parts = only(picture).datasets["parts"]
    assert [(each["part"], each["start"], each["end"]) for each in parts if each["stage"] == 1] == [
        ("compute", 0, 2),
        ("send", 2, 3),
        ("ring", 0, 4),
    ]
    assert {each["whole"] for each in parts} == {"2 s", "4 s"}


def test_bars_that_add_up_stand_on_each_other_up_to_the_objective() -> None:
    """The mark of a bar that ends near the objective's line stands on the line."""
    parts = {"first": [1.0, 2.0], "nothing": [0.0, 0.0], "send": [0.5, 6.0]}
    chart = only(Stack("Step", STAGE, parts, "part of the step", "s", adds_up=True))
    spans = {(each["stage"], each["part"]): (each["start"], each["end"]) for each in chart.datasets["parts"]}
    assert spans[0, "first"] == (0, 1) and spans[0, "send"] == (1, 1.5)
    assert spans[1, "first"] == (1.5, 3.5) and spans[1, "send"] == (3.5, 9.5)
    assert [stage["above"] for stage in chart.datasets["stages"]] == [1.5, 9.5]
    assert chart.top == pytest.approx(1.1 * 9.5) and "objective 9.5 s" in str(chart.spec)
    assert [name for name, _, _ in chart.key] == ["first", "send"]
    three = (Stage("0"), Stage("1", is_bottleneck=True), Stage("2"))
    marks = only(Stack("Step", three, {"first": [1.0, 8.0, 0.5]}, "step", "s", adds_up=True)).datasets["stages"]
    assert [mark["above"] for mark in marks] == [1.0, 9.5, 9.5]
    assert [(mark["before"], mark["foot"]) for mark in marks] == [(None, 0), ("0", 1), ("1", 9)]
    apart = only(Stack("Time", STAGE, parts, "time", "s"))
    assert "objective" not in str(apart.spec) and apart.top == pytest.approx(1.1 * 8)


def test_parts_of_bars_have_patterns_and_marks_stand_clear_of_limits() -> None:
    chart = only(EXAMPLES[1])
    assert [(name, pattern) for name, pattern, _ in chart.key] == [("weights", ""), ("activations", "hatch-1")]
    patterned = [layer for layer in chart.spec["layer"] if "fill" in layer["encoding"]]
    assert [layer["encoding"]["fill"]["scale"]["range"][0] for layer in patterned] == ["@part1_0"]
    assert patterned[0]["transform"][0]["filter"]["equal"] == "activations"
    for theme in schemes().values():
        assert [theme["colours"][f"part0_{look}"] for look in range(len(STAGES))] == ["transparent"] * len(STAGES)
        assert all(theme["colours"][f"part1_{look}"].startswith("url(#hatch-1-") for look in range(len(STAGES)))
    # The second bar holds 3 GiB: its mark is on the bar below a limit of 3.73 GiB, and above one of 3.26 GiB.
    at = [only(replace(EXAMPLES[1], limits=[most] * 2)).datasets["stages"][1]["above"] for most in (4e9, 3.5e9)]
    assert at == pytest.approx([3.0, 3.5e9 / 2**30])


def test_a_schedule_has_a_row_for_each_replica() -> None:
    tasks = [Task(1, "F", 0, 1, 2, replica=1), Task(1, "F", 1, 1, 2), Task(0, "F", 0, 0, 1)]
    chart = only(Passes("Schedule", tasks, (Stage("0.0"), Stage("0.1")), 0.0))
    assert [row["row"] for row in chart.datasets["tasks"]] == ["0.0", "0.1 (1)", "0.1 (0)"]
    assert chart.spec["encoding"]["y"]["sort"] == ["0.0", "0.1 (0)", "0.1 (1)"]
    assert [row["row"] for row in only(EXAMPLES[2]).datasets["tasks"]] == ["0", "▼1", "▼1", "0"]


def test_options_have_marks_and_colours_by_who_chose_them_and_equal_nodes_are_counted() -> None:
    options = [Option("a", 3.0, 1.0), Option("b", 2.0, 2.0)]
    totals = [Total("this plan", 5.0, 3.0), Total("heuristic", 6.0, 2.0)]

    def chosen(*nodes: Options) -> tuple[Chart, Chart]:
        whole, each = charts(Breakdown(draw=lambda: (Tradeoff("T", nodes, totals, totals, 3.0),)))
        return whole, each

    whole, each = chosen(*(Options(name, options, 0, 0) for name in "xyz"), Options("w", options, 1, 0))
    assert [(row["node"], row["by"]) for row in each.datasets["options"][-4:]] == [
        *(("z", "both"), ("z", "none")),
        *(("w", "heuristic"), ("w", "plan")),
    ]
    assert [row["said"] for row in each.datasets["counts"]] == ["4 nodes"]
    [marks] = [layer["encoding"] for layer in each.spec["layer"] if "shape" in layer["encoding"]]
    assert marks["color"]["scale"]["domain"] == marks["shape"]["scale"]["domain"] == ["both", "plan", "heuristic"]
    assert marks["color"]["scale"]["range"] == ["@line", "@line", "@alarm"]
    assert [point["is_left"] for point in whole.datasets["totals"]] == [True, True]
    _, alone = chosen(Options("x", options, 0, None))
    assert [row["by"] for row in alone.datasets["options"]] == ["plan", "none"] and not alone.datasets["counts"]


def test_what_is_too_large_is_folded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = [[1e9 * (1 + abs(a - b)) for b in range(10)] for a in range(10)]
    monkeypatch.setattr(networks, "_BLOCKS", 4)
    chart = only(Matrix("Matrix", [[*range(9, 4, -1)], [*range(5)]], speeds, STAGE))
    cells = {(cell["from"], cell["to"]): cell["speed"] for cell in chart.datasets["cells"]}
    assert "blocks of 3 devices" in chart.title and len(cells) == 16
    assert cells["7 .. 9", "7 .. 9"] == 2 and cells["7 .. 9", "4"] == 4 and cells["4", "4"] is None

    monkeypatch.setattr(networks, "_LINKS", 1)
    chart = only(EXAMPLES[4])
    assert "the 1 slowest of 2 links" in chart.title
    assert [row["is_slowest"] for row in chart.datasets["links"]] == [True, True]  # both of its ends

    monkeypatch.setattr(schedules, "_MOST", 3)
    chart = only(EXAMPLES[2])
    assert "the first 3 of 4 passes" in chart.title and len(chart.datasets["tasks"]) == 3


def test_no_link_lies_under_another_device_or_link() -> None:
    """On a torus the link that closes a ring bends around the devices between its ends; straight ones are lines."""
    places = [Place(4 * x + y, x, y, 0, x) for x in range(2) for y in range(4)]
    rings = [Link(4 * x + y, 4 * x + (y + 1) % 4, 1.0, 1.0) for x in range(2) for y in range(4)]
    links = only(Network("Torus", places, [*rings, Link(0, 7, 1.0, 1.0)], STAGE)).datasets["links"]
    ways: dict[int, list[Any]] = {}
    for row in links:
        ways.setdefault(row["link"], []).append(row)
    bent = [way for way in ways.values() if len(way) > 2]
    assert [way[0]["ends"] for way in bent] == ["7 and 4", "3 and 0"]
    for way in bent:
        points = [(row["x"], row["y"]) for row in sorted(way, key=lambda row: row["place"])]
        assert {*points} & {(place.x, place.y) for place in places} == {points[0], points[-1]}
        assert min(x - points[0][0] for x, _ in points) == pytest.approx(-0.4)  # names are on the other side
    row = [Place(device, device, 0, 0, 0) for device in range(3)]
    over = only(Network("Row", row, [Link(0, 2, 1.0, 1.0)], STAGE)).datasets["links"]
    assert min(each["y"] for each in over) == pytest.approx(-0.4)


def test_no_arc_goes_through_a_name() -> None:
    through, above, own = [(0.0, -1.0), (2.0, 0.0)], [(0.0, -2.0), (2.0, -1.0)], [(0.0, 0.0), (1.0, 0.0)]
    assert not graphs._is_free((1.0, 0.0), [above, through]) and graphs._is_free((1.0, 0.0), [above, own])
    chart = only(Graph("Graph", [Node(each, f"n{each}", 1, count=1 + each) for each in (0, 1)], [Arc(0, 1)], STAGE))
    rows = chart.datasets["nodes"]
    assert [(row["title"], row["label"], row["is_free"]) for row in rows] == [
        ("n0", "▼1", True),
        ("2 × n1", "▼1", True),
    ]
    assert chart.title == "Graph (in circles: stages)"


def test_plans_side_by_side_have_one_unit() -> None:
    pictures = [Stack("Time", STAGE, {"": [each, 0.0]}, "time", "s") for each in (0.5, 2.0)]
    small, large = (Breakdown(draw=lambda own=own: (own,)) for own in pictures)
    most = highest([small, large])
    [alone], [beside] = charts(small), charts(small, most)
    assert most == {"Time": 2.0} and (alone.unit, beside.unit) == ("time, ms", "time, s") and beside.top == 0.55


def test_a_table_has_lines_between_less_and_more_and_cells_without_a_value() -> None:
    """Levels are 1.1, 1.5, 2 and 4 times the least; a line lies where neighbours are on both sides of one."""
    values = [[None, 9.0, 8.0, 4.0], [None, 6.0, 4.1, 4.0], [5.0, 4.0, 4.0, 7.0]]
    picture = Heat("Heat", [1, 2, 3, 4], [1, 2, 3], values, "devices", "memory", "time", (0, 3), "s", (1, 1))
    chart = only(picture)
    lines = chart.datasets["lines"]
    sides: dict[float, set[tuple[Any, ...]]] = {}
    for level in (4.4, 6.0, 8.0):
        sides[level] = set()
        for row, column in ((row, column) for row in range(3) for column in range(4)):
            for other, side in (((row, column - 1), "left"), ((row - 1, column), "below")):
                here, beside = values[row][column], values[other[0]][other[1]] if min(other) >= 0 else None
                if here is not None and beside is not None and (here < level) != (beside < level):
                    sides[level].add((column + 1, row + 1, side))
    found = [(each["x"], each["y"], each["side"]) for each in lines]
    assert len(found) == sum(map(len, sides.values())) and {*found} == set.union(*sides.values())
    assert [each["said"] for each in lines if each["said"]] == ["4.4 s", "6 s", "8 s"]
    assert len({each["y"] for each in lines if each["said"]}) == 3  # no label on another one
    assert [name for name, _, _ in chart.key] == ["frame: the least", "frame: here", "infeasible"]
    assert sum(cell["said"] == "infeasible" for cell in chart.datasets["cells"]) == 2


def test_a_large_table_is_drawn_with_some_of_its_rows_the_last_and_the_best() -> None:
    values = [[float(row + column) for column in range(2)] for row in range(100)]
    chart = only(Heat("Heat", [1, 2], range(1, 101), values, "x", "y", "time", (1, 0)))
    assert "some of its rows" in chart.title
    cells = chart.datasets["cells"]
    rows = sorted({cell["y"] for cell in cells})
    assert rows == [2, *range(3, 101, 3), 100] and [cell["value"] for cell in cells if cell["frame"] == "best"] == [1.0]
