"""Run one method; check what comes back against the family's definition; restate it as a `Result`.

A method's own figures are never copied: the objective is ``evaluate`` of a plan that ``violations`` accepted, the
status is derived from objective and bound, and a plan or bound that cannot be true raises `CrosscheckError`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from formulations.compiled.compile_times import compiling
from formulations.compiled.memory_budget import SizeError
from formulations.contract.family import Answer, Claim, Family, Method, resolve
from planner.files.load import admitted, family_of
from planner.files.settings import declared, expect_types, method_options
from planner.plugins.method_names import AUTO, PORTFOLIO
from planner.process.errors import CrosscheckError, UsageError
from planner.results.check import agree, exceeds
from planner.results.events import Event, Listen, Told
from planner.results.result import Result
from planner.solving.backends import chosen as choice
from planner.solving.backends import examined, fitted, prepared
from planner.solving.choose import candidates, named
from planner.solving.portfolio import portfolio
from planner.solving.worker import Received, Worker, attend, signals_stop
from planner.types import Instance
from solvers.outcome import DEFAULT_SOLVER, OPTIMAL_GAP, Limits, Prover, Status, Stop, Watch, relative_gap

#: Without a time limit, and where no proof is demanded, those that come after a method with a plan may take so long.
HAND_OVER_S = 10.0
#: Explaining an infeasible instance may take this long where no time limit was given.
EXPLAIN_S = 10.0


def silent(_line: str) -> None:
    """Nobody listens."""


def solve(
    instance: Instance,
    *,
    method: str | None = None,
    exact: bool = False,
    limits: Limits | None = None,
    options: Mapping[str, Any] | None = None,
    listen: Listen | None = None,
    notice: Callable[[str], None] = silent,
) -> Result:
    """Solve an instance with one method.

    Parameters
    ----------
    instance
        From `planner.load`, or built from the classes in ``instances``.
    method
        A name from ``planner list``, or ``FILE.py:FUNCTION`` (`planner.method`); ``None`` or ``"auto"``: whatever fits
        the instance and the time limit; ``"portfolio"``: an exact search and a model at once, which share plans.
    exact
        Use only methods that claim exactness.
    limits
        Time, gap, seed and threads.
    options
        The method's own options by name (``planner list PROBLEM``), as text or values.
    listen
        Called with an `events.Event` after every improvement, from another thread; the last event has the
        objective and the bound of the result.
    notice
        Called with a line a person should read, such as that kernels are being compiled.

    Returns
    -------
    Result
        Also for infeasible instances, limits and Ctrl-C (``stop`` says which).

    Raises
    ------
    InstanceError
        If the instance breaks a rule.
    UsageError
        If the method or an option is unknown or does not fit the instance, an argument is of another type, the method's
        solver is of another version than the pinned one, or the solver of the limits is not installed or fails its
        exam.
    CrosscheckError
        If the method's plan breaks the rules or its bound exceeds a verified objective.
    """
    expect_types(method=method, exact=exact, limits=limits, options=options, listen=listen, notice=notice)
    limits = limits or Limits()
    instance = admitted(instance)
    family = family_of(instance)
    with compiling(notice):  # one notice, whether choosing or solving compiles first
        family.load()
        if method not in (None, AUTO, PORTFOLIO):
            named(family, method)  # importing what a user brought does not count
        began = time.perf_counter()
        found: list[Result] = []
        proof_wanted = exact or method == PORTFOLIO
        for chosen, reason in _to_try(family, instance, limits, method or AUTO, exact):
            if any(each.plan is not None for each in found) and not _may_prove(chosen, instance):
                continue
            left = replace(limits, time_s=_left(limits, time.perf_counter() - began, found, proof_wanted))
            examined([chosen], limits)
            try:
                given = method_options([chosen], options or {})[chosen.name]
            except UsageError:
                if not found:
                    raise
                continue  # the next method does not have the option
            found.append(run(family, chosen, instance, left, given, reason, listen, found))
            if left.time_s == 0.0 or not _hands_over(found[-1], limits):
                break
        return _of_all(found)


def _to_try(
    family: Family[Any, Any], instance: Any, limits: Limits, name: str, exact: bool
) -> Iterable[tuple[Method[Any, Any], str]]:
    if name == PORTFOLIO:
        return portfolio(family, instance, limits)
    return candidates(family, instance, limits, name, exact)


def _may_prove(method: Method[Any, Any], instance: Any) -> bool:
    """Whether a method may add a proof to a plan that is known."""
    return method.claim is Claim.EXACT and method.too_large(instance) is None


def _left(limits: Limits, elapsed_s: float, before: Sequence[Result], proof_wanted: bool) -> float | None:
    """What a method may take: choosing counts, and the methods before it, but not that their kernels were compiled."""
    elapsed_s -= sum(cast("float", each.stats["compile_seconds"]) for each in before)
    if limits.time_s is not None:
        return max(0.0, limits.time_s - elapsed_s)
    if proof_wanted or not any(each.plan is not None for each in before):
        return None
    return max(0.0, HAND_OVER_S - (elapsed_s - before[0].seconds))


def _hands_over(result: Result, limits: Limits) -> bool:
    """Whether a method ended by itself with too little: without a plan, or, if it is exact, without a proof."""
    ended = result.stop in (Stop.SIZE_LIMIT, Stop.COMPLETED) and result.signal is None
    if not ended or result.status in (Status.OPTIMAL, Status.INFEASIBLE):
        return False
    near = result.gap is not None and result.gap <= limits.gap
    return result.plan is None or (result.claim == Claim.EXACT.value and not near)


def _of_all(found: Sequence[Result]) -> Result:
    """The result of the first method that had the plan and the bound of the last, with the words of all."""
    last = found[-1]
    if len(found) == 1:
        return last
    own = next(each for each in found if (each.objective, each.bound) == (last.objective, last.bound))
    if own.status is not last.status:
        own = last
    return replace(
        own,
        stop=last.stop,
        signal=last.signal,
        seconds=sum(each.seconds for each in found),
        reason="; ".join(dict.fromkeys(_said(each, own) for each in found)),
        stats={**own.stats, "tried": {each.method: each.seconds for each in found}},
    )


def _said(result: Result, own: Result) -> str:
    """What a method of several has to say: why it was tried, and with what it ended."""
    ended = "" if result is own else "no plan" if result.gap is None else f"a gap of {100 * result.gap:.2g} %"
    return f"{result.method}: {'; '.join(part for part in (result.reason, ended and f'it ended with {ended}') if part)}"


def run(
    family: Family[Any, Any],
    method: Method[Any, Any],
    instance: Any,
    limits: Limits,
    options: Mapping[str, Any],
    reason: str = "",
    listen: Listen | None = None,
    before: Sequence[Result] = (),
) -> Result:
    """Run a method on an instance and judge its answer; arguments and errors as in `solve`, options already parsed.

    ``before``: results of other methods on the instance, whose plans and bounds it knows, and reports as theirs.
    """
    limits = fitted(method, limits)
    examined([method], limits)
    listener = Told(listen)
    watch = Watch(limits, _teller(family, method, instance, None if listen is None else listener.tell, before))
    for each in before:
        if each.plan is not None and each.objective is not None:
            watch.plan(family.plan_from_json(instance, each.plan), each.objective)
    arguments = {name.replace("-", "_"): value for name, value in options.items()}
    worker = Worker(lambda: prepared(method), lambda: method.solve(instance, limits, watch, **arguments), watch)
    with signals_stop(watch) as received, compiling() as compiled:
        returned, answer = _attended(worker, watch, limits, received)
        seconds = worker.seconds if returned else watch.elapsed_s() if worker.prepared.is_set() else 0.0
        plan, objective = _best(family, method, instance, answer, watch)
        answer, doubts = _believed(answer, objective, limits, watch)
        plan, objective, bound = _judge(family, method, instance, answer, watch, plan, objective)
        stats = {**answer.stats, "compile_seconds": worker.prepare_s}
        reasons = [reason, answer.reason, doubts, *watch.aborts]
        if compiled.kernels:
            stats["kernels_compiled"] = compiled.kernels
        if not returned:
            stats["left_behind"] = True
        if watch.aborts:
            stats["solver_aborts"] = len(watch.aborts)
        if answer.infeasible and received.signal is None:
            sentence, figures = _explain(family, instance, limits, watch, received)
            reasons, stats = [*reasons, sentence], {**stats, **figures}
    by = prover(answer, watch, objective, bound)
    if not answer.infeasible:
        bound, by = _carried(family, method, instance, before, plan, objective, bound, by)
    gap = relative_gap(objective, bound)
    status = _status(answer, objective, gap)
    result = Result(
        problem=family.name,
        instance=instance.name,
        method=method.name,
        claim=method.claim.value,
        status=status,
        stop=_stop(status, answer, watch),
        objective=objective,
        bound=bound,
        gap=gap,
        unit=family.unit(instance),
        seconds=seconds,
        proved_by=by,
        reason="; ".join(dict.fromkeys(part for part in reasons if part)),
        solver=answer.solver,
        seed=limits.seed,
        threads=limits.threads,
        options={**declared(instance), **options, **answer.options, **choice(limits)},
        stats=stats,
        verified=plan is not None,
        plan=None if plan is None else family.plan_to_json(instance, plan),
        signal=received.signal,
        of=instance,
    )
    listener.end(result, sum(each.seconds for each in before))
    return result


def _attended(worker: Worker, watch: Watch, limits: Limits, received: Received) -> tuple[bool, Answer[Any]]:
    """Whether the method came back in time, and its answer; one without memory for its tables has none."""
    try:
        returned = attend(worker, watch, limits, received)
    except (SizeError, MemoryError) as error:
        reason = str(error) if isinstance(error, SizeError) else f"memory ran out: {error}".rstrip(": ")
        return True, Answer(stop=Stop.SIZE_LIMIT, reason=reason)
    if not returned:
        watch.leave()
    return returned, worker.outcome if returned else Answer(stop=watch.why())


def _teller(
    family: Family[Any, Any], method: Method[Any, Any], instance: Any, listen: Listen | None, before: Sequence[Result]
) -> Callable[[float, float | None, float | None], None] | None:
    """What a watch calls with its three numbers, so that ``listen`` receives an event of the whole run."""
    if listen is None:
        return None
    since_s = sum(each.seconds for each in before)
    bounds = [each.bound for each in before if each.bound is not None]

    def tell(seconds: float, objective: float | None, bound: float | None) -> None:
        known = max([*bounds, *([] if bound is None else [bound])], default=None)
        listen(Event(family.name, instance.name, method.name, since_s + seconds, objective, known))

    return tell


def _best(
    family: Family[Any, Any], method: Method[Any, Any], instance: Any, answer: Answer[Any], watch: Watch
) -> tuple[Any, float | None]:
    """The best plan among the answer's and the watch's, and its objective, both checked."""
    plan, objective = answer.plan, None
    if plan is not None:
        objective = _verify(family, method, instance, plan)
    seen, claimed = watch.incumbent()
    if seen is not None and claimed is not None and (objective is None or claimed < objective):
        attained = _verify(family, method, instance, seen, claimed)
        if objective is None or attained < objective:
            plan, objective = seen, attained
    return plan, objective


def _believed(answer: Answer[Any], objective: float | None, limits: Limits, watch: Watch) -> tuple[Answer[Any], str]:
    """The answer without what its solver claims, if that is one of choice and a plan contradicts it, and why."""
    if limits.solver != DEFAULT_SOLVER and objective is not None:
        if answer.infeasible and answer.proved_by != Prover.BOUNDS:
            watch.doubt("calls the instance infeasible, which has a plan")
        elif answer.bound is not None and exceeds(answer.bound, objective):
            watch.doubt(f"claims the bound {answer.bound:.9g} above a plan of {objective:.9g}")
    if not watch.doubted:
        return answer, ""
    infeasible = answer.infeasible and answer.proved_by == Prover.BOUNDS
    reason = answer.reason if infeasible or not answer.infeasible else ""
    said = f"solver {limits.solver} {watch.doubted}: nothing that it claims is believed in this run"
    return replace(answer, bound=None, infeasible=infeasible, reason=reason), said


def _judge(
    family: Family[Any, Any],
    method: Method[Any, Any],
    instance: Any,
    answer: Answer[Any],
    watch: Watch,
    plan: Any,
    objective: float | None,
) -> tuple[Any, float | None, float | None]:
    """The plan and its objective, with the best bound; a contradiction is raised."""
    bounds = [value for value in (answer.bound, watch.best_bound) if value is not None and math.isfinite(value)]
    bound = max(bounds, default=None)
    if answer.infeasible:
        if plan is not None:
            raise _contradiction(family, method, instance, "calls the instance infeasible, yet has a plan", plan)
        return None, None, None
    if objective is not None and bound is not None:
        if exceeds(bound, objective):
            raise _contradiction(
                family, method, instance, f"claims the bound {bound!r}, yet has a plan of {objective!r}", plan
            )
        bound = min(bound, objective)  # what is left above it is rounding
    return plan, objective, bound


def _carried(
    family: Family[Any, Any],
    method: Method[Any, Any],
    instance: Any,
    before: Sequence[Result],
    plan: Any,
    objective: float | None,
    bound: float | None,
    by: str | None,
) -> tuple[float | None, str | None]:
    """The best bound and its prover, with those of the methods before this one; each bound stays its method's."""
    known = [(each.bound, each) for each in before if each.bound is not None]
    if not known or (bound is not None and _closes(objective, bound)):
        return bound, by
    best, other = max(known, key=lambda each: each[0])
    if objective is not None and exceeds(best, objective):
        what = f"has a plan of {objective!r}, yet {other.method} claims the bound {best!r}"
        raise _contradiction(family, method, instance, what, plan)
    if bound is not None and bound >= best:
        return bound, by
    own = other.proved_by in (None, Prover.SEARCH, Prover.SOLVER)
    return best if objective is None else min(best, objective), other.method if own else other.proved_by


def prover(answer: Answer[Any], watch: Watch, objective: float | None, bound: float | None) -> str | None:
    """By whose means the bound, or infeasibility, was proved; ``None`` if nothing was.

    Where several bounds close the gap, the method's own is named before one that it shares with others; where none
    does, the greatest.
    """
    if answer.infeasible:
        return answer.proved_by or Prover.SEARCH
    if bound is None:
        return None
    known = {by: value for by, value in watch.bounds.items() if math.isfinite(value)}
    if answer.bound is not None and (answer.proved_by or answer.bound > max(known.values(), default=-math.inf)):
        by = answer.proved_by or Prover.SEARCH
        known[by] = max(answer.bound, known.get(by, answer.bound))
    closing = [by for by, value in known.items() if _closes(objective, value)]
    if closing:
        return min(closing, key=lambda by: by == Prover.BOUNDS)
    return max(known, key=lambda by: known[by])


def _closes(objective: float | None, bound: float) -> bool:
    gap = relative_gap(objective, bound)
    return gap is not None and gap <= OPTIMAL_GAP


def _verify(
    family: Family[Any, Any], method: Method[Any, Any], instance: Any, plan: Any, claimed: float | None = None
) -> float:
    """The plan's objective, if it keeps every rule and is worth what the method claimed."""
    broken = family.violations(instance, plan)
    if broken:
        raise _contradiction(
            family, method, instance, "returned a plan that breaks: " + "; ".join(map(str, broken)), plan
        )
    objective = family.evaluate(instance, plan)
    if claimed is not None and not agree(objective, claimed):
        raise _contradiction(family, method, instance, f"claims {claimed!r} for a plan of {objective!r}", plan)
    return objective


def _contradiction(
    family: Family[Any, Any], method: Method[Any, Any], instance: Any, what: str, plan: Any
) -> CrosscheckError:
    return CrosscheckError(
        f"{method.name} {what}",
        {
            "problem": family.name,
            "instance": family.to_json(instance),
            "method": method.name,
            "plan": family.plan_to_json(instance, plan),
        },
    )


def _explain(
    family: Family[Any, Any], instance: Any, limits: Limits, watch: Watch, received: Received
) -> tuple[str, Mapping[str, Any]]:
    """What would make the instance feasible, within what is left of the time limit."""
    if instance.requirements:
        return f"infeasible with the requirements {', '.join(instance.requirements)}", {}
    explain = family.why_infeasible
    if explain is None:
        return "", {}
    left = watch.remaining_s()
    rest = Limits(time_s=EXPLAIN_S if left is None else left, seed=limits.seed, threads=limits.threads)
    own = Watch(rest)
    received.watches.append(own)
    worker = Worker(lambda: resolve(explain), lambda: explain(instance, rest, own), own)
    try:
        returned = attend(worker, own, rest, received)
    except (SizeError, MemoryError):
        return "not enough memory for the tables that show what would make it feasible", {}
    if not returned:
        return "no time was left to find what would make it feasible", {"explain_seconds": own.elapsed_s()}
    sentence, figures = worker.outcome
    return sentence, {**figures, "explain_seconds": worker.seconds}


def _status(answer: Answer[Any], objective: float | None, gap: float | None) -> Status:
    if answer.infeasible:
        return Status.INFEASIBLE
    if objective is None:
        return Status.UNKNOWN
    return Status.OPTIMAL if gap is not None and gap <= OPTIMAL_GAP else Status.FEASIBLE


def _stop(status: Status, answer: Answer[Any], watch: Watch) -> Stop:
    """Why the run ended: a proof counts whenever it came; that a method reports one is not enough."""
    if status in (Status.OPTIMAL, Status.INFEASIBLE):
        return Stop.PROVED
    if answer.stop in (Stop.PROVED, Stop.COMPLETED):
        return watch.why(Stop.COMPLETED)
    return answer.stop
