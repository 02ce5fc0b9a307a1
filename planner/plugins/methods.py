"""From what a user named to a `Method`: a function in a process of its own, or a plan that came from elsewhere.

Nothing is believed. Plans are judged by the definition before `solving.solve` sees them: one that breaks a rule is a
result with a reason, not a contradiction. A bound counts where the function claims to be exact.
"""

import errno
import hashlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from formulations.contract.family import Answer, Claim, Family, Method
from instances.errors import InstanceError
from planner.files.write import plain
from planner.plugins import registry
from planner.plugins.method_names import AUTO, PORTFOLIO
from planner.plugins.replies import (
    Began,
    Bound,
    Declared,
    Ended,
    Failed,
    Loaded,
    Plan,
    Refused,
    Reply,
    ReplyError,
    Returned,
    Started,
    parse_reply,
)
from planner.process import idle
from planner.process.errors import UsageError
from planner.process.signals import pending
from planner.process.supervised import Supervised
from planner.process.target import Target, also_taken, declaration, words
from planner.results.check import exceeds, read_plan
from solvers.outcome import Limits, Stop, Watch

#: Seconds that importing a file or module may take.
IMPORT_S = 60.0
#: Seconds that a process may take until it can import anything, which on a busy machine are some.
_START_S = 60.0
#: So many processes that cannot begin show that none can.
_STARTS = 3
#: Seconds that a run may take to end after its function has returned; then its process is replaced.
END_S = 1.0
#: Seconds that a function with a watch has to return when it is stopped, before it is ended.
GRACE_S = 0.2
#: Seconds from sending an instance to the call of the function that do not count; later the clock is not started again.
BEGIN_S = 2.0
#: What is kept of what a function prints: the end.
_PRINTED = 2000


def load_method(family: Family[Any, Any], name: str) -> Method[Any, Any] | None:
    """The method of this name that was registered or installed, or ``FILE.py:FUNCTION``; ``None``: there is none.

    `UsageError` if the file cannot be imported, has no such function, or its function cannot be called with an
    instance, or is declared as one of another problem.
    """
    function = registry.functions_of(family.name).get(name)
    if function is not None:
        return _method(
            family, registry.pickle_by_value(name, function), declaration(function), also_taken(function, name)
        )
    target = _target(name)
    if target is None:
        return None
    loaded = _load_target(target)
    return _method(family, target, loaded.declared.model_dump(exclude_none=True), loaded.takes)


#: What was found by a name, for when a file disappears while methods are run on many instances.
_FOUND: dict[str, Target] = {}


def _target(name: str) -> Target | None:
    """Where a function is, with the text of its file, which is read once for all runs of a method."""
    known = os.path.abspath(name)
    try:
        target = registry.target_of(name)
    except UsageError:
        if known not in _FOUND:
            raise
        return _FOUND[known]
    if target is not None and target.file:
        _FOUND[known] = target
    return target


def _method(
    family: Family[Any, Any], target: Target, declared: Mapping[str, str], takes: tuple[str, ...]
) -> Method[Any, Any]:
    problem = declared.get("problem", family.name)
    if problem != family.name:
        raise UsageError(f"{target.name}: problem is {problem!r}; expected {family.name}, of which the instance is one")
    claim = Claim(declared.get("claim", Claim.HEURISTIC))
    running = _Running(family, target, claim, "watch" in takes)
    everything = frozenset(quantity.name for quantity in family.vocabulary)  # the definition judges requirements
    source = _source(target.place or "this process", target.sha256)
    return Method(
        target.name, claim, source, running.solve, prepare=running.prepare, finish=running.finish, honours=everything
    )


#: What is known of functions.
_KNOWN: dict[Target, Loaded] = {}


def _load_target(target: Target) -> Loaded:
    """What the process that loads a function says of it; `UsageError` if it cannot be loaded."""
    if target in _KNOWN:
        return _KNOWN[target]
    process, reply = _start(target)
    if isinstance(reply, Loaded):
        idle.leave(target, process)
        return reply
    if pending() is not None:  # it is interrupted anyway
        return Loaded(declared=Declared(), takes=())
    raise UsageError(reply.words)


def _start(target: Target) -> tuple[Supervised, Loaded | Refused]:
    """A process that has imported a function, and what it says of it.

    `OSError` where `_STARTS` processes ended before anything of the user's ran in them: that is no fault of a method.
    """
    for _ in range(_STARTS):
        try:
            process = Supervised("planner.plugins.runner", target.name)
        except OSError as error:  # there are too many processes, or files, or too little memory
            said = str(error)
            continue
        try:
            process.send((target, idle.serves_many()))
            reply = _await_load(process)
            said = process.last_words()
        except BaseException:
            process.end()
            raise
        if isinstance(reply, Loaded):
            _KNOWN[target] = reply
            return process, reply
        process.end()
        if reply is not None:
            return process, reply
    raise OSError(errno.EAGAIN, f"{target.name}: {_STARTS} processes for it could not begin; the last one {said}")


def _await_load(process: Supervised) -> Loaded | Refused | None:
    """What a process says of its function; ``None``: it could not even begin to import it."""
    importing = f"{process.name}: the process that imports it"
    try:
        if _next_reply(process, _START_S) is None and pending() is None:
            return None
        reply = _next_reply(process, IMPORT_S)
    except ReplyError as error:
        return Refused(words=f"{importing} {_NO_REPLY}: {error}")
    if isinstance(reply, Loaded | Refused):
        return reply
    if reply is not None:
        return Refused(words=f"{importing} {_NO_REPLY}: {reply.kind} before the function is loaded")
    if process.ending():
        return Refused(words=f"{importing} {process.last_words()}")
    return Refused(words=f"{process.name}: import takes more than {IMPORT_S:g} s")


def _next_reply(process: Supervised, seconds: float) -> Reply | None:
    """The next reply, if one comes within so many seconds and before a signal; `ReplyError` for what is none."""
    until = time.perf_counter() + seconds
    for line in process.replies(lambda: time.perf_counter() > until or pending() is not None):
        return parse_reply(line)
    return None


_NO_REPLY = "sent what is no reply"


class _Running:
    """A function with the processes that run it, which are there before the clock starts."""

    def __init__(self, family: Family[Any, Any], target: Target, claim: Claim, has_watch: bool) -> None:
        self._family, self._target, self._claim, self._has_watch = family, target, claim, has_watch
        self._ready = threading.local()

    def prepare(self) -> None:
        """Have a process that has imported the function: one that waits, or a new one."""
        self._ready.may_wait = False
        process = idle.take(self._target)
        self._ready.process, self._ready.loaded = (
            _start(self._target) if process is None else (process, _KNOWN[self._target])
        )

    def solve(self, instance: Any, limits: Limits, watch: Watch) -> Answer[Any]:
        """Run the function on an instance and judge what it reports; the clock starts when it is called.

        `finish` waits for the end of all that it started: that may take longer than all of this.
        """
        judge = Judge(self._family, instance, self._target.name, self._claim, watch)
        process, loaded = self._ready.process, self._ready.loaded
        if isinstance(loaded, Refused):
            failure: tuple[str, str] | None = ("import", loaded.words)
        else:
            process.send((self._family.name, instance, limits))
            failure = self._follow(process, judge, watch)
        stats = {"sha256": self._target.sha256} if self._target.file else {}
        if printed := process.output_tail():
            stats["printed"] = printed[-_PRINTED:]
        if process.note:
            stats["supervision"] = process.note
        return judge.answer(failure, stats)

    def finish(self) -> None:
        """Let the process wait for the next run if this one has ended as it should; else end it."""
        process = getattr(self._ready, "process", None)
        if process is None:
            return
        if self._ready.may_wait and _has_ended_well(process):
            idle.leave(self._target, process)
        else:
            process.end()

    def _follow(self, process: Supervised, judge: "Judge", watch: Watch) -> tuple[str, str] | None:
        """Receive what the function reports until it returns; how it failed and the words for it, if it did."""
        has_begun = False
        try:
            for line in process.replies(self._over(process, watch)):
                reply = parse_reply(line)
                if isinstance(reply, Ended):
                    return "error", f"its process {process.last_words(reply.code)}"
                if isinstance(reply, Started | Loaded | Refused) or has_begun == isinstance(reply, Began):
                    raise ReplyError(f"{reply.kind} {'after' if has_begun else 'before'} began")
                has_begun = True
                if isinstance(reply, Failed | Returned):
                    self._ready.may_wait = self._ready.loaded.copied and not watch.stopped()
                    return self._end_failure(reply, judge, watch)
                self._take(reply, judge, watch)
        except ReplyError as error:
            return "error", f"its process {_NO_REPLY}: {error}"
        if watch.stopped():
            limit = "at the time limit" if watch.reason is Stop.TIME_LIMIT else "as the run was interrupted"
            return "stopped", f"its process was ended {limit}"
        return "error", f"its process {process.last_words()}"

    @staticmethod
    def _take(reply: Reply, judge: "Judge", watch: Watch) -> None:
        if isinstance(reply, Began):
            if watch.elapsed_s() <= BEGIN_S:
                watch.start()
        elif isinstance(reply, Plan):
            judge.plan(reply.plan)
        elif isinstance(reply, Bound):
            judge.bound(reply.value)

    @staticmethod
    def _end_failure(reply: Failed | Returned, judge: "Judge", watch: Watch) -> tuple[str, str] | None:
        if isinstance(reply, Failed):
            return "error", reply.words
        if reply.late:  # its watch ended a moment before ours
            watch.stop(Stop.TIME_LIMIT)
        return judge.judge_end(reply.plan)

    def _over(self, process: Supervised, watch: Watch) -> Callable[[], bool]:
        """Whether the process is to be ended: at once, or with a watch after it was given the chance to return."""
        until: list[float] = []

        def over() -> bool:
            if not watch.stopped():
                return False
            if self._has_watch and not until:
                until.append(time.perf_counter() + GRACE_S)
                process.send_bytes(b"s")
            return not until or time.perf_counter() > until[0]

        return over


def _has_ended_well(process: Supervised) -> bool:
    """Whether the copy for a run ends by itself, soon, and says nothing more."""
    try:
        return _next_reply(process, END_S) == Ended(kind="ended", code=0)
    except ReplyError:
        return False


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
        broken = self._keep(content)
        if broken:
            self._remark(f"reported {broken}")
        return broken

    def judge_end(self, content: Any) -> tuple[str, str] | None:
        """Judge what the function returned at its end; how it failed, if it did."""
        if content is None:
            return None if self._plan is not None else ("no_plan", "returned None, not a plan")
        broken = self._keep(content)
        return ("invalid_plan", f"returned {broken}") if broken else None

    def bound(self, value: float) -> None:
        """A bound that was reported."""
        self._bound = value if self._bound is None else max(value, self._bound)

    def answer(self, failure: tuple[str, str] | None, stats: Mapping[str, Any]) -> Answer[Any]:
        """The answer that `planner.solving.solve` gets: what is true of the run, and in words what is not."""
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

    def _keep(self, content: Any) -> str:
        """Keep a plan if it is the best so far; why it is none of this instance, in words that continue "returned"."""
        try:
            return self._judge(content)
        except InstanceError as error:
            return f"what is no plan of this instance: {' '.join(str(error).split())}"
        except Exception as error:  # a plan that nobody has thought of; no other method's row is lost for it
            return f"what the definition of {self._family.name} cannot judge: {words(error)}"

    def _judge(self, content: Any) -> str:
        family, instance = self._family, self._instance
        plan = family.plan_from_json(instance, content)
        violations = family.judge(instance, plan)
        if violations:
            more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
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


def plan_as_method(family: Family[Any, Any], name: str, plan: str | Mapping[str, Any]) -> Method[Any, Any]:
    """A method that holds a plan which came from elsewhere, and does nothing else.

    ``plan``: a file that holds it, or its JSON form, or a result object that holds it. `InstanceError` if a file cannot
    be read, or holds no JSON object; `UsageError` if a method of the family has the name, or it is none.
    """
    if not name or "," in name or name in {AUTO, PORTFOLIO, *(method.name for method in family.methods)}:
        raise UsageError.at("--plan", name, f"a name that no method of {family.name} has")
    content = plan if isinstance(plan, Mapping) else read_plan(plan)
    holder = "the plan" if isinstance(plan, Mapping) else plan
    sha256 = hashlib.sha256(json.dumps(plain(content)).encode()).hexdigest()

    def solve(instance: Any, _limits: Limits, _watch: Watch) -> Answer[Any]:
        judge = Judge(family, instance, name, Claim.HEURISTIC, None)
        is_result = "plan" in content and "status" in content
        failure = judge.judge_end(content["plan"] if is_result else dict(content))
        if failure is not None:
            failure = failure[0], failure[1].replace("returned", f"{holder} holds", 1)
        return judge.answer(failure, {"sha256": sha256})

    everything = frozenset(quantity.name for quantity in family.vocabulary)
    return Method(name, Claim.HEURISTIC, _source(holder, sha256), solve, honours=everything)


def _source(place: str, sha256: str) -> str:
    """Where it comes from, and the beginning of the hash of what is there."""
    return f"{place}, SHA-256 {sha256[:12]}" if sha256 else place
