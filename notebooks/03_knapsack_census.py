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

import matplotlib.pyplot as plt

import planner
from planner import plots
from planner.census import census

FULL = bool(os.environ.get("PLANNER_FULL"))
PUBLISHED = os.environ.get("PLANNER_PUBLISHED")

# %% [markdown]
# The analytic BERT of the package, or, with the published profiles at hand and `PLANNER_FULL=1`, the paper's own run.

# %%
if FULL and PUBLISHED:
    size = {"devices": 512, "memory": "8GiB", "microbatches": 512, "bandwidth": "25GiB/s", "cost_model": "released"}
    instance = planner.load("bert32a100.json", **size)
else:
    instance = planner.load("bert32", first=16, devices=32, memory="3GiB", microbatches=32, cost_model="released")
found = census(instance, end_to_end=True, out=tempfile.mkdtemp()).to_json()
{name: found[name] for name in ("calls", "instances", "all_fastest_feasible", "infeasible", "nontrivial", "suboptimal")}

# %% [markdown]
# ## How large are the gaps?
#
# Of the instances that leave a choice at all, for each variant of the heuristic.

# %%
figure, axes = plt.subplots(1, len(found["variants"]), figsize=(5 * len(found["variants"]), 4), layout="constrained")
for at, (name, variant) in zip(axes, found["variants"].items(), strict=True):
    plots.gap_histogram(at, variant["histogram"])
    at.set_title(f"{name}: {variant['suboptimal']} sub-optimal, worst {variant['worst_gap']:.1%}")

# %% [markdown]
# And what it costs in the end: the plan that Piper finds with the heuristic, against the optimum.

# %%
found["end_to_end"]

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
    for node, choice in exact.plan["choice"].items():
        if heuristic.plan["choice"][node] != choice:
            print(f"node {node}: the optimum takes {choice!r}, the heuristic {heuristic.plan['choice'][node]!r}")
else:
    print("none: the heuristic was optimal on every instance of this run")

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
