"""The linear part of a CP-SAT model: for its relaxation, and for files of other solvers where nothing is left out.

A constraint under literals gets a big-M, as large as the variables' domains require and no larger: where a literal is
off, the row is what these domains imply. Of a maximum the rows say that the target is no smaller than any of its parts;
what else it says, and every other kind of constraint, is left out by name.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from solvers.inspection import group_of, plain
from solvers.milp.linear import Linear, LinearRow, Terms, Variable
from solvers.outcome import Watch

#: CP-SAT's infinity, and beyond.
_NO_SIDE = 2**62


@dataclass(frozen=True)
class _Sum:
    """``low <= sum of terms <= high``, integers throughout."""

    terms: dict[int, int]
    low: int | None
    high: int | None


def linear(model: cp_model.CpModel, watch: Watch | None = None) -> Linear:
    """The linear part of a model; its variables keep their places. Names are as in files: ``holds(5,2)``.

    The rows are not all there once the watch is stopped.
    """
    proto = model.proto
    domains = [list(each.domain) for each in proto.variables]
    left_out = [group_of(each.name) or "domain" for each in proto.variables if len(each.domain) > 2]
    rows: list[LinearRow] = []
    for number, constraint in enumerate(proto.constraints):
        if watch is not None and watch.stopped():
            break
        name = constraint.name or f"row[{number}]"
        sums = list(_sums(constraint))
        if not _is_whole(constraint):
            left_out.append(group_of(name))
        for part, each in enumerate(sums):
            enforced = list(_enforce(each, list(constraint.enforcement_literal), domains))
            for side, row in enumerate(enforced):
                ending = (f"_{part}" if len(sums) > 1 else "") + (f"_{side}" if len(enforced) > 1 else "")
                rows.append(_row(plain(name) + ending, row))
    objective = proto.objective
    factor = objective.scaling_factor or 1.0
    costs = zip(objective.vars, objective.coeffs, strict=True)
    terms = _signs({}, costs)[0]
    return Linear(
        variables=tuple(_variable(place, each) for place, each in enumerate(proto.variables)),
        rows=tuple(rows),
        costs=tuple((place, factor * cost) for place, cost in terms.items() if cost),
        offset=factor * objective.offset if model.has_objective() else 0.0,
        is_minimum=factor > 0,
        left_out=tuple(dict.fromkeys(left_out)),
    )


def _variable(place: int, proto: Any) -> Variable:
    low, *_, high = proto.domain
    kind = "binary" if (low, high) == (0, 1) else "integer"
    return Variable(file_name(place, proto), kind, low, high)


def file_name(place: int, proto: Any) -> str:
    """The name of a variable in files; the model's constants have none of their own."""
    return plain(proto.name or f"fixed_{place}")


def _row(name: str, held: _Sum) -> LinearRow:
    terms: Terms = tuple((place, float(factor)) for place, factor in held.terms.items() if factor)
    low = -math.inf if held.low is None else float(held.low)
    return LinearRow(name, terms, low, math.inf if held.high is None else float(held.high))


def _is_whole(constraint: Any) -> bool:
    """Whether the rows say all that a constraint does."""
    if constraint.has_linear():
        return len(constraint.linear.domain) == 2
    kinds = (constraint.has_bool_or, constraint.has_bool_and, constraint.has_at_most_one, constraint.has_exactly_one)
    return any(has() for has in kinds)


def _sums(constraint: Any) -> Iterator[_Sum]:
    """What a constraint says in sums, its literals of enforcement aside."""
    if constraint.has_linear():
        row = constraint.linear
        terms, moved = _signs({}, zip(row.vars, row.coeffs, strict=True))
        low, *_, high = row.domain  # CP-SAT's own list takes no index from the end
        yield _Sum(terms, _end(low, moved), _end(high, moved))
    elif constraint.has_bool_or():
        yield _count(constraint.bool_or.literals, 1, None)
    elif constraint.has_bool_and():
        for literal in constraint.bool_and.literals:
            yield _count([literal], 1, None)
    elif constraint.has_at_most_one():
        yield _count(constraint.at_most_one.literals, None, 1)
    elif constraint.has_exactly_one():
        yield _count(constraint.exactly_one.literals, 1, 1)
    elif constraint.has_lin_max():
        target = constraint.lin_max.target
        for part in constraint.lin_max.exprs:
            terms, moved = _signs({}, zip(target.vars, target.coeffs, strict=True))
            terms, also = _signs(terms, ((each, -factor) for each, factor in zip(part.vars, part.coeffs, strict=True)))
            yield _Sum(terms, part.offset - target.offset - moved - also, None)


def _count(literals: Any, low: int | None, high: int | None) -> _Sum:
    terms, moved = _signs({}, ((each, 1) for each in literals))
    return _Sum(terms, None if low is None else low - moved, None if high is None else high - moved)


def _signs(terms: dict[int, int], more: Any) -> tuple[dict[int, int], int]:
    """Terms with others added, and the constant of those that are negated literals (1 - x)."""
    found, constant = dict(terms), 0
    for each, factor in more:
        place = each if each >= 0 else -each - 1
        found[place] = found.get(place, 0) + (factor if each >= 0 else -factor)
        constant += 0 if each >= 0 else factor
    return found, constant


def _end(side: int, moved: int) -> int | None:
    return None if abs(side) >= _NO_SIDE else side - moved


def _enforce(held: _Sum, literals: list[int], domains: list[list[int]]) -> Iterator[_Sum]:
    """The sum where all literals hold; with one off it says no more than the domains do."""
    if not literals:
        yield held
        return
    ends = [[factor * domains[place][0], factor * domains[place][-1]] for place, factor in held.terms.items()]
    least, most = sum(map(min, ends)), sum(map(max, ends))
    if held.low is not None and held.low > least:
        room = held.low - least
        terms, moved = _signs(held.terms, ((each, -room) for each in literals))
        yield _Sum(terms, held.low - room * len(literals) - moved, None)
    if held.high is not None and held.high < most:
        room = most - held.high
        terms, moved = _signs(held.terms, ((each, room) for each in literals))
        yield _Sum(terms, None, held.high + room * len(literals) - moved)
