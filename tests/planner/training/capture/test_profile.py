"""Nodes measured alone: their passes compute what the model computes, and become times of an instance."""

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from capture_models import language  # noqa: E402
from torch import nn  # noqa: E402

import planner  # noqa: E402
from instances.generators.hardware import Hardware  # noqa: E402
from planner.cli.app import main  # noqa: E402
from planner.process.errors import UsageError  # noqa: E402
from planner.training.capture.choices import Work  # noqa: E402
from planner.training.capture.profile import Measured, _Nodes, instance_of, profile_nodes  # noqa: E402
from planner.training.capture.trace import capture, placeholders  # noqa: E402

MACHINE = Hardware("here", {"fp32": 1.0}, 1e9, 1.0, 5e8, 5e8, 4, "measured")


class Inside(nn.Module):
    """Blocks that begin by writing into their input, and one input of two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 6)) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        first, second, third = self.layers
        y = first(x + 0)
        return third(second(y) + y)


@pytest.mark.parametrize("make", [language, lambda **_: (Inside(), (torch.randn(4, 6),))])
def test_nodes_that_run_alone_compute_what_the_model_does(make: Any):
    model, inputs = make(device="cpu")
    captured = capture(model, inputs)
    run = _Nodes(captured, placeholders(captured.program, captured.module, inputs, {}))
    run.round()
    (end,) = next(node for node in captured.module.graph.nodes if node.op == "output").all_input_nodes
    assert torch.allclose(run.runner.env[end], model(*inputs))
    assert all(parameter.grad is None for parameter in captured.module.parameters())


def test_every_node_is_measured_so_many_times():
    model, inputs = language(device="cpu")
    captured = capture(model, inputs)
    found = profile_nodes(captured, inputs, {}, repeats=3, warmup=0)
    assert [each.node for each in found] == list(captured.nodes)
    assert all(len(each.forward_s) == len(each.backward_s) == 3 for each in found)
    assert all(min(each.forward_s) > 0 and min(each.backward_s) > 0 for each in found)


def test_times_of_the_instance_are_medians():
    model, inputs = language(device="cpu")
    captured = capture(model, inputs)
    found = [Measured(node, (1.0, 9.0, 2.0), (3.0, 4.0, 20.0)) for node in captured.nodes]
    made = instance_of(captured, found, MACHINE, 4, Work(1, "fp32", 8), {})
    block = {x.id: x for x in made.layers[1].tmpcs[1]}
    assert (block["vanilla"].time, block["activation recomp"].time) == (2.0 + 4.0, 2.0 + 4.0 + 2.0)
    costs = {op: captured.costs[op] for op in captured.nodes[1].ops}
    counted = {op: max(own.flops / 0.5, own.moved_bytes / 0.75) for op, own in costs.items()}  # at 1 a second each
    products = sum(own for op, own in counted.items() if op.startswith("linear"))
    assert made.layers[1].weight_times[1] == pytest.approx(6.0 * products / (3 * sum(counted.values())))
    assert found[0].spread == pytest.approx((22.0 - 4.0) / 13.0), "22, 13 and 4 seconds in all"
    assert made.bandwidth == 1e9 and made.memory_bytes == 1e9 - made.options["working-set"]
    assert made.layers[1].tmpcs.keys() == {1}
    assert block["vanilla"].activation_bytes == sum(captured.costs[op].saved_bytes for op in captured.nodes[1].ops)


def test_a_model_without_data_is_refused():
    model, inputs = language(device="meta")
    with pytest.raises(UsageError, match="expected a model with data in its parameters"):
        profile_nodes(capture(model, inputs), inputs, {})


MODEL = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), (torch.ones(4, 8),)

def three():
    return nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)]), (torch.ones(4, 8),)

def bounds():
    return nn.Sequential(nn.Embedding(4, 8), nn.Linear(8, 8)), (torch.full((3,), 9),)
"""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source, out = tmp_path / "mine.py", tmp_path / "net.json"
    source.write_text(MODEL)
    arguments = ["profile", f"{source}:make", "--devices", "2", "--repeats", "2", "--out", str(out), "--json"]
    assert main(arguments) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["device"] == "cpu" and shown["repeats"] == 2
    assert [row["forward_flops"] for row in shown["rows"]] == [2 * 4 * 8 * 8, 2 * 4 * 8 * 8]
    loaded = planner.load(str(out))
    times = [layer.tmpcs[1][0].time for layer in loaded.layers]
    assert times == pytest.approx([row["forward_s"] + row["backward_s"] for row in shown["rows"]])
    assert planner.solve(loaded, exact=True).status == "optimal"


def test_measurements_that_calibrate_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source, table = tmp_path / "mine.py", tmp_path / "forward.csv"
    source.write_text(MODEL)
    assert main(["profile", f"{source}:three", "--repeats", "2", "--csv", str(table), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    heading, *lines = table.read_text().splitlines()
    assert heading == "name,flops,moved_bytes,products,seconds" and len(lines) == len(shown["rows"]) == 3
    name, flops, moved, products, seconds = lines[0].split(",")
    assert (name, float(flops), float(seconds)) == ("0", 2 * 4 * 8 * 8, shown["rows"][0]["forward_s"])
    assert float(moved) == 2 * 4 * 4 * 8 and products == "1", "ReLU reads and writes"
    assert main(["calibrate", str(table)]) == 0


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        ("make", ("--memory", "much"), "--memory is 'much'; expected a size"),
        ("make", ("--repeats", "0"), "--repeats is 0; expected an integer from 1"),
        ("bounds", (), "index out of range"),
    ],
)
def test_bad_input_is_one_line(function: str, options: tuple[str, ...], words: str, tmp_path: Path, capsys: Any):
    source = tmp_path / "mine.py"
    source.write_text(MODEL)
    assert main(["profile", f"{source}:{function}", *options]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_forks_need_not_ask_cuda_how_many_gpus_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking starts NVML or CUDA, and then forks of this process cannot use them: a fork is asked, once."""
    import os

    from planner.training.capture.separately import count_gpus

    here = os.getpid()
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3 if os.getpid() != here else -1)
    monkeypatch.setattr(torch.cuda, "_cached_device_count", None)
    assert count_gpus.__wrapped__() == torch.cuda._cached_device_count == 3
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: False)
    assert count_gpus.__wrapped__() == 0
