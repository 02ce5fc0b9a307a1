"""What somebody has found of an instance of the library: verified, and kept if it is better than what is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from formulations.contract.family import Claim
from planner.experiments.library.entries import FOLDER, BestKnown, Origin, best_known, entries, write_best_known
from planner.process.errors import CrosscheckError, UsageError
from planner.process.versions import machine, today
from planner.results.check import check, exceeds
from planner.solving.certify import verify
from planner.types import JsonObject
from solvers.outcome import Prover

#: A plan or a bound is better if it is by more than this, relatively.
BETTER = 1e-9
#: The proof of a bound that the checker has accepted.
CERTIFICATE = "certificate"


@dataclass(frozen=True)
class Submission:
    """What is known now, what was known before, and what of it is new: ``plan``, ``bound`` or both."""

    known: BestKnown
    before: BestKnown | None
    new: tuple[str, ...]


def submit(
    result: Mapping[str, Any],
    certificate: JsonObject | None = None,
    *,
    where: str = "RESULT",
    folder: Path = FOLDER,
) -> Submission:
    """Verify a result and keep what is better than what is known.

    The plan goes through the problem's definition, whatever the result says of it. A bound counts if a certificate is
    accepted, or as the claim of the exact method that the result names, with the versions it names; a certified bound
    replaces an equal one that is only claimed.

    Parameters
    ----------
    result
        What ``planner solve --json`` prints. Its fingerprint says which instance it is of.
    certificate
        What ``planner certify`` writes.
    folder
        Where ``best-known.jsonl`` is.

    Raises
    ------
    UsageError
        If the result is of no instance of the library, breaks a rule, or is no better than what is known; if the
        certificate is not accepted; if the folder cannot be written.
    CrosscheckError
        If a bound lies above a verified plan: one of the two proofs is wrong.
    """
    made_of = result.get("fingerprint")
    if not isinstance(made_of, Mapping) or "plan" not in result:
        raise UsageError.at(
            where, "an object", "a result with a fingerprint and a plan, as planner solve --json prints it"
        )
    digest, versions = made_of.get("instance"), made_of.get("versions")
    named = next((each for each in entries().values() if each.sha256 == digest), None)
    if named is None:
        raise UsageError.at(where, digest, "a result of an instance of the library (planner library get NAME)")
    instance = named.make()
    verdict = check(instance, result["plan"], where=where)
    if verdict.objective is None:
        raise UsageError.at(where, named.name, f"a plan that keeps the rules; {verdict.violations[0].message}")
    known = best_known(folder)
    before = known.get(named.name)
    origin = Origin(
        str(result.get("method")),
        _number(result.get("seconds")) or 0.0,
        today(),
        machine(),
        {str(name): str(version) for name, version in versions.items()} if isinstance(versions, Mapping) else {},
    )
    bound, proof = _bound(instance, result, certificate)
    now, new = before, []
    if now is None or verdict.objective < now.objective - BETTER * abs(now.objective):
        better = BestKnown(named.name, verdict.objective, verdict.unit, result["plan"], origin)
        now = better if now is None else replace(better, bound=now.bound, proof=now.proof, proved_by=now.proved_by)
        new.append("plan")
    if bound is not None and _is_better(bound, proof, now):
        now = replace(now, bound=bound, proof=proof, proved_by=origin)
        new.append("bound")
    if not new:
        rule = f"a plan below {now.objective:.12g} {now.unit}, or a bound above {now.bound}"
        raise UsageError.at(where, f"{verdict.objective:.12g}", rule)
    if now.bound is not None and exceeds(now.bound, now.objective):
        who = now.proved_by.method if now.proved_by else "nobody"
        raise CrosscheckError(
            f"{named.name}: the bound {now.bound:.12g} by {who} lies above the plan of {now.objective:.12g}"
            f" by {now.found_by.method}"
        )
    write_best_known({**known, named.name: now}, folder)
    return Submission(now, before, tuple(new))


def _bound(instance: Any, result: Mapping[str, Any], certificate: JsonObject | None) -> tuple[float | None, str | None]:
    """A bound, and who proved it."""
    if certificate is None:
        proof = result.get("proved_by")
        believed = result.get("claim") == Claim.EXACT.value or proof == Prover.BOUNDS
        bound = _number(result.get("bound"))
        return (bound, str(proof)) if believed and bound is not None else (None, None)
    found = verify(instance, certificate)
    if not found.accepted:
        raise UsageError.at("--certificate", found.kind, f"a certificate that is accepted; {found.reason}")
    return found.bound, CERTIFICATE


def _number(value: Any) -> float | None:
    """A finite number of a file, or ``None``."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _is_better(bound: float, proof: str | None, known: BestKnown) -> bool:
    if known.bound is None or bound > known.bound + BETTER * abs(known.bound):
        return True
    is_new_certificate = proof == CERTIFICATE != known.proof
    return is_new_certificate and bound >= known.bound - BETTER * abs(known.bound)
