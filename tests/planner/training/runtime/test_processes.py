"""Processes of a run: they exchange tensors in turn without tags as well, and none outlives the command."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from runtime.test_run import MODELS, chain, plan

pytest.importorskip("torch", reason="needs PyTorch (extra torch)", exc_type=ImportError)


@pytest.mark.parametrize("model", ["tied", "skips"])
def test_without_tags_messages_arrive_in_turn(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of `skips` are among three stages of two processes, three times; within a process nothing is sent.

    Two stages of one process have the same weights there, which it sums once.
    """
    from planner.files.load import load
    from planner.training.runtime.job import Job
    from planner.training.runtime.run import run_plan

    monkeypatch.setattr(Job, "is_tagged", False)  # as with NCCL, which has no tags
    made, instance, within = plan(([0, 1], 2), ([2, 3], 3), ([4], 1)), chain(), [0] * 2
    if model == "skips":
        flat = chain(tuple(f"layers.{v}" for v in range(6)), 160)
        flat["edges"] += [{"source": 0, "target": v, "bytes": 160} for v in range(2, 6)]
        instance = {"problem": "training_strategy", "schema_version": 1, "flat": flat, "virtual_stages": 3}
        instance["schedules"] = ["interleaved"]
        made = {"pp_degree": 2, "tp_degree": 1, "dp_degree": 3, "virtual_stages": 3, "schedule": "interleaved"}
        made |= {"chunks": [[v] for v in range(6)], "tmpcs": dict.fromkeys(map(str, range(6)), "keep")}
        within = [2, 0, 1, 0, 1, 0]
    found = run_plan(made, load(instance), f"{MODELS}:{model}", check=True)
    assert found.ok and found.gradient_error is not None and found.gradient_error <= 1e-12
    beyond = [planned - sent for planned, sent in zip(found.bytes_planned, found.bytes_sent, strict=True)]
    assert beyond == [160 * 2 * each for each in within for _ in range(3)]


def _of(parent: int) -> set[int]:
    """Processes whose parent that is."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path("/proc", name, "stat").read_text()
        except OSError:  # it has just ended
            continue
        if int(text.rpartition(")")[2].split()[1]) == parent:
            found.add(int(name))
    return found


def _below(root: int) -> set[int]:
    """Processes whose parent that is, or one of these."""
    own = _of(root)
    return own.union(*map(_below, own))


def _wait(until: Any, seconds: float = 120.0) -> None:
    for _ in range(int(seconds / 0.05)):
        if until():
            return
        time.sleep(0.05)
    raise AssertionError("waited in vain")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_no_process_outlives_the_command(number: int, code: int, tmp_path: Path) -> None:
    modules = (
        "inner.words, inner.places, inner.drop", "inner.blocks.0", "inner.blocks.1", "inner.blocks.2", "inner.head",
    )  # fmt: skip
    files = [tmp_path / "plan.json", tmp_path / "instance.json"]
    for file, content in zip(files, (plan(([0, 1], 1), ([2, 3, 4], 2)), chain(modules)), strict=True):
        file.write_text(json.dumps(content))
    command = [sys.executable, "-m", "planner", "run", *map(str, files), "--model", f"{MODELS}:hangs", "--json"]
    folder = tmp_path / "temporary"
    folder.mkdir()
    environment = {name: each for name, each in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    environment["TMPDIR"] = str(folder)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    _wait(lambda: len(_below(process.pid)) == 3 + 3)  # the supervisor, its fork, the model's process, and its own
    own = _below(process.pid)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    if number == signal.SIGKILL:
        assert out == ""  # the folder is left to the next run
    else:
        found = json.loads(out)
        assert (found["status"], found["stop"]) == ("unknown", "interrupted")
        assert [*folder.iterdir()] == []
    _wait(lambda: not any(Path(f"/proc/{each}").exists() for each in own), 20.0)


def test_folders_of_runs_that_were_killed_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl
    import tempfile

    from planner.training.scratch import folder

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = ("planner-run-killed", "planner-run-running", "planner-run-young", "other")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "store").touch()
        if not name.endswith("young"):
            os.utime(tmp_path / name, (0, 0))
    os.symlink(tmp_path / "other", tmp_path / "planner-run-link")
    with monkeypatch.context() as another:
        another.setattr(os, "getuid", lambda: -1)  # the folders of other users are theirs
        with folder():
            assert (tmp_path / "planner-run-killed").is_dir() and (tmp_path / "planner-run-running").is_dir()
    running = os.open(tmp_path / "planner-run-running", os.O_RDONLY)
    fcntl.flock(running, fcntl.LOCK_EX)
    with folder() as made:
        own = Path(made)
        left = {each.name for each in tmp_path.iterdir()}
        os.utime(own, (0, 0))
        with folder():  # another run, while this one is there
            assert own.is_dir()
    os.close(running)
    assert left == {own.name, "planner-run-link", *names[1:]}
    assert not own.exists() and (tmp_path / "other" / "store").exists()
