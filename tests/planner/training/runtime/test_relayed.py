"""The cost model `runtime`: tensors go on from stage to stage, and every process sends the bytes that the plan has."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch (extra torch)", exc_type=ImportError)
pytest.importorskip("transformers", reason="needs transformers (extra torch)", exc_type=ImportError)

from runtime.test_kinds import as_run, instance, plan, run


@pytest.mark.parametrize(
    ("kind", "stages", "recomputed", "passes_on"),
    [
        # the encoder's output goes through both stages of the decoder, the embedding's words through the first
        ("t5_loss", [([0, 1], 1), ([2, 3], 2), ([4, 5], 1), ([6, 7, 8], 2)], (1, 6), True),
        # branches: what the first one makes passes the stages of the others
        ("modal", [([0, 1, 2], 1), ([3, 4], 2), ([5, 6], 1), ([7, 8, 9, 10, 11], 2)], (), True),
        ("llama", [([0, 1], 3), ([2, 3, 4, 5], 2)], (), False),
    ],
)
def test_what_is_sent_is_what_the_plan_has(
    kind: str, stages: Any, recomputed: tuple, passes_on: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = []
    for made in (as_run(kind, 6), instance(kind, 6)):
        code = run(tmp_path, made, plan(stages, recomputed), kind, "--check", "--json", "--quiet")
        out, err = capfd.readouterr()
        assert code == 0, (out, err)
        found.append(json.loads(out))
    relayed, straight = found
    assert relayed["gradient_error"] <= 1e-12 and relayed["parameters"] == relayed["parameters_compared"] > 10
    assert relayed["bytes_sent"] == relayed["bytes_planned"]
    assert (relayed["bytes_sent"] != straight["bytes_sent"]) == passes_on


def test_a_tensor_for_several_layers_of_a_stage_is_planned_once(tmp_path: Path, capfd: Any) -> None:
    stages = [([0, 1, 2, 3], 1), ([4, 5, 6, 7, 8], 1)]  # the encoder, and three blocks that take its output
    sent = {}
    for name, made in (("runtime", as_run("t5", 2)), ("paper", instance("t5", 2))):
        assert run(tmp_path, made, plan(stages), "t5", "--check", "--json", "--quiet") == 0
        found = json.loads(capfd.readouterr().out)
        sent[name] = sum(found["bytes_sent"]), sum(found["bytes_planned"])
    assert sent["runtime"][0] == sent["runtime"][1] == sent["paper"][0] < sent["paper"][1]


def test_pipelining_takes_plans_whose_tensors_are_relayed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stages = plan([([0, 1, 2, 3], 1), ([4, 5], 1), ([6, 7, 8], 1)])
    options = ("--check", "--json", "--runtime", "pipelining")
    assert run(tmp_path, instance("t5", 4), stages, "t5", *options) == 2
    assert "goes from stage 0 to" in capfd.readouterr().err
    code = run(tmp_path, as_run("t5", 4), stages, "t5", *options)
    out, err = capfd.readouterr()
    assert code == 0, err
    found = json.loads(out)
    assert found["gradient_error"] <= 1e-12 and found["bytes_sent"] == found["bytes_planned"]
    assert run(tmp_path, as_run("t5_loss", 4), stages, "t5_loss", *options) == 2
    assert "more than one tensor, or a number" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("kind", "stages", "recomputed"),
    [
        # each stage of the decoder keeps the encoder's output; the last one as an input alone
        ("t5_loss", [([0, 1, 2], 1), ([3, 4, 5], 2), ([6, 7, 8], 1)], (6, 7, 8)),
        ("t5_loss", [([0, 1, 2], 1), ([3, 4, 5], 2), ([6, 7, 8], 1)], ()),
        # the first and the second stage make tables of angles
        ("llama", [([0, 1, 2], 1), ([3], 2), ([4, 5], 1)], ()),
        # what the last block gets of the normalised words is the first of them
        ("vit", [([0, 1, 2], 1), ([3, 4, 5], 2)], (0, 1, 2, 3, 4, 5)),
    ],
)
def test_what_several_stages_keep_is_held_by_each(
    kind: str, stages: Any, recomputed: tuple[int, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = run(tmp_path, as_run(kind, 4), plan(stages, recomputed), kind, "--json", "--quiet")
    out, err = capfd.readouterr()
    assert code == 0, (out, err)
    found = json.loads(out)
    assert found["held_bytes"] == pytest.approx(found["held_planned"], rel=1e-9)


def test_pipelining_sends_tensors_without_a_gradient(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = []
    for runtime in ("own", "pipelining"):  # a frozen embedding and whole numbers made of it go through all stages
        stages = plan([([0, 1, 2], 2), ([3, 4], 2), ([5, 6, 7], 2)], (3, 4))
        code = run(
            tmp_path, as_run("hinted", 6), stages, "hinted", "--check", "--json", "--quiet", "--runtime", runtime
        )
        out, err = capfd.readouterr()
        assert code == 0, (out, err)
        found.append(json.loads(out))
        assert found[-1]["gradient_error"] <= 1e-12 and found[-1]["parameters"] == found[-1]["parameters_compared"]
        assert sum(found[-1]["bytes_sent"]) == sum(found[-1]["bytes_planned"])
    assert found[0]["bytes_sent"] == found[1]["bytes_sent"] != found[0]["bytes_planned"]
    assert found[0]["held_bytes"] == found[1]["held_bytes"] == found[0]["held_planned"]
