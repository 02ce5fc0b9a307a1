"""Claims and what was found of them, on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.display.terminal import bold, console, table
from planner.reproduction.reproduce import Reproduction
from planner.results import texts

#: Longer texts may be cut short.
_WHOLE = 16
#: Longer lists are shown as first and last.
_SHOWN_CUTS = 9


def show_claims(found: Mapping[str, Any]) -> None:
    """Print the names of the claims and what they say."""
    rows = ((claim["name"], claim["paper"], claim["summary"]) for claim in found["claims"])
    console().print(table(("claim", "paper", "what is examined"), rows))


def show_reproduction(found: Reproduction) -> None:
    """Print the rows, and below them what follows."""
    out = console()
    evidence = found.evidence
    out.print(bold(found.claim.name), f" {found.claim.paper}: {found.claim.summary}")
    out.print(f"inputs: {evidence.inputs}")
    _show_rows(evidence.rows)
    if evidence.compared:
        out.print(f"{evidence.matched} of {evidence.compared} printed numbers are met")
    for sentence in evidence.notes:
        out.print(sentence)
    if evidence.tables is not None:
        out.print("printed tables:")
        _show_rows(evidence.tables.rows)
        for sentence in evidence.tables.notes:
            out.print(sentence)


def _show_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        made = table(map(str, rows[0]), (map(_cell, row.values()) for row in rows))
        for column, name in zip(
            made.columns, rows[0], strict=True
        ):  # with too many columns fractions lose digits; names, counts and exponents stay whole
            texts = [(row[name], _cell(row[name])) for row in rows]
            whole = [len(text) for value, text in texts if isinstance(value, str | int) or "e" in text]
            column.min_width = min(max(whole, default=1), _WHOLE)
        console().print(made)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and len(value) <= _SHOWN_CUTS:
        return ",".join(map(str, value))
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else texts.brief(value)
