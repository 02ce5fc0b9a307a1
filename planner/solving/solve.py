"""Run one method after the other until there is a proof; restate what `judge` believes of each as a `Result`."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from formulations.compiled.compile_times import compiling
from formulations.compiled.python_first import GivenUpError, may_start_anew, python_first
from formulations.contract.family import Answer, Claim, Family, Method, resolve
from planner.files.load import family_of, validate
from planner.files.settings import declared_options, expect_types, method_options
from planner.plugins.method_names import AUTO, PORTFOLIO
from planner.process import idle
from planner.process.errors import UsageError
from planner.results.events import Event, Listen, Told
from planner.results.result import Result
from planner.solving.backends import examine_solver, limits_for, prepare_method, solver_settings
from planner.solving.choose import Candidate, candidates, find_method
from planner.solving.judge import Judge
from planner.solving.known import Known
from planner.solving.portfolio import portfolio
from planner.solving.worker import Received, Worker, attend, signals_stop
from planner.types import Instance
from solvers.memory_budget import SizeError
from solvers.outcome import DEFAULT_SOLVER, Limits, Status, Stop, Watch

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
    instance = validate(instance)
    held = _Held(listen)
    found = python_first(lambda: _solve(instance, method, exact, limits, options, held.begin(), notice), limits.time_s)
    held.pass_on()
    return found


class _Held:
    """Keeps the events of a run as long as it may be done anew (`python_first`), and passes them on afterwards."""

    def __init__(self, listen: Listen | None) -> None:
        self._listen, self._kept = listen, list[Event]()

    def begin(self) -> Listen | None:
        """Forget the events of the run before; who listens to this one."""
        self._kept.clear()
        return self._listen and self._hold

    def _hold(self, event: Event) -> None:
        self._kept.append(event)
        if not may_start_anew():
            self.pass_on()

    def pass_on(self) -> None:
        """Whoever listens receives what was kept."""
        while self._kept and self._listen is not None:
            self._listen(self._kept.pop(0))


def _solve(
    instance: Instance,
    method: str | None,
    exact: bool,
    limits: Limits,
    options: Mapping[str, Any] | None,
    listen: Listen | None,
    notice: Callable[[str], None],
) -> Result:
    """`solve`, of arguments that were examined, as one attempt."""
    family = family_of(instance)
    # one notice, whether choosing or solving compiles first; and one process of a user's method
    with compiling(notice), idle.kept(many=False):
        family.load()
        if method not in (None, AUTO, PORTFOLIO):
            find_method(family, method)  # importing what a user brought does not count
        began = time.perf_counter()
        known = Known(limits.solver)
        proof_wanted = exact or method == PORTFOLIO
        to_try: Iterable[Candidate] = candidates(family, instance, limits, method or AUTO, exact)
        for chosen, reason in portfolio(family, instance, limits) if method == PORTFOLIO else to_try:
            if any(each.plan is not None for each in known.results) and not _may_prove(chosen, instance):
                continue
            left = replace(limits, time_s=_time_left(limits, time.perf_counter() - began, known.results, proof_wanted))
            examine_solver([chosen], limits)
            try:
                given = method_options([chosen], options or {})[chosen.name]
            except UsageError:
                if not known.results:
                    raise
                continue  # the next method does not have the option
            result = run(family, chosen, instance, left, given, reason, listen, known)
            if limits.time_s is None and result.stop is Stop.TIME_LIMIT:
                known.results[-1] = _limit_of_ours(result)
            if left.time_s == 0.0 or not _hands_over(result, limits):
                break
        return _of_all(known.results)


def _may_prove(method: Method[Any, Any], instance: Any) -> bool:
    """Whether a method may add a proof to a plan that is known."""
    return method.claim is Claim.EXACT and method.too_large(instance) is None


def _time_left(limits: Limits, elapsed_s: float, before: Sequence[Result], proof_wanted: bool) -> float | None:
    """What a method may take: choosing counts, and the methods before it, but not what came before their clocks."""
    for each in before:
        elapsed_s -= cast("float", each.stats["compile_seconds"]) + cast("float", each.stats.get("start_seconds", 0.0))
    if limits.time_s is not None:
        return max(0.0, limits.time_s - elapsed_s)
    first = next((place for place, each in enumerate(before) if each.plan is not None), None)
    if proof_wanted or first is None:
        return None
    return max(0.0, HAND_OVER_S - (elapsed_s - sum(each.seconds for each in before[: first + 1])))


def _limit_of_ours(result: Result) -> Result:
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
        reason="; ".join(dict.fromkeys(_method_words(each, own) for each in found)),
        stats={**own.stats, "tried": {each.method: each.seconds for each in found}},
    )


def _method_words(result: Result, own: Result) -> str:
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
    limits = limits_for(method, limits)
    examine_solver([method], limits)
    known = known or Known(limits.solver)
    before_s = known.seconds
    listener = Told(listen)
    watch = Watch(limits, _teller(family, method, instance, None if listen is None else listener.tell, known))
    watch.evaluate = partial(family.evaluate, instance)
    _begin(watch, limits, known)
    arguments = {name.replace("-", "_"): value for name, value in options.items()}
    starts_s: list[float] = []
    worker = Worker(
        lambda: starts_s.append(prepare_method(method)),
        lambda: method.solve(instance, limits, watch, **arguments),
        watch,
        method.finish,
    )
    judge = Judge(family, method, instance, limits, watch, known)
    with signals_stop(watch) as received, compiling() as compiled:
        returned, answer = _attend(worker, watch, limits, received)
        seconds = worker.seconds if returned else watch.elapsed_s() if worker.prepared.is_set() else 0.0
        found = judge.verdict(answer)
        answer = found.answer
        stats = {**answer.stats, **_stats(worker, sum(starts_s), compiled.kernels, returned, watch)}
        reasons = [reason, answer.reason, found.doubts, *watch.aborts]
        if answer.infeasible and received.signal is None:
            sentence, figures = _explain(family, instance, limits, watch, received)
            reasons, stats = [*reasons, sentence], {**stats, **figures}
    stop = found.stop(watch)
    ended = method.claim is Claim.EXACT and stop is Stop.COMPLETED
    if ended and found.gap is not None and found.gap <= limits.gap:
        reasons.append(f"stopped at a gap of {100 * found.gap:.3g} %, within the {100 * limits.gap:.3g} % of --gap")
    if limits.threads > 1 and not (method.threads or method.backend):
        reasons.append(f"{method.name} uses one thread: --threads {limits.threads} has no effect")
    rules = {"require": " and ".join(instance.requirements)} if instance.requirements else {}
    result = Result(
        problem=family.name,
        instance=instance.name,
        method=method.name,
        claim=method.claim.value,
        status=found.status,
        stop=stop,
        objective=found.objective,
        bound=found.bound,
        gap=found.gap,
        unit=family.unit(instance),
        seconds=seconds,
        proved_by=found.proved_by,
        reason="; ".join(dict.fromkeys(part for part in reasons if part)),
        solver=answer.solver,
        seed=limits.seed,
        threads=limits.threads,
        options={**declared_options(instance), **rules, **options, **answer.options, **solver_settings(limits)},
        stats=stats,
        verified=found.plan is not None,
        plan=None if found.plan is None else family.plan_to_json(instance, found.plan),
        signal=received.signal,
        of=instance,
        own_plan=found.plan,
    )
    listener.end(result, before_s)
    known.add(result, judge.proofs(answer), found.proof is not None and found.proof.is_claim)
    return result


def _begin(watch: Watch, limits: Limits, known: Known) -> None:
    """Report to a watch what the methods before this one found; a solver that is doubted is not believed again."""
    if limits.solver != DEFAULT_SOLVER and known.doubted:
        watch.doubt(known.doubted)
    for each in known.results:
        if each.own_plan is not None and each.objective is not None:
            watch.plan(each.own_plan, each.objective)


def _stats(worker: Worker, start_s: float, kernels: int, returned: bool, watch: Watch) -> dict[str, Any]:
    """What a run says of itself: the seconds before its clock started, and what went wrong without an end to it."""
    found: dict[str, Any] = {"compile_seconds": max(0.0, worker.prepare_s - start_s)}
    if start_s:
        found["start_seconds"] = start_s
    if kernels:
        found["kernels_compiled"] = kernels
    if not returned:
        found["left_behind"] = True
    if watch.aborts:
        found["solver_aborts"] = len(watch.aborts)
    return found


def _attend(worker: Worker, watch: Watch, limits: Limits, received: Received) -> tuple[bool, Answer[Any]]:
    """Whether the method came back in time, and its answer; one without memory for its tables has none."""
    try:
        returned = attend(worker, watch, limits, received)
    except (SizeError, MemoryError) as error:
        reason = str(error) if isinstance(error, SizeError) else f"memory ran out: {error}".rstrip(": ")
        return True, Answer(stop=Stop.SIZE_LIMIT, reason=reason)
    except GivenUpError:
        if watch.reason is not Stop.INTERRUPTED:
            raise
        return True, Answer(stop=watch.why())  # what was interrupted is not done anew
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
        bounds = [each.bound for each in known.proofs_beside(objective)]
        best = max([*bounds, *([] if bound is None else [bound])], default=None)
        listen(Event(family.name, instance.name, method.name, since_s + seconds, objective, best))

    return tell


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
