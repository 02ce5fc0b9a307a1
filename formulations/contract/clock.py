"""Which clock an objective is, and what an iteration of its plan takes on the simulated one."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

#: More actions are not simulated: they take seconds.
MOST_ACTIONS = 500_000
#: The same where loops are compiled, which take a second and 300 MB for so many.
MOST_COMPILED = 4_000_000
#: Schedules whose names are not their identifiers in capitals.
_NAMES = {"gpipe": "GPipe", "interleaved": "interleaved 1F1B", "dualpipe-v": "DualPipeV"}


@dataclass(frozen=True)
class Clock:
    """What a plan's objective speaks of, beside one simulated iteration (docs/the-clock.md).

    ``kind``: ``steady``: a pipeline that is never flushed; ``formula``: a batch by a formula; ``iteration``: a
    simulated one.
    ``schedule``: the orders that are simulated (`formulations.simulation.orders.SCHEDULES`); ``None``: the plan's own.
    ``microbatches``: of one batch; ``None`` where stages have micro-batches of their own.
    ``simulate``: seconds of one batch under these orders, with the sum of the gradients after it; ``None``: not
    simulated.
    ``formula_s``: seconds of one batch by the problem's formula: of a pipeline that is never flushed, those of so many
    micro-batches. ``None``: the problem does not say.
    ``other``: the settings with which the other clock is minimised, as a command takes them; empty: there are none.
    """

    kind: Literal["steady", "formula", "iteration"]
    schedule: str | None
    microbatches: int | None
    simulate: Callable[[], float | None]
    formula_s: float | None = None
    other: str = ""

    @property
    def says(self) -> str:
        """What the objective is the time of, in words.

        >>> Clock("iteration", "1f1b", 64, lambda: None).says
        'an iteration of 64 micro-batches, 1F1B'
        """
        if self.kind == "steady":
            return "a pipeline that is never flushed"
        ending = "" if self.microbatches == 1 else "es"
        size = "" if self.microbatches is None else f" of {self.microbatches:,} micro-batch{ending}"
        return (
            f"an iteration{size}{self.order}" if self.kind == "iteration" else f"a formula of a batch{size}{self.order}"
        )

    @property
    def order(self) -> str:
        """The schedule behind a comma; empty: the plan's own."""
        return "" if self.schedule is None else f", {_NAMES.get(self.schedule, self.schedule.upper())}"

    @cached_property
    def iteration_s(self) -> float | None:
        """What ``simulate`` finds."""
        return self.simulate()
