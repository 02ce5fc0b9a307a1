"""The table of optima over devices and micro-batches, from one run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from formulations.compiled.compile_times import compiling
from formulations.compiled.memory_budget import SizeError
from formulations.contract.family import no_preparation
from formulations.figures.plan_figures import Heat, least_of
from planner.analysis.optima import Optima, expect_tables
from planner.files.settings import declared_options, expect_types
from planner.process.errors import UsageError
from planner.solving.solve import silent
from planner.solving.worker import Worker, attend, signals_stop
from solvers.outcome import Limits, Stop, Watch


@dataclass(frozen=True, kw_only=True)
class Frontier(Optima):
    """Least time per sample for every number of devices and every bound on the sum of data-parallel degrees.

    ``times[k - 1][s - 1]`` is the optimum on at most k devices with degrees that sum to at most s; ``corners`` are the
    entries (k, s, time) that no smaller k or s reaches.
    """

    corners: list[tuple[int, int, float]]

    @property
    def best(self) -> list[float | None]:
        """For every k the optimum at the largest s."""
        return [row[-1] for row in self.times or []]

    @property
    def columns(self) -> dict[str, list[float | None]]:
        """A column for every sum of degrees."""
        return {str(s): list(column) for s, column in enumerate(zip(*(self.times or []), strict=True), 1)}

    @property
    def heat(self) -> Heat:
        """The table as a heat map; its best entry is the first of the quickest."""
        times = self.times or []
        return Heat(
            "Time per sample by devices and degrees, at most",
            range(1, len(times[0]) + 1 if times else 1),
            range(1, len(times) + 1),
            times,
            "sum of degrees",
            "devices",
            "time per sample",
            least_of(times),
            self.unit,
        )

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner frontier --json`` prints."""
        corners = [{"devices": k, "microbatches": s, "time_per_sample": time} for k, s, time in self.corners]
        return {**self.head(), "stats": self.stats, "corners": corners, "time_per_sample": self.times}


def frontier(instance: Any, *, limits: Limits | None = None, notice: Callable[[str], None] = silent) -> Frontier:
    """The whole table, exactly, for an instance whose devices and micro-batches are the largest of interest.

    Parameters
    ----------
    instance
        Of stage partitioning, with sums of at most N. Under the released cost model degrees divide the instance's own
        N at every s, and synchronisation is charged once per batch of N.
    limits
        Only the time counts.
    notice
        Called with a line when kernels are being compiled.

    Raises
    ------
    UsageError
        If the instance is of another family, asks for sums of exactly N, or is too large.
    """
    expect_types(limits=limits, notice=notice)
    began = time.perf_counter()
    with compiling(notice):
        from formulations.stage_partitioning.questions.studies import frontier as room

    stats: dict[str, Any] = {"compile_seconds": time.perf_counter() - began}
    limits = limits or Limits()
    instance = expect_tables(instance)
    watch = Watch(limits)
    worker = Worker(no_preparation, lambda: room.frontier(instance, watch), watch)
    with signals_stop(watch) as received:
        try:
            returned = attend(worker, watch, limits, received)
        except (SizeError, ValueError) as error:
            raise UsageError(f"{instance.name}: {error}") from None
    found = worker.outcome if returned else None
    made = partial(Frontier, instance=instance.name, unit=instance.time_unit, options=declared_options(instance))
    if found is None:
        seconds = worker.seconds if returned else watch.elapsed_s()
        return made(times=None, corners=[], seconds=seconds, stop=watch.why(), stats=stats, signal=received.signal)
    times = [[time if math.isfinite(time) else None for time in row] for row in found.times[1:, 1:].tolist()]
    stats = {**found.stats, **stats}
    return made(times=times, corners=room.corners(found.times), seconds=worker.seconds, stop=Stop.PROVED, stats=stats)
