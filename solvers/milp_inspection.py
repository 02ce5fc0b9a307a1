"""A Pyomo model seen from outside: its size, its linear relaxation, and files that other solvers read."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import pyomo.environ as pyo

from solvers.inspection import Group, Range, Relaxation, Sizes, sentence
from solvers.milp import translate
from solvers.silence import silent

#: Suffixes of files that a model can be written to.
FORMATS = (".lp", ".mps")

#: A value this far from a whole number is fractional; a dual below this is 0.
_FRACTION = 1e-6

_Status = highspy.HighsModelStatus


def sizes(model: pyo.ConcreteModel) -> Sizes:
    """How large a model is, with a group for each of its components."""
    highs, columns, _, _ = translate(model)
    lp = highs.getLp()
    kinds = [variable for variable in variables(model) if id(variable) in columns]
    binary, whole = sum(each.is_binary() for each in kinds), sum(not each.is_continuous() for each in kinds)
    sides = [side for row in (lp.row_lower_, lp.row_upper_) for side in row if abs(side) < highspy.kHighsInf]
    return Sizes(
        binary=binary,
        integer=whole - binary,
        continuous=len(kinds) - whole,
        constraints=lp.num_row_,
        nonzeros=len(lp.a_matrix_.value_),
        matrix=Range.of(lp.a_matrix_.value_),
        objective=Range.of(lp.col_cost_),
        sides=Range.of(sides),
        groups=tuple(_groups(model)),
    )


def variables(model: pyo.ConcreteModel) -> Iterator[Any]:
    """All variables of a model, in the order of their declaration."""
    yield from model.component_data_objects(pyo.Var, descend_into=True)


def _groups(model: pyo.ConcreteModel) -> Iterator[Group]:
    for kind, of in (("variable", pyo.Var), ("constraint", pyo.Constraint)):
        for component in model.component_objects(of, active=True):
            if len(component):
                yield Group(component.local_name, kind, len(component), *sentence(component.doc))


def relaxation(model: pyo.ConcreteModel, time_s: float | None = None) -> Relaxation:
    """The linear relaxation, solved by HiGHS within ``time_s`` seconds; its tolerances may lift the bound by 1e-6."""
    began = time.perf_counter()
    highs, columns, _, rows = translate(model)
    count = highs.getNumCol()
    highs.changeColsIntegrality(
        count, np.arange(count, dtype=np.int32), np.array([highspy.HighsVarType.kContinuous] * count)
    )
    if time_s is not None:
        highs.setOptionValue("time_limit", time_s)
    with silent():
        highs.run()
    status, seconds = highs.getModelStatus(), time.perf_counter() - began
    if status in (_Status.kInfeasible, _Status.kUnboundedOrInfeasible):
        return Relaxation(None, seconds, infeasible=True)
    if status not in (_Status.kOptimal, _Status.kModelEmpty):
        return Relaxation(None, seconds, reason=f"HiGHS: {highs.modelStatusToString(status)}")
    solution = highs.getSolution()
    values = {each.name: solution.col_value[columns[id(each)]] for each in variables(model) if not each.is_continuous()}
    duals = {row.name: solution.row_dual[place] for row, place in rows.items()}
    return Relaxation(
        highs.getInfo().objective_function_value,
        seconds,
        fractional={name: value for name, value in values.items() if abs(value - round(value)) > _FRACTION},
        duals={name: dual for name, dual in duals.items() if abs(dual) > _FRACTION},
    )


def text(model: pyo.ConcreteModel, suffix: str) -> str:
    """The model as files of this suffix (`FORMATS`) hold it, with `plain` names; ``ValueError`` for any other."""
    if suffix not in FORMATS:
        raise ValueError(" or ".join(FORMATS))
    with tempfile.TemporaryDirectory() as folder:  # Pyomo writes files alone
        path = Path(folder, f"model{suffix}")
        model.write(str(path), io_options={"labeler": lambda part: plain(part.name)})
        return path.read_text()


def names(model: pyo.ConcreteModel) -> Mapping[str, Any]:
    """The variables by their names in files."""
    return {plain(each.name): each for each in variables(model)}


def plain(name: str) -> str:
    """A name as files have it: ``holds(5,2)`` for ``holds[5,2]``, as LP files take no square brackets."""
    return name.replace("[", "(").replace("]", ")").replace(" ", "_")
