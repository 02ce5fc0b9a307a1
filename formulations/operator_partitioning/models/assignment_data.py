"""The numbers that both solvers' models of operator partitioning are made of, as the instance declares them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from formulations.operator_partitioning.costs.shapes import shortage
from formulations.operator_partitioning.definition.problem import all_reduce_seconds, microbatches_each
from instances.errors import InstanceError
from instances.graph import adjacency
from instances.problems.operator_partitioning import OperatorInstance


class Needs(NamedTuple):
    """Bytes of a stage while an operator runs, and the room for them.

    ``own[v]``: of operator v, if the stage holds it; ``kept[v]``: of its output, if that is kept as an input;
    ``live[v, k]``: of its output, if its k-th successor or a later one awaits it. ``room_each``: each replica's room.
    """

    own: list[float]
    kept: Mapping[int, float]
    live: Mapping[tuple[int, int], float]
    room: float
    room_each: float


@dataclass(frozen=True)
class Data:
    """An instance with a given S: operators v, stages s = 0 to S - 1 from the input side, tensors t.

    ``after[v]``: the operators that v feeds.
    ``compute_s``, ``send_s``: what takes time: of operators, and of tensors for one receiver.
    ``single``, ``several``: the tensors of ``send_s`` with one target, and with several.
    ``numbers``: how many replicas a stage may have where their number is free, else empty: one is left to each other
    stage; 0 and all where stages may be empty. Then the first are: positions from the end stay true.
    ``feeding``: operators whose outputs may be kept as inputs: those that feed one, in training with limited memory.
    ``awaiting``: by v and k the k-th operator that v feeds, where stages compute again.
    """

    instance: OperatorInstance
    after: list[list[int]]
    compute_s: Mapping[int, float]
    send_s: Mapping[int, float]
    single: list[int]
    several: list[int]
    numbers: range
    feeding: list[int]
    awaiting: Mapping[tuple[int, int], int]

    @property
    def operators(self) -> range:
        """All v."""
        return range(len(self.instance.operators))

    @property
    def stages(self) -> range:
        """All s."""
        return range(self.instance.num_stages or 0)

    @property
    def is_free(self) -> bool:
        """Whether the number of replicas is."""
        return self.instance.num_devices is not None

    @property
    def largest_load_s(self) -> float:
        """No stage takes longer than this."""
        sent = [len(tensor.targets) * tensor.volume_bytes for tensor in self.instance.tensors]
        return self.instance.total_compute_s + 2 * math.fsum(sent) / self.instance.bandwidth_bytes_per_s

    @property
    def common_replicas(self) -> int:
        """Replicas by which the objective divides loads: the models leave them out where all stages have R."""
        return 1 if self.is_free or self.instance.flushed else self.instance.replicas

    @property
    def replicas(self) -> list[int]:
        """The numbers of replicas that a stage with operators may have."""
        return [r for r in self.numbers if r] if self.is_free else [self.instance.replicas]

    def after_first(self, replicas: int | None = None) -> int:
        """Micro-batches of a step but the first, on the busiest of so many replicas, or of any number of them."""
        return microbatches_each(self.instance, min(self.replicas, default=1) if replicas is None else replicas) - 1

    def all_reduce_s(self, replicas: int) -> dict[int, float]:
        """What an operator adds to the all-reduce of its stage of so many replicas."""
        each = {v: all_reduce_seconds(self.instance, (v,), replicas) for v in self.operators}
        return {v: seconds for v, seconds in each.items() if seconds}

    @property
    def running(self) -> range:
        """The operators that a stage's memory has a row for: each where it computes again, else one for all."""
        if self.instance.memory_bytes is None:
            return range(0)
        return self.operators if _recomputes(self.instance) else range(1)

    def needs(self, s: int, now: int) -> Needs:
        """What must fit stage s while operator ``now`` runs."""
        instance, operators, training = self.instance, self.instance.operators, self.instance.training
        room, room_each = instance.memory_bytes or 0.0, 0.0
        if instance.pooled_memory and self.is_free:
            room, room_each = 0.0, room
        elif instance.pooled_memory:
            room *= instance.replicas
        copies = training.weight_copies if training else 0.0
        own = [each.memory_bytes + copies * each.parameter_bytes for each in operators]
        if training is None:
            return Needs(own, {}, {}, room, room_each)
        # An input is kept for each micro-batch in flight.
        in_flight = training.microbatches
        if training.schedule != "gpipe":
            in_flight = min(in_flight, len(self.stages) - s)
        kept = {v: in_flight * operators[v].activation_bytes for v in self.feeding}
        if not training.recompute:
            own = [each + training.microbatches * of.activation_bytes for each, of in zip(own, operators, strict=True)]
            return Needs(own, kept, {}, room, room_each)
        # While it runs there are its own output, and those of earlier operators that it or a later one awaits.
        own[now] += operators[now].activation_bytes
        live = {}
        for v in range(now):
            k = sum(successor < now for successor in self.after[v])
            if k < len(self.after[v]):
                live[v, k] = operators[v].activation_bytes
        return Needs(own, kept, live, room, room_each)


def data_of(instance: OperatorInstance) -> Data:
    """The numbers of an instance with a given S; `InstanceError` where stages have no number of replicas to choose."""
    assert instance.num_stages is not None
    count, after = len(instance.operators), adjacency(len(instance.operators), instance.edges)[0]
    seconds = {t: tensor.volume_bytes / instance.bandwidth_bytes_per_s for t, tensor in enumerate(instance.tensors)}
    send_s = {t: each for t, each in seconds.items() if each}
    devices, least = instance.num_devices, 0 if instance.at_most else 1
    trains = instance.training is not None and instance.memory_bytes is not None
    feeding = [v for v in range(count) if after[v] and trains]
    numbers = range(0) if devices is None else range(least, devices + 1 - least * (instance.num_stages - 1))
    if devices is not None and not any(numbers):
        raise InstanceError(shortage(instance))
    return Data(
        instance,
        after,
        compute_s={v: each.compute_s for v, each in enumerate(instance.operators) if each.compute_s},
        send_s=send_s,
        single=[t for t in send_s if len(instance.tensors[t].targets) == 1],
        several=[t for t in send_s if len(instance.tensors[t].targets) > 1],
        numbers=numbers,
        feeding=feeding,
        awaiting={(v, k): w for v in feeding if _recomputes(instance) for k, w in enumerate(after[v])},
    )


def _recomputes(instance: OperatorInstance) -> bool:
    return instance.training is not None and instance.training.recompute
