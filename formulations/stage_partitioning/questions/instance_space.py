"""Small instances for searches: graphs of layers with a few TMPCs at t = 1 and 2, in whole numbers."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from random import Random
from typing import Any

from formulations.contract.instance_space import UNIFORM_LAYERS, Domain, Gene, Genes, Genome, InstanceSpace, Numbers
from instances.parameters import MAX_COUNT
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc

#: The TMPCs that a node can have at each degree.
_IDS = ("plain", "recompute", "third")
_DEGREES = (1, 2)

#: Numbers of a TMPC: whether it is there, time, activation and static bytes. Those of a node: the bytes of its weights
#: at each degree, then its TMPCs, degree by degree.
_Tmpc = tuple[int, int, int, int]
_ABSENT: _Tmpc = (0, 0, 0, 0)


def mining() -> InstanceSpace[StageInstance]:
    """The limits, genes and domains of the problem."""
    return InstanceSpace(
        {"nodes": 4, "devices": 4, "microbatches": 4, "tmpcs": 2, "tp": 2, "number": 12},
        genes,
        (
            Domain("recompute", "a node's second TMPC at a degree takes 4/3 of the first one's time", _recompute),
            Domain("max-slowdown", "at each degree TMPCs take at most VALUE times a node's fastest", _slow, _rho),
            UNIFORM_LAYERS,
        ),
    )


def genes(limits: Mapping[str, int]) -> Genes[StageInstance]:
    """Instances within limits: at most ``tmpcs`` (3) for each node and degree, degrees up to ``tp`` (2)."""
    most = limits["number"]
    tmpcs = []
    for degree in _DEGREES:
        for slot in range(len(_IDS)):
            is_allowed = degree <= limits["tp"] and slot < limits["tmpcs"]
            high = most if is_allowed else 0
            tmpcs += [Gene("present", int(is_allowed), counts="tmpcs")]
            tmpcs += [Gene(name, high) for name in ("time", "activation", "static")]
    return Genes(
        limits["nodes"],
        (
            Gene("devices", limits["devices"], 1, "devices"),
            Gene("microbatches", limits["microbatches"], 1, "microbatches"),
            Gene("memory", 2 * most),
        ),
        (*(Gene("weight", most if degree <= limits["tp"] else 0) for degree in _DEGREES), *tmpcs),
        (Gene("bytes", most),),
        _build,
        lambda genome: _change_tmpcs(genome, lambda found: found),
        partial(_plant, 2 * most),
    )


def _plant(most: int, genome: Genome, rng: Random) -> Genome:
    """TMPCs that take the longer the less they hold, and memory for some of the nodes on one stage."""
    genome = _change_tmpcs(genome, _trade_time_for_memory)
    used = [q for q in range(len(_DEGREES)) if any(x[0] for node in genome.nodes for x in _parts(node)[q])]
    in_flight, share, memory = rng.choice((1, 1, 2, 3)), rng.choice((1.0, 1.0, 0.6)), 0
    degree = rng.choice(used or [0])
    for node in genome.nodes:
        found = [each for each in _parts(node)[degree] if each[0]]
        if found and rng.random() < share:
            _, _, activation, static = rng.choice(found)
            memory += activation * in_flight + static
    devices, microbatches, _ = genome.whole
    return replace(genome, whole=(devices, microbatches, min(memory, most)))


def _parts(node: Numbers) -> list[list[_Tmpc]]:
    """The TMPCs of a node by degree."""
    flat, length = node[len(_DEGREES) :], len(_ABSENT)
    every: list[Any] = [flat[start : start + length] for start in range(0, len(flat), length)]
    return [every[start : start + len(_IDS)] for start in range(0, len(every), len(_IDS))]


def _change_tmpcs(genome: Genome, change: Callable[[list[_Tmpc]], list[_Tmpc]]) -> Genome:
    """The genome with the TMPCs of each node and degree changed; those that are absent have no numbers."""
    nodes = []
    for node in genome.nodes:
        kept = [[each if each[0] else _ABSENT for each in change(found)] for found in _parts(node)]
        weights = [weight if any(x[0] for x in found) else 0 for weight, found in zip(node, kept, strict=False)]
        nodes.append((*weights, *(value for found in kept for each in found for value in each)))
    return replace(genome, nodes=tuple(nodes))


def _build(genome: Genome) -> StageInstance | None:
    devices, microbatches, memory = genome.whole
    layers = []
    for number, node in enumerate(genome.nodes):
        tmpcs = {}
        for degree, weight, found in zip(_DEGREES, node, _parts(node), strict=False):
            declared = [
                Tmpc(name, time, weight, activation, static)
                for name, (is_present, time, activation, static) in zip(_IDS, found, strict=True)
                if is_present
            ]
            if declared:
                tmpcs[degree] = tuple(declared)
        if not tmpcs:
            return None
        layers.append(Layer(number, tmpcs))
    edges = tuple(Edge(u, v, size) for u, v, (size,) in genome.edges)
    return StageInstance("mined", tuple(layers), edges, devices, memory, 1, microbatches)


def _trade_time_for_memory(found: list[_Tmpc]) -> list[_Tmpc]:
    """The same times and bytes in another order: of two TMPCs, the first is no slower and holds no less."""
    present = [each for each in found if each[0]]
    times = sorted(time for _, time, _, _ in present)
    held = sorted((each[2:] for each in present), key=sum, reverse=True)
    traded: list[_Tmpc] = [(1, time, *both) for time, both in zip(times, held, strict=True)]
    return traded + [_ABSENT] * (len(found) - len(traded))


def _recompute(genome: Genome, _value: Any) -> Genome:
    """Two TMPCs at most; with both, the times are 3 and 4 times a whole number, and the second holds no more."""

    def change(found: list[_Tmpc]) -> list[_Tmpc]:
        plain, other, _ = found
        if not other[0]:
            return [plain, other, _ABSENT]
        third = max(1, other[1] // 4) if other[1] else 0
        less, more = sorted((plain[2:], other[2:]), key=sum)
        return [(1, 3 * third, *more), (1, 4 * third, *less), _ABSENT]

    return _change_tmpcs(genome, change)


def _slow(genome: Genome, rho: Fraction) -> Genome:
    """Times above rho times the fastest are that."""

    def change(found: list[_Tmpc]) -> list[_Tmpc]:
        fastest = min((each[1] for each in found if each[0]), default=0)
        return [(each[0], min(each[1], int(rho * fastest)), *each[2:]) for each in found]

    return _change_tmpcs(genome, change)


def _rho(text: str) -> Fraction:
    rule = f"a number from 1 to {MAX_COUNT}, such as 4/3"
    try:
        # The fraction of 1e1000000000 would be worked out for hours.
        found = Fraction(text) if "/" in text or 1 <= float(text) <= MAX_COUNT else Fraction(0)
    except (ValueError, ZeroDivisionError):
        raise ValueError(rule) from None
    if not 1 <= found <= MAX_COUNT:
        raise ValueError(rule)
    return found
