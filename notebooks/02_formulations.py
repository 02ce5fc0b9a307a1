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
# # 2. One problem, many formulations
#
# Stage partitioning stands in this package as Piper's dynamic program, as a threshold search, and as four declarative
# models: CP-SAT and a MILP with a constraint for each sentence of the paper, and both over whole stages. Here a model
# is taken apart, given a requirement, compared with the others, and solved by a program that knows nothing of this
# package. Then every problem has its comparison: a search, CP-SAT and a MILP side by side.

# %%
import os
import tempfile

import highspy

import planner

FULL = bool(os.environ.get("PLANNER_FULL"))
SIZES = (4, 8, 12, 16, 32) if FULL else (4, 10)
LIMITS = planner.Limits(time_s=60 if FULL else 3)


def layers_of_bert(layers):
    """The first layers of BERT on half as many devices of 8 GiB, four at least."""
    return planner.load("bert32", first=layers, devices=max(4, layers // 2), memory="8GiB", microbatches=64)


# %% [markdown]
# ## A model taken apart
#
# Each group of variables and constraints has the sentence that it stands for, and the paper's section. A *complete*
# model leaves out nothing that a known plan makes superfluous.

# %%
model = planner.model(layers_of_bert(4), "milp", complete=True)
model

# %% [markdown]
# ## Roots
#
# The linear relaxation lets every stage be a fraction of every layer. How much of the optimum does its bound reach,
# what is fractional in it, and which constraints hold it up? (`duals` has their dual values; the largest are shown.)

# %%
root, best = model.root(), planner.solve(model.instance, exact=True)
print(f"bound {root.bound:.6g} s of {best.objective:.6g} s ({root.bound / best.objective:.1%}), {root.seconds:.2g} s")
print(f"{len(root.fractional)} fractional variables, such as {next(iter(root.fractional.items()), None)}")
for name, dual in sorted(root.duals.items(), key=lambda each: -abs(each[1]))[:4]:
    print(f"  {name}: {dual:.4g}")

# %% [markdown]
# The formulation decides. A stage's time in CP-SAT follows from conditions, of which a relaxation keeps nothing; the
# MILP's rows keep most of the work; columns, whole stages with their price, keep nearly all. And a known plan helps:
# as its method begins with it, a model of columns leaves out those that are slower than a heuristic's plan.

# %%
instance = layers_of_bert(8)
optimum = planner.solve(instance, exact=True).objective
for method in ("cpsat", "milp", "cpsat-columns", "milp-columns"):
    for complete in (True, False):
        each = planner.model(instance, method, complete=complete)
        bound = each.root(LIMITS.time_s).bound
        share = "no bound" if bound is None else f"{bound / optimum:6.1%} of the optimum"
        kind = "complete" if complete else "as its method begins with it"
        print(f"{method:13} {each.sizes().variables:4} variables, root {share}, {kind}")

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
# ## Stage partitioning
#
# The search that the problem prefers stands first, without a model. Of the models: their size, the share of the optimum
# that their root has, seconds to the first plan, to one within 1 %, and to the proof. The first plan is a heuristic's,
# which every model begins with. Columns price whole stages, so that their relaxation is nearly integral, at the price
# of enumerating them.

# %%
planner.formulations(layers_of_bert(SIZES[-1]), limits=LIMITS)

# %% [markdown]
# The same with Piper's dynamic program, on growing instances: seconds of a proof, or the gap that the limit leaves.
# Contradictions would be the interesting outcome. There must be none: no bound above any verified plan.

# %%
METHODS = ("piper-exact-knapsack", "exact", "cpsat", "milp", "cpsat-columns", "milp-columns")
print("layers  " + "".join(f"{method:>22}" for method in METHODS))
for layers in SIZES:
    report = planner.crosscheck(layers_of_bert(layers), methods=METHODS, limits=LIMITS)
    assert report.agree
    known = {
        each.method: f"{each.seconds:.3f} s" if str(each.stop) == "proved" else f"gap {each.gap or 1:.1%}"
        for each in report.results
    }
    print(f"{layers:6}  " + "".join(f"{known.get(method, '-'):>22}" for method in METHODS))

# %% [markdown]
# Piper's own program has the same recursion with a heuristic knapsack inside. It is not exact, and cannot measure its
# loss; here the loss is known because the optimum is. Where its knapsack errs is the subject of notebook 3.

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
# ## Knapsack
#
# The configurations of a stage's layers under its memory (Piper, section 4): a multiple-choice knapsack. The search
# opens a core around the break of the relaxation. Both models have the same rows, and their relaxation is near: one
# layer at most is split between two configurations.

# %%
planner.formulations(planner.load("knapsack"), limits=LIMITS)

# %% [markdown]
# ## Device mapping
#
# Stage replicas on devices with links of different bandwidths (Parmesan): a bottleneck assignment, in which a product
# of two choices decides every link. The search joins bounds, annealing and models of targets. CP-SAT lets a link's time
# follow from its two ends, which relaxes to little. The MILP asks whether a target can be met over the few bandwidths
# there are, or carries each link as a flow.

# %%
planner.formulations(planner.load("dgx1", stages=4, replicas=2, objective="full"), limits=LIMITS)

# %%
planner.formulations(planner.load("fig2", objective="full"), limits=LIMITS)

# %% [markdown]
# ## Stage graphs
#
# Operators in convex stages that may run side by side (GraphPipe). The search goes over all partitions, level by level.
# CP-SAT assigns operators to stages and counts the samples in flight along the stage graph; the MILP covers the
# operators with columns, each a convex set at a depth. With large mini-batches there are more columns than are listed:
# then the method searches for the target outside of its models, and there is no single model to look at.

# %%
branching = {"branches": 3, "layers": 2, "devices": 4}
planner.formulations(planner.load("candle-uno", **branching, minibatch=16, objective="tps"), limits=LIMITS)

# %%
planner.formulations(planner.load("candle-uno", **branching, minibatch=4096, objective="tps"), limits=LIMITS)

# %% [markdown]
# ## Schedules, layers, tilings, operators
#
# A schedule of forward and backward passes (GraphPipe); layers of a chain in stages (AMP, section 3.4); tiles on a mesh
# of heterogeneous nodes (AMP, Algorithm 2); operators in stages of replicas (Parmesan).

# %%
planner.formulations(planner.load("schedule-figure-5"), limits=LIMITS)

# %%
planner.formulations(planner.load("layers", layers=16, stages=4), limits=LIMITS)

# %%
planner.formulations(planner.load("mesh"), limits=LIMITS)

# %%
planner.formulations(planner.load("gnmt"), limits=LIMITS)
