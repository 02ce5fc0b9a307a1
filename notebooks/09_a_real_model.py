# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 9. A real model, from import to gradients
#
# A PyTorch model is captured, planned, exported and run on four processes; its gradients are compared with those of the
# model that is not split, and the bytes that every process sends with those that the plan counts.
#
# This needs PyTorch, the extra `torch`. Where it is not installed, as where this site is built, the cells say so.

# %%
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import planner
from planner import plots
from planner.files.load import family_of

HAS_TORCH = find_spec("torch") is not None
kept = TemporaryDirectory()
FOLDER = Path(kept.name)


def call(command):
    """Run a command of the planner as in a shell, and print what it prints."""
    print(f"$ planner {command}")
    if not HAS_TORCH:
        print("not run: PyTorch is not installed (pip install '.[torch]')")
        return
    plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "CLICOLOR_FORCE")}
    words = [sys.executable, "-m", "planner", *command.split()]
    done = subprocess.run(words, cwd=FOLDER, env=plain, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stderr


# %% [markdown]
# ## The model
#
# An encoder reads; four blocks take what it has read, each of them anew, and answer. A
# function without arguments returns the model and the inputs of one call.

# %%
_ = (FOLDER / "mine.py").write_text("""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, times):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, times * width), nn.Linear(times * width, width)

    def forward(self, x, read):
        return x + self.narrow(torch.tanh(self.wide(self.norm(x * read))))


class Reader(nn.Module):
    def __init__(self, width=32, words=64):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.encoder = nn.ModuleList(Block(width, 12) for _ in range(2))
        self.blocks = nn.ModuleList(Block(width, 8) for _ in range(4))
        self.head = nn.Linear(width, words)

    def forward(self, words):
        read = self.words(words)
        for block in self.encoder:
            read = block(read, read)
        answer = read
        for block in self.blocks:
            answer = block(answer, read)
        return self.head(answer)


def build():
    torch.manual_seed(1)
    return Reader(), (torch.randint(64, (2, 16), device="cpu"),)
""")

# %% [markdown]
# ## In
#
# `torch.export` traces it on the device `meta`: no weights, no data. Times come from the declared rates of a device,
# memory and transfers from the tensors themselves.

# %%
call("import torch mine.py:build --hardware l40s --devices 4 --microbatches 8 --tp 1 --out model.json")

# %% [markdown]
# What the encoder has read is taken by four blocks. The instance counts an edge to each, and says that they are one
# tensor:

# %%
if HAS_TORCH:
    content = json.loads((FOLDER / "model.json").read_text())
    names = {layer["id"]: layer["name"] for layer in content["layers"]}
    for each in content["shared"]:
        print(names[each["source"]], "->", *(names[node] for node in each["targets"]), f"{each['bytes']:.0f} bytes")

# %% [markdown]
# ## Planned
#
# Two cost models: `released` counts an edge wherever it crosses a boundary; under `runtime` tensors go on from stage to
# stage, each once. Both plans are proved. They are the same here, but their times are not: what the encoder has read
# makes another stage the bottleneck where it is counted once for each block.

# %%
MEMORY = "1.1MB"
for costs in ("released", "runtime"):
    call(f"solve model.json --cost-model {costs} --memory {MEMORY} --exact --out {costs}.json")

# %%
drawn = None
if HAS_TORCH:
    instance = planner.load(FOLDER / "model.json", cost_model="runtime", memory=MEMORY)
    plan = family_of(instance).plan_from_json(instance, json.loads((FOLDER / "runtime.json").read_text()))
    drawn = plots.Sheet(plots.panels(instance, plan)[:2], width=1000)
drawn

# %% [markdown]
# ## Out
#
# The same plan for a trainer, with the names of the model's modules.

# %%
call(f"export runtime.json model.json --cost-model runtime --memory {MEMORY} --to accelerate")

# %% [markdown]
# ## Run
#
# Four processes of this machine run one iteration of eight micro-batches. Sent and planned bytes are equal for every
# process under `runtime`; under `released` the plan counts what the encoder has read once for each block.

# %%
for costs in ("released", "runtime"):
    options = f"--cost-model {costs} --memory {MEMORY} --model mine.py:build --check --out {costs}-run.json"
    call(f"run {costs}.json model.json {options}")

# %%
if HAS_TORCH:
    for costs in ("released", "runtime"):
        run = json.loads((FOLDER / f"{costs}-run.json").read_text())
        print(f"{costs:9} sent {sum(run['bytes_sent'])} bytes, planned {sum(run['bytes_planned']):.0f};", end=" ")
        print(f"gradients of {run['parameters_compared']} of {run['parameters']} within {run['gradient_error']:.1g}")
    assert run["ok"] and run["bytes_sent"] == run["bytes_planned"]

# %% [markdown]
# ## How good was the prediction?
#
# Bytes are exact. Seconds are those of a data sheet beside those of this machine's processors: the last word has the
# machine that is planned for (`planner profile`).

# %%
call("fidelity runtime-run.json")
