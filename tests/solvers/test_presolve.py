"""What CP-SAT's presolve gets wrong, on the smallest model that we know, and what switches it off.

Found by taking constraints, variables and terms from a model of `stage_partitioning` while the proof stayed false.
"""

import itertools
from typing import Any

import pytest
from ortools.sat.python import cp_model

from solvers.cpsat import backend as cpsat

#: The first amount of which nine are 2^31 or more.
WRONG_FROM = 2**31 // 9 + 1


def model(amount: int) -> cp_model.CpModel:
    """A time that is 0 unless a replica is there: nothing demands one, and the least time is 0."""
    made = cp_model.CpModel()
    time = made.new_int_var(0, 2**40, "time")
    first, second, replica, lean, fast, plain, left, right, sent, kept = (
        made.new_bool_var(name)
        for name in ("first", "second", "replica", "lean", "fast", "plain", "left", "right", "sent", "kept")
    )
    made.add(first + second == replica)
    made.add(first + second <= 1)
    made.add(lean == left)
    made.add(fast + plain == right)
    made.add(left >= fast)
    made.add(left + sent >= plain)
    made.add(right + kept >= lean)
    taken = 5 + 3 * lean + 5 * fast + plain + sent + 4 * kept
    made.add(time >= amount * taken).only_enforce_if(replica)
    made.minimize(time)
    return made


def least(amount: int) -> int:
    """The optimum by looking at every choice."""
    found = []
    for first, second, replica, lean, fast, plain, left, right, sent, kept in itertools.product((0, 1), repeat=10):
        chosen = first + second == replica and first + second <= 1 and lean == left and fast + plain == right
        if chosen and left >= fast and left + sent >= plain and right + kept >= lean:
            found.append(replica * amount * (5 + 3 * lean + 5 * fast + plain + sent + 4 * kept))
    return min(found)


def proved(amount: int, **parameters: Any) -> float:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    for name, value in parameters.items():
        setattr(solver.parameters, name, value)
    assert solver.solve(model(amount)) == cp_model.OPTIMAL
    return float(solver.objective_value)


def test_the_false_proof_is_of_sums_beyond_32_bits() -> None:
    """A proof of 5 amounts where 0 is attained, from where nine amounts pass 2^31; a newer version may be right."""
    assert least(1) == 0
    assert proved(WRONG_FROM - 1) == 0
    assert proved(WRONG_FROM) == 5 * WRONG_FROM


@pytest.mark.parametrize("parameters", [{"cp_model_presolve": False}, {"presolve_inclusion_work_limit": 0}])
def test_without_the_search_for_inclusions_it_is_right(parameters: dict[str, Any]) -> None:
    for amount in (WRONG_FROM, 2**28, 300_000_000):
        assert proved(amount, **parameters) == 0


def test_models_here_are_run_without_it() -> None:
    from solvers.outcome import Limits

    run = cpsat.run(model(WRONG_FROM), Limits(time_s=20))
    assert run.objective == 0
