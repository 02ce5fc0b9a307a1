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
# # 10. Which clock is it?
#
# An optimum is an optimum of some clock. Papers minimise formulas: the slowest stage of a pipeline that never runs
# empty, or that and a term for filling it. A trainer changes its weights once a batch, so its pipeline runs empty after
# every batch. How far is the plan that is best by a formula from the one whose *iteration* is the shortest? Both are
# proved here, and the second is simulated pass by pass in the order that trainers run (1F1B).

# %%
import os
from dataclasses import replace

import planner
from planner import plots
from planner.reproduction.reproduce import reproduce

FULL = bool(os.environ.get("PLANNER_FULL"))

# %% [markdown]
# ## One batch, two plans
#
# GPT with 32 layers on 16 devices, 32 micro-batches. The formula counts $m + L - 1$ rounds of the slowest stage, and
# takes $d$ replicas for one stage that is $d$ times as fast.

# %%
SETTING = {"devices": 16, "microbatches": 32, "memory": "80GB", "bandwidth": "100GB/s"}
batches = []
for objective in ("formula", "iteration"):
    instance = planner.load("gpt", problem="flushed_partitioning", **SETTING, objective=objective)
    result = planner.solve(instance, exact=True)
    clock = result.clock()
    stages = result.plan["stages"]
    print(
        f"best by {objective:9} ({result.status}): {len(stages)} stages of {stages[0]['dp_degree']} replicas; "
        f"by the formula {clock.formula_s:.3f} s, simulated {clock.iteration_s:.3f} s"
    )
    passes = plots.panels(instance, result.plan)[-1]
    batches.append(replace(passes, title=f"Best by {objective}: {clock.iteration_s:.3f} s a batch"))
plots.Sheet(batches, width=1100)

# %% [markdown]
# The formula prefers three stages, as it counts two rounds of a quarter of a stage's time for filling and draining,
# as if a micro-batch were spread over all four replicas. It runs on one of them.
#
# ## What the formula loses
#
# The same for other models, devices and batches. The first number is what the formula's plan takes more in 1F1B's
# order. Where a plan has several degrees, no trainer is known to run it, and the order is ours: the second number holds
# in any order.

# %%
found = reproduce("piper-clock", devices=64 if FULL else 16).evidence
print(found.notes[-1])
rows = [row for row in found.rows if row["fill"] == "stages"]
for row in rows:
    print(
        f"{row['model']:9} {row['devices']:3} devices, {row['microbatches']:3} micro-batches: {row['formula_plan']:16} "
        f"{row['lost_simulated_percent']:5.1f} %, in any order {max(0.0, row['lost_any_order_percent']):5.1f} %; "
        f"best {row['best_plan']}"
    )
names = [f"{row['model']}, {row['devices']} devices, {row['microbatches']}" for row in rows]
lost = [max(0.0, row["lost_simulated_percent"]) / 100 for row in rows]
plots.Sheet(
    [plots.losses(list(zip(names, lost, strict=True)), "shortest iteration", "Best by the formula", "on the clock")],
    width=900,
)

# %% [markdown]
# ## What Equation 1 loses
#
# GraphPipe's Equation 1 has no term for filling at all, so its optimum is one micro-batch or next to one. The paper
# sweeps micro-batch sizes; here the size, the partition, the degrees and the warm-ups are chosen together.

# %%
found = reproduce("graphpipe-clock", devices="8,16" if FULL else "8").evidence
print(found.notes[-1])
for row in found.rows:
    print(
        f"{row['model']:20} {row['devices']} devices: micro-batches of {row['tps_microbatch']} run "
        f"{row['tps_samples_per_s']:.0f} samples/s, of {row['shortest_microbatch']} {row['shortest_samples_per_s']:.0f}"
    )
names = [f"{row['model']}, {row['devices']} devices" for row in found.rows]
lost = [row["lost_percent"] / 100 for row in found.rows]
plots.Sheet(
    [plots.losses(list(zip(names, lost, strict=True)), "shortest iteration", "Best by Equation 1", "on the clock")],
    width=900,
)

# %% [markdown]
# Every line `clock` of a result says which clock it speaks of. docs/the-clock.md has the model of an iteration, and
# docs/findings.md what else it changes.
