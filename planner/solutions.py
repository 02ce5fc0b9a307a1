"""Solutions that another solver found for a model that was written to a file: read, decoded, judged."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from formulations.family import Claim, Family, Method
from instances.errors import InstanceError, closest
from planner.inputs.reading import read_text
from planner.result import Result
from solvers.outcome import Status, Stop

#: A whole number may be off by this much, as solvers have tolerances.
_FRACTION = 1e-4
#: The objective that a file states may differ so much, relatively, from that of its values: they are printed rounded.
_OBJECTIVE = 1e-3
#: What follows the values of variables in a file of HiGHS or GLPK: those of the constraints.
_END = re.compile(r"#\s*(Rows|Dual)", re.IGNORECASE)
#: What comes before them in a file of HiGHS: how many lines there are.
_COUNT = re.compile(r"#\s*Columns\s+(\d{1,12})\s*$", re.IGNORECASE)
#: The objective as SCIP, Gurobi and CBC, or HiGHS state it.
_STATED = re.compile(r".*\bobjective value\s*[:=]?\s*(\S+)\s*$|Objective\s+(\S+)\s*$", re.IGNORECASE)
#: What only a name of a variable looks like, whatever the model: ``holds(5,2)``.
_INDEXED = re.compile(r"[a-z_]+\(\S*\)")
#: Longer words are no names, and are not compared with any.
_LONGEST = 200
#: A name stands among the first words of its line: CBC writes two marks before it.
_WORDS = 6
#: A name that is not known is compared with so many others.
_COMPARED = 10_000


def judged(family: Family[Any, Any], method: Method[Any, Any], instance: Any, built: Any, path: str) -> Result:
    """The plan of the solution in a file; arguments and errors as of `planner.open_model.OpenModel.read_solution`.

    The result has no bound, whatever the solver proved; ``reason`` says which rules a plan breaks (then it has none).
    """
    values, stated = _values(path, built.variables())
    _refuse_other(path, built, values, stated)
    try:
        plan = built.decode(built.solution_of(values))
        broken = family.violations(instance, plan)
    except (ArithmeticError, LookupError, RuntimeError, StopIteration, TypeError, ValueError) as error:
        raise InstanceError.at(path, "values", f"no plan ({error})", "a solution of this model") from None
    reason = "; ".join(map(str, broken))
    return Result(
        problem=family.name,
        instance=instance.name,
        method=method.name,
        claim=Claim.HEURISTIC.value,
        status=Status.UNKNOWN if broken else Status.FEASIBLE,
        stop=Stop.COMPLETED,
        objective=None if broken else family.evaluate(instance, plan),
        bound=None,
        gap=None,
        unit=family.unit(instance),
        seconds=0.0,
        reason=f"the solution's plan breaks {reason}" if broken else f"the plan of the solution in {path}",
        verified=not broken,
        plan=None if broken else family.plan_to_json(instance, plan),
        of=instance,
    )


@dataclass
class _Content:
    """What a file holds: names with what stands behind them, as they come, and the objective.

    ``missing`` is how many of the variables that a file says it has have no line; ``None`` where it does not say.
    """

    pairs: list[tuple[str, str]] = field(default_factory=list)
    objective: str | None = None
    missing: int | None = None


def _values(path: str, known: Mapping[str, Any]) -> tuple[dict[str, float], float | None]:
    """The value of every variable that the file names, and the objective that it states.

    `InstanceError` for a name or a number that cannot be, and for a file that is cut off.
    """
    text = read_text(Path(path))
    content = _of_xml(path, text) if text.lstrip().startswith("<") else _of_lines(path, text, known)
    found: dict[str, float] = {}
    for name, written in content.pairs:
        if name not in known:
            raise InstanceError.at(path, "a variable", name, f"one of this model{_closest(name[:_LONGEST], known)}")
        if name in found:
            raise InstanceError.at(path, name, "named twice", "one value of each variable")
        value = _number(path, name, written)
        if _is_whole(known[name]) and abs(value - round(value)) > _FRACTION:
            raise InstanceError.at(path, name, value, "a whole number")
        found[name] = value
    if not found:
        rule = f"lines of a name and a value, such as {next(iter(known), 'time')} 1"
        raise InstanceError.at(path, "content", "no value of a variable of this model", rule)
    if content.missing:
        rule = "as many as it states: it is cut off, or of another model"
        raise InstanceError.at(path, "content", f"without {content.missing} of its lines", rule)
    return found, None if content.objective is None else _number(path, "objective", content.objective)


def _closest(name: str, known: Mapping[str, Any]) -> str:
    """The closest of the names of the same group, of which so many are compared."""
    group = name.partition("(")[0] + "("
    return closest(name, islice((each for each in known if each.startswith(group)), _COMPARED))


def _number(path: str, name: str, written: str) -> float:
    try:
        value = float(written)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InstanceError.at(path, name, written, "a finite number")
    return value


def _of_xml(path: str, text: str) -> _Content:
    """As CPLEX writes it."""
    found = _Content()
    try:
        for _, element in ElementTree.iterparse(io.BytesIO(text.encode())):
            if element.tag == "header":
                found.objective = element.get("objectiveValue")
            if element.tag == "variable":
                found.pairs.append((element.get("name", ""), element.get("value", "")))
            element.clear()
    except ElementTree.ParseError as error:
        raise InstanceError.at(path, "content", f"no XML ({error})", "a whole file, as CPLEX writes it") from None
    return found


def _of_lines(path: str, text: str, known: Mapping[str, Any]) -> _Content:
    """As all others write it."""
    found = _Content()
    for line in text.splitlines():
        if line.startswith("#") and _END.match(line):
            break
        if found.missing is not None:
            found.missing -= 1
        words = line.split(maxsplit=_WORDS)[:_WORDS]
        place = 0 if words and words[0] in known else _place(words, known)
        if place is None:
            _head(found, line[:_LONGEST])
        elif place + 1 == len(words):
            raise InstanceError.at(path, words[place], "without a value", "a name and a value: the file is cut off")
        else:
            found.pairs.append((words[place], words[place + 1]))
    return found


def _place(words: list[str], known: Mapping[str, Any]) -> int | None:
    """Where the name of a variable stands in a line, if one does."""
    return next((place for place, word in enumerate(words) if word in known or _looks_like_one(word)), None)


def _looks_like_one(word: str) -> bool:
    return "(" in word and len(word) <= _LONGEST and _INDEXED.fullmatch(word) is not None


def _head(found: _Content, line: str) -> None:
    """A line that names no variable may state the objective, or the number of variables."""
    stated = _STATED.match(line) if "objective" in line.lower() else None
    if stated:
        found.objective = stated.group(1) or stated.group(2)
    counted = _COUNT.match(line) if line.startswith("#") else None
    if counted:
        found.missing = int(counted.group(1))


def _refuse_other(path: str, built: Any, values: Mapping[str, float], stated: float | None) -> None:
    """`InstanceError` if the file states another objective than its values have."""
    if stated is None:
        return
    own = built.objective_of(values)
    if abs(own - stated) > _OBJECTIVE * max(1.0, abs(own), abs(stated)):
        rule = f"{own:.9g}, which its values have: it is cut off, or of another model"
        raise InstanceError.at(path, "objective", stated, rule)


def _is_whole(variable: Any) -> bool:
    """Whether a variable is whole: every one of CP-SAT's is."""
    return not getattr(variable, "is_continuous", bool)()
