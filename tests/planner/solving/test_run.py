"""Running one method: what is derived, what is refused, and what happens when a method will not stop."""

import math
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import counting
import pytest
from counting import Counting
from load import allowed_s
from numba import njit

import formulations.compiled.machine_code
import planner
from formulations.compiled.python_first import GivenUpError
from formulations.contract.family import Answer, Lazy, lazy
from planner import CrosscheckError, Limits, Status, Stop, UsageError
from planner.solving.judge import Judge
from planner.solving.known import Known
from planner.solving.solve import _time_left, run
from solvers import Backend
from solvers.memory_budget import SizeError
from solvers.outcome import Watch

FEASIBLE = Counting("four", (1, 2, 3, 4), 5)
INFEASIBLE = Counting("four", (1, 2, 3, 4), 11)


def signalled(number: int, after_s: float = 0.2) -> threading.Timer:
    timer = threading.Timer(after_s, os.kill, (os.getpid(), number))
    timer.start()
    return timer


def test_optimal_is_derived_from_plan_and_bound() -> None:
    result = planner.solve(FEASIBLE, exact=True)
    assert (result.status, result.stop, result.verified) == (Status.OPTIMAL, Stop.PROVED, True)
    assert (result.objective, result.bound, result.gap) == (2.0, 2.0, 0.0)
    assert (result.problem, result.method, result.claim, result.unit) == ("counting", "exact", "exact", "numbers")
    assert result.plan == {"picked": [0, 3]}
    assert result.stats["subsets"] == 16


@pytest.mark.parametrize(
    ("received", "answer", "expected"),
    [
        ({}, Answer(bound=1.0), "search"),
        ({"bounds": 1.0}, Answer(bound=1.0), "bounds"),
        ({"bounds": 1.0, "solver": 1.0 - 1e-7}, Answer(bound=1.0), "solver"),
        ({"bounds": 0.9, "solver": 0.8}, Answer(bound=0.9), "bounds"),
        ({"bounds": 0.9}, Answer(bound=1.0), "search"),
        ({"bounds": 0.9}, Answer(bound=1.0, proved_by="other"), "other"),
        ({"bounds": math.inf}, Answer(bound=0.5), "search"),
        ({"bounds": 0.5}, Answer(infeasible=True, proved_by="solver"), "solver"),
        ({}, Answer(infeasible=True), "search"),
        ({}, Answer(), None),
    ],
)
def test_a_proof_is_whose_bound_closes_the_gap(received: dict[str, float], answer: Answer[Any], expected: str) -> None:
    watch = Watch()
    for by, value in received.items():
        watch.bound(value, by)
    family, instance = formulations.FAMILIES[-1], Counting("one", (5, 1, 4), 5)
    method = family.method("exact")
    assert family.name == "counting"
    if not answer.infeasible:
        answer = replace(answer, plan=family.plan_from_json(instance, {"picked": [0]}))
    verdict = Judge(family, method, instance, Limits(), watch, Known()).verdict(answer)
    assert verdict.proved_by == expected and verdict.objective == (None if answer.infeasible else 1.0)


def test_a_word_of_proof_is_not_copied() -> None:
    result = planner.solve(FEASIBLE, method="bounded")
    assert (result.status, result.stop, result.gap) == (Status.FEASIBLE, Stop.COMPLETED, 0.5)


@pytest.mark.parametrize(("gap", "is_said"), [(0.49, False), (0.5, True), (0.9, True)])
def test_a_stop_within_the_gap_says_so(gap: float, is_said: bool) -> None:
    result = planner.solve(FEASIBLE, method="bounded", exact=True, limits=Limits(gap=gap))
    assert (result.stop, result.gap) == (Stop.COMPLETED, 0.5)
    words = f"stopped at a gap of 50 %, within the {100 * gap:.3g} % of --gap"
    assert result.reason.endswith(words) == is_said and ("--gap" in result.reason) == is_said


def test_without_a_bound_there_is_no_gap() -> None:
    result = planner.solve(FEASIBLE, method="greedy")
    assert (result.status, result.bound, result.gap) == (Status.FEASIBLE, None, None)


def test_nothing_found_is_unknown_and_its_numbers_are_absent() -> None:
    result = planner.solve(FEASIBLE, method="nothing")
    assert (result.status, result.stop, result.objective, result.verified) == (
        Status.UNKNOWN, Stop.COMPLETED, None, False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("bad-plan", "breaks: target"),
        ("bad-bound", "claims the bound 4.01"),
        ("bad-claim", "claims 0.5 for a plan of 4.0"),
        ("bad-proof", "infeasible, yet has a plan"),
    ],
)
def test_what_cannot_be_true_is_refused_with_its_evidence(method: str, words: str) -> None:
    with pytest.raises(CrosscheckError, match=words) as caught:
        planner.solve(FEASIBLE, method=method)
    assert caught.value.evidence["instance"] == {"problem": "counting", "numbers": [1, 2, 3, 4], "target": 5}


def test_a_crash_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError, match="a bug"):
        planner.solve(FEASIBLE, method="crash")


def test_a_time_limit_ends_a_polite_method() -> None:
    result = run(counting.FAMILY, counting.FAMILY.method("patient"), FEASIBLE, Limits(time_s=0.2), {})
    assert (result.status, result.stop, result.bound) == (Status.FEASIBLE, Stop.TIME_LIMIT, 1.0)
    assert 0.2 <= result.seconds < allowed_s(0.5)


@pytest.mark.parametrize("limit", [0.0, 0.3])
def test_a_method_that_hangs_is_left_behind_with_its_plan(limit: float) -> None:
    began = time.perf_counter()
    result = planner.solve(FEASIBLE, method="stubborn", limits=Limits(time_s=limit))
    assert time.perf_counter() - began < allowed_s(1.1 * limit + 1)
    assert (result.objective, result.bound, result.stop) == (4.0, 1.0, Stop.TIME_LIMIT)
    assert result.stats["left_behind"] is True
    assert re.search(r"; it had not ended [\d.]+ s after the limit$", result.reason)


def test_a_method_that_was_left_behind_reports_nothing_any_more() -> None:
    go_on, over, received = threading.Event(), threading.Event(), []

    def late(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
        watch.plan(counting.everything(instance), float(len(instance.numbers)))
        go_on.wait(10)
        watch.bound(1.0)
        over.set()
        return Answer()

    method = replace(counting.FAMILY.method("exact"), solve=late)
    result = run(counting.FAMILY, method, FEASIBLE, Limits(time_s=0.1), {}, listen=received.append)
    assert result.stats["left_behind"] is True and len(received) == 1
    go_on.set()
    assert over.wait(10)
    assert len(received) == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SizeError("a table would need 1e+12 bytes"), "a table would need 1e+12 bytes"),
        (MemoryError("Unable to allocate 298. GiB"), "memory ran out: Unable to allocate 298. GiB"),
        (MemoryError(), "memory ran out"),
    ],
)
def test_a_method_that_finds_no_room_ends_with_what_it_has(error: Exception, words: str) -> None:
    def large(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
        watch.plan(counting.everything(instance), float(len(instance.numbers)))
        raise error

    method = replace(counting.FAMILY.method("exact"), solve=large)
    result = run(counting.FAMILY, method, FEASIBLE, Limits(), {})
    assert (result.status, result.stop, result.objective) == (Status.FEASIBLE, Stop.SIZE_LIMIT, 4.0)
    assert result.reason == words


def test_compilation_counts_neither_as_seconds_nor_against_the_limit() -> None:
    result = planner.solve(FEASIBLE, method="compiled", limits=Limits(time_s=0.3))
    assert result.status is Status.OPTIMAL
    assert result.stats["compile_seconds"] >= 0.4
    assert result.seconds < 0.3


def test_waiting_for_a_solver_is_told_from_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backend, "start", lambda _: None)
    monkeypatch.setattr(Backend, "prepare", lambda _: time.sleep(0.3))
    method = replace(counting.FAMILY.method("exact"), name="milp", backend="highs", prepare=lambda: time.sleep(0.1))
    result = run(counting.FAMILY, method, FEASIBLE, Limits(time_s=0.2), {})
    assert result.status is Status.OPTIMAL and result.seconds < 0.2
    assert result.stats["start_seconds"] >= 0.3 > 0.25 > result.stats["compile_seconds"] >= 0.1
    assert "start_seconds" not in planner.solve(FEASIBLE, method="exact").stats
    left = _time_left(
        Limits(time_s=1.0), 0.5 + result.stats["start_seconds"] + result.stats["compile_seconds"], [result], True
    )
    assert left == pytest.approx(0.5)


def test_importing_counts_neither_as_seconds_nor_against_the_limit(tmp_path: Path, monkeypatch: Any) -> None:
    slow = "import time\ntime.sleep(0.4)\nfrom counting import exact\n"
    (tmp_path / "imported_slowly.py").write_text(slow)
    monkeypatch.syspath_prepend(tmp_path)
    method = replace(counting.FAMILY.method("exact"), solve=lazy("imported_slowly:exact"))
    result = run(counting.FAMILY, method, FEASIBLE, Limits(time_s=0.3), {})
    assert result.status is Status.OPTIMAL
    assert result.stats["compile_seconds"] >= 0.4
    assert result.seconds < 0.3


def test_what_a_choice_imports_counts_neither_as_seconds_nor_against_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The method would stop at once, had the import taken its time."""
    (tmp_path / "chosen_slowly.py").write_text("import time\ntime.sleep(0.4)\nfrom counting import choose\n")
    monkeypatch.syspath_prepend(tmp_path)
    family = replace(counting.FAMILY, choose=lazy("chosen_slowly:choose"))
    monkeypatch.setattr("planner.solving.solve.family_of", lambda _: family)
    limits: list[float | None] = []

    def recorded(*arguments: Any) -> Any:
        limits.append(arguments[3].time_s)
        return run(*arguments)

    monkeypatch.setattr("planner.solving.solve.run", recorded)
    assert planner.solve(FEASIBLE, limits=Limits(time_s=0.3)).status is Status.OPTIMAL
    assert limits[0] is not None and limits[0] > 0.2


def test_the_limit_starts_after_compilation() -> None:
    result = run(counting.FAMILY, counting.FAMILY.method("slow-start"), FEASIBLE, Limits(time_s=0.3), {})
    assert result.stop is Stop.TIME_LIMIT
    assert 0.3 <= result.seconds < allowed_s(0.6)


def test_the_best_of_what_was_reported_and_what_was_returned() -> None:
    result = planner.solve(FEASIBLE, method="forgetful")
    assert (result.objective, result.bound, result.status) == (2.0, 2.0, Status.OPTIMAL)


def test_compilation_is_announced_once_and_counted_but_slow_imports_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    @njit
    def chooses(x: int) -> int:
        return x - 1

    class Choosing(Lazy):
        def resolve(self) -> Any:
            return chooses(1)

    @njit
    def inner(x: int) -> int:
        return x + 1

    @njit
    def outer(x: int) -> int:
        return int(inner(x))

    def compiles(instance: Any, limits: Limits, watch: Watch) -> Any:
        outer(1)
        return counting.exact(instance, limits, watch)

    lines: list[str] = []
    result = planner.solve(FEASIBLE, method="compiled", notice=lines.append)
    assert lines == [] and "kernels_compiled" not in result.stats
    method = replace(counting.FAMILY.method("exact"), name="compiles", solve=compiles)
    methods = (*counting.FAMILY.methods, method)
    family = replace(
        counting.FAMILY,
        methods=methods,
        entries={**counting.FAMILY.entries, "chooses_by": (Choosing("choice:choose"),)},
    )
    monkeypatch.setattr(formulations, "FAMILIES", (family,))
    result = planner.solve(FEASIBLE, method="compiles", notice=lines.append)
    assert len(lines) == 1 and "compiling" in lines[0]
    assert result.stats["kernels_compiled"] >= 2


def test_what_is_interrupted_is_not_done_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = list[int]()

    def interrupted(instance: Any, limits: Limits, watch: Watch) -> Any:
        runs.append(1)
        watch.stop(Stop.INTERRUPTED)
        raise GivenUpError

    method = replace(counting.FAMILY.method("exact"), name="interrupted", solve=interrupted)
    monkeypatch.setattr(formulations, "FAMILIES", (replace(counting.FAMILY, methods=(method,)),))
    assert (planner.solve(FEASIBLE, method="interrupted").stop, runs) == (Stop.INTERRUPTED, [1])


@pytest.mark.parametrize("method", ["patient", "stubborn"])
def test_ctrl_c_gives_the_best_so_far(method: str) -> None:
    before = signal.getsignal(signal.SIGINT)
    timer = signalled(signal.SIGINT)
    result = planner.solve(FEASIBLE, method=method)
    timer.join()
    assert (result.stop, result.objective, result.signal) == (Stop.INTERRUPTED, 4.0, signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert planner.solve(FEASIBLE, method="exact").signal is None  # a signal counts once


def test_ctrl_c_counts_during_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = signalled(signal.SIGINT, 0.1)
    result = planner.solve(FEASIBLE, method="compiled")
    timer.join()
    assert result.signal == signal.SIGINT


def test_a_second_ctrl_c_does_not_wait() -> None:
    timers = [signalled(signal.SIGINT, 0.1), signalled(signal.SIGINT, 0.15)]
    began = time.perf_counter()
    result = planner.solve(FEASIBLE, method="stubborn", limits=Limits(time_s=100))
    assert time.perf_counter() - began < allowed_s(1.0)  # the grace alone would be 5.5 s
    assert result.stop is Stop.INTERRUPTED
    for timer in timers:
        timer.join()


def test_sigterm_is_left_to_the_system_unless_the_program_handles_it() -> None:
    assert planner.solve(FEASIBLE, method="handlers").stats["sigterm"] == str(signal.SIG_DFL)


def test_a_thread_other_than_the_main_one_may_solve() -> None:
    found: list[planner.Result] = []
    thread = threading.Thread(target=lambda: found.append(planner.solve(FEASIBLE)))
    thread.start()
    thread.join()
    assert found[0].status is Status.OPTIMAL


def test_infeasible_comes_with_what_would_help() -> None:
    result = planner.solve(INFEASIBLE)
    assert (result.status, result.stop, result.plan, result.bound) == (Status.INFEASIBLE, Stop.PROVED, None, None)
    assert "at most 10 can be reached" in result.reason
    assert result.stats["reachable"] == 10


def test_an_explanation_keeps_the_time_limit() -> None:
    began = time.perf_counter()
    result = planner.solve(Counting("beast", (1,), 666), limits=Limits(time_s=0.2))
    assert time.perf_counter() - began < allowed_s(1.1 * 0.2 + 1)
    assert result.status is Status.INFEASIBLE
    assert "no time was left" in result.reason


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: planner.solve(FEASIBLE, method="exakt"), "expected one of exact, "),
        (lambda: planner.solve(FEASIBLE, method="greedy", exact=True), "an exact method"),
        (lambda: planner.solve(Counting("many", (1,) * 11, 3), method="exact"), "more than 10"),
        (
            lambda: planner.solve(FEASIBLE, method="exact", options={"extra": 1}),
            "unknown option --extra for method exact, which has none",
        ),
        (lambda: planner.solve(FEASIBLE, method="greedy", options={"extra": 0}), "--extra is 0; expected an integer"),
        (lambda: planner.solve(object()), "the instance is 'object'"),
    ],
)
def test_requests_that_cannot_be_served(call: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call()


def test_options_reach_the_method_and_the_result() -> None:
    assert planner.solve(FEASIBLE, method="greedy", options={"extra": "7"}).options["extra"] == 7


def test_improvements_are_reported() -> None:
    received: list[tuple[float | None, float | None]] = []
    planner.solve(
        FEASIBLE,
        method="patient",
        limits=Limits(time_s=0.05),
        listen=lambda event: received.append((event.objective, event.bound)),
    )
    assert received == [(4.0, None), (4.0, 1.0)]
