"""Which solver runs the models of a method, and what of ``--solver`` and ``--solver-option`` it takes."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from formulations.contract.family import Method
from planner.process.errors import UsageError
from planner.solving.portfolio import Portfolio
from solvers import BACKENDS, check_solver
from solvers.outcome import DEFAULT_SOLVER, Limits
from solvers.trust.pins import BackendError


def _backends_of(method: Method[Any, Any]) -> list[str]:
    """The backends that run models of a method, or of the methods that it runs at once."""
    members = method.members if isinstance(method, Portfolio) else (method,)
    return [each.backend for each in members if each.backend]


def limits_for(method: Method[Any, Any], limits: Limits) -> Limits:
    """The limits without what is not for this method: another solver runs MILPs alone, an option whoever knows it."""
    if not method.backend:
        return replace(limits, solver=DEFAULT_SOLVER, solver_options=(), solver_log=None)
    if limits.solver != DEFAULT_SOLVER:
        is_own = method.backend == "highs"
        return limits if is_own else replace(limits, solver=DEFAULT_SOLVER, solver_options=())
    if not limits.solver_options:
        return limits
    knows = BACKENDS[method.backend].load().knows
    return replace(limits, solver_options=tuple(each for each in limits.solver_options if knows(each[0])))


def examine_solver(methods: Sequence[Method[Any, Any]], limits: Limits) -> None:
    """Let the solver that was chosen, with its options, pass its exam: before a clock starts.

    `UsageError` if it is not installed or fails, or if none of the methods takes a setting.
    """
    taken = {method.name: limits_for(method, limits) for method in methods}
    names = ", ".join(taken)
    if limits.solver != DEFAULT_SOLVER and all(each.solver == DEFAULT_SOLVER for each in taken.values()):
        raise UsageError.at("solver", limits.solver, f"a method that is a MILP, such as milp; {names} is none")
    for option in limits.solver_options:
        if not any(option in each.solver_options for each in taken.values()):
            raise UsageError.at("solver option", option[0], f"one that the solver of {names} knows")
    if limits.solver_log is not None and not any(each.solver_log for each in taken.values()):
        raise UsageError.at("solver log", limits.solver_log, f"a method that is a model, such as milp; {names} is none")
    try:
        for method in methods:
            for backend in _backends_of(method):
                check_solver.demand_passed(backend, taken[method.name])
                BACKENDS[backend].start()
    except BackendError as refused:
        raise UsageError(str(refused)) from None


def prepare_method(method: Method[Any, Any]) -> float:
    """Load a method and wait for its solvers' processes, which `examined` has started: before a clock starts.

    Returns the seconds of waiting; 0 for a method that needs no process.
    """
    method.load()
    needed = _backends_of(method)
    began = time.perf_counter()
    for backend in needed:
        BACKENDS[backend].prepare()
    return time.perf_counter() - began if needed else 0.0


def solver_settings(limits: Limits) -> dict[str, Any]:
    """What a result records of the choice of a solver."""
    found: dict[str, Any] = {} if limits.solver == DEFAULT_SOLVER else {"solver": limits.solver}
    return found | ({"solver-options": dict(limits.solver_options)} if limits.solver_options else {})
