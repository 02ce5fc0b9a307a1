"""Whose proof is it? A model proves alone, whatever becomes of the other methods; others name whose proof they hold.

A family is found through `FAMILIES`; what its methods share and no model may lean on is listed in `SHARED`.
"""

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from random_instances import LIMITS, warmed
from small_instances import random_case
from thinned import thinned

from formulations import FAMILIES
from formulations.contract.family import Claim, Family, Lazy, Method
from formulations.modelling.warm_start import First
from planner.results.result import Result
from planner.solving.solve import run
from solvers.outcome import Prover, Status, Stop, Watch

#: The declarative models, by name.
MODELS = ("cpsat", "milp", "milp-columns", "cpsat-columns", "joint")
MODEL_METHODS = [
    pytest.param(family.name, method.name, id=f"{family.name}-{method.name}")
    for family in FAMILIES
    for method in family.methods
    if method.name in MODELS
]
EXACT_METHODS = [
    pytest.param(family.name, method.name, id=f"{family.name}-{method.name}")
    for family in FAMILIES
    for method in family.methods
    if method.claim is Claim.EXACT
]

#: Bounds, searches and counts that several methods share.
SHARED = {
    "microbatch_schedule": (
        "bounds:iteration_bound", "feasibility:lower_bound", "feasibility:impossible", "heuristics.search:search",
    ),
    "device_mapping": (
        "data.costs:single_bound",
        *(
            f"bounds.combinatorial:{name}"
            for name in ("assignment_bound", "refutes_target", "rings_fit", "Domains")
        ),
        "models.all_bounds:raise_bound",
    ),
    "operator_partitioning": ("costs.shapes:lower_bound",),
    "stage_graph": ("exact:solve",),
}  # fmt: skip
#: Bounds that models read for their units alone: here they are twice what they are, which is false as a bound, and for
#: a unit it makes no difference.
UNITS = {
    "operator_partitioning": ("costs.costs:load_bound",),
    "pipeline_placement": ("models.two_phase:compute_bound",),
    "mesh_tiling": ("models.cpsat:_least_s",),
}
#: Some infeasible instances of these families leave nothing that a model could be made of: more stages than operators,
#: tiles that do not divide the devices, no column that fits. They are counted, no solver runs, and no solver is named.
COUNTED = {
    "amp_strategy": Prover.BOUNDS, "layer_assignment": Prover.BOUNDS, "mesh_tiling": Prover.BOUNDS,
    "operator_partitioning": Prover.BOUNDS, "operator_strategies": Prover.BOUNDS, "stage_graph": Prover.SEARCH,
}  # fmt: skip
#: The same for the flat problem's bound, which is a property of its terms.
TERMS = {"stage_partitioning", "flushed_partitioning", "hierarchical_partitioning"}
#: Whatever is drawn here of these families has a plan.
NEVER_INFEASIBLE = {"amp_strategy", "device_mapping", "pipeline_placement"}
#: Instances that are looked at, and how many a model proves of them.
LOOKED_AT, PROVED = 30, 2


def _solve(name: str, method: str, number: int) -> Result | None:
    family, instance = warmed(name), random_case(name, 77, number)
    chosen = family.method(method)
    return None if chosen.supports(instance) else run(family, chosen, instance, LIMITS, {})


def _target(solve: Any) -> Any:
    return solve.resolve() if isinstance(solve, Lazy) else solve


def _needs_no_proof(result: Result, instance: Any) -> bool:
    """No time at all, the smallest of the sizes that memory can have, and schedules that no degrees have."""
    no_degrees = result.problem == "training_strategy" and result.status is Status.INFEASIBLE
    counts = getattr(instance, "objective", "") == "memory" or no_degrees
    return result.objective == 0 or (counts and result.proved_by == Prover.BOUNDS)


def _replace(monkeypatch: pytest.MonkeyPatch, found: Any, other: Any) -> None:
    """Put ``other`` wherever a room looks ``found`` up."""
    for module in [module for name, module in sys.modules.items() if name.startswith("formulations.")]:
        for name, value in list(vars(module).items()):
            if value is found:
                monkeypatch.setattr(module, name, other)


def _raising(what: str) -> Any:
    def fail(*_given: Any, **_options: Any) -> Any:
        raise AssertionError(f"a model leans on {what}")

    return fail


_bound = Watch.bound


def _own_bounds_alone(watch: Watch, value: float, by: str = Prover.SEARCH) -> None:
    """What several methods share is not reported."""
    if by != Prover.BOUNDS:
        _bound(watch, value, by)


def _others(family: Family[Any, Any], method: Method[Any, Any]) -> Iterator[tuple[str, Any]]:
    own = _target(method.solve)
    for other in family.methods:
        if _target(other.solve) is not own:
            yield other.name, _target(other.solve)
    for target in SHARED.get(family.name, ()):
        module, _, name = target.partition(":")
        shared = getattr(importlib.import_module(f"formulations.{family.name}.{module}"), name, None)
        assert shared is not None, f"{target} is gone; what took its place?"
        if shared is not own:
            yield target, shared


def _proved(name: str, method: str) -> dict[int, Result]:
    """The first instances of which the model proves something, both kinds of proofs among them where there are both."""
    found: dict[int, Result] = {}
    wanted = 1 if name in NEVER_INFEASIBLE else 2
    for number in range(LOOKED_AT):
        result = _solve(name, method, number)
        if result is None or result.stop is not Stop.PROVED or _needs_no_proof(result, random_case(name, 77, number)):
            continue
        kinds = {result.status, *(each.status for each in found.values())}
        if len(found) < PROVED - 1 or len(kinds) == wanted:
            found[number] = result
        if len(found) == PROVED:
            break
    return found


@thinned(("name", "method"), MODEL_METHODS, of=lambda name, _: name)
def test_a_model_proves_without_the_others(monkeypatch: pytest.MonkeyPatch, name: str, method: str) -> None:
    family = warmed(name)
    known = _proved(name, method)
    # What it begins with is a hint, which others may give: it is as good a prover without.
    monkeypatch.setattr(First, "report", lambda *_: None)
    for what, function in _others(family, family.method(method)):
        _replace(monkeypatch, function, _raising(what))
    for target in UNITS.get(name, ()):
        module, _, attribute = target.partition(":")
        honest = getattr(importlib.import_module(f"formulations.{name}.{module}"), attribute)
        _replace(monkeypatch, honest, lambda *given, honest=honest: 2 * honest(*given))
    if name in TERMS:
        from formulations.stage_partitioning.models.assignment_data import Terms

        honest = Terms.lower_bound.func  # type: ignore[attr-defined]
        monkeypatch.setattr(Terms, "lower_bound", property(lambda terms: 2 * honest(terms)))
    monkeypatch.setattr(Watch, "bound", _own_bounds_alone)
    proved = {Status.OPTIMAL: 0, Status.INFEASIBLE: 0}
    for number, before in known.items():
        alone = _solve(name, method, number)
        assert alone is not None and (alone.status, alone.stop) == (before.status, Stop.PROVED), number
        assert alone.objective is None or alone.objective == pytest.approx(before.objective, rel=1e-6), number
        proved[alone.status] += 1
        if alone.status is Status.INFEASIBLE and alone.proved_by == COUNTED.get(name):
            assert alone.solver == ""
        else:
            assert alone.proved_by == Prover.SOLVER and alone.solver, (number, alone)
    assert sum(proved.values()) >= PROVED
    assert proved[Status.OPTIMAL] and (proved[Status.INFEASIBLE] or name in NEVER_INFEASIBLE), proved


@thinned(("name", "method"), EXACT_METHODS, of=lambda name, _: name)
def test_an_exact_method_says_whose_proof_it_holds(name: str, method: str) -> None:
    everybody = {f"{family.name}/{each.name}" for family in FAMILIES for each in family.methods}
    own = {each.name for each in warmed(name).methods} - {method}
    for number in range(PROVED):
        result = _solve(name, method, number)
        if result is None or result.stop is not Stop.PROVED:
            continue
        assert result.proved_by in {*Prover, *own, *everybody}, (number, result.proved_by)
        assert result.solver or result.proved_by != Prover.SOLVER, number
