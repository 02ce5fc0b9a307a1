"""Measurements on a terminal and as the markdown table of a folder; two folders compared."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.display.tables import certificate_words
from planner.display.terminal import console, printable, table
from planner.experiments.bench.measure import MeasuredRow
from planner.experiments.bench.suites import RELEASED
from planner.files.write import as_json
from planner.results.optimality_loss import any_optimal
from planner.results.texts import format_loss, number, percent


def format_losses(rows: Sequence[MeasuredRow]) -> list[str]:
    """The losses of rows as a table shows them, "optimal" among them."""
    proved = {as_json([row.case, row.settings]) for row in rows if any_optimal([row.loss])}
    return [format_loss(row.loss, as_json([row.case, row.settings]) in proved) for row in rows]


def show_rows(rows: Sequence[MeasuredRow]) -> None:
    """Print the table."""
    referred, certified = any(row.reference_s for row in rows), any(row.certificate for row in rows)
    heads = ["instance", "settings", "method", "loss", "gap", "objective", "bound", "seconds", "status"]
    heads += ["reference s", "speed-up"] * referred + ["certificate"] * certified
    cells = []
    for row, loss in zip(rows, format_losses(rows), strict=True):
        settings = " ".join(
            f"{name}={value}" for name, value in row.settings.items() if (name, value) not in RELEASED.items()
        )
        figures = [loss, percent(row.gap), number(row.objective), number(row.bound), f"{row.seconds:.4g}"]
        more = [number(row.reference_s), "-" if row.speedup is None else f"{row.speedup:.0f} x"] if referred else []
        cells.append([row.instance, settings, row.method, *figures, row.status, *more, *_certificate(row, certified)])
    out = console()
    out.print(table(heads, cells))
    for line in why_no_plan(rows):
        out.print(line)


def _certificate(row: MeasuredRow, asked: bool) -> list[str]:
    return [certificate_words(row.certificate) if row.certificate else "-"] if asked else []


def why_no_plan(rows: Iterable[MeasuredRow]) -> list[str]:
    """Why rows have no plan, a line for each."""
    return [f"{row.instance} {row.method}: {row.reason}" for row in rows if row.reason]


#: Characters with a meaning of their own in a cell of a markdown table.
_MARKDOWN = re.compile(r"[\\|`*\[\]<>&$]|\b_|_\b")


def markdown(rows: Sequence[MeasuredRow]) -> str:
    """One table: a line for each row, the dates, the machines and the solvers they come from below it."""
    certified = any(row.certificate for row in rows)
    head = ["instance", "settings", "method", "seed", "loss", "gap", "objective", "bound", "seconds", "status"]
    head += ["certificate"] * certified
    lines = [markdown_line(head), markdown_line(["---"] * len(head))]
    for row, loss in zip(rows, format_losses(rows), strict=True):
        settings = " ".join(f"{name}={value}" for name, value in row.settings.items())
        figures = [loss, percent(row.gap), number(row.objective), number(row.bound), f"{row.seconds:.3g}"]
        status = row.status if row.stop == "proved" else f"{row.status} ({row.stop})"
        if row.stop == "proved" and row.proved_by:
            status += f" by {row.proved_by}"
        figures += [status, *_certificate(row, certified)]
        lines.append(markdown_line([row.instance, settings, row.method, str(row.seed), *figures]))
    reasons = [f"- {_cell(line)}" for line in why_no_plan(rows)]
    return "\n".join([*lines, "", *reasons, *([""] if reasons else []), *_provenance(rows), ""])


def show_comparison(found: Mapping[str, Any]) -> None:
    """Print the rows that changed, and how many did not."""
    out, changed = console(), []
    for row in found["rows"]:
        if row["verdict"] != "same":
            settings = " ".join(f"{name}={value}" for name, value in row["settings"].items())
            objective = " -> ".join(map(number, row["objective"]))
            seconds = " -> ".join(f"{value:.3g}" for value in row["seconds"])
            speedup = "-" if row["speedup"] is None else f"{row['speedup']:.2f}"
            cells = (row["case"], settings, row["method"], str(row["seed"]), objective, seconds, speedup)
            changed.append((*cells, row["verdict"]))
    heads = ("instance", "settings", "method", "seed", "objective", "seconds", "speed-up", "verdict")
    out.print(table(heads, changed))
    counts = ", ".join(f"{count} {verdict}" for verdict, count in found["counts"].items()) or "no row in both"
    mean = "" if found["mean_speedup"] is None else f"; {found['mean_speedup']:.2f} times faster on geometric average"
    alone = f"; {len(found['only_first'])} only in the first, {len(found['only_second'])} only in the second"
    out.print(counts + mean + alone)


def markdown_line(cells: Iterable[str]) -> str:
    """A line of a table in Markdown, which shows its cells as they are."""
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(text: str) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", printable(text))


def _provenance(rows: Sequence[MeasuredRow]) -> list[str]:
    """Where the figures come from, once for each date, machine and set of versions."""
    return list(
        dict.fromkeys(
            f"Measured {row.date} on {row.machine}; "
            + ", ".join(f"{name} {version}" for name, version in (row.versions or {}).items())
            + f"; time limit {'none' if row.time_limit_s is None else f'{row.time_limit_s:g} s'}, "
            f"{row.threads} thread(s)."
            for row in rows
        )
    )
