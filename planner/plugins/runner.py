"""The process of a brought function: it loads the function, and copies itself for every run.

`process.supervised` starts it, with the numbers of two pipes. Requests are the `Target`, with whether many runs
are to follow, and runs: problem, instance and limits; a byte after these stops the watch. Replies are lines of JSON, as
`planner.plugins.replies` has them.

What a run does to modules, to limits and to the folder it is in ends with its copy, and so do all processes that it
starts. A copy lacks threads and shares open files: where the import starts or opens some, there is one run, in the
process itself.
"""

import gc
import json
import math
import os
import random
import re
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from planner.process.supervisor import adopt_orphans, end_all, receive
from planner.process.target import LoadError, Target, also_taken, declaration, one_line, words

#: The planner takes no longer words.
_LONGEST = 1000


def main(requests: int, replies: int) -> None:
    """Load a function and serve its runs, until nobody requests more."""
    voice = _Voice(replies)
    target, serves_many = receive(requests)
    offered = import_module("planner")
    if serves_many:  # imported when a function first uses them: every copy would do it again
        for name in offered.__all__:
            getattr(offered, name)
        problems = [f"formulations.{family.name}" for family in import_module("formulations").FAMILIES]
        for module in (
            "networkx",
            "instances.validation",
            *problems,
        ):  # of any problem, as `planner.check` looks for it
            import_module(module)
    is_refused, before = bool(adopt_orphans()), _held()
    voice.say("started")
    state = random.getstate()
    try:
        function = target.load()
        also = also_taken(function, target.name)
        is_copied = not is_refused and before is not None and before == _held()
        voice.say("loaded", declared=dict(declaration(function)), takes=also, copied=is_copied)
    except LoadError as error:
        voice.say_words("refused", str(error))
        return
    except BaseException as error:  # what marks the function, or its signature, is none
        rule = "what planner.method declares of a function"
        voice.say_words("refused", f"{target.name}: declaration is {words(error)[: _LONGEST // 8]!r}; expected {rule}")
        return
    seeded = random.getstate()
    gc.freeze()  # a copy that looks for garbage in it would write to all of it
    while True:
        request = receive(requests)
        with suppress(ImportError):  # a problem that a user brings
            import_module(f"formulations.{request[0]}")
        copy = os.fork() if is_copied else 0
        if not copy:
            break
        voice.say("ended", code=_end_of(copy))
    if is_copied:
        os.setsid()
        _renew_random_numbers(None if seeded == state else seeded)
    _run(_Voice(replies), requests, target, function, also, *request)
    if is_copied:
        os._exit(0)  # without what threads and handlers of the end would take


def _end_of(copy: int) -> int:
    """The exit code of a copy, when it has ended with all that it started, whoever their parents were."""
    while (ended := os.waitpid(-1, 0))[0] != copy:
        pass
    if not end_all(copy):
        os._exit(1)
    return os.waitstatus_to_exitcode(ended[1])


def _held() -> tuple[int, list[str]] | None:
    """What a copy would lack or share: whether there are threads or children, and open files; ``None``: not known.

    Threads of OpenBLAS are left out: it ends and starts them itself when a process forks.
    """
    try:
        with open("/proc/self/maps") as maps:
            libraries = len({line.split()[-1] for line in maps if "openblas" in line})
        threads = len(os.listdir("/proc/self/task"))
        files = os.listdir("/proc/self/fd")
    except OSError:  # not Linux
        return None
    with suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return None
    return max(1, threads - libraries * ((os.cpu_count() or 1) - 1)), files


def _renew_random_numbers(seeded: Any) -> None:
    """Generators that the import did not seed give other numbers in every copy, as in every process."""
    if seeded is not None:
        random.setstate(seeded)  # Python has seeded it anew in this copy
    theirs = sys.modules.get("numpy.random")
    if theirs is not None and theirs.get_bit_generator().seed_seq is not None:
        theirs.seed()


def _run(
    voice: "_Voice",
    requests: int,
    target: Target,
    function: Callable[..., Any],
    also: tuple[str, ...],
    problem: str,
    instance: Any,
    limits: Any,
) -> None:
    """Call the function and say what comes of it."""
    watch = _watch(voice, problem, instance, limits)
    if also:
        threading.Thread(target=_stop_when_requested, args=(requests, watch), daemon=True).start()
    voice.say("began")
    watch.start()
    given = {"limits": limits, "watch": watch}
    try:
        returned = function(instance, **{name: given[name] for name in also})
    except BaseException as error:  # SystemExit as well: the planner reports it, whatever it is
        voice.say_words("failed", f"raised {words(error, target.file)}")
        return
    try:
        voice.say("returned", plan=_as_json(problem, instance, returned), late=watch.reason == "time_limit")
    except NoPlanError as error:
        voice.say_words("failed", f"returned {error}")
    except BaseException as error:  # what an object of the user's class does when it is looked at
        voice.say_words("failed", f"returned what cannot be read: {words(error)}")


class NoPlanError(TypeError):
    """What was returned or reported is no plan; the message continues "returned"."""


class _Voice:
    """Sends replies; a process that the function forked has none."""

    def __init__(self, replies: int) -> None:
        self._replies, self._owner, self._lock = replies, os.getpid(), threading.Lock()

    def say_words(self, kind: str, words: str) -> None:
        """A reply of words alone: in one line, as long as the planner takes them."""
        self.say(kind, words=one_line(words)[:_LONGEST])

    def say(self, kind: str, **more: Any) -> None:
        """A reply, in a line of JSON."""
        if os.getpid() != self._owner:
            os._exit(0)  # a copy of this process has come to the end of the function
        try:
            line = json.dumps({"kind": kind, **more}, allow_nan=False, default=_plain).encode() + b"\n"
        except (ValueError, TypeError, RecursionError) as error:  # NaN, keys that are no texts, cycles
            raise NoPlanError(f"what is no JSON: {' '.join(str(error).split())}") from None
        with self._lock:
            while line:
                line = line[os.write(self._replies, line) :]


def _watch(voice: _Voice, problem: str, instance: Any, limits: Any) -> Any:
    """A watch that sends what it is given."""
    from solvers.outcome import Watch

    class Sending(Watch):
        def plan(self, plan: Any, objective: float | None = None) -> None:
            """Report a plan; worse ones than the best are ignored, if the objective is given."""
            if objective is not None:
                if self.best_objective is not None and objective >= self.best_objective:
                    return
                super().plan(plan, objective)
            voice.say("plan", plan=_as_json(problem, instance, plan))

        def bound(self, value: float, by: str = "") -> None:
            """Report a proved lower bound."""
            if math.isfinite(value) and (self.best_bound is None or value > self.best_bound):
                super().bound(value, by)
                voice.say("bound", value=float(value))

    return Sending(limits)


def _as_json(problem: str, instance: Any, plan: Any) -> Any:
    """A plan in its JSON form: a mapping as it is, of a result its plan, an object as its family writes it."""
    from planner.results.result import Result

    if isinstance(plan, Result):
        plan = plan.plan
    if plan is None or isinstance(plan, Mapping):
        return plan
    form: Any = None
    with suppress(Exception):  # whatever it is, it is no plan
        form = import_module(f"formulations.{problem}").FAMILY.plan_to_json(instance, plan)
    if not isinstance(form, Mapping):
        raise NoPlanError(f"{_repr(plan)}, which is no plan of {problem}")
    return form


def _repr(value: Any) -> str:
    """A value in a reason: one line, without its address, so that the same fault has the same reason in every run."""
    try:
        text = str(repr(value))
    except BaseException:
        text = f"an object of {type(value).__name__}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", " ".join(text.split()))[:80]


def _plain(value: Any) -> Any:
    """Other mappings and sequences, and numbers of numpy, in types that JSON has."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "__iter__"):
        return list(value)
    raise TypeError(f"{_repr(value)} in a plan")


def _stop_when_requested(requests: int, watch: Any) -> None:
    from solvers.outcome import Stop

    if os.read(requests, 1):
        watch.stop(Stop.INTERRUPTED)
