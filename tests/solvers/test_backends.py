"""The entrance exam of every backend: the same small models, written for each of them."""

import random
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from backend_models import ITEMS, WRITTEN, Bench, Linear, for_highs, market_split
from load import allowed_s

from solvers import BACKENDS
from solvers.outcome import Limits, Run, Stop, Watch
from solvers.trust.known_models import Canary


def test_bounds_are_rounded_to_what_they_prove() -> None:
    from solvers.cpsat.backend import whole
    from solvers.milp.backend import proved_bound

    assert [whole(value) for value in (-0.5, 0.0, 6.9, 7.0, 7.0 + 1e-9, 7.0 - 1e-9, 7.001)] == [0, 0, 7, 7, 7, 7, 8]
    rng = random.Random(0)
    for bits in range(1, 63):  # beyond 2^53 a float may be above the whole number that it stands for
        for number in (rng.getrandbits(bits) for _ in range(20)):
            assert number * (1 - 2.0**-50) - 1 < whole(float(number)) <= number
    assert proved_bound(0.0) == proved_bound(1e-7) == proved_bound(49.0, to_scale=True) == 0.0
    assert proved_bound(50.0, to_scale=True) == proved_bound(50.0) > 49.99
    assert all(value * (1 - 1e-6) < proved_bound(value) < value - 1e-6 for value in (10.0, 1e3, 1e6))


def test_every_backend_is_examined() -> None:
    assert set(WRITTEN) == set(BACKENDS)


def test_optimal(solver: Bench) -> None:
    run, variables = solver.solved(ITEMS)
    assert (run.stop, run.infeasible) == (Stop.PROVED, False)
    assert run.objective == pytest.approx(17) and run.bound == pytest.approx(17)
    assert [round(run.values[variable]) for variable in variables] == [1, 1, 0, 0]
    assert run.solver == BACKENDS[solver.name].version() if solver.solver == "highs" else run.solver


def test_minimise_with_a_constant(solver: Bench) -> None:
    run = solver.run(Linear(upper=[9, 9], rows=[([-2, -3], "<=", -12)], minimise=[3, 4], constant=-5))
    assert run.stop is Stop.PROVED
    assert run.objective == pytest.approx(11) and run.bound == pytest.approx(11)


def test_infeasible_is_a_proof_not_an_error(solver: Bench) -> None:
    run = solver.run(Linear(upper=[3, 3], rows=[([2, 4], "==", 7)], minimise=[1, 1]))
    assert (run.infeasible, run.stop) == (True, Stop.PROVED)
    assert (run.values, run.objective, run.bound) == (None, None, None)


@pytest.mark.parametrize("right", [2, 3, 4])
def test_a_limit_holds_below_at_and_above(solver: Bench, right: int) -> None:
    run = solver.run(Linear(upper=[5], rows=[([-1], "<=", -3), ([1], "<=", right)], minimise=[1]))
    assert run.infeasible is (right < 3)


def test_constant_objective(solver: Bench) -> None:
    run = solver.run(Linear(upper=[1, 1], rows=[([1, 1], "==", 1)], minimise=[0, 0], constant=7))
    assert (run.stop, run.objective, run.bound) == (Stop.PROVED, 7, 7)


def test_no_objective(solver: Bench) -> None:
    run, variables = solver.solved(Linear(upper=[4], rows=[([1], "==", 3)]))
    assert (run.stop, run.objective, run.bound) == (Stop.PROVED, None, None)
    assert round(run.values[variables[0]]) == 3


def test_empty_model(solver: Bench) -> None:
    run = solver.run(Linear(upper=[]))
    assert (run.stop, run.infeasible, run.objective) == (Stop.PROVED, False, None)
    assert run.values is not None


def test_a_variable_of_no_row_has_a_value(solver: Bench) -> None:
    run, variables = solver.solved(Linear(upper=[1, 1], rows=[([1, 0], "==", 1)], minimise=[1, 0]))
    assert round(run.values[variables[1]]) in (0, 1)


def test_time_limit_with_incumbent_and_listeners_that_hear_improvements_and_bounds(solver: Bench) -> None:
    model, variables = WRITTEN[solver.name](market_split(5, 40, slack=True))
    received: list[float] = []
    bounds: list[float] = []

    def listen(values: Any) -> None:
        received.append(sum(values[variable] for variable in variables[40:]))

    limits = Limits(time_s=allowed_s(0.5), solver=solver.solver)
    started = time.perf_counter()
    run = BACKENDS[solver.name].load().run(model, limits, on_solution=listen, on_bound=bounds.append)
    assert time.perf_counter() - started < allowed_s(1.1 + 1)
    assert (run.stop, run.infeasible) == (Stop.TIME_LIMIT, False)
    assert run.values is not None and run.objective is not None
    assert (solver.reports_late and run.bound is None) or (run.bound is not None and run.bound < run.objective)
    assert (len(received) > 1 or solver.reports_late) and received == sorted(received, reverse=True)
    assert run.objective == pytest.approx(min(received))
    assert (bounds or solver.reports_late) and max(bounds, default=0) <= run.objective + 1e-6


def test_time_limit_without_incumbent(solver: Bench) -> None:
    started = time.perf_counter()
    run = solver.run(market_split(6, 50, slack=False), Limits(time_s=0.2))
    assert time.perf_counter() - started < allowed_s(0.8 + 1)
    assert (run.stop, run.infeasible) == (Stop.TIME_LIMIT, False)
    assert (run.values, run.objective, run.bound) == (None, None, None)


def test_no_time_at_all(solver: Bench) -> None:
    run = solver.run(ITEMS, Limits(time_s=0.0))
    assert (run.stop, run.values, run.objective, run.bound, run.infeasible) == (
        Stop.TIME_LIMIT, None, None, None, False,
    )  # fmt: skip


def test_interrupted(solver: Bench) -> None:
    watch, found = Watch(Limits()), threading.Event()

    def interrupt() -> None:
        solver.reports_late or found.wait(10)  # on a busy machine the first plan takes longer
        watch.stop(Stop.INTERRUPTED)

    threading.Timer(0.2, interrupt).start()
    run = solver.run(market_split(6, 50, slack=True), Limits(), watch, on_solution=lambda _: found.set())
    assert run.stop is Stop.INTERRUPTED
    assert run.values is not None or solver.reports_late
    assert watch.elapsed_s() < allowed_s(3)


def test_an_exception_of_a_listener_ends_the_run(solver: Bench) -> None:
    def fail(_: Any) -> None:
        raise LookupError("stop here")

    started = time.perf_counter()
    limits = Limits(time_s=0.7 if solver.reports_late else 15)
    with pytest.raises(LookupError, match="stop here"):
        solver.run(market_split(6, 50, slack=True), limits, on_solution=fail)
    assert time.perf_counter() - started < allowed_s(5)


def test_same_seed_same_run(solver: Bench) -> None:
    linear = market_split(2, 9, slack=True)
    first, second = (solver.run(linear, Limits(seed=3)) for _ in range(2))
    assert first.objective == second.objective
    assert first.stats == second.stats


def test_two_threads(solver: Bench) -> None:
    if solver.solver == "mathopt:highs":
        pytest.skip("MathOpt hands no number of threads to HiGHS")
    run = solver.run(ITEMS, Limits(time_s=20, threads=2))
    assert (run.stop, round(run.objective or 0)) == (Stop.PROVED, 17)


@pytest.mark.parametrize("name", list(BACKENDS))
def test_canaries_are_solved(name: str) -> None:
    canaries = BACKENDS[name].canaries()
    assert len(canaries) >= 3
    assert not [wrong for canary in canaries if (wrong := canary.check())]


@pytest.mark.parametrize(
    ("optimum", "run"),
    [
        (5.0, Run(stop=Stop.PROVED, objective=5.1, bound=5.0)),
        (5.0, Run(stop=Stop.PROVED, objective=5.0, bound=4.9)),
        (5.0, Run(stop=Stop.TIME_LIMIT, objective=5.0, bound=5.0)),
        (5.0, Run(stop=Stop.PROVED, infeasible=True)),
        (None, Run(stop=Stop.PROVED, objective=5.0, bound=5.0)),
    ],
)
def test_a_wrong_answer_fails_the_canary(optimum: float | None, run: Run) -> None:
    assert "known" in (Canary("known", optimum, lambda _: run).check() or "")


def test_cpsat_refuses_an_invalid_model() -> None:
    with pytest.raises(ValueError, match="invalid CP-SAT model"):
        Bench("cpsat").run(Linear(upper=[2**61], rows=[([2**62], "<=", 1)]))


@pytest.mark.skipif(sys.platform != "linux", reason="C's stdout is a variable of glibc's")
def test_what_c_code_prints_during_a_run_is_dropped() -> None:
    """HiGHS 1.12 prints a line of debugging on stdout; what Python prints there, and C code otherwise, is left."""
    script = (
        "import ctypes\n"
        "from solvers.mute_stdout import silent\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.puts(b'before')\n"
        "with silent(), silent():\n"
        "    libc.puts(b'during')\n"
        "    print('python', flush=True)\n"
        "libc.puts(b'after')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert sorted(done.stdout.split()) == ["after", "before", "python"]


def test_highs_refuses_what_it_cannot_do() -> None:
    import pyomo.environ as pyo

    from solvers.milp import backend as milp

    unbounded = pyo.ConcreteModel()
    unbounded.x = pyo.Var(domain=pyo.NonNegativeReals)
    unbounded.objective = pyo.Objective(expr=-unbounded.x)
    with pytest.raises(ValueError, match="unbounded"):
        milp.run(unbounded, Limits())
    with pytest.raises(ValueError, match="HiGHS option"):
        milp.run(pyo.ConcreteModel(), Limits(), options={"no_such_option": 1})


@pytest.mark.parametrize(("coefficient", "solved"), [(1e9, True), (1e15, False), (1e300, False)])
def test_rows_that_highs_refuses_are_not_lost(coefficient: float, solved: bool) -> None:
    """Pyomo hands all rows over at once and HiGHS takes none of them: what is left is another model."""
    import pyomo.environ as pyo

    from solvers.milp import backend as milp

    model = pyo.ConcreteModel()
    model.taken = pyo.Var(range(2), domain=pyo.Binary)
    model.one = pyo.Constraint(expr=model.taken[0] + model.taken[1] >= 1)
    model.large = pyo.Constraint(expr=coefficient * model.taken[0] + model.taken[1] <= 1)
    model.cost = pyo.Objective(expr=model.taken[0] + 2 * model.taken[1])
    run = milp.run(model, Limits(time_s=10))
    if solved:
        assert (run.objective, run.bound, run.reason) == (2.0, 2.0, "")
    else:
        assert (run.values, run.bound, run.infeasible) == (None, None, False) and "1e15" in run.reason


def test_highs_takes_a_hint() -> None:
    from solvers.milp import backend as milp

    linear = market_split(2, 12, slack=True)
    best = Bench("highs").solved(linear)
    model, variables = for_highs(linear)
    hint = [(variable, round(best[0].values[other])) for variable, other in zip(variables, best[1], strict=True)]
    received: list[float] = []
    milp.run(model, Limits(), hint=hint, on_solution=lambda v: received.append(sum(v[x] for x in variables[12:])))
    assert received and received[0] == pytest.approx(best[0].objective)


@pytest.mark.slow
@pytest.mark.parametrize(
    "order", [("ortools.sat.python.cp_model", "highspy"), ("highspy", "ortools.sat.python.cp_model")]
)
def test_both_import_orders(order: tuple[str, str]) -> None:
    """The two packages bring their own copies of HiGHS: either order must load, and both must still be right."""
    script = (
        f"import {order[0]}, {order[1]}\n"
        "from solvers import BACKENDS\n"
        "print({canary.check() for backend in BACKENDS.values() for canary in backend.canaries()})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "{None}", "")


def test_listing_the_backends_imports_none() -> None:
    script = "import sys, solvers; print([name for name in ('ortools', 'highspy', 'pyomo') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
