"""The work space of the compiled loops, and the types of all that they are given."""

from typing import NamedTuple

from formulations.compiled.array_types import Floats, Floats2, Floats3, Ints, Ints2, Shorts, Shorts2, Shorts3, Words2


class Scratch(NamedTuple):
    """Work space of one search: saving orders, kept in rows, and the present stage as in `CallScratch`.

    A saving order lists, for tensor-parallel degree q and y micro-batches in flight, steps from a node's fastest TMPC
    to lighter ones, best ratio first. ``slot_of[q, y]``: the row that holds it (-1: none yet); ``next_slot`` (1,): the
    row to fill next; ``runs[row]``: its length in runs, which are equal steps of nodes of one word of a bitset.
    ``place``, ``members``, ``rise``, ``saving``, all [row, run]: the word, its nodes, what a step adds to a node's time
    (time units), what it saves (bytes). ``owner``: work space for the nodes of steps. ``size`` (1,): nodes of the
    stage, -1 if it is not assembled. ``sums``, ``fewest``: the labels of a downset.
    """

    slot_of: Ints2
    next_slot: Ints
    owner: Shorts
    runs: Ints
    place: Shorts2
    members: Words2
    rise: Floats2
    saving: Floats2
    size: Ints
    sums: Ints
    fewest: Ints
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
    length: Ints2
    owner: Shorts3
    rise: Floats3
    saving: Floats3
