"""Appendix C of Piper, examined by the census."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.reproduction.piper import appendix_c
from planner.reproduction.piper.inputs import ANALYTIC, PUBLISHED


@pytest.mark.paper
def test_the_claim_does_not_hold_in_general(published: Path) -> None:
    found = appendix_c.run(str(published), lambda _: None)
    assert (found.inputs, found.compared, found.matched) == (PUBLISHED, 1, 0)
    rows = {row["variant"]: row for row in found.rows}
    assert rows["sort-once"]["nontrivial"] == 246_762
    assert rows["sort-once"]["here_suboptimal"] == 332
    assert round(rows["sort-once"]["worst_gap"], 3) == 0.156
    assert found.notes[0].startswith("30,260 calls, 3,662,350 instances (3,632,090 by the count of Appendix D)")
    assert (found.figures["all_fastest_feasible"], found.figures["infeasible"]) == (246_104, 3_169_484)


def test_without_published_inputs_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLANNER_PUBLISHED", raising=False)
    found = appendix_c.run(None, lambda _: None, devices=16)
    assert (found.inputs, found.compared) == (ANALYTIC, 0)
    assert {row["variant"] for row in found.rows} == {"rerank", "sort-once", "truncating"}
    assert all(row["paper_suboptimal"] is None for row in found.rows)
