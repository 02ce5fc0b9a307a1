"""The family object: what the dispatcher and the command line see of it."""

from oracles.tmpc_knapsack import make

from formulations.tmpc_knapsack import FAMILY
from instances.problems.tmpc_knapsack import generate
from solvers.outcome import Limits, Watch


def test_the_dispatcher_takes_the_compiled_search() -> None:
    for exact in (False, True):
        name, reason = FAMILY.choose(generate(7), Limits(), exact)
        assert name == "exact"
        assert "7 nodes" in reason


def test_models_refuse_what_they_cannot_build_in_time() -> None:
    huge = generate(1000, 101)
    assert "101000 options" in str(FAMILY.method("milp").supports(huge))
    assert FAMILY.method("exact").supports(huge) is None
    assert FAMILY.method("cpsat").supports(generate(40)) is None
    assert FAMILY.method("exact").effort(generate(40)) < FAMILY.method("cpsat").effort(generate(40))


def test_an_infeasible_instance_is_feasible_at_the_capacity_named() -> None:
    instance = make(3, [(0, 5), (1, 2.25)], [(0, 5), (1, 2)])
    assert FAMILY.why_infeasible is not None
    sentence, figures = FAMILY.why_infeasible(instance, Limits(), Watch())
    assert figures == {"least_capacity_bytes": 4.25}
    assert "4.25" in sentence and "--memory" in sentence
    for capacity, feasible in ((4.25, True), (4.2499, False)):
        answer = FAMILY.method("exact").solve(FAMILY.read(instance, "k", {"memory": capacity}), Limits(), Watch())
        assert (answer.plan is not None) is feasible
