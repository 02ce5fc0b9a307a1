"""`planner run` of placements: stages of operators that keep their inputs, on the devices of the plan."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from runtime.test_run import MODELS

import planner
from planner.cli.app import main
from planner.training.runtime.job import Job
from planner.training.runtime.layout import layout

torch = pytest.importorskip("torch", reason="needs PyTorch (extra torch)", exc_type=ImportError)


@pytest.mark.parametrize(("cuts", "replicas", "backend"), [((6,), 2, "gloo"), ((2, 5, 6), 1, "emulated")])
def test_stages_of_an_imported_model_compute_send_and_keep_what_is_planned(
    cuts: tuple[int, ...], replicas: int, backend: str, tmp_path: Path
) -> None:
    file, source, out = str(tmp_path / "model.json"), f"{MODELS}:branches", tmp_path / "run.json"
    assert main(["import", "torch", source, "--problem", "operator_partitioning", "--quiet", "--out", file]) == 0
    ids = [each.id for each in planner.load(file).operators]
    bounds = [0, *cuts, len(ids)]
    stages = [ids[start:end] for start, end in pairwise(bounds)]
    devices = list(reversed(range(len(stages) * replicas)))
    mapped = [devices[s * replicas : (s + 1) * replicas] for s in range(len(stages))]
    made = {"partition": {"stages": stages}, "mapping": {"devices": mapped}}
    (tmp_path / "plan.json").write_text(json.dumps(made))
    shape = ["--stages", str(len(stages)), "--replicas", str(replicas), "--topology", "two-level"]
    options = ["--model", source, "--check", "--quiet", "--backend", backend, "--out", str(out)]
    assert main(["run", str(tmp_path / "plan.json"), file, *shape, *options]) == 0
    found = json.loads(out.read_text())
    assert found["gradient_error"] <= 1e-12 and found["parameters"] == found["parameters_compared"]
    assert found["bytes_sent"] == found["bytes_planned"] and sum(found["bytes_sent"])
    assert found["held_bytes"] == found["held_planned"] and sum(found["held_bytes"])
    assert [each["device"] for each in found["rows"]] == devices


def test_a_gpu_of_the_plan_runs_a_process_and_another_model_is_refused(tmp_path: Path, capsys: Any) -> None:
    instance = planner.load("placement")
    plan = planner.solve(instance, method="parmesan").own_plan
    swapped = layout(instance, plan, "pipeline_placement")
    job = Job(None, swapped, None, None, "", "nccl", 1.0)  # type: ignore[arg-type]
    assert [str(job.device_of(rank)) for rank in range(4)] == [f"cuda:{duty.device}" for duty in swapped.duties]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(planner.solve(instance, method="parmesan").plan))
    assert main(["run", str(file), "placement", "--model", f"{MODELS}:language"]) == 2
    assert "expected the model that placement was made of" in capsys.readouterr().err
