"""The page as a reader has it: in a browser, at several widths, in light and dark, by keyboard, without scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from plots.browser import chromium, opened

from planner.cli.app import main

pytest.importorskip("jinja2", reason="jinja2 is not installed")
pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")

#: What a name may be: the end of a script, a picture that cannot be loaded, a template's order, another attribute.
MARKUP = "</script><img src=x onerror=alert(1)>{{ 7 * 7 }}\"'"
#: Everything that a keyboard is to reach.
_CONTROLS = "a[href], button, select, input, summary, [tabindex]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page about a chain of which instance, layers and configurations are called like markup."""
    folder = tmp_path_factory.mktemp("page")
    source, target = folder / "chain.json", folder / "report.html"
    assert main(["make", "chain8", "--memory", "40MB", "--out", str(source)]) == 0
    content = json.loads(source.read_text())
    content["name"] = MARKUP
    for node in content["layers"]:
        node["name"] = f"{MARKUP} {node['id']}"
    source.write_text(json.dumps(content))
    assert main(["report", str(source), "--methods", "exact,piper,equi-no-tp", "--out", str(target), "--quiet"]) == 0
    return target


def test_the_page_works_and_names_do_no_harm(browser: Any, path: Path) -> None:
    with opened(browser, path) as seen:
        page = seen.page
        assert seen.complaints == [] and seen.requests == [path.as_uri()] and seen.overflow() <= 0
        assert page.locator("h1").inner_text() == MARKUP and page.locator("img").count() == 0
        assert page.locator(".chart svg").count() >= 2
        first = page.locator("table.methods tbody td").first
        head = page.locator("table.methods th button", has_text="method")
        head.click()
        assert first.inner_text() == "equi-no-tp"
        head.press("Enter")
        assert first.inner_text() == "piper"
        beside(page, 1)
        assert page.locator(".plans figure").count() >= 8  # of each plan a strip, two stacks, a schedule
        layer = page.locator(".chosen input")
        layer.fill("5")
        about = page.locator(".chosen tbody tr").first.locator("td")
        assert about.all_inner_texts() == 2 * [f"{MARKUP} 5"]
        page.locator(".plans figure svg .layer_0_marks path").nth(2).click()
        assert layer.input_value() == "2" and about.all_inner_texts() == 2 * [f"{MARKUP} 2"]
        page.locator("#vg-tooltip-element").wait_for()
        assert f"{MARKUP} 2" in page.locator("#vg-tooltip-element").inner_text()
        page.locator(".command button").first.click()
        page.locator(".command button", has_text="Copied").or_(page.locator("button", has_text="Selected")).wait_for()
        assert seen.complaints == [] and len(seen.requests) == 1


def beside(page: Any, plan: int) -> None:
    """Show another plan beside the first, and wait until both are drawn."""
    page.locator("[data-plans] select").nth(1).select_option(str(plan + 1))
    page.wait_for_timeout(50)
    page.wait_for_selector("body[data-drawn=all]")


@pytest.mark.slow
def test_without_scripts_the_answer_the_tables_and_the_commands_are_there(browser: Any, path: Path) -> None:
    with opened(browser, path, scripts=False) as seen:
        shown = seen.page.locator("body").inner_text()
        assert "Proved optimal" in shown and "planner crosscheck" in shown
        assert seen.page.locator("table.methods tbody tr").count() == 3 and seen.overflow() <= 0


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 800, 1200, 1600])
def test_every_width_and_theme(browser: Any, path: Path, width: int, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    with opened(browser, path, width, theme) as seen:
        page = seen.page
        beside(page, 1)
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        assert seen.complaints == [] and seen.overflow() <= 0
        found = axe.Axe().run(page, options={"resultTypes": ["violations"]})
        assert found.response["violations"] == [], found.generate_report()
        assert "color-contrast" in {rule["id"] for rule in found.response["passes"]}
        reached = set()
        count = page.locator(_CONTROLS).count()
        page.evaluate(f"document.querySelectorAll({_CONTROLS!r}).forEach((each, i) => {{ each.dataset.nth = i; }})")
        for _ in range(count + 1):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.dataset.nth"))
        assert reached >= {str(nth) for nth in range(count)}


def _without_the_policy(path: Path, folder: Path, script: str) -> Path:
    target = folder / "probe.html"
    target.write_text(path.read_text().replace("</main>", f"<script>{script}</script></main>"))
    return target


@pytest.mark.slow
def test_the_policy_lets_no_other_script_run_and_no_network_be_used(browser: Any, path: Path, tmp_path: Path) -> None:
    probe = _without_the_policy(path, tmp_path, "document.title = 'run'")
    with opened(browser, probe) as seen:
        assert seen.page.title() != "run" and any("Content Security Policy" in each for each in seen.complaints)
        refused = seen.page.evaluate("fetch('http://localhost:9/').then(() => 'loaded', error => String(error))")
        assert "Failed to fetch" in refused and any("connect-src" in each for each in seen.complaints)


@pytest.mark.slow
def test_a_layer_is_found_in_a_plan_that_has_another_order(browser: Any, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    given = ["--layers", "6", "--hidden-size", "512", "--devices", "8", "--memory", "2GiB", "--quiet"]
    assert main(["report", "bert", *given, "--methods", "exact,equi-no-tp", "--out", str(target)]) == 0
    with opened(browser, target, 1200) as seen:
        beside(seen.page, 1)
        shown = []
        for layer in range(9):
            seen.page.locator(".chosen input").fill(str(layer))
            rows = seen.page.locator(".chosen tbody tr", has=seen.page.locator("th", has_text="id"))
            shown.append(rows.first.locator("td").all_inner_texts())
        assert all(first == second for first, second in shown) and len({first for first, _ in shown}) == 9


@pytest.mark.slow
def test_what_is_printed_is_light_and_has_no_controls(browser: Any, path: Path) -> None:
    ink = "document.querySelector('.chart svg text').getAttribute('fill')"
    with opened(browser, path, 800, "dark") as seen:
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
        dark = seen.page.evaluate(ink)
        seen.page.emulate_media(media="print")
        seen.page.wait_for_timeout(500)
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert (dark, seen.page.evaluate(ink)) == ("#f0f0f0", "#1a1a1a")
        assert not any(each.is_visible() for each in seen.page.locator(".command button, .choices").all())
