"""Closing the gap: targets between the best bound and the best plan, each met by a plan, refuted, or left open.

A refuted target is a bound, a met one gives a plan. Where an instance has few bandwidths the objective can take few
values, and only those are targets; otherwise the interval is halved. A target left open in its time is tried again,
with more, once there is nothing easier on either side of it. Source: this project.
"""

import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from formulations.device_mapping.data.arrays import Arrays, Floats
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.definition.problem import evaluate
from solvers.outcome import OPTIMAL_GAP, Prover, Watch

#: A plan this close to a bound, relatively, is not improved further.
CLOSE = OPTIMAL_GAP / 2
#: Values that differ by less, relatively, are one.
_SAME = 1e-10
#: A target above 0, relatively to the best plan, that stands for 0.
_LEAST = 1e-12
#: The objective's values are listed if there are at most so many sums.
_MAX_VALUES = 300_000
#: Seconds of computing for a target at first, and how they grow when all targets are open.
_PATIENCE_S, _GROWTH = 4.0, 3.0
#: What lies beside targets that ran out of time, or below those beyond a model, is searched if it is wider than this,
#: relatively.
_NARROW = 2e-4


class Verdict(Enum):
    """What came of a target.

    ``EXCLUDED``: refuted by a shared bound, ``OPEN``: time ran out, ``BEYOND``: the model cannot decide it, nor
    higher targets.
    """

    MET = "met"
    REFUTED = "refuted"
    EXCLUDED = "excluded"
    OPEN = "open"
    BEYOND = "beyond"


#: ``decide(target, seconds)``; a plan that meets the target has been offered before MET is returned.
Decide = Callable[[float, float], Verdict]


def thread_clock() -> Callable[[], float]:
    """Seconds that this thread has computed, wherever it is read: on a busy machine all else waits as well."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.perf_counter
    clock = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(clock)


def objective_values(arrays: Arrays) -> Floats | None:
    """All values that a node's time can have, ascending; ``None`` if they are too many."""
    found = []
    for stage in range(arrays.num_stages):
        parts = [float(arrays.ring[stage])] if arrays.ring[stage] > 0 else []
        parts += [volume for _, volume in arrays.incident[stage]]
        if len(arrays.levels) ** len(parts) > _MAX_VALUES:
            return None
        sums = np.array([arrays.compute[stage]])
        for part in parts:
            sums = np.unique((sums[:, None] + (part / arrays.levels)[None, :]).ravel())
        found.append(sums)
    if sum(map(len, found)) > _MAX_VALUES:
        return None
    values = np.unique(np.concatenate(found))
    distinct: Floats = values[np.concatenate([[True], np.diff(values) > _SAME * values[1:]])]
    return distinct


@dataclass
class Gap:
    """The best plan's objective and the best bound of a run, and the targets in between.

    ``prover``: whose proof a refuted target is.
    """

    arrays: Arrays
    watch: Watch
    values: Floats | None = None
    gap: float = OPTIMAL_GAP
    prover: str = Prover.SOLVER
    counts: Counter[str] = field(default_factory=Counter)
    refuter: str = ""

    @property
    def upper(self) -> float:
        """The best plan's objective; infinite without one."""
        objective = self.watch.incumbent()[1]
        return float("inf") if objective is None else objective

    @property
    def lower(self) -> float:
        """The best bound; 0 without one."""
        return self.watch.best_bound or 0.0

    @property
    def is_closed(self) -> bool:
        """Whether the plan is proved within the requested gap."""
        return self.upper - self.lower <= max(CLOSE, self.gap if self.gap > OPTIMAL_GAP else 0.0) * self.upper

    def offer(self, plan: Mapping) -> float:
        """Report a plan; returns its objective."""
        objective = evaluate(self.arrays.instance, plan)
        self.watch.plan(plan, objective)
        return objective

    def refute(self, target: float, by: str | None = None) -> None:
        """No plan meets the target: the next value is the bound, by whoever refuted it (default: the last one)."""
        bound = target
        if self.values is not None:
            above = bisect_right(self.values, target * (1 + _SAME))
            following = float(self.values[above]) if above < len(self.values) else target
            bound = max(bound, min(following * (1 - 2 * _SAME), self.upper))
        self.refuter = by or self.refuter
        self.watch.bound(bound, self.refuter or Prover.BOUNDS)

    def decide(self, decide: Decide, target: float, seconds: float) -> Verdict:
        """Decide a target, count the answer, and report a refuted one as a bound."""
        verdict = decide(target, seconds)
        self.counts[f"targets_{verdict.value}"] += 1
        if verdict is Verdict.REFUTED:
            self.refute(target, self.prover)
        elif verdict is Verdict.EXCLUDED:
            self.refute(target, Prover.BOUNDS)
        return verdict

    def target(self, low: float, high: float, part: float) -> float | None:
        """A target from a bound, which may be attained, up to an objective to beat, so far along; ``None``: none."""
        if self.values is not None:
            first = bisect_left(self.values, low * (1 - 4 * _SAME))
            last = bisect_left(self.values, high * (1 - CLOSE))
            if first >= last:
                return None
            value = float(self.values[min(last - 1, first + int(part * (last - first)))])
            return max(value * (1 + _SAME), _LEAST * high)
        if high - low <= CLOSE * high:
            return None
        return float(min(high * (1 - CLOSE), max(low + part * (high - low), low * (1 + CLOSE / 10))))


def close(gap: Gap, decide: Decide, alone: bool = True) -> None:
    """Decide targets until the gap is closed, the watch stops, or what is left is beyond the model.

    The first target is the lowest one, for bounds that a plan may attain. Where a target runs out of time, others are
    tried: just below the best plan (if no other thread does that, `alone`), and on both sides of those that ran out of
    time, as there may be easier ones.
    """
    patience, ceiling, tried = _PATIENCE_S, float("inf"), float("inf")
    unknown: tuple[float, float] | None = None  # least and greatest of the targets that ran out of time
    downwards, part = True, 0.0
    while not gap.is_closed and not gap.watch.stopped():
        low, high, seconds = gap.lower, min(gap.upper, ceiling), patience
        if high < gap.upper and high - low <= _NARROW * high:
            return
        if unknown is not None and (unknown[0] >= high or unknown[1] <= low):
            unknown = None
        if unknown is None:
            target = gap.target(low, high, part)
            if target is None:
                if ceiling >= gap.upper:  # no value lies in between
                    gap.refute(high * (1 - CLOSE))
                return
        elif alone and high < tried and ceiling >= gap.upper:
            target, tried, seconds = gap.target(low, high, 1.0), high, _GROWTH * patience
        else:
            sides = [_beside(gap, unknown[1], high), _beside(gap, low, unknown[0])]
            target = sides[not downwards] or sides[downwards]
            downwards = not downwards
        if target is None:
            patience, unknown, tried = patience * _GROWTH, None, float("inf")
            continue
        part = 0.5
        verdict = gap.decide(decide, target, seconds)
        if verdict is Verdict.BEYOND:
            ceiling = target
        elif verdict is Verdict.OPEN and gap.upper > target:
            unknown = (min(unknown[0], target), max(unknown[1], target)) if unknown else (target, target)


def improve(gap: Gap, decide: Decide, seconds: float) -> None:
    """Decide targets just below the best plan until one is refuted, takes too long, or is beyond the model."""
    while not gap.is_closed and not gap.watch.stopped():
        tried = gap.upper
        target = gap.target(gap.lower, tried, 1.0)
        if target is None:
            gap.refute(tried * (1 - CLOSE))
        elif gap.decide(decide, target, seconds) in (Verdict.BEYOND, Verdict.OPEN) and gap.upper >= tried:
            return


def _beside(gap: Gap, low: float, high: float) -> float | None:
    """A target on one side of those that ran out of time; ``None`` if that side is too narrow to matter."""
    return gap.target(low * (1 + 8 * _SAME), high, 0.5) if high - low > _NARROW * high else None
