"""Write the report: ``python docs/paper/make.py paper.html`` or ``python docs/paper/make.py paper.pdf``.

``paper.md`` has the text, in which ``<<name>>`` is filled in from the records of the repository: the verdicts, the
table of the benchmarks, the library and its leaderboard, the gallery of losses. No number is typed into it. It needs
``pip install '.[docs]'``, and for a PDF a Chromium (``chromium`` or ``google-chrome`` on the PATH), which prints it.
"""

from __future__ import annotations

import base64
import csv
import html
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from docutils.utils.math.latex2mathml import tex2mathml
from markdown_it import MarkdownIt

from formulations import FAMILIES
from formulations.contract.family import Claim
from planner.display.library import loss_profile
from planner.display.palette import LIGHT
from planner.display.paper_tables import format_table
from planner.display.plots import Chart, Sheet, ranked
from planner.experiments.library.entries import CERTIFICATE, VERSION, best_known, entries
from planner.experiments.library.score import Score
from planner.process.versions import versions
from planner.reproduction.verdicts import KINDS, VERDICTS
from planner.results.texts import percent

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent
_WIDTH = 680  # pixels of the text
#: How the page looks, printed and on a screen.
_STYLE = """
@page { size: A4; margin: 18mm 17mm }
body { font: 10.5pt/1.42 "Libertinus Serif", Georgia, serif; max-width: 680px; margin: auto; color: #111 }
h1 { font-size: 20pt; line-height: 1.15; margin-bottom: 2pt } h2 { font-size: 13pt } h3 { font-size: 11pt }
h1 + p { color: #555 } h2, h3 { break-after: avoid } h3 { margin-bottom: 0 }
table { border-collapse: collapse; font-size: 8.5pt; width: 100%; margin: 8pt 0 }
th { border-bottom: 1px solid #111; text-align: left; vertical-align: bottom } td { vertical-align: top }
th, td { padding: 1.5pt 5pt 1.5pt 0 } tr { break-inside: avoid } code { font-size: 90% }
figure { margin: 10pt 0; break-inside: avoid } figcaption { font-size: 9pt; color: #333 }
figure img { width: 100% } math[display=block] { margin: 4pt 0; font-size: 92%; break-inside: avoid }
"""


def fields() -> dict[str, Callable[[], str]]:
    """What each ``<<name>>`` of the text stands for."""
    known, methods = best_known(), [method for family in FAMILIES for method in family.methods]
    verdicts = Counter(each.kind for each in VERDICTS)
    files = {family.name: DOCS / "leaderboard" / f"{family.name}.json" for family in FAMILIES}
    files = {problem: file for problem, file in files.items() if file.exists()}  # a new problem has no scores yet
    scores = {problem: Score.from_json(json.loads(file.read_text())) for problem, file in files.items()}
    first = next(iter(scores.values()))
    numbers = {
        "version": versions()["dnn-planner"],
        "date": max(found.date for found in scores.values()),
        "problems": len(FAMILIES),
        "methods": len(methods),
        "exact": sum(each.claim is Claim.EXACT for each in methods),
        "models": sum(each.build is not None for each in methods),
        "claims": len(VERDICTS),
        **{kind.replace(" ", "_"): verdicts[kind] for kind in KINDS},
        "instances": len(entries()),
        "plans": len(known),
        "proved": sum(each.is_optimal for each in known.values()),
        "certified": sum(each.proof == CERTIFICATE for each in known.values()),
        "library": VERSION,
        "score_limit": f"{first.time_limit_s:g} s",
        "machine": first.machine,
        "calibration": f"{first.calibration_s:.2g}",
        "bench_limit": _bench_limit(),
    }
    largest = max(scores.values(), key=lambda found: len(found.rows))
    return {
        **{name: (lambda value=value: html.escape(str(value))) for name, value in numbers.items()},
        "problem_sections": lambda: "\n\n".join(map(_problem, (family.name for family in FAMILIES))),
        "figure_verdicts": lambda: _figure(_verdicts(verdicts)),
        "table_verdicts": lambda: format_table(
            "md", ["claim", "verdict", "effect"], [[f"{v.section}: {v.claim}", v.says, v.found] for v in VERDICTS]
        ),
        "table_models": lambda: format_table("md", *_models()),
        "table_library": lambda: format_table("md", *_library()),
        "table_scores": lambda: format_table("md", *_standings(scores)),
        "figure_profile": lambda: _figure(_profile(largest)),
        "figure_leaders": lambda: _figure(_leaders(scores)),
        "table_mined": lambda: format_table("md", *_mined()),
    }


def _problem(name: str) -> str:
    """The title, the first paragraph and the mathematics of a problem's page."""
    text = (DOCS / "problems" / f"{name}.md").read_text()
    title, _, rest = text.partition("\n# ")[2].partition("\n\n")
    first = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", rest.partition("\n\n")[0])
    mathematics = re.search(r"\$\$.*?\$\$", rest, re.DOTALL)
    if mathematics is None:
        raise ValueError(f"docs/problems/{name}.md has no mathematics")
    return f"### {title}\n\n{first}\n\n{mathematics.group()}"


def _verdicts(counts: Counter[str]) -> Chart:
    rows = [
        {"name": says, "value": counts[kind], "said": str(counts[kind]), "tooltip": says, "colour": 0}
        for kind, says in KINDS.items()
    ]
    return ranked(rows, "claims", f"What became of {len(VERDICTS)} claims")


def _profile(found: Score) -> Chart:
    chart = loss_profile(found, *found.methods)
    assert chart is not None
    return chart


def _leaders(scores: dict[str, Score]) -> Chart:
    """Of each problem the first of the methods that have most plans as good as the best known."""
    rows = []
    for problem, found in scores.items():
        (leader, _), each = max(found.standings().items(), key=lambda item: item[1].best)
        share = 100 * each.best / each.instances
        rows.append(
            {"name": f"{problem}: {leader}", "value": share, "said": f"{share:.0f} %", "tooltip": "", "colour": 0}
        )
    title = "Instances on which the best method of each problem finds the best plan that is known"
    return ranked(sorted(rows, key=lambda row: -row["value"]), "instances, %", title)


def _mined() -> tuple[list[str], list[list[Any]]]:
    found = json.loads((DOCS / "gallery" / "rows.json").read_text()).values()
    lost = sorted((row for row in found if row["worst"]), key=lambda row: -row["worst"])
    return ["heuristic", "worst loss found"], [[row["title"], percent(row["worst"])] for row in lost]


def _bench() -> Iterator[dict[str, str]]:
    """The rows of docs/benchmarks.csv, which ``planner bench`` wrote."""
    return csv.DictReader((DOCS / "benchmarks.csv").read_text().splitlines())


def _bench_limit() -> str:
    found = re.search(r"time limit ([\d.]+ s)", (DOCS / "benchmarks.md").read_text())
    if found is None:
        raise ValueError("docs/benchmarks.md names no time limit")
    return found.group(1)


def _models() -> tuple[list[str], list[list[Any]]]:
    """By model: its rows, those it proved by its own means, their median seconds, and the worst gap of the others."""
    models = {method.name for family in FAMILIES for method in family.methods if method.build is not None}
    own: dict[str, list[dict[str, str]]] = {}
    for row in _bench():
        if row["method"] in models:
            own.setdefault(row["method"], []).append(row)
    rows = []
    for name, runs in sorted(own.items(), key=lambda each: -len(each[1])):
        proved = [run for run in runs if run["status"].startswith("optimal by solver")]
        gaps = [float(run["gap"].split()[0]) for run in runs if run not in proved and run["gap"] != "-"]
        median = f"{statistics.median(float(run['seconds']) for run in proved):.2g}" if proved else None
        rows.append([name, len(runs), len(proved), median, f"{max(gaps):.3g}" if gaps else None])
    return ["model", "instances", "proved by its solver", "median seconds of these", "worst gap of others, %"], rows


def _library() -> tuple[list[str], list[list[Any]]]:
    known, rows = best_known(), []
    for family in FAMILIES:
        own = [each.name for each in entries().values() if each.problem == family.name]
        best = [known[name] for name in own if name in known]
        gaps = [each.gap for each in best if not each.is_optimal and each.gap is not None]
        proved = sum(each.is_optimal for each in best)
        certified = sum(each.proof == CERTIFICATE for each in best)
        rows.append([family.name, len(own), proved, certified, len(own) - proved, percent(max(gaps, default=None))])
    return ["problem", "instances", "proved", "with a certificate", "open", "worst gap of these"], rows


def _standings(scores: dict[str, Score]) -> tuple[list[str], list[list[Any]]]:
    rows = []
    for problem, found in scores.items():
        for (method, _), each in sorted(found.standings().items(), key=lambda item: -item[1].best):
            losses = [percent(share) for share in (each.mean_loss, each.worst_loss, each.primal_integral)]
            rows.append([problem, method, each.instances, each.plans, each.optimal, each.best, *losses])
    heads = ["problem", "method", "instances", "plans", "optimal", "best", "mean loss", "worst loss", "primal integral"]
    return heads, rows


_FIGURES: list[str] = []


def _figure(chart: Chart) -> str:
    """A picture, in the place that `page` fills."""
    data = base64.b64encode(Sheet([chart], width=_WIDTH, theme=LIGHT).svg().encode()).decode()
    number = len(_FIGURES) + 1
    _FIGURES.append(
        f'<figure><img alt="{html.escape(chart.title)}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>Figure {number}: {html.escape(chart.title)}.</figcaption></figure>"
    )
    return f"<!--figure {number}-->"


def page(text: str) -> str:
    """The report as one page: the text, filled in, with its formulas as MathML."""
    _FIGURES.clear()
    known = fields()
    unused = set(known) - set(re.findall(r"<<(\w+)>>", text))
    if unused:
        raise ValueError(f"paper.md does not say {', '.join(sorted(unused))}")
    filled = re.sub(r"<<(\w+)>>", lambda found: known[found.group(1)](), text)
    formulas: list[str] = []

    def keep(found: re.Match[str]) -> str:
        block = found.group(1)
        formulas.append(tex2mathml(block or found.group(2), as_block=block is not None))
        return f"\x02{len(formulas)}\x02"

    filled = re.sub(r"\$\$(.*?)\$\$|(?<![\\$])\$([^$\n]+)\$", keep, filled, flags=re.DOTALL)
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(filled)
    body = re.sub(r"\x02(\d+)\x02", lambda found: formulas[int(found.group(1)) - 1], body)
    body = re.sub(r"<!--figure (\d+)-->", lambda found: _FIGURES[int(found.group(1)) - 1], body)
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Report</title><style>{_STYLE}</style>{body}'


def main(out: str) -> None:
    """Write the report as HTML or, by Chromium, as PDF."""
    content, target = page((HERE / "paper.md").read_text()), Path(out)
    if target.suffix == ".html":
        target.write_text(content)
        return
    browser = next((found for name in ("chromium", "google-chrome") if (found := shutil.which(name))), None)
    if target.suffix != ".pdf" or browser is None:
        sys.exit(f"{out}: expected .html, or .pdf and a Chromium on the PATH (chromium, google-chrome)")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "paper.html"
        source.write_text(content)
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
        options += ["--no-pdf-header-footer", f"--print-to-pdf={target.resolve()}"]
        subprocess.run([browser, *options, source.as_uri()], check=True, capture_output=True, timeout=300)


if __name__ == "__main__":
    main(sys.argv[1])
