"""Whether a small instance has a plan if some of its rules, requirements and layers are left out.

Written from docs/explaining.md and the definitions: no relaxed instance of the rooms is used, and no search of theirs.
"""

import itertools
import math
import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import combinations, islice, pairwise, permutations, product
from typing import Any

from branching_cases import depths, partitions, stage_bytes, tp_degrees
from oracles import training_strategy
from oracles.hierarchical_partitioning import BruteForce as HierarchicalBruteForce
from oracles.mesh_tiling import covers
from oracles.operator_partitioning import ROUNDING, shapes, stage_memory
from oracles.stage_partitioning import BruteForce
from small_instances import random_case
from strategies import random_stage_instance

from formulations.contract.what_if import Member
from instances.problems.stage_edits import change_tmpcs
from instances.problems.stage_partitioning import CostModel, StageInstance, Tmpc
from instances.requirements import Requirement, requirements_of

#: What is left out: rules, requirements (texts) and layers.
Left = tuple[set[int | str], set[int | str], set[int | str]]


def left(dropped: Collection[Member]) -> Left:
    """What members are, by kind."""
    rules, texts, layers = (
        {each.name for each in dropped if each.kind == kind} for kind in ("rule", "requirement", "layer")
    )
    return rules, texts, layers


def kept_requirements(instance: Any, texts: Collection[int | str]) -> list[Requirement]:
    return [each for each in requirements_of(instance) if str(each) not in texts]


def layers_plan(instance: Any, dropped: Left) -> bool:
    """Layer assignment: any number of stages if the rule is left out."""
    L, wanted = instance.num_layers, kept_requirements(instance, dropped[1])
    for stages in range(1, L + 1) if "stages" in dropped[0] else [instance.num_stages]:
        for cuts in combinations(range(1, L), stages - 1):
            ends = [0, *cuts, L]
            home = [stage for stage, (a, b) in enumerate(pairwise(ends)) for _ in range(a, b)]
            if all(each.holds(_of_layers(home, each)) for each in wanted):
                return True
    return False


def _of_layers(home: list[int], wanted: Requirement) -> int:
    if wanted.quantity == "layers":
        return home.count(wanted.arguments[0])
    if wanted.quantity == "stage_of":
        return home[wanted.arguments[0]]
    return int(home[wanted.arguments[0]] == home[wanted.arguments[1]])


def operators_plan(instance: Any, dropped: Left) -> bool:
    """Operator partitioning: as many stages as operators, 64 replicas of each, operators that need nothing."""
    rules, texts, free = dropped
    operators = tuple(
        replace(each, parameter_bytes=0.0, activation_bytes=0.0, memory_bytes=0.0) if each.id in free else each
        for each in instance.operators
    )
    instance, wanted = replace(instance, operators=operators), kept_requirements(instance, texts)
    n = len(operators)
    tried = shapes(instance)
    if rules & {"stages", "shape"}:
        tried = [(count, 0 if instance.num_devices else instance.replicas) for count in range(1, n + 1)]
    most = instance.num_devices or 0
    if rules & {"devices", "shape"}:
        stages = min(n, n if rules & {"stages", "shape"} else instance.num_stages)
        most = max(most, stages * max(64, instance.replicas))
        tried = [(count, 0) for count, _ in tried]
    limit = math.inf if "memory" in rules or instance.memory_bytes is None else instance.memory_bytes
    for count, each in tried:
        for home in product(range(count), repeat=n):
            if len(set(home)) < count or any(home[t.source] > home[v] for t in instance.tensors for v in t.targets):
                continue
            if not all(one.holds(_of_operators(instance, home, one)) for one in wanted):
                continue
            needs = [stage_memory(instance, home, stage, count) for stage in range(count)]
            if _replicas_fit(needs, limit, instance.pooled_memory, each, most):
                return True
    return False


def _of_operators(instance: Any, home: tuple[int, ...], wanted: Requirement) -> int:
    if wanted.quantity == "num_stages":
        return len(set(home))
    ids = [each.id for each in instance.operators]
    first, second = (home[ids.index(each)] for each in wanted.arguments)
    return int(first == second)


def _replicas_fit(needs: list[float], limit: float, pooled: bool, each: int, most: int) -> bool:
    """With the same replicas of every stage, or with ``most`` for all of them, each stage as few as it needs."""

    def fits(need: float, replicas: int) -> bool:
        return need <= limit * (replicas if pooled else 1) * (1 + ROUNDING)

    if each:
        return all(fits(need, each) for need in needs)
    least = [next((r for r in range(1, most + 1) if fits(need, r)), math.inf) for need in needs]
    return sum(least) <= most


def stage_graph_plan(instance: Any, dropped: Left) -> bool:
    """Stage graphs: each stage on the fewest devices that it fits on, for each size of micro-batches."""
    rules, texts, free = dropped
    names, wanted = list(instance.ids or range(instance.num_operators)), kept_requirements(instance, texts)
    empty = {names.index(each) for each in free}
    nothing = {"weight_bytes": 0.0, "activation_bytes": 0.0}
    operators = tuple(
        replace(each, tensor_parallel=tuple(replace(own, **nothing) for own in each.tensor_parallel), **nothing)
        if node in empty else each for node, each in enumerate(instance.operators)
    )  # fmt: skip
    edges = tuple(replace(each, bytes_per_sample=0.0) if each.target in empty else each for each in instance.edges)
    B, K, most_t = instance.minibatch, instance.num_devices, 4
    sizes = [b for b in range(1, B + 1) if B % b == 0] if "microbatches" in rules else instance.microbatch_sizes
    K = max(K, len(names) * B * most_t) if "devices" in rules else K
    limit = math.inf if "memory" in rules else instance.memory_bytes
    instance = replace(instance, operators=operators, edges=edges)
    for parts in partitions(list(range(len(names)))):
        place = {node: number for number, part in enumerate(parts) for node in part}
        ends = {(place[edge.source], place[edge.target]) for edge in edges}
        deep = depths(len(parts), {(u, v) for u, v in ends if u != v})
        if deep is None or not all(each.holds(_of_parts(place, parts, names, each)) for each in wanted):
            continue
        for size in sizes:
            least = [
                min((r * t for t in range(1, most_t + 1) if t in tp_degrees(instance, part, t)
                     for r in range(1, size + 1) if stage_bytes(instance, part, size, r, depth, t) <= limit),
                    default=math.inf)
                for part, depth in zip(parts, deep, strict=True)
            ]  # fmt: skip
            if sum(least) <= K:
                return True
    return False


def _of_parts(place: dict[int, int], parts: list[list[int]], names: list[Any], wanted: Requirement) -> int:
    if wanted.quantity == "num_stages":
        return len(parts)
    first, second = (place[names.index(each)] for each in wanted.arguments)
    return int(first == second)


def knapsack_plan(instance: Any, dropped: Left) -> bool:
    """TMPC knapsacks."""
    rules, texts, free = dropped
    limit = math.inf if "memory" in rules else instance.capacity_bytes * (1 + 1e-12)
    wanted = kept_requirements(instance, texts)
    for picked in product(*(node.options for node in instance.nodes)):
        needed = math.fsum(
            option.memory_bytes for node, option in zip(instance.nodes, picked, strict=True) if node.id not in free
        )
        ids = [option.id for option in picked]
        if needed <= limit and all(each.holds(ids.count(str(each.arguments[0]))) for each in wanted):
            return True
    return False


def has_flat_plan(instance: StageInstance, walk: type[BruteForce] = BruteForce) -> bool:
    """By brute force over plans that cost nothing: it ends at the first that is feasible."""
    return walk(_for_nothing(instance)).solve() is not None


def _for_nothing(instance: StageInstance) -> StageInstance:
    """The instance with plans that cost nothing: their memory is what it was."""
    free: dict[str, Any] = {"time": 0.0, "weight_bytes": 0.0, "sync_forward_bytes": {}, "sync_backward_bytes": {}}
    edges = tuple(replace(edge, bytes=0.0) for edge in instance.edges)
    return replace(change_tmpcs(instance, lambda x: replace(x, **free)), edges=edges)


def flat_without(instance: StageInstance, dropped: Collection[Member]) -> StageInstance:
    """The instance without these members, as docs/explaining.md says what is left out becomes."""
    names = {each.name for each in dropped if each.kind == "rule"}
    K, N = instance.num_devices, instance.num_microbatches
    largest = max(t for layer in instance.layers for t in layer.tmpcs)
    if "devices" in names:
        K = max(K, N * largest)
    if "microbatches" in names:
        N = next(multiple for multiple in range(N, 2 * max(K, N) + 1, N) if multiple >= K)
    nothing = {t: (Tmpc("nothing", 0.0, 0.0, 0.0, 0.0),) for t in range(1, largest + 1)}
    free = {each.name for each in dropped if each.kind == "layer"}
    return replace(
        instance,
        layers=tuple(replace(each, tmpcs=nothing) if each.id in free else each for each in instance.layers),
        num_devices=K,
        num_microbatches=N,
        exactly=instance.exactly and "microbatches" not in names,
        max_dp_degree=None if "max-dp" in names else instance.max_dp_degree,
        cost_model=CostModel.PAPER if "cost-model" in names else instance.cost_model,
        memory_bytes=1e12 if "memory" in names else instance.memory_bytes,
    )


def flat_plan(instance: Any, dropped: Left) -> bool:
    """Stage partitioning."""
    return has_flat_plan(flat_without(instance, _members(dropped)))


class _AllInFlight(BruteForce):
    """GPipe: replicas hold their shares of all micro-batches."""

    def _price(self, stage: Any, d: int, t: int, y: int) -> Any:
        assert y
        return super()._price(stage, d, t, -(-self.instance.num_microbatches // d))


def flushed_plan(instance: Any, dropped: Left) -> bool:
    """Flushed partitioning: memory as the schedule says, all else as without flushes."""
    is_gpipe = instance.schedule == "gpipe" and "schedule" not in dropped[0]
    return has_flat_plan(flat_without(instance.flat, _members(dropped)), _AllInFlight if is_gpipe else BruteForce)


def _members(dropped: Left) -> list[Member]:
    rules, _, free = dropped
    return [*(Member("rule", each, "") for each in rules), *(Member("layer", each, "") for each in free)]


def hierarchical_plan(instance: Any, dropped: Left) -> bool:
    """Hierarchical partitioning: as many machines as micro-batches, devices as these times the largest degree."""
    rules, _, free = dropped
    K1, K2, flat = instance.devices_per_machine, instance.num_machines, instance.flat
    if "devices" in rules:
        K1 = max(K1, flat.num_microbatches * max(t for layer in flat.layers for t in layer.tmpcs))
    if "machines" in rules:
        K2 = max(K2, flat.num_microbatches)
    flat = flat_without(replace(flat, num_devices=K1 * K2), _members((rules - {"devices", "machines"}, set(), free)))
    model = "precise" if "memory-model" in rules else instance.memory_model
    tried = replace(instance, flat=_for_nothing(flat), devices_per_machine=K1, num_machines=K2, memory_model=model)
    return HierarchicalBruteForce(tried).solve() is not None


def mesh_plan(instance: Any, dropped: Left) -> bool:
    """Mesh tiling: tiles of any one size if the rule is left out."""
    devices = instance.rows * len(instance.intra_bytes_per_s)
    wanted = kept_requirements(instance, dropped[1])
    sizes = [(instance.tp_degree, instance.dp_degree)]
    if "tiles" in dropped[0]:
        sizes = list(product(range(1, devices + 1), repeat=2))
    for tp, dp in sizes:
        for cover in covers(replace(instance, tp_degree=tp, dp_degree=dp)):
            if not wanted or any(_meets(order, wanted) for order in permutations(cover)):
                return True
    return False


def _meets(order: tuple[tuple[int, int, int, int], ...], wanted: list[Requirement]) -> bool:
    places = ("row", "column", "rows", "columns")
    stages = [each.arguments[0] for each in wanted]
    values = [
        order[stage][places.index(each.quantity)] if stage < len(order) else 0
        for each, stage in zip(wanted, stages, strict=True)
    ]
    return all(each.holds(value) for each, value in zip(wanted, values, strict=True))


def strategy_plan(instance: Any, dropped: Left) -> bool:
    """Training strategies: each layout of the definition, by the oracle's own memory; degrees meet what is required."""
    (rules, texts, free), flat = dropped, instance.flat
    largest = max(t for layer in flat.layers for t in layer.tmpcs)
    levels, schedules = instance.levels, (*instance.schedules, *["1f1b"] * ("schedule" in rules))
    if "sharding" in rules:
        parts = (0.0, instance.sharded_per_weight, instance.gradients_per_weight, 1.0)
        held = [(x.static_bytes, x.weight_bytes) for each in flat.layers for own in each.tmpcs.values() for x in own]
        more = (k for k in range(4) if all(static >= sum(parts[: k + 1]) * (1 - 1e-12) * own for static, own in held))
        levels = tuple(sorted({*levels, *more}))
    nothing = {t: (Tmpc("nothing", 0.0, 0.0, 0.0, 0.0),) for t in range(1, largest + 1)}
    layers = tuple(replace(x, tmpcs=nothing, weight_times={}) if x.id in free else x for x in flat.layers)
    most = 1000 if "devices" in rules else flat.num_devices
    memory, dp = (1e15 if "memory" in rules else flat.memory_bytes), None if "max-dp" in rules else flat.max_dp_degree
    flat = replace(flat, layers=layers, num_devices=most, memory_bytes=memory, max_dp_degree=dp)
    own = {v: replace(x, expert_weight_bytes=0.0) if v in free else x for v, x in instance.exchanged.items()}
    tried = replace(instance, flat=flat, sharding=levels, schedules=schedules, exchanged=own, requirements=())
    several = {"ep": "ep_degrees", "shard-groups": "shard_groups"}
    tried = replace(tried, **{several[name]: (1, *getattr(tried, several[name])) for name in rules & {*several}})
    wanted = kept_requirements(instance, texts)
    for degrees, fits in training_strategy.fitting(tried):
        if all(each.holds(degrees[each.quantity]) for each in wanted) and any(True for _ in fits):
            return True
    return False


HAS_PLAN: dict[str, Callable[[Any, Left], bool]] = {
    "stage_partitioning": flat_plan, "layer_assignment": layers_plan, "operator_partitioning": operators_plan,
    "stage_graph": stage_graph_plan, "tmpc_knapsack": knapsack_plan, "flushed_partitioning": flushed_plan,
    "hierarchical_partitioning": hierarchical_plan, "mesh_tiling": mesh_plan,
    "training_strategy": strategy_plan,
}  # fmt: skip

NOTHING: Left = (set(), set(), set())


def small(name: str) -> Iterator[tuple[int, Any]]:
    """Small instances, with or without a plan, with their numbers."""
    for number in itertools.count():
        rng = random.Random(f"conflict {name} {number}")
        instance = _flat(number) if name == "stage_partitioning" else _short(name, random_case(name, 37, number), rng)
        if instance is not None:
            yield number, instance


def infeasible(name: str, cases: int) -> Iterator[tuple[int, Any]]:
    """So many small instances without a plan, with their numbers."""
    without = ((number, each) for number, each in small(name) if not HAS_PLAN[name](each, NOTHING))
    return islice(without, cases)


def _flat(seed: int) -> StageInstance:
    """A chain or graph of few micro-batches: of little memory, or of degrees that cannot sum to the batch."""
    rng, fixed = random.Random(f"explain {seed}"), dict[str, Any]()
    if seed % 3:
        fixed["memory"] = rng.choice(["starved", "any", "any", "tight"])
    else:
        fixed["memory"] = rng.choice(["planted", "ample", "any"])
        fixed |= {"max_dp": True, "exactly": True, "cost_model": rng.choice([CostModel.PAPER, CostModel.RELEASED])}
    instance = random_stage_instance(seed, max_nodes=4, max_devices=4, max_tmpcs=2, **fixed)
    return replace(instance, num_microbatches=min(instance.num_microbatches, 1 + seed % 4))


def _short(name: str, instance: Any, rng: random.Random) -> Any:
    """The instance with little memory, other stages or a few requirements; ``None``: it is too large, or of no use."""
    if name == "layer_assignment":
        instance = replace(instance, name="short") if instance.num_layers <= 7 else None
        return instance and _required(instance, rng, range(instance.num_layers), range(instance.num_stages))
    if name == "operator_partitioning":
        if len(instance.operators) > 5:
            return None
        if instance.memory_bytes is None or rng.random() < 0.7:
            instance = replace(instance, memory_bytes=float(rng.choice([0, 1, 5, 10, 20, 30, 40])))
        ids = [each.id for each in instance.operators]
        return instance if instance.num_stages is None or rng.random() < 0.6 else _required(instance, rng, ids, None)
    if name == "stage_graph":
        if instance.num_operators > 4 or instance.device_graph is not None:
            return None
        if rng.random() < 0.5:
            instance = replace(instance, memory_bytes=instance.memory_bytes * rng.choice([0.2, 0.5, 0.8]))
        if rng.random() < 0.3:
            instance = replace(instance, microbatches=(rng.choice(instance.microbatch_sizes),))
        ids = list(instance.ids or range(instance.num_operators))
        return instance if rng.random() < 0.3 else _required(instance, rng, ids, None)
    if name == "mesh_tiling":
        if instance.rows * instance.columns > 6:
            return None
        made = [
            Requirement(
                rng.choice(["row", "column", "rows", "columns"]),
                (rng.randrange(max(1, instance.num_stages)),),
                rng.choice(["<=", ">=", "=="]),
                rng.randint(0, 3),
            )
            for _ in range(rng.choice([0, 1, 2]) if instance.num_stages else 0)
        ]
        return replace(instance, requirements=tuple(dict.fromkeys(map(str, made))))
    if name in ("flushed_partitioning", "hierarchical_partitioning"):
        flat = instance.flat
        memory = flat.memory_bytes * rng.choice([0.6, 1.0, 1.5])
        flat = replace(flat, num_microbatches=min(flat.num_microbatches, rng.randint(1, 4)), memory_bytes=memory)
        return replace(instance, flat=flat) if len(flat.layers) <= 2 else None
    if name == "training_strategy":
        flat = replace(instance.flat, memory_bytes=instance.flat.memory_bytes * rng.choice([0.1, 0.3, 1.0]))
        instance = replace(instance, flat=flat)
        if len(flat.layers) > 4 or flat.num_microbatches > 4:
            return None
        more = rng.choice([None, None, training_strategy.sharing_more, training_strategy.exchanging])
        instance = instance if more is None else more(rng, instance)
        if more is not None and rng.random() < 0.3:
            ep = (2,) if 2 in instance.ep_degrees else instance.ep_degrees
            instance = replace(instance, shard_groups=rng.choice([(1,), (2,)]), ep_degrees=ep)
        names = rng.sample(["pp_degree", "tp_degree", "dp_degree", "num_stages"], rng.choice([0, 0, 1, 2]))
        made = [Requirement(each, (), rng.choice(["<=", ">=", "=="]), rng.randint(1, 3)) for each in names]
        return replace(instance, requirements=tuple(map(str, made)))
    if math.prod(len(node.options) for node in instance.nodes) > 300 or not instance.nodes:
        return None
    instance = replace(instance, capacity_bytes=instance.capacity_bytes * rng.choice([0.1, 0.5, 1.0]))
    options = sorted({option.id for node in instance.nodes for option in node.options})
    wanted = Requirement("num_chosen", (rng.choice(options),), rng.choice(["<=", ">=", "=="]), rng.randint(0, 3))
    return replace(instance, requirements=(str(wanted),)) if rng.random() < 0.4 else instance


def _required(instance: Any, rng: random.Random, nodes: Collection[Any], stages: Collection[int] | None) -> Any:
    """The instance with one to three requirements on stages."""
    found = []
    for _ in range(rng.randint(1, 3)):
        relation = rng.choice(["<=", ">=", "=="])
        pair = tuple(rng.sample(list(nodes), 2)) if len(nodes) > 1 else None
        if pair and rng.random() < 0.4:
            found.append(Requirement("same_stage", pair, "==", rng.randint(0, 1)))
        elif stages is None:
            found.append(Requirement("num_stages", (), relation, rng.randint(1, 4)))
        elif rng.random() < 0.5:
            found.append(Requirement("layers", (rng.choice(list(stages)),), relation, rng.randint(0, 4)))
        else:
            found.append(Requirement("stage_of", (rng.choice(list(nodes)),), relation, rng.randint(0, 3)))
    return replace(instance, requirements=tuple(dict.fromkeys(map(str, found))))
