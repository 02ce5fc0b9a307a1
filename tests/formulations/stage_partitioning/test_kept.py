"""Activations that layers of several stages keep (cost model `runtime`): memory, exact methods, certificates."""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import pytest
from certificate_cases import certified, parsed, proves
from oracles.flushed_partitioning import plans as flushed_plans
from oracles.stage_partitioning import brute_force
from strategies import with_shared
from thinned import thinned

import planner
from formulations.contract.checker.frame import RejectedError
from formulations.contract.family import UncertifiedError
from formulations.flushed_partitioning import FAMILY as FLUSHED
from formulations.flushed_partitioning.certificate import checker as flushed_checker
from formulations.flushed_partitioning.certificate.writer import write as write_flushed
from formulations.stage_partitioning import FAMILY as STAGES
from formulations.stage_partitioning.certificate import checker
from formulations.stage_partitioning.definition.plan import Stage, StagePlan, plan_from_json
from formulations.stage_partitioning.definition.problem import stage_memory, suffix_sums
from instances.errors import InstanceError
from instances.exchange import to_json
from instances.problems.flushed_partitioning import FlushedInstance, Schedule, flush_pipeline
from instances.problems.stage_edits import as_run, first_nodes
from instances.problems.stage_partitioning import CostModel, Edge, KeptTensor, Layer, StageInstance, Tmpc, check
from planner.process.errors import UsageError
from solvers.outcome import Watch


def with_kept(seed: int) -> StageInstance:
    """A random chain whose layers keep tensors of each other; often the best plan without them just fits."""
    rng = random.Random(seed)
    instance = replace(as_run(with_shared(seed)), memory_bytes=1e9)
    nodes, kept = [layer.id for layer in instance.layers], []
    ids = sorted({x.id for layer in instance.layers for x in layer.tmpcs[1]})
    if len(nodes) < 2:
        return instance
    for _ in range(rng.randint(1, 4)):
        holders = tuple(rng.sample(nodes, rng.randint(2, len(nodes))))
        kept.append(KeptTensor(holders, tuple(rng.sample(ids, rng.randint(1, len(ids)))), rng.choice([1.0, 5.0, 30.0])))
    best = brute_force(instance)
    if best is not None:
        stages = [Stage(v, d, t, dict(zip(v, ids, strict=True))) for v, d, t, ids in best.stages]
        sums = suffix_sums(StagePlan(tuple(stages)))
        needed = max(stage_memory(instance, stage, s) for stage, s in zip(stages, sums, strict=True))
        instance = replace(instance, memory_bytes=max(1.0, needed * rng.choice([0.8, 1, 1, 1.2, 2])))
    return replace(instance, kept=tuple(kept))


def test_a_stage_holds_what_its_layers_keep_once() -> None:
    rng = random.Random(4)
    for seed in range(20):
        instance = as_run(with_shared(seed))
        nodes = [layer.id for layer in instance.layers]
        storages = [(rng.sample(nodes, rng.randint(1, len(nodes))), rng.choice([2.0, 7.0])) for _ in range(4)]
        own = {v: sum(size for holders, size in storages if holders[0] == v) for v in nodes}
        layers = tuple(replace(layer, tmpcs={1: (Tmpc("x", 1, 0, own[layer.id], 3),)}) for layer in instance.layers)
        kept = tuple(KeptTensor(tuple(holders), ("x",), size) for holders, size in storages if len(holders) > 1)
        instance = replace(instance, layers=layers, kept=kept)
        inside = rng.sample(nodes, rng.randint(1, len(nodes)))
        held = sum(size for holders, size in storages if set(holders) & set(inside))
        stage = Stage(tuple(inside), 2, 1, dict.fromkeys(inside, "x"))
        assert stage_memory(instance, stage, 5) == 3 * held + 3 * len(inside)
        noted = replace(instance, cost_model=CostModel.RELEASED)
        assert stage_memory(noted, stage, 5) == 3 * sum(own[v] for v in inside) + 3 * len(inside)


def _optimal(instance: StageInstance, method: str, seed: int) -> bool:
    """Whether there is a plan; the method has to find a best one."""
    best, result = brute_force(instance), planner.solve(instance, method=method)
    assert (result.objective is None) == (best is None), (seed, method, result.status)
    assert best is None or result.objective == pytest.approx(best.time, rel=1e-6), (seed, method)
    return best is not None


@thinned("method", ["exact", "piper-exact-knapsack", "milp-columns", "cpsat-columns"], 2)
def test_the_exact_methods_find_what_brute_force_finds(method: str, cases: int) -> None:
    plans = matter = count = 0
    for seed in range(max(24, cases // 6)):
        instance = with_kept(seed)
        check(instance, "random")
        assert planner.load(to_json(instance)) == instance
        plans += _optimal(instance, method, seed)
        without, best = brute_force(replace(instance, kept=())), brute_force(instance)
        matter += (without and without.time) != (best and best.time)
        count += 1
    assert plans > count / 4 and matter > count / 20


@pytest.mark.parametrize("method", ["piper", "linearised", "equi", "pipedream"])
def test_the_heuristics_give_plans_that_fit(method: str) -> None:
    found = 0
    for seed in range(6):
        instance = with_kept(seed)
        result = planner.solve(instance, method=method)
        assert result.plan is None or not STAGES.judge(instance, plan_from_json(instance, result.plan)), seed
        found += result.plan is not None
    assert found > 1


def test_a_stage_of_the_first_layers_holds_what_it_holds_in_the_whole() -> None:
    """`--first`: a layer whose bytes are counted by one that is cut away counts them itself."""
    orphans = 0
    for seed in range(40):
        instance = with_kept(seed)
        nodes = [layer.id for layer in instance.layers]
        for count in range(1, len(nodes)):
            cut = first_nodes(instance, count)
            check(cut, "cut")
            noted = replace(instance, cost_model=CostModel.RELEASED)
            assert replace(first_nodes(noted, count), cost_model=CostModel.RUNTIME) == cut
            left = [layer.id for layer in cut.layers]
            orphans += any(each.layers[0] not in left and set(each.layers) & set(left) for each in instance.kept)
            for start, end in combinations(range(count + 1), 2):
                inside = tuple(left[start:end])
                options = [[x.id for x in cut.layers[cut.index[node]].tmpcs[1]] for node in inside]
                for chosen in product(*options):
                    stage = Stage(inside, 1, 1, dict(zip(inside, chosen, strict=True)))
                    assert stage_memory(cut, stage, 3) == pytest.approx(stage_memory(instance, stage, 3))
    assert orphans > 10


def test_shares_of_what_a_layer_that_is_cut_away_counts_are_refused() -> None:
    layers = tuple(Layer(node, {1: (Tmpc("x", 1, 0, 2, 0),), 2: (Tmpc("x", 1, 0, 1, 0),)}) for node in ("a", "b"))
    instance = replace(as_run(with_shared(0)), layers=layers, edges=(Edge("a", "b", 1),), shared=(), requirements=())
    instance = replace(instance, cost_model=CostModel.RELEASED, kept=(KeptTensor(("b", "a"), ("x",), 1.0),))
    with pytest.raises(InstanceError, match="--first is 1; expected so many that node b, whose activation_bytes"):
        planner.load(to_json(instance), first=1)
    assert first_nodes(replace(instance, kept=(KeptTensor(("b", "a"), ("y",), 1.0),)), 1).kept == ()


def test_certificates_count_them(cases: int) -> None:
    kinds = dict.fromkeys(("optimal", "infeasible"), 0)
    for seed in range(max(8, cases // 12)):
        instance = with_kept(seed)
        result, _ = certified(instance)
        kinds[result.status] += 1
        best = brute_force(instance)
        if best is not None and best.time > 0:
            assert not proves(instance, Fraction(best.time) * (1 + Fraction(1, 10**6)))
    assert kinds["optimal"] > 3, kinds


def test_a_certificate_is_of_one_set_of_kept_tensors() -> None:
    instance = next(found for found in map(with_kept, range(50)) if found.kept)
    other = replace(instance, kept=instance.kept[1:])
    assert checker.Instance(parsed(instance)).digest != checker.Instance(parsed(other)).digest
    plan = planner.solve(instance, method="exact")
    with pytest.raises(UncertifiedError, match="activations that layers of several stages keep"):
        write_flushed(flush_pipeline(instance), None, 1.0, Watch())
    with pytest.raises(RejectedError, match="kept: "):  # a plan by hand might not fit with them
        flushed_checker.Instance(parsed(flush_pipeline(instance)))
    assert plan.status in ("optimal", "infeasible")


def test_what_does_not_count_them_says_so() -> None:
    instance = next(found for found in map(with_kept, range(50)) if found.kept)
    trained = replace(instance, requirements=("realizable(megatron) == 1",))
    for one, method in ((instance, "cpsat"), (instance, "milp"), (trained, "auto")):
        with pytest.raises(UsageError, match="count activations that layers of several stages keep"):
            planner.solve(one, method=method)


def test_a_plan_that_fits_without_them_only_is_refused() -> None:
    x = Tmpc("x", 1.0, 0.0, 10.0, 0.0)
    chain = planner.load("chain8", cost_model="runtime")
    layers = tuple(replace(layer, tmpcs={1: (x,)}) for layer in chain.layers)
    v = [layer.id for layer in layers]
    kept = (KeptTensor((v[0], v[4], v[5]), ("x",), 8.0), KeptTensor((v[1], v[6]), ("y",), 8.0))
    instance = replace(chain, layers=layers, kept=kept, memory_bytes=80.0, num_devices=2)
    halves = [Stage(tuple(half), 1, 1, dict.fromkeys(half, "x")) for half in (v[:4], v[4:])]
    plan = StagePlan(tuple(halves))
    assert [stage_memory(instance, stage, s) for stage, s in zip(halves, (2, 1), strict=True)] == [80.0, 48.0]
    assert not STAGES.judge(instance, plan)
    assert [each.rule for each in STAGES.judge(replace(instance, memory_bytes=79.0), plan)] == ["memory"]
    tight = replace(instance, kept=(KeptTensor((v[0], v[5]), ("x",), 50.0),))
    assert [each.rule for each in STAGES.judge(tight, plan)] == ["memory"]
    assert not STAGES.judge(replace(tight, cost_model=CostModel.RELEASED), plan)


def test_files_say_what_is_kept() -> None:
    content = to_json(planner.load("chain8", cost_model="runtime"))
    first, second = (layer["id"] for layer in content["layers"][:2])
    content["kept"] = [{"layers": [first, second], "tmpcs": ["keep"], "bytes": 5.0}]
    assert to_json(planner.load(content))["kept"] == content["kept"]
    assert planner.load(content, first=1).kept == ()
    for layers in ([first], [first, first], [first, "nowhere"]):
        content["kept"] = [{"layers": layers, "tmpcs": ["keep"], "bytes": 5.0}]
        with pytest.raises(InstanceError, match=r"kept\[0\].layers is .*; expected the ids of at least two nodes"):
            planner.load(content)


def test_the_cost_model_counts_whole_tensors() -> None:
    content = to_json(planner.load("chain8", cost_model="runtime"))
    content["layers"][2]["tmpcs"]["2"] = content["layers"][2]["tmpcs"]["1"]
    with pytest.raises(InstanceError, match=r"layers\[2\].tmpcs is 'of degree 2'; expected TMPCs of degree 1 alone"):
        planner.load(content)


def _best_flushed(instance: FlushedInstance) -> float | None:
    plans = (FLUSHED.plan_from_json(instance, plan) for plan in flushed_plans(instance))
    fitting = (plan for plan in plans if not FLUSHED.violations(instance, plan))
    return min((FLUSHED.evaluate(instance, plan) for plan in fitting), default=None)


@pytest.mark.slow
def test_flushed_pipelines_count_them(cases: int) -> None:
    """By the plans of an oracle, judged by the definition."""
    found = matter = 0
    for seed in range(max(150, cases // 6)):
        flat = with_kept(seed)
        flat = replace(flat, memory_bytes=flat.memory_bytes * (1.0, 1.5)[seed % 2])
        instance = FlushedInstance(flat, list(Schedule)[seed // 2 % 2])
        if FLUSHED.method("labels").refusal(instance) is not None:
            continue
        best = _best_flushed(instance)
        for method in ("labels", "milp-columns"):
            result = planner.solve(instance, method=method)
            assert result.objective == (None if best is None else pytest.approx(best, rel=1e-6)), (seed, method)
        found += best is not None
        matter += best != _best_flushed(replace(instance, flat=replace(flat, kept=())))
    assert found > 50 and matter > 3, (found, matter)
