"""What to start from: a commented blank for a method, which runs as it stands, and a small instance to be edited."""

import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any, get_args, get_type_hints

from formulations.contract.family import Claim, Family
from instances.catalog.entry import SEED
from planner.files.load import catalog, examples_of, family_named
from planner.files.write import plain

_WIDTH = 100

_TEXT = '''\
"""A method of {problem}. As it stands it returns {start_words}: replace that.

    planner solve {example} --method ./mine.py:solve --compare
    planner crosscheck {example} --methods exact,./mine.py:solve
{population}
It runs in a process of its own, which is ended at the time limit. Whatever goes wrong is a result with a reason, and
what it prints is in the result (stats.printed). Plans are judged by the definition of {problem} alone.
"""

import planner

# What an instance holds
# ----------------------
{instance}
#
# What a plan is
# --------------
{plan}


# With this line a bound that is reported (watch.bound) counts as a proof; without it the method is a heuristic.
# @planner.method("{problem}", name="mine", claim="exact")
def solve(instance, limits, watch):
    """A plan of the instance; `def solve(instance)` is enough for a function that needs no limits and no watch.

    limits.time_s (None: no limit) and limits.seed are those of the run. watch.plan(plan) reports a plan as soon as
    there is one, and may be called again for a better one; return when watch.stopped().
    """
    # Replace this by a method of yours.
    plan = planner.solve(instance, {start}limits=limits).plan

    # The definition says what a plan is worth: verdict.objective, and verdict.violations if it breaks a rule.
    if plan is not None:
        verdict = planner.check(instance, plan)
        if verdict.feasible:
            watch.plan(plan)
    return plan
'''


def blank(problem: str) -> str:
    """The text of a Python file with a method of the problem that runs as it stands; `UsageError`: no such problem."""
    family = family_named(problem)
    example, instance = next(examples_of(family))
    heuristic = next((method.name for method in family.methods if method.claim is Claim.HEURISTIC), None)
    drawn = next((each for each in catalog().values() if each.family == problem and SEED in each.parameters), None)
    many = (
        ""
        if drawn is None
        else f"    planner validate '{drawn.name}:seed=1..100' --methods ./mine.py:solve --out run\n"
    )
    return _TEXT.format(
        problem=problem,
        population=many,
        example=example,
        start="" if heuristic is None else f'method="{heuristic}", ',
        start_words="what the planner chooses" if heuristic is None else f"the plan of {heuristic}",
        instance="\n".join(_classes(type(instance))),
        plan=_comment(_form(family)),
    )


def template(problem: str) -> str:
    """A small instance of the problem as indented JSON, with every key that its file has a use for; `UsageError`."""
    family = family_named(problem)
    return min((json.dumps(plain(family.to_json(each)), indent=1) for _, each in examples_of(family)), key=len)


def _form(family: Family[Any, Any]) -> str:
    """What the JSON form of a plan is, in words."""
    said = (inspect.getdoc(family.plan_to_json) or "").partition("\n\n")[0].replace("``", "")
    more = f"A dict of the form that docs/problems/{family.name}.md has under Files"
    return f"{more}: {said}" if said else f"{more}."


def _classes(first: type) -> Iterator[str]:
    """Every dataclass that an instance consists of: its words, its fields with their types, and its properties."""
    left: list[Any] = [first]
    seen: set[Any] = {first}
    while left:
        own = left.pop(0)
        words = (inspect.getdoc(own) or "").partition("\n\n")[0]
        yield _comment(f"{own.__name__}: {words}")
        hints = get_type_hints(own)
        for each in fields(own):
            yield f"#   {each.name}: {_type_name(hints[each.name])}"
            for part in _parts(hints[each.name]):
                if is_dataclass(part) and part not in seen:
                    seen.add(part)
                    left.append(part)
        for name, value in vars(own).items():
            if isinstance(value, property | cached_property):
                function = value.fget if isinstance(value, property) else value.func
                yield _comment(f"{name}: {(inspect.getdoc(function) or '').partition(chr(10))[0]}", "#   ")


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        yield from _parts(part)


def _type_name(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    text = re.sub(r"typing\.Optional\[(.*)\]$", r"\1 | None", text)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)


def _comment(text: str, head: str = "# ") -> str:
    return textwrap.fill(" ".join(text.split()), _WIDTH, initial_indent=head, subsequent_indent=head + "  ")
