"""Layer assignment: cut a chain of layers into a given number of pipeline stages (nouns only).

Source: AMP, sections 3.4 and 3.5 as described in its supplement (6.2, 6.4); the all-reduce term is reconstructed.
"""

import math
import random
from dataclasses import dataclass

from instances.errors import expect
from instances.exchange import in_files
from instances.rules import Amount, Count, Identifier, Index, Recorded


@dataclass(frozen=True)
class TiedParameters:
    """Parameters that several layers share: a stage that holds any of these layers holds them once."""

    layers: tuple[Index, ...]
    parameters: Amount


@in_files(
    *("name", "num_stages", "num_microbatches", "layer_time_s", "cut_cost_s", "parameters?", "tied?"),
    *("ring_s_per_parameter?", "head_layers?", "tail_layers?", "stage_time_s?"),
    problem="layer_assignment",
    absent={"name": "layers"},
)
@dataclass(frozen=True)
class LayerAssignmentInstance(Recorded):
    """A chain of L layers, S stages, and what a cut costs.

    Parameters
    ----------
    layer_time_s
        Forward and backward seconds of each layer for one micro-batch; shape (L,).
    cut_cost_s
        ``cut_cost_s[l]`` are the seconds of sending one micro-batch across a cut after layer l; shape (L - 1, 1) where
        they are the same between all stages, else (L - 1, S - 1): the column is the number of the stage before the cut.
    num_stages, num_microbatches
        S, and the micro-batches that one stage handles in a step (gradient accumulation steps).
    parameters, tied
        Parameters of each layer, shape (L,) or empty if unknown, and those that layers share.
    ring_s_per_parameter
        Seconds of a stage's data-parallel all-reduce for each parameter it holds; shape (1,), (S,), or empty: none.
    head_layers, tail_layers
        Layers before and after the chain of equal blocks; only Megatron's split uses them.
    stage_time_s
        Where stages are on different devices, the seconds of each layer in each stage, shape (S, L), in place of
        ``layer_time_s``; the published programs and splits know that alone. Empty: the same in every stage.
    """

    name: Identifier
    layer_time_s: tuple[Amount, ...]
    cut_cost_s: tuple[tuple[Amount, ...], ...]
    num_stages: Count
    num_microbatches: Count
    parameters: tuple[Amount, ...] = ()
    tied: tuple[TiedParameters, ...] = ()
    ring_s_per_parameter: tuple[Amount, ...] = ()
    head_layers: Index = 0
    tail_layers: Index = 0
    stage_time_s: tuple[tuple[Amount, ...], ...] = ()

    @property
    def num_layers(self) -> int:
        """L."""
        return len(self.layer_time_s)

    @property
    def least_time_s(self) -> tuple[float, ...]:
        """Seconds of each layer in the stage where it takes least; shape (L,)."""
        return tuple(map(min, zip(*self.stage_time_s, strict=True))) or self.layer_time_s

    def times(self, stage: int) -> tuple[float, ...]:
        """Seconds of each layer in a stage; shape (L,)."""
        return self.stage_time_s[stage] if self.stage_time_s else self.layer_time_s

    def stage_s(self, stage: int, start: int, end: int) -> float:
        """Seconds of a stage of layers ``start`` to ``end - 1`` for one micro-batch."""
        return math.fsum(self.times(stage)[start:end])

    def cut_cost(self, layer: int, stage: int) -> float:
        """Seconds of a cut after ``layer`` between ``stage`` and the next."""
        row = self.cut_cost_s[layer]
        return row[0] if len(row) == 1 else row[stage]

    def ring(self, stage: int) -> float:
        """Seconds of all-reduce for each parameter of a stage; 0 without an all-reduce."""
        if not self.ring_s_per_parameter:
            return 0.0
        return self.ring_s_per_parameter[0 if len(self.ring_s_per_parameter) == 1 else stage]


def check(instance: LayerAssignmentInstance, where: str) -> None:
    """Lengths that must fit each other, and tied layers that exist; `InstanceError` if they do not."""
    layers, stages = instance.num_layers, instance.num_stages
    expect(layers >= 1, where, "layer_time_s", [], "at least one layer")
    cuts = len(instance.cut_cost_s)
    expect(cuts == layers - 1, where, "len(cut_cost_s)", cuts, f"{layers - 1} (one less than layers)")
    rule = "1" if stages == 2 else f"1 or {stages - 1} (one less than stages)"
    for layer, row in enumerate(instance.cut_cost_s):
        expect(len(row) in (1, stages - 1), where, f"len(cut_cost_s[{layer}])", len(row), rule)
    by_stage = len(instance.stage_time_s)
    expect(by_stage in (0, stages), where, "len(stage_time_s)", by_stage, f"0 or {stages}")
    for stage, times in enumerate(instance.stage_time_s):
        expect(len(times) == layers, where, f"len(stage_time_s[{stage}])", len(times), f"{layers}, all layers")
    sizes, rings = len(instance.parameters), len(instance.ring_s_per_parameter)
    expect(sizes in (0, layers), where, "len(parameters)", sizes, f"0 or {layers}")
    expect(rings in (0, 1, stages), where, "len(ring_s_per_parameter)", rings, f"0, 1 or {stages}")
    expect(not rings or sizes > 0, where, "parameters", [], "those of every layer, for the all-reduce")
    expect(
        not instance.tied or sizes > 0, where, "parameters", [], "those of every layer, in addition to the tied ones"
    )
    for position, tie in enumerate(instance.tied):
        rule = f"layers from 0 to {layers - 1}, at least one"
        known = bool(tie.layers) and max(tie.layers) < layers
        expect(known, where, f"tied[{position}].layers", list(tie.layers), rule)
    framing = instance.head_layers + instance.tail_layers
    expect(framing <= layers, where, "head_layers + tail_layers", framing, f"at most {layers}")


def generate(
    num_layers: int = 30, num_stages: int = 8, num_microbatches: int = 16, *, all_reduce: bool = False, seed: int = 0
) -> LayerAssignmentInstance:
    """A random instance: uneven layers, and cuts that cost up to some layers; equal arguments give equal instances.

    Raises
    ------
    ValueError
        If a number is below 1.
    """
    if min(num_layers, num_stages, num_microbatches) < 1:
        raise ValueError("expected num_layers, num_stages and num_microbatches >= 1")
    rng = random.Random(f"{num_layers} {num_stages} {num_microbatches} {seed}")
    times = tuple(rng.uniform(0.001, 0.020) for _ in range(num_layers))
    cuts = tuple(tuple(rng.uniform(0, 0.030) for _ in range(max(1, num_stages - 1))) for _ in range(num_layers - 1))
    sizes = tuple(float(rng.randint(1, 9) * 10**6) for _ in range(num_layers)) if all_reduce else ()
    rings = tuple(rng.uniform(1e-9, 2e-8) for _ in range(num_stages)) if all_reduce else ()
    return LayerAssignmentInstance(
        f"layers-{num_layers}x{num_stages}-{seed}",
        times,
        cuts,
        num_stages,
        num_microbatches,
        parameters=sizes,
        ring_s_per_parameter=rings,
    )
