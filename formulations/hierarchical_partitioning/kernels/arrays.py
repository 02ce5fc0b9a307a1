"""What the compiled loops of machines are given: the cluster, sets of nodes it may hold, stages inside a machine."""

from typing import NamedTuple

from formulations.compiled.array_types import Flags, Floats, Floats2, Ints, Shorts


class Links(NamedTuple):
    """The cluster, and the sets of nodes that are differences of downsets, for compiled loops.

    ``num_devices`` is K_1, ``num_machines`` K_2, ``inner_bandwidth`` B_1, ``bandwidth`` B_2. ``weight`` (D,) sums w_v
    over each downset. Pairs of nested downsets, by the smaller one: from ``pair_start[i]`` on, ``larger`` is the other,
    ``base[q]`` the least time of transfers over the boundary at the inner bandwidth (times d), ``crossed`` the bytes
    over it.
    """

    weight: Floats
    pair_start: Ints
    larger: Shorts
    base: Floats2
    crossed: Floats
    num_devices: int
    num_machines: int
    inner_bandwidth: float
    bandwidth: float
    memory_model: int


class Arcs(NamedTuple):
    """Stages inside a machine that keep within the time of the present test, listed when they are needed first.

    A list belongs to a downset i, a d_2 and a sum s of the degrees d_1 behind i: they have the number
    ``key = i * first[K_2] + first[d_2 - 1] + s``, and the list goes from ``begin[key]`` (-1: there is none yet) to
    ``end[key]``. Its stages go from i ``to`` another downset with ``degree`` d_1 and ``tensor`` q; ``refused[key]``
    says that a smaller s might admit more. ``size`` (1,) are listed in all.
    """

    first: Ints
    begin: Ints
    end: Ints
    refused: Flags
    to: Shorts
    degree: Shorts
    tensor: Shorts
    size: Ints
