"""Within which factors of one parameter a plan stays optimal.

From the declared value outwards the plan is optimal up to where some rival beats it. The first trial is at the end of
the range; while the optimum there beats the plan, the trial moves to where that rival stops beating it (bisection
between two evaluations, no proof needed). It ends at a factor where the plan is optimal, and next to which it is not.
What lies between is proved where it can be, else sampled (`_Inside`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from formulations.contract.what_if import Factor
from planner.analysis.proofs import Proofs
from solvers.outcome import OPTIMAL_GAP

#: Factors that are tried at all.
LEAST, MOST = 0.1, 10.0
#: At its ends the plan loses this much at most; in between, where that is proved, `OPTIMAL_GAP`: ten times as much.
EDGE_GAP = OPTIMAL_GAP * LEAST
#: Trials between where nothing is proved, and how often a part is halved for a proof.
_POINTS, _HALVINGS = 4, 5


@dataclass(frozen=True)
class Interval:
    """Factors of a parameter with which the plan stays optimal, the others as they are declared.

    ``low`` and ``high`` are ``None`` where it is optimal to the end of the range (`LEAST`, `MOST`), or for any amount
    of memory. ``proved``: for all factors in between; else for ``points`` trials between. Of memory the ends are
    amounts as well: ``low_amount`` (what the plan needs) and ``high_amount`` (from the next one on another is better).
    """

    parameter: str
    low: float | None
    high: float | None
    proved: bool
    points: int = 0
    low_amount: float | None = None
    high_amount: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As in the object of ``planner sensitivity --json``."""
        return dict(vars(self))


def interval(proofs: Proofs, factor: Factor[Any], plan: Any) -> Interval:
    """The factors around 1 with which a plan that is optimal at 1 stays so."""
    low, high = (_Side(proofs, factor, plan, end) for end in (LEAST, MOST))
    ends = [None if side.reach == side.end else side.reach for side in (low, high)]
    return Interval(factor.name, ends[0], ends[1], low.proved and high.proved, low.points + high.points)


class _Side:
    """How far the plan stays optimal from 1 towards one end."""

    def __init__(self, proofs: Proofs, factor: Factor[Any], plan: Any, end: float) -> None:
        self._proofs, self._factor, self._plan = proofs, factor, plan
        self.end = self.reach = end
        self.proved, self.points = True, 0
        trials = [end]
        while trials:
            self._pull(trials.pop())
            self.proved, self.points = True, 0
            hole = self._inside(*sorted((1.0, self.reach)))
            if hole is not None:
                trials.append(hole)

    def _worth(self, at: float, plan: Any = None) -> float:
        found: float = self._proofs.family.evaluate(self._factor.scaled(at), self._plan if plan is None else plan)
        return found

    def _rival(self, at: float) -> Any:
        """A plan that beats this one there, or ``None``."""
        changed = self._factor.scaled(at)
        found = self._proofs.optimum(changed).own_plan
        return found if self._beats(found, at) else None

    def _beats(self, rival: Any, at: float) -> bool:
        return self._worth(at, rival) < self._worth(at) * (1 - EDGE_GAP)

    def _pull(self, trial: float) -> None:
        """Move the reach from a trial towards 1 until nothing beats the plan there."""
        self.reach = trial
        while (rival := self._rival(self.reach)) is not None:
            beaten, kept = self.reach, 1.0
            while True:
                middle = (beaten + kept) / 2
                if abs(beaten - kept) <= 1e-12 or middle in (beaten, kept):
                    break
                if self._beats(rival, middle):
                    beaten = middle
                else:
                    kept = middle
            self.reach = kept
            if kept == 1.0:
                return

    # -- between 1 and the reach; both are known to be optimal

    def _inside(self, low: float, high: float) -> float | None:
        """Prove or sample what is between; a factor at which the plan is beaten, if one is met."""
        first, last = self._worth(low), self._worth(high)
        if first == last:
            return None  # optima are monotone in the factor, and reach the plan's constant at both ends
        if self._factor.connected:
            return None
        if self._factor.steeper is not None:
            rise = self._end_of_constant(low, high)
            others = (
                self._factor.steeper((last - self._worth(rise)) / (high - rise) * (1 + 1e-9)) if rise < high else None
            )
            if others is None or self._none_beats(others, rise, high, _HALVINGS):
                return None
            low = rise
        return self._sample(low, high)

    def _end_of_constant(self, low: float, high: float) -> float:
        """Where the plan's objective begins to rise."""
        constant = self._worth(low)
        while high - low > 1e-12 and (middle := (low + high) / 2) not in (low, high):
            if self._worth(middle) > constant:
                high = middle
            else:
                low = middle
        return high

    def _none_beats(self, others: Callable[[float], Any], low: float, high: float, halvings: int) -> bool:
        """Whether it is proved that no plan of ``others`` beats the plan between two factors, where its line rises.

        Their optimum at ``low`` is a bound for all larger factors, and the one at ``high`` times ``f / high`` for the
        factor f, as no line falls and none is below 0. A line is above the larger of the two, if at all, at ``high`` or
        where they cross.
        """
        below, above = (self._proofs.optimum(others(at)).objective for at in (low, high))
        if below is None or above is None:  # no plan has such a TMPC
            return True
        crossing = min(max(low, high * below / above if above else high), high)
        if all(max(below, at / high * above) >= self._worth(at) * (1 - OPTIMAL_GAP) for at in (crossing, high)):
            return True
        if not halvings:
            return False
        middle = (low + high) / 2
        return all(self._none_beats(others, *part, halvings - 1) for part in ((low, middle), (middle, high)))

    def _sample(self, low: float, high: float) -> float | None:
        self.proved = False
        for number in range(1, _POINTS + 1):
            at = low + (high - low) * number / (_POINTS + 1)
            self.points += 1
            if self._rival(at) is not None:
                return at
        return None
