"""What the backends' tests share."""

import pytest
from backend_models import EXTERNAL, Bench

from solvers import BACKENDS, check_solver
from solvers.external.names import installed_solvers
from solvers.outcome import Limits


@pytest.fixture(params=list(BACKENDS))
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


#: Those that are at hand wherever the tests run, and take no time to start.
_QUICK = ("mathopt:gscip", "scip")


@pytest.fixture(
    params=[
        *(Bench(name) for name in BACKENDS),
        *(pytest.param(Bench("highs", each), marks=() if each in _QUICK else pytest.mark.slow) for each in EXTERNAL),
    ],
    ids=[*BACKENDS, *EXTERNAL],
)
def solver(request: pytest.FixtureRequest) -> Bench:
    """A backend, or a solver that takes HiGHS's place."""
    if request.param.solver not in installed_solvers():
        pytest.skip(f"{request.param.solver} is not installed")
    check_solver.demand_passed("highs", Limits(solver=request.param.solver))  # its process starts before a test's clock
    return request.param
