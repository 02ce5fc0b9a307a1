"""What a trainer is given of a plan, whatever its format: stages of layers, with degrees and what is recomputed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from formulations.simulation.orders import SCHEDULES

#: Schedules of two stages on a rank, of which the second half comes back from the last rank to the first.
VEE = frozenset(name for name, each in SCHEDULES.items() if each.layout == "vee")
#: The roles of layers.
EMBEDDING, DECODER, MTP, HEAD, OTHER = "embedding", "decoder", "mtp", "head", "other"


@dataclass(frozen=True)
class Layer:
    """What a trainer does not cut: its role (of those above), the paths of its modules, whether it is recomputed.

    Formats that count layers leave ``modules`` empty; formats that name modules leave ``role`` empty.
    """

    role: str
    modules: tuple[str, ...] = ()
    recompute: bool = False


@dataclass(frozen=True)
class Stage:
    """Layers from the input side on, on ``dp_degree`` replicas of ``tp_degree`` devices."""

    layers: tuple[Layer, ...]
    dp_degree: int = 1
    tp_degree: int = 1

    @property
    def num_devices(self) -> int:
        """Devices of the stage."""
        return self.dp_degree * self.tp_degree


@dataclass(frozen=True)
class Batch:
    """A training step: each of ``replicas`` runs ``microbatches`` of ``samples`` samples, of ``tokens`` tokens each.

    ``tokens`` is ``None`` where samples have none, or their number is not known.
    """

    replicas: int
    microbatches: int
    samples: int = 1
    tokens: int | None = None

    @property
    def global_samples(self) -> int:
        """Samples of a step, of all replicas."""
        return self.replicas * self.microbatches * self.samples

    def says(self) -> str:
        """The batch in a line.

        >>> Batch(2, 8, 1, 4096).says()
        '16 samples: 8 micro-batches of 1 x 4096 tokens on each replica, of which there are 2'
        """
        each = str(self.samples) if self.tokens is None else f"{self.samples} x {self.tokens} tokens"
        many = f"{self.microbatches} micro-batches of {each} on each replica"
        return f"{self.global_samples} samples: {many}, of which there are {self.replicas}"


@dataclass(frozen=True)
class Serving:
    """What a replica of an inference server has room for: sequences at once, each of ``length`` tokens at its end.

    SGLang needs ``context`` tokens for such a sequence. A pass has ``batched`` tokens at most. The KV cache of a device
    of the fullest stage has ``cache_bytes``, for ``cache_tokens`` of all sequences together.
    """

    sequences: int
    length: int
    context: int
    batched: int
    cache_bytes: int
    cache_tokens: int


@dataclass(frozen=True)
class Layout:
    """Stages from the input side on. With ``virtual`` stages on each rank, stage i runs on rank i modulo ``pp_degree``;
    by a schedule of `VEE` stages i and 2 ``pp_degree`` - 1 - i do on one rank.

    What follows is for formats that have a place for it, and layouts that differ in it alone are equal:
    ``num_microbatches`` of a batch, of all replicas; ``samples`` of a micro-batch; ``tokens`` of a sample (``None``:
    unknown); the ``schedule``, the order of passes that the plan's time is of; and ``sharding``, what replicas share: 1
    the optimizer's states, 2 gradients as well, 3 weights as well. ``sequences``: tensor-parallel devices share them.
    ``selective``: what all layers recompute alone, by Megatron's name. Each replica is ``context`` devices for each of
    its tensor ranks, and of all of these ``expert`` ones share experts. What replicas share they do in each of
    ``groups``.
    ``offloaded``: the share of optimizer states that is on the host.
    ``outermost``: replicas are so on the devices, else stages. ``overlaps``: gradients are summed beside passes.
    ``whole``: stages that recompute keep their inputs alone, and compute all of the rest again at once. ``devices`` are
    those of the ranks, replicas of a stage next to each other; empty: in order.
    ``serving``: it trains nothing. ``dtype`` is that of the weights, such as bf16 (``None``: unknown).
    """

    stages: tuple[Stage, ...]
    virtual: int = 1
    num_microbatches: int | None = field(default=None, compare=False)
    schedule: str | None = field(default=None, compare=False)
    samples: int | None = field(default=None, compare=False)
    tokens: int | None = field(default=None, compare=False)
    sharding: int = field(default=0, compare=False)
    sequences: bool = field(default=False, compare=False)
    selective: str = ""
    context: int = 1
    expert: int = 1
    groups: int = 1
    outermost: bool = False
    overlaps: bool = field(default=False, compare=False)
    offloaded: float = field(default=0.0, compare=False)
    whole: bool = False
    devices: tuple[int, ...] = ()
    serving: Serving | None = field(default=None, compare=False)
    dtype: str | None = field(default=None, compare=False)

    @property
    def pp_degree(self) -> int:
        """Ranks of the pipeline."""
        return len(self.stages) // self.virtual

    @property
    def dp_degree(self) -> int:
        """The data-parallel degree that all stages have; `ValueError` if they differ."""
        return _only({stage.dp_degree for stage in self.stages}, "data-parallel degrees")

    @property
    def tp_degree(self) -> int:
        """The tensor-parallel degree that all stages have; `ValueError` if they differ."""
        return _only({stage.tp_degree for stage in self.stages}, "tensor-parallel degrees")

    @property
    def batch(self) -> Batch:
        """A training step, with as many micro-batches for each replica as the one that runs most of them has.

        Replicas are those of the stage that has most. What is not known of a batch is one.
        """
        replicas = max(stage.dp_degree for stage in self.stages)
        return Batch(replicas, -(-(self.num_microbatches or 1) // replicas), self.samples or 1, self.tokens)

    @property
    def world_size(self) -> int:
        """Devices of all ranks."""
        return self.context * sum(stage.num_devices for stage in self.stages[: self.pp_degree])

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of all stages."""
        return tuple(layer for stage in self.stages for layer in stage.layers)

    def by_module(self) -> Layout:
        """The layout as a format has it that names modules and no roles: a layer for each module."""
        return self._with(
            [
                [Layer("", (module,), layer.recompute) for layer in stage.layers for module in layer.modules]
                for stage in self.stages
            ]
        )

    def by_count(self) -> Layout:
        """The layout as a format has it that counts layers between an embedding and a head.

        Layers of an end that stand in one stage are one; an end that is absent is added.
        """
        rows: list[list[Layer]] = []
        for stage in self.stages:
            row: list[Layer] = []
            for layer in stage.layers:
                if not (row and row[-1].role == layer.role and layer.role in (EMBEDDING, HEAD)):
                    row.append(replace(layer, modules=()))
            rows.append(row)
        if not rows[0] or rows[0][0].role != EMBEDDING:
            rows[0].insert(0, Layer(EMBEDDING))
        if not rows[-1] or rows[-1][-1].role != HEAD:
            rows[-1].append(Layer(HEAD))
        return self._with(rows)

    def decoders(self) -> list[list[Layer]]:
        """The layers that count, by stage."""
        return [[layer for layer in stage.layers if layer.role == DECODER] for stage in self.stages]

    def _with(self, rows: Sequence[Sequence[Layer]]) -> Layout:
        stages = zip(self.stages, rows, strict=True)
        return replace(self, stages=tuple(replace(stage, layers=tuple(row)) for stage, row in stages))


def between_ends(decoders: Iterable[Sequence[Layer]]) -> list[tuple[Layer, ...]]:
    """The layers of stages, given those that count: the embedding is in front of all, the head behind."""
    rows = [list(row) for row in decoders]
    rows[0].insert(0, Layer(EMBEDDING))
    rows[-1].append(Layer(HEAD))
    return [tuple(row) for row in rows]


def _only(degrees: set[int], what: str) -> int:
    if len(degrees) != 1:
        raise ValueError(f"stages have {what} {', '.join(map(str, sorted(degrees)))}; expected one")
    return degrees.pop()
