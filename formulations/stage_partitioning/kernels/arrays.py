"""The work space of the compiled loops, and the types of all that they are given."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.compiled.array_types import Floats, Ints
from formulations.compiled.numba_kernels import (
    FLOAT,
    FLOATS,
    FLOATS2,
    FLOATS3,
    INT,
    INTS,
    INTS2,
    INTS3,
    SHORTS2,
    SHORTS3,
    WORDS2,
    record,
)
from formulations.stage_partitioning.kernels.tables import Lattice, Profile


class Scratch(NamedTuple):
    """Work space of one search: saving orders, kept in rows, and the present stage as in `CallScratch`.

    A saving order lists, for tensor-parallel degree q and y micro-batches in flight, steps from a node's fastest TMPC
    to lighter ones, best ratio first. ``slot_of[q, y]``: the row that holds it (-1: none yet); ``next_slot`` (1,): the
    row to fill next; ``steps[row]``: its length. ``owner``, ``rise``, ``saving``, all [row, step]: the node, what the
    step adds to its time (time units), what it saves (bytes). ``sum_rise``, ``sum_saving``, both [row, downset, step]:
    running sums over the nodes of every downset; no rows where they would take too much memory. ``size`` (1,): nodes of
    the stage, -1 if it is not assembled.
    """

    slot_of: Ints
    next_slot: Ints
    steps: Ints
    owner: NDArray[np.int32]
    rise: Floats
    saving: Floats
    sum_rise: Floats
    sum_saving: Floats
    size: Ints
    nodes: Ints
    start: Ints
    base: Floats
    weight: Floats
    per_microbatch: Floats
    static: Floats
    cost: Floats
    memory: Floats
    choice: Ints


class CallScratch(NamedTuple):
    """Work space for one stage's nodes and options, at most n nodes and one option for each of their TMPCs.

    ``nodes``: the stage's, in the first places; the options of the m-th are ``start[m]`` to ``start[m + 1] - 1``. Of
    each option: ``base`` (time units, with the boundary), ``weight`` (bytes of weights), ``per_microbatch`` and
    ``static`` (bytes of memory); at one degree ``cost`` (d times its share of the stage's time), ``memory`` (bytes).
    ``choice``: the option chosen for each node.
    """

    nodes: Ints
    start: Ints
    base: Floats
    weight: Floats
    per_microbatch: Floats
    static: Floats
    cost: Floats
    memory: Floats
    choice: Ints


class SwapOrders(NamedTuple):
    """Swaps between the two TMPCs of each node by ratio, for degree q and y micro-batches in flight.

    ``use[q]`` is 1 if no node has a third and the order does not depend on the stage. ``length[q, y]``: swaps;
    ``owner``, ``rise``, ``saving``, all [q, y, r]: the node of the r-th, the time it adds, the bytes it saves.
    """

    use: Ints
    length: Ints
    owner: NDArray[np.int32]
    rise: Floats
    saving: Floats


PROFILE = record(
    Profile,
    tp_degrees=INTS,
    dp_degrees=INTS,
    resync=FLOATS,
    num_tmpcs=INTS2,
    time=FLOATS3,
    weight=FLOATS3,
    per_microbatch=FLOATS3,
    static=FLOATS3,
    volume_in=FLOATS3,
    volume_out=FLOATS3,
    uniform=INTS,
    source=INTS,
    target=INTS,
    in_start=INTS,
    in_edges=INTS,
    out_start=INTS,
    out_edges=INTS,
    original=INTS3,
    carried=FLOATS3,
    carried_start=INTS,
    holders=INTS,
    holders_start=INTS,
    num_devices=INT,
    max_s=INT,
    memory=FLOAT,
)
LATTICE = record(
    Lattice,
    bits=WORDS2,
    work=FLOATS,
    time=FLOATS2,
    weight=FLOATS2,
    fast_per_microbatch=FLOATS2,
    fast_static=FLOATS2,
    light_per_microbatch=FLOATS2,
    light_static=FLOATS2,
    missing=INTS2,
    entering=FLOATS2,
    leaving=FLOATS2,
    edge_both=FLOATS2,
    crossing_start=INTS,
    crossing_edges=INTS,
    least_d=SHORTS2,
    most_d=SHORTS2,
)
SCRATCH = record(
    Scratch,
    slot_of=INTS2,
    next_slot=INTS,
    steps=INTS,
    owner=SHORTS2,
    rise=FLOATS2,
    saving=FLOATS2,
    sum_rise=FLOATS3,
    sum_saving=FLOATS3,
    size=INTS,
    nodes=INTS,
    start=INTS,
    base=FLOATS,
    weight=FLOATS,
    per_microbatch=FLOATS,
    static=FLOATS,
    cost=FLOATS,
    memory=FLOATS,
    choice=INTS,
)
CALL_SCRATCH = record(
    CallScratch,
    nodes=INTS,
    start=INTS,
    base=FLOATS,
    weight=FLOATS,
    per_microbatch=FLOATS,
    static=FLOATS,
    cost=FLOATS,
    memory=FLOATS,
    choice=INTS,
)
SWAP_ORDERS = record(SwapOrders, use=INTS, length=INTS2, owner=SHORTS3, rise=FLOATS3, saving=FLOATS3)
