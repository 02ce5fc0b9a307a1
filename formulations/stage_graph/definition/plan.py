"""What a plan decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """Operators that run together, data-parallel, with one schedule.

    Parameters
    ----------
    nodes
        Indices of the operators.
    devices
        r, the data-parallel degree.
    microbatch, k, in_flight
        b samples of a micro-batch; k of the kFkB schedule; i samples that the schedule keeps in flight at most.
    device_ids
        The devices themselves where the instance has a device graph, else empty.
    """

    nodes: tuple[int, ...]
    devices: int
    microbatch: int
    in_flight: int
    k: int = 1
    device_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class StagePlan:
    """Stages, the order between them, and the devices that stay idle.

    ``edges`` are pairs of stages: the first goes before the second in forward passes. They hold at least every pair
    with a tensor between them; a sequential pipeline orders more.
    """

    stages: tuple[Stage, ...]
    edges: tuple[tuple[int, int], ...]
    idle_devices: int = 0
