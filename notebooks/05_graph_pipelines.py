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
# # 5. Pipelines that branch
#
# A model with branches can be cut into a chain of stages, or into stages that run side by side. GraphPipe's point:
# the pipeline is less deep, so fewer micro-batches wait in it, and larger ones fit.

# %%
import os
from dataclasses import replace

import planner
from planner import plots
from planner.files.load import family_of
from planner.reproduction.reproduce import reproduce

FULL = bool(os.environ.get("PLANNER_FULL"))
DEVICES = 16 if FULL else 4

# %% [markdown]
# ## Stage graphs
#
# The same model, planned as a chain (PipeDream) and as a graph (GraphPipe).

# %%
instance = planner.load("candle-uno", devices=DEVICES)
family = family_of(instance)
results = {}
for method in ("pipedream", "graphpipe", "graphpipe-plus"):
    results[method] = planner.solve(instance, method=method, limits=planner.Limits(time_s=20))
    each = results[method]
    print(
        f"{method:15} TPS {1e6 * each.objective:8.3f} us  iteration {1000 * each.stats['iteration_s']:8.3f} ms"
        f"  {len(each.plan['stages'])} stages  {each.seconds:.3f} s"
    )

# %%
drawn = []
for method in ("pipedream", "graphpipe"):
    _, stages, *_ = plots.panels(instance, family.plan_from_json(instance, results[method].plan))
    drawn.append(replace(stages, title=f"{method}: the stages"))
plots.Sheet(drawn, width=1100)

# %% [markdown]
# The bottleneck time per sample (TPS) is what the paper minimises for each micro-batch size; sizes are swept for
# throughput. It leaves out filling and draining, which
# is why the simulated iteration stands beside it: the two need not agree on the better plan.
#
# ## Schedules
#
# Three stages with micro-batches of 1, 2 and 4 samples, as in the paper's Figure 5: who runs when?

# %%
schedule = planner.load("schedule-figure-5")
drawn = []
for method in ("greedy", "cpsat"):
    result = planner.solve(schedule, method=method, limits=planner.Limits(time_s=10))
    passes, *_ = plots.panels(schedule, family_of(schedule).plan_from_json(schedule, result.plan))
    drawn.append(replace(passes, title=f"{method}: {result.objective:g} s, {result.status}"))
plots.Sheet(drawn, width=1100)

# %% [markdown]
# ## How many micro-batches in flight?
#
# Table 2 of the paper answers with ten rows, which hold for passes that take equally long. At the usual one to two they
# are right with 1F1B, which the paper evaluates, and can be too small with kFkB: the pipeline stalls. Every case is
# compared with the exact minimum, and the smallest error is scheduled.

# %%
for ratio in ("1:1", "1:2"):
    table = reproduce("graphpipe-table-2", ratio=ratio, max="8", powers_of_two=True).to_json()
    print(ratio, {name: table[name] for name in ("cases", "equal", "too_small", "too_large")})
