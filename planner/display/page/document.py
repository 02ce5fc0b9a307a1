"""The page itself: material, charts and scripts put into the template."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from formulations.contract.figures.plan_figures import Breakdown
from planner.display.page import library, sentences
from planner.display.page.plans import Columns, distinct, plans_for_page
from planner.display.page.report_data import Material, material
from planner.display.page.rows import COLUMNS, by_row, cells, parts
from planner.display.plots.methods import losses_of, over_time
from planner.display.plots.theme import pattern_elements, schemes
from planner.display.plots.tradeoffs import heat
from planner.display.terminal import printable
from planner.files.load import family_of
from planner.files.node_names import names_of_nodes, with_names
from planner.files.write import plain
from planner.process.errors import UsageError
from planner.process.signals import pending
from planner.process.versions import machine, today, versions
from planner.results.result import Result
from planner.results.save import plan_file
from planner.results.texts import facts
from planner.solving.compare import Report
from solvers.outcome import Limits


def page(
    names: Sequence[str], settings: Mapping[str, Any], *, limits: Limits, **arguments: Any
) -> tuple[str, list[Report]]:
    """Run the methods on instances and write the page about them; arguments as of `material`, for each of the names.

    Returns: HTML text that needs no network, and what it was made of: a signal ends it with the instance at which it
    came.
    """
    library.require_page()
    found: list[Material] = []
    for name in names:
        found.append(material(name, settings, limits=limits, **arguments))
        if found[-1].report.signal or pending():
            break
    return _render(found, limits), [each.report for each in found]


def _render(found: Sequence[Material], limits: Limits) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    columns = Columns()
    subjects = [_subject(place, each, columns) for place, each in enumerate(found)]
    data = {
        "columns": columns.kept,
        "schemes": schemes(),
        "subjects": [{"charts": each["charts"], "plans": each["plans"]} for each in subjects],
    }
    scripts = library.library(), library.part("report.js")
    template = Environment(
        loader=PackageLoader("planner.display", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable_lines,
    ).get_template("report.html")
    text: str = template.render(
        title=_title(found),
        subjects=subjects,
        columns=COLUMNS,
        allowed=library.security_policy(*scripts),
        style=library.part("report.css"),
        scripts=scripts,
        data=_script_json(data),
        patterns=pattern_elements(),
        seed=limits.seed,
        threads=limits.threads,
        time_limit="none" if limits.time_s is None else f"{limits.time_s:g} s",
        made=today(),
        machine=machine(),
        versions=versions(),
    )
    return text


def _title(found: Sequence[Material]) -> str:
    """What the page is called among others."""
    if len(found) == 1:
        return f"{found[0].report.instance}: {found[0].report.problem}"
    return f"{len(found)} instances: {', '.join(each.report.instance for each in found)}"


def _subject(place: int, found: Material, columns: Columns) -> dict[str, Any]:
    """What the template shows of one instance, and the ``charts`` that its script draws."""
    family, report, best = family_of(found.instance), found.report, found.best
    own = distinct(found.instance, report)
    breakdown = own[0].figures if own else None
    drawn = {
        "losses": losses_of(report) if any(each.loss for each in report.results) else None,
        "time": over_time(found.events, report),
    }
    if found.frontier is not None:
        [drawn["frontier"]] = heat(found.frontier)
    return {
        "id": f"i{place}",
        "report": report,
        "figures": facts(plain(family.describe(found.instance))),
        "warnings": family.warnings(found.instance),
        "answer": sentences.answer(report, best, breakdown),
        "no_frontier": found.no_frontier,
        "frontier_command": found.frontier_command,
        "rows": [cells(result, report.optimum is not None) for result in report.results],
        "remarks": [
            *(f"{result.method}: {result.reason}" for result in report.results if result.reason),
            *found.left_out,
        ],
        "best": best,
        "parts": _parts(found.instance, best, breakdown),
        "plan": "" if best is None else plan_file(best),
        "proved": sentences.proof_sentences(report),
        "certificate": sentences.certificate_sentence(found.proof, len(found.checks) > 1),
        "checks": found.checks,
        "commands": found.commands,
        "charts": {name: columns.of(chart) for name, chart in drawn.items() if chart is not None},
        "plans": list(plans_for_page(own, columns)),
    }


def _parts(instance: Any, best: Result | None, found: Breakdown | None) -> list[dict[str, Any]]:
    """The best plan with its figures as a table; of a problem without figures, its parts as tables and lines."""
    if best is None:
        return []
    if found is not None and found.rows:
        return [by_row(replace(best, of=instance), found)]
    return list(parts(with_names(best.plan or {}, names_of_nodes(instance))))


def _script_json(data: Any) -> str:
    """JSON that can stand inside a script element: nothing in it is markup, and all of it can be seen."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _printable_lines(value: Any) -> Any:
    r"""A text of which every line is printable; anything else, such as scripts and styles of ours, as it is.

    >>> _printable_lines("two\n\u202elines"), _printable_lines(2)
    ('two\n\\u202elines', 2)
    """
    return "\n".join(map(printable, value.split("\n"))) if type(value) is str else value


def page_path(out: str) -> Path:
    """Where the page goes; `UsageError` unless it is a file FILE.html."""
    if Path(out).suffix.lower() not in (".html", ".htm"):
        raise UsageError.at("--out", out, "a file FILE.html")
    return Path(out)
