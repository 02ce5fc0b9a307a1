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
from planner.solving.known import Known, Proof
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
        known = Known(limits.solver)
        proof_wanted = exact or method == PORTFOLIO
        for chosen, reason in _to_try(family, instance, limits, method or AUTO, exact):
            if any(each.plan is not None for each in known.results) and not _may_prove(chosen, instance):
                continue
            left = replace(limits, time_s=_left(limits, time.perf_counter() - began, known.results, proof_wanted))
            examined([chosen], limits)
            try:
                given = method_options([chosen], options or {})[chosen.name]
            except UsageError:
                if not known.results:
                    raise
                continue  # the next method does not have the option
            result = run(family, chosen, instance, left, given, reason, listen, known)
            if limits.time_s is None and result.stop is Stop.TIME_LIMIT:
                known.results[-1] = _handed_over(result)
            if left.time_s == 0.0 or not _hands_over(result, limits):
                break
        return _of_all(known.results)


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
    """What a method may take: choosing counts, and the methods before it, but not what came before their clocks."""
    for each in before:
        elapsed_s -= cast("float", each.stats["compile_seconds"]) + cast("float", each.stats.get("start_seconds", 0.0))
    if limits.time_s is not None:
        return max(0.0, limits.time_s - elapsed_s)
    first = next((place for place, each in enumerate(before) if each.plan is not None), None)
    if proof_wanted or first is None:
        return None
    return max(0.0, HAND_OVER_S - (elapsed_s - sum(each.seconds for each in before[: first + 1])))


def _handed_over(result: Result) -> Result:
    """The result of a method that ended with `HAND_OVER_S`: nobody had set that limit."""
    said = f"without a time limit, the methods after one with a plan have {HAND_OVER_S:g} s, which were over"
    return replace(result, stop=Stop.COMPLETED, reason="; ".join(filter(None, (result.reason, said))))


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
    ended = "" if result is own else f"it ended with {_ended_with(result)}"
    return f"{result.method}: {'; '.join(part for part in (result.reason, ended) if part)}"


def _ended_with(result: Result) -> str:
    if result.plan is None:
        return "no plan"
    if result.bound is None:
        return "no bound"
    return f"the bound {result.bound:.9g}" if result.gap is None else f"a gap of {100 * result.gap:.2g} %"


def run(
    family: Family[Any, Any],
    method: Method[Any, Any],
    instance: Any,
    limits: Limits,
    options: Mapping[str, Any],
    reason: str = "",
    listen: Listen | None = None,
    known: Known | None = None,
) -> Result:
    """Run a method on an instance and judge its answer; arguments and errors as in `solve`, options already parsed.

    ``known``: what other methods found on the instance; it uses their plans, reports their bounds as theirs, and adds
    its own.
    """
    limits = fitted(method, limits)
    examined([method], limits)
    known = known or Known(limits.solver)
    before_s, is_chosen = known.seconds, limits.solver != DEFAULT_SOLVER
    listener = Told(listen)
    watch = Watch(limits, _teller(family, method, instance, None if listen is None else listener.tell, known))
    if is_chosen and known.doubted:
        watch.doubt(known.doubted)
    for each in known.results:
        if each.plan is not None and each.objective is not None:
            watch.plan(family.plan_from_json(instance, each.plan), each.objective)
    arguments = {name.replace("-", "_"): value for name, value in options.items()}
    starts_s: list[float] = []
    worker = Worker(
        lambda: starts_s.append(prepared(method)),
        lambda: method.solve(instance, limits, watch, **arguments),
        watch,
        method.finish,
    )
    with signals_stop(watch) as received, compiling() as compiled:
        returned, answer = _attended(worker, watch, limits, received)
        seconds = worker.seconds if returned else watch.elapsed_s() if worker.prepared.is_set() else 0.0
        plan, objective = _best(family, method, instance, answer, watch)
        answer, doubts = _believed(answer, objective, limits, watch, known)
        plan, objective, bound = _judge(family, method, instance, answer, watch, plan, objective)
        start_s = sum(starts_s)
        stats = {**answer.stats, "compile_seconds": max(0.0, worker.prepare_s - start_s)}
        if start_s:
            stats["start_seconds"] = start_s
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
    proof = None if bound is None or by is None else Proof(bound, method.name, by, is_chosen and by != Prover.BOUNDS)
    if not answer.infeasible:
        proof = _carried(family, method, instance, known, plan, objective, proof)
        bound, by = (None, None) if proof is None else (proof.bound, proof.by)
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
    listener.end(result, before_s)
    own = [] if answer.infeasible else _proofs(method, answer, watch, is_chosen)
    known.add(result, own, proof is not None and proof.is_claim)
    return result


def _proofs(method: Method[Any, Any], answer: Answer[Any], watch: Watch, is_chosen: bool) -> list[Proof]:
    """The bounds of a method, as the methods after it report them."""
    return [
        Proof(
            value,
            method.name,
            method.name if by in (Prover.SEARCH, Prover.SOLVER) else by,
            is_chosen and by != Prover.BOUNDS,
        )
        for by, value in _bounds(answer, watch).items()
    ]


def _attended(worker: Worker, watch: Watch, limits: Limits, received: Received) -> tuple[bool, Answer[Any]]:
    """Whether the method came back in time, and its answer; one without memory for its tables has none."""
    try:
        returned = attend(worker, watch, limits, received)
    except (SizeError, MemoryError) as error:
        reason = str(error) if isinstance(error, SizeError) else f"memory ran out: {error}".rstrip(": ")
        return True, Answer(stop=Stop.SIZE_LIMIT, reason=reason)
    if not returned:
        watch.leave()
        late_s = watch.elapsed_s() - (limits.time_s or 0.0)
        late = f"{late_s:.1f} s after the limit" if watch.reason is Stop.TIME_LIMIT else "after it was interrupted"
        return False, Answer(stop=watch.why(), reason=f"it had not ended {late}")
    return True, worker.outcome


def _teller(
    family: Family[Any, Any], method: Method[Any, Any], instance: Any, listen: Listen | None, known: Known
) -> Callable[[float, float | None, float | None], None] | None:
    """What a watch calls with its three numbers, so that ``listen`` receives an event of the whole run."""
    if listen is None:
        return None
    since_s = known.seconds

    def tell(seconds: float, objective: float | None, bound: float | None) -> None:
        bounds = [each.bound for each in known.believed(objective)]
        best = max([*bounds, *([] if bound is None else [bound])], default=None)
        listen(Event(family.name, instance.name, method.name, since_s + seconds, objective, best))

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


def _believed(
    answer: Answer[Any], objective: float | None, limits: Limits, watch: Watch, known: Known
) -> tuple[Answer[Any], str]:
    """The answer without what its solver claims, if that is one of choice and a plan contradicts it, and why.

    A plan may contradict what that solver claimed for another method as well: then all that it claims is forgotten.
    """
    was_doubted, is_chosen = known.doubted, limits.solver != DEFAULT_SOLVER
    known.compare(objective)
    if is_chosen:
        _doubt(answer, objective, watch, known)
    if not known.doubted or (was_doubted and not is_chosen):
        return answer, ""
    said = f"solver {known.solver} {known.doubted}: nothing that it claims is believed in this run"
    if not is_chosen:
        return answer, said
    infeasible = answer.infeasible and answer.proved_by == Prover.BOUNDS
    reason = answer.reason if infeasible or not answer.infeasible else ""
    return replace(answer, bound=None, infeasible=infeasible, reason=reason), said


def _doubt(answer: Answer[Any], objective: float | None, watch: Watch, known: Known) -> None:
    """Doubt the solver of choice that gave an answer, in this method and in all, if a plan contradicts it."""
    if known.doubted:
        watch.doubt(known.doubted)
    elif objective is not None and answer.infeasible and answer.proved_by != Prover.BOUNDS:
        watch.doubt("calls the instance infeasible, which has a plan")
    elif objective is not None and answer.bound is not None and exceeds(answer.bound, objective):
        watch.doubt(f"claims the bound {answer.bound:.9g} above a plan of {objective:.9g}")
    if watch.doubted:
        known.doubt(watch.doubted)


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
    known: Known,
    plan: Any,
    objective: float | None,
    own: Proof | None,
) -> Proof | None:
    """The best proof, with those of the methods before this one; each bound stays its method's."""
    best = max(known.believed(objective), key=lambda each: each.bound, default=None)
    if best is None:
        return own
    if objective is not None and exceeds(best.bound, objective):
        what = f"has a plan of {objective!r}, yet {best.method} claims the bound {best.bound!r}"
        raise _contradiction(family, method, instance, what, plan)
    if own is not None and (own.bound >= best.bound or _closes(objective, own.bound)):
        return own
    return best if objective is None else replace(best, bound=min(best.bound, objective))


def prover(answer: Answer[Any], watch: Watch, objective: float | None, bound: float | None) -> str | None:
    """By whose means the bound, or infeasibility, was proved; ``None`` if nothing was.

    Where several bounds close the gap, the method's own is named before one that it shares with others; where none
    does, the greatest.
    """
    if answer.infeasible:
        return answer.proved_by or Prover.SEARCH
    if bound is None:
        return None
    bounds = _bounds(answer, watch)
    closing = [by for by, value in bounds.items() if _closes(objective, value)]
    if closing:
        return min(closing, key=lambda by: by == Prover.BOUNDS)
    return max(bounds, key=lambda by: bounds[by])


def _bounds(answer: Answer[Any], watch: Watch) -> dict[str, float]:
    """The bounds of a method by their provers."""
    found = {by: value for by, value in watch.bounds.items() if math.isfinite(value)}
    value = answer.bound
    if value is None or not math.isfinite(value):
        return found
    if answer.proved_by or value > max(found.values(), default=-math.inf):
        by = answer.proved_by or Prover.SEARCH
        found[by] = max(value, found.get(by, value))
    return found


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
