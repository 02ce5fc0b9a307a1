# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 3. A census of knapsacks
#
# Inside Piper's dynamic program, every candidate stage chooses for each of its layers among configurations that are
# faster or smaller: a knapsack, solved by a heuristic. Appendix C of the paper reports that on a random sample the
# heuristic was always optimal. Here **all** of the knapsacks of a run are solved exactly, and the heuristic beside
# them.

# %%
import json
import os
import tempfile

import planner
from planner import plots
from planner.experiments.census import census
from planner.files.load import family_of

FULL = bool(os.environ.get("PLANNER_FULL"))
PUBLISHED = os.environ.get("PLANNER_PUBLISHED")

# %% [markdown]
# With the published profiles at hand ResNet-50 on 32 devices of 2 GiB (with `PLANNER_FULL=1` the paper's own run on
# BERT), else the analytic BERT of the package.

# %%
if FULL and PUBLISHED:
    size = {"devices": 512, "memory": "8GiB", "microbatches": 512, "bandwidth": "25GiB/s", "cost_model": "released"}
    instance = planner.load("bert32a100.json", **size)
elif PUBLISHED:
    instance = planner.load("resnet.json", devices=32, memory="2GiB", bandwidth="25GiB/s", cost_model="released")
else:
    instance = planner.load("bert32", first=16, devices=32, memory="3GiB", microbatches=32, cost_model="released")
found = census(instance, end_to_end=True, out=tempfile.mkdtemp()).to_json()
{name: found[name] for name in ("calls", "instances", "all_fastest_feasible", "infeasible", "nontrivial", "suboptimal")}

# %% [markdown]
# ## What the heuristic misses
#
# Of the knapsacks that leave a choice at all, by how much its choice is slower than the best: the first bar are those
# that it solves. On ResNet-50 it misses 26 % of them, by 23.6 % at worst: in the units of that file, where transfers
# are too cheap. On BERT-32, the workload of the paper's appendix, 332 of 246,762 are missed, and none of the sample
# that the release draws.

# %%
name, variant = found["variant"], found["variants"][found["variant"]]
missed = variant["suboptimal"] / found["nontrivial"]
solved = {"above": 0.0, "up_to": 0.0, "count": found["nontrivial"] - variant["suboptimal"]}
title = f"{name}: {missed:.0%} of {found['nontrivial']:,} choices missed, the worst by {variant['worst_gap']:.1%}"
says = "knapsacks by the loss of the heuristic's choice (blue: optimal)"
plots.Sheet([plots.gap_histogram([solved, *variant["histogram"]], title, says)], width=900)

# %% [markdown]
# And what it costs in the end: most of these stages are in no good plan, so that the plan that Piper finds with the
# heuristic loses less, on ResNet-50 2.5 %; with its units put right, and on BERT-32, it loses nothing.

# %%
ends = found["end_to_end"]
losses = [("Piper with its heuristic", ends["loss"]), ("the optimum", None if ends["loss"] is None else 0.0)]
plots.Sheet([plots.losses(losses, "optimum", "End to end", "time per sample of the whole plan")], width=900)

# %% [markdown]
# ## The worst case, explained
#
# The census keeps the worst instances as files; any of them can be solved again by name.

# %%
worst = found["variants"][found["variant"]]["worst"]
if worst:
    knapsack = planner.load(worst[0]["file"])
    exact = planner.solve(knapsack, method="exact")
    heuristic = planner.solve(knapsack, method="piper")
    print(f"capacity {knapsack.capacity_bytes / 2**30:.3f} GiB, {len(knapsack.nodes)} nodes")
    print(f"optimum {exact.objective:.6g}, heuristic {heuristic.objective:.6g}")
else:
    print("none: the heuristic was optimal on every instance of this run")

# %% [markdown]
# Time against memory: the optimum fills the capacity, the heuristic paid for memory that it did not need.

# %%
if worst:
    plan = family_of(knapsack).plan_from_json(knapsack, exact.plan)
    shown = plots.Sheet(plots.panels(knapsack, plan), width=1000)
else:
    shown = None
shown

# %% [markdown]
# ## The smallest case that can be made
#
# The heuristic buys memory at the best ratio of bytes saved per second lost. One big step may be enough where two small
# ones with better ratios are not; then it pays for both.


# %%
def options(fast_bytes, small_bytes, slower_s):
    fast = {"id": "fast", "time": 1.0, "memory_bytes": fast_bytes}
    return [fast, {"id": "small", "time": 1.0 + slower_s, "memory_bytes": small_bytes}]


small = {
    "problem": "tmpc_knapsack",
    "schema_version": 1,
    "capacity_bytes": 15,
    "nodes": [{"id": 0, "options": options(10, 0, 1.0)}, {"id": 1, "options": options(10, 5, 0.6)}],
}
with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
    json.dump(small, file)
for method in ("exact", "piper"):
    result = planner.solve(planner.load(file.name), method=method)
    print(f"{method:6} {result.objective:g}  {dict(result.plan['choice'])}")
