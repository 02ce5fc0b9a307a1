"""From what a user named to a `Method`: a function in a process of its own, or a plan that came from elsewhere.

Nothing is believed. Plans are judged by the definition before `planner.run` sees them: one that breaks a rule is a
result with a reason, not a contradiction. A bound counts where the function claims to be exact.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from formulations.family import Answer, Claim, Family, Method
from instances.errors import InstanceError
from planner.brought import registry
from planner.brought.process import Process, Reply
from planner.brought.target import Target, declaration, taken
from planner.checking import exceeds, read_plan
from planner.errors import UsageError
from planner.inputs.files import plain
from planner.reserved import AUTO, PORTFOLIO
from planner.signals import noted
from solvers.outcome import Limits, Stop, Watch

#: Seconds that importing a file or module may take.
IMPORT_S = 60.0
#: Seconds that a function with a watch has to return when it is stopped, before it is ended.
GRACE_S = 0.2


def brought(family: Family[Any, Any], name: str) -> Method[Any, Any] | None:
    """The method of this name that was registered or installed, or ``FILE.py:FUNCTION``; ``None``: there is none.

    Raises
    ------
    UsageError
        If the file cannot be imported, has no such function, or its function cannot be called with an instance, or is
        declared as one of another problem.
    """
    function = registry.registered(family.name).get(name)
    if function is not None:
        declared = declaration(function)
        return _method(family, registry.pickled(name, function), declared, taken(function, name))
    target = registry.target_of(name)
    if target is None:
        return None
    loaded = _described(target, target.sha256())
    return _method(family, target, loaded["declared"], tuple(loaded["takes"]))


def _method(
    family: Family[Any, Any], target: Target, declared: Mapping[str, str], takes: tuple[str, ...]
) -> Method[Any, Any]:
    problem = declared.get("problem", family.name)
    if problem != family.name:
        raise UsageError(f"{target.name}: problem is {problem!r}; expected {family.name}, of which the instance is one")
    claim = Claim(declared.get("claim", Claim.HEURISTIC))
    running = _Running(family, target, claim, "watch" in takes)
    everything = frozenset(quantity.name for quantity in family.vocabulary)  # the definition judges requirements
    source = _source(target.place or "this process", target.sha256())
    return Method(target.name, claim, source, running.solve, prepare=running.prepare, honours=everything)


#: What is known of functions, by target and SHA-256 of the file.
_KNOWN: dict[tuple[Target, str], Reply] = {}


def _described(target: Target, sha256: str) -> Reply:
    """What the process that loads a function says of it; `UsageError` if it cannot be loaded."""
    if (target, sha256) in _KNOWN:
        return _KNOWN[target, sha256]
    process = Process(target)
    try:
        reply = _loaded(process)
    finally:
        process.end()
    if reply["kind"] == "loaded":
        _KNOWN[target, sha256] = reply
        return reply
    if noted() is not None:  # it is interrupted anyway
        return {"declared": {}, "takes": ()}
    raise UsageError(reply["words"])


def _loaded(process: Process) -> Reply:
    """The reply ``loaded``, or ``refused`` with words."""
    until = time.perf_counter() + IMPORT_S
    for reply in process.replies(lambda: time.perf_counter() > until or noted() is not None):
        return reply
    if time.perf_counter() > until:
        return {"kind": "refused", "words": f"{process.name}: import takes more than {IMPORT_S:g} s"}
    return {"kind": "refused", "words": f"{process.name}: the process that imports it {process.ending()}"}


class _Running:
    """A function with the processes that run it: one for each run, started before the clock is."""

    def __init__(self, family: Family[Any, Any], target: Target, claim: Claim, has_watch: bool) -> None:
        self._family, self._target, self._claim, self._has_watch = family, target, claim, has_watch
        self._ready = threading.local()

    def prepare(self) -> None:
        """Start a process and wait until it has imported the function."""
        process = Process(self._target)
        try:
            self._ready.loaded = _loaded(process)
        except BaseException:
            process.end()
            raise
        self._ready.process = process

    def solve(self, instance: Any, limits: Limits, watch: Watch) -> Answer[Any]:
        """Run the function on an instance and judge what it reports; the clock starts when it is called."""
        judge = Judge(self._family, instance, self._target.name, self._claim, watch)
        process = self._ready.process
        failure = None if self._ready.loaded["kind"] == "loaded" else ("import", self._ready.loaded["words"])
        try:
            if failure is None:
                process.send((self._family.name, instance, limits))
                failure = self._follow(process, judge, watch)
        finally:
            process.end()
        stats = {"sha256": self._target.sha256()} if self._target.file else {}
        return judge.answer(failure, stats)

    def _follow(self, process: Process, judge: Judge, watch: Watch) -> tuple[str, str] | None:
        """Receive what the function reports until it returns; how it failed and the words for it, if it did."""
        for reply in process.replies(self._over(process, watch)):
            if reply["kind"] == "began":
                watch.start()
            elif reply["kind"] == "plan":
                judge.plan(reply["plan"])
            elif reply["kind"] == "bound":
                judge.bound(reply["value"])
            elif reply["kind"] == "failed":
                return "error", reply["words"]
            elif reply["kind"] == "returned":
                if reply["late"]:  # its watch ended a moment before ours
                    watch.stop(Stop.TIME_LIMIT)
                return judge.returned(reply["plan"])
        if watch.stopped():
            limit = "at the time limit" if watch.reason is Stop.TIME_LIMIT else "as the run was interrupted"
            return "stopped", f"its process was ended {limit}"
        return "error", f"its process {process.ending()}"

    def _over(self, process: Process, watch: Watch) -> Callable[[], bool]:
        """Whether the process is to be ended: at once, or with a watch after it was given the chance to return."""
        until: list[float] = []

        def over() -> bool:
            if not watch.stopped():
                return False
            if self._has_watch and not until:
                until.append(time.perf_counter() + GRACE_S)
                process.request_stop()
            return not until or time.perf_counter() > until[0]

        return over


class Judge:
    """What came of a run so far: the best plan that keeps all rules, a bound, and why other plans do not count."""

    def __init__(self, family: Family[Any, Any], instance: Any, name: str, claim: Claim, watch: Watch | None) -> None:
        self._family, self._instance, self._name, self._claim, self._watch = family, instance, name, claim, watch
        self._plan: Any = None
        self._objective: float | None = None
        self._bound: float | None = None
        self._remarks: list[str] = []

    def plan(self, content: Any) -> str:
        """Judge a plan in its JSON form; why it does not count, if it does not."""
        broken = self._kept(content)
        if broken:
            self._remark(f"reported {broken}")
        return broken

    def returned(self, content: Any) -> tuple[str, str] | None:
        """Judge what the function returned at its end; how it failed, if it did."""
        if content is None:
            return None if self._plan is not None else ("no_plan", "returned None, not a plan")
        broken = self._kept(content)
        return ("invalid_plan", f"returned {broken}") if broken else None

    def bound(self, value: float) -> None:
        """A bound that was reported."""
        self._bound = value if self._bound is None else max(value, self._bound)

    def answer(self, failure: tuple[str, str] | None, stats: Mapping[str, Any]) -> Answer[Any]:
        """The answer that `planner.run` gets: what is true of the run, and in words what is not."""
        reasons = [] if failure is None else [failure[1]]
        bound = self._bound
        if bound is not None and self._claim is not Claim.EXACT:
            self._remark(f"its bound {bound:.9g} does not count: it does not claim to be exact")
            bound = None
        if bound is not None and self._objective is not None and exceeds(bound, self._objective):
            self._remark(f"its bound {bound:.9g} does not count: its own plan has {self._objective:.9g}")
            bound = None
        stats = dict(stats) if failure is None else {**stats, "failure": failure[0]}
        return Answer(
            plan=self._plan,
            bound=bound,
            stop=Stop.COMPLETED,
            proved_by="" if bound is None else self._name,
            reason="; ".join([*reasons, *self._remarks]),
            stats=stats,
        )

    def _kept(self, content: Any) -> str:
        """Keep a plan if it is the best so far; why it is none of this instance, in words that continue "returned"."""
        family, instance = self._family, self._instance
        try:
            plan = family.plan_from_json(instance, content)
        except InstanceError as error:
            return f"what is no plan of this instance: {' '.join(str(error).split())}"
        violations = family.violations(instance, plan)
        if violations:
            more = f" and {len(violations) - 1} more" if len(violations) > 1 else ""
            return f"a plan that breaks {violations[0]}{more}"
        objective = family.evaluate(instance, plan)
        if not math.isfinite(objective):
            return f"a plan whose objective is {objective}"
        if self._objective is None or objective < self._objective:
            self._plan, self._objective = plan, objective
            if self._watch is not None:
                self._watch.plan(plan, objective)
        return ""

    def _remark(self, words: str) -> None:
        """Keep what should be known, once."""
        if not self._remarks:
            self._remarks.append(words)


def entered(family: Family[Any, Any], name: str, plan: str | Mapping[str, Any]) -> Method[Any, Any]:
    """A method that holds a plan which came from elsewhere, and does nothing else.

    Parameters
    ----------
    plan
        A file that holds it, or its JSON form, or a result object that holds it.

    Raises
    ------
    InstanceError
        If a file cannot be read, or holds no JSON object.
    UsageError
        If a method of the family has the name, or it is none.
    """
    if not name or "," in name or name in {AUTO, PORTFOLIO, *(method.name for method in family.methods)}:
        raise UsageError.at("--plan", name, f"a name that no method of {family.name} has")
    content = plan if isinstance(plan, Mapping) else read_plan(plan)
    holder = "the plan" if isinstance(plan, Mapping) else plan
    sha256 = hashlib.sha256(json.dumps(plain(content)).encode()).hexdigest()

    def solve(instance: Any, _limits: Limits, _watch: Watch) -> Answer[Any]:
        judge = Judge(family, instance, name, Claim.HEURISTIC, None)
        is_result = "plan" in content and "status" in content
        failure = judge.returned(content["plan"] if is_result else dict(content))
        if failure is not None:
            failure = failure[0], failure[1].replace("returned", f"{holder} holds", 1)
        return judge.answer(failure, {"sha256": sha256})

    everything = frozenset(quantity.name for quantity in family.vocabulary)
    return Method(name, Claim.HEURISTIC, _source(holder, sha256), solve, honours=everything)


def _source(place: str, sha256: str) -> str:
    """Where it comes from, and the beginning of the hash of what is there."""
    return f"{place}, SHA-256 {sha256[:12]}" if sha256 else place
