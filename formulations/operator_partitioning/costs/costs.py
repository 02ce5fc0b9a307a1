"""Arrays of an instance that the methods share, families of downsets, and bounds that need no search."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from formulations.compiled.array_types import Ints, Words
from formulations.operator_partitioning.costs.arrays import Counts, Graph, MemoryRules, Rows
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import MEMORY_SLACK
from formulations.operator_partitioning.kernels import loads
from instances.graph import adjacency
from instances.problems.operator_partitioning import OperatorInstance, Tensor, TrainingMemory

#: Sums of floats in another order differ by this much, relatively: a bound gives it up.
ROUNDING = 1e-10


def graph(instance: OperatorInstance, tensors: Sequence[Tensor] | None = None) -> Graph:
    """The arrays; with other ``tensors`` in place of the instance's for what a stage sends and receives."""
    tensors = instance.tensors if tensors is None else tensors
    copies = instance.training.weight_copies if instance.training else 0.0
    operators = instance.operators
    after, _ = adjacency(len(operators), instance.edges)
    return Graph(
        compute=np.array([operator.compute_s for operator in operators]),
        source=np.array([tensor.source for tensor in tensors], np.int64),
        start=_starts(len(tensor.targets) for tensor in tensors),
        target=np.array([target for tensor in tensors for target in tensor.targets], np.int64),
        seconds=np.array([tensor.volume_bytes / instance.bandwidth_bytes_per_s for tensor in tensors], np.float64),
        fixed=np.array([operator.memory_bytes + copies * operator.parameter_bytes for operator in operators]),
        activation=np.array([operator.activation_bytes for operator in operators]),
        parameters=np.array([operator.parameter_bytes for operator in operators]),
        after_start=_starts(len(nodes) for nodes in after),
        after=np.array([node for nodes in after for node in nodes], np.int64),
    )


def _starts(lengths: Iterable[int]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(list(lengths), np.int64))]).astype(np.int64)


def rows(instance: OperatorInstance, table: Graph, bits: Words) -> Rows:
    """The family ``bits``, sorted, with its sums and borders."""
    sums = [loads.sums(bits, each) for each in (table.compute, table.fixed, table.activation, table.parameters)]
    sizes = loads.sums(bits, np.ones(len(instance.operators)))
    order = np.lexsort((sizes, sums[0]))
    bits = np.ascontiguousarray(bits[order])
    edge_start, edge = loads.borders(bits, table.source, table.start, table.target)
    if instance.memory_bytes is None or instance.training is None:
        feed_start, feed = np.zeros(len(bits) + 1, np.int64), np.zeros(0, np.int64)
    else:
        every = np.arange(len(instance.operators), dtype=np.int64)
        feed_start, feed = loads.borders(bits, every, table.after_start, table.after)
    compute, fixed, activation, parameters = (each[order] for each in sums)
    owner = np.repeat(np.arange(len(bits)), np.diff(edge_start))
    border = np.bincount(owner, table.seconds[edge], len(bits)).astype(np.float64)  # integers where there is no edge
    return Rows(bits, compute, fixed, activation, parameters, border, edge_start, edge, feed_start, feed)


def narrow(instance: OperatorInstance, family: Rows, ceiling: float) -> tuple[Rows, NDArray[np.float64]]:
    """The rows that a plan within ``ceiling`` may have, with the empty and the full one, and their `least_through`."""
    least = least_through(instance, family, ceiling)
    keep = np.any(least <= ceiling, axis=1)
    keep[[0, -1]] = True

    def lists(start: Ints, values: Ints) -> tuple[Ints, Ints]:
        lengths = np.diff(start)
        return _starts(lengths[keep].tolist()), values[np.repeat(keep, lengths)]

    held = family.fixed[keep], family.activation[keep], family.parameters[keep]
    borders, feeding = lists(family.edge_start, family.edge), lists(family.feed_start, family.feed)
    return Rows(family.bits[keep], family.compute[keep], *held, family.border[keep], *borders, *feeding), least[keep]


def least_through(instance: OperatorInstance, family: Rows, ceiling: float) -> NDArray[np.float64]:
    """What a plan's slowest stage takes at least with row F behind s stages, shape (D, S + 1), if at most ``ceiling``.

    The first s stages compute all of F, and have one end of each tensor across its border. They have both ends of a
    tensor across an earlier border unless it crosses this one, too. The other stages likewise, all shared evenly.
    """
    stages = instance.num_stages or 1
    within = np.arange(stages + 1) * instance.replicas
    if instance.num_devices is not None:  # each other stage has one, unless it may be empty
        within[1:] = instance.num_devices - (0 if instance.at_most else np.arange(stages)[::-1])
    compute, border = family.compute, family.border
    least = np.zeros((len(compute), stages + 1))
    widest = np.zeros(stages + 1)  # seconds across the border behind s stages, at least
    while True:
        for s in range(stages + 1):
            with np.errstate(divide="ignore", invalid="ignore"):
                front, back = max(widest[:s], default=0.0), max(widest[s + 1 :], default=0.0)
                first = (compute + np.maximum(border, 2 * front - border)) / within[s]
                second = (compute[-1] - compute + np.maximum(border, 2 * back - border)) / within[stages - s]
            least[:, s] = np.fmax(first, second) * (1 - ROUNDING)
        if not instance.at_most:  # no stage is empty
            least[0, 1:] = least[-1, :-1] = np.inf
        before, widest = widest, np.min(np.where(least <= ceiling, border[:, None], np.inf), axis=0)
        if (widest <= before).all():
            return least


def counts(instance: OperatorInstance) -> Counts:
    """The numbers of stages, replicas and devices of an instance with a given S."""
    assert instance.num_stages is not None
    replicas = instance.replicas if instance.num_devices is None else 0
    return Counts(instance.num_stages, instance.at_most, replicas, instance.num_devices or 0)


def memory_rules(instance: OperatorInstance) -> MemoryRules:
    """The rules of memory; without `training` a stage keeps no inputs."""
    training = instance.training or TrainingMemory()
    return MemoryRules(
        limit=math.inf if instance.memory_bytes is None else float(instance.memory_bytes * MEMORY_SLACK),
        pooled=bool(instance.pooled_memory),
        trains=instance.training is not None,
        microbatches=float(training.microbatches),
        gpipe=training.schedule == "gpipe",
        recompute=bool(training.recompute),
    )


def plan_of(bits: Words, chain: Sequence[int], replicas: Sequence[int], num_operators: int) -> OperatorPlan:
    """The plan between the downsets of a chain of rows, the empty set first."""
    stages: list[list[int]] = [[] for _ in chain[1:]]
    for operator in range(num_operators):
        word, bit = operator >> 6, np.uint64(operator & 63)
        inside = [bool((bits[row, word] >> bit) & np.uint64(1)) for row in chain]
        stages[inside.index(True) - 1].append(operator)
    return OperatorPlan(tuple(map(tuple, stages)), tuple(int(count) for count in replicas))


def load_bound(instance: OperatorInstance) -> float:
    """A lower bound on Equation 1 for a given S: seconds shared evenly, and the largest operator.

    In a connected graph with S > 1 stages, each of them has at least the smallest tensor to send or to receive; the two
    ends of every cut pay it, so the sum is at least 2 (S - 1) of it.
    """
    assert instance.num_stages is not None
    stages = instance.num_stages
    largest = max(operator.compute_s for operator in instance.operators)
    compute = math.fsum(operator.compute_s for operator in instance.operators)
    smallest = 0.0
    if stages > 1 and not instance.at_most and is_connected(instance):
        sent = (tensor.volume_bytes for tensor in instance.tensors)  # of one operator there are none
        smallest = min(sent, default=0.0) / instance.bandwidth_bytes_per_s
    most = most_replicas(instance)
    if most < 1:
        return 0.0
    devices = stages * instance.replicas if instance.num_devices is None else instance.num_devices
    shared = (compute + 2 * (stages - 1) * smallest) / devices
    return max(shared, (largest + smallest) / most) * (1 - ROUNDING)


def most_replicas(instance: OperatorInstance) -> int:
    """No stage of a given S has more replicas: free ones leave one to each other stage, unless that may be empty."""
    if instance.num_devices is None:
        return instance.replicas
    return instance.num_devices - (0 if instance.at_most else (instance.num_stages or 1) - 1)


def is_connected(instance: OperatorInstance) -> bool:
    """Whether the graph is connected, directions aside."""
    both = [*instance.edges, *((b, a) for a, b in instance.edges)]
    after, _ = adjacency(len(instance.operators), both)
    seen, waiting = {0}, [0]
    while waiting:
        for each in after[waiting.pop()]:
            if each not in seen:
                seen.add(each)
                waiting.append(each)
    return len(seen) == len(instance.operators)
