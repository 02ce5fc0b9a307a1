"""Solutions that another solver found for a model that was written to a file: read, decoded, judged."""

import io
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from glob import escape
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from formulations.contract.family import Claim, Family, Method
from instances.errors import InstanceError, closest
from instances.files import read_lines
from planner.files.read import read_object
from planner.results.result import Result, own_terms
from solvers.inspection import plain
from solvers.outcome import Status, Stop

#: A whole number may be off by this much, as solvers have tolerances.
_FRACTION = 1e-4
#: The objective that a file states may differ so much, relatively, from that of its values: they are printed rounded.
_OBJECTIVE = 1e-3
#: How a file of HiGHS begins; what it says of the run ends with the number of lines of variables, after which come
#: these alone, and then the constraints.
_HIGHS = "Model status"
_COUNT = re.compile(r"#\s*Columns\s+(\d{1,12})\s*$", re.IGNORECASE)
_END = re.compile(r"#\s*(Rows|Dual)", re.IGNORECASE)
#: How solvers say that there is no solution: behind `solution status:`, or in a line of its own.
_INFEASIBLE = re.compile(r"^[ \t]*(?:solution status:[ \t]*)?(?:integer )?infeasible\b", re.IGNORECASE | re.MULTILINE)
#: The objective as SCIP, Gurobi and CBC, or HiGHS state it: alone, in a comment, or behind how the run ended.
_STATED = re.compile(r"(?:#.*|.* - )?\bobjective value\s*[:=]?\s*(\S+)\s*$|Objective\s+(\S+)\s*$", re.IGNORECASE)
#: What else SCIP and others write where no variable stands.
_HEAD = re.compile(r"#.*|=+|solution status:.*|no solution available|primal solution.*:", re.IGNORECASE)
#: What may follow a value: SCIP's share of the objective, CBC's reduced cost.
_BEHIND = re.compile(r"\(obj:\S*\)")
#: CBC's mark of a value outside its tolerances.
_MARK = "**"
#: The value of objectives' constants in files of models (`solvers.milp.linear`), whose solutions name it.
_CONSTANT = "objective_constant"
#: Longer names and beginnings of lines are no such words, and lines have no more words.
_LONGEST, _WORDS = 200, 8
#: So much of another line is shown.
_SHOWN = 60
#: A name that is not known is compared with so many others.
_COMPARED = 10_000


def plan_in_file(
    family: Family[Any, Any],
    method: Method[Any, Any],
    instance: Any,
    built: Any,
    path: str,
    own_unit: tuple[str, float] | None = None,
    *,
    complete: bool = True,
) -> Result:
    """The plan of the solution in a file; arguments and errors as of `OpenModel.read_solution`.

    The result has no bound, whatever the solver proved; ``reason`` says which rules a plan breaks (then it has none).
    ``own_unit``: the unit and scale of an objective of the user's own, if the model has one. ``complete``: the model's.
    """
    try:
        values, stated = _values(path, built.variables())
        _refuse_other(path, built, values, stated)
    except _OtherModelError as error:
        raise InstanceError(f"{error}{_written_as(path, method.name, complete)}") from None
    try:
        plan = built.decode(built.solution_of(values))
        broken = family.judge(instance, plan)
    except (ArithmeticError, LookupError, RuntimeError, StopIteration, TypeError, ValueError) as error:
        raise InstanceError.at(path, "values", f"no plan ({error})", "a solution of this model") from None
    reason = "; ".join(map(str, broken))
    own = None
    if own_unit is not None:
        unit, scale = own_unit
        own = own_terms(None if broken else scale * built.objective_of(values), None, unit, is_infeasible=False)
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
        own=own,
        of=instance,
        own_plan=None if broken else plan,
    )


class _OtherModelError(InstanceError):
    """A file that may be right for another model."""


def _written_as(path: str, method: str, complete: bool) -> str:
    """What a model's file beside a solution says that it was written of, if that is another one than this."""
    sidecars = Path(path).parent.glob(f"{escape(Path(path).stem)}.*.json")
    for beside in sorted(sidecars):
        with suppress(InstanceError, OSError):  # it may be another file than a model's
            content = read_object(str(beside), "what a model's file means")
            written = content.get("method"), content.get("complete")
            if None not in written and written != (method, complete):
                options = f"--method {written[0]} {'with' if written[1] else 'without'} --complete"
                return f"; {beside.name} was written by {options}, which --read needs as well"
    return "" if complete else "; a model written by --complete needs it to be read as well"


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
    text = read_lines(Path(path))
    content = _of_xml(path, text) if text.lstrip().startswith("<") else _of_lines(path, text, known)
    found: dict[str, float] = {}
    for name, written in content.pairs:
        if name not in known and name != _CONSTANT:
            raise _unknown(path, name, known)
        value = _number(path, name, written)
        if name == _CONSTANT:
            continue
        if plain(name) in found:
            raise InstanceError.at(path, name, "named twice", "one value of each variable")
        if _is_whole(known[name]) and abs(value - round(value)) > _FRACTION:
            raise InstanceError.at(path, name, value, "a whole number")
        found[plain(name)] = value
    if not found and (ended := _INFEASIBLE.search(text)):
        raise InstanceError.at(path, "content", ended[0].strip(), "a solution: the solver found the model infeasible")
    if not found and known:
        raise InstanceError.at(path, "content", "no value of a variable of this model", _rule(known))
    if content.missing:
        rule = "as many as it states: it is cut off, or of another model"
        raise InstanceError.at(path, "content", f"without {content.missing} of its lines", rule)
    return found, None if content.objective is None else _number(path, "objective", content.objective)


def _rule(known: Mapping[str, Any]) -> str:
    return f"lines of a name and a value, such as {next(iter(known), 'time')} 1"


def _unknown(path: str, name: str, known: Mapping[str, Any]) -> InstanceError:
    return _OtherModelError.at(
        path, "a variable", name[:_LONGEST], f"one of this model{_closest(name[:_LONGEST], known)}"
    )


def _closest(name: str, known: Mapping[str, Any]) -> str:
    """The closest of the names of the same group, or of the group with the closest name; so many are compared."""
    groups = dict.fromkeys(each.partition("(")[0] for each in known)
    group = name.replace("[", "(").partition("(")[0]
    if group not in groups:
        group = next(iter(get_close_matches(group, groups, n=1)), "")
    return closest(name, islice((each for each in known if each.partition("(")[0] == group), _COMPARED))


def _number(path: str, name: str, written: str) -> float:
    try:
        value = float(written)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InstanceError.at(path, name, written, "a finite number")
    return value


def _of_xml(path: str, text: str) -> _Content:
    """As CPLEX writes it; whatever has a name and a value, but for the objective, is taken for a variable."""
    found = _Content()
    try:
        for _, element in ElementTree.iterparse(io.BytesIO(text.encode())):
            if element.tag == "header":
                found.objective = element.get("objectiveValue")
            named = "name" in element.keys() and "value" in element.keys()  # noqa: SIM118 - an element is no mapping
            if element.tag == "variable" or (named and element.tag != "objective"):
                found.pairs.append((element.get("name", ""), element.get("value", "")))
            element.clear()
    except ElementTree.ParseError as error:
        raise InstanceError.at(path, "content", f"no XML ({error})", "a whole file, as CPLEX writes it") from None
    return found


def _of_lines(path: str, text: str, known: Mapping[str, Any]) -> _Content:
    """As all others write it: each line has a variable and its value, or is one that these solvers write beside them.

    `InstanceError` for any other line.
    """
    found, lines = _Content(), [line.strip() for line in text.splitlines()]
    of_highs = next(filter(None, lines), "") == _HIGHS
    for line in filter(None, lines):
        counted = _COUNT.match(line[:_LONGEST])
        if counted:
            found.missing = int(counted.group(1))
        elif found.missing is not None and _END.match(line):
            break
        elif stated := _STATED.match(line[:_LONGEST]):
            found.objective = stated.group(1) or stated.group(2)
        elif not _HEAD.match(line[:_LONGEST]) and not (of_highs and found.missing is None):
            found.pairs.append(_pair(path, line, known))
            if found.missing is not None:
                found.missing -= 1
    return found


def _pair(path: str, line: str, known: Mapping[str, Any]) -> tuple[str, str]:
    """The variable of a line and its value, as text; CBC writes a mark and a number before them."""
    words = line.split(maxsplit=_WORDS)[:_WORDS]
    place = next((place for place, word in enumerate(words) if word != _MARK and not word.isdigit()), 0)
    name, *behind = words[place:]
    if name in known and not behind:
        raise InstanceError.at(path, name, "without a value", "a name and a value: the file is cut off")
    if name not in known and name != _CONSTANT and behind and _is_number(behind[0]):
        raise _unknown(path, name, known)
    if not behind or not all(_is_number(word) or _BEHIND.fullmatch(word) for word in behind[name in known :]):
        raise InstanceError.at(path, "a line", line[:_SHOWN], _rule(known) + _closest(name[:_SHOWN], known))
    return name, behind[0]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _refuse_other(path: str, built: Any, values: Mapping[str, float], stated: float | None) -> None:
    """`InstanceError` if the file states another objective than its values have."""
    if stated is None:
        return
    own = built.objective_of(values)
    if abs(own - stated) > _OBJECTIVE * max(1.0, abs(own), abs(stated)):
        rule = f"{own:.9g}, which its values have: it is cut off, or of another model"
        raise _OtherModelError.at(path, "objective", stated, rule)


def _is_whole(variable: Any) -> bool:
    """Whether a variable is whole: every one of CP-SAT's is."""
    return not getattr(variable, "is_continuous", bool)()
