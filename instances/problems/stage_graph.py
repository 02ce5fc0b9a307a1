"""Stage graphs: operators of a branching model, the devices they run on, and what a mini-batch is (nouns only).

Source: GraphPipe, section 3; the form of the times and the constants are choices of this project (its README).
"""

import bisect
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from instances.errors import InstanceError, expect, expect_unique
from instances.exchange import in_files, to_json
from instances.graph import expect_simple
from instances.parameters import parse_count
from instances.rules import Amount, Bandwidth, Count, Identifier, Index, NodeId, Recorded, Text, instance_of, one_of

#: What a plan may choose: one micro-batch size for all stages and 1F1B; one for each stage; kFkB as well.
Schedule = Literal["uniform", "per-stage", "kfkb"]
SCHEDULES: tuple[Schedule, ...] = ("uniform", "per-stage", "kfkb")
#: Seconds per sample of the slowest stage (TPS), or seconds of a simulated iteration.
Objective = Literal["tps", "iteration"]
OBJECTIVES: tuple[Objective, ...] = ("tps", "iteration")


@dataclass(frozen=True)
class AffineTime:
    """``fixed_s + per_sample_s * n`` seconds for n samples on one device."""

    fixed_s: Amount
    per_sample_s: Amount

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

    samples: tuple[Count, ...]
    seconds: tuple[Amount, ...]

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


Time = Annotated[AffineTime | TableTime, instance_of(AffineTime, TableTime)]


@dataclass(frozen=True)
class Shard:
    """What an operator takes on each of ``degree`` devices that share it: a TMPC (Piper, section 3.6).

    Every device begins with all of the operator's inputs and ends with all of its outputs.

    Parameters
    ----------
    degree
        t, the tensor-parallel degree.
    forward, backward
        Seconds of each pass as a function of the samples of the replica, without what ``reduced_bytes`` takes.
    weight_bytes, activation_bytes
        Of the operator, on each device.
    reduced_bytes
        Bytes for each sample that the devices all-reduce in either pass; 0 also where the times contain that.
    spread_inputs, spread_outputs
        Bytes that a device takes besides for each byte of a tensor from or to another stage, so that all have the whole
        (c^fw and c^bw over c).
    """

    degree: Count
    forward: Time
    backward: Time
    weight_bytes: Amount
    activation_bytes: Amount
    reduced_bytes: Amount = 0.0
    spread_inputs: Amount = 1.0
    spread_outputs: Amount = 1.0


@in_files("name", "forward", "backward", "weight_bytes", "activation_bytes", "tensor_parallel?")
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
    tensor_parallel
        What it takes at degrees above 1.
    """

    name: Text
    forward: Time
    backward: Time
    weight_bytes: Amount
    activation_bytes: Amount
    tensor_parallel: tuple[Shard, ...] = ()

    @cached_property
    def shards(self) -> Mapping[int, Shard]:
        """What each device takes, by tensor-parallel degree; at degree 1 the whole, with nothing to spread."""
        whole = Shard(1, self.forward, self.backward, self.weight_bytes, self.activation_bytes, 0.0, 0.0, 0.0)
        return {shard.degree: shard for shard in (whole, *self.tensor_parallel)}


@dataclass(frozen=True, kw_only=True)
class DeclaredTime:
    """An `AffineTime` as files have it."""

    fixed_s: Amount = 0.0
    per_sample_s: Amount


_FileTime = Annotated[DeclaredTime | TableTime, instance_of(DeclaredTime, TableTime)]


@dataclass(frozen=True, kw_only=True)
class NamedShard:
    """A `Shard` as files have it: of times and weights that are left out the operator's over the degree.

    Activations that are left out are all of the operator's.
    """

    degree: Count
    forward: _FileTime | None = None
    backward: _FileTime | None = None
    weight_bytes: Amount | None = None
    activation_bytes: Amount | None = None
    reduced_bytes: Amount = 0.0
    spread_inputs: Amount = 1.0
    spread_outputs: Amount = 1.0


@dataclass(frozen=True)
class NamedOperator:
    """An operator as files have it."""

    id: NodeId
    forward: _FileTime
    backward: _FileTime
    name: Text = ""
    weight_bytes: Amount = 0.0
    activation_bytes: Amount = 0.0
    tensor_parallel: tuple[NamedShard, ...] = ()


@dataclass(frozen=True)
class NamedEdge:
    """An edge as files have it, between ids of operators."""

    source: NodeId
    target: NodeId
    bytes_per_sample: Amount = 0.0


@dataclass(frozen=True)
class OperatorEdge:
    """A tensor from operator ``source`` to ``target`` (indices); its gradient goes back with as many bytes."""

    source: Index
    target: Index
    bytes_per_sample: Amount


@dataclass(frozen=True)
class DeviceGraph:
    """Heterogeneous devices: memory of each, and bytes per second from each to each, shape (D, D); 0 means no link."""

    memory_bytes: tuple[Amount, ...]
    bandwidth_bytes_per_s: tuple[tuple[Amount, ...], ...]


def _write_keys(instance: "StageGraph") -> dict[str, Any]:
    """Operators with their ids, and edges between these."""
    name = instance.id_of
    edges = [NamedEdge(name(each.source), name(each.target), each.bytes_per_sample) for each in instance.edges]
    operators = [{"id": name(node), **to_json(each)} for node, each in enumerate(instance.operators)]
    return {"operators": operators, "edges": edges}


@in_files(
    *("name", "num_devices", "memory_bytes", "bandwidth_bytes_per_s", "latency_s", "minibatch", "schedule"),
    *("pass_ratio", "weight_copies", "objective", "microbatches?", "inner_bandwidth_bytes_per_s?"),
    *("devices_per_node?", "device_graph?", "operators", "edges"),
    problem="stage_graph",
    absent={"name": "stage graph", "memory_bytes": None, "bandwidth_bytes_per_s": 1e30, "latency_s": 0.0, "edges": ()},
    types={"memory_bytes": Amount | None, "operators": tuple[NamedOperator, ...], "edges": tuple[NamedEdge, ...]},
    reader="instances.readers.stage_graph_json:read",
    written=_write_keys,
)
@dataclass(frozen=True)
class StageGraph(Recorded):
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
    objective
        What is minimised (`Objective`).
    ids
        What files call the operators; empty: their indices.
    """

    name: Identifier
    operators: tuple[Operator, ...]
    edges: tuple[OperatorEdge, ...]
    num_devices: Count
    memory_bytes: Amount
    bandwidth_bytes_per_s: Bandwidth
    latency_s: Amount
    minibatch: Count
    inner_bandwidth_bytes_per_s: Bandwidth | None = None
    devices_per_node: Count | None = None
    device_graph: DeviceGraph | None = None
    schedule: Annotated[Schedule, one_of(*SCHEDULES)] = "uniform"
    microbatches: tuple[Count, ...] = ()
    pass_ratio: tuple[Count, Count] = (1, 2)
    weight_copies: Amount = 4.0
    objective: Annotated[Objective, one_of(*OBJECTIVES)] = "tps"
    ids: tuple[NodeId, ...] = ()

    @property
    def num_operators(self) -> int:
        """Operators of the model."""
        return len(self.operators)

    @cached_property
    def index(self) -> Mapping[int | str, int]:
        """Index of the operator that files call so."""
        return {name: node for node, name in enumerate(self.ids or range(self.num_operators))}

    @cached_property
    def tp_degrees(self) -> tuple[int, ...]:
        """Tensor-parallel degrees that some operator declares and there are devices for, ascending; 1 is one."""
        declared = {degree for operator in self.operators for degree in operator.shards}
        return tuple(sorted(degree for degree in declared if degree <= self.num_devices))

    def id_of(self, node: int) -> int | str:
        """What files call an operator."""
        return self.ids[node] if self.ids else node

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
        """Bytes per second of an all-reduce of so many identical devices."""
        inner = self.inner_bandwidth_bytes_per_s
        if inner is not None and self.devices_per_node is not None and devices <= self.devices_per_node:
            return inner
        return self.bandwidth_bytes_per_s


def check(instance: StageGraph, where: str) -> None:
    """Rules between fields, which overrides may break too.

    Raises
    ------
    InstanceError
        No operator, operators that are not in a topological order, duplicate edges or ids, times that fall, micro-batch
        sizes that do not divide the mini-batch, half a second tier, a device graph of the wrong shape, or with
        tensor-parallel degrees, of which one is 1 or declared twice.
    """
    count = instance.num_operators
    expect(count > 0, where, "operators", [], "at least one operator")
    ids = len(instance.ids)
    expect(ids in (0, count), where, "len(ids)", ids, f"0 or {count}, one for each operator")
    expect_unique(instance.ids, where, "operators")
    for number, edge in enumerate(instance.edges):
        if edge.source > edge.target:
            text, rule = f"{edge.source} -> {edge.target}", "source < target: operators are in a topological order"
            raise InstanceError.at(where, f"edges[{number}]", text, rule)
    expect_simple(count, [(edge.source, edge.target) for edge in instance.edges], where, "operator")
    for number, operator in enumerate(instance.operators):
        check_time(operator.forward, where, f"operators[{number}].forward")
        check_time(operator.backward, where, f"operators[{number}].backward")
        _check_shards(operator.tensor_parallel, where, f"operators[{number}].tensor_parallel")
    for size in instance.microbatches:
        if instance.minibatch % size:
            rule = f"a divisor of the mini-batch, {instance.minibatch}"
            raise InstanceError.at(where, "microbatches", size, rule)
    if (instance.inner_bandwidth_bytes_per_s is None) != (instance.devices_per_node is None):
        missing = "devices_per_node" if instance.devices_per_node is None else "inner_bandwidth_bytes_per_s"
        raise InstanceError.missing(where, missing, "both of inner_bandwidth_bytes_per_s and devices_per_node")
    if instance.device_graph is not None:
        declared, rows = len(instance.device_graph.memory_bytes), instance.device_graph.bandwidth_bytes_per_s
        square = len(rows) == declared and all(len(row) == declared for row in rows)
        expect(square, where, "device_graph.bandwidth_bytes_per_s", rows, f"{declared} rows of {declared} numbers")
        devices = instance.num_devices
        expect(devices == declared, where, "num_devices", devices, f"{declared}, as the device graph has")
        for number, operator in enumerate(instance.operators):
            rule = "nothing: devices that share an operator are identical (no device_graph)"
            degrees = [shard.degree for shard in operator.tensor_parallel]
            expect(not degrees, where, f"operators[{number}].tensor_parallel", degrees, rule)


def _check_shards(shards: tuple[Shard, ...], where: str, field: str) -> None:
    degrees = [shard.degree for shard in shards]
    for place, shard in enumerate(shards):
        is_new = shard.degree > 1 and shard.degree not in degrees[:place]
        expect(is_new, where, f"{field}[{place}].degree", shard.degree, "a degree from 2 on, each of them once")
        check_time(shard.forward, where, f"{field}[{place}].forward")
        check_time(shard.backward, where, f"{field}[{place}].backward")


def check_time(time: Time, where: str, field: str) -> None:
    """A table has as many samples as seconds, and is as `TableTime` says; `InstanceError` if it is not."""
    if isinstance(time, AffineTime):
        return
    as_many = 0 < len(time.samples) == len(time.seconds)
    expect(as_many, where, f"{field}.samples", time.samples, "as many entries as seconds, at least one")
    for (n, early), (m, late) in itertools.pairwise(zip(time.samples, time.seconds, strict=True)):
        if not (n < m and early <= late and late * n <= early * m * (1 + 1e-12)):
            rule = "ascending samples, seconds that do not fall, seconds per sample that do not rise"
            raise InstanceError.at(where, field, f"({n}, {early:g}) before ({m}, {late:g})", rule)


def parse_ratio(value: Any) -> tuple[int, int]:
    """Two positive integers, from "1:2" or a sequence.

    >>> parse_ratio("1:2")
    (1, 2)
    """
    parts = value.split(":") if isinstance(value, str) else value
    try:
        forward, backward = (parse_count(part) for part in parts)
    except (TypeError, ValueError):
        raise ValueError("two positive integers such as 1:2") from None
    return forward, backward
