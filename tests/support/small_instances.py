"""Small, awkward instances of every family, by seed, and the brute forces that know their optima where they are tiny.

One in five is of the space that `planner mine` searches, where the family has one (`drawn`); the others are of the
oracle's random instances (whole numbers with many ties, or floats, memory that is tight to the byte or too short). Half
of them are then reworked: other units, zeros, numbers of many magnitudes.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import branching_cases
import strategies
from oracles import (
    amp_strategy,
    device_mapping,
    flushed_partitioning,
    hierarchical_partitioning,
    layer_assignment,
    mesh_tiling,
    microbatch_schedule,
    operator_partitioning,
    operator_strategies,
    pipeline_placement,
    serving_strategy,
    stage_graph,
    stage_partitioning,
    tmpc_knapsack,
    training_strategy,
)

from formulations import FAMILIES
from formulations.contract.family import Claim, Family
from instances.errors import InstanceError
from instances.problems.stage_graph import StageGraph
from planner.files.load import family_of, validate

#: The same number in other units, most of them no power of two.
_UNITS = (0.1, 1 / 3, 0.7, 1e-6, 1e3, 1e6, 2.0**-20, 7.3e8)


def random_case(family: str, seed: int, number: int) -> Any:
    """The instance of that number; the same for the same seed, whatever was made before it."""
    rng = random.Random(f"{seed} {family} {number}")
    is_of_space = family_named(family).mining is not None and random.Random(f"space {seed} {number}").random() < 0.2
    found = _of_space(family, rng) if is_of_space else _GENERATORS[family](rng)
    made = reworked(rng, family_named(family), found) if rng.random() < 0.5 else found
    return made if _is_for_an_exact_method(made) else found


def _is_for_an_exact_method(instance: Any) -> bool:
    methods = (method for method in family_of(instance).methods if method.claim is Claim.EXACT)
    return any(method.refusal(instance) is None for method in methods)


def drawn(family: str, rng: random.Random, **limits: int) -> Any:
    """A random instance of the space that `planner mine` searches, within limits (default: those of the space)."""
    mining = family_named(family).mining
    assert mining is not None
    space = mining()
    genes = space.genes({**space.limits, **limits})
    while (found := genes.build(genes.random(rng))) is None:
        pass
    return validate(found)


def few_tiles(rng: random.Random, most: int = 5) -> Any:
    """A mesh of so many tiles at most, some of which cannot be covered: one in ten for the number of its devices."""
    is_whole = rng.random() < 0.9
    while True:
        found = drawn("mesh_tiling", rng, degree=3, microbatches=8)
        tiles, left = divmod(found.rows * len(found.intra_bytes_per_s), found.tp_degree * found.dp_degree)
        if (left == 0) is is_whole and tiles <= most:
            return replace(found, compute_s=rng.choice([0.0, 3.0]))


def _of_space(family: str, rng: random.Random) -> Any:
    return few_tiles(rng, 6) if family == "mesh_tiling" else drawn(family, rng)


def known_optimum(family: str, instance: Any) -> tuple[bool, float | None]:
    """Whether brute force solves it within milliseconds, and the optimum (``None``: infeasible)."""
    is_tiny, optimum = _ORACLES[family]
    if not is_tiny(instance):
        return False, None
    found = optimum(instance)
    return True, None if found is None or math.isinf(found) else found


@cache
def family_named(name: str) -> Family[Any, Any]:
    """The family of that name."""
    return next(family for family in FAMILIES if family.name == name)


def reworked(rng: random.Random, family: Family[Any, Any], instance: Any) -> Any:
    """The instance in other units and with a few numbers changed; as it was where its rules forbid the change."""
    kinds = {"time": 1.0, "size": 1.0, "rate": 1.0}
    if rng.random() < 0.7:
        kinds = {kind: rng.choice(_UNITS) if rng.random() < 0.6 else 1.0 for kind in kinds}
        if rng.random() < 0.6:  # one change of units everywhere: ties and tight memories stay what they are
            kinds["rate"] = kinds["size"] / kinds["time"]
    spoiled = rng.choice([0.0, 0.0, 0.05, 0.2])

    def changed(value: float, kind: str) -> float:
        value = float(value * kinds[kind])
        if rng.random() >= spoiled:
            return value
        change = rng.randrange(4)
        if change == 0 and kind != "rate":
            return 0.0
        if change == 1:
            return value * (1 + rng.choice([-1, 1]) * 10.0 ** -rng.randint(3, 14))
        if change == 2:
            return float(value * 10.0 ** rng.randint(-5, 5))
        return float(value * rng.uniform(0.5, 2))

    def walk(value: Any, kind: str | None) -> Any:
        if isinstance(value, Mapping):
            return {key: walk(each, _kind(key) or kind) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [walk(each, kind) for each in value]
        if kind is None or isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return changed(value, kind)

    try:
        return family.read(walk(family.to_json(instance), None), "reworked", {})
    except InstanceError:
        return instance


def _kind(key: str) -> str | None:
    """What the numbers under a key of an instance's JSON measure; ``None``: nothing with a unit."""
    if key.endswith("bytes_per_s") or "bandwidth" in key:
        return "rate"
    if "bytes" in key or key == "parameters":
        return "size"
    return "time" if key in ("time", "seconds") or key.endswith("_s") or "_s_per_" in key else None


def _stage_instance(rng: random.Random) -> Any:
    found = strategies.random_stage_instance(rng, max_nodes=4, max_devices=4, max_tmpcs=2)
    return strategies.with_wide_weights(found, rng, 4) if rng.random() < 0.1 else found


def _layers(rng: random.Random) -> Any:
    if rng.random() < 0.15:
        return layer_assignment.spread_instance(rng, 7, rng.random() < 0.5)
    return layer_assignment.random_instance(rng, 9)


def _strategy(rng: random.Random) -> Any:
    found = replace(
        amp_strategy.random_instance(rng), placement=rng.choice(["megatron", "megatron", "tiling", "oriented"])
    )
    if rng.random() < 0.3:  # too few layers for most degrees, or a batch that allows few
        found = replace(found, layers=found.layers[: rng.randint(1, 2)], tied=())
    return replace(found, global_batch=rng.choice([1, 1, 3, 6])) if rng.random() < 0.3 else found


def _hierarchical(rng: random.Random) -> Any:
    seed = rng.randrange(2**32)
    if rng.random() < 0.3:
        return hierarchical_partitioning.tight_graph(seed)
    return hierarchical_partitioning.random_hierarchical(seed, max_nodes=3)


def _flushed(rng: random.Random) -> Any:
    if rng.random() < 0.4:
        return flushed_partitioning.simulated(rng.randrange(2**32), max_tmpcs=2)
    return flushed_partitioning.random_flushed(rng.randrange(2**32), same_weights=rng.random() < 0.3, max_tmpcs=2)


def _branching(rng: random.Random) -> Any:
    if rng.random() < 0.3:
        return branching_cases.uneven_graph(rng.randrange(2**32), (1, 5))
    found = branching_cases.random_graph(
        rng.randrange(2**32), (1, 5), rng.randint(1, 4), series_parallel=rng.random() < 0.5
    )
    found = replace(found, memory_bytes=found.memory_bytes * 0.3) if rng.random() < 0.15 else found
    found = branching_cases.iteration_graph(rng) if rng.random() < 0.3 else found
    return branching_cases.with_shards(rng, found) if rng.random() < 0.15 else found


def _placement(rng: random.Random) -> Any:
    stages, replicas = rng.choice([(2, 2), (3, 1), (2, 1), (1, 3), (4, 1), (1, 1)])
    found = pipeline_placement.random_instance(rng, stages, replicas, rng.choice(["p2p", "allreduce", "full"]))
    return replace(found, objective="step", microbatches=rng.choice([1, 2, 4, 16])) if rng.random() < 0.25 else found


def _operators(rng: random.Random) -> Any:
    make = operator_partitioning.flushed_instance if rng.random() < 0.3 else operator_partitioning.random_instance
    return make(rng, 7)


_GENERATORS: dict[str, Callable[[random.Random], Any]] = {
    "stage_partitioning": _stage_instance,
    "tmpc_knapsack": lambda rng: tmpc_knapsack.random_instance(rng, 10, 5),
    "layer_assignment": _layers,
    "mesh_tiling": lambda rng: few_tiles(rng, 6),
    "amp_strategy": _strategy,
    "hierarchical_partitioning": _hierarchical,
    "flushed_partitioning": _flushed,
    "training_strategy": training_strategy.random_instance,
    "serving_strategy": serving_strategy.random_instance,
    "microbatch_schedule": microbatch_schedule.random_schedule,
    "operator_partitioning": _operators,
    "operator_strategies": operator_strategies.random_instance,
    "stage_graph": _branching,
    "device_mapping": lambda rng: device_mapping.random_mapping(rng, 5),
    "pipeline_placement": _placement,
}


def _always(_: Any) -> bool:
    return True


def _few_orders(instance: Any) -> bool:
    """Whether all orders of passes of all devices together are few."""
    return microbatch_schedule.num_orders(instance) <= 200


def _few_operators(instance: StageGraph) -> bool:
    uniform = instance.schedule == "uniform" and instance.device_graph is None
    return uniform and instance.num_operators <= 4 and (instance.objective == "tps" or instance.minibatch <= 4)


def _least_of_stages(instance: StageGraph) -> float:
    is_iteration = instance.objective == "iteration"
    return stage_graph.shortest_iteration(instance) if is_iteration else branching_cases.least_of_all(instance)


def _stage_time(instance: Any) -> float | None:
    found = stage_partitioning.brute_force(instance)
    return None if found is None else found.time


_ORACLES: dict[str, tuple[Callable[[Any], bool], Callable[[Any], float | None]]] = {
    "stage_partitioning": (_always, _stage_time),
    "tmpc_knapsack": (
        lambda instance: math.prod(len(node.options) for node in instance.nodes) <= 300,
        tmpc_knapsack.optimum,
    ),
    "layer_assignment": (_always, layer_assignment.optimum),
    "mesh_tiling": (_always, mesh_tiling.optimum),
    "amp_strategy": (lambda instance: instance.placement == "megatron", amp_strategy.brute_force),
    "hierarchical_partitioning": (
        lambda instance: len(instance.flat.layers) <= 3,
        lambda instance: hierarchical_partitioning.BruteForce(instance).solve(),
    ),
    "flushed_partitioning": (lambda instance: len(instance.flat.layers) <= 3, flushed_partitioning.brute_force),
    "training_strategy": (_always, training_strategy.optimum),
    "serving_strategy": (_always, serving_strategy.optimum),
    "microbatch_schedule": (_few_orders, microbatch_schedule.optimum),
    "operator_partitioning": (lambda instance: len(instance.operators) <= 4, operator_partitioning.optimum),
    "operator_strategies": (_always, operator_strategies.optimum),
    "stage_graph": (_few_operators, _least_of_stages),
    "device_mapping": (_always, device_mapping.least_seconds),
    "pipeline_placement": (_always, pipeline_placement.optimum),
}
