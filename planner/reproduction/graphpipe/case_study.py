"""Section 7.5: two branches of four layers on eight devices, one layer to a stage, pipelined in three ways.

The paper says that the graph pipeline is four stages deep. The concatenation is part of one stage, so by C2 the other
branch's last stage goes before it: five. A depth of four, as in Figure 8, leaves that edge out: ``as-drawn``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from formulations.contract.family import lazy
from planner.files.load import load
from planner.reproduction.claim import Evidence, Note
from planner.reproduction.graphpipe.plans import INPUTS, TIME_LIMIT_S, plan_by, ratio, sizes, sweep_rows

MODEL = "graphpipe-case-study"
LAYERS, OPERATORS_OF_LAYER = 4, 3
METHODS = ("data-parallel", "pipedream", "graphpipe", "graphpipe-plus")
_ROW = [(stage, stage + 1) for stage in range(2 * LAYERS - 1)]
_BETWEEN_BRANCHES, _INTO_CONCAT = (LAYERS - 1, LAYERS), (LAYERS - 1, 2 * LAYERS - 1)
#: Edges of one layer to a stage, stages 0 to 3 and 4 to 7 being the branches.
STRATEGIES: Mapping[str, Sequence[tuple[int, int]]] = {
    "sequential": [*_ROW, _INTO_CONCAT],
    "as-drawn": [edge for edge in _ROW if edge != _BETWEEN_BRANCHES],
    "graph": [*(edge for edge in _ROW if edge != _BETWEEN_BRANCHES), _INTO_CONCAT],
}
Row = dict[str, Any]


def run(
    _inputs: str | None,
    note: Note,
    minibatch: int | None = None,
    memory: float | None = None,
    time_limit: float = TIME_LIMIT_S,
) -> Evidence:
    """One layer to a stage at every micro-batch size, and the quickest plan that each method finds there."""
    given: dict[str, Any] = {"devices": 8, "minibatch": minibatch, "memory": memory}
    declared = {name: value for name, value in given.items() if value is not None}
    instance: Any = load(MODEL, **declared)
    rows: list[Row] = []
    found = {method: plan_by(MODEL, method, time_limit, note, **declared) for method in METHODS}
    for size in sorted({size for each in found.values() for size in sizes(each)}):
        for name, edges in STRATEGIES.items():
            rows.append(_row(name, _by_hand(instance, size, edges)))
        for method, each in found.items():
            at_size = [row for row in sweep_rows(each) if row["microbatch"] == size]
            if at_size:
                rows.append(_row(method, min(at_size, key=lambda row: float(row["iteration_s"]))))
    base = (_at(rows, "sequential", 2) or {}).get("iteration_s")
    rows = [{**row, "speedup": ratio(base, row["iteration_s"])} for row in rows]
    notes = (
        "sequential, as-drawn and graph have one layer in each of eight stages, the concatenation in the last; breaks: "
        "rules that the plan breaks; speedup: over sequential at size 2",
        f"{instance.minibatch} samples, {instance.memory_bytes / 1e9:g} GB a device; neither the mini-batch nor the "
        "layers' sizes are printed, so gains compare with the printed ones in kind only; depths do not depend on them",
        *_sentences(rows, instance.memory_bytes),
    )
    return Evidence(tuple(rows), INPUTS, notes=notes)


def _by_hand(instance: Any, size: int, edges: Sequence[tuple[int, int]]) -> Mapping[str, Any]:
    made, shown = (lazy(f"planner.reproduction.graphpipe.stages:{name}") for name in ("by_hand", "table_row"))
    width = OPERATORS_OF_LAYER
    stages = [list(range(width * stage, width * (stage + 1))) for stage in range(2 * LAYERS)]
    stages[-1] += range(width * len(stages), instance.num_operators)
    figures: Mapping[str, Any] = shown(instance, made(instance, stages, size, edges))
    return figures


def _row(strategy: str, figures: Mapping[str, Any]) -> Row:
    keys = ("microbatch", "stages", "depth", "tps_s", "iteration_s", "samples_per_s", "peak_memory_bytes")
    return {
        "strategy": strategy,
        **{key: figures[key] for key in keys},
        "first_in_flight": figures.get("first_in_flight"),
        "breaks": figures.get("breaks"),
    }


def _at(rows: Sequence[Row], strategy: str, size: int) -> Row | None:
    return next((row for row in rows if row["strategy"] == strategy and row["microbatch"] == size), None)


def _sentences(rows: Sequence[Row], memory_bytes: float) -> list[str]:
    notes = []
    pairs = {(name, size): _at(rows, name, size) for name in STRATEGIES for size in (2, 4)}
    known = {key: row for key, row in pairs.items() if row is not None}
    if len(known) == len(pairs):
        deep = ", ".join(f"{name} {known[name, 2]['depth']}" for name in STRATEGIES)
        notes.append(
            f"stages deep: {deep} (printed: 8 and 4); as-drawn is no plan: it breaks {known['as-drawn', 2]['breaks']}"
        )
        gains = ", ".join(f"{name} {100 * (known[name, 2]['speedup'] - 1):.1f} %" for name in ("as-drawn", "graph"))
        notes.append(f"gain at size 2: {gains} (printed: 10 %)")
        more = 100 * (known["graph", 4]["iteration_s"] / known["graph", 2]["iteration_s"] - 1)
        whole = 100 * (known["graph", 4]["speedup"] - 1)
        notes.append(f"size 4 for the graph pipeline: iteration {more:+.1f} %, {whole:.1f} % in all (printed: 20 %)")
        low, high = (known[name, 4]["peak_memory_bytes"] for name in ("graph", "sequential"))
        notes.append(
            f"with one layer to a stage, memory leaves size 4 to the graph pipeline and not to the sequential one only "
            f"between {low / 1e9:.3f} and {high / 1e9:.3f} GB a device"
        )
    fit = [row for row in rows if row["peak_memory_bytes"] <= memory_bytes and row["breaks"] is None]
    best = {name: min(own, key=lambda row: row["iteration_s"]) for name in _names(fit) if (own := _of(fit, name))}
    notes += [
        f"{name}: quickest at size {row['microbatch']}, {row['stages']} stages, {row['samples_per_s']:.1f} samples/s"
        for name, row in best.items()
    ]
    return notes


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["strategy"] for row in rows))


def _of(rows: Sequence[Row], strategy: str) -> list[Row]:
    return [row for row in rows if row["strategy"] == strategy]
