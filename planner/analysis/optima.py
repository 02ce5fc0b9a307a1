"""Tables of optima by devices and one thing more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from formulations.figures.plan_figures import Heat
from planner.files.load import family_of, validate
from planner.process.errors import UsageError
from solvers.outcome import Stop

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


def expect_tables(instance: Any) -> Any:
    """The instance, if it keeps its rules; `UsageError` if its problem has no such tables."""
    instance = validate(instance, requirements=False)
    if (name := family_of(instance).name) != _FAMILY:
        raise UsageError.at("INSTANCE", name, f"an instance of {_FAMILY}")
    return instance


def some_devices(most: int) -> list[int]:
    """Powers of two, and the largest number."""
    return sorted({1 << power for power in range(most.bit_length()) if 1 << power <= most} | {most})
