"""Pipelines with flushes: what the plan without them loses, and the simulation beside the formula."""

from pathlib import Path

import pytest

from planner.reproduction.piper import flush
from planner.reproduction.piper.inputs import ANALYTIC, PUBLISHED
from planner.reproduction.reproduce import reproduce


def test_rows_on_the_analytic_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLANNER_PUBLISHED", raising=False)
    found = reproduce("piper-flush", devices=8).evidence
    assert (found.inputs, found.compared, len(found.rows)) == (ANALYTIC, 0, 4)
    assert "proved: 6 of 6" in found.notes[1]
    assert [(row["devices"], row["microbatches"]) for row in found.rows] == [(8, 8)] * 2 + [(8, 64)] * 2
    both = [row for row in found.rows if row["flat"] is not None and row["exact"] is not None]
    assert both
    for row in both:
        assert row["flat"] >= row["exact"] * (1 - 1e-9) and row["lost_percent"] >= -1e-6
        assert row["gap"] <= 1e-6


@pytest.mark.paper
def test_the_formula_and_the_simulation_disagree_on_eight_devices(published: Path) -> None:
    found = flush.run(str(published), lambda _: None, devices=8)
    row = found.rows[0]
    assert found.inputs == PUBLISHED
    assert (row["devices"], row["microbatches"], row["schedule"]) == (8, 8, "1f1b")
    assert (row["flat_depth"], row["exact_depth"]) == (8, 5)
    assert row["lost_percent"] == pytest.approx(13.5, abs=0.05)
    assert row["lost_simulated_percent"] == pytest.approx(-7.9, abs=0.05)
    assert row["exact_simulated"] / row["exact"] == pytest.approx(1.20, abs=0.005)
    gpipe = [row for row in found.rows if row["schedule"] == "gpipe"]
    assert all(row["flat"] is None for row in gpipe) and [row["exact"] is None for row in gpipe] == [False, True]
