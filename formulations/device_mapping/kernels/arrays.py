"""What the compiled loops are given: an instance's tables, and the mapping that annealing works on."""

from __future__ import annotations

from typing import NamedTuple

from formulations.compiled.numba_kernels import FLOATS, FLOATS2, INT, INTS, record
from formulations.device_mapping.data.costs import Floats, Ints, Tables


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


TABLES = record(
    Tables,
    slowness=FLOATS2,
    base=FLOATS,
    start=INTS,
    other=INTS,
    volume=FLOATS,
    ring_bytes=FLOATS,
    links=INT,
    replicas=INT,
)
LAYOUT = record(Layout, device=INTS, ring=INTS, place=INTS)
LOADS = record(Loads, sending=FLOATS, link=FLOATS, cap=FLOATS, room=FLOATS)
