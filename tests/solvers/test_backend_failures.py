"""Solvers that fail, and solvers of another version than the pinned one."""

import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from backend_models import ITEMS, WRITTEN, Bench, Linear
from paths import ROOT

from solvers import BACKENDS
from solvers.callback_bridge import Relay
from solvers.external import process
from solvers.external.engines import engine_of
from solvers.external.messages import Bound, Ended, Outcome, Solution
from solvers.outcome import Limits, Stop, Watch
from solvers.trust import pins


class Failing:
    """Stands in for a solver's call: it fails so many times, then runs."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.seeds: list[int] = []
        #: What happens before each call.
        self.before: Callable[[], None] = lambda: None

    def failed(self, seed: int) -> bool:
        """Whether this call fails."""
        self.before()
        self.seeds.append(seed)
        return len(self.seeds) <= self.times


def here(name: str, task: Any, watch: Watch, relay: Relay, seen: Callable[[Any], Any]) -> tuple[Ended, str]:
    """`process.run_task`, in this process."""

    def tell(message: Solution | Bound) -> None:
        if isinstance(message, Bound):
            relay.bound(message.value)
        else:
            relay.solution(seen(message.values))

    stopped: Any = SimpleNamespace(is_set=watch.stopped)
    return engine_of(name, stopped).solve(replace(task, seconds=watch.remaining_s()), tell), name


def failing_highs(monkeypatch: pytest.MonkeyPatch, times: int) -> Failing:
    import highspy

    failing = Failing(times)

    class Highs(highspy.Highs):  # type: ignore[misc]
        def run(self) -> Any:
            self.failed = failing.failed(self.getOptionValue("random_seed")[1])
            return highspy.HighsStatus.kError if self.failed else super().run()

        def getModelStatus(self) -> Any:  # noqa: N802 - HiGHS's name
            return highspy.HighsModelStatus.kSolveError if self.failed else super().getModelStatus()

    monkeypatch.setattr(highspy, "Highs", Highs)
    monkeypatch.setattr("solvers.milp.backend.version", lambda: "HiGHS")
    monkeypatch.setattr(process, "run_task", here)
    return failing


def failing_cpsat(monkeypatch: pytest.MonkeyPatch, times: int) -> Failing:
    failing = Failing(times)
    own = process.run_task

    def ended(name: str, task: Any, *given: Any) -> tuple[Ended, str]:
        seed = re.search(r"random_seed: (\d+)", task.parameters)
        return (Ended(Outcome.LIMIT), name) if failing.failed(int(seed[1]) if seed else 0) else own(name, task, *given)

    monkeypatch.setattr(process, "run_task", ended)
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


@pytest.mark.parametrize("maximise", [False, True])
def test_a_gap_that_was_allowed_is_no_proof(bench: Bench, maximise: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Ended(Outcome.SOLVED, np.array([8]), 8.0, 10.0 if maximise else 5.0)
    monkeypatch.setattr(process, "run_task", lambda *_: (said, bench.name))
    run = bench.run(Linear(upper=[10], rows=[([-1], "<=", -5)], minimise=[1], maximise=maximise), Limits(gap=0.5))
    assert (run.stop, run.objective) == (Stop.COMPLETED, 8.0)


def test_nothing_is_run_again_after_a_stop(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = FAILING[bench.name](monkeypatch, 9)
    watch = Watch()
    model, _ = WRITTEN[bench.name](ITEMS)
    failing.before = lambda: watch.stop(Stop.INTERRUPTED)
    assert BACKENDS[bench.name].load().run(model, Limits(), watch).stop is Stop.INTERRUPTED
    assert len(failing.seeds) == 1


def test_only_the_pinned_version_is_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution = BACKENDS[bench.name].distribution
    monkeypatch.setattr(pins, "installed_version", lambda name: "1.14.0" if name == distribution else pins.PINNED[name])
    with pytest.raises(pins.BackendError, match=f"^{distribution} is 1.14.0; expected .* pip install {distribution}=="):
        bench.run(ITEMS)
    other = next(name for name in BACKENDS if name != bench.name)
    assert Bench(other).run(ITEMS).stop is Stop.PROVED


def test_an_absent_package_is_not_of_the_pinned_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pins.installed_version("no-such-package") == "absent"
    monkeypatch.setitem(pins.PINNED, "no-such-package", "1.0")
    with pytest.raises(pins.BackendError, match=r"^no-such-package is absent; expected 1\.0"):
        pins.demand("no-such-package")


def test_every_backend_is_pinned_once_and_pyproject_pins_the_same() -> None:
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    exact = dict(line.split("==") for line in project["dependencies"] if "==" in line)
    assert set(pins.PINNED) == {backend.distribution for backend in BACKENDS.values()}
    assert {name: exact[name] for name in pins.PINNED} == pins.PINNED
