"""What a solver's process is given, and what it answers: pickled, one after the other; answers with their lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from solvers.outcome import Limits

if TYPE_CHECKING:  # numpy is no part of what CP-SAT's process imports
    from solvers.external.matrix import Matrix


#: The names of the solvers that the program itself runs; none that ``--solver`` takes.
OWN_CPSAT, OWN_HIGHS = "own/cpsat", "own/highs"
OWN = (OWN_CPSAT, OWN_HIGHS)


#: Of the length before each answer.
LENGTH_BYTES = 8


class Outcome(StrEnum):
    """How a solver ended."""

    SOLVED = "solved"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    LIMIT = "limit"
    FAILED = "failed"
    INVALID = "invalid"
    #: The process has ended, by a signal or by itself.
    ABORTED = "aborted"


#: The solver has neither decided the model nor reached a limit.
FAILURES = (Outcome.FAILED, Outcome.ABORTED)


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

    @property
    def is_minimum(self) -> bool:
        """Whether the objective is minimised."""
        return self.matrix.is_minimum


@dataclass(frozen=True)
class CpTask:
    """A model of CP-SAT and its parameters, as text of protocol buffers; ``seconds`` and ``log`` as of `Task`."""

    model: str
    parameters: str
    is_minimum: bool
    seconds: float | None = None
    log: str | None = None


@dataclass(frozen=True)
class LpTask:
    """A model of HiGHS in parts (`solvers.external.own_highs.pack`); ``seconds`` and ``hint`` as of `Task`.

    ``limits`` and ``options`` are those of `solvers.highs_settings.configure`.
    """

    model: dict[str, Any]
    limits: Limits
    options: Mapping[str, float | int | str | bool]
    presolve: str
    is_minimum: bool
    hint: tuple[tuple[int, float], ...] = ()
    seconds: float | None = None


@dataclass(frozen=True)
class Stop:
    """The task is to end soon, with what is found; only `OWN` engines listen."""


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
