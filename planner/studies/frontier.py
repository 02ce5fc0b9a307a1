"""The table of optima over devices and micro-batches, from one run: as JSON, CSV and a plot."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from formulations.breakdown import Heat, least_of
from formulations.compilation import compiling
from formulations.family import no_preparation
from formulations.size import SizeError
from planner.errors import UsageError
from planner.inputs.loading import admitted, family_of
from planner.inputs.settings import declared, expect_types
from planner.run import silent
from planner.worker import Worker, attend, signals_stop
from solvers.outcome import Limits, Stop, Watch

#: The one problem that has these tables.
FAMILY = "stage_partitioning"


@dataclass(frozen=True)
class Frontier:
    """Least time per sample for every number of devices and every bound on the sum of data-parallel degrees.

    ``times[k - 1][s - 1]`` is the optimum on at most k devices with degrees that sum to at most s, ``None`` where no
    plan is feasible. All of it is ``None`` if the run was stopped (``stop``); ``signal`` is the one that stopped it.
    """

    instance: str
    unit: str
    times: list[list[float | None]] | None
    corners: list[tuple[int, int, float]]
    seconds: float
    stop: Stop
    options: dict[str, Any]
    stats: dict[str, Any]
    signal: int | None = None

    @property
    def best(self) -> list[float | None]:
        """For every k the optimum at the largest s."""
        return [row[-1] for row in self.times or []]

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner frontier --json`` prints."""
        return {
            "problem": FAMILY,
            "instance": self.instance,
            "stop": self.stop.value,
            "unit": self.unit,
            "seconds": self.seconds,
            "options": self.options,
            "stats": self.stats,
            "corners": [{"devices": k, "microbatches": s, "time_per_sample": time} for k, s, time in self.corners],
            "time_per_sample": self.times,
        }

    def to_csv(self) -> str:
        """A line for every number of devices, a column for every sum of degrees; empty where nothing is feasible."""
        rows = self.times or []
        head = ",".join(["devices", *(str(s) for s in range(1, len(rows[0]) + 1 if rows else 1))])
        lines = [
            ",".join([str(k), *("" if time is None else repr(time) for time in row)]) for k, row in enumerate(rows, 1)
        ]
        return "\n".join([head, *lines]) + "\n"


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
        from formulations.stage_partitioning.studies import frontier as room

    stats: dict[str, Any] = {"compile_seconds": time.perf_counter() - began}
    limits = limits or Limits()
    instance = admitted(instance, requirements=False)
    family = family_of(instance)
    if family.name != FAMILY:
        raise UsageError.at("INSTANCE", family.name, f"an instance of {FAMILY}")
    watch = Watch(limits)
    worker = Worker(no_preparation, lambda: room.frontier(instance, watch), watch)
    with signals_stop(watch) as received:
        try:
            returned = attend(worker, watch, limits, received)
        except (SizeError, ValueError) as error:
            raise UsageError(f"{instance.name}: {error}") from None
    found = worker.outcome if returned else None
    seconds = worker.seconds if returned else watch.elapsed_s()
    options = declared(instance)
    if found is None:
        return Frontier(
            instance.name, instance.time_unit, None, [], seconds, watch.why(), options, stats, received.signal
        )
    times = [[time if math.isfinite(time) else None for time in row] for row in found.times[1:, 1:].tolist()]
    stats = {**found.stats, **stats}
    corners = room.corners(found.times)
    return Frontier(instance.name, instance.time_unit, times, corners, seconds, Stop.PROVED, options, stats)


def show_frontier(found: Frontier) -> None:
    """Print how much of the table there is, and its best entries by devices."""
    from rich.table import Table

    from planner.show import tables
    from planner.show.terminal import bold, console

    out = console()
    out.print(bold(found.instance), f" {tables.facts(found.options)}")
    out.print(f"{found.seconds:.4g} s ({found.stop})  {tables.facts(found.stats)}")
    if found.times is None:
        return
    sums = len(found.times[0])
    out.print(f"{len(found.times)} x {sums} entries, {len(found.corners)} corners")
    table = Table("devices", f"best, {found.unit}", "smallest sum of degrees that gives it", box=None)
    for k in _shown(len(found.times)):
        row = found.times[k - 1]
        table.add_row(str(k), tables.number(row[-1]), "-" if row[-1] is None else str(row.index(row[-1]) + 1))
    out.print(table)


def writes(found: Frontier, out: str | None, picture: str | None) -> Iterator[Callable[[], None]]:
    """What writes the table as CSV and its plot, where they are requested and there is a table."""
    from planner.inputs.files import write_atomically
    from planner.show.plots.charts import frontier as chart
    from planner.show.plots.files import save
    from planner.show.plots.panel import Panel
    from planner.show.plots.panels import panels_of

    times = found.times
    if times is None:
        return
    if out is not None:
        yield lambda: write_atomically(out, found.to_csv())
    if picture is not None:
        lines = Panel("Least time per sample", lambda axes: chart(axes, times, found.unit), _bought(found))
        yield lambda: save([*panels_of(heat_of(found)), lines], picture, found.instance)


def heat_of(found: Frontier) -> Heat:
    """The table as a heat map; its best entry is the first of the quickest."""
    times = found.times or []
    return Heat(
        "Time per sample by devices and degrees, at most",
        range(1, len(times[0]) + 1 if times else 1),
        range(1, len(times) + 1),
        times,
        "sum of degrees",
        "devices",
        "time per sample",
        least_of(times),
        found.unit,
    )


def _bought(found: Frontier) -> str:
    """What the second half of the devices buys."""
    best = found.best
    half = best[len(best) // 2 - 1] if len(best) > 1 else None
    if half is None or best[-1] is None or best[-1] <= 0:
        return ""
    return f"{len(best)} devices are {half / best[-1]:.3g} times as fast as {len(best) // 2}"


def _shown(most: int) -> list[int]:
    """Powers of two, and the largest."""
    return sorted({1 << power for power in range(most.bit_length()) if 1 << power <= most} | {most})
