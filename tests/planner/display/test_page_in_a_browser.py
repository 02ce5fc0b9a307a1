"""The page as a reader has it: in a browser, at several widths, in light and dark, by keyboard, without scripts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, opened

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
        with page.expect_download() as saved:
            page.locator("figure .download").first.click()
        assert saved.value.suggested_filename.endswith(".svg")
        assert Path(saved.value.path()).read_text().startswith("<svg")
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
def test_a_schedule_is_zoomed_and_moved_by_keys_alone(browser: Any, path: Path) -> None:
    ticks = """(() => {
        const named = each => each.querySelector('.role-axis-title')?.textContent.startsWith('time');
        const axis = [...document.querySelectorAll('.plans figure:last-child .role-axis')].find(named);
        return [...axis.querySelectorAll('.role-axis-label text')].map(each => Number(each.textContent));
    })()"""
    with opened(browser, path, 800) as seen:
        page, names = seen.page, []
        while len(names) < 60 and "zoom" not in names:
            page.keyboard.press("Tab")
            names.append(page.evaluate("document.activeElement.name || ''"))
        assert names[-1] == "zoom"
        whole = page.evaluate(ticks)
        for _ in range(9):
            page.keyboard.press("ArrowRight")
        page.wait_for_timeout(300)
        near = page.evaluate(ticks)
        page.keyboard.press("Tab")
        page.keyboard.press("End")
        page.wait_for_timeout(300)
        last = page.evaluate(ticks)
        assert page.evaluate("document.activeElement.name") == "place"
        assert whole[0] == near[0] == 0 and near[-1] <= whole[-1] / 8
        assert last[0] >= 0.85 * whole[-1] and seen.complaints == []


@pytest.mark.slow
def test_pictures_of_two_plans_stand_at_one_height_and_squares_stay_square(browser: Any, tmp_path: Path) -> None:
    target = tmp_path / "torus.html"
    given = ["--sides", "8x4", "--methods", "consecutive,consecutive-pipeline-first", "--quiet"]
    assert main(["report", "torus2d", *given, "--out", str(target)]) == 0
    with opened(browser, target, 1200) as seen:
        page = seen.page
        beside(page, 1)
        boxes = [each.bounding_box() for each in page.locator(".plans .chart svg.marks").all()]
        assert len(boxes) == 6
        for left, right in zip(boxes[::2], boxes[1::2], strict=True):
            assert left["x"] < right["x"] and abs(left["y"] + left["height"] - right["y"] - right["height"]) <= 2
        for width in (1200, 400, 800):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(600)
            assert seen.overflow() <= 0
            cells = page.locator(".plans figure", has_text="Bandwidths").first.locator(".mark-rect.layer_0_marks")
            box = cells.bounding_box()
            assert abs(box["width"] - box["height"]) <= 3 and box["width"] > 200, width


@pytest.mark.slow
def test_what_is_printed_is_light_and_has_no_controls(browser: Any, path: Path) -> None:
    ink = "document.querySelector('.chart svg text').getAttribute('fill')"
    with opened(browser, path, 800, "dark") as seen:
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
        dark = seen.page.evaluate(ink)
        plan = seen.page.locator(".choices select").first.evaluate("each => each.selectedOptions[0].textContent")
        assert not seen.page.locator(".printed").first.is_visible()
        seen.page.emulate_media(media="print")
        seen.page.wait_for_timeout(500)
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert (dark, seen.page.evaluate(ink)) == ("#f0f0f0", "#1a1a1a")
        assert not any(each.is_visible() for each in seen.page.locator(".command button, .choices, input").all())
        assert seen.page.locator(".printed:visible").first.text_content() == plan, "whose pictures are printed is said"
        style = "(each => [each.maxWidth, each.breakAfter])(getComputedStyle(document.querySelector('{}')))"
        assert seen.page.evaluate(style.format(".chart svg"))[0] == "100%"  # paper is narrower than windows
        assert seen.page.evaluate(style.format("h2"))[1] == "avoid"
