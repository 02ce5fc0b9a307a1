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
# %% [markdown]
# # 2. One problem, many formulations
#
# Stage partitioning stands in this package as Piper's dynamic program, as an exact threshold search, and as three
# declarative models: CP-SAT, a MILP with one constraint for each sentence of the paper, and a MILP over whole stages.
# Here a model is taken apart, given a requirement, compared with the others, and solved by a program that knows nothing
# of this package. At the end the same comparison for knapsacks, device mappings and stage graphs.

# %%
import os
import tempfile

import highspy
import matplotlib.pyplot as plt

import planner
from planner import plots

FULL = bool(os.environ.get("PLANNER_FULL"))
SIZES = (4, 8, 12, 16, 32) if FULL else (3, 5)
TIME_S = 60 if FULL else 1.5


def layers_of_bert(layers):
    """The first layers of BERT on half as many devices of 8 GiB, four at least."""
    return planner.load("bert32", first=layers, devices=max(4, layers // 2), memory="8GiB", microbatches=64)


# %% [markdown]
# ## A model taken apart
#
# Each group of variables and constraints has the sentence that it stands for, and the paper's section.

# %%
model = planner.model(layers_of_bert(4), "milp", complete=True)
model

# %% [markdown]
# Its linear relaxation lets every stage be a fraction of every layer. How much of the optimum does its bound reach,
# what is fractional in it, and which constraints hold it up? (`duals` has their dual values; the largest are shown.)

# %%
root, best = model.root(), planner.solve(model.instance, exact=True)
print(f"bound {root.bound:.6g} s of {best.objective:.6g} s ({root.bound / best.objective:.1%}), {root.seconds:.2g} s")
print(f"{len(root.fractional)} fractional variables, such as {next(iter(root.fractional.items()), None)}")
for name, dual in sorted(root.duals.items(), key=lambda each: -abs(each[1]))[:4]:
    print(f"  {name}: {dual:.4g}")

# %% [markdown]
# ## A requirement
#
# The best plan with at most one stage less, at least one more, or two layers together. The definition judges
# requirements as it judges memory, and methods that cannot honour one refuse the instance.

# %%
stages = len(best.plan["stages"])
for required in (f"num_stages <= {max(1, stages - 1)}", f"num_stages >= {stages + 1}", "same_stage(0, 1)"):
    found = planner.model(layers_of_bert(4), "milp").require(required).solve(planner.Limits(time_s=20))
    loss = "" if found.objective is None else f", {found.objective / best.objective - 1:.2%} slower than the best"
    print(f"{required:18} {found.status}{loss}")

# %% [markdown]
# ## Solved elsewhere
#
# The model goes out as a file; any solver may solve it. Its solution comes back as names and values, and the
# definition judges the plan. Here HiGHS alone, which knows nothing of stages.

# %%
with tempfile.TemporaryDirectory() as folder:
    model.write(f"{folder}/model.lp")
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.readModel(f"{folder}/model.lp")
    highs.run()
    highs.writeSolution(f"{folder}/model.sol", 0)
    judged = model.read_solution(f"{folder}/model.sol")
print(f"{judged.status}, {judged.objective:.9g} s; the optimum is {best.objective:.9g} s")

# %% [markdown]
# ## Formulations compared
#
# Variables, rows and root bound of each model, and seconds to the first plan, to a plan within 1 %, and to the proof.
# The first plan is a heuristic's, which every model begins with. Columns price whole stages, so that their relaxation
# is nearly integral, at the price of enumerating them.

# %%
compared = planner.formulations(layers_of_bert(SIZES[-1]), limits=planner.Limits(time_s=TIME_S))
compared

# %% [markdown]
# Gap over time on the same instance, with the combinatorial search beside the models.

# %%
figure, at = plt.subplots(figsize=(8, 4.5))
plots.gap_over_time(at, compared.events, compared.unit)

# %% [markdown]
# ## Growing instances
#
# Seconds to the end of each method; a limit ends those that prove nothing. Contradictions would be the interesting
# outcome. There must be none: no bound above any verified plan.

# %%
METHODS = ("exact", "piper-exact-knapsack", "cpsat", "milp", "milp-columns")
rows = []
for layers in SIZES:
    report = planner.crosscheck(layers_of_bert(layers), methods=METHODS, limits=planner.Limits(time_s=TIME_S))
    assert report.agree
    rows += [(layers, result) for result in report.results]
figure, at = plt.subplots(figsize=(7, 4))
for grey, (method, line) in enumerate(zip(METHODS, ("-", "--", "-.", ":", "-"), strict=True)):
    own = [(layers, result.seconds) for layers, result in rows if result.method == method]
    at.plot(*zip(*own, strict=True), line, marker="os^vD"[grey], color=f"{0.15 * grey:.2f}", label=method)
at.set(yscale="log", xlabel="layers", ylabel=f"seconds (limit {TIME_S:g} s)")
at.legend()

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

# %% [markdown]
# ## Knapsacks and layers
#
# The same table for two smaller problems: TMPCs of a stage's nodes under its memory (Piper, section 4), and layers of a
# chain in stages (AMP, section 3.4).

# %%
planner.formulations(planner.load("knapsack"), limits=planner.Limits(time_s=TIME_S))

# %%
planner.formulations(planner.load("layers", layers=16, stages=4), limits=planner.Limits(time_s=TIME_S))
