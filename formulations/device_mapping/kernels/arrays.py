"""What the compiled loops are given: an instance's tables, and the mapping that annealing works on."""

from typing import NamedTuple

from formulations.compiled.array_types import Floats, Floats2, Ints


class Tables(NamedTuple):
    """An instance as arrays.

    Parameters
    ----------
    slowness
        Seconds per byte between two devices, shape (D, D), 0 on the diagonal.
    base
        Seconds that each stage computes, shape (S,).
    start, other, volume
        Neighbours of stage s and the bytes they exchange with it: entries ``start[s]`` to ``start[s + 1] - 1``; none
        where the objective does not count them.
    ring_bytes
        Bytes over each link of a stage's ring, shape (S,); 0 where the objective does not count them.
    links
        Links of a ring: R, 1 for two replicas, 0 for one or where the objective does not count them.
    replicas
        R.
    """

    slowness: Floats2
    base: Floats
    start: Ints
    other: Ints
    volume: Floats
    ring_bytes: Floats
    links: int
    replicas: int


class Layout(NamedTuple):
    """A mapping and the orders of its rings; node v = s R + r is replica r of stage s.

    ``device[v]``: its device; ``ring[s R + i]``: the node at place i of the ring of stage s; ``place[v]``: the place of
    node v in its ring. All of shape (S R,).
    """

    device: Ints
    ring: Ints
    place: Ints


class Loads(NamedTuple):
    """What a layout takes, in seconds, and what a target leaves it.

    ``sending`` (S R,): exchange of tensors of each node. ``link[s R + i]``: the link of a ring between places i and
    i + 1. ``cap`` (S,): limit of the links of each stage's ring; ``room`` (S,): what is left for the tensors of each of
    its nodes.
    """

    sending: Floats
    link: Floats
    cap: Floats
    room: Floats
