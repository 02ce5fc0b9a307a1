"""The claims about the clock: both optima proved, losses as they are defined, and bounds in any order."""

from types import SimpleNamespace
from typing import Any

import pytest

from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from instances.problems.flushed_partitioning import flush_pipeline
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from planner.process.errors import UsageError
from planner.reproduction.graphpipe import clock as graph
from planner.reproduction.pipelines import chunks, distance, interleaving, zero_bubble
from planner.reproduction.piper import clock as flushed
from planner.reproduction.reproduce import reproduce
from solvers.outcome import Limits


def test_formulas_of_a_flushed_batch_on_few_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = (("gpt", 8, 32), ("bert", 16, 32), ("gpt", 64, 64))
    monkeypatch.setattr(flushed, "SETTINGS", settings)
    found = reproduce("piper-clock", devices=16).evidence
    assert [(row["model"], row["fill"]) for row in found.rows] == [
        (model, fill) for model in ("gpt", "bert") for fill in ("stages", "replicas")
    ]
    assert "proved: 6 of 6" in found.notes[-1]
    for row in found.rows:
        assert row["gap"] <= 1e-6 and row["lost_simulated_percent"] >= -1e-6
        for name in ("formula", "best"):
            assert row[f"{name}_any_order"] <= row[f"{name}_simulated"] * (1 + 1e-12)
    assert found.rows[2]["formula_plan"] == "pp2 dp8 tp1" and found.rows[2]["best_plan"] == "pp1 dp16 tp1"
    assert found.rows[2]["lost_simulated_percent"] == pytest.approx(17.8, abs=0.05)
    assert found.rows[2]["lost_any_order_percent"] == pytest.approx(17.6, abs=0.05)


def test_a_batch_in_any_order_takes_at_least_heads_and_work() -> None:
    """By hand: two stages of 3 s, of which the second has two replicas; five micro-batches, 20 bytes at 10 bytes/s."""
    layers = tuple(Layer(v, {1: (Tmpc("x", 3.0, 10.0, 1.0, 1.0),)}) for v in range(2))
    instance = flush_pipeline(StageInstance("two", layers, (Edge(0, 1, 0.0),), 4, 100.0, 10.0, 5))
    plan = StagePlan(tuple(Stage((v,), d, 1, {v: "x"}) for v, d in enumerate((1, 2))))
    assert flushed.in_any_order(instance, plan) == pytest.approx((5 * 3 + 2) / 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "key", "value"),
    [("candle-uno", "shortest_samples_per_s", 28_771), ("graphpipe-case-study", "shortest_stages", 1)],
)
def test_equation_1_on_eight_devices(monkeypatch: pytest.MonkeyPatch, model: str, key: str, value: float) -> None:
    monkeypatch.setattr(graph, "SETTINGS", ((model, 8), ("candle-uno", 16)))
    found = reproduce("graphpipe-clock", devices="8", time_limit=600).evidence
    [row] = found.rows
    assert row["model"] == model and "proved: 2 of 2" in found.notes[-1]
    assert round(row[key]) == value
    assert row["tps_tps_s"] <= row["shortest_tps_s"] * (1 + 1e-9) and row["lost_percent"] > 20


@pytest.mark.slow
def test_orders_at_their_memory() -> None:
    found = reproduce("graphpipe-1f1b", limit=600).evidence
    assert len(found.rows) == 12 and "proved: 96 of 96" in found.notes[-1]
    assert "0.901 to 1.000 times as long as GPipe's order, less on 28 of 48 chains" in found.notes[2]
    for row in found.rows:
        assert -1e-6 <= row["1f1b_percent"] <= 1 and row["gpipe_percent"] >= -1e-6 and row["room_percent"] >= -1e-6
        if row["spread"] == 1.0:
            assert row["1f1b_percent"] == row["gpipe_percent"] == row["room_percent"] == pytest.approx(0, abs=1e-6)
    assert any(row["gpipe_percent"] > 2 for row in found.rows)
    # One chain of 48 has a better order than 1F1B: 21,558 against 21,702 ticks.
    assert [row["1f1b_most_percent"] for row in found.rows if row["1f1b_most_percent"] > 1e-6] == [
        pytest.approx(100 * (21702 / 21558 - 1))
    ]


@pytest.mark.slow
def test_equation_4_on_few_samples() -> None:
    found = reproduce("amp-clock", batch=32, limit=600).evidence
    assert [(row["experiment"], row["batch"]) for row in found.rows] == [
        (name, batch) for name in ("homogeneous", "het_cluster", "het_model") for batch in (16, 32)
    ]
    assert "proved: 6 of 6 shortest iterations" in found.notes and "proved: 6 of 6 optima" in found.notes[-1]
    assert all(row["gap"] <= 1e-6 and row["lost_percent"] >= -1e-6 for row in found.rows)
    assert any(row["lost_percent"] > 1e-3 for row in found.rows)


@pytest.mark.slow
def test_zero_bubble_orders_at_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zero_bubble, "SIZES", ((2, 4), (4, 8)))
    monkeypatch.setattr(zero_bubble, "TIMES", ((1.0, 1.0, 1.0), (2.0, 2.0, 1.0), (1.0, 1.0, 2.0)))
    found = reproduce("zero-bubble-orders", limit=600).evidence
    assert "proved: 18 of 18" in found.notes[-1]
    lost = {(row["order"], row["devices"], row["w_s"], row["f_s"]): row["lost_percent"] for row in found.rows}
    assert {key for key, percent in lost.items() if percent > 1e-9} == {("zb-v", 4, 2.0, 1.0)}
    assert lost["zb-v", 4, 2.0, 1.0] == pytest.approx(100 * 2 / 67)
    for row in found.rows:
        if row["f_s"] == row["w_s"]:  # (p - 1) / 3 m, of two chunks the half
            part = 6 if row["order"] == "zb-v" else 3
            assert row["bubble"] == pytest.approx((row["devices"] - 1) / (part * row["microbatches"]))
            assert row["device_bubble"] == pytest.approx(row["bubble"] if row["order"] == "zb-h1" else 0.0)


@pytest.mark.slow
def test_interleaving_at_the_memory_of_1f1b(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleaving, "SETTINGS", ((2, 4, 2), (4, 8, 2)))
    found = reproduce("interleaved-memory", limit=600).evidence
    assert "proved: 4 of 4" in found.notes[-1]
    for row in found.rows:
        p, m = row["devices"], row["microbatches"]
        assert row["best_of_one_chunk_s"] == row["1f1b_s"] == 6 * (m + p - 1)
        assert row["best_s"] == row["interleaved_s"] == 6 * m + 3 * (p - 1)
    assert [row["memory"] for row in found.rows] == [1.25, 1.375]


@pytest.mark.slow
def test_how_far_1f1b_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distance, "SIZES", ((4, 8),))
    monkeypatch.setattr(distance, "SPREADS", (2.0,))
    found = reproduce("1f1b-distance", chains=2, limit=600).evidence
    equal, uneven, drawn = found.rows
    assert (equal["one_chunk_percent"], equal["vee_percent"]) == pytest.approx((100 / 9, 300 / 17))
    assert (uneven["one_chunk_percent"], uneven["vee_percent"]) == pytest.approx((300 / 49, 900 / 43))
    assert equal["unproved"] == uneven["unproved"] == 0 and drawn["vee_percent"] is None
    assert 0 <= drawn["one_chunk_most_percent"] <= drawn["one_chunk_at_most_percent"] + 1e-9


def test_a_run_without_a_plan_says_to_give_it_more_time() -> None:
    optima: Any = SimpleNamespace(result=lambda *_, **__: SimpleNamespace(objective=None, bound=1.0))
    with pytest.raises(UsageError, match=r"--limit is 5.0; expected more seconds"):
        chunks.proved(optima, chunks.of_schedule("1f1b", 2, 4, 1, (1.0, 1.0), 2), "2 4", Limits(time_s=5.0))
