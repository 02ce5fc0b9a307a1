"""`planner run --backend emulated`: processes one after the other compute, send and hold what they do at once."""

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from runtime.test_run import BRANCHING, MODELS, as_known, chain, graph, plan

from planner.cli.app import main
from planner.training.runtime.layout import Duty, Layout, Pass, simulate

# Asked otherwise whether there is a GPU, CUDA starts, and forks of this process could not use it.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
torch = pytest.importorskip("torch", reason="needs PyTorch (extra torch)", exc_type=ImportError)


def run(tmp_path: Path, instance: Any, made: Any, model: str, *options: str) -> tuple[int, Path]:
    """The exit code of a run, and the file that it wrote."""
    files = [tmp_path / "plan.json", tmp_path / "instance.json"]
    for file, content in zip(files, (made, instance), strict=True):
        file.write_text(json.dumps(content))
    out = tmp_path / "run.json"
    with as_known(instance, model):
        return main(["run", *map(str, files), "--model", f"{MODELS}:{model}", "--out", str(out), *options]), out


@pytest.mark.parametrize(
    ("instance", "made", "model"),
    [
        (chain(), plan(([0, 1], 2), ([2, 3], 3), ([4], 1)), "language"),
        (chain(), plan(([0, 1], 2), ([2, 3, 4], 3)), "tied"),
        (graph(), BRANCHING[1], "branches"),
        (graph(), BRANCHING[2], "branches"),
    ],
)
def test_one_process_does_what_several_do(instance: Any, made: Any, model: str, tmp_path: Path) -> None:
    found = []
    for backend in ("gloo", "emulated"):
        code, out = run(tmp_path, instance, made, model, "--backend", backend, "--check", "--quiet")
        assert code == 0
        found.append(json.loads(out.read_text()))
    several, one = found
    for each in found:
        assert max(each["loss_error"], each["gradient_error"]) <= 1e-12
        assert each["parameters"] == each["parameters_compared"] and each["bytes_sent"] == each["bytes_planned"]
    assert one["loss_error"] == pytest.approx(several["loss_error"], abs=1e-15)
    for name in ("bytes_sent", "held_bytes", "gradient_bytes", "rows", "simulated", "device"):
        assert one[name] == several[name], name
    assert "peak_bytes" not in one  # of GPUs alone


def test_recomputed_layers_hold_their_inputs_alone(tmp_path: Path) -> None:
    instance, made = chain(), plan(([0, 1, 2], 1), ([3, 4], 1))
    for layer in instance["layers"][1:4]:
        layer["tmpcs"]["1"][0]["id"] = "recompute"
    for stage in made["stages"]:
        stage["tmpcs"] = {node: "recompute" if node in "123" else "keep" for node in stage["tmpcs"]}
    held = []
    for backend in ("gloo", "emulated"):
        code, out = run(tmp_path, instance, made, "language", "--backend", backend, "--check", "--quiet")
        assert code == 0
        held.append(json.loads(out.read_text())["held_bytes"])
    assert held[0] == held[1]


def test_passes_are_placed_by_how_long_they_took(tmp_path: Path) -> None:
    """Passes of a process do not overlap, and none begins before what it waits for; the iteration ends with them."""
    code, out = run(tmp_path, chain(), plan(([0, 1], 1), ([2, 3, 4], 1)), "language", "--backend", "emulated")
    assert code == 0
    content = json.loads(out.read_text())
    ends = {(rank, kind, index): end for rank, kind, index, _, end in content["measured"]}
    starts = {(rank, kind, index): start for rank, kind, index, start, _ in content["measured"]}
    for m in range(6):
        assert starts[1, "F", m] >= ends[0, "F", m] and starts[0, "B", m] >= ends[1, "B", m]
    for rank in (0, 1):
        own = sorted((start, ends[key]) for key, start in starts.items() if key[0] == rank)
        assert all(a[1] <= b[0] for a, b in pairwise(own))
    assert content["seconds"] == max(ends.values())
    assert main(["fidelity", str(out)]) == 0


def test_measured_seconds_take_the_place_of_planned_ones() -> None:
    passes = (Pass("F", 0, (0,)), Pass("B", 0, (0,)))
    made = Layout({0: 0, 1: 1}, frozenset(), tuple(Duty(s, 0, passes, 0, 0, 1.0, 2.0) for s in (0, 1)), 1, ((0, 1),))
    assert max(each.end_s for each in simulate(made)) == 6.0
    seconds = {(0, "F", 0): 3.0, (1, "F", 0): 1.0, (1, "B", 0): 4.0, (0, "B", 0): 0.5}
    found = {(each.rank, each.kind): (each.start_s, each.end_s) for each in simulate(made, seconds)}
    assert found == {(0, "F"): (0, 3), (1, "F"): (3, 4), (1, "B"): (4, 8), (0, "B"): (8, 8.5)}


@pytest.mark.parametrize(
    ("made", "options", "words"),
    [
        (plan(([0, 1], 1), ([2, 3, 4], 1)), ("--runtime", "pipelining"), "own, with --backend emulated"),
        (plan(([0, 1, 2, 3, 4], 1)), ("--backend", "one"), "one of gloo, nccl, emulated"),
    ],
)
def test_what_one_process_cannot_do_is_refused(
    made: Any, options: tuple[str, ...], words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _ = run(tmp_path, chain(), made, "language", "--backend", "emulated", *options)
    assert code == 2 and words in capfd.readouterr().err


def test_tensor_parallel_stages_are_refused() -> None:
    from planner.process.errors import UsageError
    from planner.training.runtime.emulated import expect_emulated

    passes = (Pass("F", 0, (0,)), Pass("B", 0, (0,)))
    made = Layout({0: 0}, frozenset(), (Duty(0, 0, passes, 0, 0, 1.0, 2.0, 0, 2),), 1, ())
    with pytest.raises(UsageError, match="tp_degree 2 of stage 0"):
        expect_emulated(made, "own")
    duty = replace(made.duties[0], degree=1, passes=(*passes, Pass("W", 0, (0,))))
    with pytest.raises(UsageError, match="split backward passes"):
        expect_emulated(replace(made, duties=(duty,)), "own")
    with pytest.raises(UsageError, match="sharding 2"):
        expect_emulated(replace(made, scatters=True), "own")
    with pytest.raises(UsageError, match="1 stages on fewer devices"):
        expect_emulated(replace(made, turns=((0, 0),)), "own")


@pytest.mark.parametrize(
    ("fails", "limit", "words"),
    [
        (lambda: math.sqrt(-1.0), "300", "process 1 (stage 1, replica 0) failed: ValueError: "),
        (lambda: time.sleep(3600), "8", "is not done after {} s; expected an end within --time-limit"),
    ],
)
def test_a_pass_that_fails_ends_the_run_with_one_line(
    fails: Callable[[], None],
    limit: str,
    words: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from planner.training.runtime.emulated import Emulated

    passes = Emulated.iterate
    monkeypatch.setattr(Emulated, "iterate", lambda self: fails() if self.stage == 1 else passes(self))
    made = plan(([0, 1], 1), ([2, 3, 4], 1))
    code, _ = run(tmp_path, chain(), made, "language", "--backend", "emulated", "--time-limit", limit)
    if code == 2 and limit == "8":  # a busy machine was not done with the trace
        code, _ = run(tmp_path, chain(), made, "language", "--backend", "emulated", "--time-limit", limit := "90")
    captured = capfd.readouterr()
    assert (code, captured.out) == (1, "") and words.format(limit) in captured.err.splitlines()[-1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: the peak of its allocator is measured")
def test_on_a_gpu_all_memory_of_a_process_is_measured(tmp_path: Path) -> None:
    instance, made = chain(("0", "1"), 5 * 8 * 8), plan(([0], 1), ([1], 1))
    code, out = run(tmp_path, instance, made, "on_gpu", "--backend", "emulated", "--check")
    content = json.loads(out.read_text())
    assert code == 0 and content["device"] == torch.cuda.get_device_name(0)
    # weights, gradients and Adam's averages of 8 bytes each, and what is held; the allocator rounds up to 512 bytes
    assert all(peak > held for peak, held in zip(content["peak_bytes"], content["held_bytes"], strict=True))
    assert math.isfinite(sum(content["memory_planned"]))
