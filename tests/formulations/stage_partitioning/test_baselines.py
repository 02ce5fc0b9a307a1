"""The baselines of Piper's section 5: equal partitions, restrictions of the search space, and PipeDream."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.stage_partitioning import brute_force
from strategies import random_stage_instance
from thinned import thinned

import planner
from formulations.stage_partitioning import baselines
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import evaluate, violations
from formulations.stage_partitioning.paper import pipedream, pipedream_recursion
from formulations.stage_partitioning.paper.pipedream_recursion import Chain, Level, Memory, Replicated, partition
from instances.problems.stage_edits import linearise
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from solvers.outcome import Limits, Watch


def named(names: list[str], **changes: Any) -> StageInstance:
    """A chain of layers with these names, two TMPCs each; recomputation is slower and leaner."""
    tmpcs = (Tmpc("fast", 2.0, 1.0, 4.0, 1.0), Tmpc("lean", 3.0, 1.0, 1.0, 1.0))
    layers = tuple(Layer(v, {1: tmpcs, 2: tmpcs}, name) for v, name in enumerate(names))
    edges = tuple(Edge(v, v + 1, 1.0) for v in range(len(names) - 1))
    return StageInstance("named", layers, edges, **{**FIELDS, **changes})


FIELDS: dict[str, Any] = {"num_devices": 8, "memory_bytes": 1e9, "bandwidth": 1e3, "num_microbatches": 8}
BERT = ["embedding", *["Transformer layer"] * 5, "pooler"]


def test_larger_groups_come_last() -> None:
    row = baselines.row_of(named(BERT))
    assert row == baselines.CountedLayers([0], [1, 2, 3, 4, 5], [6])
    assert baselines.equal_groups(row, 2, apart=False) == [[0, 1, 2], [3, 4, 5, 6]]
    assert baselines.equal_groups(row, 2, apart=True) == [[0], [1, 2], [3, 4, 5], [6]]
    assert baselines.equal_groups(row, 5, apart=False) == [[0, 1], [2], [3], [4], [5, 6]]


@pytest.mark.parametrize(("names", "devices"), [(BERT, 7), (BERT[:-1], 6), (BERT[1:], 6), (BERT[1:-1], 5)])
def test_stages_of_their_own_as_long_as_there_are_devices(names: list[str], devices: int) -> None:
    """With a device for every group and every end, the longest pipeline has them all; with one less it has not."""
    for given in ({"num_devices": devices}, {"num_microbatches": devices}):
        assert max(map(len, baselines._partitions(named(names, **given)))) == devices
        fewer = {name: count - 1 for name, count in given.items()}
        assert max(map(len, baselines._partitions(named(names, **fewer)))) == devices - 1


def test_a_node_without_the_choice_takes_its_fastest() -> None:
    instance = named(["a", "b"])
    other = (Tmpc("slow", 9.0, 1.0, 0.0, 0.0), Tmpc("quick", 1.0, 1.0, 0.0, 0.0), Tmpc("middling", 4.0, 1.0, 0.0, 0.0))
    mixed = replace(instance, layers=(replace(instance.layers[0], tmpcs={1: other}), instance.layers[1]))
    choice = baselines.uniform_choice(mixed, 1, "lean")
    assert choice is not None and [x.id for x in choice] == ["quick", "lean"]


def test_without_transformer_layers_all_nodes_count() -> None:
    assert baselines.row_of(named(["a", "b", "c"])) == baselines.CountedLayers([], [0, 1, 2], [])
    # Nor is a model a row of transformer layers if something else stands between two of them.
    assert baselines.row_of(named(["transformer", "b", "transformer"])).layers == [0, 1, 2]


def test_equi_by_hand() -> None:
    """Memory for lean layers only: two groups of two at d = 4 beat one of four at d = 8 if weights are heavy."""
    instance = named(["a", "b", "c", "d"], memory_bytes=2 * (2 * 1.0 + 1.0))
    answer = baselines.solve(instance, Limits(), Watch())
    assert answer.plan is not None
    assert {stage.tmpcs[node] for stage in answer.plan.stages for node in stage.nodes} == {"lean"}
    assert [len(stage.nodes) for stage in answer.plan.stages] == [2, 2]
    assert [stage.dp_degree for stage in answer.plan.stages] == [4, 4]


def test_equi_with_a_given_sum_of_degrees() -> None:
    """Two stages are needed for the memory, so each takes half of the sum."""
    instance = named(["a", "b"], memory_bytes=3.5, num_devices=4, num_microbatches=4, exactly=True)
    plan = baselines.solve(instance, Limits(), Watch()).plan
    assert plan is not None and [stage.dp_degree for stage in plan.stages] == [2, 2]


def all_equal_plans(instance: StageInstance, nodes: list[int]) -> Iterator[StagePlan]:
    """Every plan of equal groups, one TMPC id for all nodes, by the definition."""
    ids = [instance.layers[v].id for v in nodes]
    for w in range(1, len(ids) + 1):
        small, more = divmod(len(ids), w)
        ends = list(accumulate([small + (z >= w - more) for z in range(w)]))
        groups = [tuple(ids[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
        for t in instance.tp_degrees:
            for d in range(1, instance.num_devices + 1):
                for name in {x.id for layer in instance.layers for x in layer.tmpcs.get(t, ())}:
                    choice = baselines.uniform_choice(instance, t, name)
                    if choice is not None:
                        chosen = {layer.id: x.id for layer, x in zip(instance.layers, choice, strict=True)}
                        yield StagePlan(tuple(Stage(S, d, t, {v: chosen[v] for v in S}) for S in groups))


def test_equi_is_the_best_equal_partition_and_never_beats_the_optimum(cases: int) -> None:
    found = 0
    for seed in range(cases):
        instance = random_stage_instance(seed)
        answer, best = baselines.solve(instance, Limits(), Watch()), brute_force(instance)
        order = baselines.row_of(instance).layers
        equal = [evaluate(instance, p) for p in all_equal_plans(instance, order) if not violations(instance, p)]
        if answer.plan is None:
            assert not equal and not answer.infeasible
            continue
        found += 1
        assert best is not None and violations(instance, answer.plan) == ()
        assert evaluate(instance, answer.plan) == pytest.approx(min(equal), rel=1e-12)
        assert answer.bound is not None and answer.bound <= best.time * (1 + 1e-12)
    assert found > cases // 4


def test_equi_by_devices(cases: int) -> None:
    """One pass over all partitions finds what a run for every number of devices finds."""
    for seed in range(cases):
        instance = random_stage_instance(seed, exactly=False, max_devices=4)
        times = baselines.by_devices(instance)
        for k in range(1, instance.num_devices + 1):
            plan = baselines.solve(replace(instance, num_devices=k), Limits(), Watch()).plan
            expected = math.inf if plan is None else evaluate(instance, plan)
            assert times[k] == pytest.approx(expected, rel=1e-12)


def test_equi_without_tensor_parallelism(cases: int) -> None:
    for seed in range(cases):
        plan = baselines.solve_without_tp(random_stage_instance(seed), Limits(), Watch()).plan
        assert plan is None or {stage.tp_degree for stage in plan.stages} == {1}


def test_pipedream_is_the_best_plan_on_a_chain_without_memory(cases: int) -> None:
    fits = over = 0
    for seed in range(max(20, cases)):
        instance = random_stage_instance(seed, shape="chain")
        plain = [replace(layer, tmpcs={1: layer.tmpcs[1]}) for layer in instance.layers if layer.tmpcs.get(1)]
        answer = pipedream.solve(instance, Limits(), Watch())
        if len(plain) < len(instance.layers):
            assert answer.plan is None and "tensor" in answer.reason
            continue
        best = brute_force(replace(instance, layers=tuple(plain), memory_bytes=1e30))
        if best is None:
            assert answer.plan is None
        elif answer.plan is not None:
            fits += 1
            assert evaluate(instance, answer.plan) == pytest.approx(best.time, rel=1e-9)
            assert violations(instance, answer.plan) == ()
        else:
            over += 1
            assert answer.stats["unlimited_objective"] == pytest.approx(best.time, rel=1e-9)
            more = replace(instance, memory_bytes=answer.stats["needed_memory_bytes"])
            shown = pipedream.solve(more, Limits(), Watch()).plan
            assert shown is not None and evaluate(more, shown) == pytest.approx(best.time, rel=1e-9)
    assert fits > 5 and over > 5


def test_pipedream_says_what_its_plan_needs() -> None:
    instance = named(["a", "b"], memory_bytes=5.0, num_devices=2)
    answer = pipedream.solve(instance, Limits(), Watch())
    assert answer.plan is None and not answer.infeasible
    assert "needs 10 B of " in answer.reason and "--memory 10" in answer.reason


def test_a_graph_that_is_no_chain_becomes_one(cases: int) -> None:
    """The chain of Kahn's algorithm with a stack, and the best plan on it; another order often has another one."""
    others = 0
    for seed in range(max(20, cases)):
        instance = random_stage_instance(seed, shape="random", memory="ample", exactly=False)
        plain = [replace(layer, tmpcs={1: layer.tmpcs[1]}) for layer in instance.layers if layer.tmpcs.get(1)]
        if len(plain) < len(instance.layers):
            continue
        free = replace(instance, layers=tuple(plain), memory_bytes=1e30)
        best = {order: brute_force(linearise(free, order)) for order in ("lifo", "id")}
        plan = pipedream.solve(replace(instance, memory_bytes=1e30), Limits(), Watch()).plan
        assert plan is not None and violations(linearise(instance, "lifo"), plan) == () and best["lifo"] is not None
        assert evaluate(instance, plan) == pytest.approx(best["lifo"].time, rel=1e-9)
        others += best["id"] is not None and best["id"].time != best["lifo"].time
    assert others > cases // 50


RESTRICTED = {"nodp": {"max_dp": 1}, "notp": {"tp": "1"}, "noar": {"forbid_tmpc": "activation recomp"}}
METHOD = {"equi": "equi", "equinotp": "equi-no-tp", "equinnotp": "equi-no-tp"}


@pytest.mark.paper
@pytest.mark.parametrize("most", [8, pytest.param(512, marks=pytest.mark.slow)])
@thinned("mode", [*RESTRICTED, *METHOD])
def test_released_baselines(published: Path, mode: str, most: int) -> None:
    """Every setting up to so many devices that the released program was run with."""
    rows = [json.loads(line) for line in (published / "piper" / "released_results.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["mode"] == mode and row["num_devices"] <= 512]
    assert len(rows) == (11 if mode == "equinnotp" else 20)
    for row in rows:
        if row["num_devices"] > most:
            continue
        instance = planner.load(
            published / "piper" / f"{row['instance']}.json",
            devices=row["num_devices"],
            memory=f"{row['memory_gib']}GiB",
            microbatches=row["num_microbatches"],
            bandwidth=row["bandwidth_bytes_per_s"],
            cost_model="released",
            layers=row["transformer_layers"],
            **RESTRICTED.get(mode, {}),
        )
        found = planner.solve(instance, method=METHOD.get(mode, "piper")).objective
        if row["tps"] is None:
            assert found is None, row
        else:
            assert found == pytest.approx(row["tps"], rel=3e-9, abs=1e-9), row


def own_times(
    chain: Chain, beside: bool, most: int, bandwidth: float, memory: Memory | None = None
) -> dict[int, float]:
    """The best time by PipeDream's costs on m workers, for every m up to ``most``, over all plans."""
    n, best = len(chain.times), dict.fromkeys(range(1, most + 1), math.inf)
    for count in range(1, n + 1):
        for inner in combinations(range(1, n), count - 1):
            ends = (0, *inner, n)
            for replicas in product(range(1, most + 1), repeat=count):
                if sum(replicas) > most:
                    continue
                slowest, later = 0.0, most
                for x, y, m in zip(ends, ends[1:], replicas, strict=False):
                    if memory is not None:
                        needed = sum(memory.activations[x:y]) * -(-later // m) + sum(memory.statics[x:y])
                        slowest, later = math.inf if needed > memory.limit else slowest, later - m
                    compute, sums = sum(chain.times[x:y]), 4 * (m - 1) / m * sum(chain.weights[x:y]) / bandwidth
                    slowest = max(slowest, (max(compute, sums) if beside else compute + sums) / m)
                    if x > 0:
                        over = [chain.cuts[x - 1], *([chain.cuts[y - 1]] if y < n else [])]
                        slowest = max(slowest, 2 * max(over) / m / bandwidth)
                best[sum(replicas)] = min(best[sum(replicas)], slowest)
    return best


@pytest.mark.parametrize("beside", [True, False])
def test_the_recursion_has_the_best_plan_by_its_own_costs(cases: int, beside: bool) -> None:
    """Forty chains at least: in fewer none has a limit between two numbers of micro-batches in flight."""
    for seed in range(max(40, cases)):
        rng = np.random.default_rng(seed)
        n, most, bandwidth = int(rng.integers(1, 6)), int(rng.integers(1, 5)), 2.0
        chain = Chain(*(rng.integers(0, 9, size).astype(float) for size in (n, n, n - 1)))
        level = [Level(most, bandwidth)]
        found = {workers: time for workers, time, _ in partition(chain, level, beside=beside)}
        assert found == pytest.approx(own_times(chain, beside, most, bandwidth), rel=1e-12)
        memory = Memory(*(rng.integers(0, 9, n).astype(float) for _ in range(2)), float(rng.integers(4, 60)))
        fitting = {workers: time for workers, time, _ in partition(chain, level, beside=beside, memory=memory)}
        best = own_times(chain, beside, most, bandwidth, memory)
        assert fitting == pytest.approx({workers: time for workers, time in best.items() if time < math.inf}, rel=1e-12)


def test_machines_inside_of_machines_by_hand() -> None:
    """Two layers on two machines of two devices: a machine runs a layer in two stages, or on two replicas."""
    chain = Chain(np.array([4.0, 4.0]), np.array([8.0, 0.0]), np.array([1.0]))
    levels = [Level(2, 8.0), Level(2, 1.0)]
    (one, whole, stages), (two, time, apart) = partition(chain, levels)
    # One machine: the first layer alone, as 4 (1/2) 8 / 8 = 2 bytes a second would do, too; both on two replicas, 4.
    assert (one, whole, stages) == (1, 4.0, [Replicated(0, 2, 2, ((0, 1),))])
    # Two machines: each layer on two devices takes 2, and the cut 2 at the outer bandwidth.
    assert (two, time, apart) == (2, 2.0, [Replicated(0, 1, 2, ((0, 1),)), Replicated(1, 2, 2, ((1, 1),))])
    # Weights between machines are dear: on one level of four devices of that bandwidth they are not replicated.
    *_, (four, flat, split) = partition(chain, [Level(4, 1.0)])
    assert (four, flat, split) == (4, 4.0, [Replicated(0, 1, 1), Replicated(1, 2, 3)])


@pytest.mark.parametrize("sync", ["beside", "after"])
def test_the_recursion_never_beats_the_optimum(cases: int, sync: str) -> None:
    fits = none = 0
    for seed in range(max(20, cases)):
        instance = random_stage_instance(seed)
        answer = pipedream_recursion.solve(instance, Limits(), Watch(), sync=sync)
        if answer.plan is None:
            none += "none fits" in answer.reason
            continue
        fits += 1
        best = brute_force(instance)
        assert violations(instance, answer.plan) == () and best is not None
        assert evaluate(instance, answer.plan) >= best.time * (1 - 1e-12)
    assert fits > 3 and none > 3
