"""Devices that share operators: costs by hand, every plan by brute force, and Piper where both problems meet."""

import json
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from branching_cases import (
    iteration_graph,
    least_of_all,
    passes_s,
    random_graph,
    reduce_s,
    stage_bytes,
    tp_degrees,
    with_shards,
)
from oracles.stage_graph import shortest_iteration

import planner
from formulations import stage_partitioning
from formulations.contract.family import Answer
from formulations.stage_graph import FAMILY
from formulations.stage_graph.certificate.checker import CHECKER
from formulations.stage_graph.costs.costs import Costs, shortage
from formulations.stage_graph.costs.tables import StageTables
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import all_reduce_s, evaluate, memory_bytes, pass_times, violations
from formulations.stage_graph.definition.settings import memory_pressure
from formulations.stage_graph.models import cpsat, cpsat_orders, milp_columns
from formulations.stage_graph.models.data import Data, longest_s
from formulations.stage_graph.models.first_plan import unshared
from formulations.stage_graph.upsets.bounds import simple_bound
from instances.errors import InstanceError
from instances.problems.stage_graph import AffineTime, DeviceGraph, Operator, OperatorEdge, Shard, StageGraph, to_json
from instances.problems.stage_partitioning import CostModel, Edge, KeptTensor, Layer, StageInstance, Tmpc
from planner.process.errors import UsageError
from planner.training.runtime.layout import layout
from solvers.outcome import Limits, Watch
from solvers.scaling import Scale

SECOND, TWO = AffineTime(0.0, 1.0), AffineTime(0.0, 2.0)
#: Half of all, 8 bytes a sample that are all-reduced; half of what is sent is spread, nothing of what comes in.
HALF = Shard(2, AffineTime(0.0, 0.5), SECOND, 5.0, 3.0, 8.0, 0.0, 0.5)
#: a -> b -> c of 4 and 2 bytes a sample; c cannot be shared.
THREE = StageGraph(
    "three",
    (
        Operator("a", SECOND, TWO, 10.0, 6.0, (replace(HALF, spread_inputs=1.0),)),
        Operator("b", SECOND, TWO, 10.0, 6.0, (HALF,)),
        Operator("c", SECOND, TWO, 10.0, 6.0),
    ),
    (OperatorEdge(0, 1, 4.0), OperatorEdge(1, 2, 2.0)),
    num_devices=6,
    memory_bytes=200.0,
    bandwidth_bytes_per_s=2.0,
    latency_s=0.25,
    minibatch=4,
    inner_bandwidth_bytes_per_s=4.0,
    devices_per_node=2,
)
#: b on two replicas of two devices, a and c on one device each.
PLAN = StagePlan(
    (Stage((0,), 1, 2, 4), Stage((1,), 4, 2, 4, tp_degree=2), Stage((2,), 1, 2, 2)), ((0, 1), (1, 2)), idle_devices=0
)


def test_costs_by_hand() -> None:
    # A replica of b has one sample: 8 bytes around two devices of a node, then 4 bytes that are not spread and 2 that
    # are spread by half; four devices are in two nodes.
    moved = (2 * 1 / 2 * 8 / 4 + 2 * 2 * 0.25) + (4 / 2 + 0.25) + (2 * 1.5 / 2 + 0.25)
    assert pass_times(THREE, PLAN, 1) == (0.5 + moved, 1 + moved)
    assert all_reduce_s(THREE, PLAN.stages[1]) == 2 * 1 / 2 * 5 / 2 + 2 * 2 * 0.25
    # Two micro-batches of a sample are in flight, each with 4 bytes that came in and are whole on both devices.
    assert memory_bytes(THREE, PLAN.stages[1]) == 4 * 5 + 2 * (3 + 4)
    assert violations(THREE, PLAN) == ()
    assert evaluate(THREE, PLAN) == (0.5 + 1 + 2 * moved) / 2 + 3.5 / 4 == 8.625
    costs = Costs(THREE, 2)
    assert costs.tps(0b10, 2, 2) == 8.625
    assert StageTables(costs, [0b10, 0b110], np.array([2])).tps(2).tolist() == [[8.625], [math.inf]]  # not of c


def test_each_end_spreads_its_own() -> None:
    """On two devices a takes an eighth and spreads three bytes for one: 1 + 2 (4 + 1/4), less than 8 + 2 (1 + 1/4)."""
    eighth, four = AffineTime(0.0, 0.5), AffineTime(0.0, 4.0)
    shard = Shard(2, eighth, eighth, 1.0, 0.0, 0.0, 0.0, 3.0)
    made = Operator("a", four, four, 1.0, 0.0, (shard,)), Operator("b", eighth, eighth, 1.0, 0.0)
    instance = StageGraph("two", made, (OperatorEdge(0, 1, 1.0),), 4, 6.0, 1.0, 0.25, 1)
    assert value(instance, "levels") == 9.5 == pytest.approx(value(instance, "cpsat"))
    assert value(replace(instance, objective="iteration"), "cpsat-orders") == 9.5 + 1 + 2 * 1.25
    assert value(replace(instance, requirements=("devices_of(0) == 2", "idle_devices == 1")), "cpsat") == 9.5
    many = replace(instance, operators=made[:1] * 20, edges=())
    assert Data(many, ((1,),), Scale(30), 2**36, is_beaten=True).capacities == []


def test_bounds_by_hand() -> None:
    """Of an operator that takes a fifth of the time on two devices and whose weights, whole on both, fit on one."""
    tenth = AffineTime(0.0, 0.1)
    shard = Shard(2, tenth, tenth, 9.0, 0.0)
    one = StageGraph("one", (Operator("a", SECOND, SECOND, 9.0, 0.0, (shard,)),), (), 3, 36.0, 1.0, 0.0, 1)
    assert simple_bound(Costs(one)) == pytest.approx(least_of_all(one)) == 0.2
    two = replace(one, operators=one.operators * 2)
    assert shortage(two) == "" != shortage(replace(two, num_devices=1)) and memory_pressure(two) == 72 / 108
    halves = replace(one.operators[0], tensor_parallel=(replace(shard, degree=3, weight_bytes=4.5),))
    short = replace(one, operators=(halves,), memory_bytes=18.0)
    repairs = planner.explain(replace(short, num_devices=1)).repairs
    assert shortage(short) == "" and ("devices", 3) in [(each.change, each.amount) for each in repairs]
    far = replace(one.operators[0], tensor_parallel=(replace(shard, spread_outputs=99.0),))
    far = replace(one, operators=(far, far), edges=(OperatorEdge(0, 1, 1.0),))
    assert longest_s(far) >= Costs(far, 2).tps(0b1, 1, 1) == 200.2


def _broken(stage: Stage, idle: int = 0) -> set[str]:
    stages = (PLAN.stages[0], stage, PLAN.stages[2])
    return {each.rule for each in violations(THREE, replace(PLAN, stages=stages, idle_devices=idle))}


def test_each_rule_on_degrees() -> None:
    own = PLAN.stages[1]
    assert _broken(replace(own, devices=3), 1) == {"tp_degree"}  # no multiple of two
    assert _broken(replace(own, tp_degree=4)) == _broken(replace(own, tp_degree=0)) == {"tp_degree"}  # not declared
    assert _broken(replace(own, nodes=(), tp_degree=0)) >= {"nodes", "tp_degree"}
    # Replicas have a sample each, whatever their devices.
    small = [replace(stage, microbatch=1, in_flight=3 - place) for place, stage in enumerate(PLAN.stages)]
    two = StagePlan(tuple(small), PLAN.edges)
    assert [str(each) for each in violations(THREE, two)] == ["devices: stage 1 has 2 replicas for micro-batches of 1"]
    small[1] = replace(small[1], devices=2)
    assert violations(THREE, replace(two, stages=tuple(small), idle_devices=2)) == ()
    with pytest.raises(ValueError, match="operator 2 does not declare"):
        evaluate(THREE, StagePlan((Stage((2,), 2, 1, 1, tp_degree=2),), ()))
    needed = memory_bytes(THREE, PLAN.stages[0])  # of all stages the most
    assert violations(replace(THREE, memory_bytes=needed), PLAN) == ()
    assert {each.rule for each in violations(replace(THREE, memory_bytes=math.nextafter(needed, 0)), PLAN)} == {
        "memory"
    }


def test_files_say_what_is_not_derived() -> None:
    content = to_json(THREE)
    assert FAMILY.read(json.loads(json.dumps(content)), "x", {}) == THREE
    content["operators"][2]["tensor_parallel"] = [{"degree": 2}, {"degree": 4, "forward": {"per_sample_s": 0.125}}]
    two, four = FAMILY.read(content, "x", {}).operators[2].tensor_parallel
    assert two == Shard(2, AffineTime(0.0, 0.5), AffineTime(0.0, 1.0), 5.0, 6.0, 0.0, 1.0, 1.0)
    assert four == Shard(4, AffineTime(0.0, 0.125), AffineTime(0.0, 0.5), 2.5, 6.0, 0.0, 1.0, 1.0)
    content["operators"][2] |= {"forward": {"samples": [1, 2], "seconds": [2, 3]}, "tensor_parallel": [{"degree": 2}]}
    assert FAMILY.read(content, "x", {}).operators[2].tensor_parallel[0].forward.seconds == (1.0, 1.5)
    assert "tensor_parallel" not in to_json(unshared(THREE))["operators"][0]
    stages = FAMILY.plan_to_json(THREE, PLAN)["stages"]
    assert [stage.get("tp_degree") for stage in stages] == [None, 2, None]
    assert FAMILY.plan_from_json(THREE, json.loads(json.dumps(FAMILY.plan_to_json(THREE, PLAN)))) == PLAN


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ([{"degree": 1}], "tensor_parallel[0].degree is 1; expected a degree from 2 on"),
        ([{"degree": 2}, {"degree": 2}], "tensor_parallel[1].degree is 2"),
        ([{}], "tensor_parallel[0].degree is missing"),
        ([{"degree": 2, "forward": {"samples": [1, 2], "seconds": [2, 1]}}], "tensor_parallel[0].forward"),
        ([{"degree": 2, "spread_inputs": -1}], "tensor_parallel[0].spread_inputs is -1"),
    ],
)
def test_bad_degrees_are_one_line(shards: list[dict[str, Any]], message: str) -> None:
    content = to_json(THREE)
    content["operators"][2]["tensor_parallel"] = shards
    with pytest.raises(InstanceError) as caught:
        FAMILY.read(content, "bad.json", {})
    assert f"operators[2].{message}" in str(caught.value) and "\n" not in str(caught.value)


def test_columns_have_degrees_that_all_their_operators_declare() -> None:
    data = milp_columns.model_of(THREE, complete=True).data
    assert {(nodes >> 2, t) for nodes, t in zip(data.masks, data.tp_degrees, strict=True)} == {(1, 1), (0, 1), (0, 2)}


def test_device_graphs_have_no_degrees() -> None:
    links = tuple(tuple(float(u != v) for v in range(6)) for u in range(6))
    with pytest.raises(InstanceError, match=r"operators\[0\].tensor_parallel"):
        FAMILY.check(replace(THREE, device_graph=DeviceGraph((9.0,) * 6, links)), "x")


def test_who_takes_them() -> None:
    """Every method but these refuses in a line, and so do certificates and runs."""
    takes = {method.name for method in FAMILY.methods if method.supports(THREE) is None}
    recursions = {"graphpipe", "pipedream", "piper-dp"}
    assert takes == {"levels", "cpsat", "milp-columns", *recursions}
    iteration = replace(THREE, objective="iteration")
    assert {method.name for method in FAMILY.methods if method.supports(iteration) is None} == {
        "cpsat-orders", *recursions
    }  # fmt: skip
    assert [FAMILY.choose(each, Limits(), True)[0] for each in (THREE, iteration)] == ["levels", "cpsat-orders"]
    with pytest.raises(
        UsageError, match=r"degrees, for graphpipe, .* alone .*\); try graphpipe, pipedream, piper-dp, levels, cpsat"
    ):
        planner.solve(THREE, method="graphpipe-plus")
    with pytest.raises(UsageError, match=r"alone \(--schedule uniform\)"):
        planner.solve(replace(THREE, schedule="kfkb"), method="graphpipe")
    with pytest.raises(UsageError, match=r"alone \(--schedule uniform\)\); no other method does either"):
        planner.solve(replace(THREE, schedule="kfkb"), method="configurations")
    with pytest.raises(Exception, match="tensor_parallel"):
        CHECKER.read(to_json(THREE))
    found = planner.crosscheck(THREE, methods=["levels"]).uncertified
    assert found == {"levels": "the checker refuses: tensor_parallel: none only"}
    with pytest.raises(UsageError, match="tp_degree 2 of stage 1"):
        layout(THREE, PLAN, "stage_graph")


def value(instance: StageGraph, method: str) -> float:
    """What an exact method has proved; ``inf``: that there is no plan."""
    found: Answer[StagePlan] = FAMILY.method(method).solve(instance, Limits(), Watch())
    if found.plan is None:
        assert found.infeasible
        return math.inf
    objective = evaluate(instance, found.plan)
    assert violations(instance, found.plan) == () and found.bound is not None
    assert objective * (1 - 1e-6) <= found.bound <= objective
    return objective


def shared(seed: int) -> StageGraph:
    rng = random.Random(f"shared {seed}")
    found = random_graph(seed, (1, 4), rng.randint(2, 5), series_parallel=rng.random() < 0.5)
    tier = {"devices_per_node": rng.randint(1, 4), "inner_bandwidth_bytes_per_s": rng.choice((2.0, 500.0))}
    found = replace(found, **tier) if rng.random() < 0.5 else found
    return with_shards(rng, found)


def test_costs_of_stages_are_those_of_brute_force(cases: int) -> None:
    """Of any operators, replicas and degree: in tables, one by one, and in whole units of both models."""
    for seed in range(20 * cases):
        instance, rng = shared(seed), random.Random(f"stage {seed}")
        part = sorted(rng.sample(range(instance.num_operators), rng.randint(1, instance.num_operators)))
        t = rng.choice([t for t in instance.tp_degrees if t in tp_degrees(instance, part, t)])
        r, size = rng.randint(1, instance.num_devices // t), rng.choice(instance.microbatch_sizes)
        if r > size:
            continue
        forward, backward = passes_s(instance, part, size, r, t)
        reduced = reduce_s(instance, part, r, t)
        seconds = (forward + backward) / size + reduced / instance.minibatch
        costs, nodes = Costs(instance, t), sum(1 << v for v in part)
        assert costs.tps(nodes, size, r) == pytest.approx(seconds)
        assert StageTables(costs, [nodes], np.array([r])).tps(size)[0, 0] == pytest.approx(seconds)
        held = memory_bytes(instance, Stage(tuple(part), r * t, size, size, tp_degree=t))
        assert costs.memory(nodes, size, r, size) == held == stage_bytes(instance, part, size, r, 1, t)
        assert simple_bound(Costs(instance)) <= least_of_all(replace(instance, memory_bytes=1e9))
        assert longest_s(instance) >= seconds

        data = Data(instance, ((size,),), Scale(30), 1)
        c = (r, t) if data.is_shared else (r,)
        assert data.samples.get((*c, 1), -(-size // r)) == -(-size // r)
        left = [e for e, edge in enumerate(instance.edges) if edge.source in part and edge.target not in part]
        entered = [e for e, edge in enumerate(instance.edges) if edge.target in part and edge.source not in part]
        spread = data.spreading.get(c, ([0] * len(instance.edges),) * 2)
        units = sum(data.passes[*c, 0][v] for v in part) + data.waiting(c)
        units += sum(data.sending[*c, 0][e] for e in (*left, *entered))
        units += sum(spread[0][e] for e in left) + sum(spread[1][e] for e in entered)
        assert seconds - 20 / 2**30 <= units / 2**30 <= seconds * (1 + 1e-12)
        for kind, once in (("F", forward), ("B", backward)):
            own, sent, got = cpsat_orders._of_pass(data, size, c, kind)
            units = sum(own[v] for v in part) + sum(sent[e] for e in left) + sum(got[e] for e in entered)
            assert once - 20 / 2**30 <= units / 2**30 <= once * (1 + 1e-12)
        weights, waits = cpsat_orders._of_ring(data, c)
        units = sum(weights[v] for v in part) + waits if r > 1 else 0
        assert reduced - 20 / 2**30 <= units / 2**30 <= reduced * (1 + 1e-12)


def test_every_plan_of_random_models(many: int) -> None:
    better, none = 0, 0
    for seed in range(many or 14):
        instance = shared(seed)
        optimum = least_of_all(instance)
        assert value(instance, "levels") == pytest.approx(optimum, rel=1e-9), seed
        for method in ("cpsat", "milp-columns"):
            assert value(instance, method) == pytest.approx(optimum, rel=1e-6), seed
        without = least_of_all(unshared(instance))
        assert optimum <= without
        better, none = better + (optimum < without), none + (optimum == math.inf)
    assert better and none


def test_every_plan_of_random_iterations(many: int) -> None:
    better = 0
    for number in range(many // 4 or 8):
        rng = random.Random(f"shared iterations {number}")
        instance = with_shards(rng, replace(iteration_graph(rng), num_devices=rng.randint(2, 4)))
        optimum = shortest_iteration(instance)
        assert value(instance, "cpsat-orders") == pytest.approx(optimum, rel=2e-6), number
        better += optimum < shortest_iteration(unshared(instance))
    assert better


def test_degree_1_alone_is_the_problem_without_them(cases: int) -> None:
    """The model with no stage of a larger degree has the optimum of the instance that declares none."""
    for seed in range(cases):
        instance = shared(seed)
        model = cpsat.model_of(instance)
        for (_, _, t), each in model.decisions.degree.items() if len(instance.tp_degrees) > 1 else ():
            model.model.add(each == int(t == 1)).only_enforce_if(each)
        run, optimum = model.run(Limits(), Watch()), value(unshared(instance), "levels")
        assert run.infeasible is (optimum == math.inf), seed
        if not run.infeasible:
            assert evaluate(instance, model.decode(run.values)) == pytest.approx(optimum, rel=1e-6), seed


def chain(rng: random.Random, *, replicated: bool) -> tuple[StageGraph, StageInstance]:
    """A chain as a stage graph and as Piper's instance, where both mean the same (README).

    ``replicated``: any data-parallel degree, and no limit on what is in flight; else no replicas, and any memory.
    """
    count, D, rate = rng.randint(1, 5), rng.randint(2, 4), rng.choice((4.0, 32.0))
    is_silent = replicated and rng.random() < 0.5
    sent = [0.0 if is_silent else float(rng.randint(1, 8)) for _ in range(count - 1)]

    def shard(t: int) -> Shard:
        forward, backward = (AffineTime(0.0, rng.randint(1, 12) / t) for _ in range(2))
        spread = (rng.choice((0.0, 0.5, 1.0, 2.0)) if t > 1 else 0.0 for _ in range(2))
        kept = 0.0 if replicated else rng.randint(8, 16)
        return Shard(t, forward, backward, rng.randint(0, 8) / t, kept, rng.randint(0, 3) * (t > 1), *spread)

    shards = [[shard(t) for t in (1, 2, 3, 4) if t == 1 or rng.random() < 0.7] for _ in range(count)]
    room = 1e9 if replicated and not is_silent else float(rng.randint(20, 60 if replicated else 160))
    graph = StageGraph(
        "chain",
        tuple(Operator("", x.forward, x.backward, x.weight_bytes, x.activation_bytes, tuple(y)) for x, *y in shards),
        tuple(OperatorEdge(v, v + 1, size) for v, size in enumerate(sent)),
        D, room, rate, 0.0, 12, microbatches=() if replicated else (1,),
        inner_bandwidth_bytes_per_s=rate / 2, devices_per_node=D,
    )  # fmt: skip

    def tmpc(v: int, s: Shard) -> Tmpc:
        time = s.forward.at(1) + s.backward.at(1) + 2 * 2 * (s.degree - 1) / s.degree * s.reduced_bytes / (rate / 2)
        taken = {v - 1: sent[v - 1] * s.spread_inputs} if v else {}
        given = {v + 1: sent[v] * s.spread_outputs} if v + 1 < count else {}
        return Tmpc("own", time, s.weight_bytes, s.activation_bytes, 4 * s.weight_bytes, taken, given)

    layers = tuple(Layer(v, {s.degree: (tmpc(v, s),) for s in own}) for v, own in enumerate(shards))
    edges = tuple(Edge(v, v + 1, size) for v, size in enumerate(sent))
    kept = tuple(KeptTensor((v, v + 1), ("own",), size) for v, size in enumerate(sent))
    model, most = (CostModel.RELEASED, None) if replicated else (CostModel.RUNTIME, 1)
    piper = StageInstance("chain", layers, edges, D, room, rate, 12, model, max_dp_degree=most, kept=kept)
    return graph, piper


def test_recursions_have_the_best_chain(cases: int) -> None:
    """On a chain every partition is one of contiguous stages: with any degree the recursions end at the optimum."""
    gained = 0
    for seed in range(max(12, cases // 4)):
        rng = random.Random(f"chain {seed}")
        found = with_shards(rng, random_graph(seed, (1, 4), rng.randint(2, 5), series_parallel=False))
        edges = tuple(OperatorEdge(v, v + 1, float(rng.randint(1, 20))) for v in range(found.num_operators - 1))
        found = replace(found, edges=edges, minibatch=rng.choice((2, 4, 8)))
        best = planner.solve(found, method="levels").objective
        for method in ("graphpipe", "pipedream", "piper-dp"):
            plan = planner.solve(found, method=method, options={"any-degree": True})
            assert (plan.objective is None) == (best is None)
            assert best is None or best * (1 - 1e-9) <= (plan.objective or 0) <= best * (1 + 3e-4), (seed, method)
        alone = planner.solve(unshared(found), method="levels").objective
        branched = shared(10_035 + seed)  # the first 12 have optima that branches without shards exclude
        least = planner.solve(branched, method="levels").objective or math.inf
        for method in ("graphpipe", "pipedream", "piper-dp"):
            plan = planner.solve(branched, method=method)
            assert (plan.bound or 0) * (1 - 1e-9) <= least <= (plan.objective or math.inf) * (1 + 1e-9), (seed, method)
        gained += best is not None and (alone is None or best < alone * (1 - 1e-3))
    assert gained


@pytest.mark.parametrize("replicated", [False, True])
def test_chains_are_pipers_problem(replicated: bool, many: int) -> None:
    """Hundreds of chains among the slow tests; both problems proved by their own searches."""
    several, none = 0, 0
    for number in range(max(many // 4, 15)):
        graph, piper = chain(random.Random(f"chain {number} {replicated}"), replicated=replicated)
        found = stage_partitioning.FAMILY.method("exact").solve(piper, Limits(), Watch())
        optimum = math.inf if found.plan is None else stage_partitioning.FAMILY.evaluate(piper, found.plan)
        assert found.plan is not None or found.infeasible
        assert value(graph, "levels") == pytest.approx(optimum, rel=1e-9), number
        several += found.plan is not None and any(stage.tp_degree > 1 for stage in found.plan.stages)
        none += found.plan is None
    assert several > 2 and (replicated or none)
