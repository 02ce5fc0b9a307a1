"""What replicas hold where they get unequal parts of a micro-batch: time and memory count the same samples."""

import math
from dataclasses import replace

import pytest
from branching_cases import least_of_all, uneven_graph

from formulations.contract.family import Answer
from formulations.stage_graph import FAMILY, downsets
from formulations.stage_graph.costs.costs import assemble
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import evaluate, held_samples, memory_bytes, violations
from formulations.stage_graph.models import cpsat, milp_columns
from formulations.stage_graph.models.data import Data
from formulations.stage_graph.paper import fewest_devices, graphpipe
from formulations.stage_graph.upsets import levels
from instances.problems.stage_graph import AffineTime, Operator, OperatorEdge, StageGraph
from solvers.cpsat import backend as cp
from solvers.outcome import Limits, Watch
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
