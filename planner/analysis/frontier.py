"""Tables of optima: by devices and the sum of data-parallel degrees from one run, or by devices and memory."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from formulations.compiled.compile_times import compiling
from formulations.contract.family import no_preparation
from formulations.contract.figures.plan_figures import Heat, least_of
from instances.units import parse_bytes
from planner.files.load import family_of, validate
from planner.files.settings import declared_options, expect_types
from planner.process.errors import UsageError
from planner.solving.solve import silent
from planner.solving.worker import Worker, attend, signals_stop
from solvers.memory_budget import SizeError
from solvers.outcome import Limits, Stop, Watch

#: The one problem that has these tables.
_FAMILY = "stage_partitioning"
#: So many devices more, and these multiples of the instance's own memory, where nothing else is said.
MORE_DEVICES, MULTIPLES = 8, (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)


@dataclass(frozen=True, kw_only=True)
class Optima(ABC):
    """Least times per sample, ``None`` where no plan is feasible; no ``times`` at all if the run was stopped.

    ``stop`` says why the run ended, ``signal`` is the one that stopped it; ``options``: how the instance was declared.
    """

    instance: str
    unit: str
    times: list[list[float | None]] | None
    seconds: float
    stop: Stop
    options: dict[str, Any]
    stats: dict[str, Any] = field(default_factory=dict)
    signal: int | None = None

    @property
    @abstractmethod
    def heat(self) -> Heat:
        """The table as a heat map."""

    def _heat(self, title: str, ys: Sequence[float], xlabel: str, ylabel: str) -> Heat:
        times = self.times or []
        xs = range(1, len(times[0]) + 1 if times else 1)
        best = least_of(times)
        return Heat(title, xs, ys if times else (), times, xlabel, ylabel, "time per sample", best, self.unit)

    @property
    @abstractmethod
    def columns(self) -> dict[str, list[float | None]]:
        """For each heading of the CSV file the optima on at most 1, 2, ... devices."""

    def head(self) -> dict[str, Any]:
        """What the JSON objects of all tables begin with."""
        return {
            "problem": _FAMILY,
            "instance": self.instance,
            "stop": self.stop.value,
            "unit": self.unit,
            "seconds": self.seconds,
            "options": self.options,
        }

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The object that ``planner frontier --json`` prints."""

    def to_csv(self) -> str:
        """A line for every number of devices; empty where nothing is feasible."""
        rows = zip(*self.columns.values(), strict=True)
        lines = [
            ",".join([str(k), *("" if time is None else repr(time) for time in row)]) for k, row in enumerate(rows, 1)
        ]
        return "\n".join([",".join(["devices", *self.columns]), *lines]) + "\n"


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
        devices = range(1, len(self.times or ()) + 1)
        return self._heat("Time per sample by devices and degrees, at most", devices, "sum of degrees", "devices")

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner frontier --json`` prints."""
        corners = [{"devices": k, "microbatches": s, "time_per_sample": time} for k, s, time in self.corners]
        return {**self.head(), "stats": self.stats, "corners": corners, "time_per_sample": self.times}


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
        made = self._heat("Least time per sample by devices and memory", self.memories, "devices", "memory of a device")
        here = (self.memories.index(self.memory_bytes), self.devices - 1) if self.times else None
        return replace(made, here=here, yunit="bytes")

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner frontier --memories ... --json`` prints."""
        return {
            **self.head(),
            "devices": self.devices,
            "memory_bytes": self.memory_bytes,
            "memories_bytes": list(self.memories),
            "time_per_sample": self.times,
        }


def frontier(instance: Any, *, limits: Limits | None = None, notice: Callable[[str], None] = silent) -> Frontier:
    """The whole table, exactly, for an instance whose devices and micro-batches are the largest of interest.

    ``instance``: of stage partitioning, with sums of at most N. Under the released cost model degrees divide the
    instance's own N at every s, and synchronisation is charged once per batch of N.
    ``limits``: time and threads count.
    ``notice``: called with a line when kernels are being compiled.
    `UsageError` if the instance is of another family, asks for sums of exactly N, or is too large.
    """
    expect_types(limits=limits, notice=notice)
    began = time.perf_counter()
    with compiling(notice):
        from formulations.stage_partitioning.questions.studies import frontier as study

    stats: dict[str, Any] = {"compile_seconds": time.perf_counter() - began}
    limits = limits or Limits()
    instance = expect_tables(instance)
    watch = Watch(limits)
    worker = Worker(no_preparation, lambda: study.frontier(instance, watch, limits.threads), watch)
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
    return made(times=times, corners=study.corners(found.times), seconds=worker.seconds, stop=Stop.PROVED, stats=stats)


def by_memory(
    instance: Any,
    memories: Sequence[float] = (),
    more_devices: int = MORE_DEVICES,
    *,
    limits: Limits | None = None,
    notice: Callable[[str], None] = silent,
) -> ByMemory:
    """The least time per sample, exactly, for up to ``more_devices`` more devices and each memory: a table for each.

    ``instance``: of stage partitioning; its batch has as many micro-batches whatever the devices.
    ``memories``: in bytes; the instance's own is among them anyway. None: `MULTIPLES` of its own.
    ``limits``: the time is for all tables together.
    ``notice``: as of `frontier`.
    `UsageError` as of `frontier`.
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


def expect_tables(instance: Any) -> Any:
    """The instance, if it keeps its rules; `UsageError` if its problem has no such tables."""
    instance = validate(instance, requirements=False)
    if (name := family_of(instance).name) != _FAMILY:
        raise UsageError.at("INSTANCE", name, f"an instance of {_FAMILY}")
    return instance


def parse_memories(text: str) -> tuple[float, ...]:
    """``"4GiB,8GiB"`` in bytes; `UsageError` that names the option otherwise."""
    try:
        found = tuple(parse_bytes(part.strip()) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < each < 1e30 for each in found):
        raise UsageError.at("--memories", text, "sizes with commas, such as 4GiB,8GiB,16GiB")
    return found
