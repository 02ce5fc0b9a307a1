"""What a notebook shows of results, comparisons, models and instances, as IPython is asked for it."""

import pickle
import re
from typing import Any

import pytest

import planner
from planner.display.notebook import register

pytest.importorskip("vl_convert")


@pytest.fixture(scope="module")
def shown() -> Any:
    """What a running IPython makes of an object."""
    interactive = pytest.importorskip("IPython.core.interactiveshell", reason="IPython is not installed")
    shell = interactive.InteractiveShell()
    register(shell)
    return shell.display_formatter.formatters["text/html"]


def test_a_result_is_a_row_and_its_pictures(shown: Any) -> None:
    result = planner.solve(planner.load("chain8"))
    html = shown(result)
    assert html.startswith("<table>") and html.count("<img") == 1
    assert re.search(r'alt="Layers by stage: 8 layers[^"]*bubble: [\d.]+ % of the time[^"]*"', html)
    again = pickle.loads(pickle.dumps(result))
    assert again == result and again.of is None and "<img" not in shown(again), "another process has no instance"
    assert "of" not in result.to_json()


def test_two_plans_are_strips_and_bars_and_a_verdict_its_plan(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    words = lambda drawn, _: f"<img {'; '.join(f'{each.title}: {each.text}' for each in drawn)}>"  # noqa: E731
    monkeypatch.setattr("planner.display.notebook._image", words)
    instance = planner.load("chain8")
    best, even = (planner.solve(instance, method=method) for method in ("exact", "equi"))
    found = planner.diff(best.to_json(), even.to_json(), instance)
    html = shown(found)
    assert html.count("<img") == 1 and "<td>first</td>" in html and "<td>second</td>" in html
    assert re.search(r"<img chain8: two plans: \d of 8 nodes differ[^>]*; first: [^>]*; second: [^>]*>", html)
    assert {"of", "plans"}.isdisjoint(found.to_json())
    verdict = planner.check(instance, best.plan)
    assert {"of", "plan"}.isdisjoint(verdict.to_json())
    pictures = [re.findall(r"<img[^>]*>", shown(each)) for each in (best, verdict)]
    assert pictures[0] == pictures[1] != [], "the same picture"
    broken = planner.check(planner.load("chain8", memory="1MB"), best.plan)
    assert "<img" not in shown(broken) and "memory" in shown(broken)


def test_plans_without_stages_show_what_differs(shown: Any) -> None:
    instance = planner.load("knapsack", nodes=3, options=2)
    plan = planner.solve(instance, exact=True).plan
    found = planner.diff(plan, plan, instance)
    assert found.same and shown(found).count("<table>") == 1 and "<img" not in shown(found)


def test_models_are_compared_beside_the_search(shown: Any) -> None:
    found = planner.formulations(planner.load("fig2", objective="p2p"), limits=planner.Limits(time_s=5))
    html = shown(found)
    assert [line.method for line in found.lines] == ["exact", "cpsat", "milp"] and html.count("<img") == 1
    heads, exact, *models = html.split("<tr>")[1:]
    assert re.findall("<th>(.*?)</th>", heads)[5:8] == ["root", "of optimum", "1st plan"]
    assert exact.count("<td>-</td>") == 5, "a search has neither size nor root"
    assert all("<td>-</td>" not in model for model in models)
    lines = {tuple(cells[:2]): cells for cells in (re.findall("<td>(.*?)</td>", model) for model in models)}
    share = float(lines["cpsat", "as solved"][6].removesuffix(" %"))
    (cpsat,) = (row for row in found.rows if row.method == "cpsat")
    assert cpsat.root_share and share == pytest.approx(100 * cpsat.root_share, abs=0.1)
    assert 'alt="Root bounds; Incumbents and bounds: whole: incumbents; dashed: bounds"' in html


def test_an_instance_is_described(shown: Any) -> None:
    for name in ("chain8", "torus2d", "resnet50"):
        html = shown(planner.load(name))
        assert html.startswith("<table>") and "problem" in html
