"""Piper's tables and figures, to the last printed digit; and the same claims without the published profiles."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from thinned import thinned

import planner
from planner.reproduction.claim import Optima, meets
from planner.reproduction.piper import fig_1, fig_2, fig_3, fig_5, flush, table_1
from planner.reproduction.piper.inputs import ANALYTIC, PUBLISHED
from planner.reproduction.reproduce import reproduce
from planner.solving.solve import silent
from solvers.outcome import Status, Stop

KEYS = ["model", "devices", "memory_gib", "paper_piper", "here_piper", "paper_equi", "here_equi", "exact_dag"]


@pytest.fixture
def analytic(monkeypatch: pytest.MonkeyPatch) -> None:
    """No published inputs."""
    monkeypatch.delenv("PLANNER_PUBLISHED", raising=False)


def rows_of_table_1() -> list[Any]:
    """The printed rows; those of more than 8 devices take one to a dozen seconds each, of 8 one ResNet is enough."""
    few = [row for row in table_1.PRINTED if row[1] < 8 or (row[1] == 8 and row[2] not in ("4", "8"))]
    return [
        pytest.param(row, id="-".join(map(str, row[:3])), marks=[] if row in few else [pytest.mark.slow])
        for row in table_1.PRINTED
    ]


@pytest.mark.paper
@thinned("printed", rows_of_table_1())
def test_rows_of_table_1(published: Path, printed: tuple[str, int, str, str, str | None]) -> None:
    """Both columns to the last printed digit, and an optimum on the graph that is no worse."""
    optima = Optima()
    row = table_1.row(str(published), printed, silent, optima)
    assert list(row) == KEYS and (row["model"], row["devices"], row["memory_gib"]) == (*printed[:2], float(printed[2]))
    assert meets(row["here_piper"], printed[3]) and meets(row["here_equi"], printed[4])
    assert row["exact_dag"] <= row["here_piper"] * (1 + 1e-9) and not optima.unproved


def test_table_1_is_the_papers() -> None:
    """31 distinct rows, and two that the text speaks of: averages over the rows where equi has a plan."""
    assert len({row[:3] for row in table_1.PRINTED}) == len(table_1.PRINTED) == 31
    for model, share in (("GNMT", "0.68"), ("Resnet50", "0.46")):
        shares = [float(row[3]) / float(row[4]) for row in table_1.PRINTED if row[0] == model and row[4]]
        assert meets(sum(shares) / len(shares), share)


@pytest.mark.paper
@pytest.mark.slow
def test_table_1(published: Path) -> None:
    found = reproduce("piper-table-1", inputs=str(published)).evidence
    assert (len(found.rows), found.compared, found.matched) == (31, 62, 62)
    assert [list(row) for row in found.rows] == [KEYS] * 31
    assert "proved: 31 of 31" in found.notes[1] and "22 of 31" in found.notes[2] and "20.1 %" in found.notes[2]
    assert "68.1 %" in found.notes[3] and "7 rows" in found.notes[3]
    assert "46.0 %" in found.notes[4] and "10 rows" in found.notes[4]


@pytest.mark.slow
@pytest.mark.usefixtures("analytic")
def test_table_1_without_the_profiles() -> None:
    found = reproduce("piper-table-1").evidence
    assert "analytic" in found.inputs and found.compared == 0
    assert all(row["paper_piper"] is None and row["model"] == "bert32" for row in found.rows)
    assert all(row["exact_dag"] is None or row["exact_dag"] <= row["here_piper"] * (1 + 1e-9) for row in found.rows)
    assert found.notes == (
        "proved: 8 of 8 optima, or that there is no plan",
        "none of the 7 rows where Piper has a plan is above the graph's optimum",
    )


def test_what_is_not_proved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of optima never passes off a plan, or its absence, for a proof."""
    proved = planner.solve(planner.load("diamond"), exact=True)
    results = [
        proved,
        replace(proved, status=Status.FEASIBLE),
        replace(proved, status=Status.UNKNOWN, objective=None),
        replace(proved, status=Status.INFEASIBLE, objective=None),
    ]
    monkeypatch.setattr("planner.reproduction.claim.verified_result", lambda *_, **__: results.pop(0))
    optima = Optima()
    assert [optima.of(None, what) for what in "abcd"] == [proved.objective, proved.objective, None, None]
    assert optima.sentence() == "proved: 2 of 4 optima, or that there is no plan; not proved: b, c"


@pytest.mark.paper
def test_figure_4(published: Path) -> None:
    found = reproduce("piper-fig-4", inputs=str(published)).evidence
    assert (len(found.rows), found.compared, found.matched) == (16, 16, 16)
    assert all(row["exact"] <= row["here"] for row in found.rows)
    assert all(row["released"] is not None for row in found.rows)
    assert [row["microbatches"] for row in found.rows] == [128] * 8 + [512] * 8
    assert "proved: 2 of 2" in found.notes[1] and "the figure itself has no digits" in found.notes[2]


@pytest.mark.usefixtures("analytic")
def test_figure_4_without_the_profile() -> None:
    found = reproduce("piper-fig-4").evidence
    assert found.compared == 0 and "analytic" in found.inputs
    assert all(row["here"] is not None and row["exact"] <= row["here"] for row in found.rows)


@pytest.mark.paper
@pytest.mark.parametrize("devices", [8, pytest.param(64, marks=pytest.mark.slow)])
def test_figure_1(published: Path, devices: int) -> None:
    """Each baseline is worst where the text says so, and none beats the optimum."""
    found = reproduce("piper-fig-1", inputs=str(published), devices=devices).evidence
    rows = found.rows
    counts = sum(count <= devices for count in fig_1.DEVICES)
    assert len(rows) == 4 * counts and f"proved: {16 * counts} of {16 * counts}" in found.notes[2]
    shares = [[row[name] for name in ("piper", "no_dp", "no_tp", "no_ar", "equi", "equi_no_tp")] for row in rows]
    assert all(0 <= share <= 1 + 1e-9 for each in shares for share in each)
    assert all((row["exact"] is None) == (row["piper"] == 0) for row in rows)
    assert all(row["no_ar"] == pytest.approx(1) for row in rows if row["memory_gib"] == 80)
    assert all(row["equi"] >= row["equi_no_tp"] for row in rows)
    if devices == 64:  # memory is what fails them there
        assert any(row["piper"] == pytest.approx(1) and row["no_tp"] == row["no_ar"] == 0 for row in rows)
        assert any(row["equi"] > row["equi_no_tp"] == 0 for row in rows)


@pytest.mark.paper
@pytest.mark.slow
def test_figure_1_as_released(published: Path) -> None:
    """With the released cost model every cell is what the released program found in that setting."""
    lines = (published / "piper" / "released_results.jsonl").read_text().splitlines()
    settings = [row for row in map(json.loads, lines) if row["num_microbatches"] == 1920]
    released = {(row["num_devices"], row["memory_gib"], row["mode"]): row["tps"] for row in settings}
    columns = {"full": "piper", "nodp": "no_dp", "notp": "no_tp", "noar": "no_ar", "equi": "equi"}
    columns["equinotp"] = "equi_no_tp"
    given = {"devices": 64, "setting": "release"}
    rows = reproduce("piper-fig-1", inputs=str(published), **given).evidence.rows
    assert {(row["memory_gib"], row["microbatches"]) for row in rows} == {(gib, 1920) for gib in (1, 2, 8, 80)}
    assert {row["devices"] for row in rows} == {8, 32, 64}
    pairs = []
    for row in rows:
        for mode, column in columns.items():
            setting = row["devices"], row["memory_gib"], mode
            if setting in released:
                pairs.append((row["exact"] / row[column] if row[column] else math.inf, released[setting] or math.inf))
    assert len(pairs) == 9 * 6 and sum(math.isfinite(time) for _, time in pairs) > 20
    assert all(found == pytest.approx(time, rel=1e-6) for found, time in pairs)


def test_figure_1_counts_where_piper_is_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLANNER_PUBLISHED", raising=False)
    shares = iter([(None, 0.0), (1.0, 1.0), (1.0, 0.99), (1.0, 1.0)])
    monkeypatch.setattr(fig_1, "row", lambda *_: dict(zip(("exact", "piper"), next(shares), strict=True)))
    assert fig_1.run(None, silent, devices=8).notes[-1] == ("Piper is below the optimum in 1 of 3 feasible settings")


@pytest.mark.paper
@pytest.mark.slow
def test_figure_2(published: Path) -> None:
    """Without data parallelism nothing is gained beyond 22 devices; equi as from its own runs."""
    found = reproduce("piper-fig-2", inputs=str(published), devices=64).evidence
    assert [row["microbatches"] for row in found.rows if row["devices"] == 64] == [512, 960]
    for row in (row for row in found.rows if row["devices"] in (40, 64)):
        graph = planner.load(
            published / "piper" / "bert32a100.json",
            devices=row["devices"], memory="8GiB", microbatches=row["microbatches"], bandwidth="25GB/s",
            cost_model="released",
        )  # fmt: skip
        for name in ("equi", "equi-no-tp"):
            expected = planner.solve(graph, method=name).objective
            assert row[name.replace("-", "_")] == pytest.approx(expected, rel=1e-12)
    assert all("no DP stops improving at k = 22" in note for note in found.notes[1:]) and len(found.notes) == 3
    for row in found.rows:
        times = [row[name] for name in ("no_dp", "no_tp", "no_ar", "equi", "equi_no_tp") if row[name] is not None]
        assert not times or row["exact"] <= min(times) * (1 + 1e-9)


def test_the_shapes_of_figure_2() -> None:
    """The last gain, and the quartiles of what equi takes more where both have a plan."""
    curves: dict[str, fig_2.Curve] = {
        "exact": [None, 2.0, 2.0, 1.0, 1.0, 1.0],
        "equi": [None, None, 2.0, 1.1, 1.2, 1.5],
        "no_dp": [None, 4.0, 3.0, 3.0, 3.0000000000000004, 3.0],
        "no_tp": [None, None, None, 5.0, 4.0, 4.0],
    }
    assert fig_2._shapes(6, curves, printed=False) == (
        "N = 6: no DP stops improving at k = 3, no TP at k = 5, equi is worse by 10 to 50 % for the middle half of all "
        "k, median 20.0 %; by 10 to 15 % for 25 % of all k"
    )
    assert "k = 3 (printed: 22), no TP at k = 5 (printed: N), " in fig_2._shapes(6, curves, printed=True)


def test_figure_3_shows_no_seconds_of_a_run_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    proved = planner.solve(planner.load("diamond"), exact=True)
    for stop, runs in ((Stop.PROVED, 3), (Stop.COMPLETED, 3), (Stop.TIME_LIMIT, 0), (Stop.SIZE_LIMIT, 0)):
        monkeypatch.setattr(
            fig_3, "verified_result", lambda *_, stop=stop, **__: replace(proved, stop=stop, seconds=1.5)
        )
        assert len(fig_3._seconds(None, "exact", 60.0, 3)) == runs


@pytest.mark.paper
@pytest.mark.slow
def test_figure_3(published: Path) -> None:
    given = {"memory": "8GiB", "bandwidth": "25GiB/s", "layers": "32,48,64,96", "devices": 64}
    rows = reproduce("piper-fig-3", inputs=str(published), **{**given, "microbatches": "512"}).evidence.rows
    assert [row["layers"] for row in rows if row["devices"] == 64] == [32, 48, 64, 96]
    assert all(row["here_exact_s"] > 0 and row["here_piper_s"] > 0 for row in rows)
    assert {row["nodes"] for row in rows} == {37, 53, 69, 101}
    assert [row["released_cpu_s"] for row in rows if row["devices"] == 64] == [0.099, 0.22, None, None]


@pytest.mark.paper
@pytest.mark.slow
def test_figure_3_to_the_last_device(published: Path) -> None:
    """At 8 GiB all of it in minutes, where the paper's program takes 2 hours for one point, at 80 GB."""
    found = reproduce("piper-fig-3", inputs=str(published), memory="8GiB")
    rows = found.evidence.rows
    printed = {(row["layers"], row["devices"], row["microbatches"]): row["paper_s"] for row in rows if row["paper_s"]}
    assert printed == {(32, 2048, 512): 13 * 60, (64, 2048, 2048): 2 * 3600}
    assert {row["devices"] for row in rows} == set(fig_3.DEVICES) and {row["nodes"] for row in rows} == {37, 69}
    assert all(row["here_exact_s"] is not None and row["here_exact_s"] < 10 for row in rows)
    assert found.seconds < 600


@pytest.mark.usefixtures("analytic")
@pytest.mark.parametrize("name", [pytest.param("piper-fig-1", marks=pytest.mark.slow), "piper-fig-2"])
def test_figures_without_the_profile(name: str) -> None:
    found = reproduce(name, devices=8).evidence
    assert found.rows and "analytic" in found.inputs and found.compared == 0
    assert not any("(printed:" in note for note in found.notes)


@pytest.mark.paper
def test_printed_seconds_stand_beside_the_published_profile_only(published: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(fig_3, "_PRINTED", {(32, 8, 8): 1.5})
    few = {"devices": 8, "layers": (32,), "microbatches": (8,)}
    found = fig_3.run(str(published), silent, **few, repeats="2")
    assert [row["paper_s"] for row in found.rows] == [1.5]
    assert all(row["here_piper_s"] > 0 and row["here_piper_deviation_s"] >= 0 for row in found.rows)
    assert found.notes[-1].startswith("32 layers, K = 8, N = 8: printed within 0.025 minutes; here, at 80GB, the same ")
    monkeypatch.delenv("PLANNER_PUBLISHED", raising=False)
    (row,) = fig_3.run(None, silent, **few).rows
    assert row["paper_s"] is None and row["here_piper_deviation_s"] is None


def test_figure_5_has_the_drawn_order_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """One slot of the drawing apart, it is the simulated schedule; with other degrees it is not."""
    found = reproduce("piper-fig-5").evidence
    assert (found.compared, found.matched) == (19, 19)
    assert [row["here_in_flight"] for row in found.rows] == [2, 2, 2, 3, 2, 1]
    assert found.rows[0]["slots"] == "111...444111777444aaa777d" and "{8, 11} {11} (printed:" in found.notes[1]
    monkeypatch.setattr(fig_5, "DEGREES", (3, 1, 2, 1))
    monkeypatch.setattr(fig_5, "_PRINTED", (*fig_5._PRINTED[:5], *fig_5._PRINTED[4:]))
    assert fig_5.run(None, silent).matched < 19


@pytest.mark.paper
@pytest.mark.slow  # the same counts are found by census/test_calls.py
def test_appendix_c(published: Path) -> None:
    """The released heuristic misses 332 of the 246,762 non-trivial subproblems, by up to 15.6 %."""
    found = reproduce("piper-appendix-c", inputs=str(published)).to_json()
    printed = {row["variant"]: row["paper_suboptimal"] for row in found["rows"]}
    assert printed == {"rerank": 0, "sort-once": 0, "truncating": None}  # the paper means no truncating
    counts = ("calls", "instances", "all_fastest_feasible", "infeasible", "nontrivial", "suboptimal")
    assert [found[name] for name in counts] == [30_260, 3_662_350, 246_104, 3_169_484, 246_762, 332]
    assert found["worst_gap"] == pytest.approx(0.156, abs=5e-4) and found["seconds"] < 60
    assert (found["inputs"], found["compared"], found["matched"]) == ("published", 0, 0)  # the sample is not all
    assert found["notes"][0].startswith("30,260 calls, 3,662,350 instances (3,632,090 by the count of Appendix D)")


@pytest.mark.paper
def test_the_sample_of_appendix_c(published: Path) -> None:
    found = reproduce("piper-appendix-c", inputs=str(published), setting="release").evidence
    assert (found.figures["instances"], found.figures["nontrivial"]) == (86_330, 13_696)
    assert (found.compared, found.matched) == (2, 2)
    assert {row["variant"]: row["here_suboptimal"] for row in found.rows} == {
        "rerank": 0, "sort-once": 0, "truncating": 284
    }  # fmt: skip


@pytest.mark.usefixtures("analytic")
def test_appendix_c_without_the_profile() -> None:
    found = reproduce("piper-appendix-c", devices=16).evidence
    assert "analytic" in found.inputs and found.compared == 0
    assert {row["variant"]: row["paper_suboptimal"] for row in found.rows} == dict.fromkeys(
        ("rerank", "sort-once", "truncating")
    )


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
