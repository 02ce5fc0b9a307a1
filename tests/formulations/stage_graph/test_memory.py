"""What replicas hold where they get unequal parts of a micro-batch: time and memory count the same samples."""

import itertools
import math
import random
from dataclasses import replace

import pytest
from branching_cases import least_of_all, random_graph, uneven_graph

import planner
from formulations.contract.family import Answer
from formulations.modelling.warm_start import First
from formulations.stage_graph import FAMILY, downsets
from formulations.stage_graph.costs.costs import assemble
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import evaluate, held_samples, memory_bytes, violations
from formulations.stage_graph.models import cardinality_cuts, cpsat, milp_columns, size_search
from formulations.stage_graph.models.data import Data
from formulations.stage_graph.paper import fewest_devices, graphpipe
from formulations.stage_graph.upsets import levels
from instances.problems.stage_graph import AffineTime, Operator, OperatorEdge, StageGraph
from solvers.cpsat import backend as cp
from solvers.outcome import Limits, Status, Stop, Watch
from solvers.scaling import Scale

SECOND = AffineTime(0.0, 1.0)
#: One operator that keeps a byte of each of three samples; two replicas take two samples and one.
UNEVEN = StageGraph("uneven", (Operator("a", SECOND, SECOND, 0.0, 1.0),), (), 2, 2.0, 1e9, 0.0, 3, microbatches=(3,))


def solved(instance: StageGraph, method: str, **options: object) -> Answer[StagePlan]:
    return FAMILY.method(method).solve(instance, Limits(), Watch(), **options)


@pytest.mark.parametrize("method", [method.name for method in FAMILY.methods if method.name != "device-sets"])
def test_the_fullest_replica_counts(method: str) -> None:
    found = solved(UNEVEN, method)
    assert found.plan is not None and found.plan.stages[0].devices == 2
    assert memory_bytes(UNEVEN, found.plan.stages[0]) == 2.0
    assert evaluate(UNEVEN, found.plan) == pytest.approx(4 / 3)
    assert solved(replace(UNEVEN, memory_bytes=math.nextafter(2.0, 0)), method).plan is None
    short = solved(replace(UNEVEN, memory_bytes=1.5), method)  # enough for half of three samples
    assert short.plan is None
    if FAMILY.method(method).claim.value == "exact" or method == "downsets":  # one micro-batch: nothing is relaxed
        assert short.infeasible


@pytest.mark.parametrize("sizes", [(3,), (1, 3)])
def test_the_model_alone_knows_it(sizes: tuple[int, ...]) -> None:
    def fits(memory: float, degree: int) -> bool:
        built = cpsat.model_from(
            Data(replace(UNEVEN, memory_bytes=memory, microbatches=sizes), (sizes,), Scale(0), 100)
        )
        built.model.add(built.decisions.degree[0, degree] == 1)
        return not cp.run(built.model, Limits()).infeasible

    fewest = {1: min(sizes), 2: 2}
    for degree, held in fewest.items():
        assert fits(held, degree) and not fits(held - 0.01, degree), (degree, held)


def two_stages(kept: tuple[float, float], tensor: float, memory: float) -> StageGraph:
    """Two operators in a chain, which keep so many bytes of a sample, on two devices of so much memory."""
    operators = tuple(Operator("", SECOND, SECOND, 0.0, each) for each in kept)
    return StageGraph("two", operators, (OperatorEdge(0, 1, tensor),), 2, memory, 1e9, 0.0, 4, microbatches=(1,))


@pytest.mark.parametrize(
    ("kept", "tensor", "least"),
    [((5.0, 1.0), 0.0, 10.0), ((0.0, 1.0), 3.0, 4.0)],
    ids=["two samples in flight before a stage", "what comes in"],
)
def test_each_row_of_memory_binds_by_itself(kept: tuple[float, float], tensor: float, least: float) -> None:
    # Without these rows the plans would still be right: they would be cut off one by one.
    for memory, fits in ((least, True), (least - 1, False)):
        built = cpsat.model_from(Data(two_stages(kept, tensor, memory), ((1,),), Scale(0), 100))
        for operator, stage in enumerate((0, 1)):
            built.model.add(built.decisions.within[operator, stage] == 1)
        assert cp.run(built.model, Limits()).infeasible is not fits


def test_what_is_cut_off_is_one_plan() -> None:
    built = cpsat.model_from(Data(replace(two_stages((1.0, 1.0), 1.0, 1e3), microbatches=(2,)), ((2,),), Scale(0), 100))
    found = []
    while (run := built.run(Limits(), Watch())).values is not None and len(found) < 10:
        found.append(built.decode(run.values))
        built.cut_off(found[-1], run.values)
    shapes = sorted(tuple((stage.nodes, stage.devices) for stage in plan.stages) for plan in found)
    assert shapes == [(((0,), 1), ((1,), 1)), (((0, 1), 1),), (((0, 1), 2),)]


def test_what_is_cut_off_stays_so_whatever_stages_that_it_lacks_are_said_to_hold() -> None:
    without_memory = two_stages((0.5, 1e-5), 1e-6, 0.0)
    for requirements in ((), ("in_flight_of(1) >= 0",)):
        assert solved(replace(without_memory, requirements=requirements), "cpsat").infeasible
    built = cpsat.model_from(Data(two_stages((1.0, 1.0), 1.0, 1e3), ((1,),), Scale(0), 100, declared=True))
    found = []
    while (run := built.run(Limits(), Watch())).values is not None and len(found) < 30:
        found.append(built.decode(run.values))
        built.cut_off(found[-1], run.values)
    assert 2 <= len(found) == len(set(found)) < 30


def test_every_microbatch_in_flight_is_split_in_the_same_way() -> None:
    # Two micro-batches of 3 samples in flight at the first stage, split 2 and 1 each time; the second stage takes none.
    made = (UNEVEN.operators[0], Operator("b", SECOND, SECOND, 0.0, 0.0))
    row = replace(UNEVEN, operators=made, edges=(OperatorEdge(0, 1, 0.0),), num_devices=3, minibatch=6)
    plan = assemble(row, [(0b01, 2), (0b10, 1)], 3)
    assert [stage.in_flight for stage in plan.stages] == [6, 3]
    assert memory_bytes(row, plan.stages[0]) == 4.0
    assert [violation.rule for violation in violations(replace(row, memory_bytes=3.99), plan)] == ["memory"]
    assert violations(replace(row, memory_bytes=4.0), plan) == ()


def test_samples_of_the_fullest_replica() -> None:
    # Dealt out one by one, micro-batch after micro-batch: the first replica has most.
    for size in range(1, 9):
        for devices in range(1, size + 1):
            for microbatches in range(1, 6):
                dealt = microbatches * len(range(0, size, devices))
                assert held_samples(4 * size, size, devices, microbatches * size) == min(
                    dealt, 4 * len(range(0, size, devices))
                )
                if size % devices == 0:  # powers of two, as in the paper: the samples in flight over the replicas
                    assert dealt == microbatches * size / devices


@pytest.mark.slow
def test_sizes_and_replicas_that_do_not_divide_against_every_partition(cases: int) -> None:
    cases = max(cases, 60)  # fewer show too little
    infeasible = uneven = 0
    for seed in range(cases // 2):
        instance = uneven_graph(seed, (1, 4))
        optimum = least_of_all(instance)
        for solve in (levels.solve, cpsat.solve, milp_columns.solve):
            answer = solve(instance, Limits(), Watch())
            assert answer.infeasible == (optimum == math.inf), (seed, solve)
            if answer.plan is not None:
                assert violations(instance, answer.plan) == ()
                assert evaluate(instance, answer.plan) == pytest.approx(optimum, rel=1e-6), (seed, solve)
                assert answer.bound is not None and answer.bound <= optimum * (1 + 1e-9)
        for solve in (downsets.solve_downsets, fewest_devices.solve, graphpipe.solve_graphpipe):
            answer = solve(instance, Limits(), Watch())
            assert answer.bound is None or answer.bound <= optimum * (1 + 1e-9), (seed, solve)
            assert answer.plan is None or evaluate(instance, answer.plan) >= optimum * (1 - 1e-9)
        best = levels.solve(instance, Limits(), Watch()).plan
        infeasible += best is None
        uneven += best is not None and any(stage.microbatch % stage.devices for stage in best.stages)
    assert 0 < infeasible < cases // 10 and uneven > cases // 12


def test_stages_with_sizes_of_their_own() -> None:
    instance = replace(UNEVEN, schedule="per-stage", num_devices=2)
    stage = Stage((0,), 2, 3, 3)
    assert violations(instance, StagePlan((stage,), ())) == ()
    assert [v.rule for v in violations(replace(instance, memory_bytes=1.9), StagePlan((stage,), ()))] == ["memory"]


def by_all_sets(instance: StageGraph, counted: list[int], stage: cardinality_cuts.Stage, high: int) -> int:
    """The most of some operators in any set that takes so many units; 0 if not even the empty one does."""
    found = 0
    for size in range(instance.num_operators + 1):
        for nodes in map(set, itertools.combinations(range(instance.num_operators), size)):
            cut = sum(
                units
                for edge, units in zip(instance.edges, stage.sending, strict=True)
                if (edge.source in nodes) != (edge.target in nodes)
            )
            if sum(stage.passes[v] for v in nodes) + cut + stage.waiting <= high:
                found = max(found, len(nodes & set(counted)))
    return found


def test_the_most_is_that_of_all_sets(cases: int) -> None:
    rng, beaten = random.Random(3), 0
    for seed in range(max(10, cases // 2)):
        instance = random_graph(seed, (4, 7), 3, series_parallel=bool(seed % 2))
        data = Data(instance, ((instance.microbatch_sizes[-1],),), cpsat.scale_of(instance), 0)
        r = rng.choice(list(data.degrees))
        stage = cardinality_cuts.Stage(data.passes[*r, 0], data.sending[*r, 0], data.waiting(r))
        stage = replace(stage, sending=[rng.randint(0, max(stage.passes)) for _ in stage.sending])
        high = rng.randint(0, sum(stage.passes) + stage.waiting + 1)
        counted = rng.sample(range(instance.num_operators), rng.randint(1, instance.num_operators))
        expected = by_all_sets(instance, counted, stage, high)
        assert cardinality_cuts.most(instance, counted, stage, high, Watch()) == expected, seed
        beaten += 0 < expected < len(counted)
    assert beaten > 3


def test_small_models_have_the_same_optimum_with_these_rows(monkeypatch: pytest.MonkeyPatch, cases: int) -> None:
    """From a plan of the smallest micro-batches on, so that there are better plans to be lost."""
    monkeypatch.setattr(cardinality_cuts, "FEWEST_OPERATORS", 0)

    def report(watch: Watch) -> None:
        plan = levels.solve(replace(instance, microbatches=(1,)), Limits(), Watch()).plan
        if plan is not None:
            watch.plan(plan, evaluate(instance, plan))

    monkeypatch.setattr(size_search, "first_plan", lambda *_: First("smallest", report))
    beaten = 0
    for seed in range(max(3, cases // 3)):
        instance = random_graph(seed, (4, 8), 4, series_parallel=bool(seed % 2))
        expected, found = (room.solve(instance, Limits(), Watch()) for room in (levels, cpsat))
        assert found.infeasible is expected.infeasible, seed
        if not found.infeasible:
            optimum = evaluate(instance, expected.plan)
            beaten += found.stats.get("first_plan", 0.0) > optimum
            assert evaluate(instance, found.plan) == pytest.approx(optimum, rel=1e-6), seed
            assert found.stop is Stop.PROVED and optimum * (1 - 1e-6) <= found.bound <= optimum * (1 + 1e-9), seed
    assert beaten


@pytest.mark.parametrize("name", ["candle-uno", *(pytest.param(n, marks=pytest.mark.slow) for n in ("dlrm", "mmt"))])
def test_work_that_does_not_divide_is_proved(name: str) -> None:
    """CANDLE-Uno has 28 equal operators and one more for 8 devices: 19 % were left open."""
    found = planner.solve(planner.load(name, devices=8), method="cpsat")
    assert (found.status, found.proved_by) == (Status.OPTIMAL, "solver")
    assert found.stats["plan_by"] == ("graphpipe-plus" if name == "mmt" else "downsets")


def test_rows_are_only_for_plans_that_are_to_be_beaten() -> None:
    """What others may extend has none, nor has a model without a plan; without time nothing is claimed."""
    instance = planner.load("candle-uno", devices=4)
    groups = {group.name for group in planner.model(instance, "cpsat").sizes().groups}
    assert "work" in groups and not groups & {"capacity", "capacities"}
    scale, watch = cpsat.scale_of(instance), Watch()
    unknown = cpsat.model_within(instance, ((instance.microbatch_sizes[-1],),), scale, watch)
    assert not {"capacity", "capacities"} & {group.name for group in unknown.inspected().groups}
    plan = fewest_devices.solve(instance, Limits(), Watch()).plan
    watch.plan(plan, evaluate(instance, plan))
    built = cpsat.model_within(instance, ((plan.stages[0].microbatch,),), scale, watch)
    assert {"capacity", "capacities"} <= {group.name for group in built.inspected().groups}
    stopped = Watch()
    stopped.stop(Stop.INTERRUPTED)
    assert cardinality_cuts.most(instance, [0, 1, 2], cardinality_cuts.Stage([], [], 0), 0, stopped) == 3
