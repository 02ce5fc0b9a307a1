"""Pictures of 400 pixels: what has no room for a number says so, and what can be turned is turned."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from formulations.figures.plan_figures import (
    Arc,
    Graph,
    Item,
    Matrix,
    Node,
    Passes,
    Stack,
    Stage,
    Strip,
    Task,
    Tile,
    Tiles,
    stages_of,
)
from planner.analysis.difference import Difference, Row
from planner.display import plots
from planner.display.differences import panels
from planner.results.check import Verdict
from planner.results.events import Event

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def drawn(picture: Any, width: int = 400) -> Any:
    """The axes of one picture at a width in pixels, laid out."""
    made = plots.figure(list(plots.panels_of(picture)), width=width)
    made.canvas.draw()
    return made.axes[0]


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_numbers_of_narrow_stages_stand_upright_and_what_is_left_out_is_named() -> None:
    sizes = [6.0, *[1.0] * 17, 0.1]
    items = [Item(f"layer {place}", place, size) for place, size in enumerate(sizes)]
    axes = drawn(Strip("Layers", items, stages_of([1.0] * len(sizes)), "time, s"))
    turned = {text.get_text(): text.get_rotation() for text in axes.texts}
    assert (turned["0"], turned["11"]) == (0, 90) and "18" not in turned
    assert axes.get_xlabel().replace("\n", " ").endswith("too narrow for a number: 18")


def test_shares_of_memory_stand_upright_in_narrow_bars() -> None:
    held = {"weights": [float(place) for place in range(1, 18)]}
    axes = drawn(Stack("Memory", stages_of([1.0] * 17), held, "memory", "bytes", [20.0] * 17))
    shares = [text for text in axes.texts if text.get_text().endswith(" %")]
    assert len(shares) == 17 and {text.get_rotation() for text in shares} == {90}
    for text, other in pairwise(shares):
        assert text.get_window_extent().x1 <= other.get_window_extent().x0 + 1


def test_passes_without_numbers_say_so() -> None:
    tasks = [Task(0, "F", place, float(place), place + 1.0) for place in range(100)]
    few = drawn(Passes("Passes", tasks[:3], stages_of([1.0]), 0.0))
    many = drawn(Passes("Passes", tasks, stages_of([1.0]), 0.0, note="A note, {}.", amounts=[2.0]))
    some = drawn(Passes("Passes", [*tasks, Task(0, "B", 0, 100.0, 150.0)], stages_of([1.0]), 0.0))
    assert few.get_xlabel() == "time, s" and texts(few)[:3] == ["0", "1", "2"]
    assert many.get_xlabel() == "time, s; numbers left out"
    assert some.get_xlabel() == "time, s; some numbers left out" and "0" in texts(some)
    assert "bubble: 0 % of the time. A note, 2 s." in [text.replace("\N{NO-BREAK SPACE}", " ") for text in texts(many)]


def test_deep_graphs_stand_upright_on_a_phone() -> None:
    nodes = [Node(place, f"operator {place}", place // 20) for place in range(40)]
    arcs = [Arc(place, place + 1, 1.0, place == 19) for place in range(39)]
    graph = Graph("Graph", nodes, arcs, [Stage("0"), Stage("1", is_bottleneck=True)])
    for width, upright in ((400, True), (1200, False)):
        axes = drawn(graph, width)
        labels = {text.get_text(): text.get_window_extent() for text in axes.texts}
        first, last = labels["0"], labels.get("\N{BLACK DOWN-POINTING TRIANGLE} 1") or labels["1"]
        assert bool(first.y0 > last.y1 + 100) is upright and bool(first.x1 + 100 < last.x0) is not upright
        inside = axes.get_window_extent()
        assert inside.x0 <= first.x0 and last.x1 <= inside.x1


def test_bars_that_add_up_stand_on_each_other() -> None:
    parts = {"first": [1.0, 2.0], "nothing": [0.0, 0.0], "rest": [0.5, 0.0]}
    together = Stack("Together", stages_of([1.5, 2.0]), parts, "part of the step", "s", adds_up=True)
    alone = Stack("Alone", stages_of([1.5, 2.0]), parts, "time", "s")
    axes, other = drawn(together), drawn(alone)
    assert "objective 3.5 s " in texts(axes) and "2 s " in texts(other)
    assert [bar.get_y() for bar in axes.containers[0]] == [0.0, 1.5]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["first", "rest"]
    assert [bar.get_y() for bar in other.containers[0]] == [0.0, 0.0]
    assert max(line.get_ydata()[0] for line in axes.lines) == 3.5


@pytest.mark.parametrize("width", [400, 1200])
def test_a_key_is_as_tall_as_its_matrix_and_little_is_empty(width: int) -> None:
    speeds = [[0.0 if i == j else 1e9 * (1 + i + j) for j in range(4)] for i in range(4)]
    matrix = drawn(Matrix("Bandwidths", [[0, 1], [2, 3]], speeds, stages_of([1.0, 2.0])), width)
    key = matrix.figure.axes[-1] if len(matrix.figure.axes) > 1 else matrix.child_axes[0]
    assert key.get_window_extent().height == pytest.approx(matrix.get_window_extent().height, rel=0.02)
    tiles = Tiles("Tiling", 2, 8, [Tile(place, 0, 2 * place, 2, 2) for place in range(4)], stages_of([1.0] * 4))
    figure = drawn(tiles, 400).figure
    assert figure.get_size_inches()[1] < 2.6


def test_tied_methods_are_one_text_with_all_names() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(4, 3.5))
    names = ["piper", "piper-exact-knapsack", "exact", "milp-columns"]
    events = [Event("p", "i", name, 0.1, 3.0, 2.0) for name in names] + [Event("p", "i", "equi", 0.1, 5.0, 2.0)]
    axes = plots.gap_over_time(figure.subplots(), events)
    lines = [text.get_text() for text in sorted(axes.texts, key=lambda text: -text.xyann[1])]
    assert lines[:2] == ["equi", "4 tied: piper,"]
    assert " ".join(lines[1:]) == "4 tied: piper, piper-exact-knapsack, exact, milp-columns"


def test_sizes_of_tied_lines_stay_whole() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(4, 3.5))
    axes = plots.over_devices(figure.subplots(), {f"{size} GiB": [2.0, 1.0] for size in (12, 16, 24)}, "s")
    assert {text.get_text().replace("\N{NO-BREAK SPACE}", "_") for text in axes.texts} == {
        "3 tied: 12_GiB,",
        "16_GiB, 24_GiB",
    }
    assert axes.get_ylabel() == "time per sample, s" and [line.get_ydata()[-1] for line in axes.lines] == [1.0] * 3


def test_plans_side_by_side_say_how_many_stages_have_no_room_for_their_number() -> None:
    rows = [Row(f"node {place}", "", [], {"stage": 0}, {"stage": place // 59}) for place in range(60)]
    verdict = Verdict("p", "i", (), 1.0, "s")
    [panel] = panels(Difference("p", "i", "s", verdict, verdict, 0.0, rows, []))
    axes = plots.figure([panel], width=400).axes[0]
    assert axes.get_xlabel().replace("\n", " ").endswith("numbers are stages (1 without room)")
