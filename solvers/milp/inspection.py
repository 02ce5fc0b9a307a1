"""A Pyomo model seen from outside: its size, its linear relaxation, and files that other solvers read."""

import io
import time
from collections.abc import Iterator, Mapping
from typing import Any

import highspy
import numpy as np
import pyomo.environ as pyo
from pyomo.repn.plugins.nl_writer import NLWriter

from solvers.external import run as external
from solvers.external.matrix import Matrix
from solvers.inspection import Group, Range, Relaxation, Sizes, plain, sentence, why_no_bound
from solvers.milp import linear_program
from solvers.milp.linear import FRACTION, Linear, LinearRow, Variable
from solvers.milp.translation import translate
from solvers.outcome import DEFAULT_SOLVER, Limits, Run, Watch

#: Suffixes of files that a model can be written to.
FORMATS = (".lp", ".mps", ".nl", ".json")


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


def relaxation(model: pyo.ConcreteModel, limits: Limits, watch: Watch | None = None) -> Relaxation:
    """The linear relaxation, solved by HiGHS or ``limits.solver``; tolerances may lift the bound by 1e-6.

    Other solvers than HiGHS give no duals. The time is what is left to the watch; without one ``limits`` say it.
    """
    began, watch = time.perf_counter(), watch or Watch(limits)
    highs, columns, has_objective, rows = translate(model, watch)
    if watch.stopped():  # then rows are missing
        return Relaxation(None, time.perf_counter() - began, reason=why_no_bound(watch))
    if limits.solver != DEFAULT_SOLVER:
        found = external.run_relaxation(highs.getLp(), columns, has_objective, limits, watch)
        return _elsewhere(model, found, time.perf_counter() - began)
    count = highs.getNumCol()
    highs.changeColsIntegrality(
        count, np.arange(count, dtype=np.int32), np.array([highspy.HighsVarType.kContinuous] * count)
    )
    infeasible, reason = linear_program.solve(highs, watch)
    seconds = time.perf_counter() - began
    if infeasible or reason:
        return Relaxation(None, seconds, infeasible=infeasible, reason=reason)
    solution = highs.getSolution()
    values = {each.name: solution.col_value[columns[id(each)]] for each in variables(model) if not each.is_continuous()}
    duals = {row.name: solution.row_dual[place] for row, place in rows.items()}
    return Relaxation(
        highs.getInfo().objective_function_value,
        seconds,
        fractional={name: value for name, value in values.items() if abs(value - round(value)) > FRACTION},
        duals={name: dual for name, dual in duals.items() if abs(dual) > FRACTION},
    )


def _elsewhere(model: pyo.ConcreteModel, found: Run, seconds: float) -> Relaxation:
    """What another solver than HiGHS found; it is solved only where the bound is stated."""
    if found.values is None or found.bound is None:
        said = found.reason or f"{found.solver}: {found.stop}"
        return Relaxation(None, seconds, infeasible=found.infeasible, reason="" if found.infeasible else said)
    values = {each.name: found.values[each] for each in variables(model) if not each.is_continuous()}
    fractional = {name: value for name, value in values.items() if abs(value - round(value)) > FRACTION}
    return Relaxation(found.bound, seconds, fractional=fractional)


def text(model: pyo.ConcreteModel, suffix: str) -> str:
    """The model as files of this suffix (`FORMATS`) hold it, with `plain` names; ``ValueError`` for any other."""
    if suffix not in FORMATS:
        raise ValueError(" or ".join(FORMATS))
    if suffix == ".nl":
        return _nl(model)[0]
    rows = linear(model)
    return {".json": rows.to_json, ".lp": rows.to_lp, ".mps": rows.to_mps}[suffix]()


def file_order(model: pyo.ConcreteModel, suffix: str) -> list[str]:
    """The variables' names; for ``.nl``, which has none, in the order of the file: solutions count by it."""
    return _nl(model)[1] if suffix == ".nl" else list(names(model))


def _nl(model: pyo.ConcreteModel) -> tuple[str, list[str]]:
    """The model as AMPL's solvers read it, and its variables in the order that it has them."""
    content = io.StringIO()
    written = NLWriter().write(model, content, linear_presolve=False, scale_model=False, show_section_timing=False)
    return content.getvalue(), [plain(each.name) for each in written.variables]


def linear(model: pyo.ConcreteModel) -> Linear:
    """The model as plain rows, with `plain` names."""
    highs, columns, _, rows = translate(model)
    matrix = Matrix.of(highs.getLp())
    named = {columns[id(each)]: each for each in variables(model)}
    kinds = {place: "continuous" if each.is_continuous() else "integer" for place, each in named.items()}
    kinds |= {place: "binary" for place, each in named.items() if each.is_binary()}
    row_names = {place: plain(row.name) for row, place in rows.items()}
    return Linear(
        variables=tuple(
            Variable(plain(named[place].name), kinds[place], float(low), float(high))
            for place, (low, high) in enumerate(zip(matrix.lower, matrix.upper, strict=True))
        ),
        rows=tuple(
            LinearRow(row_names[place], _terms(*matrix.row(place)), float(low), float(high))
            for place, (low, high) in enumerate(zip(matrix.least, matrix.most, strict=True))
        ),
        costs=tuple((int(place), float(matrix.costs[place])) for place in np.flatnonzero(matrix.costs)),
        offset=matrix.offset,
        is_minimum=matrix.is_minimum,
    )


def _terms(columns: Any, factors: Any) -> tuple[tuple[int, float], ...]:
    return tuple(zip(columns.tolist(), factors.tolist(), strict=True))


def names(model: pyo.ConcreteModel) -> Mapping[str, Any]:
    """The variables by their names in files."""
    return {plain(each.name): each for each in variables(model)}
