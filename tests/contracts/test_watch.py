"""The watch of a part of a run: what it passes on, and when it ends."""

import time

import numpy as np

from solvers.outcome import Limits, Prover, Stop, Watch


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
