"""Tables of optima by devices and one thing more: as CSV, on a terminal, and as pictures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from formulations.breakdown import Heat
from planner.files.load import admitted, family_of
from planner.process.errors import UsageError
from solvers.outcome import Stop

if TYPE_CHECKING:
    from rich.console import Console

    from planner.display.plots.panel import Panel

#: The one problem that has these tables.
_FAMILY = "stage_partitioning"


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

    @property
    @abstractmethod
    def columns(self) -> dict[str, list[float | None]]:
        """For each heading of the CSV file the optima on at most 1, 2, ... devices."""

    @abstractmethod
    def lines(self) -> Panel:
        """Times over devices as lines."""

    @abstractmethod
    def show_table(self, out: Console) -> None:
        """Print some of the table."""

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

    def show(self) -> None:
        """Print how the run ended, and some of the table if there is one."""
        from planner.display import tables
        from planner.display.terminal import bold, console

        out = console()
        out.print(bold(self.instance), f" {tables.facts(self.options)}")
        out.print(f"{self.seconds:.4g} s ({self.stop})  {tables.facts(self.stats)}".rstrip())
        if self.times is not None:
            self.show_table(out)

    def writes(self, out: str | None, picture: str | None) -> Iterator[Callable[[], None]]:
        """What writes the table as CSV and its plot, where they are requested and there is a table."""
        from planner.display.plots.files import save
        from planner.display.plots.panels import panels_of
        from planner.files.write import write_atomically

        if self.times is None:
            return
        if out is not None:
            yield lambda: write_atomically(out, self.to_csv())
        if picture is not None:
            yield lambda: save([*panels_of(self.heat), self.lines()], picture, self.instance)


def admitted_to_tables(instance: Any) -> Any:
    """The instance, if it keeps its rules; `UsageError` if its problem has no such tables."""
    instance = admitted(instance, requirements=False)
    if (name := family_of(instance).name) != _FAMILY:
        raise UsageError.at("INSTANCE", name, f"an instance of {_FAMILY}")
    return instance


def some_devices(most: int) -> list[int]:
    """Powers of two, and the largest number."""
    return sorted({1 << power for power in range(most.bit_length()) if 1 << power <= most} | {most})
