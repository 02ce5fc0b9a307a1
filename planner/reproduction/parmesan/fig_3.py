"""Figure 3: throughput of BERTs and Swins on DGX-1 machines, by partition, mapping and shape.

The paper measures; here a synchronous 1F1B step is simulated on models generated at operator level. Which shapes the
paper took where it does not say is reconstructed: S = 4 in (a), R = 4 in (b).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from formulations.pipeline_placement.definition.simulate import simulate
from instances.generators import operator_sequences
from planner.files.load import load
from planner.reproduction.claim import Evidence, Note, verified_result
from planner.reproduction.parmesan.cells import TIME_LIMIT_S, count_proved, results_of, row_of
from planner.reproduction.parmesan.models import map_partition, plan_of
from solvers.outcome import Limits

NETWORK = "dgx1"
_LAYERS, _REPLICAS = (24, 48, 96), (1, 2, 4, 8)
_DEVICES = (8, 16, 32)
_SHAPES = ((4, 8, 4), (8, 4, 4), (16, 2, 4), (8, 4, 8), (16, 2, 8))


@dataclass(frozen=True)
class Setup:
    """A bar group of the figure: a model, S, R and micro-batches of a step, samples of a micro-batch."""

    panel: str
    model: str
    graph: Callable[[], Any]
    stages: int
    replicas: int
    microbatches: int
    samples: int


def setups(panels: str) -> Iterator[Setup]:
    """The bar groups of the panels (letters)."""
    if "a" in panels:
        for layers in _LAYERS:
            graph = partial(operator_sequences.bert, f"bert-{layers}", layers, microbatch_size=8)
            for replicas in _REPLICAS:
                yield Setup("a", f"bert-{layers}", graph, 4, replicas, 4, 8)
    if "b" in panels:
        for name in ("swin-l", "swin-u"):
            for devices in _DEVICES:
                yield Setup("b", name, partial(load, name), devices // 4, 4, 4, 16)
    if "c" in panels:
        for stages, replicas, microbatches in _SHAPES:
            yield Setup("c", "swin-u", partial(load, "swin-u"), stages, replicas, microbatches, 16)


def run(
    _inputs: str | None, note: Note, time_limit: float = TIME_LIMIT_S, objective: str = "auto", panels: str = "abc"
) -> Evidence:
    """A row for each bar group: the slowest stage by each mapping, and samples per second of a simulated step."""
    rows = [_row(setup, time_limit, objective, note) for setup in setups(panels)]
    notes = (
        "consecutive, parmesan, best, bound: seconds of the slowest stage of Parmesan's partition; samples per second "
        "are of a simulated 1F1B step with the all-reduce after it",
        *(_sentence(panel, rows) for panel in dict.fromkeys(row["panel"] for row in rows)),
        "simulated on reconstructed models where the paper measures; the figure prints no numbers; pipedream is the "
        "best cut of one topological order, not PipeDream's program",
    )
    return Evidence(
        tuple(rows), "models generated at operator level, DGX-1 machines", notes=(*notes, count_proved(rows))
    )


def _sentence(panel: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """In how many cells of a panel Algorithm 1's mapping of Parmesan's partition is ahead, and by how much at most."""
    own = [row for row in rows if row["panel"] == panel]
    parts = []
    for name, what in (("consecutive", "consecutive mapping"), ("pipedream", "pipedream with consecutive mapping")):
        gains = [row["parmesan_samples_per_s"] / row[f"{name}_samples_per_s"] - 1 for row in own]
        ahead, behind = sum(gain > 1e-9 for gain in gains), sum(gain < -1e-9 for gain in gains)
        spread = f"by {100 * min(gains):.1f} to {100 * max(gains):.1f} %"
        parts.append(f"{what} in {ahead} (and fewer in {behind}; {spread})")
    return f"panel {panel}: of {len(own)} cells Algorithm 1 gives more samples per second than {', than '.join(parts)}"


def _row(setup: Setup, time_limit: float, objective: str, note: Note) -> dict[str, Any]:
    graph = replace(setup.graph(), num_stages=setup.stages, replicas=setup.replicas)
    by_partition = {}
    for method in ("parmesan", "pipedream"):
        instance = map_partition(graph, plan_of(graph, method, time_limit), setup.replicas, NETWORK, objective)
        by_partition[method] = replace(instance, microbatches=setup.microbatches)
    own = by_partition["parmesan"]
    results = results_of(f"{setup.panel} {setup.model}", own, time_limit, note)
    first = verified_result(own, "consecutive-pipeline-first", limits=Limits(time_s=time_limit))
    dream = verified_result(by_partition["pipedream"], "consecutive", limits=Limits(time_s=time_limit))
    best = min(results, key=lambda result: result.objective or float("inf"))
    named = {"consecutive": results[0], "pipeline_first": first, "parmesan": results[1], "best": best}
    shown = row_of(NETWORK, own, results)
    return {
        "panel": setup.panel,
        "model": setup.model,
        "devices": setup.stages * setup.replicas,
        "microbatches": setup.microbatches,
        **shown,
        "pipedream_samples_per_s": _throughput(by_partition["pipedream"], dream, setup),
        **{f"{name}_samples_per_s": _throughput(own, result, setup) for name, result in named.items()},
    }


def _throughput(instance: Any, result: Any, setup: Setup) -> float:
    step = simulate(instance, result.own_plan)
    return setup.samples * setup.replicas * setup.microbatches / step.seconds
