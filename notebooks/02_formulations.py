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
# # 2. One problem, six formulations
#
# Stage partitioning stands in this package as the dynamic program of Piper, as an exact threshold search, as a direct
# model in CP-SAT, the same in a MILP, and as a MILP over columns. They are given the same instances of growing size.
# How large are the models, how long until the proof, and where does each of them win?

# %%
import os

import matplotlib.pyplot as plt

import planner
from planner import plots

FULL = bool(os.environ.get("PLANNER_FULL"))
SIZES = (4, 8, 12, 16, 32) if FULL else (4, 6, 8)
TIME_S = 60 if FULL else 1.5
METHODS = ("exact", "piper-exact-knapsack", "cpsat", "milp", "milp-columns")

# %% [markdown]
# ## Sizes and times to proof
#
# The first n layers of BERT on n / 2 devices of 8 GiB, four at least.

# %%
rows, events = [], {}
for layers in SIZES:
    instance = planner.load("bert32", first=layers, devices=max(4, layers // 2), memory="8GiB", microbatches=64)
    for method in METHODS:
        improvements = []
        result = planner.solve(
            instance, method=method, limits=planner.Limits(time_s=TIME_S), listen=improvements.append
        )
        rows.append((layers, result))
        events[layers, method] = improvements
        counts = {
            name: value for name, value in result.stats.items() if name in ("variables", "constraints", "downsets")
        }
        gap = "-" if result.gap is None else f"{result.gap:.1%}"
        print(f"{layers:2} layers  {method:21} {result.status:9} gap {gap:>6}  {result.seconds:7.3f} s  {counts}")

# %% [markdown]
# Contradictions would be the interesting outcome. There must be none: no bound above any verified plan.

# %%
for layers in SIZES:
    found = [result for size, result in rows if size == layers and result.objective is not None]
    best = min(result.objective for result in found)
    assert all(result.bound is None or result.bound <= best * (1 + 1e-6) for result in found)

# %%
figure, at = plt.subplots(figsize=(7, 4))
for grey, (method, line) in enumerate(zip(METHODS, ("-", "--", "-.", ":", "-"), strict=True)):
    own = [(layers, result.seconds) for layers, result in rows if result.method == method]
    at.plot(*zip(*own, strict=True), line, marker="os^vD"[grey], color=f"{0.15 * grey:.2f}", label=method)
at.set(yscale="log", xlabel="layers", ylabel=f"seconds (limit {TIME_S:g} s)")
at.legend()
# %% [markdown]
# ## Gap over time
#
# On the largest of these instances. The direct models find good plans at once and prove nothing for long: their
# relaxation lets every stage be a fraction of every layer. Columns price whole stages, so that the relaxation is nearly
# integral, at the price of enumerating them. The combinatorial search needs neither.

# %%
figure, at = plt.subplots(figsize=(8, 4.5))
plots.gap_over_time(at, [event for method in METHODS for event in events[SIZES[-1], method]], "s")
# %% [markdown]
# ## The published program
#
# Piper's own dynamic program has the same recursion with a heuristic knapsack inside. It is not exact, and cannot
# measure its loss; here the loss is known because the optimum is. Where its knapsack errs is the subject of notebook 3.

# %%
for memory in ("6GiB", "8GiB", "12GiB"):
    instance = planner.load("bert32", first=16, devices=8, memory=memory, microbatches=64)
    exact = planner.solve(instance, method="exact")
    piper = planner.solve(instance, method="piper")
    if exact.objective is None or piper.objective is None:
        print(memory, "exact:", exact.status, " piper:", piper.status)
    else:
        print(f"{memory}: optimum {exact.objective:.6g}, piper loses {piper.objective / exact.objective - 1:.3%}")
