"""Stage graphs: operators of a branching model, the devices they run on, and what a mini-batch is (nouns only).

Source: GraphPipe, section 3; the form of the times and the constants are choices of this project (README of the room).
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

#: What a plan may choose: one micro-batch size for all stages and 1F1B; one for each stage; kFkB as well.
Schedule = Literal["uniform", "per-stage", "kfkb"]
SCHEDULES: tuple[Schedule, ...] = ("uniform", "per-stage", "kfkb")


@dataclass(frozen=True)
class AffineTime:
    """``fixed_s + per_sample_s * n`` seconds for n samples on one device."""

    fixed_s: float
    per_sample_s: float

    def at(self, samples: int) -> float:
        """Seconds for so many samples."""
        return self.fixed_s + self.per_sample_s * samples


@dataclass(frozen=True)
class TableTime:
    """Measured seconds at ascending numbers of samples.

    Between two entries the time is their chord; below the first it is the first; beyond the last the time per sample
    stays that of the last. Seconds must not fall and seconds per sample must not rise along the table; then the same
    holds everywhere in between.
    """

    samples: tuple[int, ...]
    seconds: tuple[float, ...]

    def at(self, samples: int) -> float:
        """Seconds for so many samples."""
        after = bisect.bisect_left(self.samples, samples)
        if after == len(self.samples):
            return self.seconds[-1] * samples / self.samples[-1]
        if after == 0 or self.samples[after] == samples:
            return self.seconds[after]
        low, high = self.samples[after - 1], self.samples[after]
        share = (samples - low) / (high - low)
        return self.seconds[after - 1] * (1 - share) + self.seconds[after] * share


Time = AffineTime | TableTime


@dataclass(frozen=True)
class Operator:
    """A vertex of the computation graph.

    Parameters
    ----------
    forward, backward
        Seconds of each pass as a function of the samples that one device handles.
    weight_bytes
        Bytes of the operator's weights (one copy).
    activation_bytes
        Bytes for each sample kept from the forward to the backward pass, the operator's inputs from other operators
        left out.
    """

    name: str
    forward: Time
    backward: Time
    weight_bytes: float
    activation_bytes: float

    def forward_s(self, samples: int) -> float:
        """Seconds of the forward pass of so many samples on one device."""
        return self.forward.at(samples)

    def backward_s(self, samples: int) -> float:
        """Seconds of the backward pass of so many samples on one device."""
        return self.backward.at(samples)


@dataclass(frozen=True)
class OperatorEdge:
    """A tensor from operator ``source`` to ``target`` (indices); its gradient goes back with as many bytes."""

    source: int
    target: int
    bytes_per_sample: float


@dataclass(frozen=True)
class DeviceGraph:
    """Unlike devices: memory of each, and bytes per second from each to each, shape (D, D); 0 means no link."""

    memory_bytes: tuple[float, ...]
    bandwidth_bytes_per_s: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class StageGraph:
    """A model, devices and a mini-batch.

    Parameters
    ----------
    operators, edges
        Operators in a topological order (every edge has ``source < target``), and distinct edges.
    num_devices, memory_bytes
        D devices with so many bytes each.
    bandwidth_bytes_per_s, latency_s
        Links between any two devices: seconds of n bytes are ``latency_s + n / bandwidth_bytes_per_s``.
    minibatch
        B samples of one iteration.
    inner_bandwidth_bytes_per_s, devices_per_node
        A second tier: an all-reduce of at most ``devices_per_node`` devices runs at the inner bandwidth.
    device_graph
        Replaces ``memory_bytes`` and both bandwidths; stages then name their devices.
    schedule
        What plans may choose (`Schedule`).
    microbatches
        Micro-batch sizes that plans may use; empty: every divisor of B.
    pass_ratio
        Forward to backward time, for the number of samples in flight where sizes differ.
    weight_copies
        Bytes of memory for each byte of weights: weights, gradients and two moments of Adam.
    options
        How the instance was declared.
    """

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[OperatorEdge, ...]
    num_devices: int
    memory_bytes: float
    bandwidth_bytes_per_s: float
    latency_s: float
    minibatch: int
    inner_bandwidth_bytes_per_s: float | None = None
    devices_per_node: int | None = None
    device_graph: DeviceGraph | None = None
    schedule: Schedule = "uniform"
    microbatches: tuple[int, ...] = ()
    pass_ratio: tuple[int, int] = (1, 2)
    weight_copies: float = 4.0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_operators(self) -> int:
        """Operators of the model."""
        return len(self.operators)

    @cached_property
    def microbatch_sizes(self) -> tuple[int, ...]:
        """Micro-batch sizes that plans may use, ascending: divisors of the mini-batch."""
        if self.microbatches:
            return tuple(sorted(self.microbatches))
        low = [size for size in range(1, int(self.minibatch**0.5) + 1) if self.minibatch % size == 0]
        return tuple(sorted({*low, *(self.minibatch // size for size in low)}))

    def memory_of(self, device: int) -> float:
        """Bytes of memory of a device."""
        return self.device_graph.memory_bytes[device] if self.device_graph else self.memory_bytes

    def reduce_bandwidth(self, devices: int) -> float:
        """Bytes per second of an all-reduce of so many like devices."""
        inner = self.inner_bandwidth_bytes_per_s
        if inner is not None and self.devices_per_node is not None and devices <= self.devices_per_node:
            return inner
        return self.bandwidth_bytes_per_s
