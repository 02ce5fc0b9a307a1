"""Which clock an objective is, and what an iteration of its plan takes on the simulated one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Clock:
    """What a plan's objective speaks of, beside one simulated iteration (docs/the-clock.md).

    Parameters
    ----------
    kind
        ``steady``: a pipeline that is never flushed; ``formula``: a batch by a formula; ``iteration``: a simulated one.
    schedule
        The orders that are simulated (`formulations.simulation.orders.SCHEDULES`); ``None``: the plan's own.
    microbatches
        Of one batch; ``None`` where stages have micro-batches of their own.
    iteration_s
        Seconds of one batch under these orders, with the sum of the gradients after it; ``None``: not simulated.
    """

    kind: Literal["steady", "formula", "iteration"]
    schedule: str | None
    microbatches: int | None
    iteration_s: float | None
