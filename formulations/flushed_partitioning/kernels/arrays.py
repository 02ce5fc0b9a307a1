"""What the compiled loop of labels is given: reached sets of downsets, the fill, and the pool of labels."""

from __future__ import annotations

from typing import NamedTuple

from formulations.compiled.array_types import Floats, Floats2, Ints, Ints2, Words2
from formulations.compiled.numba_kernels import record


class ReachedSets(NamedTuple):
    """What the nodes outside each of D downsets reach in it; node n of n + 1 stands for an entry that reaches all.

    Only sets that are no union of others are kept. ``width`` (D,): how many downset i has; ``node[i, u]``: a node
    outside that reaches set u of it (-1 beyond ``width[i]``). ``mask`` (D, n + 1): the sets whose union is what node v
    reaches in downset i, as bits. ``reach`` (n + 1, words): what each node reaches, as bits.
    """

    width: Ints
    node: Ints2
    mask: Words2
    reach: Words2


class Filling(NamedTuple):
    """What a stage adds to the depths of the sets that reach it: 1, or by replicas t, its time for a micro-batch.

    ``later`` (degrees,): ceil(m/d) - 1 micro-batches of a replica but the first, by degree; none where depths count
    stages. ``least`` (n + 1,): the least that stages on a path which ends in node v add; 0 for the entry. ``cap``: the
    later micro-batches of no replica take longer. ``microbatches``: m.
    """

    later: Ints
    least: Floats
    cap: float
    microbatches: int


class Pool(NamedTuple):
    """Labels by index; all of shape (size,) but ``depth``, (size, sets): what stages behind each reached set add.

    ``s``: sum of the degrees d of its stages; ``devices``; ``sync``: its longest synchronisation, in time units.
    ``next`` links the labels of one downset (-1 ends them). ``back`` is the label in front of which the stage, this
    downset minus ``low``, was put; ``tp`` is the index of its t, ``dp`` its d.
    """

    s: Ints
    devices: Ints
    sync: Floats
    depth: Floats2
    next: Ints
    back: Ints
    low: Ints
    tp: Ints
    dp: Ints


REACHED_SETS = record(ReachedSets)
FILLING = record(Filling)
POOL = record(Pool)
