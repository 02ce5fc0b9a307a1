"""An exact search and a model at once: shared plans, the first proof, errors, and nothing left running."""

import threading
import time
from dataclasses import replace
from typing import Any

import counting
import pytest
from counting import Counting
from load import allowed_s

import formulations
import planner
from formulations.contract.family import Answer, Claim, Method
from planner import CrosscheckError, Limits, Status, Stop, UsageError
from planner.cli.app import main
from solvers import Backend
from solvers.outcome import Watch

FEW = Counting("few", (1, 2, 3, 4), 5)


def with_methods(monkeypatch: pytest.MonkeyPatch, **solves: Any) -> None:
    """The family of counting with a ``search`` and a ``model``."""
    methods = tuple(
        Method(
            name,
            Claim.EXACT,
            "",
            solve,
            backend="cpsat" if name == "cpsat" else "",
            build=None if name == "search" else counting.exact,
        )
        for name, solve in solves.items()
    )
    of = replace(counting.FAMILY, methods=methods, choose=lambda *_: (methods[0].name, "it is the first"))
    monkeypatch.setattr(formulations, "FAMILIES", (of,))


def waiting(_: Counting, __: Limits, watch: Watch) -> Answer[Any]:
    while not watch.stopped():
        time.sleep(0.005)
    return Answer(stop=watch.why())


def knows_plan(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    watch.plan((3, 0), 2.0)
    return waiting(instance, limits, watch)


def proves_once_it_knows(_: Counting, __: Limits, watch: Watch) -> Answer[Any]:
    while watch.best_objective is None and not watch.stopped():
        time.sleep(0.005)
    watch.bound(watch.best_objective or 0.0, "solver")
    return Answer(solver="the solver")


def fails(*_: Any) -> Answer[Any]:
    raise ZeroDivisionError("a bug")


def refutes(*_: Any) -> Answer[Any]:
    return Answer(infeasible=True, stop=Stop.PROVED, reason="there is no plan")


def run(**more: Any) -> planner.Result:
    return planner.solve(more.pop("instance", FEW), method="portfolio", limits=Limits(time_s=20), **more)


def test_a_plan_of_one_and_the_bound_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with_methods(monkeypatch, search=knows_plan, model=proves_once_it_knows)
    found = run()
    assert (found.status, found.stop, found.proved_by) == (Status.OPTIMAL, Stop.PROVED, "solver")
    assert found.plan == {"picked": [3, 0]} and found.claim == "exact" and found.seconds < allowed_s(5)
    assert "search and model at once" in found.reason and found.solver == "the solver"


def test_the_first_proof_ends_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for solves in ({"search": counting.exact, "model": waiting}, {"search": waiting, "model": counting.exact}):
        with_methods(monkeypatch, **solves)
        found = run()
        assert found.status is Status.OPTIMAL and found.seconds < allowed_s(5)
        assert found.proved_by == next(name for name, solve in solves.items() if solve is counting.exact)
        assert not [each for each in threading.enumerate() if each.name in ("planner-search", "planner-model")]


def test_a_proof_that_there_is_none_is_one_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    with_methods(monkeypatch, search=waiting, model=refutes)
    found = run(instance=Counting("none", (1, 2), 11))
    assert (found.status, found.proved_by) == (Status.INFEASIBLE, "model")


def test_limits_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with_methods(monkeypatch, search=knows_plan, model=waiting)
    found = planner.solve(FEW, method="portfolio", limits=Limits(time_s=0.2))
    assert (found.status, found.stop) == (Status.FEASIBLE, Stop.TIME_LIMIT) and found.seconds < allowed_s(1.5)
    with_methods(monkeypatch, search=waiting, model=fails)
    with pytest.raises(ZeroDivisionError):
        run()
    with_methods(monkeypatch, search=lambda *_: Answer(plan=()), model=waiting)
    with pytest.raises(CrosscheckError, match="breaks"):
        planner.solve(FEW, method="portfolio", limits=Limits(time_s=0.3))
    with_methods(monkeypatch, search=waiting)
    with pytest.raises(UsageError, match="search alone"):
        run()


def test_the_process_of_its_model_starts_before_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    monkeypatch.setattr(Backend, "start", lambda _: None)
    monkeypatch.setattr(Backend, "prepare", lambda backend: (time.sleep(0.2), waited.append(backend.name)))
    with_methods(monkeypatch, search=counting.exact, cpsat=waiting)
    found = run()
    assert waited == ["cpsat"] and found.seconds < 0.2 <= found.stats["start_seconds"]


def test_both_kinds_of_a_real_problem(capsys: pytest.CaptureFixture[str]) -> None:
    found = planner.solve(planner.load("layers", layers=10, stages=3), method="portfolio")
    assert found.status is Status.OPTIMAL and "at once" in found.reason
    assert main(["solve", "layers", "--layers", "9", "--stages", "3", "--portfolio", "--json"]) == 0
    assert '"method": "portfolio"' in capsys.readouterr().out
    assert main(["solve", "layers", "--portfolio", "--method", "milp"]) == 2


def test_what_both_leave_open_goes_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with_methods(monkeypatch, search=counting.bounded, model=counting.nothing, third=counting.exact)
    found = run()
    assert (found.method, found.status, found.objective) == ("third", Status.OPTIMAL, 2.0)
    assert list(found.stats["tried"]) == ["portfolio", "third"]
