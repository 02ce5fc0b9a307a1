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
# # 6. Layers and strategies on a cluster of heterogeneous machines
#
# AMP minimises (N - 1) max T + sum e + sum T: filling the pipeline counts, not only its bottleneck. First the inner
# problem, the assignment of layers to stages; then whole strategies on a cluster where one node has faster network
# cards; then tiles on its mesh.

# %%
import os
from dataclasses import replace

import planner
from planner import plots
from planner.files.load import family_of

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
drawn = []
for method in ("uniform", "exact"):
    result = planner.solve(instance, method=method)
    strip, microbatch, *_ = plots.panels(instance, family_of(instance).plan_from_json(instance, result.plan))
    drawn += [replace(strip, title=f"{method}: {result.objective:.3f} s"), replace(microbatch, title=method)]
plots.Sheet([drawn[0], drawn[2], drawn[1], drawn[3]], width=1000)

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
drawn = []
for method in ("megatron", "exhaustive"):
    plan = family_of(cluster).plan_from_json(cluster, results[method].plan)
    strip, microbatch, *_ = plots.panels(cluster, plan)
    drawn += [replace(strip, title=f"{method}: {results[method].objective:.3f} s"), replace(microbatch, title=method)]
plots.Sheet([drawn[0], drawn[2], drawn[1], drawn[3]], width=1000)

# %% [markdown]
# ## Tiles on a mesh
#
# Where every stage is a rectangle of devices, its place decides which links its rings use, and which links it sends to
# the next stage over. AMP's annealing tries random tilings, here eight of 2 x 2 devices on eight nodes; the optimum,
# which keeps neighbouring stages on neighbouring nodes, takes a fifth less.

# %%
mesh = planner.load("mesh", columns=8, tp_degree=2, dp_degree=2, ordered=True, seed=3)
drawn = []
for method in ("sa", "cpsat"):
    result = planner.solve(mesh, method=method, limits=planner.Limits(time_s=10))
    tiles, *_ = plots.panels(mesh, family_of(mesh).plan_from_json(mesh, result.plan))
    drawn.append(replace(tiles, title=f"{method}: {1000 * result.objective:.1f} ms, {result.status}"))
plots.Sheet(drawn, width=1000)

# %% [markdown]
# ## What a flat network promises on machines
#
# Piper's own model has one bandwidth. Two machines of four devices have two, here 300 GB/s inside and 5 GB/s between
# (Appendix E). The flat optimum at the first is less than any plan takes on the machines, and the one at the second is
# almost twice the optimum there.

# %%
machines = planner.load(
    "bert32", problem="hierarchical_partitioning", layers=8, memory="8GiB", devices_per_machine=4, num_machines=2,
    inner_bandwidth="300GB/s", outer_bandwidth="5GB/s",
)  # fmt: skip
times = {
    "flat, inner bandwidth": planner.solve(machines.inner, exact=True).objective,
    "flat, outer bandwidth": planner.solve(
        replace(machines.inner, bandwidth=machines.outer_bandwidth), exact=True
    ).objective,
    "on machines": planner.solve(machines, exact=True).objective,
}
for network, time in times.items():
    print(f"{network:22} {time:.4f} s")
assert times["flat, inner bandwidth"] <= times["on machines"] * (1 + 1e-9)
