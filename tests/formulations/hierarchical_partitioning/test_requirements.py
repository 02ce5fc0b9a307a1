"""Quantities of plans, requirements on them, and a false infeasibility that is kept out."""

from dataclasses import replace

import pytest
from oracles.hierarchical_partitioning import random_hierarchical
from thinned import thinned

import planner
from formulations.contract.quantities import resolve_requirement
from formulations.hierarchical_partitioning import FAMILY
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan, Superstage
from formulations.hierarchical_partitioning.definition.quantities import VOCABULARY
from formulations.hierarchical_partitioning.models import cpsat
from formulations.stage_partitioning.definition.plan import Stage
from instances.problems.hierarchical_partitioning import HierarchicalInstance, on_machines
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.requirements import parse
from solvers.outcome import Limits, Watch


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
