"""A linear model in plain sight: named variables and rows, as JSON, as an LP or MPS file, relaxed and solved by HiGHS.

Numbers are written so that they are read back exactly: whole ones with all their digits, others as Python's ``repr``.
HiGHS writes 15 digits and leaves out rows with factors of 1e15; Pyomo writes no model of CP-SAT.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from solvers.inspection import Range, Relaxation, plain
from solvers.milp import linear_program
from solvers.outcome import Watch
from solvers.trust.pins import demand

#: A value this far from a whole number is fractional; a dual below this is 0.
FRACTION = 1e-6

#: Integers beyond this are counted in powers of two in the relaxation: HiGHS drops coefficients that are far smaller
#: than others, and refuses those of 1e15 and more.
_LARGE = 2.0**10

#: Where coefficients range over more than this, the tolerance of 1e-6 that solvers grant a whole number lets through as
#: much as the smallest of them. From 5e8 on HiGHS, with both gaps 0, calls plans optimal that take half as long again.
_WIDE = 1e6

#: The variable that stands for 1 in files, beside the constant of an objective.
_ONE = "objective_constant"

Terms = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Variable:
    """``kind`` is ``binary``, ``integer`` or ``continuous``; infinite bounds are infinite."""

    name: str
    kind: str
    lower: float
    upper: float


@dataclass(frozen=True)
class LinearRow:
    """``lower <= sum of factor times variable <= upper``; the terms are places of variables with their factors."""

    name: str
    terms: Terms
    lower: float
    upper: float


@dataclass(frozen=True)
class Linear:
    """Variables, rows and an objective; ``left_out`` names what of a model it does not hold."""

    variables: tuple[Variable, ...]
    rows: tuple[LinearRow, ...]
    costs: Terms
    offset: float = 0.0
    is_minimum: bool = True
    left_out: tuple[str, ...] = ()

    def objective_of(self, values: Mapping[str, float]) -> float:
        """The objective of a solution by names as files have them, or as the model has them; what is missing is 0."""
        known = {plain(name): value for name, value in values.items()}
        return self.offset + math.fsum(cost * known.get(self.variables[place].name, 0.0) for place, cost in self.costs)

    @property
    def warning(self) -> str:
        """What solvers that work in floats may be wrong about, as the numbers of rows are too far apart; or nothing."""
        sizes = Range.of(factor for row in self.rows for _, factor in row.terms)
        if sizes.most <= _WIDE * sizes.least:
            return ""
        return (
            f"coefficients range from {sizes.least:.3g} to {sizes.most:.3g}: solvers that work with tolerances may be "
            "wrong about this model, in its optimum, its bound and whether it has a solution"
        )

    def to_json(self) -> str:
        """All of it (docs/interface/models.md); infinite sides are null."""
        return json.dumps(
            {
                "variables": [
                    {"name": each.name, "kind": each.kind, "lower": _side(each.lower), "upper": _side(each.upper)}
                    for each in self.variables
                ],
                "constraints": [
                    {
                        "name": row.name,
                        "terms": self._name_terms(row.terms),
                        "lower": _side(row.lower),
                        "upper": _side(row.upper),
                    }
                    for row in self.rows
                ],
                "objective": {
                    "sense": "minimise" if self.is_minimum else "maximise",
                    "terms": self._name_terms(self.costs),
                    "offset": _side(self.offset),
                },
            }
        )

    def _name_terms(self, terms: Terms) -> list[list[Any]]:
        return [[self.variables[place].name, _side(factor)] for place, factor in terms]

    def to_lp(self) -> str:
        """In the LP format that CPLEX began; a row with two sides is two rows."""
        return "\n".join(self._lp()) + "\n"

    def _lp(self) -> Iterator[str]:
        if self.warning:
            yield f"\\ warning: {self.warning}"
        yield "Minimize" if self.is_minimum else "Maximize"
        constant = [f"{_with_sign(self.offset)} {_ONE}"] if self.offset else []
        yield from _wrap(" objective:", [*self._write_terms(self.costs), *constant])
        yield "Subject To"
        for row in self.rows:
            terms = self._write_terms(row.terms) or [f"+ 0 {self.variables[0].name if self.variables else _ONE}"]
            for name, relation, side in _relations(row):
                yield from _wrap(f" {name}:", [*terms, f"{relation} {_plain(side)}"])
        yield "Bounds"
        for each in self.variables:
            low = "-infinity" if math.isinf(each.lower) else _plain(each.lower)
            high = "+infinity" if math.isinf(each.upper) else _plain(each.upper)
            yield f" {low} <= {each.name} <= {high}"
        if self.offset:
            yield f" {_ONE} = 1"
        whole = [each.name for each in self.variables if each.kind != "continuous"]
        if whole:
            yield "General"
            yield from (f" {name}" for name in whole)
        yield "End"

    def _write_terms(self, terms: Terms) -> list[str]:
        return [f"{_with_sign(factor)} {self.variables[place].name}" for place, factor in terms]

    def to_mps(self) -> str:
        """In free MPS format."""
        return "\n".join(self._mps()) + "\n"

    def _mps(self) -> Iterator[str]:
        rows = [(name, relation, side, row.terms) for row in self.rows for name, relation, side in _relations(row)]
        if self.warning:
            yield f"* warning: {self.warning}"
        yield from ("NAME model", "OBJSENSE", "    MIN" if self.is_minimum else "    MAX", "ROWS", " N objective")
        yield from (f" {_KINDS[relation]} {name}" for name, relation, _, _ in rows)
        columns: list[list[str]] = [[] for _ in self.variables]
        for name, terms in (("objective", self.costs), *((name, terms) for name, _, _, terms in rows)):
            for place, factor in terms:
                columns[place].append(f"{name} {_plain(factor)}")
        yield "COLUMNS"
        yield " MARKER 'MARKER' 'INTORG'"
        for whole in (True, False):
            for each, entries in zip(self.variables, columns, strict=True):
                if (each.kind != "continuous") is whole:
                    yield from (f" {each.name} {entry}" for entry in entries or ["objective 0"])
            if whole:
                yield " MARKER 'MARKER' 'INTEND'"
        if self.offset:
            yield f" {_ONE} objective {_plain(self.offset)}"
        yield "RHS"
        yield from (f" RHS {name} {_plain(side)}" for name, _, side, _ in rows if side)
        yield "BOUNDS"
        for each in self.variables:
            yield f" MI BND {each.name}" if math.isinf(each.lower) else f" LO BND {each.name} {_plain(each.lower)}"
            yield f" PL BND {each.name}" if math.isinf(each.upper) else f" UP BND {each.name} {_plain(each.upper)}"
        if self.offset:
            yield f" FX BND {_ONE} 1"
        yield "ENDATA"

    def relaxed(self, watch: Watch | None = None) -> Relaxation:
        """The linear relaxation, solved by HiGHS until the watch is stopped; its tolerances may lift the bound."""
        demand("highspy")
        began = time.perf_counter()
        units = np.array([_unit(each) for each in self.variables])
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        lp, size, scales = self._scale(units)
        highs.passModel(lp)
        infeasible, reason = linear_program.solve(highs, watch or Watch())
        seconds = time.perf_counter() - began
        if infeasible or reason:
            return Relaxation(None, seconds, infeasible=infeasible, reason=reason, left_out=self.left_out)
        solution = highs.getSolution()
        values = np.array(solution.col_value) * units
        duals = np.array(solution.row_dual) * size / scales if self.rows else ()
        named = zip(self.variables, values.tolist(), strict=True)
        return Relaxation(
            highs.getInfo().objective_function_value * size + self.offset,
            seconds,
            fractional={
                each.name: value
                for each, value in named
                if each.kind != "continuous" and abs(value - round(value)) > FRACTION
            },
            duals={
                row.name: dual
                for row, dual in zip(self.rows, map(float, duals), strict=True)
                if abs(dual) > FRACTION * size
            },
            left_out=self.left_out,
        )

    def _scale(self, units: Any) -> tuple[Any, float, Any]:
        """HiGHS's model, without the offset, the objective's unit, and that of each row: all powers of two."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.variables), len(self.rows)
        lp.sense_ = highspy.ObjSense.kMinimize if self.is_minimum else highspy.ObjSense.kMaximize
        costs = np.zeros(len(self.variables))
        for place, cost in self.costs:
            costs[place] += cost * units[place]
        size = _power(np.max(np.abs(costs), initial=0.0))
        lp.col_cost_ = costs / size
        lp.col_lower_ = np.array([each.lower for each in self.variables]) / units
        lp.col_upper_ = np.array([each.upper for each in self.variables]) / units
        starts, columns, factors = [0], [], []
        scales = np.ones(len(self.rows))
        for number, row in enumerate(self.rows):
            own = [factor * units[place] for place, factor in row.terms]
            scales[number] = _power(max(map(abs, own), default=0.0))
            columns += [place for place, _ in row.terms]
            factors += [factor / scales[number] for factor in own]
            starts.append(len(columns))
        lp.row_lower_ = np.array([row.lower for row in self.rows]) / scales
        lp.row_upper_ = np.array([row.upper for row in self.rows]) / scales
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(starts, np.int32)
        lp.a_matrix_.index_ = np.array(columns, np.int32)
        lp.a_matrix_.value_ = np.array(factors, np.float64)
        return lp, size, scales


_KINDS = {"<=": "L", ">=": "G", "=": "E"}


def _relations(row: LinearRow) -> list[tuple[str, str, float]]:
    """Name, relation and side of each row of a file that stands for a row; none for one without sides."""
    if row.lower == row.upper:
        return [(row.name, "=", row.lower)]
    sides = [(">=", row.lower), ("<=", row.upper)]
    finite = [(relation, side) for relation, side in sides if not math.isinf(side)]
    if len(finite) < 2:
        return [(row.name, *each) for each in finite]
    return [(f"{row.name}_{end}", *each) for end, each in zip(("low", "high"), finite, strict=True)]


def _unit(variable: Variable) -> float:
    ends = [abs(end) for end in (variable.lower, variable.upper) if not math.isinf(end)]
    largest = max(ends, default=0.0)
    return _power(largest) if variable.kind != "continuous" and largest > _LARGE else 1.0


def _power(size: float) -> float:
    """The power of two at or below a size; 1 for none."""
    return math.ldexp(1.0, math.frexp(size)[1] - 1) if size > 0 else 1.0


def _side(value: float) -> float | int | None:
    if math.isinf(value):
        return None
    return int(value) if float(value).is_integer() else float(value)


def _plain(value: float) -> str:
    return repr(_side(value))


def _with_sign(value: float) -> str:
    return f"{'-' if value < 0 else '+'} {_plain(abs(value))}"


def _wrap(first: str, words: list[str]) -> Iterator[str]:
    """Lines of ten terms: LP readers cut long ones."""
    for start in range(0, max(1, len(words)), 10):
        yield " ".join([first if start == 0 else "  ", *words[start : start + 10]])
