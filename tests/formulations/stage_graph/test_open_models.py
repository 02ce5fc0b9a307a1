"""The models that `planner.model` hands out: all micro-batch sizes in one, requirements, nothing left out."""

import math
import random
from dataclasses import replace

import pytest
from branching_cases import least_of_all, random_graph
from oracles.stage_graph import plans, shortest_iteration
from thinned import thinned

import planner
from formulations.modelling.solve_model import prove
from formulations.modelling.warm_start import First
from formulations.stage_graph import FAMILY
from formulations.stage_graph.definition.problem import evaluate
from formulations.stage_graph.iteration import search
from formulations.stage_graph.models import cpsat_orders, milp_columns
from formulations.stage_graph.models.first_plan import first_plan
from instances.generators.branching import mmt
from instances.problems.stage_graph import AffineTime, DeviceGraph, Operator, OperatorEdge, StageGraph
from planner.process.errors import UsageError
from planner.solving.solve import run
from solvers.outcome import Limits, Status, Watch

MODELS = ("cpsat", "milp-columns")


def solved(method: str, instance: StageGraph, *, complete: bool) -> float | None:
    """The optimum by a method's open model alone."""
    build = FAMILY.method(method).build
    assert build is not None
    watch = Watch()
    answer = prove(instance, lambda: build(instance, watch, complete=complete), evaluate, FAMILY.judge, Limits(), watch)
    if answer.plan is None:
        assert answer.infeasible
        return None
    found = evaluate(instance, answer.plan)
    assert answer.bound is not None and answer.bound == pytest.approx(found, rel=3e-6)
    return found


@thinned("complete", [False, True], 2)
@pytest.mark.parametrize("method", MODELS)
def test_one_model_has_the_plans_of_all_sizes(method: str, complete: bool, cases: int) -> None:
    feasible = 0
    for seed in range(max(8, cases // 8)):
        instance = random_graph(seed, (1, 4), 1 + seed % 4, series_parallel=bool(seed % 2))
        best, found = least_of_all(instance), solved(method, instance, complete=complete)
        feasible += found is not None
        assert (best if found is None else found) == pytest.approx(best, rel=3e-6), seed
    assert feasible


def with_links(seed: int) -> StageGraph:
    """Devices with memories of their own, of which not all are linked."""
    made = random_graph(seed, (2, 3), 3, series_parallel=False)
    rates = ((0.0, 50.0, 5.0), (50.0, 0.0, 0.0 if seed % 2 else 20.0), (5.0, 20.0, 0.0))
    memory = (made.memory_bytes, made.memory_bytes * 2, made.memory_bytes * 0.7)
    return replace(made, device_graph=DeviceGraph(memory, rates))


def test_the_hint_of_the_columns_is_the_first_plan() -> None:
    """Pinned to it, the model is feasible, and its plan is as good."""
    seen = 0
    for seed in range(12):
        instance = replace(random_graph(seed, (3, 5), 3, series_parallel=True), requirements=("num_stages >= 2",))
        watch = Watch()
        first_plan(replace(instance, requirements=()), Limits()).report(instance, evaluate, FAMILY.judge, watch)
        built = milp_columns.model_of(instance, watch)
        plan, objective = watch.incumbent()
        if plan is None:
            continue
        for variable, value in built.values_of(plan):
            variable.fix(value)
        pinned = built.run(Limits(), Watch())
        assert evaluate(instance, built.decode(pinned.values)) == pytest.approx(objective), seed
        assert not FAMILY.judge(instance, built.decode(pinned.values))
        seen += 1
    assert seen > 2


@thinned(
    "text", ["devices_of(0) <= 1", "num_stages >= 2", "idle_devices == 1", "in_flight_of(0) >= 4", "microbatch <= 2"]
)
def test_requirements_on_a_device_graph(text: str) -> None:
    feasible = 0
    for seed in range(3):
        instance = replace(with_links(seed), minibatch=4, requirements=(text,))
        read = [FAMILY.plan_from_json(instance, each) for each in plans(instance)]
        best = min((evaluate(instance, each) for each in read if not FAMILY.judge(instance, each)), default=None)
        found = run(FAMILY, FAMILY.method("cpsat"), instance, Limits(), {})
        assert found.status is (Status.INFEASIBLE if best is None else Status.OPTIMAL)
        assert best is None or found.objective == pytest.approx(best, rel=2e-6)
        feasible += best is not None
    assert feasible


@pytest.mark.parametrize("method", MODELS)
def test_more_in_flight_than_there_must_be(method: str) -> None:
    """A single operator needs one micro-batch in flight; with eight of them required it keeps eight, if they fit."""
    plain = replace(random_graph(3, (1, 1), 1, series_parallel=True), minibatch=8, memory_bytes=1e9)
    operator = replace(plain.operators[0], weight_bytes=0.0, activation_bytes=1.0)
    asked = replace(plain, operators=(operator,), requirements=("microbatch == 1", "in_flight_of(0) >= 8"))
    found = planner.solve(replace(asked, memory_bytes=8.0), method=method)
    assert found.status is Status.OPTIMAL
    assert found.plan is not None and found.plan["stages"][0]["in_flight"] == 8
    assert planner.solve(replace(asked, memory_bytes=7.0), method=method).status is Status.INFEASIBLE


@pytest.mark.parametrize("method", ["exact", "downsets", "levels"])
def test_searches_keep_to_the_required_size(method: str) -> None:
    instance = random_graph(1, (4, 4), 3, series_parallel=True)
    for size in instance.microbatch_sizes:
        asked = replace(instance, requirements=(f"microbatch == {size}",))
        found, best = planner.solve(asked, method=method), least_of_all(replace(instance, microbatches=(size,)))
        assert (found.objective or math.inf) == pytest.approx(best, rel=1e-6)
    assert (
        planner.solve(replace(instance, requirements=("microbatch > 64",)), method=method).status is Status.INFEASIBLE
    )


def test_what_the_models_say_of_their_sizes() -> None:
    instance = random_graph(1, (4, 4), 3, series_parallel=True)
    said = {group.name: group.says for group in planner.model(instance, "cpsat").sizes().groups}
    assert "(to be chosen)" in said["bottleneck"] and "size" in said
    one = planner.model(instance, "cpsat").fix("microbatch", value=instance.microbatch_sizes[-1])
    said = {group.name: group.says for group in one.sizes().groups}
    assert f"micro-batches of {instance.microbatch_sizes[-1]}" in said["bottleneck"] and "size" not in said


def test_too_many_columns_are_refused_in_a_line() -> None:
    with pytest.raises(planner.UsageError, match=r"milp-columns.*can be built \(more than 6000 upsets"):
        planner.model(planner.load("dlrm", devices=8), "milp-columns").sizes()
    large = replace(random_graph(1, (9, 9), 8, series_parallel=False), minibatch=256, memory_bytes=1e9)
    with pytest.raises(planner.UsageError, match=f"more than {milp_columns.MAX_COLUMNS} columns"):
        planner.model(large, "milp-columns").sizes()


def test_micro_batches_in_flight_are_counted_from_the_first() -> None:
    instance = replace(
        random_graph(3, (1, 1), 1, series_parallel=True), minibatch=4, microbatches=(1,), memory_bytes=1e9
    )
    built = planner.model(instance, "cpsat", complete=True)._built
    assert built.run(Limits(), Watch()).values is not None
    built.model.add(built.decisions.deep[0, 3] == 1)
    assert built.run(Limits(), Watch()).values is not None
    built.model.add(built.decisions.deep[0, 2] == 0)
    assert built.run(Limits(), Watch()).infeasible


@pytest.fixture
def without_first_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpsat_orders, "First", lambda by, _: First(by, lambda _: None))


@pytest.mark.usefixtures("without_first_plan")
def test_without_a_first_plan_it_proves_what_the_search_does(cases: int) -> None:
    """Of larger instances than every plan can be listed of: neither has anything of the other."""
    several = 0
    for number in range(cases // 4):
        rng = random.Random(f"orders and search {number}")
        graph = random_graph(rng.randrange(2**32), (3, 6), rng.randint(2, 5), series_parallel=bool(number % 2))
        instance = replace(graph, objective="iteration", minibatch=rng.choice((4, 6)))
        found, other = (each(instance, Limits(), Watch()) for each in (cpsat_orders.solve, search.solve))
        assert found.infeasible == other.infeasible, number
        if found.plan is not None and other.plan is not None:
            assert evaluate(instance, found.plan) == pytest.approx(evaluate(instance, other.plan), rel=2e-6), number
            several += len(found.plan.stages) > 1
    assert several


def _row(batch: int, kept: float = 0.0, memory: float = 1.0) -> StageGraph:
    """Three operators, each on a device of its own, which take (1, 2), (1, 1) and (1, 1) seconds."""
    made = tuple(Operator("", AffineTime(0.0, 1.0), AffineTime(0.0, b), 0.0, kept) for b in (2.0, 1.0, 1.0))
    edges = (OperatorEdge(0, 1, 0.0), OperatorEdge(1, 2, 0.0))
    return StageGraph("row", made, edges, 3, memory, 1.0, 0.0, batch, microbatches=(1,), objective="iteration")


@pytest.mark.parametrize(
    ("counts", "seconds"), [((3, 2, 1), 17.0), ((5, 2, 1), 15.0), ((5, 5, 5), 19.0), ((None,) * 3, 15.0)]
)
def test_passes_end_when_they_do_by_hand(counts: tuple[int | None, ...], seconds: float) -> None:
    """The iterations that the tests of the search have by hand, with what is in flight as rows."""
    required = ("num_stages == 3", *(f"in_flight_of({v}) == {n}" for v, n in enumerate(counts) if n is not None))
    result = planner.solve(replace(_row(5), requirements=required), method="cpsat-orders")
    assert result.status is Status.OPTIMAL and result.objective == seconds


def test_memory_limits_what_is_in_flight() -> None:
    """Three stages need memory for three micro-batches at the first of them."""
    for memory, stages in ((3.0, 3), (2.0, 2)):
        instance = _row(4, kept=1.0, memory=memory)
        result = planner.solve(instance, method="cpsat-orders")
        assert result.status is Status.OPTIMAL and len(result.plan["stages"]) == stages
        assert result.objective == shortest_iteration(instance)


def _least(instance: StageGraph, left_out: str = "") -> float:
    """The optimum without the rows of this name, in seconds."""
    model = cpsat_orders.model_of(instance)
    for row in model.model.proto.constraints:
        if row.name.partition("[")[0] == left_out:
            row.clear_linear()
    run = model.run(Limits(), Watch())
    assert run.bound is not None
    return model.lower_bound(run.bound)


@pytest.mark.parametrize(
    ("name", "counts", "seconds"),
    [(name, (5, 5, 5), 19.0) for name in ("f_after_f", "b_after_b")]
    + [(name, (3, 2, 1), 17.0) for name in ("f_after_ahead", "b_after_behind", "b_after_warm_up", "f_after_warm_up")],
)
def test_every_row_on_passes_is_needed(name: str, counts: tuple[int, ...], seconds: float) -> None:
    """What three stages take by hand, and less where the rows of one name are left out."""
    required = ("num_stages == 3", *(f"in_flight_of({v}) == {n}" for v, n in enumerate(counts)))
    instance = replace(_row(5), requirements=required)
    assert _least(instance) == pytest.approx(seconds)
    assert _least(instance, name) < seconds - 0.5


def test_a_slow_network_inside_nodes_does_not_exclude_plans() -> None:
    """Replicas that reduce inside a node at a byte in ten seconds: both do, as one device holds one sample only."""
    made = (Operator("", AffineTime(0.0, 1.0), AffineTime(0.0, 1.0), 1.0, 1.0),)
    instance = StageGraph(
        "tiers", made, (), 2, 5.0, 1e3, 0.0, 2, devices_per_node=2, inner_bandwidth_bytes_per_s=0.01,
        microbatches=(2,), objective="iteration",
    )  # fmt: skip
    for objective, seconds in (("iteration", 102.0), ("tps", 51.0)):
        result = planner.solve(replace(instance, objective=objective), exact=True, method="cpsat" if
                               objective == "tps" else "cpsat-orders")  # fmt: skip
        assert result.status is Status.OPTIMAL and result.objective == pytest.approx(seconds)


def test_what_it_does_not_take() -> None:
    (method,) = [each for each in FAMILY.methods if each.name == "cpsat-orders"]
    small = replace(mmt(2, 4), objective="iteration")
    assert method.misfit(replace(small, microbatches=(64, 128))) is None
    assert "objective tps" in str(method.misfit(replace(small, objective="tps")))
    assert "schedule kfkb" in str(method.misfit(replace(small, schedule="kfkb")))
    with pytest.raises(UsageError, match="rows on warm-ups"):
        planner.model(replace(small, microbatches=(1,)), "cpsat-orders")
