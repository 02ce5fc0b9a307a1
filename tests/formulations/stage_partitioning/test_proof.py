"""From a model's run to an answer: what the loop does with plans that break a rule, and with a model that is wrong."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from formulations.contract.family import Answer, Claim, Method
from formulations.modelling.solve_model import Stopped, WithoutSizes
from formulations.stage_partitioning import FAMILY
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.models import solving
from formulations.stage_partitioning.models.solving import prove, too_large
from instances.problems.stage_partitioning import Layer, StageInstance, Tmpc
from planner.process.errors import CrosscheckError
from planner.solving.solve import run as run_method
from solvers.outcome import Limits, Run, Stop, Watch

INSTANCE = StageInstance(
    name="one node",
    layers=(Layer("v", {1: (Tmpc("fast", 1.0, 0, 0, 9), Tmpc("lean", 2.0, 0, 0, 5))}),),
    edges=(),
    num_devices=1,
    memory_bytes=5.0,
    bandwidth=1.0,
    num_microbatches=1,
)


@pytest.fixture(autouse=True)
def _nothing_known_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """No first plan and no quick bound: what is reported is the model's."""
    monkeypatch.setattr(solving.First, "report", lambda *_: None)
    monkeypatch.setattr(solving, "Terms", lambda _: SimpleNamespace(lower_bound=0.0))


def plan(tmpc: str, dp_degree: int = 1) -> StagePlan:
    return StagePlan((Stage(("v",), dp_degree, 1, {"v": tmpc}),))


@dataclass
class Scripted:
    """A model that answers one run after the other; a solution's values are its plan."""

    runs: Iterator[Run]
    cuts: list[tuple[Stage, int]] = field(default_factory=list)

    def run(self, *_: Any, on_solution: Callable[[Any], None], on_bound: Callable[[float], None]) -> Run:
        run = next(self.runs)
        on_bound(0.25)
        if run.values is not None:
            on_solution(run.values)
        return run

    def decode(self, values: Any) -> StagePlan:
        found: StagePlan = values
        return found

    def lower_bound(self, bound: float) -> float:
        return bound

    def cut_off(self, plan: StagePlan, _values: Any) -> None:
        self.cuts += too_large(INSTANCE, plan)


class Boastful(WithoutSizes, Scripted):
    """A model that claims to know all sizes to the byte."""


def proved(tmpc: str, bound: float, dp_degree: int = 1) -> Run:
    return Run(stop=Stop.PROVED, values=plan(tmpc, dp_degree), objective=bound, bound=bound)


def test_a_plan_that_does_not_fit_is_cut_off_and_never_returned() -> None:
    model = Scripted(iter([proved("fast", 1.0), proved("lean", 2.0)]))
    answer = prove(INSTANCE, lambda: model, Limits(), Watch())
    assert model.cuts == [(plan("fast").stages[0], 1)]
    assert (answer.plan, answer.bound, answer.stop) == (plan("lean"), 2.0, Stop.PROVED)


def test_a_solver_that_claims_too_much_is_not_believed() -> None:
    answer = prove(INSTANCE, lambda: Scripted(iter([proved("lean", 1.5)])), Limits(), Watch())
    assert (answer.plan, answer.bound, answer.stop) == (plan("lean"), 1.5, Stop.COMPLETED)


def test_a_model_that_breaks_another_rule_is_wrong() -> None:
    with pytest.raises(RuntimeError, match="dp_degree"):
        prove(INSTANCE, lambda: Scripted(iter([proved("lean", 2.0, dp_degree=2)])), Limits(), Watch())


def test_a_model_that_keeps_what_was_cut_off_is_wrong() -> None:
    model = Scripted(iter([proved("fast", 1.0), proved("fast", 1.0)]))
    with pytest.raises(RuntimeError, match="keeps a plan that was cut off: memory"):
        prove(INSTANCE, lambda: model, Limits(), Watch())


def test_a_model_that_rounds_nothing_and_yet_lets_in_what_is_too_large_is_wrong() -> None:
    with pytest.raises(RuntimeError, match="accepts a plan that is too large"):
        prove(INSTANCE, lambda: Boastful(iter([proved("fast", 1.0)])), Limits(), Watch())


def test_a_limit_after_a_plan_that_does_not_fit_leaves_what_was_found() -> None:
    watch = Watch()
    runs = iter([proved("fast", 1.0), Run(stop=Stop.TIME_LIMIT)])
    answer = prove(INSTANCE, lambda: Scripted(runs), Limits(), watch)
    assert (answer.plan, answer.stop) == (None, Stop.TIME_LIMIT)
    assert answer.stats["rounds"] == 2


def test_bounds_are_reported_as_they_are_found() -> None:
    answer = prove(INSTANCE, lambda: Scripted(iter([Run(stop=Stop.TIME_LIMIT)])), Limits(), Watch())
    assert (answer.bound, answer.stop) == (0.25, Stop.TIME_LIMIT)


def test_nothing_is_built_once_the_watch_is_stopped() -> None:
    watch = Watch()
    watch.stop(Stop.INTERRUPTED)
    answer = prove(INSTANCE, lambda: pytest.fail("built"), Limits(), watch)
    assert (answer.plan, answer.stop) == (None, Stop.INTERRUPTED)


def test_infeasible_is_a_proof_without_a_bound() -> None:
    run, watch = Run(stop=Stop.PROVED, infeasible=True), Watch()
    watch.bound(0.5)
    answer = prove(INSTANCE, lambda: Scripted(iter([run])), Limits(), watch)
    assert (answer.infeasible, answer.plan, answer.bound, answer.stop) == (True, None, None, Stop.PROVED)


@pytest.mark.parametrize(
    ("run", "what"),
    [
        (Run(stop=Stop.PROVED, infeasible=True), "calls the instance infeasible, yet has a plan"),
        (Run(stop=Stop.PROVED, values=plan("lean"), objective=3.0, bound=3.0), "claims the bound 3.0"),
    ],
)
def test_a_proof_that_contradicts_a_plan_is_loud(run: Run, what: str) -> None:
    def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
        watch.plan(plan("lean"), 2.0)
        return prove(instance, lambda: Scripted(iter([run])), limits, watch)

    method = Method(name="scripted", claim=Claim.EXACT, source="this test", solve=solve)
    with pytest.raises(CrosscheckError, match=what):
        run_method(FAMILY, method, INSTANCE, Limits(), {})


def test_stopped_while_building_returns_what_is_known() -> None:
    watch = Watch()
    watch.bound(0.5)

    def build() -> Scripted:
        watch.plan(plan("lean"), 2.0)
        watch.stop(Stop.INTERRUPTED)
        raise Stopped

    answer = prove(INSTANCE, build, Limits(), watch)
    assert (answer.plan, answer.bound, answer.stop) == (plan("lean"), 0.5, Stop.INTERRUPTED)
