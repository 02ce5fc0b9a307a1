"""Every declarative model, as it reaches its solver: nothing in it without a name, and it is the one that is listed.

A family is found through `FAMILIES`: whatever CP-SAT or HiGHS is given while its exact methods run is looked at. What
you read is what runs: the names of the groups of variables and constraints are those that `planner model` lists for
the same instances. A method may run fewer groups on one instance than on another (no row of memory binds, say): all
instances are taken together.
"""

import re
from collections.abc import Iterator
from typing import Any

import pyomo.environ as pyo
import pytest
from ortools.sat.python import cp_model
from random_instances import LIMITS, warmed
from small_instances import random_case

from formulations import FAMILIES
from formulations.contract.family import Claim
from planner.analysis.model_view import model as opened
from planner.process.errors import UsageError
from planner.solving.solve import run
from solvers.cpsat import backend as cpsat
from solvers.cpsat import inspection as cpsat_inspection
from solvers.milp import backend as milp
from solvers.milp import inspection as milp_inspection
from solvers.milp import reusable_lp

#: Instances of a problem that its methods are run on; the first six lack a row, or plans leave no pair that costs.
INSTANCES = {"flushed_partitioning": 12, "operator_strategies": 24}
#: A noun for what 1 means or a sentence in short, and what it is said of: ``holds[5,2]``, ``memory[2]``, ``time``.
SPEAKING = re.compile(r"[a-z][a-z_]*(\[[^\[\]]+\])?")
#: What is added while a model runs, or for an instance's requirements.
ADDED = frozenset({("constraint", "forbidden"), ("constraint", "required")})


def unnamed_cpsat(model: cp_model.CpModel) -> Iterator[str]:
    """What a CP-SAT model holds without a name, or under the name of something else."""
    seen: set[str] = set()
    for position, variable in enumerate(model.proto.variables):
        # A constant is a variable of CP-SAT's own making.
        if not SPEAKING.fullmatch(variable.name) and len(set(variable.domain)) > 1:
            yield f"variable {position} is called {variable.name!r}"
        if variable.name in seen:
            yield f"two variables are called {variable.name}"
        seen.update({variable.name} - {""})
    for position, constraint in enumerate(model.proto.constraints):
        if not SPEAKING.fullmatch(constraint.name):
            yield f"constraint {position} is called {constraint.name!r}: {str(constraint)[:60]!r}"


def unnamed_pyomo(model: pyo.ConcreteModel) -> Iterator[str]:
    """Lists of rows: only what is cut off while the model runs may be one."""
    for component in model.component_objects(pyo.Constraint):
        if isinstance(component, pyo.ConstraintList) and component.local_name != "forbidden":
            yield f"{component.local_name} is a list of rows; expected one component a sentence"
        if component.local_name == "rows":
            yield "a component is called rows"


def names(groups: Any) -> set[tuple[str, str]]:
    """Kind and name of each group."""
    return {(group.kind, group.name) for group in groups} - ADDED


def methods() -> Iterator[Any]:
    """Every exact method of every problem, and every declarative one."""
    for family in FAMILIES:
        for method in family.methods:
            if method.claim is Claim.EXACT or method.build is not None:
                yield pytest.param(family.name, method.name, id=f"{family.name}-{method.name}")


@pytest.mark.parametrize(("name", "method"), list(methods()))
def test_everything_has_a_name_and_what_is_listed_runs(
    monkeypatch: pytest.MonkeyPatch, name: str, method: str, many: int
) -> None:
    """By default no instances after three, when all that is listed has run."""
    unnamed: list[str] = []
    recorded: set[tuple[str, str]] = set()
    for backend, name_of, faults, groups in (
        (cpsat, "run", unnamed_cpsat, cpsat_inspection._groups),
        (milp, "translate", unnamed_pyomo, milp_inspection._groups),
        (reusable_lp, "translate", unnamed_pyomo, milp_inspection._groups),
    ):
        given_to = getattr(backend, name_of)

        def looked_at(
            model: Any, *given: Any, run: Any = given_to, faults: Any = faults, groups: Any = groups, **options: Any
        ) -> Any:
            unnamed.extend(faults(model))
            recorded.update(names(groups(model)))
            return run(model, *given, **options)

        monkeypatch.setattr(backend, name_of, looked_at)

    family = warmed(name)
    chosen = family.method(method)
    ran, listed = set[tuple[str, str]](), set[tuple[str, str]]()
    for number in range(INSTANCES.get(name, 6) if chosen.build is not None else 4):
        instance, shown = random_case(name, 0, number), set[tuple[str, str]]()
        if chosen.misfit(instance) is not None:
            continue
        if chosen.build is not None:
            try:
                shown = names(opened(instance, method).sizes().groups)
            except UsageError:  # no model of an instance that has no plan for a reason that needs no model
                continue
        recorded.clear()
        run(family, chosen, instance, LIMITS, {})
        if recorded and chosen.build is not None:
            ran |= recorded
            listed |= shown
        if number > 1 and ran == listed and not many:
            break
    assert not unnamed, unnamed[:5]
    assert ran or chosen.build is None, "no model went to a solver"
    assert ran == listed, f"ran alone: {sorted(ran - listed)}; listed alone: {sorted(listed - ran)}"
