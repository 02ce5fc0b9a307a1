"""The claims of Parmesan: Figure 2, and Table 2 where it is small."""

import pytest

from planner.reproduction.parmesan import fig_3, table_1
from planner.reproduction.parmesan.table_2 import PRINTED, SHAPES
from planner.reproduction.reproduce import reproduce

COLUMNS = ("topology", "stages", "replicas", "objective", "consecutive", "parmesan", "best", "bound", "gap")


def test_figure_2_is_met_as_its_volumes_were_inferred_from_it() -> None:
    found = reproduce("parmesan-fig-2").evidence
    assert (found.compared, found.matched) == (1, 1)
    (row,) = found.rows
    assert tuple(row)[: len(COLUMNS)] == COLUMNS
    assert row["consecutive"] == pytest.approx(13 / 3000) and row["best"] == pytest.approx(7 / 3000)
    assert row["gap"] <= 1e-6
    assert any(note.startswith("circular: the volumes are inferred from the printed factor") for note in found.notes)


def test_cells_of_table_2_can_be_chosen() -> None:
    found = reproduce("parmesan-table-2", time_limit="0.1", devices="64", topologies="mesh3d", objective="p2p")
    rows = found.evidence.rows
    assert [(row["topology"], row["stages"]) for row in rows] == [("mesh3d", stages) for stages in (4, 8, 16)]
    for row in rows:
        assert tuple(row)[: len(COLUMNS)] == COLUMNS and row["objective"] == "p2p"
        assert row["bound"] <= row["best"] <= min(row["parmesan"], row["consecutive"])
        assert row["bound_speedup"] >= row["best_speedup"] >= row["parmesan_speedup"] >= 1
    assert "3 cells" in found.evidence.notes[-1]


def test_grids_are_printed_where_they_exist() -> None:
    for kind, printed in PRINTED.items():
        for (stages, replicas), speedup in zip(SHAPES, printed, strict=True):
            power = {"2d": 2, "3d": 3}.get(kind[-2:])
            sides = range(1, 40)
            assert (speedup is not None) == (power is None or stages * replicas in {side**power for side in sides})


def test_table_1_has_every_partition_with_both_mappings(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of its models, for speed: every row is there, and no mapping is slower than the consecutive one."""
    monkeypatch.setattr(table_1, "MODELS", ("resnet-152",))
    found = reproduce("parmesan-table-1", time_limit="0.1").evidence
    assert any("rannc-like is a stand-in, not RaNNC" in note for note in found.notes)
    rows = found.rows
    assert len(rows) == 9 and tuple(rows[0])[2 : 2 + len(COLUMNS)] == COLUMNS
    for first, row in zip((row for row in rows if row["partition"] == "pipedream"), rows[::3], strict=True):
        assert first is row and row["consecutive_speedup"] == 1.0
    for row in rows:
        assert row["bound"] <= row["best"] <= row["parmesan"] <= row["consecutive"]
        assert row["parmesan_speedup"] == pytest.approx(
            row["consecutive_speedup"] * row["consecutive_step"] / row["parmesan_step"]
        )
    assert {row["objective"] for row in rows} == {"p2p"}


def test_table_2_with_a_chain_in_place_of_the_model() -> None:
    rows = reproduce(
        "parmesan-table-2", time_limit="0.1", devices="64", topologies="torus2d", graph="skip"
    ).evidence.rows
    assert len(rows) == 3


def test_figure_3_has_a_row_for_every_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of its five shapes, for speed."""
    monkeypatch.setattr(fig_3, "_SHAPES", fig_3._SHAPES[:1])
    found = reproduce("parmesan-fig-3", time_limit="0.1", panels="c").evidence
    rows = found.rows
    assert [(row["stages"], row["replicas"], row["microbatches"]) for row in rows] == list(fig_3._SHAPES)
    for row in rows:
        assert row["devices"] == 32 and row["bound"] <= row["best"] <= min(row["parmesan"], row["consecutive"])
        assert all(value > 0 for name, value in row.items() if name.endswith("_samples_per_s"))
    own, base = ([row[f"{name}_samples_per_s"] for row in rows] for name in ("parmesan", "consecutive"))
    ahead = sum(a > b * (1 + 1e-9) for a, b in zip(own, base, strict=True))
    assert any(
        "panel c: of 1 cell" in note and f"than consecutive mapping in {ahead} (" in note for note in found.notes
    )


@pytest.mark.slow
def test_the_ablation_knows_what_each_part_loses() -> None:
    evidence = reproduce("parmesan-ablation", time_limit="0.3", models="semantic-fpn").evidence
    rows = evidence.rows
    assert len({tuple(row) for row in rows}) == 1
    by_name = {(row["phase"], row["variant"]): row for row in rows}
    assert {phase for phase, _ in by_name} == {"partition", "mapping"}
    for row in rows:
        assert row["loss"] is None or row["loss"] >= -1e-9
    published = by_name["partition", "as published"]
    assert by_name["partition", "alpha 0.001"]["load_s"] == published["load_s"]
    assert by_name["partition", "no refinement"]["load_s"] >= published["load_s"] * (1 - 1e-12)
    steps = [row["simulated_step_s"] for row in rows if row["phase"] == "partition"]
    quickest = min(step for step in steps if step is not None)
    assert f"the quickest {1e3 * quickest:.1f} ms" in evidence.notes[-1]
