"""Which method is tried, which after it, and what a user reads of it."""

import itertools
import time
from dataclasses import replace
from typing import Any

import counting
import pytest
from counting import Counting
from load import allowed_s
from small_instances import random_case

import formulations
import planner
from formulations.contract.family import Answer, Claim, Method
from instances.problems.hierarchical_partitioning import on_machines
from instances.problems.stage_partitioning import Layer, StageInstance, Tmpc
from planner import CrosscheckError, Limits, Stop, UsageError
from planner.solving import predicted_runtime, solve
from planner.solving.choose import candidates, pick
from planner.solving.compare import sane
from solvers.outcome import Watch

FEW, MANY = Counting("few", (1, 2, 3), 2), Counting("many", (1,) * 12, 2)


def family(*methods: Method[Any, Any], choose: Any = lambda *_: ("first", "it is the first")) -> Any:
    """The family of counting with other methods."""
    return replace(counting.FAMILY, methods=methods, choose=choose)


def method(name: str, claim: Claim = Claim.EXACT, effort: float = 0.0, **more: Any) -> Method[Any, Any]:
    """A method; HiGHS runs its model if the name begins with milp."""
    backend = "highs" if name.startswith("milp") else ""
    return Method(name, claim, "", more.pop("solve", counting.exact), effort=lambda _: effort, backend=backend, **more)


def refuses(_: Counting) -> str:
    return "it is too large"


def too_large(*_: Any) -> Answer[Any]:
    return Answer(stop=Stop.SIZE_LIMIT, reason="the tables do not fit")


def tried(of: Any, limits: Limits | None = None, exact: bool = False) -> list[str]:
    return [each.name for each, _ in candidates(of, FEW, limits or Limits(), exact=exact)]


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A predicted step of the methods here takes a second."""
    names = ("first", "second", "third", "heuristic", "other-heuristic")
    monkeypatch.setattr(
        predicted_runtime, "seconds_per_step", lambda: dict.fromkeys((f"counting/{n}" for n in names), 1.0)
    )


def test_preferred_then_exact_ones_by_time_then_heuristics_as_listed(rates: None) -> None:
    of = family(
        method("heuristic", Claim.HEURISTIC, 9),
        method("other-heuristic", Claim.HEURISTIC, 1),
        method("second", effort=5),
        method("third", effort=2),
        method("first", effort=100),
    )
    assert tried(of) == ["first", "third", "second", "heuristic", "other-heuristic"]
    assert tried(of, exact=True) == ["first", "third", "second"]


def test_exact_ones_that_were_never_measured_come_after_the_others(rates: None) -> None:
    of = family(
        method("heuristic", Claim.HEURISTIC),
        method("unmeasured", effort=1),
        method("silent"),
        method("second", effort=500),
        method("first"),
    )
    assert tried(of) == ["first", "second", "unmeasured", "silent", "heuristic"]
    assert tried(of, exact=True) == ["first", "second", "unmeasured", "silent"]


def test_what_shows_nothing_before_its_end_waits_where_it_is_late(rates: None) -> None:
    of = family(method("first", effort=50, only_at_end=True), method("second", effort=90))
    assert tried(of) == ["first", "second"]  # patience is 600 s
    assert tried(of, Limits(time_s=10)) == ["second", "first"]
    assert pick(of, FEW, Limits(time_s=10))[1] == "first is predicted to take 50 s"
    assert tried(of, Limits(time_s=60)) == ["first", "second"]


def test_a_method_that_refuses_is_not_tried_and_the_reason_says_why() -> None:
    of = family(method("first", supports=refuses), method("second"))
    assert pick(of, FEW, Limits())[1] == "first does not take the instance: it is too large"
    with pytest.raises(UsageError, match=r"^no method takes the instance \(first: it is too large\)$"):
        pick(family(method("first", supports=refuses)), FEW, Limits())
    refusing = (method(name, supports=refuses) for name in ("first", "second"))
    with pytest.raises(UsageError, match=r"^no exact method takes the instance \(first, second: it is too large\)$"):
        pick(family(*refusing, method("greedy", Claim.HEURISTIC)), FEW, Limits(), exact=True)


def test_what_has_no_more_than_a_first_plan_comes_last() -> None:
    first, others = method("first", too_large=refuses), (method("second"), method("heuristic", Claim.HEURISTIC))
    assert tried(family(first, *others)) == ["second", "heuristic", "first"]
    assert tried(family(first, *others), exact=True) == ["second", "first"]
    assert pick(family(first, *others), FEW, Limits())[1] == "first does not take the instance: it is too large"
    assert tried(family(first), exact=True) == ["first"]
    assert pick(family(first, *others), FEW, Limits(), "first")[0] is first
    assert [each.name for each in sane(family(first, *others), FEW)] == ["second", "heuristic"]


def test_where_one_gives_up_for_its_size_the_next_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    of = family(method("first", solve=too_large), method("second"))
    monkeypatch.setattr(formulations, "FAMILIES", (of,))
    found = planner.solve(FEW)
    assert (
        found.method == "second"
        and found.plan is not None
        and "first: it is the first; the tables do not fit" in found.reason
    )
    assert planner.solve(FEW, method="first").stop is Stop.SIZE_LIMIT
    bounded = family(method("first", solve=lambda *_: replace(too_large(), bound=1.0)), method("second"))
    monkeypatch.setattr(formulations, "FAMILIES", (bounded,))
    assert planner.solve(FEW).method == "second"
    monkeypatch.setattr(formulations, "FAMILIES", (family(method("first", solve=too_large)),))
    assert planner.solve(FEW).stop is Stop.SIZE_LIMIT


def halfway(*_: Any) -> Answer[Any]:
    """All three numbers, and a bound of its solver's, below the optimum of 1."""
    return Answer(plan=(0, 1, 2), bound=0.75, proved_by="solver", reason="no more targets")


def picks(*numbers: int, bound: float | None = None, by: str = "solver") -> Any:
    return lambda *_: Answer(plan=numbers, bound=bound, proved_by=by if bound is not None else "")


def solved(monkeypatch: pytest.MonkeyPatch, *methods: Method[Any, Any], **more: Any) -> planner.Result:
    of = family(*methods, choose=lambda *_: (methods[0].name, "it is the first"))
    monkeypatch.setattr(formulations, "FAMILIES", (of,))
    return planner.solve(FEW, **more)


@pytest.mark.parametrize("exact", [False, True])
def test_what_ends_without_a_proof_hands_over_to_the_next_exact_one(exact: bool, monkeypatch: Any) -> None:
    others = (method("heuristic", Claim.HEURISTIC, solve=counting.crash), method("large", too_large=refuses))
    found = solved(monkeypatch, method("first", solve=halfway), *others, method("second"), exact=exact)
    assert (found.method, found.status, found.objective, found.proved_by) == ("second", "optimal", 1.0, "search")
    assert found.reason == (
        "first: it is the first; no more targets; it ended with a gap of 75 %; second: first gave up"
    )
    assert list(found.stats["tried"]) == ["first", "second"] and sum(found.stats["tried"].values()) == found.seconds


def test_what_was_asked_for_by_name_or_is_near_enough_hands_nothing_over(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = (method("first", solve=halfway), method("second"))
    assert solved(monkeypatch, *methods, method="first").gap == 0.75
    assert solved(monkeypatch, *methods, limits=Limits(gap=0.8)).method == "first"
    heuristic = replace(methods[0], claim=Claim.HEURISTIC)
    assert solved(monkeypatch, heuristic, methods[1]).method == "first"


def test_a_bound_stays_that_of_its_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second has the optimum but a weak bound: the first's is the best, and has the first's name."""
    best = picks(1, bound=0.5)
    found = solved(monkeypatch, method("first", solve=halfway), method("second", solve=best))
    assert (found.method, found.objective, found.bound, found.proved_by) == ("second", 1.0, 0.75, "first")
    closing = solved(monkeypatch, method("first", solve=picks(0, 1, bound=1.0)), method("second", solve=best))
    assert (closing.status, closing.method, closing.proved_by) == ("optimal", "second", "first")
    three = (
        method("first", solve=halfway),
        method("second", solve=picks(0, 1, bound=0.5)),
        method("third", solve=picks(1)),
    )
    last = solved(monkeypatch, *three)
    assert (last.method, last.bound, last.proved_by) == ("third", 0.75, "first")
    shared = solved(monkeypatch, method("first", solve=picks(0, 1, bound=1.0, by="bounds")), method("second"))
    assert shared.proved_by == "search"  # its own proof is enough


def test_what_none_of_them_proves_is_the_result_of_the_one_that_came_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = method("first", solve=halfway), method("second", solve=counting.nothing)
    found = solved(monkeypatch, near, far)
    assert (found.method, found.objective, found.stop) == ("first", 3.0, Stop.COMPLETED)
    assert found.reason.endswith("no more targets; second: first gave up; it ended with a gap of 75 %")


def test_a_plan_below_the_bound_of_another_method_is_a_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = method("first", solve=picks(0, 1, 2, bound=2.0))
    with pytest.raises(CrosscheckError, match=r"second has a plan of 1\.0, yet first claims the bound 2\.0"):
        solved(monkeypatch, wrong, method("second", solve=picks(1)))
    with pytest.raises(CrosscheckError, match="calls the instance infeasible, yet has a plan"):
        solved(monkeypatch, method("first", solve=halfway), method("second", solve=counting.false_infeasible))


def test_what_a_method_ended_with_is_said_of_its_plan_and_of_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    with_plan = solved(monkeypatch, method("first", solve=picks(0, 1, 2)), method("second"))
    assert "first: it is the first; it ended with no bound;" in with_plan.reason
    without = solved(monkeypatch, method("first", solve=lambda *_: Answer(bound=0.5)), method("second"))
    assert "first: it is the first; it ended with no plan;" in without.reason


def claims(bound: float | None, *numbers: int, infeasible: bool = False) -> Any:
    """What a solver of one's choice states; without numbers it has no plan."""
    return lambda *_: Answer(plan=numbers or None, bound=bound, proved_by="solver", infeasible=infeasible)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Limits:
    """Limits with a solver that is in this test alone, and runs the methods whose names begin with milp."""
    monkeypatch.setattr(solve, "examine_solver", lambda *_: None)
    monkeypatch.setattr(solve, "prepare_method", lambda _: 0.0)
    return Limits(solver="fake")


def test_a_solver_of_choice_that_the_next_method_contradicts_is_not_believed(chosen: Limits, monkeypatch: Any) -> None:
    methods = (method("milp", solve=claims(1.1)), method("second", solve=picks(1)))
    events: list[Any] = []
    found = solved(monkeypatch, *methods, limits=chosen, listen=events.append)
    assert (found.status, found.stop, found.method) == ("feasible", Stop.COMPLETED, "second")
    assert (found.objective, found.bound, found.proved_by) == (1.0, None, None)
    said = "solver fake claims the bound 1.1 above a plan of 1: nothing that it claims is believed in this run"
    assert said in found.reason
    assert not [each for each in events if each.objective is not None and each.bound is not None]
    assert (events[-1].objective, events[-1].bound) == (found.objective, found.bound)
    assert solved(monkeypatch, methods[0], method("second"), limits=chosen).proved_by == "search"
    with pytest.raises(CrosscheckError, match=r"second has a plan of 1\.0, yet milp claims the bound 1\.1"):
        solved(monkeypatch, *methods)  # the pinned solver


def test_events_have_no_bound_that_their_plan_contradicts(chosen: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    def reporting(_: Any, __: Any, watch: Watch) -> Answer[Any]:
        watch.plan((0, 1, 2), 3.0)
        watch.plan((1,), 1.0)
        watch.bound(0.5)
        return Answer()

    events: list[Any] = []
    methods = (method("milp", solve=claims(1.1)), method("second", solve=reporting))
    found = solved(monkeypatch, *methods, limits=chosen, listen=events.append)
    assert [(each.objective, each.bound) for each in events] == [(None, 1.1), (3.0, 1.1), (1.0, None), (1.0, 0.5)]
    assert (found.objective, found.bound, found.proved_by) == (1.0, 0.5, "search")


def test_doubt_lasts_as_long_as_the_run(chosen: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    """A false claim takes those with it that came before it, and those that come after it, whatever they say."""
    first = method("milp", solve=claims(0.9, 0, 1, 2))
    liar, weak = method("milp-second", solve=claims(3.5)), method("third", solve=picks(1, bound=0.25))
    for later in (claims(0.95), claims(None, infeasible=True)):
        last = method("milp-last", solve=later)
        found = solved(monkeypatch, first, liar, weak, last, limits=chosen)
        assert (found.objective, found.bound, found.proved_by) == (1.0, 0.25, "solver")
        assert found.method == "third"
        assert list(found.stats["tried"]) == ["milp", "milp-second", "third", "milp-last"]
        assert "milp: it is the first; it ended with no bound;" in found.reason
    found = solved(monkeypatch, first, weak, limits=chosen)  # it is believed until then
    assert (found.bound, found.proved_by) == (0.9, "milp")


def test_a_method_of_a_doubted_solver_says_no_bound(chosen: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    def saying(_: Any, __: Any, watch: Watch) -> Answer[Any]:
        watch.bound(0.9, "solver")
        return Answer(bound=0.95, proved_by="solver")

    false, events = method("milp", solve=claims(1.1)), list[Any]()
    methods = (false, method("second", solve=picks(1)), method("milp-last", solve=saying))
    assert solved(monkeypatch, *methods, limits=chosen, listen=events.append).bound is None
    assert {each.bound for each in events if each.method == "milp-last"} <= {None}
    better = method("milp-second", solve=lambda *given: replace(saying(*given), plan=(1,)))
    found = solved(monkeypatch, false, better, limits=chosen)
    assert (found.objective, found.bound) == (1.0, None)  # its plan contradicts the first


def test_closed_formulas_of_a_method_whose_solver_is_doubted_still_count(chosen: Limits, monkeypatch: Any) -> None:
    def both(_: Any, __: Any, watch: Watch) -> Answer[Any]:
        watch.bound(0.5, "bounds")
        return Answer(bound=1.1, proved_by="solver")

    found = solved(monkeypatch, method("milp", solve=both), method("second", solve=picks(1)), limits=chosen)
    assert (found.bound, found.proved_by) == (0.5, "bounds")


def test_a_proof_of_its_own_does_not_hide_that_another_method_is_contradicted(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CrosscheckError, match=r"second has a plan of 1\.0, yet first claims the bound 2\.0"):
        solved(monkeypatch, method("first", solve=picks(0, 1, 2, bound=2.0)), method("second"))


def test_the_time_limit_is_that_of_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: Any) -> Answer[Any]:
        time.sleep(0.3)
        return halfway()

    methods = (method("first", solve=slow), method("second", solve=counting.patient), method("third"))
    found = solved(monkeypatch, *methods, limits=Limits(time_s=0.5))
    assert (found.method, found.stop, list(found.stats["tried"])) == ("second", Stop.TIME_LIMIT, ["first", "second"])
    assert 0.45 <= found.seconds < allowed_s(1.0)  # choosing counts as well


def test_who_set_no_time_limit_is_not_told_that_one_was_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no proof is demanded, those after a method with a plan have a while, and the reason says so."""
    monkeypatch.setattr(solve, "HAND_OVER_S", 0.1)
    methods = (method("first", solve=halfway), method("second", solve=counting.patient), method("third"))
    found = solved(monkeypatch, *methods)
    assert (found.status, found.stop) == ("feasible", Stop.COMPLETED)
    assert list(found.stats["tried"]) == ["first", "second"]
    assert "second: first gave up; without a time limit, the methods after one with a plan have 0.1 s" in found.reason
    assert "time limit" not in solved(monkeypatch, *methods[::2]).reason


def test_what_comes_before_the_first_plan_takes_nothing_from_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: Any) -> Answer[Any]:
        time.sleep(0.3)
        return halfway()

    monkeypatch.setattr(solve, "HAND_OVER_S", 0.3)
    left: list[float] = []

    def recording(instance: Any, limits: Limits, watch: Watch) -> Answer[Any]:
        left.append(limits.time_s or 0.0)
        return counting.exact(instance, limits, watch)

    methods = (method("first", solve=too_large), method("second", solve=slow), method("third", solve=recording))
    assert solved(monkeypatch, *methods).status == "optimal" and left[0] > 0.1


def test_events_are_those_of_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither time nor bound goes back where another method begins."""
    events: list[Any] = []

    def reporting(bound: float) -> Any:
        def solve(_: Any, __: Any, watch: Watch) -> Answer[Any]:
            watch.plan((0, 1, 2), 3.0)
            time.sleep(0.01)
            watch.bound(bound, "solver")
            return Answer()

        return solve

    methods = (method("first", solve=reporting(0.75)), method("second", solve=reporting(0.5)), method("third"))
    found = solved(monkeypatch, *methods, listen=events.append)
    assert events[0].method == "first" and events[-1].method != "first"
    assert all(before.seconds <= after.seconds for before, after in itertools.pairwise(events))
    assert {each.bound for each in events[:-1] if each.method != "first"} == {0.75}
    assert (events[-1].objective, events[-1].bound) == (found.objective, found.bound) == (1.0, 1.0)


def test_options_of_the_first_are_not_demanded_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = counting.FAMILY.method("greedy").options
    of = family(method("first", solve=lambda *_, **_options: too_large(), options=extra), method("second"))
    monkeypatch.setattr(formulations, "FAMILIES", (of,))
    assert planner.solve(FEW, options={"extra": 3}).method == "first"
    with pytest.raises(UsageError, match="unknown option --other"):
        planner.solve(FEW, options={"other": 3})


def test_no_instance_is_refused_that_some_method_takes() -> None:
    """18 parallel layers have too many downsets for the recursion over machines, but CP-SAT has a plan."""
    layers = tuple(Layer(node, {1: (Tmpc("only", 1.0 + node % 3, 0.0, 0.0, 0.0),)}) for node in range(18))
    flat = StageInstance("parallel", layers, (), 4, 1e9, 1e9, 4)
    found = planner.solve(on_machines(flat, 2, 2, 1e9, 1e8), exact=True, limits=Limits(time_s=1))
    assert found.method == "cpsat" and found.plan is not None
    assert "piper-hierarchical does not take the instance" in found.reason


def test_a_stage_number_is_no_node() -> None:
    """Choosing asks the exact search, which honours nothing about stages by number."""
    layers = tuple(Layer(f"node {v}", {1: (Tmpc("only", 1.0, 0.0, 0.0, 0.0),)}) for v in range(3))
    instance = StageInstance("named", layers, (), 2, 1e9, 1e9, 2, requirements=("nodes(0) <= 1",))
    assert "does not take the instance" in pick(formulations.FAMILIES[0], instance, Limits())[1]
    assert planner.solve(instance, exact=True).plan is not None


def test_every_rate_is_of_a_method() -> None:
    known = {f"{each.name}/{method.name}" for each in formulations.FAMILIES for method in each.methods}
    table = predicted_runtime.seconds_per_step()
    assert set(table) <= known and all(rate > 0 for rate in table.values())
    silent = {"stage_graph/levels", "stage_graph/milp-columns"}  # they predict by exponentials
    predicting = {name for name in known - silent if _steps(*name.split("/")) > 0}
    assert not predicting - set(table), "planner bench --calibrate"


def _steps(problem: str, name: str) -> float:
    """What a method predicts for an instance of its problem; nothing where only tests know the problem."""
    if problem == counting.FAMILY.name:
        return 0.0
    family = next(each for each in formulations.FAMILIES if each.name == problem)
    return float(family.method(name).effort(random_case(problem, 3, 0)))
