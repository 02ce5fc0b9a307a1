"""The entrance exam: no solver of one's choice, and none with options of one's own, is run before it has passed.

HiGHS and CP-SAT as they are pinned are examined by the tests and by ``planner doctor`` instead.
"""

from dataclasses import replace

from solvers.external.names import REFUSED, installed_solvers
from solvers.external.process import prepared_version
from solvers.fork_lock import ForkLock
from solvers.outcome import DEFAULT_SOLVER, Limits
from solvers.trust.pins import BackendError

#: Seconds for each model of the exam.
_TIME_S = 10.0

_passed: set[tuple[str, Limits]] = set()
_lock = ForkLock()


def demand_passed(backend: str, limits: Limits) -> None:
    """Raise `BackendError` unless the solver of these limits, with their options, solves all canaries in this process.

    With options it need not prove them: a limit on nodes may be what was wanted. Afterwards its process waits for a
    task, so that whoever calls this before a clock starts does not pay for it.

    ``backend``: a name in `solvers.BACKENDS`.
    """
    if limits.solver == DEFAULT_SOLVER and not limits.solver_options:
        return
    if limits.solver in REFUSED:
        others = ", ".join(installed_solvers())
        raise BackendError(f"solver is {limits.solver!r}; expected {REFUSED[limits.solver]}, such as {others}")
    plain = Limits(time_s=_TIME_S, solver=limits.solver, threads=limits.threads)
    with _lock.own:
        if limits.solver != DEFAULT_SOLVER:
            _examine(backend, plain)
        if limits.solver_options:
            _examine(backend, replace(plain, solver_options=limits.solver_options))
    if limits.solver != DEFAULT_SOLVER:
        prepared_version(limits.solver)


def _examine(backend: str, limits: Limits) -> None:
    from solvers import BACKENDS

    if (backend, limits) in _passed:
        return
    for canary in BACKENDS[backend].canaries():
        wrong = canary.check(limits, proof=not limits.solver_options)
        if wrong is None:
            continue
        given = "".join(f" {name}={value}" for name, value in limits.solver_options)
        name = backend if limits.solver == DEFAULT_SOLVER else limits.solver
        raise BackendError(f"solver {name}{given} fails its entrance exam: {wrong}")
    _passed.add((backend, limits))
