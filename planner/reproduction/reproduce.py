"""Examine a claim of a paper: rows of what is printed there, what is found here, and the exact optimum."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from planner.display import tables
from planner.display.terminal import bold, console
from planner.files.settings import parse
from planner.process.errors import UsageError
from planner.reproduction import CLAIMS, Claim, Evidence
from planner.reproduction.claim import Note
from planner.solving.solve import silent

#: Longer texts may be cut short.
_WHOLE = 16
#: Longer lists are shown as first and last.
_SHOWN_CUTS = 9


@dataclass(frozen=True)
class Reproduction:
    """A claim, what was found, and how many seconds that took."""

    claim: Claim
    evidence: Evidence
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner reproduce --json`` prints."""
        found = self.evidence
        return {
            "claim": self.claim.name,
            "paper": self.claim.paper,
            "inputs": found.inputs,
            "compared": found.compared,
            "matched": found.matched,
            "rows": [dict(row) for row in found.rows],
            "notes": list(found.notes),
            "tables": None if found.tables is None else asdict(found.tables),
            "seconds": self.seconds,
            **found.figures,
        }


def reproduce(
    name: str, *, inputs: str | None = None, certify: str | None = None, note: Note = silent, **options: Any
) -> Reproduction:
    """Examine a claim.

    Parameters
    ----------
    name
        As ``planner reproduce --list`` names it.
    inputs
        Folder of published inputs; default: the environment variable ``PLANNER_PUBLISHED``. Without published inputs
        the catalog's analytic instances stand in, and the evidence says so.
    certify
        Folder for certificates of the optima that the claim's rows have; only of a claim that ``certifies``.
    note
        Called with a line about the progress.
    **options
        The claim's own options, as text or values.

    Raises
    ------
    UsageError
        If there is no such claim or option, or the folder given lacks what the claim needs.
    """
    claim = next((claim for claim in CLAIMS if claim.name == name), None)
    if claim is None:
        raise UsageError.unknown("CLAIM", name, [claim.name for claim in CLAIMS])
    given = parse(claim.options, options, claim.name)
    more = {key.replace("-", "_"): value for key, value in given.items()}
    if certify is not None:
        if not claim.certifies:
            able = ", ".join(each.name for each in CLAIMS if each.certifies)
            raise UsageError.at("--certify", certify, f"none: {claim.name} certifies no optima ({able} do)")
        more["certify"] = certify
    started = time.perf_counter()
    evidence = claim.run(inputs, note, **more)
    return Reproduction(claim, evidence, time.perf_counter() - started)


def claims_listing() -> dict[str, Any]:
    """The object that ``planner reproduce --list --json`` prints."""
    return {
        "claims": [
            {
                "name": claim.name,
                "paper": claim.paper,
                "summary": claim.summary,
                "options": [option.name for option in claim.options],
            }
            for claim in CLAIMS
        ]
    }


def show_claims(found: Mapping[str, Any]) -> None:
    """Print the names of the claims and what they say."""
    from rich.table import Table

    table = Table("claim", "paper", "what is examined", box=None)
    for claim in found["claims"]:
        table.add_row(claim["name"], claim["paper"], claim["summary"])
    console().print(table)


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
    """Print a table whose columns are the keys of the rows."""
    from rich.table import Table

    if rows:
        table = Table(box=None)
        for name in rows[0]:  # with too many columns fractions lose digits; names, counts and exponents stay whole
            texts = [(row[name], _cell(row[name])) for row in rows]
            whole = [len(text) for value, text in texts if isinstance(value, str | int) or "e" in text]
            table.add_column(str(name), min_width=min(max(whole, default=1), _WHOLE))
        for row in rows:
            table.add_row(*(_cell(value) for value in row.values()))
        console().print(table)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and len(value) <= _SHOWN_CUTS:
        return ",".join(map(str, value))
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else tables.brief(value)
