"""Least time per sample for every number of devices and each of some memories: what more of either would buy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from formulations.breakdown import Heat, least_of
from instances.units import parse_bytes
from planner.errors import UsageError
from planner.inputs.loading import admitted, family_of
from planner.inputs.settings import declared
from planner.run import silent
from planner.show.headlines import amount, headline
from planner.studies.frontier import FAMILY, frontier
from solvers.outcome import Limits, Stop

#: So many devices more, and these multiples of the instance's own memory, where nothing else is said.
MORE_DEVICES, MULTIPLES = 8, (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class ByMemory:
    """The least time per sample on at most k devices of each memory.

    ``times[row][k - 1]`` belongs to ``memories[row]`` bytes, which rise; ``None``: no plan is feasible. All of it is
    ``None`` if the run was stopped (``stop``, and ``signal`` that stopped it). ``devices`` and ``memory_bytes`` are the
    instance's own.
    """

    instance: str
    unit: str
    devices: int
    memory_bytes: float
    memories: tuple[float, ...]
    times: list[list[float | None]] | None
    seconds: float
    stop: Stop
    options: dict[str, Any]
    signal: int | None = None

    @property
    def heat(self) -> Heat:
        """The table as a heat map, with the instance's own cell marked; its headline says what more would buy."""
        times = self.times or []
        return Heat(
            "Least time per sample by devices and memory",
            range(1, len(times[0]) + 1 if times else 1),
            self.memories if times else (),
            times,
            "devices",
            "memory of a device",
            "time per sample",
            least_of(times),
            self.unit,
            (self.memories.index(self.memory_bytes), self.devices - 1) if times else None,
            yunit="bytes",
        )

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner frontier --memories ... --json`` prints."""
        return {
            "problem": FAMILY,
            "instance": self.instance,
            "stop": self.stop.value,
            "unit": self.unit,
            "seconds": self.seconds,
            "options": self.options,
            "devices": self.devices,
            "memory_bytes": self.memory_bytes,
            "memories_bytes": list(self.memories),
            "time_per_sample": self.times,
        }

    def to_csv(self) -> str:
        """A line for every number of devices, a column for every memory in bytes; empty where nothing is feasible."""
        head = ",".join(["devices", *(f"{each:g}" for each in self.memories)])
        columns = list(zip(*(self.times or []), strict=True))
        lines = [
            ",".join([str(k), *("" if time is None else repr(time) for time in line)])
            for k, line in enumerate(columns, 1)
        ]
        return "\n".join([head, *lines]) + "\n"


def by_memory(
    instance: Any,
    memories: Sequence[float] = (),
    more_devices: int = MORE_DEVICES,
    *,
    limits: Limits | None = None,
    notice: Callable[[str], None] = silent,
) -> ByMemory:
    """The least time per sample, exactly, for up to ``more_devices`` more devices and each memory: a table for each.

    Parameters
    ----------
    instance
        Of stage partitioning; its batch has as many micro-batches whatever the devices.
    memories
        In bytes; the instance's own is among them anyway. None: `MULTIPLES` of its own.
    limits
        The time is for all tables together.
    notice
        As of `planner.studies.frontier.frontier`.

    Raises
    ------
    UsageError
        As of `planner.studies.frontier.frontier`.
    """
    began = time.perf_counter()
    instance = admitted(instance, requirements=False)
    if (name := family_of(instance).name) != FAMILY:
        raise UsageError.at("INSTANCE", name, f"an instance of {FAMILY}")
    limits = limits or Limits()
    own = float(instance.memory_bytes)
    wanted = tuple(sorted({own, *(memories or (own * each for each in MULTIPLES))}))
    times: list[list[float | None]] = []
    found = None
    for memory in wanted:
        larger = replace(instance, num_devices=instance.num_devices + more_devices, memory_bytes=memory)
        left = (
            limits
            if limits.time_s is None
            else replace(limits, time_s=max(0.0, limits.time_s - (time.perf_counter() - began)))
        )
        found = frontier(larger, limits=left, notice=notice)
        if found.times is None:
            break
        times.append(found.best)
    assert found is not None, "the instance's own memory is among them"
    return ByMemory(
        instance.name,
        instance.time_unit,
        instance.num_devices,
        own,
        wanted,
        times if len(times) == len(wanted) else None,
        time.perf_counter() - began,
        found.stop,
        declared(instance),
        found.signal,
    )


def parse_memories(text: str) -> tuple[float, ...]:
    """``"4GiB,8GiB"`` in bytes; `UsageError` that names the option otherwise."""
    try:
        found = tuple(parse_bytes(part.strip()) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < each < 1e30 for each in found):
        raise UsageError.at("--memories", text, "sizes with commas, such as 4GiB,8GiB,16GiB")
    return found


def show_memories(found: ByMemory) -> None:
    """Print the least times by memory for a few numbers of devices, and what more would buy."""
    from rich.table import Table

    from planner.show import tables
    from planner.show.terminal import bold, console

    out = console()
    out.print(bold(found.instance), f" {tables.facts(found.options)}")
    out.print(f"{found.seconds:.4g} s ({found.stop})")
    if found.times is None:
        return
    table = Table("devices", *(amount(memory, "bytes") for memory in found.memories), box=None)
    for k in sorted({*_powers(len(found.times[0])), found.devices}):
        table.add_row(str(k), *(tables.number(row[k - 1]) for row in found.times))
    out.print(f"least time per sample, {found.unit}, by devices and memory of a device", highlight=False)
    out.print(table)
    out.print(headline(found.heat), highlight=False)


def _powers(most: int) -> set[int]:
    """Powers of two, and the largest."""
    return {1 << power for power in range(most.bit_length()) if 1 << power <= most} | {most}


def writes(found: ByMemory, out: str | None, picture: str | None) -> Iterator[Callable[[], None]]:
    """What writes the table as CSV and its plot, where they are requested and there is a table."""
    from planner.inputs.files import write_atomically
    from planner.show.plots.charts import over_devices
    from planner.show.plots.files import save
    from planner.show.plots.panel import Panel
    from planner.show.plots.panels import panels_of

    times = found.times
    if times is None:
        return
    if out is not None:
        yield lambda: write_atomically(out, found.to_csv())
    if picture is not None:
        lines = {amount(memory, "bytes"): row for memory, row in zip(found.memories, times, strict=True)}
        drawn = Panel(
            "Least time per sample", lambda axes: over_devices(axes, lines, found.unit), "by memory of a device"
        )
        yield lambda: save([*panels_of(found.heat), drawn], picture, found.instance)
