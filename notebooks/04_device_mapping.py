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
# # 4. Stages on devices
#
# A pipeline of S stages with R replicas each is mapped to S x R devices with heterogeneous links. Consecutive numbers
# are the usual answer; Parmesan searches. How far are both from the optimum, and how would one know?

# %%
import os
from dataclasses import replace

import planner
from planner import plots
from planner.files.load import family_of

FULL = bool(os.environ.get("PLANNER_FULL"))
TIME_S = 60 if FULL else 1

# %% [markdown]
# ## Networks
#
# Two boxes of a hybrid cube mesh (DGX-1), a torus, and random bandwidths.

# %%
networks = {
    "DGX-1, two boxes": planner.load("dgx1", stages=4, replicas=4),
    "torus 4 x 4": planner.load("torus2d", stages=4, replicas=4),
    "random": planner.load("uniform-dist", stages=4, replicas=4, seed=1),
}
plots.Sheet([plots.topology(instance.bandwidth_bytes_per_s, name) for name, instance in networks.items()], width=1000)

# %%
plots.Sheet([plots.bandwidth(instance.bandwidth_bytes_per_s, name) for name, instance in networks.items()], width=1000)

# %% [markdown]
# ## Consecutive, Algorithm 1, and the optimum
#
# For each of the three objectives: what stages send to each other (`p2p`), the gradients of replicas (`allreduce`),
# both (`full`).

# %%
METHODS = ("consecutive", "parmesan", "anneal", "exact")
# A search of Algorithm 1 is cut off after so many devices tried: the default, five seconds, is more than all have here.
OPTIONS = {"parmesan": {"search-timeout": "none", "search-devices": "1e6" if FULL else "1e5"}}
found = {}
for name in networks:
    for objective in ("p2p", "allreduce", "full"):
        catalog_name = {"DGX-1, two boxes": "dgx1", "torus 4 x 4": "torus2d", "random": "uniform-dist"}[name]
        seed = {"seed": 1} if name == "random" else {}
        instance = planner.load(catalog_name, stages=4, replicas=4, objective=objective, **seed)
        results = [
            planner.solve(
                instance, method=method, limits=planner.Limits(time_s=TIME_S), options=OPTIONS.get(method, {})
            )
            for method in METHODS
        ]
        found[name, objective] = instance, results
        times = "  ".join(f"{each.method} {1000 * each.objective:8.3f}" for each in results)
        print(f"{name:17} {objective:9} ms: {times}  bound {1000 * results[-1].bound:8.3f}  {results[-1].status}")

# %% [markdown]
# A bound is a proof that no mapping is better. Algorithm 1 with searches that are cut off has none: such a search says
# nothing about its target. How far it comes depends on the order in which it looks, which the paper does not give.

# %%
for (name, objective), (_, results) in found.items():
    exact = results[-1]
    for each in results[:-1]:
        assert each.objective >= exact.bound * (1 - 1e-9), (name, objective, each.method)

# %% [markdown]
# ## What changed
#
# The bandwidth matrix with the devices in the order of the stages: the replicas of a stage use the squares on the
# diagonal, neighbouring stages those beside it.

# %%
instance, results = found["random", "full"]
drawn = []
for result in (results[0], results[-1]):
    plan = family_of(instance).plan_from_json(instance, result.plan)
    _, matrix, *_ = plots.panels(instance, plan)
    drawn.append(replace(matrix, title=f"{result.method}: {1000 * result.objective:.2f} ms"))
plots.Sheet(drawn, width=1100)
