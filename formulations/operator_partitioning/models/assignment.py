"""The assignment model as rows of numbers, which cpsat.py and milp.py hand to their solvers.

Binary columns: ``x[v, s]`` operator v is in stage s; ``y[v, s]`` it is in stage s or an earlier one; ``take[t, s]``
stage s receives tensor t; ``send[t, s]`` stage s sends it (or ``send[t, s, q]``: to stage q, where t has several
targets); ``enter[v, s]`` stage s keeps the output of v as an input; ``live[v, k, s]`` the output of v, in stage s, is
still awaited by its k-th successor or a later one; ``many[s, r]`` stage s has r replicas. Stages may be empty only with
``at_most``, and then the first are: positions from the end stay true.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from formulations.operator_partitioning.problem import OperatorPlan
from instances.graph import adjacency
from instances.operator_partitioning import OperatorInstance

Column = tuple[Any, ...]


@dataclass(frozen=True)
class Row:
    """``sum of terms <= limit``; counted terms are small integers, others bytes or seconds."""

    terms: Mapping[Column, float]
    limit: float


@dataclass
class Model:
    """Columns, rows of counts, rows of bytes, and for each stage its seconds: ``loads[s] <= replicas of s times T``."""

    columns: dict[Column, None] = field(default_factory=dict)
    counts: list[Row] = field(default_factory=list)
    sizes: list[Row] = field(default_factory=list)
    loads: list[dict[Column, float]] = field(default_factory=list)
    choices: list[tuple[Column, ...]] = field(default_factory=list)

    def column(self, *name: Any) -> Column:
        """A binary column of that name."""
        self.columns.setdefault(name)
        return name


def build(instance: OperatorInstance) -> Model:
    """The model of an instance with a given S."""
    assert instance.num_stages is not None
    model = Model()
    stages, n = instance.num_stages, len(instance.operators)
    model.loads = [
        {("x", v, s): instance.operators[v].compute_s for v in range(n) if instance.operators[v].compute_s}
        for s in range(stages)
    ]
    _assign(model, instance, stages, n)
    _communicate(model, instance, stages)
    if instance.num_devices is not None:
        _replicate(model, instance, stages)
    if instance.memory_bytes is not None:
        _fit(model, instance, stages, n)
    return model


def _assign(model: Model, instance: OperatorInstance, stages: int, n: int) -> None:
    """Every operator is in one stage, and not before those that feed it."""
    for v in range(n):
        model.choices.append(tuple(model.column("x", v, s) for s in range(stages)))
        for s in range(stages - 1):
            # y counts x up from the first stage.
            before: dict[Column, float] = {("y", v, s - 1): -1.0} if s else {}
            _equal(model, {model.column("y", v, s): 1.0, ("x", v, s): -1.0, **before}, 0.0)
        if stages > 1:
            _equal(model, {("x", v, stages - 1): 1.0, ("y", v, stages - 2): 1.0}, 1.0)
    for a, b in instance.edges:
        for s in range(stages - 1):
            model.counts.append(Row({("y", b, s): 1.0, ("y", a, s): -1.0}, 0.0))
    if not instance.at_most:
        # No stage is empty.
        for s in range(stages):
            model.counts.append(Row({("x", v, s): -1.0 for v in range(n)}, -1.0))
        return
    for s in range(stages - 1):
        # Behind a stage that is used, none is empty.
        for v in range(n):
            model.counts.append(Row({("x", v, s): 1.0, **{("x", w, s + 1): -1.0 for w in range(n)}}, 0.0))


def _equal(model: Model, terms: Mapping[Column, float], value: float) -> None:
    model.counts.append(Row(terms, value))
    model.counts.append(Row({column: -factor for column, factor in terms.items()}, -value))


def _communicate(model: Model, instance: OperatorInstance, stages: int) -> None:
    """What a stage sends and receives; nothing but load keeps these columns down, so they need no upper rows."""
    for number, tensor in enumerate(instance.tensors):
        seconds = tensor.volume_bytes / instance.bandwidth_bytes_per_s
        if not seconds:
            continue
        source, several = tensor.source, len(tensor.targets) > 1
        for s in range(1, stages):
            take = model.column("take", number, s)
            model.loads[s][take] = seconds
            for target in tensor.targets:
                model.counts.append(Row({("x", target, s): 1.0, ("x", source, s): -1.0, take: -1.0}, 0.0))
        for s in range(stages - 1):
            for q in range(s + 1, stages) if several else [None]:
                send = model.column("send", number, s, q)
                model.loads[s][send] = seconds
                if q is None:
                    # It leaves if its source is here and its target is not.
                    model.counts.append(
                        Row({("x", source, s): 1.0, ("x", tensor.targets[0], s): -1.0, send: -1.0}, 0.0)
                    )
                else:
                    model.counts.append(Row({("x", source, s): 1.0, ("take", number, q): 1.0, send: -1.0}, 1.0))


def _replicate(model: Model, instance: OperatorInstance, stages: int) -> None:
    """Every stage has a number of replicas; together they use no more than the devices."""
    devices = instance.num_devices or 0
    most = devices if instance.at_most else devices - stages + 1
    for s in range(stages):
        model.choices.append(tuple(model.column("many", s, r) for r in range(0 if instance.at_most else 1, most + 1)))
        if instance.at_most:
            for v in range(len(instance.operators)):
                model.counts.append(Row({("x", v, s): 1.0, ("many", s, 0): 1.0}, 1.0))
    used: dict[Column, float] = {("many", s, r): float(r) for s in range(stages) for r in range(1, most + 1)}
    model.counts.append(Row(used, float(devices)))


def replica_counts(instance: OperatorInstance, stage: int) -> Iterable[tuple[Column, int]]:
    """The columns of a stage's replicas, with their numbers (from 1 on)."""
    devices, stages = instance.num_devices or 0, instance.num_stages or 1
    most = devices if instance.at_most else devices - stages + 1
    return [(("many", stage, r), r) for r in range(1, most + 1)]


def _fit(model: Model, instance: OperatorInstance, stages: int, n: int) -> None:
    """Every stage fits its memory."""
    assert instance.memory_bytes is not None
    training, operators = instance.training, instance.operators
    copies = training.weight_copies if training else 0.0
    after, _ = adjacency(n, instance.edges)
    for s in range(stages):
        base: dict[Column, float] = {
            ("x", v, s): operators[v].memory_bytes + copies * operators[v].parameter_bytes for v in range(n)
        }
        room = instance.memory_bytes * (instance.replicas if instance.pooled_memory else 1)
        if instance.num_devices is not None and instance.pooled_memory:
            base |= {column: -instance.memory_bytes * count for column, count in replica_counts(instance, s)}
            room = 0.0
        if training is None:
            model.sizes.append(Row(base, room))
            continue
        kept = training.microbatches if training.schedule == "gpipe" else min(training.microbatches, stages - s)
        for v in range(n):
            for target in after[v]:
                enter = model.column("enter", v, s)
                base[enter] = kept * operators[v].activation_bytes
                model.counts.append(Row({("x", target, s): 1.0, ("x", v, s): -1.0, enter: -1.0}, 0.0))
        if not training.recompute:
            for v in range(n):
                base["x", v, s] += training.microbatches * operators[v].activation_bytes
            model.sizes.append(Row(base, room))
            continue
        _live(model, after, s, n)
        for now in range(n):
            model.sizes.append(Row(_at(instance, after, base, s, now), room))


def _live(model: Model, after: list[list[int]], s: int, n: int) -> None:
    """``live[v, k, s]`` holds if v is in the stage and so is one of its successors from the k-th on."""
    for v in range(n):
        for k, target in enumerate(after[v]):
            live = model.column("live", v, k, s)
            model.counts.append(Row({("x", v, s): 1.0, ("x", target, s): 1.0, live: -1.0}, 1.0))
            if k:
                model.counts.append(Row({live: 1.0, ("live", v, k - 1, s): -1.0}, 0.0))


def _at(
    instance: OperatorInstance, after: list[list[int]], base: dict[Column, float], s: int, now: int
) -> dict[Column, float]:
    """The bytes of a stage while operator ``now`` runs: its own output, and what later operators of the stage await."""
    terms = dict(base)
    terms["x", now, s] = terms.get(("x", now, s), 0.0) + instance.operators[now].activation_bytes
    for v in range(now):
        k = sum(target < now for target in after[v])
        if k < len(after[v]):
            terms["live", v, k, s] = instance.operators[v].activation_bytes
    return terms


def plan_of(instance: OperatorInstance, chosen: Iterable[Column]) -> OperatorPlan:
    """The plan of the columns that are 1."""
    stages: list[list[int]] = [[] for _ in range(instance.num_stages or 1)]
    replicas = [instance.replicas] * len(stages)
    for name, *where in chosen:
        if name == "x":
            stages[where[1]].append(where[0])
        elif name == "many":
            replicas[where[0]] = where[1]
    used = [s for s, members in enumerate(stages) if members]
    return OperatorPlan(tuple(tuple(sorted(stages[s])) for s in used), tuple(replicas[s] for s in used))


def smaller(instance: OperatorInstance, chosen: Iterable[Column]) -> Row:
    """Not this assignment: some operator moves, or where replicas pool their memory a stage has more of them.

    Replicas of empty stages, which no plan shows, do not make it another one.
    """
    own = [name for name in chosen if name[0] in ("x", "many")]
    x = [name for name in own if name[0] == "x"]
    terms = dict.fromkeys(x, 1.0)
    parts = len(x)
    if instance.num_devices is not None and instance.pooled_memory:
        used = {s for _, _, s in x}
        counts = {s: count for name, s, count in own if name == "many" and s in used}
        for s, most in counts.items():
            terms |= {column: 1.0 for column, count in replica_counts(instance, s) if count <= most}
        parts += len(counts)
    return Row(terms, parts - 1.0)


def largest_load(instance: OperatorInstance) -> float:
    """No stage takes longer than this."""
    sent = [len(tensor.targets) * tensor.volume_bytes for tensor in instance.tensors]
    return instance.total_compute_s + 2 * math.fsum(sent) / instance.bandwidth_bytes_per_s
