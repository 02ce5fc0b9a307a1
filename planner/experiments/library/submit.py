"""What somebody has found of an instance of the library: verified, and kept if it is better than what is known."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from formulations.contract.family import Claim
from planner.experiments.library.entries import (
    CERTIFICATE,
    FOLDER,
    BestKnown,
    Origin,
    best_known,
    certificates,
    entries,
    write_known,
)
from planner.files.load import family_of
from planner.files.write import as_json
from planner.process.errors import CrosscheckError, UsageError
from planner.process.versions import machine, today
from planner.results.check import check, exceeds
from planner.solving.certify import verify
from planner.types import JsonObject
from solvers.outcome import OPTIMAL_GAP, Prover, relative_gap

#: A plan or a bound is better if it is by more than this, relatively.
BETTER = 1e-9
#: Larger certificates and plans are not kept: a method makes them again, and the repository stays small.
MOST_BYTES, MOST_OF_PLAN = 6_000, 250_000


@dataclass(frozen=True)
class Submission:
    """What is known now, what was known before, and what of it is new: ``plan``, ``bound`` or ``certificate``."""

    known: BestKnown
    before: BestKnown | None
    new: tuple[str, ...]


def submit(
    result: Mapping[str, Any], certificate: JsonObject | None = None, *, where: str = "RESULT", folder: Path = FOLDER
) -> Submission:
    """Verify a result and keep what is better than what is known.

    The plan goes through the problem's definition, whatever the result says of it. A bound counts if a certificate is
    accepted, or as the claim of the exact method that the result names, or of another method that proved it to a
    heuristic, with the versions it names; a certified bound replaces an equal one that is only claimed.

    ``result``: what ``planner solve --json`` prints. Its fingerprint says which instance it is of.
    ``certificate``: what ``planner certify`` writes.
    ``folder``: where ``best-known.jsonl`` is.
    `UsageError` if the result is of no instance of the library, breaks a rule, or is no better than what is known; if
    the certificate is not accepted; if one of them is too large to be kept, or the folder cannot be written.
    `CrosscheckError` if a bound lies above a verified plan: one of the two proofs is wrong.
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
    _expect_small(result["plan"], MOST_OF_PLAN, where, f"a plan of at most {MOST_OF_PLAN:,} bytes")
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
        is_greater = now.bound is None or bound > now.bound + BETTER * abs(now.bound)
        now = replace(now, bound=bound, proof=proof, proved_by=origin if is_greater else now.proved_by)
        new.append("bound" if is_greater else CERTIFICATE)
    if not new:
        rule = f"a plan below {now.objective:.12g} {now.unit}, or a bound above {now.bound}"
        raise UsageError.at(where, f"{verdict.objective:.12g}", rule)
    if now.bound is not None and exceeds(now.bound, now.objective):
        who = now.proved_by.method if now.proved_by else "nobody"
        raise CrosscheckError(
            f"{named.name}: the bound {now.bound:.12g} by {who} lies above the plan of {now.objective:.12g}"
            f" by {now.found_by.method}"
        )
    proofs = {**certificates(folder), **({named.name: certificate} if certificate is not None else {})}
    write_known({**known, named.name: now}, proofs, folder)
    return Submission(now, before, tuple(new))


def _bound(instance: Any, result: Mapping[str, Any], certificate: JsonObject | None) -> tuple[float | None, str | None]:
    """A bound, and who proved it."""
    if certificate is None:
        proof = result.get("proved_by")
        exact = {each.name for each in family_of(instance).methods if each.claim is Claim.EXACT}
        believed = result.get("claim") == Claim.EXACT.value or str(proof) in {Prover.BOUNDS, *exact}
        bound = _number(result.get("bound"))
        return (bound, str(proof)) if believed and bound is not None else (None, None)
    _expect_small(
        certificate,
        MOST_BYTES,
        "--certificate",
        f"at most {MOST_BYTES:,} bytes; the result's bound is a claim without it",
    )
    found = verify(instance, certificate)
    if not found.accepted:
        raise UsageError.at("--certificate", found.kind, f"a certificate that is accepted; {found.reason}")
    return found.bound, CERTIFICATE


def _expect_small(content: Any, most: int, where: str, rule: str) -> None:
    size = len(as_json(content))
    if size > most:
        raise UsageError.at(where, f"{size:,} bytes", rule)


def _number(value: Any) -> float | None:
    """A finite number of a file, or ``None``."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _is_better(bound: float, proof: str | None, known: BestKnown) -> bool:
    """A greater bound; and of a proved optimum the certificate, though checkers round: it needs less trust."""
    is_certified = proof == CERTIFICATE
    if known.is_optimal and is_certified != (known.proof == CERTIFICATE):
        gap = relative_gap(known.objective, bound)
        return is_certified and gap is not None and gap <= OPTIMAL_GAP
    if known.bound is None or bound > known.bound + BETTER * abs(known.bound):
        return True
    return is_certified and known.proof != CERTIFICATE and bound >= known.bound - BETTER * abs(known.bound)
