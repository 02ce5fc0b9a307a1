"""The command import: models of a file and of configurations, instances that solve, and bad input in one line."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import planner
from instances.generators.hardware import DTYPES, HARDWARE
from instances.generators.transformer import RECOMPUTE, SELECTIVE, SELECTIVE_MLP, VANILLA
from instances.problems.training_strategy import INNER, MACHINE, OUTER, Exchanged
from planner.cli.app import main

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra torch")
needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None or importlib.util.find_spec("torch") is None,
    reason="needs the extra torch, with transformers",
)

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)) for _ in range(3)])

    def forward(self, x):
        return self.layers(x)

class Asks(Net):
    def forward(self, x):
        return self.layers(x) if x.sum().item() > 0 else x

def make():
    return Net(), (torch.ones(4, 8),)

def named():
    return Net(), {"x": torch.ones(4, 8)}

def asks():
    return Asks(), (torch.ones(4, 8),)

def fails():
    raise OSError("no such data set")

def odd():
    return "a model"

def leaves():
    raise SystemExit(5)

def doubled():
    return Net().double(), (torch.ones(4, 8, dtype=torch.float64),)
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    file = tmp_path / "mine.py"
    file.write_text(MODEL)
    return str(file)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["import", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_hardware_is_complete_and_says_where_from():
    for each in HARDWARE.values():
        assert set(each.peak_flop_per_s) <= set(DTYPES) and each.peak_flop_per_s["fp16"] > each.peak_flop_per_s["fp32"]
        assert each.inner_bandwidth_bytes_per_s > each.outer_bandwidth_bytes_per_s > 1e9
        assert each.memory_bandwidth_bytes_per_s > 2 * each.inner_bandwidth_bytes_per_s and each.source


@needs_torch
def test_rates_of_a_file_are_those_of_products_and_links(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    start, latency, link, found = 1e-3, 1e-2, 3e11, []
    usual = {"flop_per_s": [989.4e12 / 2, 1, None], "memory_bytes_per_s": 3.35e12 * 0.75, "inner_bytes_per_s": link}
    for more in ({}, {"product_start_s": start, "inner_latency_s": [latency, 0, 1], "overlap": 0.5}):
        rates, out = tmp_path / "rates.json", str(tmp_path / "net.json")
        rates.write_text(json.dumps({"hardware": "h100", "dtype": "bf16", "rates": usual | more}))
        given = ("torch", f"{source}:make", "--devices", "2", "--hardware", str(rates), "--out", out)
        assert run(capsys, *given)[0] == 0
        found.append(planner.load(out))
    plain, measured = ({t: x[0].time for t, x in each.layers[1].tmpcs.items()} for each in found)
    products, sums = 2 * (1 + 2), 2 * 2  # forward, for inputs and for weights; two steps of two devices, twice
    assert measured[1] - plain[1] == pytest.approx(products * start)
    assert measured[2] - plain[2] == pytest.approx(products * start + sums * latency)
    assert found[1].bandwidth == 2 * link and found[1].options["rates"] == str(rates)
    assert run(capsys, "torch", f"{source}:make", "--devices", "2", "--out", out)[0] == 0
    assert {t: x[0].time for t, x in planner.load(out).layers[1].tmpcs.items()}[1] == pytest.approx(plain[1])


@needs_torch
@pytest.mark.parametrize("function", ["make", "named"])
def test_a_function_of_a_file(source: str, function: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = str(tmp_path / "net.json")
    code, shown, _ = run(capsys, "torch", f"{source}:{function}", "--devices", "2", "--out", out, "--json")
    figures = json.loads(shown)
    assert code == 0 and (figures["nodes"], figures["edges"], figures["downsets"]) == (3, 2, 4)
    assert figures["parameters"] == 3 * (2 * 8 * 32 + 32 + 8) and figures["forward_flops"] == 3 * 2 * 4 * 2 * 8 * 32
    loaded = planner.load(out)
    assert [layer.module for layer in loaded.layers] == ["layers.0", "layers.1", "layers.2"]
    assert loaded.options["microbatch"] == 4 and loaded.options["hardware"] == "h100"
    # Both directions of three quarters of 450 GB/s, and of 50 between machines; what tensors share takes one.
    assert (
        loaded.bandwidth == 675e9 and planner.load(out, problem="training_strategy", devices=16).flat.bandwidth == 75e9
    )
    assert planner.solve(loaded, exact=True).status == "optimal"


@needs_torch
def test_the_importing_line_answers_for_a_trainer(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = str(tmp_path / "net.json")
    line = ("torch", f"{source}:make", "--devices", "2", "--out", out, "--for", "torchtitan")
    code, shown, _ = run(capsys, *line, "--json")
    found = json.loads(shown)
    assert code == 0 and found["problem"] == "training_strategy" and f" {out} " in found["stats"]["export"]
    main(["solve", out, "--for", "torchtitan"])
    answer = capsys.readouterr().out
    assert answer and run(capsys, *line)[1].endswith(answer)


@needs_torch
def test_the_importing_line_compares_sizes_of_micro_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Each has a file, with as many samples in a batch; the answer is that of the fastest one."""
    out = str(tmp_path / "net-{b}.json")
    line = (
        "hf", "vit-b", "--devices", "2", "--batch", "16", "--microbatch", "1,4", "--out", out, "--for", "torchtitan",
    )  # fmt: skip
    code, shown, _ = run(capsys, *line)
    made = [planner.load(out.replace("{b}", str(b))) for b in (1, 4)]
    assert code == 0 and [each.num_microbatches for each in made] == [16, 4]
    times, answers = {}, {}
    for b in (1, 4):
        main(["solve", out.replace("{b}", str(b)), "--for", "torchtitan", "--json"])
        times[b] = json.loads(capsys.readouterr().out)["objective"]
        main(["solve", out.replace("{b}", str(b)), "--for", "torchtitan"])
        answers[b] = capsys.readouterr().out
    assert shown.endswith(answers[min(times, key=lambda b: times[b])]) and all(
        f"{each:.6g}" in shown for each in times.values()
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--for", "vllm", "--out", "net.json"), "--for is 'vllm'; expected one of megatron"),
        (("--for", "torch"), "--for is 'torch'; expected --out FILE"),
        (("--microbatch", "1,2", "--batch", "8", "--out", "net.json"), "--microbatch is '1,2'; expected one size, or"),
        (("--for", "torch", "--out", "net.json", "--problem", "stage_graph"), "and --problem stage_partitioning"),
    ],
)
def test_what_a_trainer_cannot_be_answered_for_is_refused_first(given, words, capsys: pytest.CaptureFixture[str]):
    code, shown, error = run(capsys, "torch", "none.py:make", *given)
    assert (code, shown) == (2, "") and words in error and error.count("\n") == 1


@needs_torch
def test_models_of_doubles(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = str(tmp_path / "net.json")
    code, shown, _ = run(capsys, "torch", f"{source}:doubled", "--devices", "2", "--out", out, "--json")
    figures = json.loads(shown)
    assert code == 0 and figures["dtype"] == "fp64" and figures["parameter_bytes"] == 8 * figures["parameters"]
    weights = planner.load(out).layers[0].tmpcs[1][0]
    assert weights.weight_bytes == 8 * (2 * 8 * 32 + 32 + 8) and weights.static_bytes == 4 * weights.weight_bytes
    code, shown, error = run(capsys, "torch", f"{source}:doubled", "--hardware", "l40s")
    line = f"{source}:doubled is 'parameters of fp64'; expected one of bf16, fp16, fp32 on l40s\n"
    assert (code, shown, error) == (2, "", line)


@needs_torch
@pytest.mark.parametrize("problem", ["stage_partitioning", "operator_partitioning", "stage_graph"])
@pytest.mark.parametrize("granularity", ["block", "op"])
def test_every_problem(source: str, problem: str, granularity: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = str(tmp_path / "net.json")
    options = ("--problem", problem, "--granularity", granularity, "--hardware", "a100-80g", "--devices", "2")
    assert run(capsys, "torch", f"{source}:make", *options, "--out", out)[0] == 0
    result = planner.solve(instance := planner.load(out), exact=True)
    assert (result.problem, result.status, result.verified) == (problem, "optimal", True)
    assert problem != "stage_graph" or (instance.objective, instance.tp_degrees) == ("iteration", (1,))  # it is flushed


@needs_torch
@pytest.mark.parametrize("granularity", ["block", "op"])
def test_operators_of_a_graph_are_shared_as_layers_are(
    source: str, granularity: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    made = []
    for problem in ("stage_graph", "stage_partitioning"):
        out = str(tmp_path / f"{problem}.json")
        options = ("--problem", problem, "--granularity", granularity, "--devices", "2", "--tp", "1,2", "--batch", "8")
        assert run(capsys, "torch", f"{source}:make", *options, "--out", out)[0] == 0
        made.append(planner.load(out))
    graph, layers = made
    assert graph.tp_degrees == (1, 2)
    for operator, layer in zip(graph.operators, layers.layers, strict=True):
        (shard,), split = operator.tensor_parallel, layer.tmpcs[2][0]
        taken = shard.forward.per_sample_s + shard.backward.per_sample_s
        assert layers.options["microbatch"] * taken == pytest.approx(split.time) and split.id == "vanilla"
        assert shard.weight_bytes == split.weight_bytes
    found = planner.solve(graph, exact=True)
    assert (found.method, found.status, found.verified) == ("cpsat-orders", "optimal", True)


@needs_torch
def test_without_a_file_the_instance_is_printed(source: str, capsys: pytest.CaptureFixture[str]):
    code, shown, _ = run(capsys, "torch", f"{source}:make", "--batch", "24")
    content = json.loads(shown)
    assert content["num_microbatches"] * content["options"]["microbatch"] == 24
    assert code == 0 and content["problem"] == "stage_partitioning" and content["cost_model"] == "released"
    assert list(content["layers"][0]["tmpcs"]) == ["1", "2", "4", "8"]


@needs_torch
@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (":make", ("--hardware", "h1000"), "--hardware is 'h1000'; expected one of v100, a100-80g, h100"),
        (":make", ("--seq-len", "8"), "--seq-len is 8; expected nothing: the function's model and inputs have it"),
        (":make", ("--batch", "16tokens"), "--batch is '16tokens'; expected samples: this model has no length"),
        (":make", ("--batch", "0"), "--batch is '0'; expected a multiple of the"),
        (":make", ("--batch", "1e3"), "--batch is '1e3'; expected a multiple of the"),
        (":make", ("--batch", "8", "--microbatches", "4"), "--batch is '8'; expected none with --microbatches 4"),
        (":make", ("--tp", "16"), "--tp is 16; expected degrees from 1 to 8"),
        (":make", ("--tp", "x"), "--tp is 'x'; expected positive integers"),
        (":make", ("--splits", "all"), "--splits is 'all'; expected by-hand or found"),
        (":make", ("--zero", "4"), "--zero is 4; expected levels of 1, 2 and 3"),
        (":make", ("--efficiency", "1.5"), "--efficiency is 1.5; expected a share of the peak"),
        (":make", ("--devices", "0"), "--devices is 0; expected an integer from 1"),
        (":make", ("--problem", "mesh_tiling"), "--problem is 'mesh_tiling'; expected stage_partitioning"),
        (":make", ("--json",), "expected --out FILE"),
        (":make", ("--problem", "stage_graph", "--tp", "2", "--zero", "1"), "--zero chooses configurations; expected"),
        (":make", ("--problem", "stage_graph", "--sequence-parallel"), "only nodes of stage_partitioning"),
        (":make", ("--problem", "stage_graph", "--selective"), "--selective chooses configurations"),
        (":make", ("--problem", "operator_partitioning", "--tp", "2"), "--tp chooses configurations; expected none"),
        (":make", ("--tp", "1", "--sequence-parallel"), "expected a degree above 1: --tp has 1"),
        (":make", ("--devices", "1", "--splits", "found"), "--splits found is for nodes that devices share"),
        (":make", ("--tp", "3", "--zero", "1"), "above 1 that divides the 4 samples of a micro-batch: --tp has 3"),
        (":none", (), "function is 'none'; expected one of make, named"),
        ("", (), "expected FILE.py:FUNCTION"),
        (":asks", (), "expected a model that torch.export can trace"),
        (":leaves", (), "call is 'SystemExit: 5"),
        (":fails", (), "OSError: no such data set (line 27 of mine.py)"),
        (":odd", (), "result is of type str; expected a pair of a torch.nn.Module"),
    ],
)
def test_bad_input_is_one_line(source: str, model: str, options: tuple[str, ...], words: str, capsys: Any):
    code, shown, error = run(capsys, "torch", source + model, *options)
    assert (code, shown) == (2, "") and words in error and error.count("\n") == 1


@needs_torch
@pytest.mark.slow
def test_splits_are_found_for_the_command(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The instance has them, and the notes say of every layer what columns and rows lose."""
    out = str(tmp_path / "found.json")
    options = ("--splits", "found", "--tp", "1,2", "--no-recompute", "--out", out)
    code, _, notes = run(capsys, "torch", f"{source}:make", *options)
    layers = planner.load(out).layers
    assert code == 0
    assert any({"vanilla", "split 1"} <= {each.id for each in layer.tmpcs[2]} for layer in layers)
    (line,) = (each for each in notes.splitlines() if "at degree 2 columns and rows take longer" in each)
    assert layers[0].name in line and layers[-1].name in line


LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64,
}  # fmt: skip


def configured(folder: Path, **changes: Any) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps({**LLAMA, **changes}))
    return str(file)


@needs_transformers
def test_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = str(tmp_path / "llama.json")
    options = ("--seq-len", "16", "--microbatch", "2", "--devices", "4", "--batch", "640tokens")
    code, shown, _ = run(capsys, "hf", configured(tmp_path), *options, "--out", out, "--json")
    s, h, tokens = 16, 32, 32
    block = 2 * tokens * (h * h + 2 * h * h // 2 + h * h + 3 * h * 64) + 4 * tokens * s * h
    assert code == 0 and json.loads(shown)["forward_flops"] == 2 * block + 2 * tokens * h * 64
    loaded = planner.load(out)
    assert [layer.role for layer in loaded.layers] == ["embedding", "decoder", "decoder", "norm", "head"]
    assert (loaded.options["seq-len"], loaded.options["dtype"], loaded.num_microbatches) == (16, "bf16", 640 // 32)
    assert [*map(loaded.options.get, (MACHINE, INNER, OUTER)), loaded.bandwidth] == [8, 675e9, 75e9, 675e9]  # 2 ways
    works = [layer.work for layer in loaded.layers]
    assert [work["forward_flops"] for work in works] == [0, block, block, 0, 2 * tokens * h * 64]
    for layer, work in zip(loaded.layers, works, strict=True):
        forward = work["compute_bound_s"] + work["memory_bound_s"]
        assert forward * 2 <= layer.tmpcs[1][0].time * (1 + 1e-9) and work["forward_moved_bytes"] > 0
    assert works[1]["all_reduced_bytes"] == 2 * 2 * tokens * h and works[3]["compute_bound_s"] == 0


@needs_transformers
def test_what_shared_tokens_and_experts_exchange(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    E, k, tokens, h, f, out = 4, 2, 32, 32, 64, str(tmp_path / "mixtral.json")
    sizes = {"architectures": ["MixtralForCausalLM"], "num_local_experts": E, "num_experts_per_tok": k}
    source = configured(tmp_path, model_type="mixtral", **sizes)
    options = ("--seq-len", "16", "--microbatch", "2", "--devices", "4", "--batch", "640tokens", "--out", out)
    code, *_ = run(capsys, "hf", source, *options)
    one = Exchanged(2 * 2 * 2 * tokens * h / 2, 2 * 2 * k * tokens * h, 2 * 3 * h * f * E, E)
    assert code == 0 and planner.load(out, problem="training_strategy").exchanged == {}
    assert planner.load(out, problem="training_strategy", linearize="id", ep="1,2,4").exchanged == {1: one, 2: one}
    assert planner.load(out, problem="training_strategy", linearize="id", cp="1,2").chain[1].work["experts"] == E
    code, shown, _ = run(capsys, "hf", source, *options, "--for", "megatron", "--ep", "2", "--cp", "2")
    assert code == 0 and "experts on 2" in shown and "--ep 2 --cp 2 --problem" in shown
    code, _, error = run(capsys, "hf", source, *options, "--ep", "2")
    assert code == 2 and "--for" in error
    dense = configured(tmp_path)
    code, _, error = run(capsys, "hf", dense, *options, "--selective", "--for", "megatron", "--ep", "2")
    assert code == 2 and "no experts" in error
    own = {x.id for x in planner.load(out).layers[1].tmpcs[1]}
    assert own == {VANILLA, RECOMPUTE, SELECTIVE, SELECTIVE_MLP}
    plan = planner.solve(planner.load(out, realizable="megatron", objective="iteration")).plan
    plan["tmpcs"] |= {"1": SELECTIVE_MLP, "2": SELECTIVE_MLP}
    script = planner.export(planner.load(out, problem="training_strategy", linearize="id"), plan, "megatron").text
    assert "--recompute-granularity selective" in script and "--recompute-modules mlp" in script


@needs_transformers
def test_products_with_weights_of_layers_are_faster_in_fp8(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tokens, h, f, found = 2048, 1024, 4096, []
    source = configured(tmp_path, hidden_size=h, intermediate_size=f, num_key_value_heads=4)
    for dtype in ("bf16", "fp8"):
        out = str(tmp_path / f"{dtype}.json")
        code, _, error = run(
            capsys, "hf", source, "--seq-len", str(tokens), "--dtype", dtype, "--tp", "1,2", "--out", out
        )
        assert code == 0, error
        found.append(planner.load(out).layers)
    operations = 2 * tokens * (4 * h * h + 3 * h * f)
    saved = 3 * operations * (1 / 989.4e12 - 1 / 1978.9e12) / 0.5
    for one, other in zip(*found, strict=True):
        if one.role == "decoder":  # gradients of weights are the products with them, once
            times = one.weight_times[1], other.weight_times[1]
            assert times == pytest.approx((operations / 989.4e12 / 0.5, operations / 1978.9e12 / 0.5))
            assert one.weight_times[2] == pytest.approx(times[0] / 2)
        assert ({1, 2} if one.role != "embedding" else set()) == one.weight_times.keys()
        for x, y in zip(one.tmpcs[1], other.tmpcs[1], strict=True):
            again = 4 / 3 if "recomp" in x.id else 1.0
            assert y == replace(x, time=y.time)
            assert x.time - y.time == pytest.approx(saved * again if one.role == "decoder" else 0.0, rel=1e-9)


@needs_transformers
def test_counts_that_may_be_zero_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A model without experts is written so, and one without classes."""
    file, none = tmp_path / "dense.json", {"num_local_experts": 0, "num_experts_per_tok": 0, "num_labels": 0}
    file.write_text(json.dumps({**LLAMA, **none}))
    code, _, error = run(capsys, "hf", str(file), "--seq-len", "16", "--out", str(tmp_path / "out.json"))
    assert code == 0, error


@needs_transformers
@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"model_type": "no such"}, (), "expected one that transformers makes a model of"),
        ({"hidden_act": "none"}, (), "expected one that transformers makes a model of"),
        ({"hidden_size": "many"}, (), "hidden_size is 'many'; expected an integer from 1 to 1000000000"),
        ({"num_hidden_layers": -1}, (), "num_hidden_layers is -1; expected an integer from 1 to 10000"),
        ({"n_layer": 0}, (), "n_layer is 0; expected an integer from 1 to 10000"),
        ({"n_layer": 10**9}, (), "n_layer is 1000000000; expected an integer from 1 to 10000"),
        ({"num_attention_heads": True}, (), "num_attention_heads is True; expected an integer from 1 to 10000"),
        ({"vocab_size": 64.0}, (), "vocab_size is 64.0; expected an integer from 1"),
        ({"text_config": {"hidden_sizes": [8, -8]}}, (), "text_config: hidden_sizes is [8, -8]; expected an integer"),
        ({"model_type": 3}, (), "model_type is missing"),
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, ("--seq-len", "2000"), "expected at most 1024"),
        ({}, ("--hardware", "v100"), "--dtype is 'bf16'; expected one of fp16, fp32, fp64 on v100"),
        ({}, ("--seq-len", "16", "--batch", "40tokens"), "expected a multiple of the 16 tokens of a micro-batch"),
        ({}, ("--dtype", "int4"), "--dtype is 'int4'; expected bf16 or fp8 or fp16 or fp32 or fp64"),
    ],
)
def test_bad_configurations_are_one_line(
    changes: dict[str, Any], options: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, shown, error = run(capsys, "hf", configured(tmp_path, **changes), *options)
    assert (code, shown) == (2, "") and words in error and error.count("\n") == 1


@needs_transformers
def test_an_unknown_name_is_one_line(capsys: pytest.CaptureFixture[str]):
    code, _, error = run(capsys, "hf", "llama-8b")
    assert code == 2 and error.startswith("MODEL is 'llama-8b'; expected one of llama-3-8b")
