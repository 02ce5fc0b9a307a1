"""What compiled loops are given: reached sets, the fill, the pool of labels; stages, and what is behind them."""

from typing import NamedTuple

from formulations.compiled.array_types import Flags, Floats, Floats2, Floats3, Ints, Ints2, Words2


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


class Stages(NamedTuple):
    """Stages between D downsets, for plans of some degrees, with times of a batch or a micro-batch.

    ``times[row[y] * P + q, i, j]``: the least time of a micro-batch on a replica of stage j minus i, at the q-th of P
    degrees t, with y in flight; infinite where there is none. ``fastest[i, j]``: the least of them. ``heads[i, j]``:
    what a micro-batch takes at least before it. ``weights[q, i, j]``: its bytes. ``rate[a, q]``: synchronisation per
    byte at the a-th of the ``degrees``, whose busiest replica runs ``rounds[a]`` micro-batches.

    ``counts_degrees``: tables are by the sum of degrees, which is what is in flight. ``follows``: that of `_own`.
    ``linked``: most downsets have a node that all others in them come after; it is in the first stage of any plan. Then
    ``begins[j]`` says which, and ``joined[i, j]`` (0 or 1) whether stage j minus i hands to that node of i, so to the
    stage behind it. Else both are 0.
    """

    times: Floats3
    row: Ints
    fastest: Floats2
    heads: Floats2
    weights: Floats3
    tp: Ints
    degrees: Ints
    rounds: Ints
    rate: Floats2
    counts_degrees: bool
    gpipe: bool
    follows: bool
    linked: bool
    begins: Flags
    joined: Ints2


class Behind(NamedTuple):
    """The least of all ways to make stages of a downset, each for itself, by sum of degrees (of S) and devices.

    ``trip`` (D, S, devices): a micro-batch's time in the first stage, and on as long as each hands to the next;
    ``sync``, likewise: the longest synchronisation. ``span`` (levels, D * S, devices): from the first pass of all these
    stages to the last one; of stages that synchronise within ``levels[x]``. Unless ``linked`` it begins with the batch.
    """

    trip: Floats3
    span: Floats3
    sync: Floats3
    levels: Floats
