"""The command `planner export`, and the call behind it."""

import io
import json
import os
import runpy
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from exported_strategies import INTERLEAVED, strategy
from thinned import thinned

import planner
from formulations.simulation.orders import SCHEDULES
from planner.cli.app import main
from planner.training.capture.separately import prepare_torch
from planner.training.trainers.checked import CHECKED
from planner.training.trainers.formats import FORMATS
from planner.training.trainers.plans import PROBLEMS

Run = Callable[..., tuple[int, str, str]]


SETTINGS = ("--memory", "40MB")


@pytest.fixture
def run(run: Run) -> Run:
    """Run a command in a folder that has ``plan.json``, a plan of chain8 with 40 MB; the code, and what it printed."""
    assert run("solve", "chain8", *SETTINGS, "--exact", "--quiet", "--out", "plan.json")[0] == 0
    return run


@thinned("name", sorted(set(FORMATS) - {"accelerate"}), 2)
def test_text_is_printed_and_read_back(run: Run, name: str) -> None:
    code, out, err = run("export", "plan.json", "chain8", *SETTINGS, "--to", name)
    assert code == 0 and "no roles: 8 of 8 pieces count as decoder layers" in err
    layout = FORMATS[name].read(out)
    counted = [x for x in layout.layers if x.role in ("decoder", "")]
    assert len(counted) == 8 and (layout.pp_degree, layout.dp_degree, layout.tp_degree) == (2, 1, 2)
    code, again, _ = run("export", "plan.json", "chain8", *SETTINGS, "--to", name, "--json", "--quiet")
    found = json.loads(again)
    assert code == 0 and found == {"format": name, "text": out, "lossless": True, "refused": None, "nearest": None}
    code, shown, _ = run("export", "plan.json", "chain8", *SETTINGS, "--to", name, "--out", "text", "--json", "--quiet")
    assert Path("text").read_text() == out
    assert json.loads(shown) == {"format": name, "file": "text", "lossless": True, "refused": None, "nearest": None}


def test_other_overrides_than_those_of_the_plan_are_named(run: Run) -> None:
    code, _, err = run("export", "plan.json", "chain8", "--to", "megatron")
    words = "memory was 40000000 when plan.json was made and is not given here, where the plan is judged"
    assert code == 0 and f"note: {words}" in err
    assert words in run("check", "chain8", "plan.json")[2]
    code, _, err = run("export", "plan.json", "chain8", *SETTINGS, "--devices", "4", "--to", "megatron")
    assert code == 0 and "devices was not given when plan.json was made and is 4 here" in err
    for arguments in (("export", "plan.json", "chain8", *SETTINGS, "--to", "vllm"), ("check", "chain8", "plan.json")):
        more = SETTINGS if arguments[0] == "check" else ()
        assert "when plan.json was made" not in run(*arguments, *more)[2]
    planned = json.loads(Path("plan.json").read_text())
    for old in ({key: value for key, value in planned.items() if key != "options"}, planned | {"options": [1]}):
        Path("old.json").write_text(json.dumps(old))
        code, _, err = run("check", "chain8", "old.json")
        assert code == 0 and "was made" not in err


def test_layout_of_megatron(run: Run) -> None:
    _, out, _ = run("export", "plan.json", "chain8", *SETTINGS, "--to", "megatron", "--quiet")
    assert '--pipeline-model-parallel-layout "Et*4|t*4L"' in out and "WORLD_SIZE=4" in out


def unequal(**changes: Any) -> dict[str, Any]:
    """A plan of chain8 whose first stage has two replicas."""
    stages = [
        {"nodes": [0, 1, 2], "dp_degree": 2, "tp_degree": 1},
        {"nodes": [3, 4, 5], "dp_degree": 1, "tp_degree": 1},
        {"nodes": [6, 7], "dp_degree": 1, "tp_degree": 1},
    ]
    plan = {"stages": [{**stage, "tmpcs": {str(v): "keep" for v in stage["nodes"]}} for stage in stages]}
    return {**plan, **changes}


def test_what_a_format_cannot_express_is_refused_in_words(run: Run) -> None:
    Path("unequal.json").write_text(json.dumps(unequal()))
    code, out, err = run("export", "unequal.json", "chain8", "--to", "megatron")
    assert (code, out) == (1, "") and err.count("\n") == 1
    assert "data-parallel degrees 1, 2; megatron has one for all stages" in err and "--nearest" in err
    code, out, _ = run("export", "unequal.json", "chain8", "--to", "megatron", "--json")
    found = json.loads(out)
    assert code == 1 and found["text"] is None and "degrees 1, 2" in found["refused"] and found["nearest"] is None


@thinned("name", sorted(set(FORMATS) - {"accelerate"}), 2)
def test_nearest_plan_is_the_best_that_the_trainer_can_run(run: Run, name: str) -> None:
    Path("unequal.json").write_text(json.dumps(unequal()))
    instance = planner.load("chain8")
    given = planner.check(instance, unequal()).objective
    best = planner.solve(planner.load("chain8", realizable=name), exact=True)
    code, out, err = run("export", "unequal.json", "chain8", "--to", name, "--nearest", "--quiet")
    assert code == 1 and f"the nearest plan that it can takes {best.objective:.9g} s" in err
    layout = FORMATS[name].read(out)
    assert layout.world_size == 4
    code, out, _ = run("export", "unequal.json", "chain8", "--to", name, "--nearest", "--json", "--quiet")
    found = json.loads(out)
    assert code == 1 and found["refused"] and FORMATS[name].read(found["text"]) == layout
    assert found["nearest"] == {"objective": best.objective, "loss": pytest.approx(best.objective / given - 1)}


def test_without_a_plan_that_the_format_can_express_there_is_no_nearest(run: Run) -> None:
    Path("unequal.json").write_text(json.dumps(unequal()))
    code, out, err = run("export", "unequal.json", "chain8", "--devices", "11", "--to", "megatron", "--nearest")
    assert (code, out) == (1, "") and "no plan of chain8 on all 11 devices fits megatron (proved)" in err


def test_price_of_megatron_on_bert() -> None:
    """What the restriction costs the main job."""
    instance = planner.load("bert32", devices=64, memory="8GiB")
    plan = planner.solve(instance, exact=True).plan
    assert plan is not None
    found = planner.export(instance, plan, "megatron", nearest=True)
    assert found.refused is not None and found.nearest is not None and found.nearest.proved
    assert found.nearest.loss == pytest.approx(0.5966, abs=1e-4)
    assert found.text is not None and '"Et|t*3|t*4|t*4|t*5|t*5|t*5|t*5L"' in found.text and found.lossless


BAD = [
    (("export", "plan.json", "chain8", "--to", "megatrn"), "--to is 'megatrn'; expected one of megatron, "),
    (("export", "plan.json", "bert32", "--to", "megatron"), "plan.json: instance is 'chain8'; expected bert32"),
    (("export", "plan.json", "chain8-flushed", "--to", "megatron"), "plan.json: problem is 'stage_partitioning'"),
    (("export", "cut.json", "chain8", "--to", "megatron"), "cut.json: line "),
    (("export", "none.json", "chain8", "--to", "megatron"), "none.json: file is "),
    (("export", "bare.json", "diamond", "--to", "megatron"), "bare.json: cover is "),
    (("export", "plan.json", "chain8", "--memory", "30MB", "--to", "vllm"), "plan.json: memory is "),
    (("export", "list.json", "chain8", "--to", "vllm"), "list.json: content is "),
    (("export", "plan.json", "chain8", "--to", "vllm", "--out", "plan.json"), "--out is 'plan.json'"),
    (("export", "-", "-", "--to", "vllm"), "PLAN is '-'"),
    (("export", "plan.json", "chain8"), "--to is missing; expected FORMAT"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_bad_input_is_one_line(run: Run, arguments: tuple[str, ...], words: str) -> None:
    text = Path("plan.json").read_text()
    Path("cut.json").write_text(text[: len(text) // 2])
    Path("bare.json").write_text(json.dumps(unequal()))
    Path("list.json").write_text("[1]")
    code, out, err = run(*arguments)
    assert (code, out) == (2, "") and err.count("\n") == 1 and words in err
    assert Path("plan.json").read_text() == text


def test_plans_of_other_problems() -> None:
    flushed = planner.solve(planner.load("chain8-flushed"), exact=True)
    found = planner.export(planner.load("chain8-flushed"), flushed.to_json(), "torch")
    assert flushed.plan is not None and found.text is not None
    assert len(FORMATS["torch"].read(found.text).stages) == len(flushed.plan["stages"])
    layers = planner.load("layers", layers=9, stages=3)
    result = planner.solve(layers, exact=True)
    found = planner.export(layers, result.plan, "vllm")
    assert found.text is not None and ",".join(map(str, result.plan["lengths"])) in found.text
    assert any("one device for a stage" in note for note in found.notes)
    placed = planner.load("placement", microbatches=3)
    plan = {"partition": {"stages": [["embed", "left", "right"], ["join", "head", "loss"]]}}
    crossed = {**plan, "mapping": {"devices": [[0, 2], [1, 3]]}}
    found = planner.export(placed, crossed, "torch")
    assert found.text is not None and found.lossless and "SCHEDULE = 'Schedule1F1B'" in found.text
    layout = FORMATS["torch"].read(found.text)
    assert layout.whole and layout.devices == (0, 2, 1, 3) and (layout.dp_degree, layout.pp_degree) == (2, 2)
    assert "RECOMPUTED_BY_STAGE = True" in found.text and "MICROBATCHES = 3" in found.text
    refused = {name: planner.export(placed, crossed, name).refused or "" for name in FORMATS}
    assert "which of them are the layers that megatron counts is not known" in refused["megatron"]
    assert "says so of layers; device 2 has what deepspeed gives to device 1" in refused["deepspeed"]
    in_order = {**plan, "mapping": {"devices": [[0, 1], [2, 3]]}}
    assert "2 devices; accelerate has one for each stage" in planner.export(placed, in_order, "accelerate").refused
    single = replace(placed, operators=replace(placed.operators, origin={"granularity": "op"}))
    assert "single operations (granularity op)" in planner.export(single, crossed, "torch").refused
    kept = replace(placed.operators, training=replace(placed.operators.training, recompute=False))
    found = planner.export(kept, plan["partition"], "torchtitan")  # left and right stand in one stage
    assert found.text is not None and not FORMATS["torchtitan"].read(found.text).whole
    named = replace(kept, operators=tuple(replace(each, name=f"Conv2d({each.id}, 64)") for each in kept.operators))
    assert "Conv2d(" not in (planner.export(named, plan["partition"], "torch").text or "Conv2d(")  # no path of a module
    machines = planner.load("chain8-machines", memory="1GB")
    inner = [
        {"nodes": nodes, "dp_degree": 1, "tp_degree": 1, "tmpcs": {str(v): "keep" for v in nodes}}
        for nodes in ([0, 1, 2], [3, 4, 5, 6, 7])
    ]
    found = planner.export(machines, {"stages": [{"dp_degree": 2, "inner": inner}]}, "torch")
    assert found.text is not None, found.refused
    read = FORMATS["torch"].read(found.text)
    assert [(len(stage.layers), stage.dp_degree) for stage in read.stages] == [(3, 2), (5, 2)]
    strategy = planner.load("amp-homogeneous")
    plan = planner.solve(strategy, method="megatron").plan
    assert plan is not None
    found = planner.export(strategy, plan, "megatron")
    assert found.text is not None, found.refused
    read = FORMATS["megatron"].read(found.text)
    assert (read.dp_degree, read.tp_degree, read.pp_degree) == tuple(plan[f"{x}_degree"] for x in ("dp", "tp", "pp"))
    mapping = planner.load("fig2")
    with pytest.raises(planner.UsageError, match=", ".join(PROBLEMS)):
        planner.export(mapping, planner.solve(mapping).to_json(), "torch")


def test_recomputation_that_a_server_does_not_have_is_refused() -> None:
    instance = planner.load("chain8")
    plan = unequal()
    for stage in plan["stages"]:
        stage |= {"dp_degree": 1, "tmpcs": dict.fromkeys(stage["tmpcs"], "recompute")}
    for name in FORMATS:
        exported = planner.export(instance, plan, name)
        assert exported.lossless is (name not in ("vllm", "sglang", "accelerate"))
        assert (exported.text is None) is (f"'recompute'; {name} has no backward pass" in (exported.refused or ""))


def test_modules_and_roles_of_the_instance_are_used() -> None:
    instance = planner.load("chain8", memory="1GB")
    roles = ["embedding", *["decoder"] * 5, "norm", "head"]
    names = ["model.embed", *(f"model.layers.{v}" for v in range(5)), "model.norm", "lm_head"]
    layers = (replace(layer, module=m, role=r) for layer, m, r in zip(instance.layers, names, roles, strict=True))
    instance = replace(instance, layers=tuple(layers))
    plan = {"stages": [{**stage, "dp_degree": 1} for stage in unequal()["stages"]]}
    text = planner.export(instance, plan, "accelerate").text
    assert list(json.loads(text).items())[2:4] == [("model.layers.1", 0), ("model.layers.2", 1)]
    assert '"Et*2|t*3|L"' in planner.export(instance, plan, "megatron").text
    assert "PARTITION=2,3,0" in planner.export(instance, plan, "vllm").text
    assert "each stage has a layer that counts" in planner.export(instance, plan, "galvatron").refused
    shared = replace(instance, layers=tuple(replace(x, module="whole") for x in instance.layers))
    assert "they are one module, whole" in planner.export(shared, plan, "torchtitan").refused


OWN = ["tok_embeddings", *(f"layers.{n}" for n in range(6)), "lm_head"]


@pytest.mark.parametrize(
    ("modules", "called", "note"),
    [
        (["model.embed_tokens", *(f"model.layers.{n}" for n in range(6)), "lm_head"], OWN, "as torchtitan calls them"),
        (["net.model.embed_tokens", *(f"net.model.layers.{n}" for n in range(6)), "net.lm_head"], OWN, "as torchtitan"),
        (OWN, OWN, ""),
        ([f"transformer.h.{n}" for n in range(8)], [f"transformer.h.{n}" for n in range(8)], "as in the instance"),
    ],
)
def test_modules_of_transformers_get_torchtitans_names(modules: list[str], called: list[str], note: str) -> None:
    chain = planner.load("chain8", devices=4, memory="40MB", realizable="torchtitan")
    layers = zip(chain.layers, modules, strict=True)
    named = replace(chain, layers=tuple(replace(layer, module=module) for layer, module in layers))
    plan = planner.solve(named, exact=True).plan
    found = planner.export(named, plan, "torchtitan")
    parts = FORMATS["torchtitan"].read(found.text).stages
    assert [module for part in parts for layer in part.layers for module in layer.modules] == called
    said = [line for line in found.notes if line.startswith("modules")]
    assert found.lossless and len(said) == bool(note) and all(note in line for line in said)
    other = FORMATS["torch"].read(planner.export(named, plan, "torch").text).stages
    assert [module for part in other for layer in part.layers for module in layer.modules] == modules


def test_help_names_the_formats() -> None:
    assert set(CHECKED) == set(FORMATS)


def launched(text: str, folder: Path, model: str = "") -> None:
    """The script runs in two processes, and the gradients of both are those of the model, or the stand-in, unsplit.

    They are forks of this one, which has imported PyTorch, of the agent that torchrun starts.
    """
    import torch
    from torch.distributed.launcher import LaunchConfig, elastic_launch

    (folder / "plan.py").write_text(text)

    def work() -> str:
        torch.set_num_threads(1)
        os.environ["GLOO_SOCKET_IFNAME"], sys.argv = "lo", ["plan.py", *([model, "--check"] if model else [])]
        with redirect_stdout(io.StringIO()) as shown:
            runpy.run_path(str(folder / "plan.py"), run_name="__main__")
        return shown.getvalue()

    here = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": folder.name, "monitor_interval": 0.1}
    with prepare_torch(str(folder)):
        found = elastic_launch(LaunchConfig(1, 1, 2, start_method="fork", max_restarts=0, **here), work)()
    assert [each.count("gradients differ by at most") for each in found.values()] == [1, 1]


@pytest.mark.parametrize("schedule", ["interleaved", "zb-h1", "gpipe", "zb-v", "dualpipe-v"])
def test_strategies_run_with_torch(schedule: str, tmp_path: Path) -> None:
    """Two processes, under the plan's schedule; gradients equal those of the unsplit stand-in."""
    pytest.importorskip("torch", reason="the script runs with the extra torch")
    known = "gpipe,interleaved,zb-h1,zb-v,dualpipe-v"
    instance = planner.load("chain8-strategy", memory="1GB", schedule=known, microbatches=4)
    plan = strategy(schedule, [[0, 1, 2], [3, 4, 5, 6, 7]])
    if SCHEDULES[schedule].refusal(2, 4, 1) is not None or schedule == "interleaved":
        plan = INTERLEAVED | {"schedule": schedule}
    text = planner.export(instance, plan, "torch").text
    assert text is not None
    launched(text, tmp_path)


RUNTIME = Path(__file__).parents[1] / "runtime"


#: Modules of stand-ins, by where they are.
MODULES = {
    "small_models.py:tied": ["words", "places", "blocks.0", "blocks.1", "blocks.2, head"],
    "small_models.py:writing": ["first", "second"],
}


@pytest.mark.parametrize(
    ("model", "cut"),
    [
        ("small_models.py:tied", 3), ("small_models.py:writing", 1), ("kinds.py:t5_loss", 4), ("kinds.py:modal", 5),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("kinds.py:gpt", 3), ("kinds.py:llama", 2))),
    ],
)  # fmt: skip
def test_models_that_run_takes_run_with_torch(model: str, cut: int, tmp_path: Path) -> None:
    """Cut where the trace is, whatever a model does between its modules; one layer of the first stage is recomputed.

    The first two are stand-ins with what those of transformers have: positions that are added, masks, tied weights, and
    what is written in place. The last one has three branches, which stages of an order of their layers cut.
    """
    pytest.importorskip("torch", reason="the script runs with the extra torch")
    if model.startswith("kinds"):
        pytest.importorskip("transformers", reason="the model is one of transformers")
        runpy.run_path(str(RUNTIME / "kinds.py"))[model.rpartition(":")[2]]()  # forks find what it imports
    file, place = str(tmp_path / "model.json"), str(RUNTIME / model)
    if model.startswith("kinds"):
        assert main(["import", "torch", place, "--devices", "2", "--tp", "1", "--quiet", "--out", file]) == 0
        instance = planner.load(file, microbatches=4, linearize="id")
    else:  # a chain made by hand, whose layers have names of modules
        parts = MODULES[model]
        chain = planner.load("chain8", devices=2, memory="1GB", microbatches=4, first=len(parts))
        layers = (replace(layer, module=part) for layer, part in zip(chain.layers, parts, strict=True))
        instance = replace(chain, layers=tuple(layers))
    order = [layer.id for layer in instance.layers]
    stages = [{"nodes": part, "dp_degree": 1, "tp_degree": 1} for part in (order[:cut], order[cut:])]
    names = {layer.id: [x.id for x in layer.tmpcs[1]] for layer in instance.layers}
    for stage in stages:
        stage["tmpcs"] = {str(v): names[v][-1 if v == order[cut - 1] else 0] for v in stage["nodes"]}
    found = planner.export(instance, {"stages": stages}, "torch")
    assert found.text is not None, found.refused
    assert "RECOMPUTED = []" not in found.text
    launched(found.text, tmp_path, place)


def test_tied_weights_at_both_ends_of_a_v_run_with_torch(tmp_path: Path) -> None:
    """The first process has the embedding and the head: their gradients are divided by the micro-batches once."""
    pytest.importorskip("torch", reason="the script runs with the extra torch")
    parts = MODULES["small_models.py:tied"]
    made = planner.load("chain8-strategy", memory="1GB", schedule="zb-v", virtual_stages=1, microbatches=4, first=5)
    layers = (replace(layer, module=part) for layer, part in zip(made.flat.layers, parts, strict=True))
    instance = replace(made, flat=replace(made.flat, layers=tuple(layers)))
    plan = strategy("zb-v", [[0, 1], [2], [3], [4]], V=2)
    plan["tmpcs"]["2"] = "recompute"
    text = planner.export(instance, plan, "torch").text
    assert text is not None
    launched(text, tmp_path, str(RUNTIME / "small_models.py:tied"))


def test_stages_that_keep_their_inputs_run_with_torch_on_the_devices_of_the_plan(tmp_path: Path) -> None:
    """Each stage is one block that is run again; the process that torchrun counts second has the first stage."""
    pytest.importorskip("torch", reason="the script runs with the extra torch")
    names, place = ("words", "pictures", "sounds", "join", "head"), f"{RUNTIME / 'small_models.py'}:branches"
    sent = [{"source": name, "targets": ["join"], "volume_bytes": 1.0} for name in names[:3]]
    graph = {
        "num_stages": 2, "training": {"microbatches": 2},
        "operators": [{"id": name, "name": name, "compute_s": 1.0} for name in names],
        "tensors": [*sent, {"source": "join", "targets": ["head"], "volume_bytes": 1.0}],
    }  # fmt: skip
    placed = {"problem": "pipeline_placement", "operators": graph, "bandwidth_bytes_per_s": [[0, 1e9], [1e9, 0]]}
    plan = {
        "partition": {"stages": [["words", "sounds"], ["pictures", "join", "head"]]},
        "mapping": {"devices": [[1], [0]]},
    }
    text = planner.export(planner.load(placed), plan, "torch").text
    assert text is not None and "DEVICES = [1, 0]" in text
    script: dict[str, Any] = {"__name__": "plan"}
    exec(compile(text, "plan.py", "exec"), script)
    work = script["work_of"](script["given"](place), True)
    assert [[again for *_, again in work.module(stage).blocks] for stage in (0, 1)] == [[True], [True]]
    launched(text, tmp_path, place)
