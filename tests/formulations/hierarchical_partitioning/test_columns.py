"""Paths of priced superstages: brute force, prices, states, and what a first plan leaves out."""

import math
from dataclasses import replace

import pytest
from oracles.hierarchical_partitioning import BruteForce, random_hierarchical, tight_chain, tight_graph
from thinned import thinned

import planner
from formulations.contract.quantities import resolve_requirement
from formulations.hierarchical_partitioning import FAMILY, methods
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan, Superstage
from formulations.hierarchical_partitioning.definition.problem import evaluate, most_in_flight, superstage_time
from formulations.hierarchical_partitioning.definition.quantities import VOCABULARY
from formulations.hierarchical_partitioning.effort import columns_supports
from formulations.hierarchical_partitioning.models import cpsat, milp_columns
from formulations.hierarchical_partitioning.models.columns import Data
from formulations.hierarchical_partitioning.models.superstages import Superstages, largest_time
from formulations.hierarchical_partitioning.models.usable_arcs import Reach
from formulations.stage_partitioning.definition.plan import Stage
from instances.problems.hierarchical_partitioning import HierarchicalInstance, MemoryModel, on_machines
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.requirements import parse
from solvers.outcome import Limits, Watch


def test_the_model_finds_the_optimum_by_itself(cases: int) -> None:
    """Without a plan to begin with targets rise until some plan meets one."""
    for seed in range(max(4, cases // 10)):
        instance = tight_chain(seed)
        best, watch = BruteForce(instance).solve(), Watch()
        model = milp_columns.model_of(instance, watch)
        run = model.run(Limits(), Watch())
        assert run.infeasible is (best is None)
        if best is not None:
            assert evaluate(instance, model.decode(run.values)) == pytest.approx(best, rel=1e-6), seed
            assert watch.best_objective >= best * (1 - 1e-9)
            assert model.lower_bound(run.bound) <= best * (1 + 1e-12)


def test_the_machines_of_a_path_are_counted_together() -> None:
    """Of two layers each alone may have two of three machines, where the other one replicates inside its machine."""
    layers = tuple(Layer(v, {1: (Tmpc("only", 4.0, 3.0, 0.0, 0.0),)}) for v in range(2))
    instance = on_machines(StageInstance("two", layers, (), 6, 1.0, 1.0, 4), 2, 3, 0.1, 2.0)
    best = BruteForce(instance).solve()
    assert best is not None and best > 2.5  # on four machines it would be 2
    model = milp_columns.model_of(instance, complete=True)
    run = model.run(Limits(), Watch())
    plan = model.decode(run.values)
    assert FAMILY.judge(instance, plan) == () and evaluate(instance, plan) == pytest.approx(best)


def test_the_search_by_targets_begins_anywhere() -> None:
    """With the optimum, a far plan and none known, the shortest paths end at the same time."""
    for seed in (1, 4, 7):
        instance = tight_chain(seed)
        best = BruteForce(instance).solve()
        if best is None:
            continue
        for known in (best, 3 * best, None):
            watch = Watch()
            if known is not None:
                watch.plan("some", known)
            superstages = Superstages(instance, 100, watch)
            reach, unit = Reach(superstages, 4 * best), best / 1e3
            arcs = reach.arcs()
            data = Data(reach, arcs, [arc.time / unit for arc in arcs], unit, 4e3)
            model = milp_columns.Model(milp_columns.build(data, reach.target), data, reach.target)
            bounds: list[float] = []
            run = model.run(Limits(), watch, on_solution=lambda _: None, on_bound=bounds.append)
            assert max([run.bound, *bounds]) * unit == pytest.approx(best, rel=1e-6)
            if known != best:
                assert evaluate(instance, model.decode(run.values)) == pytest.approx(best, rel=1e-9)


def priced(instance: HierarchicalInstance) -> Reach:
    watch = Watch()
    superstages = Superstages(instance, 1000, watch)
    return Reach(superstages, largest_time(instance, superstages.terms))


@pytest.mark.parametrize("memory_model", list(MemoryModel))
def test_a_superstage_costs_what_the_definition_says(memory_model: MemoryModel, cases: int) -> None:
    """Every column's split is as slow as its price, fits its machine, and has the degrees that it says."""
    looked_at = 0
    for seed in range(max(6, cases // 10)):
        instance = replace(tight_graph(seed), memory_model=memory_model)
        reach = priced(instance)
        for arc in reach.arcs(whole=True)[::7]:
            superstage = reach.superstages.superstage(arc.inner, arc.outer, arc.s, arc.devices, arc.x, reach.target)
            assert superstage_time(instance, superstage) == pytest.approx(arc.time, rel=1e-9)
            assert superstage.num_devices <= instance.devices_per_machine
            assert sum(stage.dp_degree for stage in superstage.inner) == arc.x
            assert arc.s + arc.devices * arc.x <= most_in_flight(instance)
            looked_at += 1
    assert looked_at > 20


def test_paths_are_plans() -> None:
    """A first plan of the columns keeps all rules, memory with what is behind it among them."""
    found = 0
    for seed in range(8):
        instance = tight_chain(seed)
        reach = priced(instance)
        assert reach.possible is (BruteForce(instance).solve() is not None), seed
        if reach.possible:
            plan = reach.first()
            assert isinstance(plan, HierarchicalPlan) and FAMILY.judge(instance, plan) == ()
            found += 1
    assert found


def test_a_better_plan_that_requirements_exclude_narrows_nothing() -> None:
    """A plan of more superstages than the best one: the models must not look near the best one alone."""
    for seed in (0, 2):
        plain = random_hierarchical(seed)
        free = planner.solve(plain, method="milp-columns")
        assert free.plan is not None
        most = len(free.plan["stages"])
        instance = replace(plain, requirements=(f"num_superstages >= {most + 1}",))
        results = [planner.solve(instance, method=method) for method in ("cpsat", "milp-columns")]
        assert len({each.status for each in results}) == 1, seed
        if results[0].objective is not None:
            for each in results[1:]:
                assert each.objective == pytest.approx(results[0].objective, rel=1e-6)


def test_what_is_known_with_requirements_is_not_improved_without() -> None:
    """Of two layers on two machines the best plan has two superstages; with one required, a far slower one is best."""
    layers = tuple(Layer(v, {1: (Tmpc("only", 4.0, 40.0, 0.0, 0.0),)}) for v in range(2))
    flat = StageInstance("two", layers, (), 2, 1.0, 1.0, 2)
    instance = replace(on_machines(flat, 1, 2, 1.0, 1.0), requirements=("num_superstages <= 1",))
    watch = Watch()
    watch.plan("slower still", 20.0)
    model = milp_columns.model_of(instance, watch)
    assert evaluate(instance, model.decode(model.run(Limits(), Watch()).values)) == 8.0


def test_sizes_that_columns_take(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = tight_chain(0)
    count = len(instance.flat.layers) + 1
    assert columns_supports(instance) is None
    monkeypatch.setattr(methods, "MAX_DOWNSETS", count)
    assert columns_supports(instance) is None
    monkeypatch.setattr(methods, "MAX_DOWNSETS", count - 1)
    assert columns_supports(instance) == f"the graph has more than {count - 1} downsets"
    monkeypatch.setattr(methods, "MAX_DOWNSETS", count)
    for limit in ("MAX_CELLS", "MAX_STEPS"):
        with monkeypatch.context() as patch:
            patch.setattr(methods, limit, 1.0)
            assert "too many for the columns" in str(columns_supports(instance))
    assert math.isfinite(priced(instance).target)


def test_a_bound_under_a_literal_is_no_bound() -> None:
    """CP-SAT 9.15 without presolve called this infeasible, until `solvers.cpsat.backend` switched a detection off."""
    instance = random_hierarchical(71, max_nodes=3)
    assert not cpsat.solve(instance, Limits(time_s=20), Watch()).infeasible


def chain() -> HierarchicalInstance:
    """Three nodes on three machines of two devices, which all of them would fill if they could."""
    tmpcs = {1: (Tmpc("x", 1.0, 0, 0, 0),), 2: (Tmpc("x", 5.0, 0, 0, 0),)}
    layers = tuple(Layer(v, tmpcs) for v in "abc")
    flat = StageInstance("chain", layers, (Edge("a", "b", 0.0), Edge("b", "c", 0.0)), 6, 1.0, 1.0, 6)
    return on_machines(flat, 2, 3, 1.0, 1.0)


PLAN = HierarchicalPlan(
    (
        Superstage(2, (Stage(("a",), 1, 1, {"a": "x"}), Stage(("b",), 1, 1, {"b": "x"}))),
        Superstage(1, (Stage(("c",), 1, 2, {"c": "x"}),)),
    )
)


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        *(("num_superstages", 2), ("num_stages", 3), ("num_machines", 3), ("num_devices", 6), ("superstage_of(c)", 1)),
        *(("same_superstage(a, b)", 1), ("same_superstage(b, c)", 0), ("same_stage(a, b)", 0), ("same_stage(a, a)", 1)),
        *(("nodes(0)", 2), ("nodes(1)", 1), ("nodes(2)", 0), ("machines(0)", 2), ("machines(2)", 0)),
        *(("tp_degree_of(c)", 2), ("tp_degree_of(b)", 1), ("dp_degree_of(b)", 1)),
    ],
)
def test_a_quantity_of_a_plan(quantity: str, value: int) -> None:
    found, arguments = resolve_requirement(VOCABULARY, chain(), parse(f"{quantity} == 0"))
    assert found.of_plan(chain(), PLAN, *arguments) == value
    broken = FAMILY.judge(replace(chain(), requirements=(f"{quantity} == {value + 1}",)), PLAN)
    assert [each.rule for each in broken] == ["required"]


@thinned(
    ("required", "time"),
    [
        ((), 0.5),
        (("num_devices <= 2",), 1.5),
        (("num_machines == 1", "num_stages == 2"), 2.0),
        (("tp_degree_of(b) == 2",), 5.0),  # whatever else is in its machines
        (("nodes(0) >= 2", "dp_degree_of(c) == 1"), 2 / 3),
        (("same_superstage(a, c)", "not same_stage(a, b)", "machines(0) <= 2"), 1.0),
        (("nodes(1) >= 2", "dp_degree_of(c) == 1", "superstage_of(b) == 1"), 0.5),
        (("num_superstages == 3", "num_stages <= 2"), None),
    ],
)
def test_requirements(required: tuple[str, ...], time: float | None) -> None:
    instance = replace(chain(), requirements=required)
    for admitted in (instance, planner.load(planner.files.load.family_of(instance).to_json(instance), memory="2B")):
        assert admitted.requirements == required
        found = planner.solve(admitted, method="cpsat")
        assert found.objective == (None if time is None else pytest.approx(time))
        assert found.status == ("infeasible" if time is None else "optimal")
