"""Integer scaling: the one place where a model's costs and sizes become integers.

Costs are rounded down and limits are never rounded below what they were, so every plan that is feasible stays
feasible and a bound of the scaled model is a bound of the instance as declared. Factors are powers of two: scaling a
float by one is exact, so the only error is the rounding itself.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

#: All rounding together stays below this part of the known lower bound.
PRECISION = 1e-7

#: Integer sums of a model must stay below this. CP-SAT's domains are 64 bits, but its own arithmetic needs room: with
#: sums up to 2^60 it called feasible models infeasible (tests/formulations/stage_partitioning/test_models.py).
MAX_SUM = 2**56


@dataclass(frozen=True)
class Scale:
    """Units of 2^-``exponent``: a quantity x becomes ``floor(x * 2^exponent)``.

    ``precise`` says whether the rounding is within `PRECISION`; if `MAX_SUM` forbids that, a result has its true gap.
    """

    exponent: int
    precise: bool = True

    def floor(self, value: float) -> int:
        """``value`` in units, rounded down."""
        return math.floor(math.ldexp(value, self.exponent))

    def ceil(self, value: float) -> int:
        """``value`` in units, rounded up."""
        return math.ceil(math.ldexp(value, self.exponent))

    def restore(self, units: float) -> float:
        """The quantity that so many units stand for."""
        return math.ldexp(units, -self.exponent)


def cost_scale(lower_bound: float, num_terms: int, largest_sum: float) -> Scale:
    """The coarsest power of two that loses at most `PRECISION` times ``lower_bound`` to rounding.

    ``lower_bound``: of the objective, > 0; with 0 nothing relative can be promised, and ``largest_sum`` gets 40 binary
    digits.
    ``num_terms``: how many roundings (each below one unit) can add up in the objective.
    ``largest_sum``: no scaled expression of the model exceeds this, unscaled, even with all its variables at their
    largest.
    """
    fits = _exponent_that_fits(largest_sum, num_terms)
    if lower_bound <= 0:
        return Scale(fits - 22, precise=False)
    wanted = math.ceil(math.log2(max(1, num_terms) / PRECISION) - math.log2(lower_bound))
    return Scale(min(wanted, fits), precise=wanted <= fits)


def size_scale(sizes: Iterable[float], limit: float, largest_sum: float) -> Scale:
    """A scale for additive sizes under a limit: exact units where all sizes are integers and `MAX_SUM` allows it.

    Round sizes and the limit with ``floor``: whatever fits then still fits, and little more does; the plan that
    comes back is checked. Fractional sizes get the limit 40 binary digits.
    """
    fits = _exponent_that_fits(max(largest_sum, limit), 1)
    if all(float(size).is_integer() for size in sizes):
        return Scale(min(0, fits), precise=fits >= 0)
    wanted = 40 - math.ceil(math.log2(limit)) if limit > 0 else 0
    return Scale(min(max(0, wanted), fits), precise=False)


def _exponent_that_fits(largest_sum: float, num_terms: int) -> int:
    if largest_sum <= 0:
        return 0
    return int(math.log2(MAX_SUM)) - 1 - math.ceil(math.log2(largest_sum + math.ldexp(num_terms, -60)))
