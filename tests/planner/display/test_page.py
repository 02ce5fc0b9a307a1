"""The report: one page that needs nothing else, shows the runs as they were, and works in a browser."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.analysis.frontier import by_memory
from planner.cli.app import main
from planner.display.page import document
from planner.display.page import report_data as material_of
from planner.display.page.plans import distinct
from planner.display.page.report_data import Material
from planner.display.page.rows import by_row
from planner.display.plots.methods import losses_of
from planner.results.result import Result
from solvers.outcome import Limits, Status, Stop

pytest.importorskip("jinja2", reason="jinja2 is not installed")
pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")

_VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Elements with their attributes, text by element, and whether all of them are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "td":
            self.cells.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("report") / "report.html"
    given = ["--memory", "40MB", "--methods", "exact,piper,cpsat", "--seed", "3", "--out", str(target), "--quiet"]
    assert main(["report", "chain8", *given]) == 0
    return target


def test_the_page_is_whole_and_needs_no_network(path: Path) -> None:
    page = Page(path.read_text())
    assert path.stat().st_size < 2e6 and not page.all("img")
    assert len(page.all("script")) == 3 and {"type": "application/json", "id": "data"} in page.all("script")
    [policy] = [each["content"] or "" for each in page.all("meta") if "http-equiv" in each]
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe-eval" not in policy
    assert not [name for _, each in page.elements for name in each if name.startswith("on")]
    assert not [
        each for _, each in page.elements if re.match(r"https?:|//", (each.get("src") or each.get("href") or ""))
    ]
    assert not page.all("link") and all("src" not in script for script in page.all("script"))
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")


def test_the_page_shows_what_the_methods_found(path: Path) -> None:
    text = path.read_text()
    page = Page(text)
    assert "Proved optimal: 0.0273 s (36.63 samples/s)." in text
    assert "Minimised is the time per sample of the slowest stage: a pipeline that is never flushed: " in text
    assert re.search(
        r"never flushed: 0.2184 s for 8 micro-batches; simulated batch, 1F1B: 0\.\d+ s \(minimise it: --", text
    )
    assert "The best plan has 2 stages, each on 2 devices; stage 0 is the slowest; 4 of 4 devices" in text
    assert page.cells.count("feasible") == 0, "a plan without a loss is optimal, whoever proved it"
    assert [method for method in ("exact", "piper", "cpsat") if method in page.cells] == ["exact", "piper", "cpsat"]
    assert page.cells.count("0.0273") >= 3
    assert "proved by" in text and {"search", "solver"} <= set(page.cells)
    assert "planner crosscheck chain8 --memory 40MB --methods exact,piper,cpsat --seed 3 --threads 1" in text
    assert re.search(r"\d{4}-\d\d-\d\d", text) and "ortools" in text


def test_an_infeasible_instance_and_names_that_look_like_markup(tmp_path: Path) -> None:
    source = tmp_path / "<b>&.json"
    assert main(["make", "chain8", "--memory", "1kB", "--out", str(source)]) == 0
    source.write_text(source.read_text().replace('"chain8"', '"<script>alert(1)</script>"'))
    target = tmp_path / "report.html"
    assert main(["report", str(source), "--methods", "exact", "--out", str(target), "--quiet"]) == 0
    text = target.read_text()
    Page(text)
    assert "Proved: no plan is feasible." in text and "<script>alert" not in text


@pytest.mark.parametrize("out", ["report.pdf", "none/report.html"])
def test_refusals(out: str, tmp_path: Path, capsys: Any) -> None:
    assert main(["report", "chain8", "--out", str(tmp_path / out)]) == 2
    assert "expected" in capsys.readouterr().err


def test_the_commands_repeat_the_gap_that_was_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    given = ["--methods", "exact", "--quiet", "--out", str(target)]
    assert main(["report", "chain8", "--gap", "0.25", *given]) == 0
    assert target.read_text(encoding="utf-8").count("--gap 0.25") == 2
    assert main(["report", "chain8", *given]) == 0
    assert "--gap" not in target.read_text(encoding="utf-8")


def test_several_instances_are_one_page_with_an_index(tmp_path: Path, capsys: Any) -> None:
    target = tmp_path / "three.html"
    given = ["--time-limit", "5", "--quiet", "--out", str(target)]
    assert main(["report", "chain8", "schedule", "--methods", "exact", *given]) == 0
    page = Page(target.read_text())
    links = [each["href"] for each in page.all("a")]
    assert links[:2] == ["#i0", "#i1"] and {"i0", "i1"} <= {each.get("id") for each in page.all("h1")}
    assert main(["report", "chain8", "schedule", "--plan", "mine=plan.json", *given]) == 2
    assert "--plan is 'mine=plan.json'; expected one instance on the page" in capsys.readouterr().err


def test_figures_are_of_the_plan_that_is_shown_as_the_best() -> None:
    """Of two plans that take equally long it is the one that was found sooner, whichever method comes first."""
    instance = planner.load("chain8", memory="40MB")
    report = planner.crosscheck(instance, methods=["piper", "exact"])
    piper, exact = report.results
    assert exact.plan is not None
    other = {"stages": [dict(stage, nodes=stage["nodes"][::-1]) for stage in exact.plan["stages"]]}
    results = [replace(piper, plan=other, objective=exact.objective, seconds=2.0), replace(exact, seconds=1.0)]
    found = Material(instance, replace(report, results=results), [], [], None, [], [])
    assert found.best is results[1] and distinct(instance, found.report)[0].results[0] is results[1]


def test_a_loss_to_a_bound_is_at_most_that(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    given = ["--memory", "40MB", "--methods", "piper,equi-no-tp", "--quiet", "--out", str(target)]
    assert main(["report", "chain8", *given]) == 0
    text = target.read_text()
    assert "no plan takes less than 0.022 s." in text and "Of the heuristics, piper loses at most 24.1 %" in text
    plans = json.loads(text.partition('id="data">')[2].partition("</script>")[0])["subjects"][0]["plans"]
    assert [plan["label"] for plan in plans] == ["piper: 0.0273 s, <= 24.1 %", "equi-no-tp: 0.036 s, <= 63.6 %"]


def test_the_table_of_devices_and_memory_is_shown_where_it_is_cheap(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    given = ["--memory", "40MB", "--quiet", "--out", str(target)]
    assert main(["report", "chain8", *given, "--methods", "piper-exact-knapsack,equi"]) == 0
    text = target.read_text()
    assert "What more devices or memory would buy" in text
    assert "<pre>planner frontier chain8 --memory 40MB --more-devices 8</pre>" in text
    assert "8 more devices: " in text and "76.3 MiB more memory of a device: " in text
    assert main(["report", "chain8", *given, "--methods", "exact"]) == 0
    assert "planner frontier" not in target.read_text()


def test_a_page_without_the_table_says_why_and_which_command_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = planner.load("chain8", memory="40MB")
    report = planner.crosscheck(instance, methods=["piper-exact-knapsack"])
    [proved] = report.results

    def said(result: Result = proved) -> str:
        table, why = material_of._frontier(instance, replace(report, results=[result]), Limits())
        assert table is None
        return why

    assert "piper-exact-knapsack took 3.5 s here, and they need a run for each memory" in said(
        replace(proved, seconds=3.5)
    )
    open_result = replace(proved, stop=Stop.TIME_LIMIT, status=Status.FEASIBLE, bound=None)
    assert "piper-exact-knapsack did not end within its limit here" in said(open_result)
    ended = replace(by_memory(instance, memories=[4e7], more_devices=0), times=None, stop=Stop.TIME_LIMIT)
    monkeypatch.setattr(material_of, "by_memory", lambda *_, **__: replace(ended, signal=2))
    assert "the run was interrupted" in said()
    monkeypatch.setattr(material_of, "by_memory", lambda *_, **__: ended)
    assert said() == "The optima by devices and memory are not shown: they were not known within 20 s."
    found = material_of.material("chain8", {"memory": "40MB"}, methods=["piper-exact-knapsack"], limits=Limits())
    assert found.frontier is None and found.no_frontier == said()
    text = document._render([found], Limits())
    assert "What more devices or memory would buy" in text and f"<p>{said()} This command makes the table:</p>" in text
    assert "<pre>planner frontier chain8 --memory 40MB --more-devices 8</pre>" in text
    required = replace(instance, requirements=planner.load("chain8", require=["num_stages <= 2"]).requirements)
    assert material_of._frontier(required, report, Limits()) == (None, "")


def test_figures_are_by_what_they_are_of() -> None:
    for name, row in (("knapsack", "node"), ("chain8-machines", "superstage"), ("schedule", "stage")):
        result = planner.solve(planner.load(name))
        figures = result.breakdown()
        assert figures is not None
        table = by_row(result, figures)
        assert table["name"] == f"by {row}" and not any("_" in column for column in table["columns"])


def test_where_nothing_is_lost_there_is_no_picture_of_losses() -> None:
    report = planner.crosscheck(planner.load("chain8", memory="40MB"), methods=["exact", "equi-no-tp"])
    assert losses_of(report).datasets["methods"][0]["said"] == "optimal"
    text, _ = document.page(["chain8"], {}, methods=["exact"], limits=Limits())
    assert 'data-chart="0 time"' in text and 'data-chart="0 losses"' not in text


@pytest.mark.parametrize("width", [320, 1100])
def test_the_end_of_the_slowest_method_has_room_for_its_label(path: Path, width: int) -> None:
    """The axis of seconds is logarithmic: at its end there are 150 pixels at any width."""
    data = json.loads(path.read_text().partition('id="data">')[2].partition("</script>")[0])
    chart = data["subjects"][0]["charts"]["time"]
    scale = chart["spec"]["layer"][1]["encoding"]["x"]["scale"]
    most = eval(scale["domainMax"]["expr"], {"pow": pow, "max": max, "width": width})
    last, first = max(data["columns"][chart["data"]["ends"]["end"]]), scale["domainMin"]
    assert math.log(last / first) / math.log(most / first) * width <= width - 149


def test_an_operator_graph_is_placed_on_a_network(tmp_path: Path, capsys: Any) -> None:
    target = tmp_path / "placed.html"
    given = ["--topology", "two-level", "--stages", "2", "--replicas", "2", "--methods", "parmesan", "--quiet"]
    assert main(["report", "gnmt", *given, "--out", str(target)]) == 0
    text = target.read_text()
    assert "pipeline_placement: " in text and "Devices, and the links that the plan loads" in text
    assert "planner solve gnmt --stages 2 --replicas 2 --topology two-level --method parmesan --seed 0" in text
    assert "planner report gnmt --stages 2 --replicas 2 --topology two-level --methods parmesan" in text
    assert main(["report", "chain8", "--topology", "two-level", "--quiet", "--out", str(target)]) == 2
    assert "expected a model that is an operator graph" in capsys.readouterr().err
