"""What a solver's process is given, and what it answers: pickled, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from solvers.external.matrix import Matrix


class Outcome(StrEnum):
    """How a solver ended."""

    SOLVED = "solved"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    LIMIT = "limit"
    FAILED = "failed"


@dataclass(frozen=True)
class Task:
    """A model to solve; ``seconds`` from its arrival on (``None``: no limit), ``hint`` by columns.

    What the solver prints is added to the file ``log``.
    """

    matrix: Matrix
    seconds: float | None = None
    gap: float = 0.0
    seed: int = 0
    threads: int = 1
    options: tuple[tuple[str, str], ...] = ()
    hint: tuple[tuple[int, float], ...] = ()
    log: str | None = None


@dataclass(frozen=True)
class Ready:
    """The process takes tasks; name and version of its solver."""

    version: str


@dataclass(frozen=True)
class Refused:
    """There is no such solver, or it does not know an option."""

    rule: str


@dataclass(frozen=True, eq=False)
class Solution:
    """A solution better than those before it."""

    values: Any
    objective: float


@dataclass(frozen=True)
class Bound:
    """A dual bound, as the solver states it."""

    value: float


@dataclass(frozen=True, eq=False)
class Ended:
    """The solver has returned; ``values`` and ``objective`` of its best solution, if it has one."""

    outcome: Outcome
    values: Any = None
    objective: float | None = None
    bound: float | None = None
    words: str = ""
    stats: dict[str, int] = field(default_factory=dict)
