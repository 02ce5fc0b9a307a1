"""The figures of a plan, as plain data: figures of every stage and of the whole, and pictures.

Each room makes its own (``<room>/breakdown.py``), from its definition alone; `planner` prints and draws them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Bars:
    """A bar for each stage; ``limit`` is a line that none may pass."""

    title: str
    labels: Sequence[str]
    values: Sequence[float]
    ylabel: str
    xlabel: str = "stage"
    limit: float | None = None


@dataclass(frozen=True)
class Stages:
    """A graph of stages: who feeds whom, and what stands in each box."""

    title: str
    edges: Sequence[tuple[int, int]]
    names: Mapping[int, str]


@dataclass(frozen=True)
class Devices:
    """The bandwidth matrix in bytes per second, with devices in the order of the stages that hold them."""

    title: str
    devices: Sequence[Sequence[int]]
    bandwidth_bytes_per_s: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Passes:
    """Which pass runs when: ``[stage, "F" or "B", index, start_s, end_s]`` each."""

    title: str
    tasks: Sequence[Sequence[Any]]
    num_stages: int


@dataclass(frozen=True)
class Tiles:
    """Stages as rectangles ``{"stage", "row", "column", "rows", "columns"}`` on a mesh."""

    title: str
    rows: int
    columns: int
    tiles: Sequence[Mapping[str, int]]


Picture = Bars | Stages | Devices | Passes | Tiles


@dataclass(frozen=True)
class Breakdown:
    """A plan in figures.

    ``rows`` has one entry for each stage (or node, or tile), all with the same names; ``figures`` are of the whole
    plan. Names end in their unit (``_s``, ``_bytes``, ``_share``), or say that the instance's own time unit is meant.
    """

    rows: tuple[Mapping[str, Any], ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()


def slowest(times: Sequence[float]) -> int:
    """The position of the bottleneck: the first of the slowest."""
    return max(range(len(times)), key=lambda stage: times[stage])


def idle_share(times: Sequence[float], devices: Sequence[int], num_devices: int) -> float:
    """The part of all devices' time in a steady state in which they wait for the slowest stage, or have no stage.

    >>> idle_share([1.0, 2.0], [1, 1], 4)
    0.625
    """
    busy = sum(time * count for time, count in zip(times, devices, strict=True))
    return 1 - busy / (max(times) * num_devices) if max(times) > 0 else 1.0
