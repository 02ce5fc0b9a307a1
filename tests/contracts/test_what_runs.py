"""Every declarative model, as it reaches its solver: nothing in it without a name, and it is the one that is listed.

A family is found through `FAMILIES`: whatever CP-SAT or HiGHS is given while its exact methods run is looked at. What
you read is what runs: the names of the groups of variables and constraints are those that `planner model` lists for
the same instances. A method may run fewer groups on one instance than on another (no row of memory binds, say): all
instances are taken together.
"""

import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyomo.environ as pyo
import pytest
from ortools.sat.python import cp_model
from random_instances import LIMITS, warmed
from small_instances import random_case
from thinned import thinned

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
from solvers.outcome import Limits, Prover, Stop, Watch

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


@thinned(("name", "method"), [*methods()][::-1], of=lambda name, _: name)
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


def test_a_part_passes_on_what_holds_for_the_whole() -> None:
    whole = Watch()
    whole.plan("known", 9.0)
    part = whole.part()
    assert part.incumbent() == (None, None)  # its best values are its own
    part.plan("worse", 10.0)
    part.bound(2.0, Prover.SOLVER)
    assert part.incumbent() == ("worse", 10.0) and whole.incumbent() == ("known", 9.0)
    part.plan("better", 8.0)
    assert whole.incumbent() == ("better", 8.0)
    assert whole.best_bound == part.best_bound == 2.0 and whole.bounds == {"solver": 2.0}


def test_a_silent_part_passes_nothing_on() -> None:
    whole = Watch()
    part = whole.part(silent=True)
    part.plan("of another problem", 1.0)
    part.bound(1.0)
    assert (part.best_objective, part.best_bound) == (1.0, 1.0)
    assert (whole.best_objective, whole.best_bound, whole.bounds) == (None, None, {})


def test_a_part_with_fewer_plans_keeps_its_bounds_and_may_word_its_plans_otherwise() -> None:
    whole = Watch()
    part = whole.part(bounds=False, plan_of=lambda plan: ("whole", plan))
    part.plan("part", 3.0)
    part.bound(3.0)
    assert part.best_bound == 3.0 and whole.best_bound is None
    assert part.best_plan == "part" and whole.best_plan == ("whole", "part")


def test_the_end_of_the_whole_raises_the_flag_of_its_parts_at_once() -> None:
    # Compiled loops poll the flag alone, and nobody may ask the part.
    whole = Watch()
    part = whole.part(silent=True)
    inner = part.part()
    flags = [np.frombuffer(each.flag, np.uint8) for each in (part, inner)]
    whole.stop(Stop.INTERRUPTED)
    assert [int(flag[0]) for flag in flags] == [1, 1]
    assert part.why() is inner.why() is Stop.INTERRUPTED
    late = whole.part()
    assert late.flag[0] and late.why() is Stop.INTERRUPTED


def test_the_end_of_a_part_is_not_the_end_of_the_whole() -> None:
    whole = Watch(Limits(time_s=60.0))
    done = False
    brief, obsolete, longer = whole.part(0.0), whole.part(obsolete=lambda: done), whole.part(3600.0)
    assert brief.stopped() and brief.why() is Stop.TIME_LIMIT
    assert not obsolete.stopped()
    done = True
    assert obsolete.stopped() and obsolete.why() is Stop.COMPLETED
    left = longer.remaining_s()
    assert left is not None and left <= 60.0 and not longer.stopped()
    assert not whole.stopped() and whole.reason is None and not whole.flag[0]


def test_the_time_of_the_whole_ends_its_parts() -> None:
    whole = Watch(Limits(time_s=0.02))
    part = whole.part(silent=True)
    time.sleep(0.03)
    assert part.stopped() and part.why() is Stop.TIME_LIMIT and whole.reason is Stop.TIME_LIMIT


def test_a_solver_of_choice_whose_bound_contradicts_a_plan_is_not_believed_any_more() -> None:
    for first in ("plan", "bound"):
        whole = Watch(Limits(solver="scip"))
        inner = whole.part(silent=True).part()
        whole.bound(1.0, Prover.BOUNDS)
        whole.bound(2.0, Prover.SOLVER)
        if first == "plan":
            whole.part().plan("plan", 2.5)
        whole.part().bound(2.6, Prover.SOLVER)
        whole.part().plan("plan", 2.5)
        assert whole.best_bound == 1.0 and whole.bounds == {Prover.BOUNDS: 1.0}
        assert whole.doubted == inner.doubted == "claims the bound 2.6 above a plan of 2.5"
        whole.bound(2.1, Prover.SOLVER)
        whole.bound(2.2, "search")
        assert whole.best_bound == 1.0
        whole.bound(1.5, Prover.BOUNDS)
        assert whole.best_bound == 1.5 and whole.incumbent() == ("plan", 2.5)


def test_a_contradiction_of_our_own_stands_and_rounding_is_none() -> None:
    own, other = Watch(), Watch(Limits(solver="scip"))
    own.plan("plan", 2.5)
    own.bound(2.6, Prover.SOLVER)
    assert own.best_bound == 2.6 and not own.doubted
    other.plan("plan", 2.5)
    other.bound(2.5 * (1 + 9e-7), Prover.SOLVER)
    assert other.best_bound is not None and not other.doubted
    restricted = other.part(bounds=False)  # to plans that are better
    restricted.plan("plan", 2.5)
    restricted.bound(2.6, Prover.SOLVER)
    assert not other.doubted
    restricted.part().doubt("claims what is false")
    assert other.doubted == "claims what is false" and other.best_bound is None
