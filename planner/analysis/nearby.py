"""Solving many variants of one instance within one time limit: what questions next to the optimum have in common."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

from planner.files.load import family_of
from planner.process.signals import pending
from planner.results.result import Result
from planner.solving.solve import solve
from solvers.outcome import Limits, Status, Stop


class Unfinished(Exception):  # noqa: N818 - the answer so far is still given
    """A limit or a signal came first."""


@dataclass
class Variants:
    """Solves variants of an instance exactly, one after the other.

    ``arguments`` are those of `planner.solve` beside the limits. ``signal`` is the one that ended it, ``stop`` why it
    ended without an answer.
    """

    limits: Limits
    arguments: dict[str, Any]
    signal: int | None = None
    stop: Stop = Stop.COMPLETED
    solved: int = 0
    _began: float = field(default_factory=time.monotonic)

    def solve(self, variant: Any) -> Result:
        """The optimum of a variant, or that it has no plan, proved; `Unfinished` where neither is."""
        limits = self.limits
        if limits.time_s is not None:
            left = limits.time_s - (time.monotonic() - self._began)
            if left <= 0:
                self.stop = Stop.TIME_LIMIT
                raise Unfinished
            limits = replace(limits, time_s=left)
        if pending() is not None:
            self.signal, self.stop = pending(), Stop.INTERRUPTED
            raise Unfinished
        result = solve(variant, exact=True, limits=limits, **self.arguments)
        self.solved += 1
        if result.signal is not None or result.status not in (Status.OPTIMAL, Status.INFEASIBLE):
            self.signal, self.stop = result.signal, result.stop
            raise Unfinished
        return result


def verify_plan(instance: Any, plan: Any) -> tuple[Any, float]:
    """A plan from its JSON form, and its objective, both by the definition of the instance as it was declared.

    ``ValueError`` if it breaks a rule of the instance: a fault of the search.
    """
    family = family_of(instance)
    read = family.plan_from_json(instance, plan)
    broken = family.judge(instance, read)
    if broken:
        raise ValueError(f"a plan of a variant breaks {'; '.join(map(str, broken))}")
    return read, family.evaluate(instance, read)
