"""The vocabulary of outcomes: why a run stopped, what it holds, and the channel by which it reports and is stopped.

Nothing beyond the standard library: every problem package and every backend imports this file.
"""

import math
import operator
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from solvers.errors import UsageError

#: A plan whose relative gap to a proved bound is at most this is optimal.
OPTIMAL_GAP = 1e-6
#: The solver of MILPs.
DEFAULT_SOLVER = "highs"
#: What is called with each improving solution, and of each improved dual bound; ``None``: nothing.
OnSolution = Callable[[Any], None] | None
OnBound = Callable[[float], None] | None
#: Solvers start as many threads as a run may use: more than this are refused.
MAX_THREADS = 1024


class Status(StrEnum):
    """What a result holds."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


class Stop(StrEnum):
    """Why a run stopped."""

    PROVED = "proved"
    COMPLETED = "completed"
    TIME_LIMIT = "time_limit"
    SIZE_LIMIT = "size_limit"
    INTERRUPTED = "interrupted"


class Prover(StrEnum):
    """By whose means a bound was proved. Beside these, the name of the method whose proof it is."""

    #: Closed formulas and relaxations that several methods of a problem share.
    BOUNDS = "bounds"
    #: The method's own search.
    SEARCH = "search"
    #: The solver that ran the method's own model.
    SOLVER = "solver"


@dataclass(frozen=True)
class Limits:
    """What a run may use.

    ``time_s`` is wall time in seconds, building included, kernel compilation not (``None``: no limit);
    ``gap`` is the relative gap at which an exact method may stop; ``seed`` and ``threads`` are passed to solvers.
    ``solver`` runs MILPs (`solvers.external.names`); ``solver_options`` are its own, or CP-SAT's for a method that runs
    CP-SAT, by name (a mapping, kept as pairs of texts), and the file ``solver_log`` takes what it prints.

    Raises
    ------
    UsageError
        If a value is of another type or out of its range: a time that is negative or not finite, a gap outside [0, 1),
        a seed outside [0, 2^31), fewer than one thread or more than ``MAX_THREADS``, options that are not pairs.
    """

    time_s: float | None = None
    gap: float = OPTIMAL_GAP
    seed: int = 0
    threads: int = 1
    solver: str = DEFAULT_SOLVER
    solver_options: tuple[tuple[str, str], ...] = ()
    solver_log: str | None = None

    def __post_init__(self) -> None:
        if self.time_s is not None and not (_is_number(self.time_s) and self.time_s >= 0):
            raise UsageError.at("limits: time_s", self.time_s, "a finite number >= 0, or None")
        if not (_is_number(self.gap) and 0 <= self.gap < 1):
            raise UsageError.at("limits: gap", self.gap, "0 <= gap < 1")
        seed, threads = _integer(self.seed), _integer(self.threads)
        if seed is None or not 0 <= seed < 2**31:  # HiGHS knows no others
            raise UsageError.at("limits: seed", self.seed, "0 <= seed < 2^31, an integer")
        if threads is None or not 1 <= threads <= MAX_THREADS:
            raise UsageError.at("limits: threads", self.threads, f"an integer from 1 to {MAX_THREADS}")
        if not isinstance(self.solver, str) or not _SOLVER.fullmatch(self.solver):
            raise UsageError.at("limits: solver", self.solver, "the name of a solver, such as highs or scip")
        if not (self.solver_log is None or isinstance(self.solver_log, str)):
            raise UsageError.at("limits: solver_log", self.solver_log, "the name of a file, or None")
        object.__setattr__(self, "solver_options", _pairs(self.solver_options))
        object.__setattr__(self, "seed", seed)
        object.__setattr__(self, "threads", threads)


#: Names of solvers: those of Pyomo, and ``mathopt:gscip``.
_SOLVER = re.compile(r"[A-Za-z][A-Za-z0-9_:.-]{0,80}")


def _pairs(options: object) -> tuple[tuple[str, str], ...]:
    """Options as pairs of texts, each name once; numbers and yes and no as solvers spell them."""
    rule = "a mapping from names to texts, numbers, or True and False"
    pairs = list(options.items()) if isinstance(options, Mapping) else options
    if not isinstance(pairs, list | tuple) or not all(isinstance(each, tuple) and len(each) == 2 for each in pairs):
        raise UsageError.at("limits: solver_options", options, rule)
    for name, value in pairs:
        if not (isinstance(name, str) and name and isinstance(value, str | int | float)):
            raise UsageError.at("limits: solver_options", {name: value}, rule)
    if len({name for name, _ in pairs}) < len(pairs):
        raise UsageError.at("limits: solver_options", options, "each name once")
    return tuple((name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in pairs)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _integer(value: object) -> int | None:
    """An integer of any type, such as numpy's, as an int; ``None`` for what is none, and for True and False."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


@dataclass(frozen=True)
class Run:
    """What a backend returns after running one model.

    ``values[variable]`` is the value of a variable of the model in the incumbent (``None``: no incumbent).
    ``bound`` is the solver's dual bound in the model's own objective (``None``: none).
    ``infeasible`` is a proof that the model has no solution. ``reason`` holds the solver's words where it failed: then
    it has proved nothing, and ``values`` may be ``None`` though solutions were reported.
    """

    stop: Stop
    values: Any = None
    objective: float | None = None
    bound: float | None = None
    infeasible: bool = False
    solver: str = ""
    reason: str = ""
    stats: Mapping[str, float | int | str] = field(default_factory=dict)


def relative_gap(objective: float | None, bound: float | None) -> float | None:
    """Relative gap of a minimisation: ``(objective - bound) / objective``; 0 if they are equal, ``None`` if unknown."""
    if objective is None or bound is None:
        return None
    if objective <= bound:
        return 0.0
    return (objective - bound) / abs(objective) if objective else None


class Watch:
    """The one channel between a running method and whoever waits for it.

    A method reports every plan and bound it can stand for, and polls ``stopped()`` (compiled loops poll
    ``flag[0]`` through a shared buffer). Whoever waits reads ``best_plan``, ``best_objective`` and ``best_bound``
    at any time, and calls ``stop(reason)``. All methods are thread-safe.

    Parameters
    ----------
    limits
        Only ``time_s`` is read, and whether the ``solver`` is one of choice: once a bound contradicts a plan, such a
        solver is not believed (`doubt`). The clock starts with ``start()`` (or at construction).
    listen
        Called as ``listen(elapsed_s, objective, bound)`` after each improvement, from the method's thread.
    """

    def __init__(
        self, limits: Limits | None = None, listen: Callable[[float, float | None, float | None], None] | None = None
    ) -> None:
        self.flag = bytearray(1)
        self.reason: Stop | None = None
        self.best_plan: Any = None
        self.best_objective: float | None = None
        self.best_bound: float | None = None
        #: The greatest bound by each `Prover` (or method) that reported one.
        self.bounds: dict[str, float] = {}
        #: The objective of a plan that is reported without it; ``None``: the watch knows no problem.
        self.evaluate: Callable[[Any], float] | None = None
        self._doubt = ""
        #: How solvers' processes ended by themselves, in words.
        self.aborts: list[str] = []
        self._limits = limits or Limits()
        self._listen = listen
        self._lock = threading.Lock()
        self._parts: weakref.WeakSet[Part] = weakref.WeakSet()
        self.start()

    def start(self) -> None:
        """(Re)start the clock."""
        self._started = time.perf_counter()

    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started

    def remaining_s(self) -> float | None:
        """Seconds left of the time limit, at least 0; ``None`` without a limit."""
        return None if self._limits.time_s is None else max(0.0, self._limits.time_s - self.elapsed_s())

    def plan(self, plan: Any, objective: float | None = None) -> None:
        """Report a feasible plan and its objective (left out: that of ``evaluate``); worse ones are ignored."""
        objective = self._objective(plan) if objective is None else objective
        with self._lock:
            if self.best_objective is not None and objective >= self.best_objective:
                return
            self.best_plan, self.best_objective = plan, objective
            self._compare()
            sharing = [part for part in self._parts if part.shared]
        for part in sharing:
            part.receive(plan, objective)
        self._report()

    def _objective(self, plan: Any) -> float:
        if self.evaluate is None:
            raise ValueError("this watch knows no problem; expected the plan with its objective")
        return self.evaluate(plan)

    def incumbent(self) -> tuple[Any, float | None]:
        """The best plan and its objective, read together; ``(None, None)`` before the first plan."""
        with self._lock:
            return self.best_plan, self.best_objective

    def bound(self, value: float, by: str = Prover.SEARCH) -> None:
        """Report a proved lower bound on the objective, and by whose means; weaker ones are ignored."""
        with self._lock:
            if self.doubted and by != Prover.BOUNDS:
                return
            self.bounds[by] = max(value, self.bounds.get(by, value))
            if self.best_bound is not None and value <= self.best_bound:
                return
            self.best_bound = value
            self._compare()
        self._report()

    @property
    def doubted(self) -> str:
        """What the solver of one's choice claimed that a plan contradicts; empty while it has not."""
        return self._doubt

    def doubt(self, claim: str) -> None:
        """Believe no bound of this run any more but those of closed formulas: its solver claimed what is false."""
        with self._lock:
            self._disbelieve(claim)

    def _compare(self) -> None:
        """Doubt a solver of one's choice whose bound lies above a plan; a contradiction of our own stands."""
        objective, bound = self.best_objective, self.best_bound
        if self._limits.solver == DEFAULT_SOLVER or objective is None or bound is None or bound <= objective:
            return
        if not math.isclose(bound, objective, rel_tol=OPTIMAL_GAP, abs_tol=1e-15):
            self._disbelieve(f"claims the bound {bound:.9g} above a plan of {objective:.9g}")

    def _disbelieve(self, claim: str) -> None:
        self._doubt = self._doubt or claim
        self.bounds = {by: value for by, value in self.bounds.items() if by == Prover.BOUNDS}
        self.best_bound = max(self.bounds.values(), default=None)

    def aborted(self, words: str) -> None:
        """Note that a solver's process has ended by itself: the run goes on without what it would have proved."""
        self.aborts.append(words)

    def stop(self, reason: Stop) -> None:
        """Ask the method to stop, with all parts of its run; the first reason stands."""
        with self._lock:
            self.reason = self.reason or reason
            self.flag[0] = 1
            parts = list(self._parts)
        for part in parts:
            part.stop(self.reason)

    def stopped(self) -> bool:
        """True once the method should return what it has."""
        if not self.flag[0] and self.remaining_s() == 0.0:
            self.stop(Stop.TIME_LIMIT)
        return bool(self.flag[0])

    def why(self, otherwise: Stop = Stop.COMPLETED) -> Stop:
        """The reason the run was stopped for, or ``otherwise`` if it was not."""
        return self.reason or otherwise

    def part(
        self,
        seconds: float | None = None,
        *,
        silent: bool = False,
        bounds: bool = True,
        plan_of: Callable[[Any], Any] | None = None,
        obsolete: Callable[[], bool] | None = None,
        shared: bool = False,
    ) -> "Part":
        """A watch for a part of this run, which ends with the run at the latest.

        Parameters
        ----------
        seconds
            What the part may take (``None``: what is left of the run).
        silent
            Keep plans and bounds of the part to itself: it solves another problem.
        bounds
            Whether a bound of the part is one of the run; not where the part leaves plans of the run out.
        plan_of
            The run's plan for a plan of the part (``None``: the same); its objective must be the same.
        obsolete
            Polled with ``stopped()``: whether the part has lost its purpose.
        shared
            The part knows the best plan of the run, whichever part found it.
        """
        part = Part(self, seconds, not silent, bounds and not silent, plan_of, obsolete)
        part.shared = shared
        return part

    def leave(self) -> None:
        """Report nothing any more: the method is left behind, and its result is made."""
        self._listen = None

    def _report(self) -> None:
        listen = self._listen
        if listen is not None:
            listen(self.elapsed_s(), self.best_objective, self.best_bound)


class Part(Watch):
    """The watch of a part of a run (`Watch.part`): it has a flag, a time, and best values of its own."""

    def __init__(
        self,
        whole: Watch,
        seconds: float | None,
        plans: bool,
        bounds: bool,
        plan_of: Callable[[Any], Any] | None,
        obsolete: Callable[[], bool] | None,
    ) -> None:
        self.shared = False
        left = whole.remaining_s()
        if seconds is not None and left is not None:
            seconds = min(seconds, left)
        super().__init__(Limits(time_s=left if seconds is None else seconds))
        self._whole, self._plans, self._bounds = whole, plans, bounds
        self._plan_of, self._obsolete = plan_of, obsolete
        self.evaluate = whole.evaluate if plans and plan_of is None else None  # another problem's plans otherwise
        with whole._lock:
            whole._parts.add(self)
            over = bool(whole.flag[0])
        if over:
            self.stop(whole.why())

    def stopped(self) -> bool:
        """True once this part should end: its time is up, the run is over, or it is obsolete."""
        if not self.flag[0] and (self._whole.stopped() or (self._obsolete is not None and self._obsolete())):
            self.stop(self._whole.why())
        return super().stopped()

    def plan(self, plan: Any, objective: float | None = None) -> None:
        """Report a plan, to the run as well unless the part is silent."""
        objective = self._objective(plan) if objective is None else objective
        super().plan(plan, objective)
        if self._plans:
            self._whole.plan(plan if self._plan_of is None else self._plan_of(plan), objective)

    @property
    def doubted(self) -> str:
        """That of the run."""
        return self._whole.doubted

    def doubt(self, claim: str) -> None:
        """Doubt the solver in the whole run."""
        self._whole.doubt(claim)

    def receive(self, plan: Any, objective: float) -> None:
        """Learn of a plan that another part of the run found."""
        super().plan(plan, objective)

    def aborted(self, words: str) -> None:
        """Note it for the run as well."""
        super().aborted(words)
        self._whole.aborted(words)

    def bound(self, value: float, by: str = Prover.SEARCH) -> None:
        """Report a bound, to the run as well if it holds there."""
        super().bound(value, by)
        if self._bounds:
            self._whole.bound(value, by)
