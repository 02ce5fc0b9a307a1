"""The direct models with the time given: a target is met exactly if brute force has a plan that meets it."""

import random
from dataclasses import replace
from typing import Any

import pytest
from model_checks import check_stopped_builds, knowing, long_chain, random_plan
from oracles.stage_partitioning import brute_force
from strategies import random_stage_instance, with_magnitudes

import planner
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import evaluate, suffix_sums, violations
from formulations.stage_partitioning.model_size import blocks_too_large
from formulations.stage_partitioning.models import cpsat, milp
from formulations.stage_partitioning.models.assignment_data import Terms
from formulations.stage_partitioning.models.block_search import BlockSearch
from formulations.stage_partitioning.models.blocks import Blocks
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.requirements import parse, with_requirements
from solvers.outcome import Limits, Stop, Watch

BOTH = pytest.mark.parametrize("room", [cpsat, milp], ids=["cpsat", "milp"])


def within(room: Any, instance: StageInstance, target: float) -> Any:
    return room.model_within(Blocks(Terms(instance), target, Watch()), target)


def decided(room: Any, instance: StageInstance, target: float) -> tuple[bool, StagePlan | None]:
    model = within(room, instance, target)
    run = model.decide(Limits(), Watch())
    return run.infeasible, None if run.values is None else model.decode(run.values)


@BOTH
def test_a_target_is_met_at_the_optimum_and_not_below(room: Any, cases: int, many: int) -> None:
    met = 0
    count = many or (cases if room is cpsat else cases // 3)
    for seed in range(300_000, 300_000 + many) if many else range(count):
        instance = random_stage_instance(seed, **({"max_nodes": 6, "max_devices": 6} if many else {}))
        if many and seed % 3 == 0:
            instance = with_magnitudes(instance, random.Random(seed))
        best = brute_force(instance)
        if best is None or best.time == 0:
            continue
        met += 1
        infeasible, plan = decided(room, instance, best.time * (1 + 1e-5))
        assert plan is not None and not infeasible, seed
        assert not [each for each in violations(instance, plan) if each.rule != "memory"], seed
        assert evaluate(instance, plan) <= best.time * (1 + 3e-5), seed
        assert decided(room, instance, best.time * (1 - 1e-5))[0], seed
    assert met > count // 4


@BOTH
def test_every_plan_is_a_path_of_blocks_at_its_own_time(room: Any, cases: int) -> None:
    """No plan within the target is lost: not the best ones alone."""
    seen = 0
    count = 4 * cases if room is cpsat else max(20, cases)
    for seed in range(count):
        rng = random.Random(seed)
        instance = random_stage_instance(seed, memory=rng.choice(["planted", "ample"]))
        stages = min(len(instance.layers), instance.num_devices, instance.num_microbatches)
        plan = random_plan(rng, instance, rng.randint(1, stages)) if instance.tp_degrees else None
        if plan is None or violations(instance, plan) or evaluate(instance, plan) == 0:
            continue
        seen += 1
        built = within(room, instance, evaluate(instance, plan) * (1 + 1e-5))
        pairs = dict(zip(suffix_sums(plan), plan.stages, strict=True))
        blocks = {block.s: b for b, block in enumerate(built.data.blocks) if _is_of(block, pairs.get(block.s))}
        assert blocks.keys() == pairs.keys(), seed
        _keep_only(built, set(blocks.values()))
        assert not built.decide(Limits(), Watch()).infeasible, seed
    assert seen > count // 16


@pytest.mark.parametrize(("work", "crossing", "are_apart"), [(2.0, 3.0, True), (3.0, 2.0, True), (1.0, 3.0, False)])
def test_a_neighbour_takes_its_time_or_its_crossing(work: float, crossing: float, are_apart: bool) -> None:
    """Two nodes of 9 at a target of 10: a neighbour before the second is with them, or is paid for."""
    times = {"u": 4.5, "v": 4.5, "w": work}
    layers = tuple(Layer(name, {1: (Tmpc("x", time, 0.0, 0.0, 0.0),)}) for name, time in times.items())
    edges = (Edge("u", "v", 0.0), Edge("w", "v", crossing / 2))
    instance = StageInstance("three", layers, edges, 1, 10.0, 1.0, 1)
    (block,) = Blocks(Terms(instance), 10.0, Watch()).blocks
    assert any({0, 1} <= set(group) for group in block.apart) is are_apart


def _is_of(block: Any, stage: Any) -> bool:
    return stage is not None and (block.tp_degree, block.dp_degree) == (stage.tp_degree, stage.dp_degree)


def _keep_only(built: Any, kept: set[int]) -> None:
    """Fix which blocks are taken."""
    for b in range(len(built.data.blocks)):
        if isinstance(built, cpsat.Model):
            built.model.add(built.taken[b] == int(b in kept))
        else:
            built.model.taken[b].fix(int(b in kept))


@pytest.mark.parametrize("room", [cpsat, milp], ids=["cpsat", "milp"])
def test_the_search_goes_from_any_plan_to_the_optimum(room: Any, cases: int) -> None:
    tried = 0
    count = 2 * cases if room is cpsat else cases // 4
    for seed in range(count):
        instance = random_stage_instance(seed, memory="ample")
        rng = random.Random(seed)
        stages = rng.randint(1, min(3, len(instance.layers)))
        plan = random_plan(rng, instance, stages) if instance.tp_degrees else None
        best = brute_force(instance)
        if plan is None or best is None or violations(instance, plan) or evaluate(instance, plan) <= best.time:
            continue
        tried += 1
        watch = knowing(instance, plan)
        answer = room.solve(instance, Limits(), watch)
        assert answer.stop is Stop.PROVED or best.time == 0, seed
        assert evaluate(instance, answer.plan) == pytest.approx(best.time, rel=1e-6, abs=1e-12), seed
        assert answer.bound <= best.time * (1 + 1e-12), seed
    assert tried > count // 8


def heavy_edge() -> tuple[StageInstance, StagePlan]:
    """Two nodes that are faster in one stage, and the plan that keeps them apart."""
    tmpcs = {1: (Tmpc("x", 1.0, 0.0, 0.0, 0.0),)}
    layers, edges = (Layer("a", tmpcs), Layer("b", tmpcs)), (Edge("a", "b", 100.0),)
    instance = StageInstance("pair", layers, edges, 2, 10.0, 1.0, 2, max_dp_degree=1)
    return instance, StagePlan(tuple(Stage((v,), 1, 1, {v: "x"}) for v in "ab"))


@BOTH
def test_what_is_forbidden_is_one_stage_or_all_beyond_it(room: Any) -> None:
    instance, apart = heavy_edge()
    terms = Terms(instance)
    stage = terms.decisions_of(apart)[0]
    for way, is_lost in (("forbid_alone", False), ("forbid_beyond", True)):
        built = within(room, instance, 2.0)
        getattr(built, way)(stage, *([1] if is_lost else []))
        run = built.decide(Limits(), Watch())
        assert run.infeasible is is_lost and (run.values is None) is is_lost
    built = within(room, instance, 300.0)
    built.forbid_alone(terms.decisions_of(_in_one_stage())[0])
    assert len(built.decisions_of(built.decide(Limits(), Watch()).values)) == 2


@pytest.mark.parametrize("room", [cpsat, milp], ids=["cpsat", "milp"])
def test_a_crossing_may_take_far_longer_than_the_target(room: Any) -> None:
    pair, _ = heavy_edge()
    instance = replace(pair, edges=(replace(pair.edges[0], bytes=1e12),), max_dp_degree=None)
    answer = room.solve(instance, Limits(), knowing(instance, _in_one_stage()))
    assert answer.stop is Stop.PROVED and evaluate(instance, answer.plan) == 1.0


def _in_one_stage() -> StagePlan:
    return StagePlan((Stage(("a", "b"), 1, 1, {"a": "x", "b": "x"}),))


def test_what_is_searched() -> None:
    """By targets where a plan is known, HiGHS is to run, and nothing else is required."""
    instance = planner.load("chain8", first=4)
    plan = cpsat.solve(instance, Limits(), Watch()).plan
    assert "targets" in milp.solve(instance, Limits(), knowing(instance, plan)).stats
    required = with_requirements(instance, [parse("num_stages <= 4")])
    assert "targets" not in milp.solve(required, Limits(), knowing(instance, plan)).stats
    assert blocks_too_large(replace(planner.load("bert32"), num_devices=64))
    answer = cpsat.solve(replace(planner.load("bert32"), num_devices=64), Limits(), Watch())
    assert answer.plan is not None and answer.stop is Stop.SIZE_LIMIT


def test_relaxations_alone_refute_half_of_the_optimum() -> None:
    instance = planner.load("chain8", memory="40MB")
    answer = milp.solve(instance, Limits(), Watch())
    root = answer.stats["root_bound"]
    assert 0.5 * evaluate(instance, answer.plan) < root <= answer.bound


def test_a_build_that_is_stopped_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    instance = long_chain(4, 4)
    check_stopped_builds(
        lambda watch: milp.model_within(Blocks(Terms(instance), Terms(instance).largest_time, watch)), caplog
    )


def test_a_search_reports_bounds_that_rise() -> None:
    instance = planner.load("chain8", memory="40MB")
    plan = cpsat.solve(instance, Limits(), Watch()).plan
    watch, bounds = knowing(instance, plan), list[float]()
    found = BlockSearch(Terms(instance), cpsat.model_within).run(Limits(), watch, lambda _: None, bounds.append)
    assert found.stop is Stop.PROVED and bounds == sorted(bounds) and bounds[-1] == found.bound
