"""The answer of the page in sentences: what is proved, what heuristics lose, the bottleneck, the fullest device."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from formulations.contract.family import Claim
from formulations.contract.figures.plan_figures import Breakdown
from instances.units import size
from planner.results.result import Result
from planner.results.sentences import both_clocks, rate, shape
from planner.results.texts import format_loss
from planner.solving.certify import Certification
from planner.solving.compare import Report, optimum
from solvers.outcome import Status

#: More heuristics than this are counted.
_NAMED = 4


def answer(report: Report, best: Result | None, found: Breakdown | None) -> list[str]:
    """What is known now, in a few sentences."""
    said = [verdict(report, best, found), *_heuristics(report)]
    if best is not None:
        clock = best.clock()
        said.append(f"Minimised is the {best.minimised}{'' if clock is None else f': {both_clocks(clock)}'}.")
    return [*said, *([f"The best plan has {shape(found)}."] if found is not None and found.rows else [])]


def verdict(report: Report, best: Result | None, found: Breakdown | None = None) -> str:
    """What is proved, in one sentence; with what is done in a second, where the best plan's figures have it."""
    if any(result.status is Status.INFEASIBLE for result in report.results):
        return "Proved: no plan is feasible."
    if best is None:
        return "No plan was found, and nothing was proved."
    value = _amount(best.objective, best.unit) + rate(found)
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
    is_proved = report.optimum is not None
    losses = [(format_loss(r.loss, is_proved).replace("<=", "at most"), r.method) for r in known[:_NAMED]]
    named = [
        _sentence([method for _, method in same], loss) for loss, same in groupby(losses, key=lambda each: each[0])
    ]
    more = f", and {len(known) - _NAMED} more are below" if len(known) > _NAMED else ""
    return [f"Of the heuristics, {', '.join(named)}{more}."]


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
