"""PipeDream's recursion: its stages for VGG-16, and what its costs lose by Piper's."""

from typing import Any

import numpy as np

from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.paper.pipedream_recursion import Chain, Level, partition
from formulations.stage_partitioning.paper.pipedream_recursion import chain_of as chain_of_layers
from instances.graph import lifo_order
from instances.problems.operator_partitioning import OperatorInstance
from instances.problems.stage_partitioning import StageInstance
from planner.files.load import load, published_input
from planner.process.errors import UsageError
from planner.reproduction.claim import Evidence, Note, Optima, verified_result

#: Replicas of the stages of the release's hybrid_conf.json, by workers.
RELEASED = {4: "3-1", 8: "7-1", 16: "15-1"}
#: Bytes per second of 10 Gbit/s Ethernet.
_BANDWIDTH = 1.25e9
#: Models of the catalog, and devices.
SETTINGS = tuple((name, devices) for name in ("bert32", "bert", "gpt") for devices in (8, 32, 128))


def chain_of(instance: OperatorInstance) -> Chain:
    """The operators in one topological order; a cut takes the outputs of all operators before it that go on."""
    order = lifo_order(len(instance.operators), instance.edges)
    place = {v: at for at, v in enumerate(order)}
    cuts = np.zeros(len(order) - 1)
    for tensor in instance.tensors:
        # An activation and its gradient; the recursion counts both directions itself.
        cuts[place[tensor.source] : max(place[v] for v in tensor.targets)] += tensor.volume_bytes / 2
    operators = [instance.operators[v] for v in order]
    return Chain(np.array([v.compute_s for v in operators]), np.array([v.parameter_bytes for v in operators]), cuts)


def released(inputs: str | None, note: Note) -> Evidence:
    """VGG-16 on 4, 8 and 16 workers of one network, in both readings of what overlaps."""
    path = published_input("vgg16.graph.txt", inputs)
    if path is None:
        raise UsageError.at("--inputs", "absent", "a folder that holds vgg16.graph.txt, PipeDream's profile")
    instance: Any = load(path, stages=1)
    chain = chain_of(instance)
    rows: list[dict[str, Any]] = []
    for workers, stages in RELEASED.items():
        note(f"{workers} workers")
        for sync in ("beside", "after"):
            *_, (_, time, found) = partition(chain, [Level(workers, _BANDWIDTH)], beside=sync == "beside")
            here = "-".join(str(stage.replicas) for stage in found)
            rows.append({"workers": workers, "sync": sync, "replicas": here, "released": stages, "time_s": time})
    read = [row for row in rows if row["sync"] == "beside"]
    return Evidence(
        tuple(rows),
        "published",
        compared=len(read),
        matched=sum(row["replicas"] == row["released"] for row in read),
        notes=(
            "10 Gbit/s between all workers; the release's cuts are not compared, as its modules are coarser",
            "time_s: of the slowest computation, synchronisation or transfer; after: as the release's program adds up",
        ),
    )


def own_time(instance: StageInstance, plan: StagePlan) -> float:
    """A chain of stages by PipeDream's costs, weights synchronised beside computation."""
    order = [instance.index[node] for stage in plan.stages for node in stage.nodes]
    chain, slowest, x = chain_of_layers(instance, order), 0.0, 0
    for stage in plan.stages:
        y, d = x + len(stage.nodes), stage.dp_degree
        sums = 4 * (d - 1) / d * float(chain.weights[x:y].sum()) / instance.bandwidth
        moved = 2 * max(chain.cuts[at - 1] for at in (x, y) if at < len(order)) / instance.bandwidth if x else 0.0
        slowest = max(slowest, max(float(chain.times[x:y].sum()), sums, float(moved)) / d)
        x = y
    return slowest


def losses(_inputs: str | None, note: Note) -> Evidence:
    """Models of the catalog with memory enough for every plan."""
    rows: list[dict[str, Any]] = []
    optima = Optima()
    for name, devices in SETTINGS:
        note(f"{name}, {devices} devices")
        instance: Any = load(name, devices=devices, memory="1e6GB")
        best = optima.of(instance, f"{name} {devices}")
        assert best is not None
        row: dict[str, Any] = {"model": name, "devices": devices, "best_s": best}
        space = verified_result(instance, "pipedream")
        assert space.objective is not None
        row["best_of_space_percent"] = 100 * (space.objective / best - 1)
        found = {sync: verified_result(instance, "pipedream-recursion", sync=sync) for sync in ("beside", "after")}
        for sync, each in found.items():
            assert each.objective is not None
            row[f"{sync}_percent"] = 100 * (each.objective / space.objective - 1)
        own = own_time(instance, found["beside"].own_plan)
        row["by_pipedream_percent"] = 100 * (own_time(instance, space.own_plan) / own - 1)
        rows.append(row)
    return Evidence(
        tuple(rows),
        "the catalog's, with memory enough for every plan",
        notes=(
            "best_of_space: the best chain of stages without tensor parallelism, by how much slower than best_s",
            "beside, after: PipeDream's plan, by how much slower than the best of its space by Piper's costs",
            "by_pipedream: the best of its space by Piper's costs, by how much slower than PipeDream's plan by its own",
            optima.sentence(),
        ),
    )
