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
# # 6. Layers and strategies on a cluster of heterogeneous machines
#
# AMP minimises (N - 1) max T + sum e + sum T: filling the pipeline counts, not only its bottleneck. First the inner
# problem, the assignment of layers to stages; then whole strategies on a cluster where one node has faster network
# cards; then tiles on its mesh.

# %%
import os

import matplotlib.pyplot as plt

import planner
from planner import plots
from planner.inputs.loading import family_of

FULL = bool(os.environ.get("PLANNER_FULL"))

# %% [markdown]
# ## Layers to stages
#
# A random chain of layers, with cuts that cost up to the time of a few layers. Even splits, AMP's program, the exact
# sweep, and two models.

# %%
layers, stages = (200, 32) if FULL else (40, 8)
instance = planner.load("layers", layers=layers, stages=stages, seed=1)
report = planner.crosscheck(instance, limits=planner.Limits(time_s=20 if FULL else 2))
for each in report.results:
    loss = "" if report.optimum is None else f"{each.objective / report.optimum - 1:8.2%} above the optimum"
    print(f"{each.method:13} {each.objective:.6g} {loss}  {each.seconds:.4f} s")
assert report.agree

# %%
figure, axes = plt.subplots(1, 2, figsize=(12, 3.5), layout="constrained", sharey=True)
for at, method in zip(axes, ("uniform", "exact"), strict=True):
    result = planner.solve(instance, method=method)
    panel = plots.panels(instance, family_of(instance).plan_from_json(instance, result.plan))[0]
    panel.draw(at)
    at.set_title(method)

# %% [markdown]
# The optimum does not level the stages at any price: a cheap cut may be worth a longer stage.
#
# ## Strategies
#
# A strategy is a micro-batch size, degrees of tensor, data and pipeline parallelism, a layer assignment and a
# placement. There are few enough degrees to try them all, each with its best assignment, pruned by bounds: AMP's
# algorithms can be measured against the optimum.

# %%
cluster = planner.load("amp-het-cluster")
results = {}
for method in ("exhaustive", "amp", "amp-released", "amp-sa", "megatron"):
    results[method] = planner.solve(cluster, method=method, limits=planner.Limits(time_s=10))
    plan = results[method].plan
    degrees = {name: plan[name] for name in ("microbatch", "tp_degree", "dp_degree", "pp_degree")}
    print(f"{method:13} {results[method].objective:.4f} s  {degrees}  {plan['lengths']}")
best = results["exhaustive"]
assert all(each.objective >= best.bound * (1 - 1e-9) for each in results.values())

# %% [markdown]
# Megatron's even split puts a whole block of layers wherever it falls; AMP and the optimum move layers to where the
# cuts are cheap and the stages short.

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained", sharey=True)
for at, method in zip(axes, ("megatron", "exhaustive"), strict=True):
    plan = family_of(cluster).plan_from_json(cluster, results[method].plan)
    plots.panels(cluster, plan)[0].draw(at)
    at.set_title(f"{method}: {results[method].objective:.3f} s")

# %% [markdown]
# ## Tiles on a mesh
#
# Where every stage is a rectangle of devices, its place decides which links its rings use.

# %%
mesh = planner.load("mesh", tp_degree=2, dp_degree=2, seed=3)
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for at, method in zip(axes, ("sa", "cpsat"), strict=True):
    result = planner.solve(mesh, method=method, limits=planner.Limits(time_s=10))
    plots.panels(mesh, family_of(mesh).plan_from_json(mesh, result.plan))[0].draw(at)
    at.set_title(f"{method}: {1000 * result.objective:.3f} ms, {result.status}")
