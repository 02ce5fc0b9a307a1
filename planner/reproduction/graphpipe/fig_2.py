"""Figure 2: a sequential and a graph pipeline of the same four stages.

The figure shows three branches and a join without numbers. Here every operator takes 1 s forward and 2 s backward and
nothing is sent, so the stages are balanced and only their order differs: reconstructed.
"""

from collections.abc import Mapping
from typing import Any

from formulations.contract.family import lazy
from instances.problems.stage_graph import AffineTime, Operator, OperatorEdge, StageGraph
from planner.reproduction.claim import Evidence, Note, verified_result

_code = lazy("planner.reproduction.graphpipe")

BRANCHES, LENGTH = 3, 3
MINIBATCHES = (4, 8, 16, 32, 64)
METHODS = ("pipedream", "piper-dp", "graphpipe", "graphpipe-plus")
#: Printed depth, which is also the number of micro-batches in flight at the first stage.
PRINTED = {"pipedream": 4, "graphpipe": 2}


def run(_inputs: str | None, note: Note) -> Evidence:
    """Every method with micro-batches of one sample, for several numbers of them."""
    rows: list[dict[str, Any]] = []
    for minibatch in MINIBATCHES:
        instance = model(minibatch)
        cell = []
        for method in METHODS:
            note(f"{minibatch} micro-batches: {method}")
            found = verified_result(instance, method)
            cell.append({"microbatches": minibatch, "method": method, **_columns(instance, found.plan)})
        base = cell[0]["iteration_s"]
        rows += [
            {**row, "speedup": base / row["iteration_s"], "paper_depth": PRINTED.get(row["method"])} for row in cell
        ]
    row, graph = (next(each for each in rows if each["method"] == method) for method in PRINTED)
    compared = [row["depth"] == PRINTED["pipedream"], graph["depth"] == PRINTED["graphpipe"]]
    notes = (
        "seconds; all plans have the same bottleneck and all fit, so Equations 1 and 2 do not distinguish them; "
        "speedup: of the simulated iteration, over pipedream",
        f"in flight at the first stage: {row['first_in_flight']} in the chain, {graph['first_in_flight']} in the graph "
        "(printed: 4 and 2); peak memory is per device, one byte for a sample and operator, weights left out",
    )
    return Evidence(
        tuple(rows),
        f"{BRANCHES} branches of {LENGTH} operators and a join of {LENGTH}",
        len(compared),
        sum(compared),
        notes,
    )


def model(minibatch: int) -> StageGraph:
    """Three branches of three operators, joined by a fourth row of three, on four devices."""
    operators = [
        Operator(f"{where} {number}", AffineTime(0.0, 1.0), AffineTime(0.0, 2.0), 0.0, 1.0)
        for where in (*(f"branch {branch}" for branch in range(BRANCHES)), "join")
        for number in range(LENGTH)
    ]
    pairs = [(v, v + 1) for v in range(len(operators) - 1) if (v + 1) % LENGTH]
    pairs += [(LENGTH * (branch + 1) - 1, LENGTH * BRANCHES) for branch in range(BRANCHES)]
    edges = tuple(OperatorEdge(u, v, 0.0) for u, v in sorted(pairs))
    return StageGraph("figure-2", tuple(operators), edges, 4, 1e9, 1.0, 0.0, minibatch, microbatches=(1,))


def _columns(instance: StageGraph, plan: Mapping[str, Any] | None) -> dict[str, Any]:
    read, shown = (lazy("formulations.stage_graph.definition.plan:plan_from_json"), _code.stages.table_row)
    figures = shown(instance, read(instance, plan))
    keys = ("stages", "depth", "first_in_flight", "tps_s", "iteration_s", "samples_per_s", "peak_memory_bytes")
    return {key: figures[key] for key in keys}
