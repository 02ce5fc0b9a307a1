"""Requirements of stage partitioning: their quantities by hand, and what models must not leave out for them."""

from dataclasses import replace

import pytest
from thinned import thinned

import planner
from formulations.compiled.downsets import all_downsets
from formulations.contract.quantities import resolve_requirement
from formulations.stage_partitioning import FAMILY
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.quantities import VOCABULARY
from formulations.stage_partitioning.exact.required import MAX_PAIRED, limits_of_requirements, refusal
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.requirements import parse
from solvers.outcome import Status

METHODS = ("exact", "cpsat", "cpsat-columns", "milp", "milp-columns")
MODELS = ("cpsat", "cpsat-columns", "milp", "milp-columns")


def chain() -> StageInstance:
    """Three nodes; two devices for one of them are slower than one."""
    tmpcs = {1: (Tmpc("x", 1.0, 0, 0, 0),), 2: (Tmpc("x", 5.0, 0, 0, 0),)}
    layers = tuple(Layer(v, tmpcs) for v in "abc")
    edges = (Edge("a", "b", 0.0), Edge("b", "c", 0.0))
    return StageInstance("chain", layers, edges, num_devices=6, memory_bytes=1.0, bandwidth=1.0, num_microbatches=4)


PLAN = StagePlan(
    (
        Stage(("a",), dp_degree=2, tp_degree=1, tmpcs={"a": "x"}),
        Stage(("b", "c"), dp_degree=1, tp_degree=2, tmpcs={"b": "x", "c": "x"}),
    )
)


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("num_stages", 2), ("num_devices", 4), ("same_stage(b, c)", 1), ("same_stage(a, c)", 0),
        ("same_stage(a, a)", 1), ("stage_of(a)", 0), ("stage_of(c)", 1), ("nodes(0)", 1), ("nodes(1)", 2),
        ("nodes(2)", 0), ("tp_degree(0)", 1), ("tp_degree(1)", 2), ("tp_degree(2)", 0), ("dp_degree(0)", 2),
        ("dp_degree(1)", 1), ("dp_degree(2)", 0), ("tp_degree_of(c)", 2), ("dp_degree_of(a)", 2),
    ],
)  # fmt: skip
def test_a_quantity_of_a_plan(quantity: str, value: int) -> None:
    instance = chain()
    found, arguments = resolve_requirement(VOCABULARY, instance, parse(f"{quantity} == 0"))
    assert found.of_plan(instance, PLAN, *arguments) == value
    assert FAMILY.judge(replace(instance, requirements=(f"{quantity} == {value}",)), PLAN) == ()
    broken = FAMILY.judge(replace(instance, requirements=(f"{quantity} == {value + 1}",)), PLAN)
    assert [each.rule for each in broken] == ["required"]


#: Random requirements at columns are among the contracts by default.
@pytest.mark.parametrize(
    "method", [pytest.param(each, marks=pytest.mark.slow if "columns" in each else ()) for each in METHODS]
)
@thinned(
    ("required", "time"),
    [
        (["num_devices <= 1"], 3.0),
        (["num_stages == 3", "dp_degree_of(a) >= 3"], None),  # degrees sum to at most 4
        pytest.param(
            ["num_stages <= 2", "dp_degree_of(a) <= 1", "dp_degree_of(b) <= 1", "dp_degree_of(c) <= 1"],
            2.0,
            marks=pytest.mark.slow,
        ),
        (["tp_degree_of(a) == 2"], 2.5),  # two replicas of a, on the four devices that b and c leave
        (["tp_degree_of(b) >= 2", "num_stages == 1"], 5.0),  # three replicas of all
        (["same_stage(a, b)", "not same_stage(b, c)"], 1.0),
        pytest.param(["same_stage(a, b)", "not same_stage(b, c)", "dp_degree(0) <= 1"], 2.0, marks=pytest.mark.slow),
        pytest.param(["nodes(0) >= 2", "dp_degree_of(c) == 2"], 1.0, marks=pytest.mark.slow),
        (["stage_of(c) <= 1", "num_stages >= 3"], None),
        (["tp_degree(1) == 2", "tp_degree(0) == 1", "stage_of(b) == 1", "dp_degree(2) == 1"], 2.5),
        pytest.param(["nodes(2) == 1", "num_devices >= 6", "dp_degree_of(c) == 1"], 2.5, marks=pytest.mark.slow),
        (["nodes(1) == 0", "dp_degree(0) <= 2", "num_devices == 2"], 1.5),
    ],
)
def test_plans_that_no_one_would_choose_freely(method: str, required: list[str], time: float | None) -> None:
    instance = replace(chain(), requirements=tuple(required))
    if FAMILY.method(method).refusal(instance) is not None:
        assert method == "exact" and any(
            each.startswith(("stage_of", "nodes", "tp_degree(", "dp_degree(")) for each in required
        )
        return
    found = planner.solve(instance, method=method)
    assert found.status is (Status.INFEASIBLE if time is None else Status.OPTIMAL)
    assert found.objective == (None if time is None else pytest.approx(time, rel=1e-6))


def test_models_agree_on_more_stages_than_any_good_plan_has() -> None:
    instance = planner.load(
        "chain8", first=5, devices=4, memory="60MB", require=["num_stages == 4", "dp_degree(3) <= 1"]
    )
    found = [planner.solve(instance, method=method) for method in MODELS]
    assert [each.status for each in found] == [Status.OPTIMAL] * len(MODELS)
    assert all(found[0].objective == pytest.approx(each.objective, rel=1e-6) for each in found)
    assert found[0].objective > 1.01 * planner.solve(replace(instance, requirements=())).objective


@pytest.mark.parametrize(
    ("stated", "levels", "rows"),
    [
        ("num_stages <= 3", 1, 4),  # all that a chain of three nodes has
        ("num_stages == 1", 0, 2),
        ("num_stages <= 2", 1, 4),
        ("num_stages >= 2", 1, 4),
        ("num_stages == 3", 2, 6),
        ("num_stages >= 4", 0, 2),  # no plan has so many
        ("same_stage(a, b)", 1, 3),
        ("not same_stage(a, b)", 1, 4),
        ("same_stage(a, b) <= 1", 1, 4),
    ],
)
def test_downsets_are_left_out_and_copied_where_stages_are_counted(stated: str, levels: int, rows: int) -> None:
    instance = replace(chain(), requirements=(stated,))
    downsets, found = all_downsets(instance, 100), limits_of_requirements(instance)
    assert downsets is not None
    assert (found.levels, len(found.downsets(downsets))) == (levels, rows)


def test_what_the_exact_search_cannot_honour() -> None:
    least = replace(chain(), requirements=("num_devices >= 2",))
    assert "fewest devices" in (refusal(least, 4) or "") and refusal(replace(least, requirements=()), 10**6) is None
    counted = replace(chain(), requirements=("num_stages == 3",))
    assert refusal(counted, MAX_PAIRED // 2) is None and "too many" in (refusal(counted, MAX_PAIRED) or "")
    with pytest.raises(planner.UsageError, match="cannot honour the requirement stage_of"):
        planner.solve(replace(chain(), requirements=("stage_of(b) == 1",)), method="exact")


def test_the_exact_search_and_the_models_agree_on_many_stages() -> None:
    stated = ["num_stages == 6", "not same_stage(0, 1)", "dp_degree_of(7) <= 1", "num_devices <= 7"]
    instance = planner.load("chain8", devices=8, microbatches=8, require=stated)
    found = [planner.solve(instance, method=method) for method in ("exact", "milp-columns")]
    assert [each.status for each in found] == [Status.OPTIMAL] * 2
    assert found[0].objective == pytest.approx(found[1].objective, rel=1e-6)
    assert found[0].plan is not None and len(found[0].plan["stages"]) == 6
