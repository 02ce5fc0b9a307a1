"""Certificates of operator partitioning: what `checker` has to count so that its labels reach no plan."""

from fractions import Fraction

from formulations.contract.certificates import Proved, certifies, check_stop
from formulations.contract.family import UncertifiedError
from formulations.operator_partitioning.certificate import checker
from instances.problems.operator_partitioning import OperatorInstance
from solvers.outcome import Watch

#: A cap on the all-reduce is sought to this part of the bound.
_FINE = 2**44


@certifies(checker.CHECKER)
def write(_instance: OperatorInstance, exact: checker.Instance, T: Fraction | None, watch: Watch) -> Proved:
    """`certificate` of a plan and a bound; writing takes as long as checking."""
    several = [t for t, targets in enumerate(exact.targets) if len(targets) > 1]
    for counted in [[], several] if several and T is not None else [[]]:
        caps = _caps(exact, T, counted, watch)
        if caps is not None:
            return T, {"kind": "labels", "counted": counted, "caps": caps}
    return None


def _caps(exact: checker.Instance, L: Fraction | None, counted: list[int], watch: Watch) -> list[list[str]] | None:
    """The caps on the all-reduce of each shape, if there are shapes; ``None`` if some plan takes no more than L."""
    if exact.S is not None or L is None:
        none: list[list[str]] = [[] for _ in exact.shapes()] if exact.S is None else []
        searches = list(checker.searches(exact, L, {"counted": counted, "caps": none}))
        return None if any(_finds(search, watch) for search in searches) else none
    rows = []
    for S, R in exact.shapes():
        row = _row(exact, S, R, L, counted, watch)
        if row is None:
            return None
        rows.append([str(cap) for cap in row])
    return rows


def _row(
    exact: checker.Instance, S: int, R: int, L: Fraction, counted: list[int], watch: Watch
) -> list[Fraction] | None:
    """Rising caps for one shape: each as high as there is no plan up to it."""
    found: list[Fraction] = []
    low = Fraction(0)
    while len(found) < checker.MAX_CAPS:
        T = (L - low) / exact.rounds(S, R)

        def reaches(cap: Fraction | None, T: Fraction = T) -> bool:
            return _finds(checker.Search(exact, S, R, T, exact.bytes_in(cap, R), counted), watch)

        if low > L or not reaches(None):
            return found
        if R == 1 or reaches(low):
            return None
        high, step = 2 * L, L / _FINE
        while high - low > step:  # no plan up to ``low``
            middle = (low + high) / 2
            if reaches(middle):
                high = middle
            else:
                low = middle
        if low <= (found[-1] if found else 0):
            return None
        found.append(low)
    raise UncertifiedError(f"more than {checker.MAX_CAPS} caps would be needed")


def _finds(search: checker.Search, watch: Watch) -> bool:
    """Whether a search of the checker finds a plan; `UncertifiedError` if the run is stopped."""
    for size in range(len(search.labels) - 1, 0, -1):
        check_stop(watch)
        search.extend(size)
        if search.found:
            return True
    return search.found
