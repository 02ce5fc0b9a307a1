"""The simulated iteration on machines: the definition by hand, bounds, the search on brute force, who refuses."""

import math
from dataclasses import replace

import pytest
from oracles.hierarchical_partitioning import (
    IterationBruteForce,
    random_hierarchical,
    random_levels,
    same,
    same_weights,
    tight_graph,
)

import planner
from formulations.compiled.downsets import all_downsets
from formulations.contract.family import UncertifiedError, Violation
from formulations.contract.figures.plan_figures import Passes, Stack
from formulations.hierarchical_partitioning import FAMILY, iteration
from formulations.hierarchical_partitioning.definition.clock import clock
from formulations.hierarchical_partitioning.definition.plan import Group, HierarchicalPlan, Superstage
from formulations.hierarchical_partitioning.definition.plan_figures import breakdown
from formulations.hierarchical_partitioning.definition.problem import (
    evaluate,
    gradient_time,
    iteration_time,
    replica_times,
)
from formulations.stage_partitioning.definition.plan import Stage
from instances.problems.hierarchical_partitioning import HierarchicalInstance, Level, Objective, on_machines
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from planner.process.errors import UsageError
from solvers.outcome import Limits, Watch


def chain(upper: tuple[Level, ...] = (), machines: int = 3) -> HierarchicalInstance:
    """a -> b -> c on three machines of two devices; 10 bytes of weights, 20 and 4 bytes between layers."""
    layers = tuple(Layer(v, {1: (Tmpc("x", 12.0, 10.0, 2.0, 1.0),)}) for v in "abc")
    flat = StageInstance("abc", layers, (Edge("a", "b", 20.0), Edge("b", "c", 4.0)), 1, 100.0, 1.0, 6)
    made = on_machines(flat, 2, machines, 10.0, 2.0, upper_levels=upper)
    return replace(made, objective=Objective.ITERATION)


def stage(nodes: str, d: int) -> Stage:
    return Stage(tuple(nodes), d, 1, dict.fromkeys(nodes, "x"))


#: a and b share two machines, a device each; c has both devices of the third.
PLAN = HierarchicalPlan((Superstage(2, (stage("a", 1), stage("b", 1))), Superstage(1, (stage("c", 2),))))


def test_two_levels_by_hand() -> None:
    instance = chain()
    # b -> c leaves both machines: from one replica over 2 bytes/s, into two replicas that share as much
    assert replica_times(instance, PLAN) == pytest.approx([12 + 4, 12 + 4.8 + 8 / 2, 12 + 0.8 + 2 * 8 / 2])
    # two machines sum 20 bytes of weights over their links; inside the third two replicas sum 10
    assert gradient_time(instance, PLAN) == pytest.approx(max(4 / 2 * 20 / 2, 4 / 2 * 10 / 10))
    # each replica runs three of six micro-batches, and the last stage is the slowest one
    assert evaluate(instance, PLAN) == pytest.approx((16 + 20.8 + 3 * 20.8 + 20) / 6)


def test_three_levels_by_hand() -> None:
    """Links of a level are shared by all replicas below it, and gradients are summed level by level."""
    instance = chain((Level(2, 5.0),), machines=2)
    plan = HierarchicalPlan(
        (Superstage(2, (stage("ab", 2),)), Superstage(1, (stage("c", 1),))), ((Group(1, 1), Group(1, 1)),)
    )
    assert replica_times(instance, plan) == pytest.approx([24 + 0.8 + 2 * 8 / 2 + 4 * 8 / 5, 12 + 0.8 + 8 / 2 + 8 / 5])
    assert gradient_time(instance, plan) == pytest.approx(2 * 20 / 10 + 2 * 20 / 2)
    doubled = replace(plan, stages=plan.stages[:1], groups=((Group(2, 1),),))
    assert gradient_time(instance, doubled) == pytest.approx(2 * 20 / 10 + 2 * 20 / 2 + 2 * 20 / 5)


def drawn(seed: int) -> HierarchicalInstance:
    return same_weights(random_hierarchical(seed, max_nodes=3, max_tmpcs=2) if seed % 2 else tight_graph(seed))


def from_nothing(instance: HierarchicalInstance) -> float:
    """The least time that the search finds without a plan to begin with, which is often the best one."""
    watch = Watch()
    iteration.Search(instance, all_downsets(instance.flat, 10**6), watch, math.inf).run(0.0)
    return math.inf if watch.best_objective is None else watch.best_objective


def test_search_against_brute_force(cases: int) -> None:
    """Every plan, priced by formulas and simulated in orders that the oracle writes by itself."""
    seen = dict.fromkeys(["infeasible", "superstages", "another plan", "branches"], 0)
    for seed in range(cases):
        instance = drawn(seed)
        if len(instance.flat.layers) > 4:
            continue
        best, found = IterationBruteForce(instance).solve(), iteration.solve(instance, Limits(), Watch())
        assert found.infeasible == (best is None), seed
        assert same(from_nothing(instance), math.inf if best is None else best), seed
        seen["infeasible"] += best is None
        if best is None:
            continue
        assert found.plan is not None and FAMILY.judge(instance, found.plan) == ()
        assert same(evaluate(instance, found.plan), best), seed
        assert found.bound is not None and best * (1 - 1e-6) <= found.bound <= best * (1 + 1e-12), seed
        seen["superstages"] += any(len(each.inner) > 1 or each.dp_degree > 1 for each in found.plan.stages)
        seen["another plan"] += found.stats["first_plan"] > best * (1 + 1e-6)
        seen["branches"] += len(all_downsets(instance.flat, 10**6)) > len(instance.flat.layers) + 1
    assert all(seen.values()), seen


def test_no_beginning_promises_more_than_its_plans_take(cases: int) -> None:
    """Bounds of every beginning of every plan, whose iteration the definition simulates."""
    plans = 0
    for seed in range(4 * cases):
        instance = drawn(seed)
        downsets = all_downsets(instance.flat, 10**6)
        if len(instance.flat.layers) > 3 or instance.flat.num_devices > 8:
            continue
        search = iteration.Search(instance, downsets, Watch(), math.inf)
        root = iteration.Beginning((), instance.num_machines, -1, 0, 0.0, 0.0)
        open_ = [(0.0, root)]
        while open_:
            low, beginning = open_.pop()
            if beginning.held < len(downsets) - 1:
                open_ += [(max(low, search.bound(grown)), grown) for grown in search.grow(beginning)]
                continue
            plan, plans = search.plan(beginning), plans + 1
            assert low <= iteration_time(instance, plan) * (1 + 1e-12), (seed, plan)
    assert plans > 10 * cases


def test_methods_know_one_clock_and_say_so() -> None:
    simulated = chain()
    steady = replace(simulated, objective=Objective.STEADY)
    for method in FAMILY.methods:
        is_simulated = method.name == "best-first"
        reason = method.supports(steady if is_simulated else simulated)
        assert reason is not None and f"objective {'steady' if is_simulated else 'iteration'}" in reason
        assert method.supports(simulated if is_simulated else steady) is None
    assert planner.solve(simulated, exact=True).method == "best-first"
    with pytest.raises(UsageError, match="objective iteration"):
        planner.solve(simulated, method="piper-hierarchical")
    mixed = replace(
        simulated.flat.layers[0],
        tmpcs={1: tuple(Tmpc(name, 1.0, weight, 0.0, 0.0) for name, weight in (("x", 1.0), ("y", 0.5)))},
    )
    reason = iteration_refusal(replace(simulated, flat=replace(simulated.flat, layers=(mixed,), edges=())))
    assert reason == "the TMPCs of a node differ in their weights: the fastest choice need not be the best"
    assert "levels above machines" in (iteration_refusal(random_simulated_levels()) or "")
    many = replace(chain(), flat=replace(chain().flat, num_microbatches=100_000))
    assert iteration_refusal(many) == "a plan may have more than 500,000 passes, each of which is simulated"


def iteration_refusal(instance: HierarchicalInstance) -> str | None:
    return next(method for method in FAMILY.methods if method.name == "best-first").supports(instance)


def random_simulated_levels() -> HierarchicalInstance:
    return same_weights(random_levels(3))


def test_the_clock_shows_both() -> None:
    instance = chain()
    for objective, kind, other in (
        (Objective.ITERATION, "iteration", "steady"),
        (Objective.STEADY, "steady", "iteration"),
    ):
        found = clock(replace(instance, objective=objective), PLAN)
        assert (found.kind, found.other) == (kind, f"--objective {other}")
        assert found.iteration_s == pytest.approx(evaluate(instance, PLAN) * 6)
        assert found.formula_s == pytest.approx(12.0 * 6)


def test_what_is_minimised_is_a_setting_and_is_written() -> None:
    given = {"devices_per_machine": 2, "num_machines": 2, "inner_bandwidth": 10.0, "outer_bandwidth": 1.0}
    steady = planner.load("chain8", problem="hierarchical_partitioning", **given)
    simulated = planner.load("chain8", problem="hierarchical_partitioning", objective="iteration", **given)
    assert steady.objective is Objective.STEADY and simulated == replace(steady, objective=Objective.ITERATION)
    result = planner.solve(simulated, exact=True)
    assert result.status == "optimal" and result.objective <= evaluate(simulated, planner.solve(steady).own_plan)
    assert result.objective == pytest.approx(evaluate(simulated, result.own_plan))


class OfTwoStages(IterationBruteForce):
    """Plans of two stages alone."""

    def _iteration(self, made: list) -> float:
        return super()._iteration(made) if sum(len(stages) for _, stages in made) == 2 else math.inf


def test_requirements_are_kept(cases: int) -> None:
    """The best of the plans that meet one; mostly another plan than the best of all."""
    worse = infeasible = 0
    for seed in range(cases):
        instance = drawn(seed)
        best = OfTwoStages(instance).solve()
        found = planner.solve(replace(instance, requirements=("num_stages == 2",)), exact=True)
        assert found.status == ("infeasible" if best is None else "optimal"), seed
        assert same(found.objective, best), seed
        infeasible += best is None
        worse += best is not None and best > (IterationBruteForce(instance).solve() or 0.0) * (1 + 1e-9)
    assert worse and infeasible


def test_figures_are_those_of_the_batch() -> None:
    instance = chain()
    for objective in Objective:
        own = replace(instance, objective=objective)
        found = breakdown(own, PLAN)
        [passes] = [picture for picture in found.pictures if isinstance(picture, Passes)]
        is_batch = objective is Objective.ITERATION
        assert passes.title.startswith("A batch") == is_batch
        assert not is_batch or passes.end == pytest.approx(evaluate(own, PLAN) * 6 - gradient_time(own, PLAN))
        assert found.figures["samples_per_s"] == pytest.approx(1 / evaluate(own, PLAN))


def _machine(layers: tuple[Layer, ...], sent: float, memory: float, devices: int, N: int) -> HierarchicalInstance:
    edges = (Edge(layers[0].id, layers[1].id, sent),)
    flat = StageInstance("machine", layers, edges, 1, memory, 1.0, N)
    return replace(on_machines(flat, devices, 1, 1.0, 1.0), objective=Objective.ITERATION)


def test_small_weights_count_behind_very_large_ones() -> None:
    """9 bytes beside 1e17: a difference of their sums has 16, and a bound of 32 s of sums instead of 18."""
    layers = (Layer("b", {1: (Tmpc("x", 12.0, 9.0, 0.0, 0.0),)}), Layer("a", {1: (Tmpc("x", 0.1, 1e17, 0.0, 0.0),)}))
    assert planner.solve(_machine(layers, 0.0, 1.0, 3, 5), exact=True).objective == pytest.approx(10.8)


@pytest.mark.parametrize(("requirements", "best"), [((), 1.25), (("num_stages == 1", "num_devices == 1"), 2.5)])
def test_a_choice_that_only_rounding_admits_hides_no_other(requirements: tuple[str, ...], best: float) -> None:
    """Both layers fast need 1.5e-12 of the memory more than there is, of which the definition admits 1e-12."""
    own = (Tmpc("f", 1.0, 0.0, 0.0, 5e11 * (1 + 1.5e-12)), Tmpc("s", 1.5, 0.0, 0.0, 0.0))
    instance = _machine(tuple(Layer(v, {1: own}) for v in "ab"), 0.0 if requirements else 0.1, 1e12, 2, 4)
    result = planner.solve(replace(instance, requirements=requirements), exact=True)
    assert result.objective == pytest.approx(best) and result.bound == pytest.approx(best)


def test_why_there_is_no_iteration_is_found_whatever_is_left_out() -> None:
    found = planner.explain(replace(chain(), flat=replace(chain().flat, memory_bytes=0.5)))
    assert len(found.conflict) == 2 and found.repairs


def test_a_plan_that_is_refused_for_its_memory_leaves_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    best = planner.solve(chain(), exact=True).objective
    monkeypatch.setattr(iteration, "judge", lambda *_: (Violation("memory", "a rounding too much"),))
    found = iteration.solve(chain(), Limits(), Watch())
    assert found.plan is None and not found.infeasible and best is not None and 0 < (found.bound or 0.0) <= best


def test_iterations_are_not_certified_and_their_rows_are_of_that_clock() -> None:
    with pytest.raises(UncertifiedError, match="does not know the objective iteration"):
        FAMILY.certificates.write(chain(), None, 1.0, Watch(Limits()))
    times = [row["time_per_sample"] for row in breakdown(chain(), PLAN).rows]
    shares = [t / d for t, d in zip(replica_times(chain(), PLAN), (2, 2, 2), strict=True)]
    assert times == [max(shares[:2]), shares[2]]
    stack = next(each for each in breakdown(chain(), PLAN).pictures if isinstance(each, Stack))
    assert [stack.total(stage) for stage in range(3)] == pytest.approx(shares) and not stack.beside
    assert "link between machines" in stack.parts and "synchronisation" not in stack.parts
