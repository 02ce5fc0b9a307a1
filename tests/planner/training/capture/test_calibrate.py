"""Fits of measured forward passes: rates that are known, intervals that hold them, and what cannot be fitted."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from instances.errors import InstanceError
from planner.cli.app import main
from planner.training.capture.device_rates import SENDS, fit_rates, read_rates

RATE, MEMORY = 4e14, 2e12
#: Of a product its start; by level the latency of a step and bytes per second; the share that is hidden.
START, LINKS, HIDDEN = 6e-6, {"inner": (9e-6, 3e11), "outer": (4e-5, 4e10)}, 0.7


def measured(seed: int, noise: float, count: int = 20) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        flops, moved = rng.uniform(1e11, 1e13), rng.uniform(1e8, 1e11)
        seconds = (flops / RATE + moved / MEMORY) * (1 + rng.gauss(0, noise))
        rows.append({"name": f"node {number}", "flops": flops, "moved_bytes": moved, "seconds": seconds})
    return rows


def machine(seed: int, noise: float) -> list[dict[str, Any]]:
    """A profile of a machine: products and copies, collectives on groups of both levels, both at once."""
    rng = random.Random(seed)
    rows = [{**row, "products": rng.randint(1, 4)} for row in measured(seed, 0.0)]
    for row in rows[::2]:  # small ones, of which the start is a part to be seen
        row |= {"flops": row["flops"] / 1e3, "moved_bytes": row["moved_bytes"] / 1e3}
    for row in rows:
        row["seconds"] = row["products"] * START + row["flops"] / RATE + row["moved_bytes"] / MEMORY
    for link, (latency, rate) in LINKS.items():
        for number in range(30):
            collective, n = rng.choice(sorted(SENDS)), rng.choice((2, 4, 8))
            size = 10 ** rng.uniform(3, 9)
            steps = {"all-reduce": 2 * (n - 1), "send": 1}.get(collective, n - 1)
            sent = size if collective == "send" else size * steps / n
            row = {"collective": collective, "link": link, "devices": n, "bytes": size}
            rows.append({"name": f"{link} {number}", **row, "seconds": steps * latency + sent / rate})
    for number in range(8):
        compute, sending = rng.uniform(1e-3, 1e-2), rng.uniform(1e-3, 1e-2)
        both = compute + sending - HIDDEN * min(compute, sending)
        rows.append({"name": f"both {number}", "compute_seconds": compute, "sending_seconds": sending, "seconds": both})
    return [{**row, "seconds": row["seconds"] * (1 + rng.gauss(0, noise))} for row in rows]


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


def test_latencies_and_rates_of_links_starts_and_overlap_are_recovered():
    exact = fit_rates(machine(0, 0.0), "table")
    assert exact.worst_error < 1e-9 and exact.measurements == 88
    held = {"start": 0, "overlap": 0} | {f"{link} {what}": 0 for link in LINKS for what in ("latency", "rate")}
    for seed in range(100):
        found = fit_rates(machine(seed, 0.03), "table")
        known = {"start": (found.start, START), "overlap": (found.overlap, HIDDEN)}
        for link, (latency, rate) in LINKS.items():
            known |= {f"{link} latency": (found.latencies[link], latency), f"{link} rate": (found.links[link], rate)}
        for name, (rate, truth) in known.items():
            assert rate is not None and rate.value == pytest.approx(truth, rel=0.2), name
            held[name] += rate.low <= truth <= (rate.high or 0.0)
    assert min(held.values()) >= 85, f"two standard errors: some 95 % of them, {held}"
    assert exact.overlap is not None and exact.overlap.value == pytest.approx(HIDDEN)
    assert exact.start is not None and exact.start.value == pytest.approx(START)
    exactly = {link: [each.value for each in (exact.latencies[link], exact.links[link]) if each] for link in LINKS}
    assert exactly == {link: pytest.approx(list(own)) for link, own in LINKS.items()}


def test_a_file_of_rates_is_written_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, out = tmp_path / "machine.csv", tmp_path / "rates.json"
    rows = machine(0, 0.0)
    names = ["name", "collective", "link", "seconds", "flops", "moved_bytes", "products", "devices", "bytes"]
    names += ["compute_seconds", "sending_seconds"]
    lines = [",".join(str(row.get(name, "")) for name in names) for row in rows]
    file.write_text("\n".join([",".join(names), *lines]))
    assert main(["calibrate", str(file), "--hardware", "h100", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "step of outer links, s" in shown and "hidden of the shorter" in shown
    device, dtype, rates = read_rates(str(out))
    assert (device, dtype) == ("h100", "bf16") and rates == pytest.approx(
        {"flop_per_s": RATE, "memory_bytes_per_s": MEMORY, "product_start_s": START, "overlap": HIDDEN}
        | {f"{link}_latency_s": own[0] for link, own in LINKS.items()}
        | {f"{link}_bytes_per_s": own[1] for link, own in LINKS.items()}
    )
    assert main(["calibrate", str(file), "--out", str(out)]) == 2
    assert "--hardware NAME with it" in capsys.readouterr().err
    assert main(["calibrate", str(file), "--hardware", str(out)]) == 2  # the peaks are those of a named device
    for content, words in (
        ('{"hardware": "h100", "rates": {"speed": 1}}', "rates is 'speed'"),
        ('{"hardware": "h100", "rates": {"overlap": -1}}', "overlap is -1; expected a number from 0 on"),
        ('{"hardware": "h10", "rates": {}}', "rates.json: hardware is 'h10'"),
        ('{"hardware": "h100", "dtype": "bf61", "rates": {}}', "rates.json: dtype is 'bf61'"),
        ('{"hardware": "h100", "rates": {"flop_per_s": 9e15}}', "rates.json: flop_per_s is 9.*; expected at most 9.89"),
        ("[]", "expected hardware and rates"),
    ):
        out.write_text(content)
        with pytest.raises(InstanceError, match=words):
            read_rates(str(out))


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
    # as many products as operations everywhere: what a start takes is not to be seen
    rows = [{**row, "products": row["flops"] / 1e11} for row in measured(3, 0.02)]
    found = fit_rates(rows, "table")
    assert found.start is None and found.products is not None and found.products.value == pytest.approx(RATE, rel=0.1)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (measured(0, 0.0)[:2], "measurements is 2; expected at least 3"),
        ([{**row, "seconds": 0.0} for row in measured(0, 0.0)], "seconds of node 0 is 0.0; expected a positive time"),
        ([{**row, "flops": 0.0, "moved_bytes": 0.0} for row in measured(0, 0.0)], "expected operations or bytes"),
        ([{**row, "collective": "gossip"} for row in measured(0, 0.0)], "collective is 'gossip'"),
        ([{**row, "collective": "send", "link": "x"} for row in measured(0, 0.0)], "link is 'x'; expected inner or"),
        ([{**row, "collective": "send", "devices": 1} for row in measured(0, 0.0)], "devices of node 0 is 1"),
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
