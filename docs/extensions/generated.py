"""What pages get when the site is built: the methods there are now, the public names, and a plan drawn on the spot.

A page marks the place with a comment: ``methods`` on a problem's page becomes the table of that family's methods, ``all
methods`` those of all families, ``models`` the sentences of the declarative models of the page's example, or of a
smaller one (``models`` in its front matter), ``names of planner`` the reference of all public names of `planner`,
``leaderboard`` how methods do on the library (docs/leaderboard), ``benchmarks`` how they do on the catalog
(docs/benchmarks.csv), ``gallery of losses`` what mining found (docs/gallery), ``figure`` the pictures of the best plan
of the page's example, which its front matter names (``instance``, ``settings``), ``picture`` the first of them. Tables
of models in mathematics get the lines that build their rows (`model_lines`). Notebooks are copied here from their own
folder, because Sphinx reads none outside its own.
"""

from __future__ import annotations

import base64
import csv
import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import model_lines
from model_lines import example
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

METHODS, ALL_METHODS, FIGURE = "<!-- methods -->", "<!-- all methods -->", "<!-- figure -->"
PICTURE = "<!-- picture -->"
MODELS = "<!-- models -->"
NAMES = "<!-- names of planner -->"
LEADERBOARD, SCORES = "<!-- leaderboard -->", Path(__file__).resolve().parents[1] / "leaderboard"
BENCHMARKS, RUNS = "<!-- benchmarks -->", Path(__file__).resolve().parents[1] / "benchmarks.csv"
LOSSES, FOUND = "<!-- gallery of losses -->", Path(__file__).resolve().parents[1] / "gallery" / "make.py"
NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
_TIME_S, _WIDTH = 10.0, 800


def on_builder_inited(app: Sphinx) -> None:
    """Bring the notebooks, and the page that lists them; called by Sphinx before it looks for pages."""
    there = Path(app.srcdir) / NOTEBOOKS.name
    shutil.rmtree(there, ignore_errors=True)
    shutil.copytree(NOTEBOOKS, there, ignore=shutil.ignore_patterns("*.py", ".*"))


def on_source_read(_app: Sphinx, page: str, content: list[str]) -> None:
    """Fill in what is marked; called by Sphinx for every page, and ``content[0]`` is its text."""
    text, name = content[0], page.rpartition("/")[2]
    if METHODS in text:
        text = text.replace(METHODS, methods(name))
    if ALL_METHODS in text:
        text = text.replace(ALL_METHODS, all_methods())
    if MODELS in text:
        try:
            text = model_lines.linked(text, name)
        except ValueError as error:
            raise ExtensionError(str(error)) from error
        text = text.replace(MODELS, models(*example(text, "models")))
    if NAMES in text:
        text = text.replace(NAMES, names())
    if LEADERBOARD in text:
        text = text.replace(LEADERBOARD, leaderboard())
    if BENCHMARKS in text:
        text = text.replace(BENCHMARKS, benchmarks())
    if LOSSES in text:
        text = text.replace(LOSSES, runpy.run_path(str(FOUND))["sections"]())
    if FIGURE in text:
        text = text.replace(FIGURE, "\n\n".join(figures(*example(text))))
    if PICTURE in text:
        text = text.replace(PICTURE, figures(*example(text))[0])
    content[0] = text


def models(instance: str, settings: dict[str, Any]) -> str:
    """A section for each declarative model of an instance: what its variables and constraints say, and their lines."""
    sections = []
    for built in model_lines.models(instance, settings):
        shown = f"The example is too large for it: {_cell(built.refusal)}."
        if not built.refusal:
            rows = [
                f"| `{group.name}` | {group.count} {group.kind}{'s' * (group.count != 1)} | {_cell(group.says)} "
                f"| {_cell(group.source)} | {model_lines.links(built.lines[group.kind, group.name])} |"
                for group in built.groups
            ]
            shown = "\n".join(["| group | of the example | says | source | line |", "|---|---|---|---|---|", *rows])
        sections.append(f"### `{built.method.name}`\n\n{shown}")
    said = "What `planner model` prints of the example's models: each group of variables and constraints in a sentence."
    return "\n\n".join(["## Models", said, *sections]) if sections else ""


def _cell(text: str) -> str:
    """Text in a cell of a table, as it is."""
    for mark in "\\*_|[]<>`$":
        text = text.replace(mark, f"\\{mark}")
    return text


def methods(name: str) -> str:
    """The table of a family's methods: claim and source, as ``planner list`` has them."""
    from formulations import FAMILIES

    family = next(family for family in FAMILIES if family.name == name)
    rows = [f"| `{method.name}` | {method.claim} | {method.source} |" for method in family.methods]
    return "\n".join(["| method | claim | source |", "|---|---|---|", *rows])


def all_methods() -> str:
    """A section for each family: its methods, and the page that says what the problem is."""
    from formulations import FAMILIES

    return "\n\n".join(
        f"## [{family.name}](problems/{family.name}.md)\n\n{methods(family.name)}" for family in FAMILIES
    )


def names() -> str:
    """The reference of the public names of `planner`, functions first; they are imported when they are first used."""
    import planner

    found = {name: getattr(planner, name) for name in planner.__all__}
    classes = [f".. autoclass:: planner.{name}\n   :members:" for name, it in found.items() if isinstance(it, type)]
    functions = [
        f".. autofunction:: planner.{name}" for name, it in found.items() if callable(it) and not isinstance(it, type)
    ]
    return "\n".join(["```{eval-rst}", *functions, *classes, "```"])


def leaderboard() -> str:
    """A section for each problem: its methods beside the best known, their profiles, and what explains most losses."""
    from planner.display.library import loss_profile, standings_table
    from planner.display.populations import format_explained

    sections = []
    for problem, found in scores().items():
        chart, by = loss_profile(found, problem), found.by(problem)
        shown = [] if chart is None else _themed(chart)
        most = [_cell(f"What explains most: {format_explained(by[0])}.")] if by else []
        measured = (
            f"Measured {found.date} on {found.machine} ({found.calibration_s:.3g} CPU s for the calibration run), "
            f"at most {found.time_limit_s:g} s an instance."
        )
        head = f"## [{problem}](problems/{problem}.md)"
        sections += [head, standings_table(found, "md", problem), *shown, *most, measured]
    return "\n\n".join(sections)


def benchmarks() -> str:
    """A row for each instance of the catalog: who proved it, in seconds, and how far off the other methods are."""
    runs: dict[tuple[str, str], list[dict[str, str]]] = {}
    for run in csv.DictReader(RUNS.read_text().splitlines()):
        runs.setdefault((run["instance"], run["settings"]), []).append(run)
    rows = ["| instance | least objective | proved by (seconds) | others (loss) |", "|---|---|---|---|"]
    for (instance, settings), own in runs.items():
        proved = [f"{each['method']} ({each['seconds']})" for each in own if each["status"].startswith("optimal")]
        others = [f"{each['method']} ({each['loss']})" for each in own if not each["status"].startswith("optimal")]
        least = min((each["objective"] for each in own if each["objective"] != "-"), key=float, default="-")
        cells = (f"{instance} {settings}".rstrip(), least, ", ".join(proved), ", ".join(others))
        rows.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(rows)


def scores() -> dict[str, Any]:
    """The scores that docs/leaderboard/make.py wrote, by problem, beside what is best known now."""
    from formulations import FAMILIES
    from planner.experiments.library.score import Score

    files = {family.name: SCORES / f"{family.name}.json" for family in FAMILIES}
    return {name: Score.from_json(json.loads(file.read_text())) for name, file in files.items() if file.exists()}


def figures(instance: str, settings: dict[str, Any]) -> list[str]:
    """Pictures of the best plan found for an instance, as parts of the page."""
    import planner
    from planner.display.plots.panels import panels
    from planner.files.load import family_of

    loaded = planner.load(instance, **settings)
    result = planner.solve(loaded, limits=planner.Limits(time_s=_TIME_S))
    family = family_of(loaded)
    if result.plan is None:
        raise ValueError(f"{instance} {settings} has no plan to draw")
    drawn = panels(loaded, family.plan_from_json(loaded, result.plan))
    if not drawn:
        raise ValueError(f"{family.name} has no pictures")
    return ["\n\n".join(_themed(chart)) for chart in drawn]


def _themed(chart: Any) -> list[str]:
    """A picture for readers of each theme."""
    from planner.display.palette import DARK, LIGHT
    from planner.display.plots.files import Sheet

    return [
        _figure(chart.title, Sheet([chart], width=_WIDTH, theme=theme).svg(), theme.name) for theme in (LIGHT, DARK)
    ]


def _figure(title: str, picture: str, theme: str) -> str:
    """A picture that is shown to readers of one theme, ``light`` or ``dark``."""
    data = base64.b64encode(picture.encode()).decode()
    return f"```{{figure}} data:image/svg+xml;base64,{data}\n:alt: {title}\n:figclass: only-{theme}\n\n{title}\n```"


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to Sphinx; called by it."""
    app.connect("builder-inited", on_builder_inited)
    app.connect("source-read", on_source_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
