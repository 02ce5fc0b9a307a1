"""What all methods of device mapping read: the instance's numbers as arrays, without what the objective leaves out.

Symbols: S stages, R replicas, D = S R devices; c(s) seconds of computing, w(s) = 2 (R - 1) P(s) / R bytes of a ring
link, M(e) bytes of an edge, B bandwidths. A node is a pair (s, r), numbered s R + r.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.device_mapping.definition.plan import Mapping
from instances.problems.device_mapping import DeviceMapping

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
#: Whole numbers by stage and replica.
Rows = list[list[int]] | NDArray[np.int64]

#: Targets are loosened by this, relatively, so that rounding never excludes a plan that meets them.
SLACK = 1e-11


@dataclass(frozen=True)
class Arrays:
    """Numbers of an instance.

    ``compute`` has shape (S,); ``ring`` (S,) are the bytes w of a ring link, zeros where no ring counts; ``edges`` are
    those that count, with their bytes; ``speed`` has shape (D, D), with zeros on the diagonal. ``numbered``: replicas
    cannot be renumbered, as requirements may speak of them.
    """

    instance: DeviceMapping
    compute: Floats
    ring: Floats
    edges: tuple[tuple[int, int, float], ...]
    speed: Floats
    numbered: bool = False

    @property
    def num_stages(self) -> int:
        """S."""
        return len(self.compute)

    @property
    def replicas(self) -> int:
        """R."""
        return self.instance.replicas

    @property
    def num_devices(self) -> int:
        """D."""
        return len(self.speed)

    @property
    def has_rings(self) -> bool:
        """Whether any ring costs anything."""
        return bool(self.ring.any())

    @property
    def separate_rings(self) -> bool:
        """Whether the order of a ring is a choice of its own, beside which replica is where.

        With at most three replicas all cyclic orders are the same; without edges a replica's index says nothing else,
        unless it is ``numbered``.
        """
        says_more = bool(self.edges) or self.numbered
        return self.instance.ring == "free" and says_more and self.has_rings and self.replicas > 3

    @cached_property
    def levels(self) -> Floats:
        """The distinct bandwidths, descending."""
        return np.unique(self.speed[self.speed > 0])[::-1]

    @cached_property
    def incident(self) -> tuple[tuple[tuple[int, float], ...], ...]:
        """For each stage its edges' numbers and bytes."""
        return tuple(
            tuple((number, volume) for number, (a, b, volume) in enumerate(self.edges) if stage in (a, b))
            for stage in range(self.num_stages)
        )

    @cached_property
    def seconds_per_byte(self) -> Floats:
        """1 / B, infinite on the diagonal; shape (D, D)."""
        with np.errstate(divide="ignore"):
            return np.where(self.speed > 0, 1 / self.speed, np.inf)

    @cached_property
    def ring_floor(self) -> Floats:
        """Least seconds per byte that a ring through each device can have, shape (D,): 0 without rings."""
        if not self.has_rings:
            return np.zeros(self.num_devices)
        return np.asarray(np.sort(self.seconds_per_byte, axis=1)[:, 0 if self.replicas == 2 else 1])


def arrays(instance: DeviceMapping, *, numbered: bool = False) -> Arrays:
    """The arrays of an instance; replicas of one with requirements are ``numbered``."""
    speed = np.array(instance.bandwidth_bytes_per_s, dtype=np.float64)
    np.fill_diagonal(speed, 0.0)
    stages = range(instance.num_stages)
    rings = [instance.ring_bytes(stage) if instance.objective != "p2p" else 0.0 for stage in stages]
    counted = () if instance.objective == "allreduce" else instance.edges
    edges = tuple((edge.source, edge.target, edge.volume_bytes) for edge in counted if edge.volume_bytes > 0)
    compute = np.array([stage.compute_s for stage in instance.stages])
    return Arrays(instance, compute, np.array(rings), edges, speed, numbered or bool(instance.requirements))


def with_slack(target: float) -> float:
    """The target with room for rounding."""
    return target * (1 + SLACK)


def plan_of(places: Rows, rings: Rows | None = None) -> Mapping:
    """A plan from devices by stage and replica, and the ring orders (replicas of each stage) if they are a choice."""
    orders = None if rings is None else tuple(tuple(int(replica) for replica in ring) for ring in rings)
    return Mapping(tuple(tuple(int(device) for device in row) for row in places), orders)


def needed_speed(arrays: Arrays, target: float) -> Floats:
    """The least bandwidth of each stage's ring links that meets a target, shape (S,); 0 where any link does.

    Without edges this is exact; with them every replica's cheapest exchanges are left out, so it is a relaxation.
    """
    left = with_slack(target) - arrays.compute
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.where(arrays.ring > 0, np.where(left > 0, arrays.ring / left, math.inf), 0.0)
    return np.asarray(np.where(left < 0, math.inf, needed), dtype=np.float64)
