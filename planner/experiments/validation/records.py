"""One instance of a population: what every method makes of it, beside the reference that proves the optimum."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from formulations.contract.family import Family
from planner.files.load import family_named
from planner.files.problems import address
from planner.files.write import plain
from planner.plugins.registry import texts, texts_of
from planner.process.signals import defer, pending
from planner.results.check import exceeds
from planner.results.result import Result
from planner.solving.compare import Report, crosscheck
from solvers.outcome import OPTIMAL_GAP, Limits, Status, relative_gap

#: What came of a method on an instance. ``open``: a plan that is not known to be optimal, nor to be worse than another.
#: ``infeasible``: it is proved that there is no plan, and the method has none.
OPTIMAL, SUBOPTIMAL, NO_PLAN, INVALID, ERROR, OPEN, INFEASIBLE = (
    "optimal",
    "suboptimal",
    "no_plan",
    "invalid",
    "error",
    "open",
    "infeasible",
)
#: Outcomes by what a brought function's ``stats.failure`` says.
_FAILURES = {"error": ERROR, "import": ERROR, "invalid_plan": INVALID}

#: An instance as it is handed to a worker: its number, where it comes from, its JSON text.
Handed = tuple[int, str, str]


@dataclass(frozen=True)
class Work:
    """What is done with every instance, wherever it is done: all that a worker has to know.

    ``methods`` are the names that a worker finds them by, the reference ``against`` among them, and ``names`` what they
    are called; ``plans`` holds plans in their JSON form.
    """

    problem: str
    names: tuple[str, ...]
    methods: tuple[str, ...]
    plans: Mapping[str, Any]
    limits: Limits
    options: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, problem: str, names: Sequence[str], plans: Mapping[str, Any], limits: Limits, options: Mapping[str, Any]
    ) -> Work:
        """With functions in files by their full path: a worker may be at home elsewhere."""
        methods = tuple(map(_anywhere, names))
        return cls(address(problem), tuple(names), methods, dict(plans), limits, dict(options), texts_of(methods))


def _anywhere(name: str) -> str:
    file, sign, function = name.rpartition(".py:")
    return f"{os.path.abspath(file)}{sign}{function}" if sign else name


def solve_all(work: Work, handed: Sequence[Handed]) -> tuple[list[dict[str, Any]], int | None]:
    """The records of some instances; fewer, and the signal, if one came."""
    found: list[dict[str, Any]] = []
    family = family_named(work.problem)
    with defer(), texts(work.texts):
        for number, origin, text in handed:
            stopped = pending()
            if stopped is None:
                record, stopped = _record(work, family, number, origin, text)
            if stopped is not None:
                return found, stopped
            found.append(record)
    return found, None


def _record(
    work: Work, family: Family[Any, Any], number: int, origin: str, text: str
) -> tuple[dict[str, Any], int | None]:
    """What came of one instance, and the signal that interrupted it, if one did."""
    instance = family.read(json.loads(text), origin, {})
    report = crosscheck(
        instance,
        methods=work.methods,
        plans=work.plans,
        limits=work.limits,
        options=work.options,
        reproducers=None,
    )
    infeasible = any(result.status is Status.INFEASIBLE for result in report.results) and report.agree
    called = dict(zip(work.methods, work.names, strict=True))
    by_method = {result.method: result for result in report.results}
    found: dict[str, Any] = plain({
        "number": number,
        "instance": instance.name,
        "origin": origin,
        "size": size(family, instance)[1],
        "memory_pressure": family.memory_pressure(instance),
        "optimum": report.optimum,
        "infeasible": infeasible,
        "contradictions": [_rename_methods(sentence, called) for sentence in report.contradictions],
        "rows": {
            called.get(name, name): _row(report, by_method.get(name), report.left_out.get(name, ""), infeasible)
            for name in (*work.methods, *work.plans)
        },
    })  # fmt: skip
    return found, report.signal


def _row(report: Report, result: Result | None, left_out: str, infeasible: bool) -> dict[str, Any]:
    if result is None:
        outcome = ERROR if any(sentence == left_out for sentence in report.contradictions) else NO_PLAN
        nothing = dict.fromkeys(("loss", "objective", "bound", "status", "stop"))
        return {"outcome": outcome, **nothing, "seconds": 0.0, "reason": f"left out: {left_out}"}
    return {
        "outcome": _outcome(report, result, infeasible),
        "loss": result.loss,
        "objective": result.objective,
        "bound": result.bound,
        "status": result.status.value,
        "stop": result.stop.value,
        "seconds": result.seconds,
        "reason": result.reason if result.plan is None or "failure" in result.stats else "",
    }


def _outcome(report: Report, result: Result, infeasible: bool) -> str:
    if result.objective is None:
        failed = _FAILURES.get(str(result.stats.get("failure")))
        return failed or (INFEASIBLE if infeasible else NO_PLAN)
    if report.optimum is not None:
        gap = relative_gap(result.objective, report.optimum)
        return OPTIMAL if gap is not None and gap <= OPTIMAL_GAP else SUBOPTIMAL
    best = min(each.objective for each in report.results if each.objective is not None)
    return SUBOPTIMAL if exceeds(result.objective, best) else OPEN


def _rename_methods(sentence: str, called: Mapping[str, str]) -> str:
    for name, spelled in called.items():
        sentence = sentence.replace(name, spelled)
    return sentence


def size(family: Family[Any, Any], instance: Any) -> tuple[str, int | None]:
    """The first whole number among the key figures of an instance, such as that of its nodes, and what it counts."""
    for name, value in family.describe(instance).items():
        if isinstance(value, int) and not isinstance(value, bool):
            return name, value
    return "", None
