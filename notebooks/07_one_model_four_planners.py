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
# # 7. One model, four planners
#
# Piper, Parmesan, GraphPipe and AMP answer what looks like one question: which layers go together? Each has its own
# idea of what a stage costs. Here the same network is put into all four, on the same devices, and every plan is
# priced by every planner's evaluator: where do they disagree, and what does that cost?
#
# So that a plan means the same to all of them, a stage is an interval of layers on one device.

# %%
import os
from dataclasses import replace

import numpy as np

import planner
from instances.problems.layer_assignment import LayerAssignmentInstance
from instances.problems.operator_partitioning import Operator as ParmesanOperator
from instances.problems.operator_partitioning import OperatorInstance, Tensor
from instances.problems.stage_graph import AffineTime, OperatorEdge, StageGraph
from instances.problems.stage_graph import Operator as GraphPipeOperator
from planner import plots
from planner.files.load import family_of

FULL = bool(os.environ.get("PLANNER_FULL"))
LAYERS, STAGES = (48, 8) if FULL else (16, 6)
MICROBATCHES = 8
BANDWIDTH = 1.5e9

# %% [markdown]
# ## The network
#
# A GPT with a large vocabulary: the embedding is cheap to compute, the head is not, and the layers between are
# identical.

# %%
given = {"layers": LAYERS, "devices": STAGES, "memory": "80GiB", "microbatches": MICROBATCHES, "bandwidth": BANDWIDTH}
gpt = planner.load("gpt", tp=1, max_dp=1, linearize="id", forbid_tmpc="activation recomp", **given)
order = [layer.id for layer in gpt.layers]
chosen = [layer.tmpcs[1][0] for layer in gpt.layers]
times = [tmpc.time for tmpc in chosen]
volume = {(order.index(edge.source), order.index(edge.target)): edge.bytes for edge in gpt.edges}
cut_bytes = [sum(size for (u, v), size in volume.items() if u <= cut < v) for cut in range(len(order) - 1)]
layers, between = [str(layer) for layer in range(len(times))], [str(cut) for cut in range(len(cut_bytes))]
plots.Sheet(
    [
        plots.bars(
            layers,
            [1000 * time for time in times],
            "forward and backward, ms",
            xlabel="layer",
            title="Compute of each layer",
            text="inputs and embedding take next to nothing",
        ),
        plots.bars(
            between,
            [size / 2**20 for size in cut_bytes],
            "activations, MiB",
            xlabel="cut after",
            title="What a cut sends",
            text="the same after every layer but the inputs",
        ),
    ],
    width=1000,
)
# %% [markdown]
# ## The same network, four times

# %%
parmesan = OperatorInstance(
    name="gpt",
    operators=tuple(ParmesanOperator(v, time) for v, time in enumerate(times)),
    tensors=tuple(Tensor(u, (v,), 2 * size) for (u, v), size in volume.items()),
    num_stages=STAGES,
    bandwidth_bytes_per_s=BANDWIDTH,
)
graphpipe = StageGraph(
    name="gpt",
    operators=tuple(
        GraphPipeOperator(str(v), AffineTime(0.0, time / 3), AffineTime(0.0, 2 * time / 3), 0.0, 0.0)
        for v, time in enumerate(times)
    ),
    edges=tuple(OperatorEdge(u, v, size) for (u, v), size in volume.items()),
    num_devices=STAGES,
    memory_bytes=80 * 2.0**30,
    bandwidth_bytes_per_s=BANDWIDTH,
    latency_s=0.0,
    minibatch=MICROBATCHES,
    microbatches=(1,),
)
amp = LayerAssignmentInstance(
    name="gpt",
    layer_time_s=tuple(times),
    cut_cost_s=tuple((2 * size / BANDWIDTH,) for size in cut_bytes),
    num_stages=STAGES,
    num_microbatches=MICROBATCHES,
)
planners = {"Piper": gpt, "Parmesan": parmesan, "GraphPipe": graphpipe, "AMP": amp}

# %% [markdown]
# ## Four plans

# %%
METHODS = {"Piper": "piper", "Parmesan": "parmesan", "GraphPipe": "pipedream", "AMP": "amp"}


def lengths(name, plan):
    """Layers of each stage, in the order of the layers."""
    if name == "AMP":
        return tuple(plan["lengths"])
    sizes = {}
    for stage in plan["stages"]:
        nodes = stage if name == "Parmesan" else stage["nodes"]
        sizes[min(order.index(node) if name == "Piper" else int(node) for node in nodes)] = len(nodes)
    return tuple(size for _, size in sorted(sizes.items()))


cuts = {}
for name, instance in planners.items():
    paper = planner.solve(instance, method=METHODS[name], limits=planner.Limits(time_s=10))
    best = planner.solve(instance, limits=planner.Limits(time_s=10), exact=name != "GraphPipe")
    cuts[name] = lengths(name, paper.plan)
    print(f"{name:9} {METHODS[name]:9} {cuts[name]}  objective {paper.objective:.6g}  best known {best.objective:.6g}")

# %% [markdown]
# Four planners, four plans. Three minimise the slowest stage with all that it sends: many plans tie, and each planner
# stops at another. AMP counts computing for every micro-batch and a cut only once, so that it levels computing alone.
# The frame marks the stage that computes longest.

# %%
drawn = []
for name, sizes in cuts.items():
    strip, *_ = plots.panels(amp, family_of(amp).plan_from_json(amp, {"lengths": list(sizes)}))
    drawn.append(replace(strip, title=f"{name}: {', '.join(map(str, sizes))} layers", text=""))
plots.Sheet(drawn, width=1000)

# %% [markdown]
# ## Under each other's evaluator
#
# A row is a plan, a column an evaluator: time relative to the best of the four plans by that evaluator.


# %%
def price(name, sizes):
    """What a planner's own evaluator says of stages of these sizes."""
    ends = np.cumsum(sizes)
    groups = [list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    if name == "AMP":
        plan = {"lengths": list(sizes)}
    elif name == "Parmesan":
        plan = {"stages": groups}
    elif name == "Piper":
        tmpcs = [{str(order[v]): chosen[v].id for v in group} for group in groups]
        plan = {
            "stages": [
                {"nodes": [order[v] for v in group], "dp_degree": 1, "tp_degree": 1, "tmpcs": tmpcs[stage]}
                for stage, group in enumerate(groups)
            ]
        }
    else:
        depth = len(sizes)
        plan = {
            "stages": [
                {"nodes": group, "devices": 1, "microbatch": 1, "k": 1, "in_flight": depth - stage}
                for stage, group in enumerate(groups)
            ],
            "edges": [[stage, stage + 1] for stage in range(depth - 1)],
        }
    family = family_of(planners[name])
    decoded = family.plan_from_json(planners[name], plan)
    broken = family.violations(planners[name], decoded)
    return family.evaluate(planners[name], decoded) if not broken else float("nan")


table = np.array([[price(column, cuts[row]) for column in planners] for row in planners])
relative = table / np.nanmin(table, axis=0)
print("plan of    " + "".join(f"{name:>12}" for name in planners))
for row, name in enumerate(planners):
    print(f"{name:10} " + "".join(f"{value:12.4f}" for value in relative[row]))

# %%
SAYS = "AMP finds fault with the others' plans, they find none with AMP's"
rows = [
    (f"{row}'s plan by {column}", float(relative[at, by]) - 1)
    for at, row in enumerate(planners)
    for by, column in enumerate(planners)
    if (row == "AMP") != (column == "AMP")
]
plots.Sheet([plots.losses(rows, "best of the four", "Where they disagree", SAYS)], width=800)
# %% [markdown]
# On a chain of layers with a stage on each device, the three planners that minimise a bottleneck mean the same by it:
# what a stage computes, and what crosses its two boundaries. They give each other's plans the same price, and AMP's the
# same as their own; AMP prices theirs up to a sixth higher. Where planners differ more, with replicas, memory and
# branches, their plans are no longer translations of each other; the other stories go there.

# %%
bottleneck = ["Piper", "Parmesan", "GraphPipe"]
for row in planners:
    values = [price(name, cuts[row]) for name in bottleneck]
    assert max(values) <= min(values) * (1 + 1e-9), (row, values)
