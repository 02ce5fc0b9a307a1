"""Megatron-LM's timers in a training log: what the forward and backward passes of each rank took.

With ``--timing-log-level 2 --timing-log-option all`` a log has blocks of lines (milliseconds of an iteration)::

    times across ranks (ms):
      forward-compute:
         rank  0: 812.41
         rank  1: 815.02
      backward-compute:
         rank  0: 1604.77
         ...

Source: NVIDIA/Megatron-LM, megatron/core/timers.py (commit 00caa53), `Timers._get_all_ranks_time_string`. Ranks are in
Megatron's default order, in which those of a pipeline stage follow each other.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from instances.errors import InstanceError
from instances.problems.stage_partitioning import Edge, Layer, Tmpc

_HEADING = "times across ranks (ms):"
_RANK = re.compile(r"\s*rank\s+(\d+):\s*(\S+)\s*$")
_TIMER = re.compile(r"\s*([\w-]+):\s*$")
_PASSES = ("forward-compute", "backward-compute")


@dataclass(frozen=True)
class MegatronRun:
    """What the log does not say: how the run was divided, and what a layer holds and sends (bytes)."""

    layers: int
    stages: int
    tp_degree: int
    microbatches: int
    weight_bytes: float
    activation_bytes: float
    static_bytes: float
    output_bytes: float


def is_log(content: object) -> bool:
    """Whether this is a text with a block of timers of all ranks."""
    return isinstance(content, str) and _HEADING in content


def read(content: str, where: str, run: MegatronRun) -> tuple[tuple[Layer, ...], tuple[Edge, ...], int]:
    """A chain of the layers at the degree of the run, and its number of replicas.

    Each layer takes its share of what its stage's slowest rank took.

    Times are seconds of a micro-batch, forward and backward, means over all blocks but the first, which warms up, where
    there are several. What embedding and head took is in the layers of their stages.

    `InstanceError` if the log has no such block, a rank lacks a time, or layers or ranks do not divide into the stages.
    """
    blocks = _blocks(content, where)
    blocks = blocks[1:] or blocks
    world = 1 + max(rank for block in blocks for of in block.values() for rank in of)
    if run.layers % run.stages:
        raise InstanceError.at(where, "layers", run.layers, f"a multiple of the {run.stages} pipeline stages")
    if world % (run.stages * run.tp_degree):
        rule = f"a multiple of {run.stages} stages of {run.tp_degree} tensor-parallel ranks"
        raise InstanceError.at(where, "ranks", world, rule)
    totals = []
    for rank in range(world):
        for name in _PASSES:
            if not all(rank in block.get(name, {}) for block in blocks):
                raise InstanceError.missing(where, f"{name} of rank {rank}", "a time in every block")
        totals.append(math.fsum(fmean(block[name][rank] for block in blocks) for name in _PASSES))
    return (*_chain(totals, run), world // (run.stages * run.tp_degree))


def _chain(totals: Sequence[float], run: MegatronRun) -> tuple[tuple[Layer, ...], tuple[Edge, ...]]:
    """The layers, from milliseconds of an iteration by rank."""
    ranks, own = len(totals) // run.stages, run.layers // run.stages
    layers = []
    for place in range(run.layers):
        stage = place // own
        slowest = max(totals[stage * ranks : (stage + 1) * ranks])
        time = slowest / 1e3 / run.microbatches / own
        x = Tmpc("measured", time, run.weight_bytes, run.activation_bytes, run.static_bytes)
        layers.append(Layer(place, {run.tp_degree: (x,)}, f"layer {place}", role="block"))
    return tuple(layers), tuple(Edge(place, place + 1, run.output_bytes) for place in range(run.layers - 1))


def _blocks(content: str, where: str) -> list[dict[str, dict[int, float]]]:
    """By block, timer and rank the milliseconds."""
    found: list[dict[str, dict[int, float]]] = []
    timer: dict[int, float] | None = None
    for line in content.splitlines():
        if line.rstrip().endswith(_HEADING):
            found.append({})
            timer = None
        elif not found:
            continue
        elif (named := _TIMER.match(line)) and named[1] != "rank":
            timer = found[-1].setdefault(named[1], {})
        elif timer is not None and (rank := _RANK.match(line)):
            timer[int(rank[1])] = _milliseconds(rank[2], where)
        else:
            timer = None
    if not any(name in block for block in found for name in _PASSES):
        rule = "times of all ranks, as --timing-log-level 2 --timing-log-option all writes them"
        raise InstanceError.missing(where, "forward-compute", rule)
    return [block for block in found if any(name in block for name in _PASSES)]


def _milliseconds(text: str, where: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise InstanceError.at(where, "a rank's time", text, "milliseconds above 0")
    return found
