"""The answer of the page in sentences: what is proved, what heuristics lose, the bottleneck, the fullest device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from formulations.contract.family import Claim
from formulations.figures.plan_figures import Breakdown
from instances.units import size
from planner.results.result import Result
from planner.results.texts import format_loss
from planner.solving.certify import Certification
from planner.solving.compare import Report, optimum
from solvers.outcome import Status

#: More heuristics than this are counted.
_NAMED = 4


def answer(report: Report, best: Result | None, found: Breakdown | None) -> list[str]:
    """What is known now, in a few sentences."""
    return [verdict(report, best), *_heuristics(report), *([] if found is None else _limits(found))]


def verdict(report: Report, best: Result | None) -> str:
    """What is proved, in one sentence."""
    if any(result.status is Status.INFEASIBLE for result in report.results):
        return "Proved: no plan is feasible."
    if best is None:
        return "No plan was found, and nothing was proved."
    value = _amount(best.objective, best.unit)
    if optimum(report.results) is not None:
        return f"Proved optimal: {value}."
    bounds = [result.bound for result in report.results if result.bound is not None]
    if not bounds:
        return f"The best plan found takes {value}; no bound is known."
    return f"The best plan found takes {value}; no plan takes less than {_amount(max(bounds), best.unit)}."


def _amount(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.6g} {unit}".rstrip()


def _heuristics(report: Report) -> list[str]:
    """By how much the plans of heuristics are worse, the paper's first: families list their methods in this order."""
    known = [r for r in report.results if r.claim == Claim.HEURISTIC and r.loss is not None]
    if not known:
        return []
    losses = [(_loss(result, report.optimum is not None), result.method) for result in known[:_NAMED]]
    named = [
        _sentence([method for _, method in same], loss) for loss, same in groupby(losses, key=lambda each: each[0])
    ]
    more = f", and {len(known) - _NAMED} more are below" if len(known) > _NAMED else ""
    return [f"Of the heuristics, {', '.join(named)}{more}."]


def _loss(result: Result, is_proved: bool) -> str:
    return format_loss(result.loss, is_proved).replace("<=", "at most")


def _sentence(methods: Sequence[str], loss: str) -> str:
    """What methods lose that all lose as much.

    >>> _sentence(["a", "b", "c"], "optimal"), _sentence(["a"], "2 %"), _sentence(["a", "b"], "2 %")
    ('a, b and c are optimal', 'a loses 2 %', 'a and b lose 2 % each')
    """
    *others, last = methods
    who = f"{', '.join(others)} and {last}" if others else last
    if loss == "optimal":
        return f"{who} {'are' if others else 'is'} optimal"
    return f"{who} lose {loss} each" if others else f"{who} loses {loss}"


def _limits(found: Breakdown) -> list[str]:
    """The bottleneck, and the device that is fullest."""
    said = [f"The bottleneck is {found.figures['bottleneck']}."] if "bottleneck" in found.figures else []
    full = [
        (row["memory_bytes"] / (row["memory_bytes"] + row["slack_bytes"]), place, row)
        for place, row in enumerate(_memory_rows(found))
        if row["memory_bytes"] + row["slack_bytes"] > 0
    ]
    if full:
        share, place, row = max(full, key=lambda each: each[0])
        is_stage = bool(found.rows) and "slack_bytes" in found.rows[0]
        who = f"Stage {place} is the fullest: it" if is_stage else "The plan"
        limit = size(row["memory_bytes"] + row["slack_bytes"])
        said.append(f"{who} holds {size(row['memory_bytes'])} of {limit} ({100 * share:.3g} %).")
    return said


def _memory_rows(found: Breakdown) -> Sequence[Mapping[str, Any]]:
    """What has both memory and slack: stages, else the whole plan."""
    candidates = found.rows or (found.figures,)
    held = [row for row in candidates if "memory_bytes" in row and "slack_bytes" in row]
    whole = found.figures if "memory_bytes" in found.figures and "slack_bytes" in found.figures else None
    return held or ([] if whole is None else [whole])


def certificate_sentence(proof: Certification | None, is_checked: bool = True) -> str:
    """What the page says of the certificate; ``is_checked``: there is a command that checks it."""
    if proof is None:
        return "Nothing was proved, so there is nothing to certify."
    if proof.content is None:
        return f"Uncertified: {proof.uncertified}."
    figures: Mapping[str, Any] = proof.result.certificate or {}
    return (
        f"The proof of {proof.result.method} has a certificate of the kind {figures['kind']}, "
        f"{size(figures['bytes'])}, made in {figures['seconds']:.2g} s. "
        + ("These commands write it, and check it with exact numbers and no solver:" if is_checked else "To write it:")
    )


def proof_sentences(report: Report) -> list[str]:
    """Who proved what, a sentence for each proof."""
    return [
        f"{result.method} proved {'that there is no plan' if result.status is Status.INFEASIBLE else 'the optimum'}"
        f" by {result.proved_by or 'search'} in {result.seconds:.3g} s."
        for result in report.results
        if result.stop.value == "proved"
    ]
