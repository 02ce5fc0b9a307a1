"""Examine a claim of a paper: rows of what is printed there, what is found here, and the exact optimum."""

import time
from dataclasses import asdict, dataclass
from typing import Any

from planner.files.settings import parse
from planner.process.errors import UsageError
from planner.reproduction import CLAIMS, Claim, Evidence
from planner.reproduction.claim import Note
from planner.reproduction.verdicts import CPU_S, Verdict, verdict_of
from planner.solving.solve import silent


@dataclass(frozen=True)
class Reproduction:
    """A claim, what was found, and how many seconds that took."""

    claim: Claim
    evidence: Evidence
    seconds: float

    @property
    def verdict(self) -> Verdict:
        """What the findings say of the claim."""
        return verdict_of(self.claim.name)

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
            "verdict": self.verdict.to_json(),
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
                "verdict": verdict_of(claim.name).to_json(),
                "cpu_s": CPU_S.get(claim.name),
            }
            for claim in CLAIMS
        ]
    }
