"""The least time for which a threshold test finds a plan: bisection with a proof at the end.

Source: reconstructed. Shared by the problems whose exact method decides "is there a plan within T?".
"""

import math
from typing import Protocol, TypeVar

from solvers.outcome import OPTIMAL_GAP, Prover, Watch

#: The search ends when no plan is better than the incumbent by this, relatively.
PRECISION = 1e-9
#: A plan further above the bound is hardly ever the best one, and no test costs more than one just below it.
_NEAR = 1.02

P = TypeVar("P")


class ThresholdTests(Protocol[P]):
    """Threshold tests over one lattice of an instance, the plans they find, and how many there were."""

    tests: int

    @property
    def work_bound(self) -> float:
        """A lower bound on the time of every plan, known before any test."""
        ...

    def test(self, T: float) -> int:
        """A label of a plan that takes no longer than T; -1: there is none; -2: stopped."""
        ...

    def plan(self, label: int, T: float) -> P:
        """The plan behind a label of the last test, which was at T."""
        ...

    def evaluate(self, plan: P) -> float:
        """The objective of a plan."""
        ...


def minimise(
    search: ThresholdTests[P], watch: Watch, gap: float, start: tuple[P, float] | None = None, *, chain: bool = False
) -> tuple[tuple[P, float] | None, float | None, bool]:
    """(best plan and objective, proved lower bound, infeasible) over the lattice of ``search``.

    ``start`` is a plan that is known already. ``chain`` says that the lattice is only one linear order: its bounds are
    not the problem's, and 1e-4 is enough.
    The lower bound is raised in growing steps to a first plan; then the interval is bisected, and a test just below
    the incumbent, at every third turn near the bound and at the end, is the proof.
    """
    best, lower = start, search.work_bound
    precision = 1e-4 if chain else max(PRECISION, gap if gap > OPTIMAL_GAP else 0.0)
    if not chain:
        watch.bound(lower, Prover.BOUNDS)
    step = 0.01
    strict = best[1] * (1 - precision) if best else 0.0  # a failed test here ends the search
    while best is None or lower < min(strict, best[1]):
        if best is None:
            T = max(lower, 1e-300) * (1 + step) if step < 1e3 else math.inf
        else:
            near = best[1] <= lower * (1 + 10 * precision)
            may_be_best = best[1] <= lower * _NEAR and search.tests % 3 == 2
            T = strict if near or may_be_best else min(strict, (lower + best[1]) / 2)
        label = search.test(T)
        if label == -2:
            break
        if label >= 0:
            plan = search.plan(label, T)
            objective = search.evaluate(plan)
            if best is not None and not objective < best[1]:
                raise AssertionError(f"the test at {T!r} returned a plan of {objective!r}")
            best, strict = (plan, objective), objective * (1 - precision)
            watch.plan(plan, objective)
            continue
        if math.isinf(T):
            return None, None, True
        lower, step = T, step * 2
        if not chain:
            watch.bound(lower)
    return best, None if chain else (min(lower, best[1]) if best else lower), False
