"""What you read is what runs: the model that `planner model` lists is the one that `planner solve --method` runs.

Every model is recorded where it goes to its solver, while a method solves small instances; the names of its groups of
variables and constraints are those that are listed for the same instances. A method may run fewer groups on one
instance than on another (no row of memory binds, say): all instances are taken together.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from random_instances import LIMITS, warmed
from small_instances import random_case

from formulations import FAMILIES
from planner.analysis.model_view import model as opened
from planner.process.errors import UsageError
from planner.solving.solve import run
from solvers.cpsat import backend as cpsat
from solvers.cpsat import inspection as cpsat_inspection
from solvers.milp import backend as milp
from solvers.milp import inspection as milp_inspection
from solvers.milp import reusable_lp

#: Instances of a problem that its methods are run on; the first six of flushed partitioning lack a row.
INSTANCES = {"flushed_partitioning": 12}

#: What is added while a model runs, or for an instance's requirements.
ADDED = frozenset({("constraint", "forbidden"), ("constraint", "required")})

#: Methods that still run another model than the one that is listed. A method that agrees must leave the list.
NOT_YET = frozenset({})


def names(groups: Any) -> set[tuple[str, str]]:
    """Kind and name of each group."""
    return {(group.kind, group.name) for group in groups} - ADDED


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """The groups of every model that goes to a solver, as it is then."""
    found: set[tuple[str, str]] = set()
    reached = (
        (cpsat, "run", cpsat_inspection._groups),
        (milp, "translate", milp_inspection._groups),
        (reusable_lp, "translate", milp_inspection._groups),
    )
    for backend, name, groups in reached:
        given_to = getattr(backend, name)

        def recording(model: Any, *given: Any, run: Any = given_to, groups: Any = groups, **options: Any) -> Any:
            found.update(names(groups(model)))
            return run(model, *given, **options)

        monkeypatch.setattr(backend, name, recording)
    return found


def methods() -> Iterator[Any]:
    """Every declarative method of every problem."""
    for family in FAMILIES:
        for method in family.methods:
            if method.build is not None:
                yield pytest.param(family.name, method.name, id=f"{family.name}-{method.name}")


@pytest.mark.parametrize(("name", "method"), list(methods()))
def test_the_model_that_is_listed_is_the_one_that_runs(recorded: set[tuple[str, str]], name: str, method: str) -> None:
    family = warmed(name)
    ran, listed = set[tuple[str, str]](), set[tuple[str, str]]()
    for number in range(INSTANCES.get(name, 6)):
        instance = random_case(name, 0, number)
        if family.method(method).misfit(instance) is not None:
            continue
        try:
            shown = names(opened(instance, method).sizes().groups)
        except UsageError:  # no model of an instance that has no plan for a reason that needs no model
            continue
        recorded.clear()
        run(family, family.method(method), instance, LIMITS, {})
        if recorded:
            ran |= recorded
            listed |= shown
    assert ran, "no model went to a solver"
    assert ran == listed, f"ran alone: {sorted(ran - listed)}; listed alone: {sorted(listed - ran)}"
