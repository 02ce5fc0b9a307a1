"""Solutions that another solver found for a model that was written to a file: read, decoded, judged."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from formulations.family import Claim, Family, Method
from instances.errors import InstanceError, closest
from planner.inputs.reading import read_text
from planner.result import Result
from solvers.outcome import Status, Stop

#: A whole number may be off by this much, as solvers have tolerances.
_FRACTION = 1e-4
#: What follows the values of variables in a file of HiGHS or GLPK: those of the constraints.
_END = re.compile(r"^#\s*(Rows|Dual)", re.IGNORECASE)
#: CPLEX writes XML.
_XML = re.compile(r'<variable\s+name="([^"]+)".*?\bvalue="([^"]+)"')
#: What only a name of a variable looks like, whatever the model: ``holds(5,2)``.
_INDEXED = re.compile(r"[a-z_]+\(.+\)")


def judged(family: Family[Any, Any], method: Method[Any, Any], instance: Any, built: Any, path: str) -> Result:
    """The plan of the solution in a file; arguments and errors as of `planner.open_model.OpenModel.read_solution`.

    The result has no bound, whatever the solver proved; ``reason`` says which rules a plan breaks (then it has none).
    """
    values = _values(path, built.variables())
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
    )


def _values(path: str, known: Mapping[str, Any]) -> dict[str, float]:
    """The value of every variable that the file names; `InstanceError` for a name or a number that cannot be."""
    found: dict[str, float] = {}
    for name, written in _named(read_text(Path(path)), known):
        if name not in known:
            raise InstanceError.at(path, "a variable", name, f"one of this model{closest(name, known)}")
        try:
            value = float(written)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InstanceError.at(path, name, written, "a finite number")
        if _is_whole(known[name]) and abs(value - round(value)) > _FRACTION:
            raise InstanceError.at(path, name, value, "a whole number")
        found[name] = value
    if not found:
        rule = f"lines of a name and a value, such as {next(iter(known), 'time')} 1"
        raise InstanceError.at(path, "content", "no value of a variable of this model", rule)
    return found


def _named(text: str, known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names of variables and what stands after them, as they come."""
    if text.lstrip().startswith("<"):
        yield from _XML.findall(text)
        return
    for line in text.splitlines():
        if _END.match(line):
            return
        words = line.split()
        for name, value in pairwise(words):
            if name in known or _INDEXED.fullmatch(name):
                yield name, value
                break


def _is_whole(variable: Any) -> bool:
    """Whether a variable is whole: every one of CP-SAT's is."""
    return not getattr(variable, "is_continuous", bool)()
