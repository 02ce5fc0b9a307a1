"""Galvatron's profiles of a model: ``computation_profiling_*.json`` and ``memory_profiling_*.json``.

Times (milliseconds, forward, of one sample on one device): ``layertype_0_bsz2_seq4096`` of a layer of type 0, measured
with 2 samples of 4096 tokens, and ``layertype_other_bsz2_seq4096`` of embedding and head together. Memory (MiB):
``layertype_0`` (``layertype_0_sp`` with sequence parallelism) has, by sequence length, ``parameter_size`` (of a layer,
4 bytes a parameter) and ``tp_activation_per_bsz_dict`` (of a sample, by tensor-parallel degree, and ``checkpoint``:
with recomputation); ``other_memory_pp_on_first`` and ``..._last`` have ``model_states`` and ``activation`` by degree.

Source: PKU-DAIR/Hetu-Galvatron, galvatron/core/profiler/model_profiler.py (commit b7589ee) for the formats and
galvatron/core/cost_model/time_costmodel_optimize.py (commit 1d27a7a) for what is made of them: work is divided by the
degree, half of what embedding and head take is at either end, 4 all-reduces a layer (6 with recomputation), and model
states of 16 bytes a parameter. Deviation: all-reduces are rings at the declared bandwidth, as that of its hardware
profile is another file's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instances.errors import InstanceError
from instances.parameters import AMOUNTS, is_amount
from instances.problems.stage_partitioning import Edge, Layer, Tmpc

#: Bytes of a parameter in ``parameter_size``, and in model states: it, its gradient and two moments as wide.
_PARAMETER, _STATES = 4, 16
_MIB = 2.0**20
_TIME = re.compile(r"layertype_(\d+|other)_bsz(\d+)_seq(\d+)")


@dataclass(frozen=True)
class GalvatronRun:
    """What the profiles do not say.

    ``layers`` of each type, ``degrees`` of tensor parallelism, samples of a micro-batch, ``hidden`` numbers of a token,
    ``number_bytes`` of each number that is sent, ``bandwidth`` in bytes per second, and how many times as long as a
    forward pass a backward pass takes. ``sequence``: tokens of a sample; ``None``: those of the only length there is.
    """

    layers: tuple[int, ...]
    degrees: tuple[int, ...]
    microbatch: int
    hidden: int
    number_bytes: int
    bandwidth: float
    backward: float = 2.0
    sequence: int | None = None
    sequence_parallel: bool = False


@dataclass(frozen=True)
class _Profile:
    """A file's content and its name for errors."""

    content: Mapping[str, Any]
    where: str

    def number(self, *keys: str) -> float:
        """The number at nested keys; `InstanceError` names the first that is missing, or what is no amount."""
        found: Any = self.content
        for place, key in enumerate(keys):
            if not isinstance(found, dict) or key not in found:
                there = ", ".join(map(str, list(found)[:8])) if isinstance(found, dict) else "no object"
                raise InstanceError.missing(self.where, ".".join(keys[: place + 1]), f"one of its keys: {there}")
            found = found[key]
        if isinstance(found, bool) or not isinstance(found, int | float) or not is_amount(found):
            raise InstanceError.at(self.where, ".".join(keys), found, AMOUNTS)
        return float(found)


def is_profile(content: Any) -> bool:
    """Whether this is a profile of times."""
    return isinstance(content, dict) and any(_TIME.fullmatch(str(key)) for key in content)


def read(
    times: Any, where: str, memory: Any, memory_where: str, run: GalvatronRun
) -> tuple[tuple[Layer, ...], tuple[Edge, ...]]:
    """A chain of embedding, the layers of each type, and head; times in seconds of a micro-batch, forward and backward.

    `InstanceError` if a file is no such profile, or lacks what is needed of it: the batch size, the length, a type, a
    degree.
    """
    if not is_profile(times):
        raise InstanceError.at(where, "content", "no profile of times", "keys such as layertype_0_bsz1_seq4096")
    if not isinstance(memory, dict):
        raise InstanceError.at(memory_where, "content", "no object", "keys such as layertype_0")
    b, length = run.microbatch, _length(times, where, run.sequence)
    profile, sizes = _Profile(times, where), _Profile(memory, memory_where)
    tensor = float(b * length * run.hidden * run.number_bytes)
    suffix = "_sp" if run.sequence_parallel else ""

    def seconds(of: str) -> float:  # a forward pass of a micro-batch
        key = f"layertype_{of}_bsz{b}_seq{length}"
        if key not in times:
            sizes_there = sorted(
                {int(found[2]) for each in times if (found := _TIME.fullmatch(each)) and found[1] == of}
            )
            raise InstanceError.missing(where, key, f"a batch of this size; of type {of} there are {sizes_there}")
        return profile.number(key) * b / 1e3

    def reduced(t: int, count: int) -> float:  # all-reduces by rings
        return count * 2 * (t - 1) / t * tensor / run.bandwidth

    def of_layer(kind: int) -> dict[int, tuple[Tmpc, ...]]:
        forward, name = seconds(str(kind)), (f"layertype_{kind}{suffix}", str(length))
        parameters = sizes.number(*name, "parameter_size") * _MIB / _PARAMETER
        again = sizes.number(*name, "tp_activation_per_bsz_dict", "checkpoint") * _MIB * b
        found: dict[int, tuple[Tmpc, ...]] = {}
        for t in run.degrees:
            stored = sizes.number(*name, "tp_activation_per_bsz_dict", str(t)) * _MIB * b
            held = (parameters / t * run.number_bytes, parameters / t * _STATES)
            work = forward / t
            found[t] = (
                Tmpc("keep", work * (1 + run.backward) + reduced(t, 4), held[0], stored, held[1]),
                Tmpc("recompute", work * (2 + run.backward) + reduced(t, 6), held[0], again, held[1]),
            )
        return found

    def of_end(end: str) -> dict[int, tuple[Tmpc, ...]]:
        forward, name = seconds("other") / 2, (f"other_memory_pp_on_{end}{suffix}", str(length))
        found: dict[int, tuple[Tmpc, ...]] = {}
        for t in run.degrees:
            states = sizes.number(*name, "model_states", str(t)) * _MIB
            stored = sizes.number(*name, "activation", str(t)) * _MIB * b
            time = forward / t * (1 + run.backward) + reduced(t, 2)
            found[t] = (Tmpc("keep", time, states / _STATES * run.number_bytes, stored, states),)
        return found

    kinds = [kind for kind, count in enumerate(run.layers) for _ in range(count)]
    bodies = [of_layer(kind) for kind in range(len(run.layers))]
    layers = [
        Layer(0, of_end("first"), "embedding", role="embedding"),
        *(Layer(place, bodies[kind], f"layer {place - 1}", role="block") for place, kind in enumerate(kinds, 1)),
        Layer(len(kinds) + 1, of_end("last"), "head", role="head"),
    ]
    return tuple(layers), tuple(Edge(place, place + 1, tensor) for place in range(len(layers) - 1))


def _length(times: Mapping[str, Any], where: str, wanted: int | None) -> int:
    """Tokens of a sample: those that are wanted, or of the only length."""
    there = sorted({int(found[3]) for key in times if (found := _TIME.fullmatch(key))})
    if wanted is None and len(there) == 1:
        return there[0]
    if wanted not in there:
        raise InstanceError.at(where, "the sequence length", wanted, f"one that was profiled: {there}")
    return wanted
