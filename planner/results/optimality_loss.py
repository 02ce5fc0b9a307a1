"""Loss: by how much a plan is worse than what is proved, whoever proved it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from planner.results.check import exceeds
from planner.results.result import Result
from solvers.outcome import OPTIMAL_GAP, relative_gap

#: The share of the losses that the p95 loss is not below.
_SHARE = 0.95
#: Verified objective and claimed lower bound of a result, ``None`` where there is none.
Known = tuple[float | None, float | None]


def optimum_of(known: Iterable[Known]) -> float | None:
    """The least verified objective, if some bound that no plan refutes proves it; else ``None``."""
    objective, bound = _best(known)
    gap = relative_gap(objective, bound)
    return objective if gap is not None and gap <= OPTIMAL_GAP else None


def losses(known: Sequence[Known]) -> list[float | None]:
    """For each its objective / the proved optimum of all - 1; where none is proved, / the best bound of all.

    ``None`` without a plan or a bound, and where it would be infinite. A bound above a verified plan is false, and left
    out.

    >>> losses([(3.0, None), (2.0, 2.0), (None, 1.0)])
    [0.5, 0.0, None]
    >>> losses([(3.0, 2.0), (6.0, 4.0)])
    [0.5, 2.0]
    """
    optimum, (_, bound) = optimum_of(known), _best(known)
    reference = bound if optimum is None else optimum
    return [_loss(objective, reference) for objective, _ in known]


def with_losses(results: Iterable[Result]) -> list[Result]:
    """The results of one instance, each with its loss."""
    found = list(results)
    own = losses([(result.objective, result.bound) for result in found])
    return [replace(result, loss=loss) for result, loss in zip(found, own, strict=True)]


def _best(known: Iterable[Known]) -> Known:
    """The least objective, and the greatest bound that does not lie above it."""
    found = list(known)
    objective = min((each for each, _ in found if each is not None), default=None)
    bounds = [each for _, each in found if each is not None and (objective is None or not exceeds(each, objective))]
    return objective, max(bounds, default=None)


def _loss(objective: float | None, reference: float | None) -> float | None:
    if objective is None or reference is None:
        return None
    if objective <= reference:
        return 0.0
    return objective / reference - 1 if reference > 0 and math.isfinite(objective / reference) else None


def any_optimal(found: Iterable[float | None]) -> bool:
    """Whether losses are to a proved optimum: then some plan has none."""
    return any(loss is not None and loss <= OPTIMAL_GAP for loss in found)


def spread(losses: Sequence[float]) -> tuple[float, float, float]:
    """Mean (exactly rounded, whatever the order), 95th percentile (nearest rank) and the worst of some losses.

    >>> spread([0.5, 0.0])
    (0.25, 0.5, 0.5)
    """
    ranked = sorted(losses)
    return math.fsum(ranked) / len(ranked), ranked[math.ceil(_SHARE * len(ranked)) - 1], ranked[-1]
