"""A process that is forked while other threads hold the solvers' locks uses the solvers as any other."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from solvers import check_solver, logs, mute_stdout
from solvers.external import process
from solvers.outcome import Limits

#: Seconds that the forked process gets.
LIMIT_S = 20.0


def ended(work: Callable[[], object]) -> int:
    """The exit status of a forked process that does this; it is killed if it hangs."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("held", [check_solver, logs, mute_stdout, process])
def test_a_held_lock_is_free_in_a_fork(held: object, tmp_path: Path) -> None:
    limits = Limits(solver_options=(("cp_model_presolve", "true"),))
    works: dict[object, Callable[[], object]] = {
        check_solver: lambda: check_solver.demand_passed("cpsat", limits),
        logs: lambda: logs.append(str(tmp_path / "log"), "line"),
        mute_stdout: lambda: mute_stdout.silent().__enter__(),
        process: lambda: process.start("no such solver"),
    }
    with held._lock.own:  # type: ignore[attr-defined]
        assert ended(works[held]) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="C's stdout is replaced where the library has such a variable")
def test_stdout_is_its_own_again_in_a_fork() -> None:
    def printed() -> None:
        assert mute_stdout._stdout().value != mute_stdout._nowhere

    with mute_stdout.silent():
        assert ended(printed) == 0
        assert mute_stdout._stdout().value == mute_stdout._nowhere
