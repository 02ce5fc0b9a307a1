"""A watch for a part of a run: it has a time of its own, and ends with the run that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from solvers.outcome import Limits, Prover, Watch


class Part(Watch):
    """Plans and bounds pass on to the whole run.

    Parameters
    ----------
    whole
        The run's watch.
    time_s
        Seconds this part may take (``None``: what is left of the run).
    moot
        Asked now and then: whether the part has lost its purpose.
    """

    def __init__(self, whole: Watch, time_s: float | None = None, moot: Callable[[], bool] = lambda: False) -> None:
        left = whole.remaining_s()
        if time_s is not None and left is not None:
            time_s = min(time_s, left)
        super().__init__(Limits(time_s=left if time_s is None else time_s))
        self._whole, self._moot = whole, moot

    def stopped(self) -> bool:
        """True once this part should end: its time is up, the run is over, or it is moot."""
        if not self.flag[0] and (self._whole.stopped() or self._moot()):
            self.stop(self._whole.why())
        return super().stopped()

    def plan(self, plan: Any, objective: float) -> None:
        """Report a plan, to the run as well."""
        super().plan(plan, objective)
        self._whole.plan(plan, objective)

    def bound(self, value: float, by: str = Prover.SEARCH) -> None:
        """Report a bound, to the run as well."""
        super().bound(value, by)
        self._whole.bound(value, by)
