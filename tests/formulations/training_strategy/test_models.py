"""The models of layouts: against brute force, plans pinned in it, what only rounding admits, limits, requirements."""

import math
import random
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from oracles.training_strategy import plans, random_instance
from small_instances import random_case

import planner
from formulations.training_strategy import FAMILY, exact
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import evaluate, peak_memory, violations
from formulations.training_strategy.degrees import all_degrees
from formulations.training_strategy.models import cpsat, milp
from instances.errors import InstanceError
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.problems.training_strategy import Schedule, StrategyInstance, of_chain
from planner import Limits, Status, Stop
from solvers.milp import backend
from solvers.outcome import Watch

METHODS = ("exact", "cpsat", "milp")


@pytest.mark.slow
def test_a_plan_that_is_pinned_costs_what_the_definition_says_or_breaks_a_row(cases: int) -> None:
    """With its cuts and TMPCs fixed, the objective of a plan is its batch, and no plan that is too large is left."""
    seen = {True: 0, False: 0}
    for number in range(5 * cases):
        instance, rng = random_instance(random.Random(f"pinned {number}")), random.Random(number)
        listed = list(islice(plans(instance), 500))
        if not listed:
            continue
        plan = FAMILY.plan_from_json(instance, rng.choice(listed))
        model = milp.model_of(instance, complete=True)
        c = next(c for c, own in enumerate(model.data) if (own.degrees.schedule, own.degrees.V, own.degrees.p,
                 own.degrees.t, own.degrees.d) == (plan.schedule, plan.virtual_stages, plan.pp_degree, plan.tp_degree,
                 plan.dp_degree))  # fmt: skip
        ids = model.data[c].chain.ids
        taken = {(c, g, v, x) for g, chunk in enumerate(plan.chunks) for v in map(ids.index, chunk)
                 for x, way in enumerate(model.data[c].ways[v]) if way.id == plan.tmpcs[ids[v]]}  # fmt: skip
        for at, variable in model.model.runs.items():
            variable.fix(int(at in taken))
        run = backend.run(model.model, Limits())
        fits = not violations(instance, plan)
        assert run.infeasible is not fits, number
        if fits:
            assert run.objective is not None
            assert run.objective * model.unit == pytest.approx(evaluate(instance, plan), rel=1e-6, abs=1e-9), number
        seen[fits] += 1
    assert min(seen.values()) >= 2


@pytest.mark.parametrize(
    ("times", "sent", "p", "best"),
    [
        ((5.0, 5.0, 1.0, 1.0), (0.0, 0.0, 0.0), 2, 33.0),  # 5 and 1 in each chunk would take 5 * 6
        ((1.0, 1.0, 1.0, 1.0), (9.0, 0.0, 9.0), 3, 95.0),  # nothing in the second one would take 5 * 2
    ],
)
@pytest.mark.parametrize("room", [milp, cpsat])
def test_chunks_are_intervals_and_none_is_empty(
    room: Any, times: tuple[float, ...], sent: tuple[float, ...], p: int, best: float
) -> None:
    """What would be faster with a chunk in parts, or an empty one."""
    layers = tuple(Layer(v, {1: (Tmpc("x", time, 0.0, 0.0, 0.0),)}) for v, time in enumerate(times))
    edges = tuple(Edge(v, v + 1, each) for v, each in enumerate(sent))
    flat = StageInstance("chain", layers, edges, p, 1.0, 1.0, 4, max_dp_degree=1)
    instance = replace(of_chain(flat), requirements=(f"pp_degree == {p}",))
    found = room.solve(instance, Limits(), Watch())
    assert found.stop is Stop.PROVED and evaluate(instance, found.plan) == pytest.approx(best)
    assert planner.solve(instance, method="exact").objective == pytest.approx(best)


def test_the_only_layout_of_a_v_costs_what_the_definition_says() -> None:
    """Four layers on two devices: two of six edges stay on a device and cost nothing; two replicas sum gradients."""
    layers = tuple(Layer(v, {1: (Tmpc("x", 3.0 + v, 1.0 + v * v, 0.0, 0.0),)}) for v in range(4))
    edges = tuple(Edge(u, v, 2.0 + u) for u, v in ((0, 1), (1, 2), (2, 3), (0, 2), (1, 3), (0, 3)))
    flat = StageInstance("v", layers, edges, 4, 1.0, 1.0, 8)
    instance = replace(of_chain(flat, (Schedule.ZB_V,)), requirements=("dp_degree == 2",))
    plan = StrategyPlan(2, 1, 2, 2, Schedule.ZB_V, ((0,), (1,), (2,), (3,)), dict.fromkeys(range(4), "x"))
    watch = Watch()
    exact.solve(instance, Limits(), watch)
    assert watch.best_plan == plan and watch.best_objective == pytest.approx(evaluate(instance, plan), rel=1e-12)
    model = milp.model_of(instance, complete=True)
    run = backend.run(model.model, Limits())
    assert run.objective is not None and run.objective * model.unit == pytest.approx(evaluate(instance, plan))


def hair() -> StrategyInstance:
    """Two layers on one device whose fast TMPCs are too large together by less than models resolve."""
    layers = tuple(
        Layer(v, {1: (Tmpc("fast", 1.0, 0.0, 0.0, 1 + 1.7e-12), Tmpc("lean", slow, 0.0, 0.0, 1.0))})
        for v, slow in (("a", 2.0), ("b", 3.0))
    )
    return of_chain(StageInstance("hair", layers, (Edge("a", "b", 0.0),), 1, 2.0, 1.0, 1))


@pytest.mark.parametrize("room", [milp, cpsat])
def test_what_only_tolerances_admit_is_cut_off(room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    instance, cut = hair(), []
    own = room.Model.cut_off
    monkeypatch.setattr(room.Model, "cut_off", lambda *given: (cut.append(given[1]), own(*given)))
    found = room.solve(instance, Limits(), Watch())
    assert found.stop is Stop.PROVED and dict(found.plan.tmpcs) == {"a": "lean", "b": "fast"}
    assert cut and all(max(peak_memory(instance, plan)) > instance.flat.memory_bytes for plan in cut)


def test_a_limit_leaves_a_bound_and_the_first_plan() -> None:
    instance = planner.load("gpt", problem="training_strategy", devices=16, microbatches=64)
    found = planner.solve(instance, method="milp", limits=Limits(time_s=1.0))
    best = planner.solve(instance, method="exact").objective
    assert found.status is Status.FEASIBLE and found.stop is Stop.TIME_LIMIT and best is not None
    assert found.bound is not None and found.objective is not None and found.bound <= best <= found.objective
    with pytest.raises(planner.UsageError, match="8960 passes of an iteration"):
        planner.solve(planner.load("gpt", problem="training_strategy", devices=64, microbatches=128), method="milp")


def test_the_model_that_is_shown_has_all_degrees_that_may_be_better() -> None:
    instance = planner.load("chain8-strategy")
    every = milp.model_of(instance, complete=True)
    assert {own.degrees for own in every.data} == set(all_degrees(instance))
    watch = Watch()
    best = planner.solve(instance, method="exact")
    watch.plan(FAMILY.plan_from_json(instance, best.plan), best.objective)
    fewer = milp.model_of(instance, watch)
    assert 0 < len(fewer.data) < len(every.data) and fewer.known is not None
    run = backend.run(fewer.model, Limits())
    assert run.objective is not None and math.isclose(run.objective * fewer.unit, best.objective or 0.0, rel_tol=1e-6)


def test_requirements_choose_among_degrees() -> None:
    given = ["not schedule(zb-h1)", "pp_degree >= 4"]
    found = [planner.solve(planner.load("chain8-strategy", require=given), method=each) for each in METHODS]
    free = planner.solve(planner.load("chain8-strategy"), exact=True)
    assert [each.status for each in (free, *found)] == [Status.OPTIMAL] * 4
    assert free.plan is not None and (free.plan["schedule"], free.plan["pp_degree"]) == ("zb-h1", 2)
    assert [each.objective for each in found] == [pytest.approx(found[0].objective, rel=1e-6)] * 3
    for each in found:
        assert each.plan is not None and each.plan["schedule"] == Schedule.ONE_F_ONE_B and each.plan["pp_degree"] == 4
    for method in METHODS:
        none = planner.solve(planner.load("chain8-strategy", require="pp_degree >= 9"), method=method)
        assert none.status is Status.INFEASIBLE, none.reason
    # A heuristic of one schedule does not say of the others that they have no plan.
    none = planner.solve(planner.load("chain8-strategy", require="not schedule(1f1b)"), method="formula")
    assert none.status is Status.UNKNOWN and none.plan is None
    with pytest.raises(InstanceError, match="schedule that exists"):
        planner.load("chain8-strategy", require="schedule(dualpipe)")
    every = planner.load("chain8-strategy")
    assert all(degrees.p == 2 for degrees in all_degrees(replace(every, requirements=("pp_degree == 2",))))


@pytest.mark.parametrize(("seed", "number"), [(7001, 2052), (7002, 803)])
def test_a_first_plan_of_ages_is_no_coefficient(seed: int, number: int) -> None:
    """The even split takes 1e20 times what layouts at other degrees can: CP-SAT takes no such objective."""
    instance = random_case("training_strategy", seed, number)
    best, found = planner.solve(instance, method="exact"), planner.solve(instance, method="cpsat")
    assert found.status is Status.OPTIMAL and found.objective == pytest.approx(best.objective, rel=2e-6)


def test_without_a_first_plan_no_coefficient_is_beyond_a_solver() -> None:
    """The least bound is 1e11 times below what an edge takes: HiGHS called the model in its parts infeasible, twice."""
    instance = random_case("training_strategy", 7004, 926)
    best, found = planner.solve(instance, method="exact"), planner.solve(instance, method="milp")
    assert found.status is Status.OPTIMAL and found.objective == pytest.approx(best.objective, rel=2e-6)
