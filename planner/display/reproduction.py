"""Claims and what was found of them, on a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from planner.display.terminal import bold, console, table
from planner.reproduction.reproduce import Reproduction
from planner.reproduction.verdicts import CPU_S, verdict_of
from planner.results import texts

#: Longer texts may be cut short.
_WHOLE = 16
#: Longer lists are shown as first and last.
_SHOWN_CUTS = 9
#: More rows are shown with ``--full``.
_SHOWN_ROWS = 10


def show_claims(found: Mapping[str, Any]) -> None:
    """Print what the papers claim, what became of it, and the command that examines it."""
    rows = []
    for claim in found["claims"]:
        verdict = verdict_of(claim["name"])
        takes = "-" if claim["name"] not in CPU_S else "over 20" if claim["cpu_s"] is None else str(claim["cpu_s"])
        rows.append((f"{claim['paper']}: {verdict.claim}", verdict.says, verdict.found, takes, verdict.command))
    made = table(("claim", "verdict", "effect", "CPU s", "command"), rows)
    made.columns[1].no_wrap = True
    made.columns[3].no_wrap = True
    made.columns[4].min_width = max(len(f"planner reproduce {claim['name']}") for claim in found["claims"])
    console().print(made)


def show_reproduction(found: Reproduction, full: bool = False) -> None:
    """Print the verdict of the findings, what this run has found (all its rows if ``full``), and what follows."""
    out = console()
    evidence = found.evidence
    out.print(bold(f"{found.verdict.says}:"), f"{found.verdict.claim} ({found.claim.paper})")
    out.print(f"finding: {found.verdict.found}")
    out.print(f"this run: {found.claim.summary}")
    out.print(f"inputs: {evidence.inputs}")
    _show_rows(evidence.rows, full)
    if evidence.compared:
        out.print(f"{evidence.matched} of {evidence.compared} printed numbers are met")
    for sentence in evidence.notes:
        out.print(sentence)
    if evidence.tables is not None:
        out.print("printed tables:")
        _show_rows(evidence.tables.rows, full)
        for sentence in evidence.tables.notes:
            out.print(sentence)


def _show_rows(rows: Sequence[Mapping[str, Any]], full: bool) -> None:
    if rows:
        shown = rows if full else rows[:_SHOWN_ROWS]
        made = table(map(str, rows[0]), (map(_cell, row.values()) for row in shown))
        for column, name in zip(
            made.columns, rows[0], strict=True
        ):  # with too many columns fractions lose digits; names, counts and exponents stay whole
            texts = [(row[name], _cell(row[name])) for row in shown]
            whole = [len(text) for value, text in texts if isinstance(value, str | int) or "e" in text]
            column.min_width = min(max(whole, default=1), _WHOLE)
        console().print(made)
        if len(shown) < len(rows):
            console().print(f"{len(shown)} of {len(rows)} rows; all with --full")


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and len(value) <= _SHOWN_CUTS:
        return ",".join(map(str, value))
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else texts.brief(value)
