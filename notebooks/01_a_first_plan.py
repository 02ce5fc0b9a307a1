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
# # 1. A first plan
#
# A 32-layer BERT does not fit on one device of 8 GiB. Which layers go together, on how many devices, and which layers
# recompute their activations? This notebook computes the best plan, and examines it and what stands behind the word
# "optimal".
#
# Everything is computed here, in seconds, from models that the package contains. `PLANNER_FULL=1` takes the sizes of
# the papers.

# %%
import os

import planner
from planner import plots
from planner.files.load import family_of

FULL = bool(os.environ.get("PLANNER_FULL"))
DEVICES = 512 if FULL else 32

# %% [markdown]
# ## The instance
#
# An instance is plain data: layers with their configurations (time, memory, what they send), edges, devices.

# %%
instance = planner.load("bert32", devices=DEVICES, memory="8GiB", microbatches=512)
family = family_of(instance)
dict(family.describe(instance))

# %%
layer = instance.layers[5]
layer.name, {degree: [tmpc.id for tmpc in tmpcs] for degree, tmpcs in layer.tmpcs.items()}

# %% [markdown]
# ## The plan
#
# `exact=True` admits only methods that prove what they find.

# %%
result = planner.solve(instance, exact=True, limits=planner.Limits(time_s=30))
print(f"{result.status} by {result.method} in {result.seconds:.3f} s: {result.objective:.6g} {result.unit} per sample")
print(f"proved: nothing takes less than {result.bound:.6g}, a gap of {result.gap:.1g}")

# %%
plan = family.plan_from_json(instance, result.plan)
plots.Sheet(plots.panels(instance, plan), width=1000)

# %% [markdown]
# The framed stage is the bottleneck: the plan is as fast as that one. Stages near the input keep more micro-batches in
# flight, and so more activations: the memory falls along the pipeline until another mix of configurations is
# affordable.
#
# ## What the proof states
#
# The plan was not taken on trust. `violations` and `evaluate` are the definition of the problem, a page of Python
# without a solver, and they are applied again here.

# %%
assert family.violations(instance, plan) == ()
assert family.evaluate(instance, plan) == result.objective

# %% [markdown]
# That it is *best* rests on the bound. An independent witness, on a model small enough for all of them: every method
# solves the same eight layers, and the proofs must not exclude each other.

# %%
small = planner.load("bert32", first=8, devices=4, memory="8GiB")
report = planner.crosscheck(small, methods=["exact", "piper", "cpsat", "milp-columns"], limits=planner.Limits(time_s=5))
for each in report.results:
    print(f"{each.method:13} {each.status:9} {each.objective:.9g}  bound {each.bound:.9g}  {each.seconds:.3f} s")
assert report.agree
report.optimum

# %% [markdown]
# ## How it got there
#
# Every improvement of the incumbent and of the bound is an event.

# %%
events = []
planner.solve(small, method="cpsat", limits=planner.Limits(time_s=5), listen=events.append)
planner.solve(small, method="exact", listen=events.append)
plots.Sheet([plots.gap_over_time(events, instance.time_unit)], width=700)
