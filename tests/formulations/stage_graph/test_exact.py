"""CP-SAT and the columns against levels on random models, and against every plan on heterogeneous devices."""

import math
import random
from dataclasses import replace
from itertools import product
from types import ModuleType

import branching_cases
import pytest
from branching_cases import random_graph
from device_graphs import heterogeneous_devices, least_on_devices

import planner
from formulations.contract.family import Answer
from formulations.modelling.warm_start import First
from formulations.stage_graph import FAMILY
from formulations.stage_graph.costs.costs import Costs, bits
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.problem import evaluate, violations
from formulations.stage_graph.models import cpsat, milp_columns, size_search
from formulations.stage_graph.questions.studies.inside import induced_graph, parts_of_graphpipe, schedules_of_graphpipe
from formulations.stage_graph.upsets import chains, levels
from instances.generators.branching import candle_uno, mmt
from instances.problems.stage_graph import AffineTime, Operator, StageGraph, TableTime, check
from planner.process.errors import UsageError
from solvers.cpsat import backend
from solvers.outcome import Limits, Run, Status, Stop, Watch
from solvers.scaling import Scale


def value(instance: StageGraph, answer: Answer[StagePlan]) -> float:
    """The objective of a plan that keeps all rules and meets its bound; ``inf`` where none is proved to exist."""
    assert answer.stop is Stop.PROVED
    if answer.plan is None:
        assert answer.infeasible
        return math.inf
    assert violations(instance, answer.plan) == () and answer.bound is not None
    objective = evaluate(instance, answer.plan)
    assert objective * (1 - 1e-6) <= answer.bound <= objective
    return objective


def test_sizes_that_do_not_divide_each_other() -> None:
    for seed in range(3):
        instance = replace(random_graph(seed, (3, 6), 4, series_parallel=True), minibatch=12, microbatches=(2, 3, 4))
        optimum = value(instance, levels.solve(instance, Limits(), Watch()))
        assert value(instance, cpsat.solve(instance, Limits(), Watch())) == pytest.approx(optimum, rel=1e-6), seed


def test_heterogeneous_devices(cases: int) -> None:
    found = []
    for seed in range(max(5, cases // 4)):
        instance = heterogeneous_devices(seed)
        optimum = least_on_devices(instance)
        assert value(instance, cpsat.solve(instance, Limits(), Watch())) == pytest.approx(optimum, rel=1e-6), seed
        found.append(optimum)
    assert 0 < sum(map(math.isinf, found)) < len(found)


def test_what_exact_methods_are_chosen() -> None:
    def chosen(instance: StageGraph, exact: bool = True) -> str:
        return FAMILY.choose(instance, Limits(), exact)[0]

    time = AffineTime(0.0, 1.0)
    apart = StageGraph("apart", (Operator("", time, time, 1.0, 1.0),) * 22, (), 4, 1e3, 1.0, 0.0, 4)
    mixed = tuple(replace(each, weight_bytes=float(number)) for number, each in enumerate(apart.operators))
    assert (chosen(mmt()), chosen(mmt(), False)) == ("exact", "downsets")
    assert chosen(replace(apart, operators=mixed)) == "exact"
    few = replace(apart, operators=mixed[:14])  # more upsets than are laid out
    assert (chosen(few), chosen(few, False)) == ("exact", "graphpipe-plus")
    assert chosen(random_graph(1, (6, 6), 4, series_parallel=False)) == "levels"
    assert chosen(heterogeneous_devices(0)) == chosen(heterogeneous_devices(0), False) == "cpsat"


@pytest.mark.parametrize("method", ["levels", "downsets", "exact", "cpsat", "milp-columns"])
def test_these_proofs_are_of_the_least_time_per_sample(method: str) -> None:
    for instance in (mmt(), random_graph(1, (6, 6), 4, series_parallel=False)):
        with pytest.raises(UsageError, match="objective iteration"):
            planner.solve(replace(instance, objective="iteration"), method=method)


def test_columns_have_a_limit() -> None:
    """Beyond it there is no proof, but a plan and a bound."""
    instance = mmt(devices=4)
    answer = milp_columns.solve(instance, Limits(), Watch())
    assert answer.stop is Stop.SIZE_LIMIT and answer.proved_by == ""
    assert violations(instance, answer.plan) == () and answer.stats["plan_by"] == "graphpipe-plus"
    assert 0.9 * evaluate(instance, answer.plan) < answer.bound < evaluate(instance, answer.plan)


def test_a_limit_keeps_the_plan_that_the_model_had_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_search, "first_plan", lambda *_: First("", lambda _: None))
    instance = random_graph(7002, (20, 20), 6, series_parallel=False)

    def listen(_: float, objective: float | None, _bound: float | None) -> None:
        if objective is not None:
            watch.stop(Stop.TIME_LIMIT)

    watch = Watch(listen=listen)
    found = FAMILY.method("cpsat").solve(instance, Limits(time_s=60.0), watch)
    assert found.stop is Stop.TIME_LIMIT and violations(instance, found.plan) == ()
    assert evaluate(instance, found.plan) == watch.best_objective


#: Some with a plan and one without.
SMALL = [
    *(random_graph(seed, (4, 6), 3, series_parallel=bool(seed % 2)) for seed in range(5)),
    replace(random_graph(0, (4, 6), 3, series_parallel=False), memory_bytes=15.0),
]


@pytest.mark.parametrize("room", [cpsat, milp_columns])
@pytest.mark.parametrize("factor", [0.0, 2.0])
def test_no_proof_of_a_model_leans_on_the_bound_that_all_share(
    room: ModuleType, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without it the model proves as much, and if it were false the model would know better.
    for instance in SMALL:
        optimum = value(instance, levels.solve(instance, Limits(), Watch()))
        if optimum == math.inf:
            continue
        for module in (cpsat, size_search, chains):
            monkeypatch.setattr(module, "simple_bound", lambda _, optimum=optimum: factor * optimum)
        answer = room.solve(instance, Limits(), Watch())
        assert answer.stop is Stop.PROVED and answer.bound is not None and answer.plan is not None
        assert optimum * (1 - 1e-6) <= answer.bound <= evaluate(instance, answer.plan) == pytest.approx(optimum, 1e-6)
        monkeypatch.undo()


def test_exact_says_whose_proof_it_is() -> None:
    times = [AffineTime(0.0, 1.0 + node / 10) for node in range(14)]
    operators = tuple(Operator("", time, time, float(node), 1.0) for node, time in enumerate(times))
    apart = StageGraph("apart", operators, (), 2, 1e3, 1.0, 0.0, 4)  # more upsets than are laid out
    expected = {
        "levels": random_graph(1, (6, 6), 4, series_parallel=False),
        "downsets": candle_uno(devices=8),
        "cpsat": apart,
    }
    for by, instance in expected.items():
        result = planner.solve(instance, method="exact")
        assert (result.status.value, result.proved_by) == ("optimal", by)
        assert bool(result.solver) == (by == "cpsat")
    assert planner.solve(heterogeneous_devices(0), method="exact").proved_by == "cpsat"
    starved = replace(candle_uno(devices=8), memory_bytes=1.0)
    assert planner.solve(starved, method="exact").proved_by == "downsets"


@pytest.mark.slow
def test_borrowed_proofs_have_the_name_of_their_owner() -> None:
    rows, apart = candle_uno(devices=8), random_graph(1, (6, 6), 4, series_parallel=False)
    for method in ("graphpipe", "graphpipe-plus", "pipedream"):
        result = planner.solve(rows, method=method)
        assert (result.status.value, result.proved_by) == ("optimal", "downsets")
    assert planner.solve(rows, method="downsets").proved_by == "search"
    assert planner.solve(apart, method="downsets").proved_by == "levels"  # no rows
    starved = replace(apart, memory_bytes=1.0)
    assert planner.solve(starved, method="downsets").proved_by == "levels"
    assert planner.solve(starved, method="graphpipe").proved_by == "bounds"


def test_the_bound_that_all_share_is_not_put_down_to_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = random_graph(1, (4, 6), 3, series_parallel=True)
    optimum = value(instance, levels.solve(instance, Limits(), Watch()))
    least = size_search.Search.least
    monkeypatch.setattr(
        size_search.Search, "least", lambda search, *sizes: least(search, *sizes) and 0.0
    )  # plans, no proof
    monkeypatch.setattr(size_search.Search, "may_improve", lambda *_: True)
    monkeypatch.setattr(size_search, "simple_bound", lambda _: optimum)
    assert planner.solve(instance, method="cpsat").proved_by == "bounds"
    time = AffineTime(0.0, 1.0)
    one = StageGraph("one", (Operator("", time, time, 0.0, 1.0),), (), 1, 9.0, 1.0, 0.0, 2)
    for method in ("downsets", "graphpipe"):  # nothing was searched
        assert planner.solve(one, method=method).proved_by == "bounds"


def test_models_too_coarse_for_a_proof_are_no_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few units in a second all models are solved at once, and the gap that is left is their rounding's."""
    instance = random_graph(3, (3, 4), 4, series_parallel=True)
    assert planner.solve(instance, method="cpsat", limits=Limits(time_s=60)).stop is Stop.PROVED
    coarse = cpsat.cost_scale
    monkeypatch.setattr(cpsat, "cost_scale", lambda *given: Scale(coarse(*given).exponent - 20))
    found = planner.solve(instance, method="cpsat", limits=Limits(time_s=60))
    assert (found.status, found.stop) == (Status.FEASIBLE, Stop.COMPLETED)
    assert "the whole numbers of the models are too coarse for a proof" in found.reason


@pytest.mark.parametrize("stop", [Stop.COMPLETED, Stop.TIME_LIMIT, Stop.SIZE_LIMIT])
def test_the_solvers_own_words_and_end_are_reported(stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "CP-SAT failed: it gave up without an answer"
    monkeypatch.setattr(backend, "run", lambda *_, **__: Run(stop=stop, solver="CP-SAT", reason=words))
    answer = cpsat.solve(random_graph(2, (3, 4), 4, series_parallel=True), Limits(time_s=60), Watch())
    assert (answer.stop, answer.reason, answer.bound) == (stop, words, None)


def test_a_gap_that_the_caller_allows_is_not_put_down_to_coarse_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = random_graph(3, (3, 4), 4, series_parallel=True)
    coarse = cpsat.cost_scale
    monkeypatch.setattr(cpsat, "cost_scale", lambda *given: Scale(coarse(*given).exponent - 20))
    answer = cpsat.solve(instance, Limits(gap=0.5), Watch())
    assert (answer.stop, answer.reason) == (Stop.COMPLETED, "")


@pytest.mark.parametrize("seed", range(30))
def test_a_stage_costs_the_same_in_a_part_and_in_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    whole = branching_cases.uneven_graph(seed, (4, 9))
    if seed % 3 == 0:  # times from tables
        table = TableTime((2, 5), (0.5, 1.0))
        whole = replace(whole, operators=tuple(replace(each, forward=table) for each in whole.operators))
    nodes = sorted(rng.sample(range(whole.num_operators), rng.randint(1, whole.num_operators)))
    mask = sum(1 << node for node in nodes)
    part = induced_graph(whole, mask, 3)
    check(part, "part")
    inside = rng.sample(range(len(nodes)), rng.randint(1, len(nodes)))
    there, here = sum(1 << nodes[each] for each in inside), sum(1 << each for each in inside)
    costs, own = Costs(whole), Costs(part)
    for size, devices in product(whole.microbatch_sizes, (1, 2, 3)):
        if devices <= size:
            assert own.tps(here, size, devices) == pytest.approx(costs.tps(there, size, devices), rel=1e-12)
            assert own.memory(here, size, devices, size) == pytest.approx(costs.memory(there, size, devices, size))


def _graph(seed: int) -> StageGraph:
    return replace(branching_cases.random_graph(seed, (5, 7), 3, series_parallel=True), memory_bytes=1e9)


def test_the_recursion_visits_parts_up_to_the_whole() -> None:
    instance = _graph(2)
    found = [each() for each in parts_of_graphpipe(instance, Limits(), Watch())]
    parts = {str(each.origin["nodes"]) for each in found}
    assert len(found) == len(parts) * instance.num_devices
    assert f"{(1 << instance.num_operators) - 1:x}" in parts
    for each in found:
        members = list(bits(int(str(each.origin["nodes"]), 16)))
        assert each.instance.ids == tuple(instance.id_of(node) for node in members)
        assert each.instance.num_devices == each.origin["devices"]
    least = min(found, key=lambda each: each.instance.num_operators)
    assert least.plan is not None


def test_schedules_are_those_that_plans_are_priced_at() -> None:
    for seed in range(6):
        instance = _graph(seed)
        found = [each() for each in schedules_of_graphpipe(instance, Limits(), Watch())][::2]
        assert found
        for each in found:
            schedule, plan = each.instance, each.plan
            assert plan is not None and schedule.minibatch == instance.minibatch
            for number, stage in enumerate(schedule.stages):
                assert plan.peak_in_flight(number) * stage.microbatch <= stage.in_flight
