"""Models looked at within limits: what is known when time is up or a signal comes, and that solvers end then."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import planner
from formulations.amp_strategy.models import cpsat, milp
from planner.analysis.model_view import OpenModel
from planner.cli.app import main
from planner.display import progress
from solvers import highs_settings
from solvers.outcome import Limits, Stop, Watch

MODEL = ["model", "layers", "--layers", "8", "--stages", "3", "--method", "milp", "--root"]


class Ending(Watch):
    """A watch that ends a run when it is polled from inside HiGHS."""

    inside = False

    def stopped(self) -> bool:
        """Whether it has been."""
        if self.inside:
            self.stop(Stop.INTERRUPTED)
        return super().stopped()

    @contextmanager
    def runs(self) -> Iterator[None]:
        """Around a run of HiGHS."""
        self.inside = True
        yield
        self.inside = False


def test_a_relaxation_ends_once_its_watch_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    built, watch = cpsat.model_of(planner.load("amp-homogeneous")), Ending()
    monkeypatch.setattr(highs_settings, "silent", watch.runs)
    found = built.relaxation(Limits(), watch)
    assert found.bound is None and found.reason == "the relaxation was not solved (interrupted)"
    assert not found.infeasible


def test_without_time_there_is_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MODEL, "--time-limit", "0"]) == 3
    assert "milp: the model was not built (time_limit)" in capsys.readouterr().out
    assert main([*MODEL, "--time-limit", "0", "--json"]) == 3
    shown = json.loads(capsys.readouterr().out)
    assert shown["variables"] is None and shown["reason"] == "the model was not built (time_limit)"


def test_what_was_built_is_shown_where_its_relaxation_takes_too_long(monkeypatch: Any, capsys: Any) -> None:
    relaxation = milp.milp.Runnable.relaxation

    def slow(self: Any, limits: Limits, watch: Watch) -> Any:
        watch.stop(Stop.TIME_LIMIT)
        return relaxation(self, limits, watch)

    monkeypatch.setattr("solvers.milp.backend.Runnable.relaxation", slow)
    assert main([*MODEL, "--json"]) == 3
    shown = json.loads(capsys.readouterr().out)
    assert shown["variables"]["total"] > 0 and shown["root_bound"] is None
    assert shown["root_reason"] == "the relaxation was not solved (time_limit)"


def test_a_signal_ends_what_hangs(listening: list[int], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    released = threading.Event()

    def hangs(_self: OpenModel, limits: Limits) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        released.wait(20)

    monkeypatch.setattr(OpenModel, "root", hangs)
    assert main([*MODEL, "--json"]) == 130
    shown = json.loads(capsys.readouterr().out)
    assert shown["variables"]["total"] > 0 and shown["root_bound"] is None and listening == []
    assert shown["root_reason"] == "the relaxation was not solved (interrupted)"
    released.set()


def test_a_person_sees_what_is_being_done(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[Any] = []

    class Terminal:
        @contextmanager
        def status(self, line: Any) -> Iterator[None]:
            lines.append(line)
            yield

    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(progress, "console", lambda **_: Terminal())
    with progress.words_line(quiet=False) as listen:
        listen("solving")
        assert lines[0].__rich__() == "0 s  solving"
    with progress.words_line(quiet=True) as listen:
        listen("solving")
    assert len(lines) == 1
