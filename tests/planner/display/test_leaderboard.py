"""The leaderboard and the report: each method on each instance, nothing beats the best known, no typed number."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from paths import ROOT

from formulations import FAMILIES
from planner.experiments.library.entries import select
from planner.experiments.library.score import Score

pytest.importorskip("vl_convert")
pytest.importorskip("sphinx", reason="the site's extensions are not installed")
DOCS = ROOT / "docs"


@contextmanager
def _module(path: Path) -> Iterator[ModuleType]:
    found = importlib.util.spec_from_file_location(f"docs_{path.parent.name}", path)
    assert found is not None and found.loader is not None
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)
    sys.path.insert(0, str(DOCS / "extensions"))
    try:
        found.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(DOCS / "extensions"))
        del sys.modules[found.name]


@pytest.fixture(scope="module")
def generated() -> Iterator[ModuleType]:
    with _module(DOCS / "extensions" / "generated.py") as found:
        yield found


@pytest.fixture(scope="module")
def scores(generated: ModuleType) -> dict[str, Score]:
    return dict(generated.scores())


def test_every_method_ran_on_every_instance_and_none_beats_what_is_known(scores: dict[str, Score]) -> None:
    # The library has no instances of serving_strategy yet.
    assert list(scores) == [family.name for family in FAMILIES if family.name != "serving_strategy"]
    with _module(DOCS / "leaderboard" / "make.py") as make:
        for problem, found in scores.items():
            wanted = {(each.name, method) for each in select(problem) for method in make.methods_of(problem)}
            assert {(row.name, row.method) for row in found.rows} == wanted and len(found.rows) == len(wanted)
            assert found.time_limit_s == make.LIMITS.time_s and found.calibration_s > 0
    for found in scores.values():
        for record in found.records():
            for method, row in record["rows"].items():
                # what is better has to be submitted: planner library submit
                assert row["loss"] is None or row["loss"] >= -1e-9, (record["instance"], method)


@pytest.mark.slow
def test_the_page_has_a_table_of_each_problem_and_a_picture_where_methods_can_be_compared(
    generated: ModuleType, scores: dict[str, Score], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert generated.LEADERBOARD in (DOCS / "leaderboard.md").read_text()
    few = {problem: scores[problem] for problem in ("mesh_tiling", "amp_strategy")}
    monkeypatch.setattr(generated, "scores", lambda: few)
    tiles, strategies = generated.leaderboard().split("## [amp_strategy](problems/amp_strategy.md)")
    assert "data:image" not in tiles and strategies.count("data:image/svg+xml") == 2  # one for each theme
    assert "| amp | 12 | 12 | " in strategies and "explains" in strategies


@pytest.fixture(scope="module")
def paper() -> Iterator[Any]:
    with _module(DOCS / "paper" / "make.py") as found:
        yield found


def test_no_number_of_the_report_is_typed() -> None:
    assert re.findall(r"\d", (DOCS / "paper" / "paper.md").read_text()) == []
