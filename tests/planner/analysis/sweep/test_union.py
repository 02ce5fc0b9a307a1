"""Several runs as one result: whose proof it is, and that nothing is proved where a run is missing."""

from __future__ import annotations

import pytest

import planner
from formulations.figures.plan_figures import Breakdown
from planner.analysis.sweep import union
from planner.display.tables import show_breakdown
from solvers.outcome import Status, Stop


def test_nothing_is_proved_without_all_runs() -> None:
    best = planner.solve(planner.load("chain8"), exact=True)
    whole = union(best, [best], [best.bound], is_whole=True)
    assert (whole.status, whole.stop, whole.proved_by) == (Status.OPTIMAL, Stop.PROVED, best.proved_by)
    part = union(best, [best], [best.bound], is_whole=False)
    assert (part.status, part.stop, part.bound, part.proved_by) == (Status.FEASIBLE, Stop.COMPLETED, None, None)


def test_figures_are_shown_with_their_units(capsys: pytest.CaptureFixture[str]) -> None:
    rows = tuple({"slack_bytes": bytes_} for bytes_ in (2048.0, 2048.0, 0.0))
    show_breakdown(Breakdown(rows, {"bubble_share": 0.25}))
    shown = capsys.readouterr().out
    assert "slack_bytes" not in shown and "slack" in shown
    assert "0-1" in shown and "2 KiB" in shown and "bubble_share 25 %" in shown
