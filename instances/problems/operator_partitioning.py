"""Operator partitioning: an operator graph to be cut into pipeline stages of even load (nouns only).

Source: Parmesan, section 4; memory of a stage and the free choice of stages: Source: reconstructed (its appendices E
and F are not published).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

from instances.errors import InstanceError, expect, expect_unique
from instances.exchange import in_files
from instances.graph import expect_acyclic, topological_order
from instances.rules import Amount, Bandwidth, Count, Flag, Identifier, Index, NodeId, Recorded, Text, one_of

SCHEDULES = ("1f1b", "gpipe")

#: Stages where neither the file nor the caller says how many.
DEFAULT_STAGES = 4
#: Bytes per second where neither the file nor the caller says: PCIe 3.0 with 16 lanes, about.
DEFAULT_BANDWIDTH = 12e9


@in_files("id", "compute_s", "name?", "parameter_bytes?", "activation_bytes?", "memory_bytes?")
@dataclass(frozen=True)
class Operator:
    """One operator, for one micro-batch on one device.

    ``compute_s``: seconds forward and backward. ``activation_bytes``: its forward output. ``memory_bytes``: what a
    stage needs for it whatever the schedule, besides parameters and activations where `TrainingMemory` counts those.
    """

    id: NodeId
    compute_s: Amount
    parameter_bytes: Amount = 0.0
    activation_bytes: Amount = 0.0
    memory_bytes: Amount = 0.0
    name: Text = ""


@dataclass(frozen=True)
class Tensor:
    """What one operator hands to others: indices of operators, bytes per micro-batch (forward and backward).

    A stage that holds several of the targets gets it once.
    """

    source: Index
    targets: tuple[Index, ...]
    volume_bytes: Amount


@dataclass(frozen=True)
class NamedTensor:
    """A tensor as files have it: ids of operators."""

    source: NodeId
    targets: tuple[NodeId, ...]
    volume_bytes: Amount


@dataclass(frozen=True)
class TrainingMemory:
    """How a training schedule fills a stage's memory (Source: reconstructed).

    ``weight_copies``: bytes of parameters, gradients and optimiser state over bytes of parameters. ``microbatches`` of
    a step and the ``schedule`` say how many inputs of a stage are kept; with ``recompute`` the rest is computed again.
    """

    weight_copies: Amount = 4.0
    microbatches: Count = 4
    schedule: Annotated[str, one_of(*SCHEDULES)] = "1f1b"
    recompute: Flag = True


def _write_keys(instance: "OperatorInstance") -> dict[str, Any]:
    """Tensors between ids, and that nothing is held beside the operators' memory, where memory is limited."""
    ids = [operator.id for operator in instance.operators]
    tensors = tuple(
        NamedTensor(ids[each.source], tuple(ids[target] for target in each.targets), each.volume_bytes)
        for each in instance.tensors
    )
    unsaid = instance.training is None and instance.memory_bytes is not None
    return {"tensors": tensors, **({"training": None} if unsaid else {})}


@in_files(
    *("name", "num_stages", "replicas", "bandwidth_bytes_per_s", "operators", "tensors", "num_devices?"),
    *("memory_bytes?", "step_microbatches?", "pooled_memory?", "at_most?", "training?", "flushed?"),
    problem="operator_partitioning",
    absent={"name": "operators", "tensors": ()},
    types={"tensors": tuple[NamedTensor, ...]},
    reader="instances.readers.operator_json:read",
    written=_write_keys,
)
@dataclass(frozen=True)
class OperatorInstance(Recorded):
    """An operator graph and the pipeline it is to become.

    Parameters
    ----------
    operators
        In a topological order; see `in_topological_order`.
    tensors
        Their sources come before their targets.
    num_stages
        S; ``None``: free, for ``num_devices`` = S R (see ``step_microbatches``).
    replicas
        R of every stage; not used where replicas or stages are free.
    bandwidth_bytes_per_s
        Of every link: the flat network of the first phase.
    num_devices
        Where it is not ``None`` and S is given: replicas are free, these are the devices for all of them.
    memory_bytes, pooled_memory
        Of a device (``None``: unlimited); pooled: replicas of a stage share theirs, as Equation 2 says.
    training
        How memory is counted; ``None``: only the operators' ``memory_bytes``.
    at_most
        Fewer stages than S are as good.
    step_microbatches
        Global batch over micro-batch: those of a step for all replicas together; only where a step is minimised.
    flushed
        With a given S: the pipeline runs empty after each step, and a step is minimised.
    """

    name: Identifier
    operators: tuple[Operator, ...]
    tensors: tuple[Tensor, ...]
    num_stages: Count | None = DEFAULT_STAGES
    replicas: Count = 1
    bandwidth_bytes_per_s: Bandwidth = DEFAULT_BANDWIDTH
    num_devices: Count | None = None
    memory_bytes: Amount | None = None
    pooled_memory: Flag = False
    training: TrainingMemory | None = None
    at_most: Flag = False
    step_microbatches: Count | None = None
    flushed: Flag = False

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs of adjacent operators, each once, in ascending order."""
        return tuple(sorted({(tensor.source, target) for tensor in self.tensors for target in tensor.targets}))

    @property
    def objective(self) -> str:
        """``step`` where the number of stages is free or the pipeline is flushed, else ``stage``."""
        return "step" if self.num_stages is None or self.flushed else "stage"

    @property
    def weight_copies(self) -> float | None:
        """How often memory holds the parameters; ``None``: only what operators hold themselves counts."""
        return None if self.training is None else self.training.weight_copies

    @cached_property
    def total_compute_s(self) -> float:
        """Seconds of all operators."""
        return sum(operator.compute_s for operator in self.operators)


def check(instance: OperatorInstance, where: str) -> None:
    """Rules between fields.

    Raises
    ------
    InstanceError
        No operator, ids that occur twice, operators that are not in a topological order, a tensor without targets or
        with one twice, stages that are free without a number of devices and of micro-batches of a step, a flush without
        the latter or with free stages.
    """
    expect(bool(instance.operators), where, "operators", [], "at least one operator")
    expect_unique([operator.id for operator in instance.operators], where, "operators")
    last = len(instance.operators) - 1
    for number, tensor in enumerate(instance.tensors):
        field, source = f"tensors[{number}].targets", tensor.source
        expect(source <= last, where, f"tensors[{number}].source", source, f"an operator from 0 to {last}")
        distinct = len(set(tensor.targets)) == len(tensor.targets) > 0
        expect(distinct, where, field, tensor.targets, "at least one operator, each once")
        inside = source < min(tensor.targets) and max(tensor.targets) <= last
        rule = f"operators after the source, {source}, up to {last}: they are in a topological order"
        expect(inside, where, field, tensor.targets, rule)
    if instance.num_stages is None:
        for name in ("num_devices", "step_microbatches"):
            if getattr(instance, name) is None:
                raise InstanceError.missing(where, name, "a number where num_stages is null")
    if instance.flushed:
        expect(instance.num_stages is not None, where, "flushed", True, "false where num_stages is null")
        if instance.step_microbatches is None:
            raise InstanceError.missing(where, "step_microbatches", "a number where flushed is true")


def expect_held(instance: OperatorInstance, declared: Mapping[str, Any], where: str) -> None:
    """The JSON of an instance with limited memory says what is held of the parameters; `InstanceError` if it does not.

    ``"training": null`` says so, too: nothing beside the operators' own ``memory_bytes``.
    """
    if instance.memory_bytes is None or instance.training is not None or "training" in declared:
        return
    for number, operator in enumerate(instance.operators):
        if operator.parameter_bytes and not operator.memory_bytes:
            rule = (
                f"--weight-copies N or a value, which say how much memory operators[{number}].parameter_bytes "
                f"{operator.parameter_bytes:g} needs (4: weights, gradients and Adam's moments; null: nothing)"
            )
            raise InstanceError.missing(where, "training", rule)


def in_topological_order(
    operators: Iterable[Operator], tensors: Iterable[Tensor], where: str = "instance", field: str = "tensors"
) -> tuple[tuple[Operator, ...], tuple[Tensor, ...]]:
    """The graph with its operators in a topological order (of ready ones the first given comes first), tensors sorted.

    Raises
    ------
    InstanceError
        If the graph has a cycle; ``where`` and ``field`` name it in the message.
    """
    operators, tensors = tuple(operators), tuple(tensors)
    edges = sorted({(tensor.source, target) for tensor in tensors for target in tensor.targets})
    expect_acyclic(len(operators), edges, where, [str(operator.id) for operator in operators], field)
    order = topological_order(len(operators), edges)
    place = {operator: position for position, operator in enumerate(order)}
    moved = (
        Tensor(place[tensor.source], tuple(sorted({place[target] for target in tensor.targets})), tensor.volume_bytes)
        for tensor in tensors
    )
    kept = (tensor for tensor in moved if tensor.targets)
    return (
        tuple(operators[index] for index in order),
        tuple(sorted(kept, key=lambda tensor: (tensor.source, tensor.targets, tensor.volume_bytes))),
    )


def merge_edges(edges: Iterable[tuple[int, int, float]]) -> tuple[Tensor, ...]:
    """Tensors of ``(source, target, bytes)``: edges of one source with equal bytes carry the same tensor."""
    targets: dict[tuple[int, float], list[int]] = {}
    for source, target, volume in edges:
        targets.setdefault((source, volume), []).append(target)
    return tuple(Tensor(source, tuple(found), volume) for (source, volume), found in targets.items())


def per_pair(instance: OperatorInstance) -> OperatorInstance:
    """The instance in which every pair of adjacent operators has a tensor of its own: Equation 3 to the letter."""
    split = [Tensor(t.source, (target,), t.volume_bytes) for t in instance.tensors for target in t.targets]
    operators, tensors = in_topological_order(instance.operators, split)
    return replace(instance, operators=operators, tensors=tensors)
