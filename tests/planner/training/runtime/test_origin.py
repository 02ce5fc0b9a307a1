"""`planner run` takes the model that an instance was made of, and no other one with nodes of the same names."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.cli.app import main

torch = pytest.importorskip("torch", reason="needs PyTorch (extra torch)", exc_type=ImportError)

MODEL = """
import torch
from torch import nn


class Rows(nn.Module):
    def __init__(self, width, inner, frozen):
        super().__init__()
        self.words = nn.Embedding(11, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, inner), nn.Linear(inner, width)) for _ in range(2))
        self.head = nn.Linear(width, 11)
        self.head.weight.requires_grad_(not frozen)

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make():
    return Rows(WIDTH, INNER, FROZEN), (torch.ones(2, LENGTH, dtype=torch.long),)
"""
#: What the instance is made of.
OWN = {"WIDTH": 8, "INNER": 16, "LENGTH": 4, "FROZEN": False}


def model(folder: Path, **changed: Any) -> str:
    text = MODEL
    for name, value in {**OWN, **changed}.items():
        text = text.replace(name, str(value))
    file = folder / f"{'-'.join(changed) or 'own'}.py"
    file.write_text(text)
    return f"{file}:make"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an instance and a plan of each problem."""
    folder = tmp_path_factory.mktemp("made")
    for problem in ("stage_partitioning", "stage_graph"):
        instance, plan = str(folder / f"{problem}.json"), str(folder / f"{problem}.plan.json")
        options = ("--devices", "2", "--microbatches", "2", "--problem", problem, "--out", instance, "--quiet")
        assert main(["import", "torch", model(folder), *options]) == 0
        assert main(["solve", instance, "--out", plan, "--quiet"]) == 0
    return folder


def run(made: Path, problem: str, named: str) -> int:
    files = [str(made / f"{problem}.plan.json"), str(made / f"{problem}.json")]
    return main(["run", *files, "--model", named, "--check", "--json", "--quiet"])


@pytest.mark.parametrize("problem", ["stage_partitioning", "stage_graph"])
def test_the_model_itself_is_taken(problem: str, made: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    code = run(made, problem, model(made))
    out, err = capfd.readouterr()
    assert code == 0, err
    found = json.loads(out)
    assert found["ok"] and found["bytes_sent"] == found["bytes_planned"]


@pytest.mark.parametrize(
    ("problem", "changed", "words"),
    [
        (
            "stage_partitioning",
            {"WIDTH": 16},
            "704 bytes of trained parameters in words'; expected 352, as in the model",
        ),
        ("stage_partitioning", {"INNER": 32}, "bytes of trained parameters in blocks.0'; expected"),
        ("stage_partitioning", {"FROZEN": True}, "44 bytes of trained parameters in head'; expected 396"),
        ("stage_partitioning", {"LENGTH": 5}, "sends 320 bytes from words to blocks.0'; expected 256"),
        ("stage_graph", {"WIDTH": 16}, "704 bytes of parameters in words'; expected 352"),
        ("stage_graph", {"LENGTH": 5}, "sends 160 bytes of a sample from words to blocks.0'; expected 128"),
    ],
)
def test_another_model_with_nodes_of_the_same_names_is_bad_input(
    problem: str, changed: dict[str, Any], words: str, made: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    code = run(made, problem, model(made, **changed))
    out, err = capfd.readouterr()
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert words in err


def test_orders_of_the_layers_make_no_other_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`--linearize` adds edges of 0 bytes, and with `runtime` its order says what passes which layer."""
    pytest.importorskip("transformers", reason="needs transformers (extra torch)", exc_type=ImportError)
    from runtime.test_kinds import captured, instance

    import planner
    from planner.training.runtime.origin import other_bytes, other_graph

    found = captured("modal")
    shared = [
        {"source": each.source, "targets": list(each.targets), "bytes": each.size}
        for each in found.transfers
        if len(each.targets) > 1
    ]
    content = instance("modal", 2) | {"shared": shared}
    for order in ("id", "name", "lifo", "depth-first"):
        for costs in ("released", "runtime"):
            made = planner.load(content, linearize=order, cost_model=costs)
            assert other_graph(found, made) is None and other_bytes(found, made, lambda: (found, 2)) is None
            edges = list(made.edges)
            number = next(place for place, edge in enumerate(edges) if edge.bytes)
            edges[number] = replace(edges[number], bytes=2 * edges[number].bytes)
            other = other_bytes(found, replace(made, edges=tuple(edges)), lambda: (found, 2))
            assert other is not None and "a model that sends" in other[0]
