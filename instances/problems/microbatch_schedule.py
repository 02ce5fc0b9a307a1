"""Micro-batch schedules: a graph of pipeline stages, what their passes take and what they may hold (nouns only).

Source: GraphPipe, sections 3 and 6; links that take time, and samples of one stage meeting several micro-batches of
another, follow section 7 of this project's reading of it (formulations/microbatch_schedule/README.md).
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal

from instances.errors import InstanceError, expect
from instances.exchange import in_files
from instances.graph import expect_simple, topological_order
from instances.rules import Amount, Bandwidth, Count, Identifier, Index, Recorded, Seconds, one_of

#: The shortest pass, as part of what all passes and delays take together: floats distinguish times down to that.
SHORTEST = 1e-12
#: Passes of the largest instance.
MAX_PASSES = 200_000

#: Forward pass; backward pass, or where it is split the gradient of the input; the gradient of the weights.
Kind = Literal["F", "B", "W"]


@in_files(
    *("forward_s", "backward_s", "microbatch", "k", "in_flight?", "weight_bytes", "activation_bytes", "memory_bytes?"),
    "weight_s?",
)
@dataclass(frozen=True)
class ScheduleStage:
    """A pipeline stage, which runs one pass at a time.

    Parameters
    ----------
    forward_s, backward_s
        Seconds of the passes of one micro-batch; positive.
    microbatch, k
        Samples of a micro-batch, and the k of its kFkB schedule (only the method of that name uses it).
    in_flight
        Most samples between the start of a forward pass and the end of its backward pass; ``None``: any number.
    weight_bytes, activation_bytes, memory_bytes
        Held always, held for each sample in flight, and the device's room for all it holds (``None``: no limit).
    weight_s
        Seconds of the gradient of the weights, where the backward pass is split: ``backward_s`` is then the gradient
        of the input alone, and a micro-batch is in flight until both have ended. ``None``: it is not split.
    """

    forward_s: Seconds
    backward_s: Seconds
    microbatch: Count = 1
    k: Count = 1
    in_flight: Count | None = None
    weight_bytes: Amount = 0.0
    activation_bytes: Amount = 0.0
    memory_bytes: Amount | None = None
    weight_s: Seconds | None = None

    @property
    def seconds(self) -> dict[Kind, float]:
        """Of each kind of pass that the stage has, in the order in which those of a micro-batch run."""
        whole: dict[Kind, float] = {"F": self.forward_s, "B": self.backward_s}
        return whole if self.weight_s is None else {**whole, "W": self.weight_s}

    @property
    def releases(self) -> Kind:
        """The kind of pass that gives a micro-batch's activations back, at its end."""
        return "B" if self.weight_s is None else "W"

    def bytes_held(self, microbatches: int) -> float:
        """Bytes with so many micro-batches in flight."""
        return self.weight_bytes + microbatches * self.microbatch * self.activation_bytes


@dataclass(frozen=True)
class ScheduleEdge:
    """``source`` feeds ``target``; a message takes ``delay_s`` besides what the instance's links take for its bytes."""

    source: Index
    target: Index
    delay_s: Amount = 0.0
    bytes_per_sample: Amount = 0.0


@in_files(
    *("name", "minibatch", "stages", "edges", "latency_s", "objective", "bandwidth_bytes_per_s?", "deadline_s?"),
    "devices?",
    problem="microbatch_schedule",
    absent={"name": "schedule"},
)
@dataclass(frozen=True)
class ScheduleInstance(Recorded):
    """Stages, the edges between them, and the samples of one iteration.

    Parameters
    ----------
    minibatch
        Samples of an iteration; every micro-batch size divides it.
    bandwidth_bytes_per_s, latency_s
        Of every link between devices (``None``: bytes take no time). A message is one micro-batch of its sender;
        messages of a link do not wait for each other.
    objective, deadline_s
        ``time``: the iteration's seconds. ``memory``: the bytes of the device that holds most. An iteration that takes
        longer than the deadline breaks a rule.
    devices
        The device of every stage, from 0; empty: each stage has a device of its own. The stages of a device run one
        pass at a time together, and together they have the least memory that one of them declares.
    """

    name: Identifier
    minibatch: Count
    stages: tuple[ScheduleStage, ...]
    edges: tuple[ScheduleEdge, ...] = ()
    bandwidth_bytes_per_s: Bandwidth | None = None
    latency_s: Amount = 0.0
    objective: Annotated[str, one_of("time", "memory")] = "time"
    deadline_s: Amount | None = None
    devices: tuple[Index, ...] = ()

    def num_microbatches(self, stage: int) -> int:
        """Micro-batches of a stage in an iteration."""
        return self.minibatch // self.stages[stage].microbatch

    @cached_property
    def device_of(self) -> tuple[int, ...]:
        """The device of every stage."""
        return self.devices or tuple(range(len(self.stages)))

    @cached_property
    def stages_on(self) -> tuple[tuple[int, ...], ...]:
        """The stages of every device."""
        found: list[list[int]] = [[] for _ in range(1 + max(self.device_of, default=-1))]
        for stage, device in enumerate(self.device_of):
            found[device].append(stage)
        return tuple(map(tuple, found))

    @cached_property
    def shares_devices(self) -> bool:
        """Whether some device has several stages."""
        return len(self.stages_on) < len(self.stages)

    def memory(self, device: int) -> float | None:
        """Bytes that a device has room for; ``None``: any number."""
        declared = (self.stages[stage].memory_bytes for stage in self.stages_on[device])
        return min((each for each in declared if each is not None), default=None)

    def bytes_held(self, device: int, held: Sequence[int]) -> float:
        """Bytes on a device with so many micro-batches of each stage in flight (``held[stage]``)."""
        return sum(self.stages[stage].bytes_held(held[stage]) for stage in self.stages_on[device])

    @cached_property
    def rooms(self) -> tuple[int, ...]:
        """Micro-batches that may be in flight at each stage, if no other stage of its device has any."""
        return tuple(self._room(stage) for stage in range(len(self.stages)))

    def _room(self, stage: int) -> int:
        own, most, device = self.stages[stage], self.num_microbatches(stage), self.device_of[stage]
        if own.in_flight is not None:
            most = min(most, own.in_flight // own.microbatch)
        memory = self.memory(device)
        if memory is None:
            return most
        others = sum(self.stages[other].weight_bytes for other in self.stages_on[device] if other != stage)
        low, high = 0, most + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if own.bytes_held(middle) + others <= memory else (low, middle)
        return low

    @cached_property
    def num_passes(self) -> int:
        """Passes of an iteration."""
        return sum(len(stage.seconds) * self.num_microbatches(number) for number, stage in enumerate(self.stages))

    @cached_property
    def longest_s(self) -> float:
        """Seconds of all passes and messages one after the other."""
        passes = (
            self.num_microbatches(number) * math.fsum(stage.seconds.values())
            for number, stage in enumerate(self.stages)
        )
        ends = ((edge, end) for edge in self.edges for end in (edge.source, edge.target))
        return math.fsum([*passes, *(self.num_microbatches(end) * self.delay(edge, end) for edge, end in ends)])

    def delay(self, edge: ScheduleEdge, sender: int) -> float:
        """Seconds of a message from ``sender``, either end of the edge; 0 on one device."""
        if self.device_of[edge.source] == self.device_of[edge.target]:
            return 0.0
        wire = 0.0
        if self.bandwidth_bytes_per_s is not None:
            wire = edge.bytes_per_sample * self.stages[sender].microbatch / self.bandwidth_bytes_per_s
        return edge.delay_s + self.latency_s + wire

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The stages in a topological order, the least number first; shorter than the stages if edges form a cycle."""
        return tuple(topological_order(len(self.stages), [(edge.source, edge.target) for edge in self.edges]))

    def successors(self, stage: int) -> list[int]:
        """The stages that this one feeds."""
        return [edge.target for edge in self.edges if edge.source == stage]


def check(instance: ScheduleInstance, where: str) -> None:
    """Rules between fields.

    Raises
    ------
    InstanceError
        Micro-batches that do not divide the mini-batch, devices without a stage, edges that do not join two stages once
        each, a cycle, too many passes, passes too unequal for floats.
    """
    stages, batch = len(instance.stages), instance.minibatch
    expect(stages > 0, where, "stages", [], "at least one stage")
    for number, stage in enumerate(instance.stages):
        if batch % stage.microbatch:
            field, rule = f"stages[{number}].microbatch", f"a divisor of the mini-batch, {batch}"
            raise InstanceError.at(where, field, stage.microbatch, rule)
    devices = list(instance.devices)
    expect(len(devices) in (0, stages), where, "devices", devices, f"one for each of {stages} stages")
    used = set(devices)
    expect(used == set(range(len(used))), where, "devices", devices, "every number from 0 on to the last device's")
    expect_simple(stages, [(edge.source, edge.target) for edge in instance.edges], where, "stage")
    expect(
        instance.num_passes <= MAX_PASSES, where, "passes of an iteration", instance.num_passes, f"at most {MAX_PASSES}"
    )
    least, longest = min(min(stage.seconds.values()) for stage in instance.stages), instance.longest_s
    expect(
        least >= SHORTEST * longest, where, "the shortest pass", least, f"at least {SHORTEST:g} of all, {longest:g} s"
    )


def with_in_flight(instance: ScheduleInstance, in_flight: int) -> ScheduleInstance:
    """The instance with at most so many samples in flight at every stage."""
    return replace(instance, stages=tuple(replace(stage, in_flight=in_flight) for stage in instance.stages))


def with_memory(instance: ScheduleInstance, memory_bytes: float) -> ScheduleInstance:
    """The instance with so much memory at every stage."""
    return replace(instance, stages=tuple(replace(stage, memory_bytes=memory_bytes) for stage in instance.stages))


#: Weights, and activations of a sample, of identical stages.
_BYTES = (4e9, 5e8)


def chain(
    stages: int = 4, minibatch: int = 8, forward_s: float = 1.0, backward_s: float = 2.0, in_flight: int | None = None
) -> ScheduleInstance:
    """A chain of identical stages with micro-batches of one sample; 1F1B keeps n, n - 1, ..., 1 in flight."""
    return ScheduleInstance(
        f"chain-{stages}x{minibatch}",
        minibatch,
        (ScheduleStage(forward_s, backward_s, 1, 1, in_flight, *_BYTES),) * stages,
        tuple(ScheduleEdge(stage, stage + 1) for stage in range(stages - 1)),
    )


def pipeline(
    devices: Sequence[int],
    minibatch: int,
    forward_s: float = 1.0,
    backward_s: float = 2.0,
    weight_s: float | None = None,
    room: float | None = None,
) -> ScheduleInstance:
    """A chain of equal stages, one on each of ``devices``, with micro-batches of one sample and of one byte.

    So ``room`` is how many micro-batches' activations a device can hold, those of each of its stages counted apart.
    """
    return ScheduleInstance(
        f"pipeline-{len(devices)}x{minibatch}",
        minibatch,
        (ScheduleStage(forward_s, backward_s, 1, 1, None, 0.0, 1.0, room, weight_s),) * len(devices),
        tuple(ScheduleEdge(stage, stage + 1) for stage in range(len(devices) - 1)),
        devices=tuple(devices),
    )


def figure_5(uniform: bool = False) -> ScheduleInstance:
    """A chain of three stages with micro-batches of 1, 2 and 4 samples, and as many in flight as the rule says.

    ``uniform``: 4 samples throughout. The first stage keeps 10 samples in flight, else 12.

    Source: GraphPipe, Fig. 5.
    """
    sizes, rooms = ((4, 4, 4), (12, 8, 4)) if uniform else ((1, 2, 4), (10, 8, 4))
    stages = tuple(ScheduleStage(1.0 * b, 2.0 * b, b, 1, room, *_BYTES) for b, room in zip(sizes, rooms, strict=True))
    return ScheduleInstance("figure-5", 32, stages, (ScheduleEdge(0, 1), ScheduleEdge(1, 2)))


def generate(
    stages: int = 6,
    minibatch: int = 16,
    *,
    tight: float = 1.0,
    mixed: bool = False,
    delays: bool = False,
    seed: int = 0,
) -> ScheduleInstance:
    """A random graph of unequal stages, each fed by one or two of the three before it.

    Parameters
    ----------
    tight
        Samples in flight at most, as part of what the depth below a stage would keep; at least what it cannot do
        without. 0: no limit.
    mixed, delays
        Micro-batches of 1, 2 or 4 samples (where they divide the mini-batch), and links that take time.
    """
    rng = random.Random(f"{stages} {minibatch} {mixed} {delays} {seed}")
    pairs = {
        (u, v) for v in range(1, stages) for u in rng.sample(range(max(0, v - 3), v), min(v, rng.choice([1, 1, 2])))
    }
    pairs |= {(u, stages - 1) for u in range(stages - 1) if not any(a == u for a, _ in pairs)}
    sizes = [rng.choice([b for b in (1, 2, 4) if minibatch % b == 0]) if mixed else 1 for _ in range(stages)]
    edges = tuple(ScheduleEdge(u, v, float(rng.randint(0, 4)) if delays else 0.0) for u, v in sorted(pairs))
    depth = [1] * stages
    for u, v in sorted(pairs, reverse=True):
        depth[u] = max(depth[u], depth[v] + 1)
    made, of_bytes = [], random.Random(f"bytes {seed}")
    for stage in range(stages):
        forward, b = rng.randint(3, 10), sizes[stage]
        backward = rng.randint(2 * forward - 3, 2 * forward + 3)
        largest = max(sizes[stage:])
        room = max(largest, round(min(minibatch, tight * depth[stage] * largest))) if tight else None
        held = of_bytes.randint(1, 8) * 1e9, of_bytes.randint(1, 10) * 1e8
        made.append(ScheduleStage(1.0 * b * forward, 1.0 * b * backward, b, 1, room, *held))
    return ScheduleInstance(f"schedule-{stages}x{minibatch}-{seed}", minibatch, tuple(made), edges)
