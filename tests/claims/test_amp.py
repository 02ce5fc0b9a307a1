"""The claims of AMP: every strategy, the published predictions, the printed tables."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from instances.amp_experiments import EXPERIMENTS, analytic_profiles, experiment, lengths_between, printed_cuts
from instances.errors import InstanceError
from planner.claims.amp_experiment import examine, spearman
from planner.claims.amp_tables import TABLES
from planner.errors import UsageError
from planner.reproduce import Reproduction, reproduce

NAMES = {"amp-homogeneous": (53, 10, 10), "amp-het-cluster": (53, 10, 9), "amp-het-model": (65, 7, 4)}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where published inputs are is said by ``inputs`` alone."""
    monkeypatch.delenv("PLANNER_PUBLISHED", raising=False)


@pytest.mark.parametrize("name", NAMES)
def test_without_inputs_an_analytic_profile_stands_in_and_says_so(name: str) -> None:
    found = reproduce(name).evidence
    assert "analytic" in found.inputs and (found.compared, found.matched) == (0, 0)
    assert len(found.rows) == NAMES[name][0]
    for row in found.rows:
        assert row["exact_joint_s"] <= min(row["exact_s"], row["predicted_s"]) * (1 + 1e-12)
        assert row["measured_s"] is None and row["match"] is None


@pytest.mark.paper
@pytest.mark.parametrize("name", NAMES)
def test_published_predictions_and_tables(name: str, published: Path) -> None:
    strategies, printed, met = NAMES[name]
    found: Reproduction = reproduce(name, inputs=str(published / "amp"))
    rows = [row for row in found.evidence.rows if row["table"] is None]
    tables = [row for row in found.evidence.rows if row["table"] is not None]
    assert found.evidence.inputs == "published"
    assert len(rows) == strategies and len(tables) == printed
    assert all(row["match"] is not False for row in rows) and sum(row["match"] is True for row in rows) >= 20
    assert sum(row["match"] for row in tables) == met
    assert found.evidence.compared - found.evidence.matched == printed - met
    assert len({tuple(row) for row in found.evidence.rows}) == 1
    assert [row["predicted_s"] for row in rows] == sorted(row["predicted_s"] for row in rows)
    assert found.to_json()["matched"] == found.evidence.matched


@pytest.mark.paper
def test_how_many_strategies_the_exact_assignment_improves(published: Path) -> None:
    import json

    profiles = json.loads((published / "amp" / "layer_forward_times.json").read_text())["profiles"]
    better = {}
    for name in EXPERIMENTS:
        found = examine(experiment(name, profiles))
        ratios = [each.released_pipeline_s / each.exact_pipeline_s for each in found]
        assert min(ratios) >= 1 - 1e-12
        better[name] = sum(ratio > 1 + 1e-9 for ratio in ratios), round(100 * (max(ratios) - 1), 2)
    assert better == {"homogeneous": (4, 0.10), "het_cluster": (12, 0.53), "het_model": (5, 0.07)}


def test_bad_inputs_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--inputs is .*layer_forward_times\.json"):
        reproduce("amp-homogeneous", inputs=str(tmp_path))
    (tmp_path / "layer_forward_times.json").write_text('{"profiles": {}}')
    with pytest.raises(InstanceError, match="profiles is"):
        reproduce("amp-homogeneous", inputs=str(tmp_path))


def test_printed_cuts_and_lengths_are_inverse() -> None:
    for name in EXPERIMENTS:
        layers = len(experiment(name, analytic_profiles()).layers)
        for lengths in ([layers], [1, layers - 1], [layers - 13, 13], [2, 11, layers - 13]):
            assert lengths_between(name, printed_cuts(name, lengths)) == lengths
    # Cuts on either side of layers that do nothing are one cut.
    assert lengths_between("het_model", [0, 41, 56]) == lengths_between("het_model", [0, 15, 56]) == [13, 12]


def test_the_printed_tables_are_cuts_of_the_models() -> None:
    for name, rows in TABLES.items():
        for row in rows:
            assert row.cuts[0] == 0 and row.cuts[-1] == (56 if name == "het_model" else 30)
            assert all(before < after for before, after in pairwise(row.cuts))
            assert row.table == 10 or len(row.cuts) - 1 == row.pp_degree


def test_rank_correlation() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 99]) == pytest.approx(1.0)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    # Ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3: covariance 4.5, variances 4.5 and 5.
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert spearman([1, 1], [1, 2]) != spearman([1, 1], [1, 2])
