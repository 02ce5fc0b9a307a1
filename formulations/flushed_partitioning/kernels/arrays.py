"""What the compiled loop of labels is given: reached sets of downsets, and the pool of labels."""

from __future__ import annotations

from typing import NamedTuple

from formulations.compiled.array_types import Floats, Ints, Ints2, Words2
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


class Pool(NamedTuple):
    """Labels by index; all of shape (size,) but ``depth``, (size, sets): stages behind each reached set.

    ``s``: sum of the degrees d of its stages; ``devices``; ``sync``: its longest synchronisation, in time units.
    ``next`` links the labels of one downset (-1 ends them). ``back`` is the label in front of which the stage, this
    downset minus ``low``, was put; ``tp`` is the index of its t, ``dp`` its d.
    """

    s: Ints
    devices: Ints
    sync: Floats
    depth: Ints2
    next: Ints
    back: Ints
    low: Ints
    tp: Ints
    dp: Ints


REACHED_SETS = record(ReachedSets)
POOL = record(Pool)
