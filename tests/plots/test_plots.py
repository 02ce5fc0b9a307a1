"""Pictures: axes in, axes out, units on the axes; and files through --plot."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import planner
from formulations import FAMILIES
from formulations.figures.plan_figures import Arc, Graph, Matrix, Node, stages_of
from instances.catalog.catalog import CATALOG
from planner.cli.app import main
from planner.display import plots
from planner.display.layers import layered
from planner.display.plots.panel import Panel
from planner.display.plots.panels import panels
from planner.results.events import Event

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

#: Catalog entries that would take seconds.
LARGE = ("bert32", "bert", "gpt", "gpt3-175b", "mmt", "dlrm")

EVENTS = [
    Event("p", "i", "a", 0.1, None, 1.0),
    Event("p", "i", "a", 0.5, 3.0, 2.0),
    Event("p", "i", "b", 0.2, 4.0, None),
]


@pytest.fixture
def axes() -> Any:
    from matplotlib.figure import Figure

    return Figure().subplots()


def test_bars_mark_the_largest_and_show_the_limit(axes: Any) -> None:
    assert plots.bars(axes, ["a", "b", "c"], [1.0, 3.0, 2.0], "time, s", limit=4.0) is axes
    heights = [patch.get_height() for patch in axes.patches]
    edges = [patch.get_edgecolor() for patch in axes.patches]
    assert heights == [1.0, 3.0, 2.0] and edges[0] == edges[2] != edges[1]
    assert axes.get_ylabel() == "time, s"
    assert list(axes.lines[0].get_ydata()) == [4.0, 4.0]


def test_gap_over_time_has_a_line_for_incumbents_and_one_for_bounds(axes: Any) -> None:
    assert plots.gap_over_time(axes, EVENTS, "ms") is axes
    lines = [line for line in axes.lines if len(line.get_ydata()) > 1]
    assert [list(line.get_ydata()) for line in lines] == [[3.0, 3.0], [1.0, 2.0, 2.0], [4.0, 4.0]]
    assert lines[0].get_color() == lines[1].get_color() != lines[2].get_color()
    assert {"a", "b"} <= {text.get_text() for text in axes.texts}, "names stand at the ends of lines"
    assert "ms" in axes.get_ylabel() and "seconds" in axes.get_xlabel()


def test_gap_histogram(axes: Any) -> None:
    bins = [{"above": 0.0, "up_to": 0.01, "count": 5}, {"above": 0.01, "up_to": None, "count": 2}]
    assert plots.gap_histogram(axes, bins) is axes
    assert [patch.get_height() for patch in axes.patches] == [5, 2]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1 %", "> 1 %"]


def test_frontier_leaves_out_what_is_infeasible(axes: Any) -> None:
    assert plots.frontier(axes, [[None, 4.0], [3.0, 2.0]], "s") is axes
    assert axes.lines[0].get_ydata().tolist() == [4.0, 2.0]
    assert len(axes.lines) == 2 and axes.get_ylabel().endswith(", s")


MATRIX = ((0.0, 3e9, 1e9), (3e9, 0.0, 1e9), (1e9, 1e9, 0.0))


def test_bandwidth_in_gigabytes_and_no_diagonal(axes: Any) -> None:
    assert plots.bandwidth(axes, MATRIX) is axes
    shown = axes.images[0].get_array()
    assert shown[0, 1] == 3.0 and bool(shown.mask[0, 0])


def test_a_topology_draws_every_device_and_leaves_out_the_slowest_links(axes: Any) -> None:
    assert plots.topology(axes, MATRIX) is axes
    assert [text.get_text() for text in axes.texts] == ["0", "1", "2"]
    assert len(axes.lines) == 1


def test_a_matrix_orders_devices_by_stage(axes: Any) -> None:
    stages = stages_of([1.0, 1.0, 1.0])
    assert plots.matrix(axes, Matrix("", [[2], [0], [1]], MATRIX, stages)) is axes
    assert axes.images[0].get_array()[1, 2] == 3.0


def test_a_graph_stands_in_the_order_of_its_edges(axes: Any) -> None:
    nodes = [Node(name, text, 0) for name, text in enumerate(["in", "a", "b", "out"])]
    arcs = [Arc(0, 1), Arc(0, 2), Arc(1, 3), Arc(2, 3)]
    assert plots.graph(axes, Graph("", nodes, arcs, stages_of([1.0]))) is axes
    at = {text.get_text(): text.get_position() for text in axes.texts if text.get_text()}
    assert at["in"][0] < at["a"][0] == at["b"][0] < at["out"][0]
    assert at["a"][1] != at["b"][1]


def test_a_long_edge_goes_around_the_nodes_between() -> None:
    nodes = [Node(name, str(name), 0) for name in range(3)]
    found = layered(Graph("", nodes, [Arc(0, 1), Arc(1, 2), Arc(0, 2)], stages_of([1.0])))
    if importlib.util.find_spec("igraph") is not None:
        assert found.routes[2][1][1] != found.places[1][1]


def test_every_family_has_pictures() -> None:
    assert all(family.breakdown is not None for family in FAMILIES)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_panel_of_a_plan_can_be_drawn(family: Any, axes: Any) -> None:
    name = next(entry.name for entry in CATALOG.values() if entry.family == family.name and entry.name not in LARGE)
    instance = planner.load(name)
    result = planner.solve(instance, limits=planner.Limits(time_s=5))
    found = panels(instance, result.plan)
    assert found
    for panel in found:
        axes.clear()
        panel.draw(axes)
        assert panel.title and (axes.patches or axes.images or axes.collections or axes.texts)


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_solve_draws_its_plan(tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"plan{suffix}"
    assert main(["solve", "chain8", "--memory", "40MB", "--quiet", "--plot", str(target)]) == 0
    if suffix == ".svg":
        assert ElementTree.fromstring(target.read_text()).tag.endswith("svg")
    else:
        assert target.read_bytes().startswith(b"\x89PNG")


def test_crosscheck_draws_gap_over_time(tmp_path: Path) -> None:
    target = tmp_path / "gap.svg"
    arguments = ["crosscheck", "chain8", "--methods", "exact,piper", "--quiet", "--plot", str(target)]
    assert main(arguments) == 0
    assert ElementTree.fromstring(target.read_text()).tag.endswith("svg")


def test_on_a_phone_titles_are_whole_and_lines_to_names_do_not_cross_them() -> None:
    found = [("amp-released-after-all", 0.0), ("b", 0.16)]
    names = ("one-of-them", "two", "three", "four", "five")
    events = [Event("p", "i", name, 0.1, 3.0 + place / 1000, 2.0) for place, name in enumerate(names)]
    says = "6 of 8 methods find the optimum; the worst loses 16 %"
    drawn = [
        Panel("Loss of every method to the proved optimum", lambda on: plots.losses(on, found, "optimum"), says),
        Panel("Incumbents and bounds", lambda on: plots.gap_over_time(on, events, "s")),
    ]
    made = plots.figure(drawn, width=400)
    made.canvas.draw()
    losses, over_time = made.axes
    assert all(text.get_window_extent().x0 >= 0 and text.get_window_extent().x1 <= 400 for text in losses.texts)
    named = [text for text in over_time.texts if text.arrow_patch is not None]
    assert len(named) == 5
    for text in named:
        line = text.arrow_patch.get_transform().transform_path(text.arrow_patch.get_path())
        assert line.vertices[:, 0].max() <= text.get_window_extent().x0 + 3


@pytest.mark.parametrize("target", ["plan.docx", "none/plan.png"])
def test_refusals_come_before_the_work(target: str, tmp_path: Path, capsys: Any) -> None:
    assert main(["solve", "chain8", "--plot", str(tmp_path / target)]) == 2
    assert "expected" in capsys.readouterr().err


def test_names_are_no_formulas(axes: Any) -> None:
    plots.bars(axes, ["$\\frac$", "$x$"], [1.0, 2.0], "time, s")
    nodes = [Node(0, "$\\frac$", 0), Node(1, "b", 0)]
    plots.graph(axes, Graph("", nodes, [Arc(0, 1)], stages_of([1.0])))
    axes.figure.canvas.draw()


def test_without_a_plan_there_is_no_picture_and_a_word_about_it(tmp_path: Path, capsys: Any) -> None:
    target = tmp_path / "plan.png"
    assert main(["solve", "chain8", "--memory", "1B", "--plot", str(target)]) == 4
    assert "--plot" in capsys.readouterr().err and not target.exists()


def test_names_and_units_are_no_formulas(tmp_path: Path) -> None:
    """A formula that matplotlib cannot read would be an error; so would a sign that no font has be a warning."""
    from planner.display.plots.files import save, svg
    from planner.display.plots.panel import Panel

    odd = "$\\frac$ \N{GRINNING FACE}"

    def draw(axes: Any) -> None:
        plots.bars(axes, [odd, odd], [1.0, 2.0], odd, limit=3.0, xlabel=odd)
        axes.text(0, 0, odd)
        axes.plot([0], [0], label=odd)
        axes.legend()

    panel = Panel(odd, draw)
    assert "frac" in svg(panel)
    for suffix in ("png", "svg", "pdf"):
        save([panel, panel], str(tmp_path / f"picture.{suffix}"), odd)
        assert (tmp_path / f"picture.{suffix}").stat().st_size > 1000


@pytest.fixture(autouse=True)
def _no_warning(recwarn: pytest.WarningsRecorder) -> Any:
    yield
    assert [str(each.message) for each in recwarn if "Glyph" in str(each.message)] == []
