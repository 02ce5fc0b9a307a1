"""The claims about orders that trainers run: what is proved of them, and what is open."""

import pytest

from planner.reproduction.pipelines import distance, interleaving, zero_bubble
from planner.reproduction.reproduce import reproduce


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
