"""Every declarative model, as it reaches its solver: nothing in it without a name for what it is.

A family is found through `FAMILIES`: whatever CP-SAT or HiGHS is given while its exact methods run is looked at.
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
from planner.solving.solve import run
from solvers.cpsat import backend as cpsat
from solvers.milp import backend as milp
from solvers.milp import reusable_lp

#: Instances of a family that its models are built for.
LOOKED_AT = 4

#: A noun for what 1 means or a sentence in short, and what it is said of: ``holds[5,2]``, ``memory[2]``, ``time``.
SPEAKING = re.compile(r"[a-z][a-z_]*(\[[^\[\]]+\])?")

#: Methods that must show a model.
MODELS = ("cpsat", "milp", "milp-columns", "cpsat-columns", "joint")


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


def methods() -> Iterator[Any]:
    """Every exact method of every family."""
    for family in FAMILIES:
        for method in family.methods:
            if method.claim is Claim.EXACT:
                yield pytest.param(family.name, method.name, id=f"{family.name}-{method.name}")


@pytest.mark.parametrize(("name", "method"), list(methods()))
def test_everything_has_a_name(monkeypatch: pytest.MonkeyPatch, name: str, method: str) -> None:
    family = warmed(name)
    found: list[str] = []
    seen: list[Any] = []
    reached = (
        (cpsat, "run", unnamed_cpsat),
        (milp, "translate", unnamed_pyomo),
        (reusable_lp, "translate", unnamed_pyomo),
    )
    for backend, name_of, unnamed in reached:
        given_to = getattr(backend, name_of)

        def looked_at(model: Any, *given: Any, run: Any = given_to, unnamed: Any = unnamed, **options: Any) -> Any:
            seen.append(model)
            found.extend(unnamed(model))
            return run(model, *given, **options)

        monkeypatch.setattr(backend, name_of, looked_at)
    for number in range(LOOKED_AT):
        instance = random_case(name, 0, number)
        if family.method(method).supports(instance) is None:
            run(family, family.method(method), instance, LIMITS, {})
    assert not found, found[:5]
    assert seen or method not in MODELS
