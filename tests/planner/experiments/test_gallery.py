"""The instances of the gallery lose what its page says."""

import json
import runpy
from typing import Any

import pytest
from paths import ROOT
from thinned import thinned

import planner
from planner.results.texts import percent
from solvers.outcome import Limits

DOCS = ROOT / "docs"
ROWS: dict[str, Any] = json.loads((DOCS / "gallery" / "rows.json").read_text())
LOSING = [key for key, row in ROWS.items() if row["size"] is not None]


@thinned("key", LOSING, 4)
def test_instances_lose_what_is_said(key: str) -> None:
    row = ROWS[key]
    last = row["rows"][-1]
    assert row["worst"] == last["loss"] and row["loss"] >= 0.01
    for name, loss, seed in (("smallest", row["loss"], row["seed"]), ("worst", row["worst"], last["by_seed"])):
        instance = planner.load(DOCS / "gallery" / f"{key}-{name}.json")
        best = planner.solve(instance, method=row["against"], limits=Limits(seed=seed))
        found = planner.solve(instance, method=row["method"], limits=Limits(seed=seed), options=row["options"])
        assert best.status == "optimal" and best.objective is not None and found.objective is not None
        assert found.objective / best.objective - 1 == pytest.approx(loss, rel=1e-6)


def test_the_page_has_every_entry() -> None:
    assert "<!-- gallery of losses -->" in (DOCS / "gallery-of-losses.md").read_text()
    page = runpy.run_path(str(DOCS / "gallery" / "make.py"))["sections"]()
    for key, row in ROWS.items():
        section = page.partition(f"## {row['title']}\n")[2].partition("\n## ")[0]
        assert section, key
        if row["size"] is None:
            assert "Nothing found" in section
            continue
        assert percent(row["loss"]) in section and percent(row["worst"]) in section
        losses = [None if each["loss"] is None else each["loss"] for each in row["rows"]]
        known = [loss for loss in losses if loss is not None]
        assert known == sorted(known) and f"| {' | '.join(map(percent, losses))} |" in section
        assert (DOCS / "gallery" / f"{key}.svg").exists()
