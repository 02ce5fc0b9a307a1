"""Small instances for a first look, made for this project, and their catalog entries."""

import random
from dataclasses import replace
from typing import Any

from instances.catalog.entry import MADE, SEED, Entry
from instances.generators.topologies import two_level
from instances.parameters import Setting, count_between, one_of, parse_count
from instances.problems import operator_strategies, tmpc_knapsack
from instances.problems.flushed_partitioning import FlushedInstance, flush_pipeline
from instances.problems.hierarchical_partitioning import HierarchicalInstance, on_machines
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor, TrainingMemory
from instances.problems.operator_strategies import OperatorStrategies
from instances.problems.pipeline_placement import PlacementInstance, place_on
from instances.problems.stage_edits import MAX_LAYERS
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.problems.tmpc_knapsack import KnapsackInstance
from instances.problems.training_strategy import Schedule, StrategyInstance, of_chain


def chain8() -> StageInstance:
    """A chain of eight layers; each runs on one device or two, and may trade memory for time."""

    def tmpcs(time: float, t: int) -> tuple[Tmpc, ...]:
        keep = Tmpc("keep", time / t, 6e6 / t, 4e6 / t, 12e6 / t)
        return keep, replace(keep, id="recompute", time=keep.time * 4 / 3, activation_bytes=1e6, static_bytes=15e6 / t)

    times = (0.010, 0.012, 0.008, 0.016, 0.012, 0.010, 0.014, 0.006)
    layers = tuple(Layer(v, {1: tmpcs(time, 1), 2: tmpcs(1.1 * time, 2)}, f"layer {v}") for v, time in enumerate(times))
    edges = tuple(Edge(v, v + 1, 1e6) for v in range(7))
    return StageInstance("chain8", layers, edges, 4, 64e6, 1e9, 8)


def diamond() -> StageInstance:
    """A source, two branches of unequal weight, and a sink that joins them."""
    times = {"source": 0.004, "left": 0.012, "right": 0.006, "sink": 0.008}
    layers = tuple(Layer(v, {1: (Tmpc("only", time, 4e6, 2e6, 8e6),)}, v) for v, time in times.items())
    ends = (("source", "left"), ("source", "right"), ("left", "sink"), ("right", "sink"))
    return StageInstance("diamond", layers, tuple(Edge(u, v, 1e6) for u, v in ends), 3, 40e6, 1e9, 4)


def random_layers(layers: int = 12, branches: int = 1, seed: int = 0) -> StageInstance:
    """A random layer graph: a source, chains next to each other, and a sink; sizes as of transformers of 2 to 10 G.

    A layer runs on one device, two or four, and may compute its activations again. Its inner layers are on any of the
    branches; with one branch it is a chain.
    """
    rng = random.Random(f"layers {layers} {branches} {seed}")

    def layer(v: int) -> Layer:
        time, parameters, activations = rng.uniform(5e-3, 30e-3), rng.uniform(20e6, 200e6), rng.uniform(0.1e9, 0.6e9)

        def tmpcs(t: int) -> tuple[Tmpc, ...]:
            # 16 bytes a parameter: weight and gradient of two bytes each, and three numbers of Adam of four
            keep = Tmpc("keep", (0.9 + 0.1 * t) * time / t, 2 * parameters / t, activations / t, 16 * parameters / t)
            return keep, replace(keep, id="recompute", time=keep.time * 4 / 3, activation_bytes=0.1 * activations / t)

        return Layer(v, {t: tmpcs(t) for t in (1, 2, 4)}, f"layer {v}")

    last, ends, edges = layers - 1, dict.fromkeys(range(branches), 0), []
    for v in range(1, last):
        branch = rng.randrange(branches)
        edges.append(Edge(ends[branch], v, rng.uniform(10e6, 100e6)))
        ends[branch] = v
    edges += [Edge(u, last, rng.uniform(10e6, 100e6)) for u in dict.fromkeys(ends.values()) if u > 0 or last == 1]
    return StageInstance(
        f"random-layers-{layers}-{branches}-{seed}", tuple(map(layer, range(layers))), tuple(edges), 8, 8 * 2.0**30,
        10e9, 16,
    )  # fmt: skip


def chain8_machines() -> HierarchicalInstance:
    """The eight layers on two machines of two devices: ten times the bandwidth inside a machine."""
    return on_machines(replace(chain8(), name="chain8-machines"), 2, 2, 10e9, 1e9)


def chain8_flushed() -> FlushedInstance:
    """The eight layers in a pipeline that is flushed after every batch of eight micro-batches."""
    return flush_pipeline(replace(chain8(), name="chain8-flushed"))


def chain8_strategy() -> StrategyInstance:
    """The eight layers for a trainer with 1F1B, interleaved 1F1B and ZB-H1, two chunks on a device at most."""
    schedules = (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED, Schedule.ZB_H1)
    return of_chain(replace(chain8(), name="chain8-strategy"), schedules, 2)


def placement() -> PlacementInstance:
    """Six operators with a branch in two stages of two replicas, on two machines of two devices."""
    sizes = {"embed": (2, 40), "left": (3, 8), "right": (4, 8), "join": (3, 8), "head": (4, 8), "loss": (1, 0)}
    operators = tuple(Operator(v, 1e-3 * time, 1e6 * size) for v, (time, size) in sizes.items())
    sent = ((0, (1, 2), 6), (1, (3,), 4), (2, (3,), 9), (3, (4,), 5), (4, (5,), 12))
    tensors = tuple(Tensor(source, targets, 1e6 * volume) for source, targets, volume in sent)
    graph = OperatorInstance(
        "placement", operators, tensors, num_stages=2, replicas=2, bandwidth_bytes_per_s=5e9, training=TrainingMemory()
    )
    return place_on(graph, two_level(4, 2, 12e9, 3e9))


def knapsack(**given: Any) -> KnapsackInstance:
    """A random knapsack as they arise for a stage of layers of a few kinds."""
    names = {"nodes": "num_nodes", "options": "num_options"}
    return tmpc_knapsack.generate(**{names.get(name, name): value for name, value in given.items()})


def strategies(**given: Any) -> OperatorStrategies:
    """A random graph of operators with strategies."""
    names = {"nodes": "num_nodes", "strategies": "num_strategies"}
    return operator_strategies.generate(**{names.get(name, name): value for name, value in given.items()})


ENTRIES = (
    Entry("chain8", "stage_partitioning", chain8, "a chain of eight layers, for a first look", MADE),
    Entry("diamond", "stage_partitioning", diamond, "four nodes with two branches", MADE),
    Entry(
        "random-layers",
        "stage_partitioning",
        random_layers,
        "a random chain or graph of layers, for populations",
        MADE,
        (
            Setting("layers", count_between(1, MAX_LAYERS), "layers of the graph", "12", metavar="L"),
            Setting("branches", parse_count, "chains between the first layer and the last", "1", metavar="N"),
            SEED,
        ),
    ),
    Entry(
        "chain8-machines", "hierarchical_partitioning", chain8_machines, "chain8 on two machines of two devices", MADE
    ),
    Entry("chain8-flushed", "flushed_partitioning", chain8_flushed, "chain8 with a flush after every batch", MADE),
    Entry("chain8-strategy", "training_strategy", chain8_strategy, "chain8 for a trainer of three schedules", MADE),
    Entry("placement", "pipeline_placement", placement, "six operators on two machines of two devices", MADE),
    Entry(
        "knapsack",
        "tmpc_knapsack",
        knapsack,
        "a random knapsack of a stage",
        MADE,
        (
            Setting("nodes", parse_count, "nodes of the stage", "40", metavar="N"),
            Setting("options", parse_count, "configurations of each node", "2", metavar="N"),
            Setting("kind", one_of(*tmpc_knapsack.KINDS), "how times depend on sizes", "layers", metavar="KIND"),
            SEED,
        ),
    ),
    Entry(
        "strategies",
        "operator_strategies",
        strategies,
        "a random graph of operators with strategies",
        MADE,
        (
            Setting("nodes", parse_count, "operators", "20", metavar="N"),
            Setting("strategies", parse_count, "strategies of an operator at most", "4", metavar="N"),
            SEED,
        ),
    ),
)
