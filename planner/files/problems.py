"""Problems that users bring: a `Problem` in a file (``FILE.py:PROBLEM``), or of an installed package.

A file is imported in a process of its own first: one that hangs, ends its process or has no such problem is refused in
one sentence. After that it defines what is true of its problem, and is imported here.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import cache
from typing import Any

import formulations
from formulations.contract.family import Family
from formulations.contract.problem import Problem
from planner.process.errors import UsageError
from planner.process.signals import pending
from planner.process.target import LoadError, Target, absolute, in_file

#: Installed packages name their problems in this group of entry points.
GROUP = "dnn_planner.problems"
#: Seconds that importing a file may take.
IMPORT_S = 60.0

#: What was brought, by what names it.
_BROUGHT: dict[str, Family[Any, Any]] = {}


def load_problem(name: str) -> Family[Any, Any] | None:
    """The problem that ``FILE.py:PROBLEM`` or an installed package's name stands for; ``None``: it is neither.

    `UsageError` if the file cannot be imported or has no such problem, or another problem has its name.
    """
    known = absolute(name)
    if known not in _BROUGHT:
        target = in_file(name, "--problem", "FILE.py:PROBLEM") or installed_problems().get(name)
        if target is None:
            return None
        _examine(target)
        try:
            with redirect_stdout(sys.stderr):
                problem = problem_of(target)
        except LoadError as error:
            raise UsageError(str(error)) from None
        if not any(family is problem.family for family in formulations.FAMILIES):
            raise UsageError.at("--problem", name, f"a problem with a name of its own; {problem.name} is another's")
        _BROUGHT[known] = problem.family
    return _BROUGHT[known]


def address(problem: str) -> str:
    """What another process finds a problem by: what it was brought by, else its name."""
    return next((known for known, family in _BROUGHT.items() if family.name == problem), problem)


@cache
def installed_problems() -> Mapping[str, Target]:
    """The problems that installed packages offer, by name."""
    from importlib import metadata

    points = metadata.entry_points(group=GROUP)
    return {point.name: Target(point.name, module=point.module, function=point.attr) for point in points}


def problem_of(target: Target) -> Problem:
    """The problem itself: this runs the user's code; `LoadError` if there is none."""
    home = target.home()
    found = getattr(home, target.function, None)
    if not isinstance(found, Problem):
        known = [name for name, value in vars(home).items() if isinstance(value, Problem)]
        rule = f"one of {', '.join(known)}" if known else "a Problem that it has; there is none"
        raise LoadError(f"{target.place}: problem is {target.function!r}; expected {rule}")
    return found


def _examine(target: Target) -> None:
    """Import it in a process of its own; `UsageError` if that fails."""
    from planner.process.supervised import Supervised

    process = Supervised("planner.files.problems", target.name)
    try:
        process.send(target)
        until = time.perf_counter() + IMPORT_S
        for line in process.replies(lambda: time.perf_counter() > until or pending() is not None):
            said = json.loads(line)
            if said:
                raise UsageError(said)
            return
        if time.perf_counter() > until:
            raise UsageError(f"{target.name}: import takes more than {IMPORT_S:g} s")
        raise UsageError(f"{target.name}: the process that imports it {process.last_words()}")
    except json.JSONDecodeError:
        raise UsageError(f"{target.name}: the process that imports it sent what is no reply") from None
    finally:
        process.end()


def main(requests: int, replies: int) -> None:
    """What that process does: it says what is wrong with the problem, or nothing."""
    from planner.process.supervisor import receive

    target = receive(requests)
    try:
        problem_of(target)
        said = ""
    except LoadError as error:
        said = str(error)
    os.write(replies, json.dumps(said).encode() + b"\n")
