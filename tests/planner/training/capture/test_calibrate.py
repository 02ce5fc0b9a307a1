"""Fits of measured forward passes: rates that are known, intervals that hold them, and what cannot be fitted."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from instances.errors import InstanceError
from planner.cli.app import main
from planner.training.capture.device_rates import fit_rates

RATE, MEMORY = 4e14, 2e12


def measured(seed: int, noise: float, count: int = 20) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        flops, moved = rng.uniform(1e11, 1e13), rng.uniform(1e8, 1e11)
        seconds = (flops / RATE + moved / MEMORY) * (1 + rng.gauss(0, noise))
        rows.append({"name": f"node {number}", "flops": flops, "moved_bytes": moved, "seconds": seconds})
    return rows


def test_exact_measurements_give_their_rates():
    found = fit_rates(measured(0, 0.0), "table")
    assert found.products is not None and found.memory is not None
    assert (found.products.value, found.memory.value) == pytest.approx((RATE, MEMORY))
    assert found.worst_error < 1e-9


def test_intervals_hold_the_rates_most_of_the_time():
    held = 0
    for seed in range(200):
        found = fit_rates(measured(seed, 0.05), "table")
        assert found.products is not None
        held += found.products.low <= RATE <= (found.products.high or float("inf"))
    assert 180 <= held <= 199, "two standard errors: some 95 % of them"


def test_the_worst_measurement_is_named():
    rows = measured(1, 0.0)
    rows[7]["seconds"] *= 3
    found = fit_rates(rows, "table")
    assert found.worst == "node 7" and found.worst_error > 0.3


def test_what_measurements_do_not_show_has_no_rate():
    rows = [{**row, "moved_bytes": 0.0, "seconds": row["flops"] / RATE} for row in measured(2, 0.0)]
    found = fit_rates(rows, "table")
    assert found.memory is None and found.products is not None and found.products.value == pytest.approx(RATE)
    # more bytes, less time: no memory is that fast
    rows = [{**row, "seconds": row["flops"] / RATE - row["moved_bytes"] / 1e16} for row in measured(2, 0.0)]
    assert fit_rates(rows, "table").memory is None


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (measured(0, 0.0)[:2], "measurements is 2; expected at least 3"),
        ([{**row, "seconds": 0.0} for row in measured(0, 0.0)], "seconds of node 0 is 0.0; expected a positive time"),
        ([{**row, "flops": 0.0, "moved_bytes": 0.0} for row in measured(0, 0.0)], "expected operations or bytes"),
    ],
)
def test_what_cannot_be_fitted(rows: list[dict[str, Any]], words: str):
    with pytest.raises(InstanceError, match=words):
        fit_rates(rows, "table")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "forward.csv"
    lines = [f"{row['name']},{row['flops']},{row['moved_bytes']},{row['seconds']}" for row in measured(0, 0.0)]
    file.write_text("\n".join(["name,flops,moved_bytes,seconds", *lines]))
    assert main(["calibrate", str(file), "--hardware", "h100", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["efficiency"][0] == pytest.approx(RATE / 989.4e12)
    assert shown["memory_efficiency"][0] == pytest.approx(MEMORY / 3.35e12) and shown["measurements"] == 20
    assert main(["calibrate", str(file)]) == 0 and "products, FLOP/s" in capsys.readouterr().out
    for arguments, words in (
        ([str(tmp_path / "no.csv")], "expected a file that is there"),
        ([str(file), "--hardware", "x"], "--hardware is 'x'"),
        ([str(file), "--hardware", "v100"], "--dtype is 'bf16'; expected fp16 or fp32"),
    ):
        assert main(["calibrate", *arguments]) == 2
        assert words in capsys.readouterr().err
    file.write_text("name,flops,time\na,1,2\n")
    assert main(["calibrate", str(file)]) == 2
    assert "line 1 is 'time'; expected columns" in capsys.readouterr().err
