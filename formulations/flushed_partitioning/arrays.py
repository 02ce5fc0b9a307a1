"""What the compiled loop of labels is given: slots of downsets, and the pool of labels."""

from __future__ import annotations

from typing import NamedTuple

from formulations.compiled import FLOATS, INTS, INTS2, WORDS2, record
from formulations.stage_partitioning.tables import Floats, Ints, Words


class Slots(NamedTuple):
    """Slots of every downset, n nodes; node n stands for an entry that reaches every node.

    ``width[i]``: slots of downset i; ``node[i, u]``: a node outside that reaches the set of slot u. ``mask[i, v]``: the
    slots whose sets make up what v reaches in downset i (bits). ``reach``: (n + 1, words), what each node reaches.
    """

    width: Ints
    node: Ints
    mask: Words
    reach: Words


class Pool(NamedTuple):
    """Labels by index; ``depth`` has a column for every slot. ``next`` links the labels of one downset.

    ``back`` is the label in front of which the stage, this downset minus ``low``, was put; ``tp`` is the index of its
    t, ``dp`` its d.
    """

    s: Ints
    devices: Ints
    sync: Floats
    depth: Ints
    next: Ints
    back: Ints
    low: Ints
    tp: Ints
    dp: Ints


SLOTS = record(Slots, width=INTS, node=INTS2, mask=WORDS2, reach=WORDS2)
POOL = record(Pool, s=INTS, devices=INTS, sync=FLOATS, depth=INTS2, next=INTS, back=INTS, low=INTS, tp=INTS, dp=INTS)
