"""Methods of stage graphs against every partition of small models, and what each promises."""

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from branching_cases import random_graph
from load import allowed_s

import planner
from formulations.contract.family import Answer
from formulations.stage_graph import FAMILY
from formulations.stage_graph.costs.costs import Costs, bits, shortage
from formulations.stage_graph.costs.iteration import iteration_s
from formulations.stage_graph.costs.series_parallel import Leaf, Segment, chain, decompose
from formulations.stage_graph.definition import problem
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import evaluate, memory_bytes, violations
from formulations.stage_graph.paper import baselines, fewest_devices, graphpipe
from formulations.stage_graph.paper.program import Program, Reach
from formulations.stage_graph.upsets import levels
from instances.generators.branching import candle_uno, dlrm, mmt, sequential_transformer
from instances.problems.stage_graph import AffineTime, Operator, OperatorEdge, Schedule, StageGraph
from solvers.outcome import Limits, Stop, Watch

Solve = Callable[..., Answer[StagePlan]]
HEURISTICS: list[tuple[str, Solve, dict[str, object]]] = [
    ("graphpipe", graphpipe.solve_graphpipe, {}),
    ("graphpipe", graphpipe.solve_graphpipe, {"any_degree": True, "rank": "in-flight"}),
    ("graphpipe", graphpipe.solve_graphpipe, {"terminals": "series"}),
    ("pipedream", graphpipe.solve_pipedream, {"any_degree": True}),
    ("piper-dp", baselines.solve, {}),
    ("data-parallel", graphpipe.solve_data_parallel, {}),
]


def run(solve: Solve, instance: StageGraph, **options: object) -> Answer[StagePlan]:
    return solve(instance, Limits(), Watch(), **options)


def value(instance: StageGraph, answer: Answer[StagePlan]) -> float:
    """The objective of a plan that keeps all rules; ``inf`` without a plan."""
    if answer.plan is None:
        return math.inf
    assert violations(instance, answer.plan) == ()
    return evaluate(instance, answer.plan)


def test_nothing_beats_the_optimum(cases: int) -> None:
    found = 0
    for seed in range(cases // 8):
        instance = random_graph(seed + 1000, (4, 9), 4, series_parallel=bool(seed % 2))
        optimum = value(instance, run(levels.solve, instance))
        for name, solve, options in HEURISTICS:
            objective = value(instance, run(solve, instance, **options))
            assert objective >= optimum * (1 - 1e-9), (seed, name, options)
            found += objective < math.inf
    assert found > cases / 4


def test_plus_is_optimal_on_small_models_and_never_without_a_plan(cases: int) -> None:
    for seed in range(cases // 5):
        instance = random_graph(seed + 2000, (8, 12), 4, series_parallel=True)
        optimum = value(instance, run(levels.solve, instance))
        assert value(instance, run(fewest_devices.solve, instance)) == pytest.approx(optimum, rel=1e-9), seed


def test_the_wide_recursion_alone(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fewest_devices, "SMALL_PAIRS", 0)
    optimal = missing = better = 0
    count = cases // 5
    for seed in range(count):
        instance = random_graph(seed + 3000, (6, 10), 4, series_parallel=bool(seed % 4))
        optimum = value(instance, run(levels.solve, instance))
        objective = value(instance, run(fewest_devices.solve, instance))
        assert objective >= optimum * (1 - 1e-9)
        optimal += objective <= optimum * (1 + 1e-6)
        missing += objective == math.inf > optimum
        strict = value(instance, run(graphpipe.solve_graphpipe, instance, any_degree=True, terminals="series"))
        assert objective <= strict * (1 + 1e-6) or decompose(Costs(instance)).cuts
        better += objective < strict * (1 - 1e-6)
    assert optimal > count / 4 and missing < count / 5 and better > count / 10


def test_graphpipe_on_a_chain_is_pipedream(cases: int) -> None:
    for seed in range(cases // 4):
        instance = random_graph(seed, (2, 7), 4, series_parallel=True)
        row = tuple(OperatorEdge(v, v + 1, 2.0) for v in range(instance.num_operators - 1))
        instance = replace(instance, edges=row)
        one, other = (run(solve, instance) for solve in (graphpipe.solve_graphpipe, graphpipe.solve_pipedream))
        assert value(instance, one) == value(instance, other)


def test_piper_covers_pipedream(cases: int) -> None:
    for seed in range(cases // 4):
        instance = random_graph(seed + 50, (2, 8), 4, series_parallel=bool(seed % 2))
        sequential = value(instance, run(graphpipe.solve_pipedream, instance))
        assert value(instance, run(baselines.solve, instance)) <= sequential * (1 + 1e-4)


def test_a_series_parallel_order_is_not_converted(cases: int) -> None:
    for seed in range(cases):
        costs = Costs(random_graph(seed, (2, 14), 3, series_parallel=True))
        order = decompose(costs)
        assert order.cuts == () and order.loss() == {}
        _respects(costs, order.segment)


def test_conversion_only_adds_precedence(cases: int) -> None:
    converted = 0
    for seed in range(cases):
        costs = Costs(random_graph(seed, (4, 14), 3, series_parallel=False))
        order = decompose(costs)
        before = _respects(costs, order.segment)
        added = sum((before[node] & ~costs.below[node]).bit_count() for node in before)
        assert (added > 0) == bool(order.cuts)
        assert order.converted_span_s >= order.span_s * (1 - 1e-12)
        if order.cuts:
            converted += 1
            assert order.loss()["conversion_added_pairs"] > 0
    assert converted > cases / 4


def _respects(costs: Costs, segment: Segment) -> dict[int, int]:
    """What the segment puts before each operator; it holds all that the edges do, and every operator once."""
    before: dict[int, int] = {}

    def walk(part: Segment, behind: int) -> None:
        for component in part:
            if isinstance(component, Leaf):
                assert component.node not in before
                before[component.node] = behind
            else:
                for branch in component.branches:
                    walk(branch, behind)
            behind |= component.nodes

    walk(segment, 0)
    assert sorted(before) == list(range(costs.instance.num_operators))
    assert all(costs.below[node] & ~seen == 0 for node, seen in before.items())
    return before


def test_the_smallest_n() -> None:
    time = AffineTime(0.0, 1.0)
    made = tuple(Operator(str(node), time, time, 1.0, 1.0) for node in range(4))
    edges = tuple(OperatorEdge(u, v, 1.0) for u, v in ((0, 2), (0, 3), (1, 3)))
    instance = StageGraph("N", made, edges, 3, 100.0, 1.0, 0.0, 4)
    order = decompose(Costs(instance))
    assert order.cuts == ((0b0011, 0b1100),) and order.added_pairs == 1
    answer = run(graphpipe.solve_graphpipe, instance)
    assert answer.stats["conversion_cuts"] == 1 and value(instance, answer) < math.inf


def test_states_do_not_grow_with_equal_branches() -> None:
    sizes = []
    for branches in (4, 8):
        costs = Costs(candle_uno(branches, devices=4))
        program = Program(Reach.NONE, 10**6, Watch())
        program.enter(decompose(costs).segment)
        sizes.append(len(program.transitions))
    assert sizes[1] - sizes[0] == 4  # one state more for each branch side by side


def test_equal_branches_with_different_tensors_are_not_exchanged() -> None:
    instance = candle_uno(3, 2, devices=4)
    different = replace(instance, edges=(*instance.edges[:-1], replace(instance.edges[-1], bytes_per_sample=1.0)))
    labels = [[leaf.label for leaf in branch] for branch in decompose(Costs(different)).segment[0].branches]
    assert len({tuple(each) for each in labels}) == 2
    assert (
        len(
            {
                tuple(each)
                for each in ([leaf.label for leaf in b] for b in decompose(Costs(instance)).segment[0].branches)
            }
        )
        == 1
    )


@pytest.mark.parametrize(
    "make",
    [
        candle_uno,
        partial(mmt, 2, 4),
        *(pytest.param(each, marks=pytest.mark.slow) for each in (mmt, dlrm, sequential_transformer)),
    ],
)
def test_models_of_the_evaluation(make: Callable[..., StageGraph]) -> None:
    instance = make(devices=4)
    published = run(graphpipe.solve_graphpipe, instance)
    wider = run(fewest_devices.solve, instance)
    sequential = run(graphpipe.solve_pipedream, instance)
    assert value(instance, wider) <= min(value(instance, published), value(instance, sequential)) * (1 + 1e-4)
    for answer in (published, wider, sequential):
        assert answer.plan is not None
        stats = answer.stats
        assert stats["transitions"] > 0 and stats["iteration_s"] == iteration_s(instance, answer.plan)
        assert stats["iteration_s"] >= instance.minibatch * stats["tps_s"] * (1 - 1e-9)
        assert stats["peak_memory_bytes"] == max(memory_bytes(instance, stage) for stage in answer.plan.stages)
        assert {row["microbatch"] for row in stats["sweep"]} <= set(instance.microbatch_sizes)
        assert stats["quickest_iteration"]["iteration_s"] == min(row["iteration_s"] for row in stats["sweep"])


def test_the_compiled_simulation_is_the_defined_one(cases: int) -> None:
    for seed in range(cases // 5):
        schedule: Schedule = ("uniform", "per-stage", "kfkb")[seed % 3]
        instance = replace(
            random_graph(seed, (2, 7), 4, series_parallel=bool(seed % 2)), minibatch=8, schedule=schedule
        )
        for solve in (graphpipe.solve_graphpipe, graphpipe.solve_pipedream):
            answer = run(solve, instance)
            if answer.plan is not None:
                assert iteration_s(instance, answer.plan) == pytest.approx(
                    problem.iteration_s(instance, answer.plan), 1e-12
                )


@pytest.mark.parametrize(
    "solve", [graphpipe.solve_graphpipe, graphpipe.solve_pipedream, fewest_devices.solve, graphpipe.solve_data_parallel]
)
def test_the_other_objective_takes_the_quickest_iteration(solve: Solve) -> None:
    instance = replace(mmt(2, 2, devices=4), objective="iteration")
    answer = run(solve, instance)
    assert value(instance, answer) == pytest.approx(answer.stats["quickest_iteration"]["iteration_s"], rel=1e-12)
    assert answer.stats["iteration_s"] == min(row["iteration_s"] for row in answer.stats["sweep"])
    assert "iteration" in str(FAMILY.method("levels").supports(instance))
    assert FAMILY.unit(instance) == "s" and FAMILY.read(FAMILY.to_json(instance), "x", {}) == instance


def test_shapes_of_the_models() -> None:
    assert (mmt().num_operators, dlrm().num_operators, candle_uno().num_operators) == (97, 40, 29)
    assert (mmt(2).num_operators, candle_uno(8).num_operators, sequential_transformer().num_operators) == (49, 33, 96)
    table = {4: (64, 256, 4096), 8: (128, 512, 8192), 16: (256, 1024, 16384), 32: (512, 2048, 32768)}
    for devices, sizes in table.items():
        assert tuple(make(devices=devices).minibatch for make in (mmt, dlrm, candle_uno)) == sizes
    # 4 x 8 transformer layers of 12 h^2 weights; 7 tables of 64 10^6 and 28 + 4 layers.
    assert sum(each.weight_bytes for each in mmt().operators) == 4 * 32 * 12 * 1024**2
    for instance in (mmt(), dlrm(), candle_uno()):
        assert all(edge.source < edge.target for edge in instance.edges)
        assert FAMILY.read(FAMILY.to_json(instance), "x", {}) == instance


def test_searches_stop_on_request() -> None:
    instance = mmt(devices=16)
    for solve in (graphpipe.solve_graphpipe, graphpipe.solve_pipedream, fewest_devices.solve, baselines.solve):
        watch = Watch(Limits(time_s=0.05))
        answer = solve(instance, Limits(time_s=0.05), watch)
        assert answer.stop is Stop.TIME_LIMIT and watch.elapsed_s() < allowed_s(3)


def test_too_large_is_said() -> None:
    instance = dlrm(devices=4)
    for solve in (levels.solve, baselines.solve):
        answer = run(solve, instance)
        assert answer.stop is Stop.SIZE_LIMIT and "upsets" in answer.reason and not answer.infeasible


def test_rows_are_merged_where_downsets_are_too_many() -> None:
    instance = mmt(devices=4)
    answer = run(baselines.solve, instance)
    assert answer.stats["merged_into"] < answer.stats["merged_operators"] == 97
    groups = baselines.fold_chains(Costs(instance), 3)
    assert len(groups) == 33 and sorted(v for group in groups for v in bits(group)) == list(range(97))


def test_idle_devices_go_to_the_slowest_stage() -> None:
    costs = Costs(mmt(2, 1, devices=5))
    parts = fewest_devices.spread(costs, [(0b111, 1), (0b1111000, 1)], 16)
    assert sum(devices for _, devices in parts) <= 5
    assert max(costs.tps(nodes, 16, devices) for nodes, devices in parts) < max(
        costs.tps(nodes, 16, 1) for nodes, _ in parts
    )


def test_chain_leaves_are_all_different() -> None:
    leaves = chain(Costs(mmt(2, 1)))
    assert all(one.key != other.key for one, other in itertools.pairwise(leaves))


def test_too_little_memory_is_proved() -> None:
    for memory, reason in ((1e6, "alone needs"), (2e8, "all devices")):
        instance = replace(mmt(devices=4), memory_bytes=memory)
        for solve in (graphpipe.solve_graphpipe, fewest_devices.solve, graphpipe.solve_data_parallel):
            answer = run(solve, instance)
            assert answer.infeasible and reason in answer.reason


def test_a_plan_is_never_ruled_out(cases: int) -> None:
    for seed in range(cases):
        instance = random_graph(seed, (1, 6), 3, series_parallel=True)
        if shortage(instance):
            assert run(levels.solve, instance).infeasible


def test_catalog_names() -> None:
    names = {"mmt": 97, "mmt-2": 49, "dlrm": 40, "dlrm-8": 25, "candle-uno": 29, "candle-uno-8": 33}
    names |= {"graphpipe-case-study": 25, "sequential-transformer": 96}
    for name, operators in names.items():
        instance = planner.load(name, devices=16)
        assert instance.num_operators == operators and instance.num_devices == 16
    assert planner.load("mmt", devices=16).minibatch == 256
    for of_catalog in (True, False):  # a batch that is given is one whose iteration matters
        name = "mmt" if of_catalog else FAMILY.to_json(planner.load("mmt", devices=16))
        given = planner.load(name, devices=16, minibatch=32)
        assert (given.minibatch, given.objective) == (32, "iteration")
        assert planner.load(name, devices=16, minibatch=32, objective="tps").objective == "tps"
        assert planner.load(name, devices=16, minibatch=32, schedule="kfkb").objective == "tps"
        assert planner.load(name, devices=16).objective == "tps"


def _plain(pairs: list[tuple[int, int]], count: int, devices: int, memory: float) -> StageGraph:
    """Operators that take a second per sample and keep a byte; micro-batches of one sample."""
    half = AffineTime(0.0, 0.5)
    made = tuple(Operator(str(node), half, half, 0.0, 1.0) for node in range(count))
    edges = tuple(OperatorEdge(u, v, 0.0) for u, v in pairs)
    return StageGraph("plain", made, edges, devices, memory, 1.0, 0.0, 4, microbatches=(1,))


def test_branches_that_feed_different_operators_are_not_exchanged() -> None:
    costs = Costs(_plain([(2, 3), (3, 4), (0, 2), (0, 3), (1, 2), (1, 4)], 5, 3, 9.0))
    branches = decompose(costs).segment[0].branches
    assert [len(branch) for branch in branches] == [1, 1] and branches[0][0].label != branches[1][0].label


@pytest.mark.parametrize("schedule", ["uniform", "per-stage"])
def test_the_deeper_branch_counts(schedule: Schedule) -> None:
    # A stage for each operator would be fastest, but the first keeps three samples: one more than fit.
    instance = replace(_plain([(0, 1), (1, 2), (0, 3)], 4, 4, 2.0), schedule=schedule)
    assert value(instance, run(graphpipe.solve_graphpipe, instance)) == 2.0
    roomy = replace(instance, memory_bytes=3.0)
    assert value(roomy, run(graphpipe.solve_graphpipe, roomy)) == 1.0


def test_data_parallelism_looks_at_the_watch() -> None:
    """Half a million degrees; the watch is stopped at the hundredth look, and what was found by then is kept."""

    class Impatient(Watch):
        looks = 0

        def stopped(self) -> bool:
            self.looks += 1
            if self.looks == 100:
                self.stop(Stop.TIME_LIMIT)
            return super().stopped()

    graph = replace(
        random_graph(3, (2, 5), 4, series_parallel=True),
        num_devices=200_000,
        minibatch=2**19,
        memory_bytes=1e20,
        device_graph=None,
    )
    graph = replace(graph, microbatches=tuple(2**size for size in range(19, -1, -1)))
    watch = Impatient()
    answer = graphpipe.solve_data_parallel(graph, Limits(), watch)
    assert answer.stop is Stop.TIME_LIMIT and watch.looks < 200
    assert answer.plan is not None and watch.best_plan is not None


@pytest.mark.parametrize("method", ["graphpipe", "graphpipe-plus", "pipedream", "piper-dp", "data-parallel"])
def test_a_model_that_takes_no_time(method: str) -> None:
    none = AffineTime(0.0, 0.0)
    instance = StageGraph("idle", (Operator("", none, none, 1.0, 1.0),) * 2, (), 2, 100.0, 1.0, 0.0, 2)
    result = planner.solve(instance, method=method)
    assert result.verified and result.objective == 0


@pytest.mark.slow
def test_sizes_of_each_stage_are_compiled_for_graphpipe_alone() -> None:
    """Their kernels take half of the time in which a method that begins with GraphPipe's plans is compiled."""
    code = """
import sys
from formulations.compiled.compile_times import uncompiled
from formulations.stage_graph import FAMILY
with uncompiled():
    for name in ("exact", "graphpipe"):
        FAMILY.method(name).load()
        print(name, "formulations.stage_graph.kernels.per_stage" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["exact", "False", "graphpipe", "True"], done.stderr
