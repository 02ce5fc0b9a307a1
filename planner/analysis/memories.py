"""Least time per sample for every number of devices and each of some memories: what more of either would buy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from formulations.figures.plan_figures import Heat, least_of
from instances.units import parse_bytes
from planner.analysis.frontier import frontier
from planner.analysis.optima import Optima, expect_tables
from planner.files.settings import declared_options
from planner.process.errors import UsageError
from planner.solving.solve import silent
from solvers.outcome import Limits, Stop

#: So many devices more, and these multiples of the instance's own memory, where nothing else is said.
MORE_DEVICES, MULTIPLES = 8, (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)


@dataclass(frozen=True, kw_only=True)
class ByMemory(Optima):
    """The least time per sample on at most k devices of each memory.

    ``times[row][k - 1]`` belongs to ``memories[row]`` bytes, which rise. ``devices`` and ``memory_bytes`` are the
    instance's own.
    """

    devices: int
    memory_bytes: float
    memories: tuple[float, ...]

    @property
    def columns(self) -> dict[str, list[float | None]]:
        """A column for every memory in bytes."""
        return dict(zip((f"{memory:.17g}" for memory in self.memories), self.times or [], strict=False))

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
            **self.head(),
            "devices": self.devices,
            "memory_bytes": self.memory_bytes,
            "memories_bytes": list(self.memories),
            "time_per_sample": self.times,
        }


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
        As of `planner.analysis.frontier.frontier`.

    Raises
    ------
    UsageError
        As of `planner.analysis.frontier.frontier`.
    """
    began, limits = time.perf_counter(), limits or Limits()
    instance = expect_tables(instance)
    own = float(instance.memory_bytes)
    wanted = tuple(sorted({own, *(memories or (own * each for each in MULTIPLES))}))
    times: list[list[float | None]] = []
    stop, signal = Stop.PROVED, None
    for memory in wanted:
        larger = replace(instance, num_devices=instance.num_devices + more_devices, memory_bytes=memory)
        spent = time.perf_counter() - began
        left = None if limits.time_s is None else max(0.0, limits.time_s - spent)
        found = frontier(larger, limits=replace(limits, time_s=left), notice=notice)
        stop, signal = found.stop, found.signal
        if found.times is None:
            break
        times.append(found.best)
    return ByMemory(
        instance=instance.name,
        unit=instance.time_unit,
        times=times if len(times) == len(wanted) else None,
        seconds=time.perf_counter() - began,
        stop=stop,
        options=declared_options(instance),
        signal=signal,
        devices=instance.num_devices,
        memory_bytes=own,
        memories=wanted,
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
