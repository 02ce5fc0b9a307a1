"""Several runs as one result: whose proof it is, and that nothing is proved where a run is missing."""

import planner
from planner.analysis.sweep import union
from solvers.outcome import Status, Stop


def test_nothing_is_proved_without_all_runs() -> None:
    best = planner.solve(planner.load("chain8"), exact=True)
    whole = union(best, [best], [best.bound], is_whole=True)
    assert (whole.status, whole.stop, whole.proved_by) == (Status.OPTIMAL, Stop.PROVED, best.proved_by)
    part = union(best, [best], [best.bound], is_whole=False)
    assert (part.status, part.stop, part.bound, part.proved_by) == (Status.FEASIBLE, Stop.COMPLETED, None, None)
