"""Eight kinds of models, captured, cut and run on two to six processes: gradients, bytes and memory."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from runtime import captured_once

import planner
from instances.exchange import to_json
from instances.generators.transformer import RECOMPUTE, VANILLA
from planner.cli.app import main

pytest.importorskip("torch", reason="needs PyTorch (extra torch)", exc_type=ImportError)
pytest.importorskip("transformers", reason="needs transformers (extra torch)", exc_type=ImportError)

MODELS = Path(__file__).parent / "kinds.py"


def captured(kind: str) -> Any:
    return captured_once.captured(f"{MODELS}:{kind}")


def instance(kind: str, samples: int) -> dict[str, Any]:
    """An instance of stage partitioning that counts bytes alone."""
    found = captured(kind)
    from planner.training.capture.captured import edge_bytes, kept_tensors, shared_tensors

    inputs = {
        node.id: sum({each.op: each.size for each in found.transfers if node.id == min(each.targets)}.values())
        for node in found.nodes
    }
    layers = []
    for node in found.nodes:
        saved = float(sum(found.costs[op].saved_bytes for op in node.ops))
        weights = sum(each.size for each in node.parameters if each.trained)
        kept = {"id": VANILLA, "time": 1.0, "weight_bytes": weights, "activation_bytes": saved, "static_bytes": 1.0}
        again = kept | {"id": RECOMPUTE, "activation_bytes": inputs[node.id]}
        layers.append({"id": node.id, "name": node.name, "module": node.module, "tmpcs": {"1": [kept, again]}})
    edges = [
        {"source": source, "target": target, "bytes": size}
        for (source, target), size in sorted(edge_bytes(found).items())
    ]
    return {
        "problem": "stage_partitioning", "schema_version": 1, "name": kind, "num_devices": 8, "memory_bytes": 1e12,
        "bandwidth": 1e9, "num_microbatches": samples, "layers": layers, "edges": edges,
        "options": {"granularity": "block"},
        "shared": [
            {"source": each.source, "targets": list(each.targets), "bytes": each.bytes}
            for each in shared_tensors(found)
        ],
        "kept": [
            {"layers": list(each.layers), "tmpcs": list(each.tmpcs), "bytes": each.bytes}
            for each in kept_tensors(found)
        ],
    }  # fmt: skip


def as_run(kind: str, samples: int) -> dict[str, Any]:
    """The instance of a kind of model with the cost model ``runtime``, its layers in the order of the graph."""
    return to_json(planner.load(instance(kind, samples), linearize="id", cost_model="runtime"))


def plan(stages: list[tuple[list[int], int]], recomputed: tuple[int, ...] = ()) -> dict[str, Any]:
    """Stages as (nodes, replicas)."""
    made = []
    for nodes, replicas in stages:
        tmpcs = {str(node): RECOMPUTE if node in recomputed else VANILLA for node in nodes}
        made.append({"nodes": nodes, "dp_degree": replicas, "tp_degree": 1, "tmpcs": tmpcs})
    return {"stages": made}


#: Stages of nodes as of `captured`, with their replicas; nodes that compute their activations again.
RUNS = {
    "gpt": ([([0, 1, 2], 1), ([3], 2), ([4, 5, 6], 1)], (2, 3)),
    "llama": ([([0, 1], 3), ([2, 3, 4, 5], 2)], ()),
    "bert": ([([0, 1], 2), ([2], 1), ([3, 4], 3)], (1, 2, 3)),
    "vit": ([([0, 1, 2], 1), ([3, 4, 5], 3)], ()),
    "t5_loss": ([([0, 1], 1), ([2, 3], 2), ([4, 5], 1), ([6, 7, 8], 2)], (1, 6)),
    "modal": ([([0, 1, 2], 1), ([3, 4], 2), ([5, 6, 7, 8, 9, 10, 11], 2)], ()),
    "experts": ([([0, 1], 2), ([2, 3, 4], 1)], (1, 2)),
    "dlrm": ([([0, 1, 2], 2), ([3, 4, 5], 1), ([6, 7], 2)], ()),
}


def run(folder: Path, made: Any, stages: Any, kind: str, *options: str) -> int:
    """`planner run`, whose forks capture `modal` themselves."""
    files = [folder / "plan.json", folder / "instance.json"]
    for file, content in zip(files, (stages, made), strict=True):
        file.write_text(json.dumps(content))
    model = f"{MODELS}:{kind}"
    with nullcontext() if kind == "modal" else captured_once.known(model, "minibatch" in made):
        return main(["run", *map(str, files), "--model", model, *options])


def ran(capfd: Any, *given: Any) -> dict[str, Any]:
    """What a run prints that ends well."""
    code = run(*given, "--json", "--quiet")
    out, err = capfd.readouterr()
    assert code == 0, (out, err)
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("kind", RUNS)
def test_every_kind_computes_what_the_whole_model_does(kind: str, tmp_path: Path, capfd: Any) -> None:
    own, options = plan(*RUNS[kind]), ("--check", "--out", str(tmp_path / "run.json"))
    found = ran(capfd, tmp_path, as_run(kind, 6), own, kind, *options)
    assert found["loss_error"] <= 1e-12 and found["gradient_error"] <= 1e-12
    assert found["parameters"] == found["parameters_compared"] > 10
    assert found["bytes_sent"] == found["bytes_planned"]
    record = json.loads((tmp_path / "run.json").read_text())
    more = sum(record["gradient_bytes"]) - sum(record["gradient_planned"])
    if kind == "gpt":  # the first and the last stage have one replica each and tie the embedding of 31 words
        assert more == pytest.approx(2 * 31 * 16 * 8)
    else:
        assert (abs(more) > 1) == (kind in ("bert", "t5_loss"))
    if kind == "t5_loss":  # the encoder's output passes stages
        assert found["bytes_sent"] != ran(capfd, tmp_path, instance(kind, 6), own, kind)["bytes_sent"]
    for held, planned in zip(found["held_bytes"], found["held_planned"], strict=True):
        assert 0.95 * planned <= held <= 1.05 * planned


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_pipelining_computes_and_sends_the_same(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stages, recomputed = [([0, 1], 2), ([2], 2), ([3, 4, *([5] if kind == "llama" else [])], 2)], (2,)
    found = []
    for runtime in ("own", "pipelining"):
        options = ("--check", "--runtime", runtime)
        found.append(ran(capfd, tmp_path, instance(kind, 6), plan(stages, recomputed), kind, *options))
        assert found[-1]["gradient_error"] <= 1e-12 and found[-1]["parameters"] == found[-1]["parameters_compared"]
    for name in ("bytes_sent", "bytes_planned", "held_bytes", "held_planned"):
        assert found[0][name] == found[1][name]


@pytest.mark.parametrize(
    ("kind", "stages", "words"),
    [
        ("bert", [([0, 1], 2), ([2, 3, 4], 1)], "stages have 2, 1 replicas"),
        ("bert", [([0, 1, 2, 3, 4], 2)], "there is one stage"),
        ("modal", [([0, 1, 2], 1), ([3, 4, 5, 6], 1), ([7, 8, 9, 10, 11], 1)], "goes from stage 0 to 2"),
    ],
)
def test_pipelining_refuses_what_it_cannot_run(kind: str, stages: Any, words: str, tmp_path: Path, capfd: Any) -> None:
    made = instance(kind, sum(replicas for _, replicas in stages)) | {"num_devices": 12}
    code = run(tmp_path, made, plan(stages), kind, "--runtime", "pipelining")
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert words in err and len(err.splitlines()) == 1


def graph(kind: str, minibatch: int) -> dict[str, Any]:
    """A stage graph that counts bytes of a sample, half of what a call with two of them has."""
    found = captured(kind)
    seconds = {"fixed_s": 0.0, "per_sample_s": 1.0}
    operators = [
        {"id": node.id, "name": node.name, "forward": seconds, "backward": seconds, "weight_bytes": 1.0,
         "activation_bytes": sum(found.costs[op].saved_bytes for op in node.ops) / 2}
        for node in found.nodes
    ]  # fmt: skip
    edges = [
        {"source": source, "target": target, "bytes_per_sample": sum(each.size for each in tensors) / 2}
        for (source, target), tensors in sorted(found.edges.items())
    ]
    return {
        "problem": "stage_graph", "schema_version": 1, "name": kind, "operators": operators, "edges": edges,
        "num_devices": 6, "memory_bytes": 1e12, "bandwidth_bytes_per_s": 1e9, "latency_s": 0.0,
        "minibatch": minibatch, "schedule": "per-stage",
    }  # fmt: skip


#: Stages as (nodes, devices, samples of a micro-batch, samples in flight), and the order between them.
GRAPHS = {
    "modal": (
        [([0, 1, 2], 1, 2, 4), ([3, 4, 5, 6], 2, 2, 4), ([7, 8], 1, 1, 4), ([9, 10, 11], 2, 2, 2)],
        [[0, 3], [1, 3], [2, 3]],
    ),
    # the encoder, the decoder's embedding and its first block in branches of their own; the last stage straddles
    "t5": ([([0, 1], 1, 2, 6), ([2, 3], 2, 2, 4), ([4], 1, 2, 4), ([5, 6, 7, 8], 2, 2, 2)], [[0, 1], [1, 3], [2, 3]]),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_graphs_of_stages_compute_what_the_whole_model_does(kind: str, tmp_path: Path, capfd: Any) -> None:
    stages, edges = GRAPHS[kind]
    made = [dict(zip(("nodes", "devices", "microbatch", "in_flight"), each, strict=True)) for each in stages]
    whole = {"stages": made, "edges": edges, "idle_devices": 0}
    found = ran(capfd, tmp_path, graph(kind, 8), whole, kind, "--check")
    assert found["loss_error"] <= 1e-12 and found["gradient_error"] <= 1e-12
    assert found["parameters"] == found["parameters_compared"] > 10
    if kind == "modal":
        assert found["bytes_sent"] == found["bytes_planned"]
    else:  # two blocks of the last stage take the encoder's output, which is sent there once
        assert sum(found["bytes_sent"]) < sum(found["bytes_planned"])


# The cost model `runtime`: tensors go on from stage to stage, and every process sends the bytes that the plan has.


def test_a_tensor_for_several_layers_of_a_stage_is_planned_once(tmp_path: Path, capfd: Any) -> None:
    stages = [([0, 1, 2, 3], 1), ([4, 5, 6, 7, 8], 1)]  # the encoder, and three blocks that take its output
    sent = {}
    for name, made in (("runtime", as_run("t5", 2)), ("paper", instance("t5", 2))):
        found = ran(capfd, tmp_path, made, plan(stages), "t5", "--check")
        sent[name] = sum(found["bytes_sent"]), sum(found["bytes_planned"])
    assert sent["runtime"][0] == sent["runtime"][1] == sent["paper"][0] < sent["paper"][1]


def test_pipelining_takes_plans_whose_tensors_are_relayed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stages = plan([([0, 1, 2, 3], 1), ([4, 5], 1), ([6, 7, 8], 1)])
    options = ("--check", "--runtime", "pipelining")
    assert run(tmp_path, instance("t5", 4), stages, "t5", *options) == 2
    assert "goes from stage 0 to" in capfd.readouterr().err
    found = ran(capfd, tmp_path, as_run("t5", 4), stages, "t5", *options)
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
    found = ran(capfd, tmp_path, as_run(kind, 4), plan(stages, recomputed), kind)
    assert found["held_bytes"] == pytest.approx(found["held_planned"], rel=1e-9)


def test_pipelining_sends_tensors_without_a_gradient(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = []
    for runtime in ("own", "pipelining"):  # a frozen embedding and whole numbers made of it go through all stages
        stages = plan([([0, 1, 2], 2), ([3, 4], 2), ([5, 6, 7], 2)], (3, 4))
        found.append(ran(capfd, tmp_path, as_run("hinted", 6), stages, "hinted", "--check", "--runtime", runtime))
        assert found[-1]["gradient_error"] <= 1e-12 and found[-1]["parameters"] == found[-1]["parameters_compared"]
        assert sum(found[-1]["bytes_sent"]) == sum(found[-1]["bytes_planned"])
    assert found[0]["bytes_sent"] == found[1]["bytes_sent"] != found[0]["bytes_planned"]
    assert found[0]["held_bytes"] == found[1]["held_bytes"] == found[0]["held_planned"]
