"""What the compiled loops are given: the graph, a family of downsets, numbers of stages and devices, memory rules."""

from typing import NamedTuple

from formulations.compiled.array_types import Floats, Ints, Words2


class Graph(NamedTuple):
    """What a stage's load and memory are made of; n operators, m tensors.

    ``compute`` (n,): seconds. Tensor t goes from ``source[t]`` to ``target[start[t]:start[t + 1]]`` and takes
    ``seconds[t]`` for one receiver. ``fixed``, ``activation``, ``parameters`` (n,): bytes of each operator.
    ``after[after_start[v]:after_start[v + 1]]``: the successors of operator v, ascending.
    """

    compute: Floats
    source: Ints
    start: Ints
    target: Ints
    seconds: Floats
    fixed: Floats
    activation: Floats
    parameters: Floats
    after_start: Ints
    after: Ints


class Rows(NamedTuple):
    """A family of D downsets (sets closed under predecessors), one a row, by rising seconds.

    ``bits`` (D, words): their operators. ``compute`` (seconds), ``fixed``, ``activation``, ``parameters`` (bytes), all
    (D,): sums over these. ``edge[edge_start[r]:edge_start[r + 1]]``: the tensors that cross the border of row r,
    ascending; ``border`` (D,): their seconds. ``feed``, ``feed_start``, likewise: the operators in it that feed others
    outside (only where memory is limited).
    """

    bits: Words2
    compute: Floats
    fixed: Floats
    activation: Floats
    parameters: Floats
    border: Floats
    edge_start: Ints
    edge: Ints
    feed_start: Ints
    feed: Ints


class Counts(NamedTuple):
    """How many there are: S ``stages``, fewer if ``at_most``, each with so many ``replicas``.

    0 replicas: a stage's number is free, with at most ``devices`` together (otherwise not used).
    """

    stages: int
    at_most: bool
    replicas: int
    devices: int


class MemoryRules(NamedTuple):
    """What a stage may hold, and what it must.

    ``limit``: bytes of a device, infinite if there is none; ``pooled``: the replicas of a stage add theirs up.
    ``trains``: inputs of a stage are kept for each of so many ``microbatches`` (``gpipe``) or for as many as are in
    flight (1F1B); ``recompute``: only these, and else all that the stage computes.
    """

    limit: float
    pooled: bool
    trains: bool
    microbatches: float
    gpipe: bool
    recompute: bool
