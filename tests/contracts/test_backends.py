"""The entrance exam of every backend: the same small models, written for each of them."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from solvers import BACKENDS, pinned
from solvers.canary import Canary
from solvers.outcome import Limits, Run, Stop, Watch


@dataclass(frozen=True)
class Linear:
    """Integer variables in [0, upper], rows ``sum <= right`` or ``sum == right``, and perhaps an objective."""

    upper: Sequence[int]
    rows: Sequence[tuple[Sequence[int], str, int]] = ()
    minimise: Sequence[int] | None = None
    constant: int = 0
    maximise: bool = False


def for_cpsat(linear: Linear) -> tuple[Any, list[Any]]:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    variables = [model.new_int_var(0, top, f"x{index}") for index, top in enumerate(linear.upper)]
    for weights, sense, right in linear.rows:
        total = cp_model.LinearExpr.weighted_sum(variables, weights)
        model.add(total <= right if sense == "<=" else total == right)
    if linear.minimise is not None:
        value = cp_model.LinearExpr.weighted_sum(variables, linear.minimise) + linear.constant
        (model.maximize if linear.maximise else model.minimize)(value)
    return model, variables


def for_highs(linear: Linear) -> tuple[Any, list[Any]]:
    import pyomo.environ as pyo

    model = pyo.ConcreteModel()
    model.x = pyo.Var(range(len(linear.upper)), domain=pyo.Integers, bounds=lambda _, index: (0, linear.upper[index]))
    model.rows = pyo.ConstraintList()
    for weights, sense, right in linear.rows:
        total = sum(weight * model.x[index] for index, weight in enumerate(weights))
        model.rows.add(total <= right if sense == "<=" else total == right)
    if linear.minimise is not None:
        value = sum(cost * model.x[index] for index, cost in enumerate(linear.minimise)) + linear.constant
        model.objective = pyo.Objective(expr=value, sense=pyo.maximize if linear.maximise else pyo.minimize)
    return model, list(model.x.values())


WRITTEN = {"cpsat": for_cpsat, "highs": for_highs}


@dataclass(frozen=True)
class Bench:
    """One backend on the exam's bench."""

    name: str

    def run(self, linear: Linear, limits: Limits | None = None, watch: Watch | None = None, **listeners: Any) -> Run:
        return self.solved(linear, limits, watch, **listeners)[0]

    def solved(
        self, linear: Linear, limits: Limits | None = None, watch: Watch | None = None, **listeners: Any
    ) -> tuple[Run, list[Any]]:
        model, variables = WRITTEN[self.name](linear)
        return BACKENDS[self.name].load().run(model, limits or Limits(time_s=20), watch, **listeners), variables


@pytest.fixture(params=list(BACKENDS))
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


ITEMS = Linear(upper=[1, 1, 1, 1], rows=[([5, 4, 3, 2], "<=", 9)], minimise=[10, 7, 4, 3], maximise=True)


def market_split(num_rows: int, num_columns: int, slack: bool, seed: int = 5) -> Linear:
    """Equal halves in every row: hopelessly hard to prove, and without slack hard to satisfy at all."""
    random_ = random.Random(seed)
    rows: list[tuple[list[int], str, int]] = []
    slacks = 2 * num_rows if slack else 0
    for row in range(num_rows):
        weights = [random_.randrange(1000) for _ in range(num_columns)]
        extra = [0] * slacks
        if slack:
            extra[2 * row : 2 * row + 2] = [1, -1]
        rows.append((weights + extra, "==", sum(weights) // 2))
    costs = [0] * num_columns + [1] * slacks if slack else None
    return Linear(upper=[1] * num_columns + [10**5] * slacks, rows=rows, minimise=costs)


def test_bounds_are_rounded_to_what_they_prove() -> None:
    from solvers.cpsat import whole
    from solvers.milp import trusted

    assert [whole(value) for value in (-0.5, 0.0, 6.9, 7.0, 7.0 + 1e-9, 7.0 - 1e-9, 7.001)] == [0, 0, 7, 7, 7, 7, 8]
    rng = random.Random(0)
    for bits in range(1, 63):  # beyond 2^53 a float may be above the whole number that it stands for
        for number in (rng.getrandbits(bits) for _ in range(20)):
            assert number * (1 - 2.0**-50) - 1 < whole(float(number)) <= number
    assert trusted(0.0) == trusted(1e-7) == trusted(49.0, to_scale=True) == 0.0
    assert trusted(50.0, to_scale=True) == trusted(50.0) > 49.99
    assert all(value * (1 - 1e-6) < trusted(value) < value - 1e-6 for value in (10.0, 1e3, 1e6))


def test_every_backend_is_examined() -> None:
    assert set(WRITTEN) == set(BACKENDS)


def test_optimal(bench: Bench) -> None:
    run, variables = bench.solved(ITEMS)
    assert (run.stop, run.infeasible) == (Stop.PROVED, False)
    assert run.objective == pytest.approx(17) and run.bound == pytest.approx(17)
    assert [round(run.values[variable]) for variable in variables] == [1, 1, 0, 0]
    assert run.solver == BACKENDS[bench.name].version()


def test_minimise_with_a_constant(bench: Bench) -> None:
    run = bench.run(Linear(upper=[9, 9], rows=[([-2, -3], "<=", -12)], minimise=[3, 4], constant=-5))
    assert run.stop is Stop.PROVED
    assert run.objective == pytest.approx(11) and run.bound == pytest.approx(11)


def test_infeasible_is_a_proof_not_an_error(bench: Bench) -> None:
    run = bench.run(Linear(upper=[3, 3], rows=[([2, 4], "==", 7)], minimise=[1, 1]))
    assert (run.infeasible, run.stop) == (True, Stop.PROVED)
    assert (run.values, run.objective, run.bound) == (None, None, None)


@pytest.mark.parametrize("right", [2, 3, 4])
def test_a_limit_holds_below_at_and_above(bench: Bench, right: int) -> None:
    run = bench.run(Linear(upper=[5], rows=[([-1], "<=", -3), ([1], "<=", right)], minimise=[1]))
    assert run.infeasible is (right < 3)


def test_constant_objective(bench: Bench) -> None:
    run = bench.run(Linear(upper=[1, 1], rows=[([1, 1], "==", 1)], minimise=[0, 0], constant=7))
    assert (run.stop, run.objective, run.bound) == (Stop.PROVED, 7, 7)


def test_no_objective(bench: Bench) -> None:
    run, variables = bench.solved(Linear(upper=[4], rows=[([1], "==", 3)]))
    assert (run.stop, run.objective, run.bound) == (Stop.PROVED, None, None)
    assert round(run.values[variables[0]]) == 3


def test_empty_model(bench: Bench) -> None:
    run = bench.run(Linear(upper=[]))
    assert (run.stop, run.infeasible, run.objective) == (Stop.PROVED, False, None)
    assert run.values is not None


def test_a_variable_of_no_row_has_a_value(bench: Bench) -> None:
    run, variables = bench.solved(Linear(upper=[1, 1], rows=[([1, 0], "==", 1)], minimise=[1, 0]))
    assert round(run.values[variables[1]]) in (0, 1)


def test_time_limit_with_incumbent(bench: Bench) -> None:
    limits = Limits(time_s=1.0)
    started = time.perf_counter()
    run = bench.run(market_split(6, 50, slack=True), limits)
    assert time.perf_counter() - started < 1.1 + 1
    assert (run.stop, run.infeasible) == (Stop.TIME_LIMIT, False)
    assert run.values is not None and run.objective is not None
    assert run.bound is not None and run.bound < run.objective


def test_time_limit_without_incumbent(bench: Bench) -> None:
    started = time.perf_counter()
    run = bench.run(market_split(6, 50, slack=False), Limits(time_s=1.0))
    assert time.perf_counter() - started < 1.1 + 1
    assert (run.stop, run.infeasible) == (Stop.TIME_LIMIT, False)
    assert (run.values, run.objective, run.bound) == (None, None, None)


def test_no_time_at_all(bench: Bench) -> None:
    run = bench.run(ITEMS, Limits(time_s=0.0))
    assert (run.stop, run.values, run.objective, run.bound, run.infeasible) == (
        Stop.TIME_LIMIT, None, None, None, False,
    )  # fmt: skip


def test_interrupted(bench: Bench) -> None:
    watch = Watch(Limits())
    threading.Timer(0.7, watch.stop, [Stop.INTERRUPTED]).start()
    run = bench.run(market_split(6, 50, slack=True), Limits(), watch)
    assert run.stop is Stop.INTERRUPTED
    assert run.values is not None
    assert watch.elapsed_s() < 3


def test_listeners_hear_improvements_and_bounds(bench: Bench) -> None:
    model, variables = WRITTEN[bench.name](market_split(4, 30, slack=True))
    received: list[float] = []
    bounds: list[float] = []

    def listen(values: Any) -> None:
        received.append(sum(values[variable] for variable in variables[30:]))

    run = BACKENDS[bench.name].load().run(model, Limits(time_s=1.0), on_solution=listen, on_bound=bounds.append)
    assert len(received) > 1 and received == sorted(received, reverse=True)
    assert run.objective == pytest.approx(min(received))
    assert bounds and max(bounds) <= run.objective + 1e-6


def test_an_exception_of_a_listener_ends_the_run(bench: Bench) -> None:
    def fail(_: Any) -> None:
        raise LookupError("stop here")

    started = time.perf_counter()
    with pytest.raises(LookupError, match="stop here"):
        bench.run(market_split(6, 50, slack=True), Limits(time_s=15), on_solution=fail)
    assert time.perf_counter() - started < 5


def test_same_seed_same_run(bench: Bench) -> None:
    linear = market_split(3, 14, slack=True)
    first, second = (bench.run(linear, Limits(seed=3)) for _ in range(2))
    assert first.objective == second.objective
    assert first.stats == second.stats


def test_two_threads(bench: Bench) -> None:
    run = bench.run(ITEMS, Limits(time_s=20, threads=2))
    assert (run.stop, round(run.objective or 0)) == (Stop.PROVED, 17)


@pytest.mark.parametrize("name", list(BACKENDS))
def test_canaries_are_solved(name: str) -> None:
    canaries = BACKENDS[name].canaries()
    assert len(canaries) == 3
    assert [canary.check() for canary in canaries] == [None] * 3


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
    assert "known" in (Canary("known", optimum, lambda: run).check() or "")


def test_cpsat_refuses_an_invalid_model() -> None:
    with pytest.raises(ValueError, match="invalid CP-SAT model"):
        Bench("cpsat").run(Linear(upper=[2**61], rows=[([2**62], "<=", 1)]))


class Failing:
    """Stands in for a solver's call: it fails so many times, then runs."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.seeds: list[int] = []


def failing_highs(monkeypatch: pytest.MonkeyPatch, times: int) -> Failing:
    import highspy

    from solvers import milp

    failing = Failing(times)

    class Highs(highspy.Highs):  # type: ignore[misc]
        def run(self) -> Any:
            failing.seeds.append(self.getOptionValue("random_seed")[1])
            self.failed = len(failing.seeds) <= failing.times
            return highspy.HighsStatus.kError if self.failed else super().run()

        def getModelStatus(self) -> Any:  # noqa: N802 - HiGHS's name
            return highspy.HighsModelStatus.kSolveError if self.failed else super().getModelStatus()

    monkeypatch.setattr(milp.highspy, "Highs", Highs)
    monkeypatch.setattr(milp, "version", lambda: "HiGHS")
    return failing


def failing_cpsat(monkeypatch: pytest.MonkeyPatch, times: int) -> Failing:
    from ortools.sat.python import cp_model

    from solvers import cpsat

    failing = Failing(times)

    class CpSolver(cp_model.CpSolver):  # type: ignore[misc]
        def solve(self, *arguments: Any) -> Any:
            failing.seeds.append(self.parameters.random_seed)
            if len(failing.seeds) <= failing.times:
                super().solve(cp_model.CpModel())
                return cp_model.UNKNOWN
            return super().solve(*arguments)

    monkeypatch.setattr(cpsat.cp_model, "CpSolver", CpSolver)
    return failing


FAILING = {"cpsat": failing_cpsat, "highs": failing_highs}


@pytest.mark.parametrize("limits", [Limits(seed=7), Limits(seed=7, time_s=30)], ids=["no limit", "limit"])
def test_a_solver_that_fails_once_is_run_again(bench: Bench, limits: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = FAILING[bench.name](monkeypatch, 1)
    run = bench.run(ITEMS, limits)
    assert (run.stop, round(run.objective or 0), run.reason) == (Stop.PROVED, 17, "")
    # A proof of HiGHS is made twice.
    assert failing.seeds == [7, 8, 7][: len(failing.seeds)] and len(failing.seeds) >= 2


@pytest.mark.parametrize("limits", [Limits(seed=7), Limits(seed=7, time_s=30)], ids=["no limit", "limit"])
def test_a_failure_is_a_result_that_proves_nothing(
    bench: Bench, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = FAILING[bench.name](monkeypatch, 9)
    run = bench.run(ITEMS, limits)
    assert (run.stop, run.infeasible, run.values, run.bound) == (Stop.COMPLETED, False, None, None)
    assert " failed: " in run.reason and len(failing.seeds) == 2


def test_nothing_is_run_again_after_a_stop(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = FAILING[bench.name](monkeypatch, 9)
    watch = Watch()
    model, _ = WRITTEN[bench.name](ITEMS)
    backend = BACKENDS[bench.name].load()
    name = "_run" if bench.name == "highs" else "_stopping"
    own = getattr(backend, name)

    def stopping(*arguments: Any) -> Any:
        watch.stop(Stop.INTERRUPTED)
        return own(*arguments)

    monkeypatch.setattr(backend, name, stopping)
    assert backend.run(model, Limits(), watch).stop is Stop.INTERRUPTED
    assert len(failing.seeds) == 1


def test_only_the_pinned_version_is_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution = BACKENDS[bench.name].distribution
    monkeypatch.setattr(pinned, "installed", lambda name: "1.14.0" if name == distribution else pinned.PINNED[name])
    with pytest.raises(
        pinned.BackendError, match=f"^{distribution} is 1.14.0; expected .* pip install {distribution}=="
    ):
        bench.run(ITEMS)
    other = next(name for name in BACKENDS if name != bench.name)
    assert Bench(other).run(ITEMS).stop is Stop.PROVED


def test_an_absent_package_is_not_of_the_pinned_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pinned.installed("no-such-package") == "absent"
    monkeypatch.setitem(pinned.PINNED, "no-such-package", "1.0")
    with pytest.raises(pinned.BackendError, match=r"^no-such-package is absent; expected 1\.0"):
        pinned.demand("no-such-package")


def test_every_backend_is_pinned_once_and_pyproject_pins_the_same() -> None:
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    exact = dict(line.split("==") for line in project["dependencies"] if "==" in line)
    assert set(pinned.PINNED) == {backend.distribution for backend in BACKENDS.values()}
    assert {name: exact[name] for name in pinned.PINNED} == pinned.PINNED


@pytest.mark.skipif(sys.platform != "linux", reason="C's stdout is a variable of glibc's")
def test_what_c_code_prints_during_a_run_is_dropped() -> None:
    """HiGHS 1.12 prints a line of debugging on stdout; what Python prints there, and C code otherwise, is left."""
    script = (
        "import ctypes\n"
        "from solvers.silence import silent\n"
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

    from solvers import milp

    unbounded = pyo.ConcreteModel()
    unbounded.x = pyo.Var(domain=pyo.NonNegativeReals)
    unbounded.objective = pyo.Objective(expr=-unbounded.x)
    with pytest.raises(ValueError, match="unbounded"):
        milp.run(unbounded, Limits())
    with pytest.raises(ValueError, match="expected 'highs'"):
        milp.run(pyo.ConcreteModel(), Limits(), solver="other")
    with pytest.raises(ValueError, match="HiGHS option"):
        milp.run(pyo.ConcreteModel(), Limits(), options={"no_such_option": 1})


@pytest.mark.parametrize(("coefficient", "solved"), [(1e14, True), (1e15, False), (1e300, False)])
def test_rows_that_highs_refuses_are_not_lost(coefficient: float, solved: bool) -> None:
    """Pyomo hands all rows over at once and HiGHS takes none of them: what is left is another model."""
    import pyomo.environ as pyo

    from solvers import milp

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
    from solvers import milp

    linear = market_split(3, 14, slack=True)
    best = Bench("highs").solved(linear)
    model, variables = for_highs(linear)
    hint = [(variable, round(best[0].values[other])) for variable, other in zip(variables, best[1], strict=True)]
    received: list[float] = []
    milp.run(model, Limits(), hint=hint, on_solution=lambda v: received.append(sum(v[x] for x in variables[14:])))
    assert received and received[0] == pytest.approx(best[0].objective)


@pytest.mark.parametrize(
    "order", [("ortools.sat.python.cp_model", "highspy"), ("highspy", "ortools.sat.python.cp_model")]
)
def test_both_import_orders(order: tuple[str, str]) -> None:
    """The two packages bring their own copies of HiGHS: either order must load, and both must still be right."""
    script = (
        f"import {order[0]}, {order[1]}\n"
        "from solvers import BACKENDS\n"
        "print([canary.check() for backend in BACKENDS.values() for canary in backend.canaries()])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str([None] * 6), "")


def test_listing_the_backends_imports_none() -> None:
    script = "import sys, solvers; print([name for name in ('ortools', 'highspy', 'pyomo') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
