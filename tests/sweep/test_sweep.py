"""The sweep over gradient accumulation and micro-batch sizes (Piper, Appendix A)."""

from __future__ import annotations

import json
import math

import pytest

import planner
from planner.cli import main
from planner.errors import UsageError
from planner.sweep import parse_counts, sweep
from solvers.outcome import Status

SMALL = {"layers": 2, "hidden_size": 256, "heads": 4, "sequence_length": 128, "vocabulary": 1024, "devices": 8}


def test_every_combination_is_solved_at_its_own_profile() -> None:
    best, instance, rows = sweep("bert", 8, [1, 2, 16], [1, 2, 4], overrides=SMALL, exact=True)
    expected = [(g, b, 8 // (g * b)) for b in (1, 2, 4) for g in (1, 2)]  # 16 * b' is more than the batch
    assert [(row.grad_accum, row.microbatch_size, row.microbatches) for row in rows] == expected
    for row in rows:
        alone = planner.load("bert", **SMALL, microbatch_size=row.microbatch_size, microbatches=row.microbatches)
        assert row.objective == planner.solve(alone, exact=True).objective
        assert math.isclose(row.time_per_sequence, row.objective / row.microbatch_size)
    least = min(rows, key=lambda row: row.time_per_sequence)
    assert best.status is Status.OPTIMAL and best.objective == least.objective
    assert planner.check(instance, best.plan).feasible and len(best.stats["sweep"]) == len(rows)


def test_a_smaller_bound_on_the_sum_is_never_faster() -> None:
    _, _, rows = sweep("chain8", 8, [1, 2, 4, 8], [1], exact=True)
    times = [row.objective for row in rows]
    assert times == sorted(times) and times[0] < times[-1]


def test_files_of_several_profiles(tmp_path) -> None:
    for b in (1, 2):
        assert (
            main(["make", "bert", "--layers", "2", "--microbatch-size", str(b), "--out", f"{tmp_path}/b{b}.json"]) == 0
        )
    _, _, rows = sweep(str(tmp_path / "b{b}.json"), 4, [1], [1, 2], overrides={"devices": 4})
    assert [row.microbatches for row in rows] == [4, 2] and rows[0].objective != rows[1].objective


def test_what_cannot_be_swept_is_refused() -> None:
    for arguments in ({"batch_size": 1, "grad_accum": [2]}, {"batch_size": 4, "microbatch_sizes": [1, 2]}):
        with pytest.raises(UsageError):
            sweep("chain8", **arguments)
    with pytest.raises(UsageError, match="microbatches"):
        sweep("chain8", 4, overrides={"microbatches": 3})
    assert parse_counts("--grad-accum", "1, 2,2") == [1, 2]
    for wrong in ("0", "", "1,x"):
        with pytest.raises(UsageError, match="grad-accum"):
            parse_counts("--grad-accum", wrong)


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["solve", "chain8", "--batch-size", "8", "--grad-accum", "1,2"]
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["microbatches"] for row in told["stats"]["sweep"]] == [8, 4] and told["verified"]
    assert main(arguments) == 0
    assert "gradient accumulation" in capsys.readouterr().out
    assert main(["solve", "chain8", "--batch-size", "8", "--memory", "1"]) == 4
    assert main(["solve", "chain8", "--grad-accum", "2"]) == 2
