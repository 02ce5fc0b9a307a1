"""A device graph in the CP-SAT model: which devices a stage has, and how slow the links are that it uses.

GraphPipe (section 3) gives every edge of the device graph a bandwidth C_e. Here the distinct bandwidths are classes,
fastest first, and a link "of class c or slower" has at most the c-th bandwidth. A ring is as fast as the slowest link
between any two of its devices, and so are the tensors between two stages.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from formulations.stage_graph.models.data import Data
from solvers.cpsat import backend as cpsat


@dataclass(frozen=True)
class Links:
    """Literals ``owns[s, u]``, ``reduces_over[s, c]``, ``cut_over[e, s, c]``, the slower classes c of links.

    Class 0 needs no literal: there ``cut_over`` is 1 where the edge leaves or enters the stage. Identical devices have
    no other class.
    """

    owns: Mapping[tuple[int, int], Any]
    reduces_over: Mapping[tuple[int, int], Any]
    cut_over: Mapping[tuple[int, int, int], Any]


def link_devices(
    model: cpsat.SpokenModel,
    data: Data,
    within: Mapping[tuple[int, int], Any],
    inner: Mapping[tuple[int, int], Any],
    cut: Mapping[tuple[int, int], Any],
    degree: Mapping[tuple[int, int], Any],
) -> Links:
    """Add devices and links to a model that has its partition and degrees."""
    instance, places = data.instance, data.places
    over: dict[tuple[int, int, int], Any] = {(e, s, 0): each for (e, s), each in cut.items()}
    if instance.device_graph is None:
        return Links({}, {}, over)
    devices, classes = range(instance.num_devices), range(1, len(data.bandwidths))
    # By pair of devices, the classes that their link is in or slower than; pairs without a link.
    slower = [(u, v, c) for (u, v), rate in data.rates.items() if rate for c in classes[: data.bandwidths.index(rate)]]
    apart = [pair for pair, rate in data.rates.items() if not rate]

    # fmt: off
    owns = model.booleans("owns", itertools.product(places, devices), "owns[s,u]: device u is in D_s")
    reduces_over = model.booleans("reduces_over", itertools.product(places, classes),
        "reduces_over[s,c]: the ring of stage s has a link of class c or slower")
    runs = model.booleans("runs", itertools.product(range(instance.num_operators), devices),
        "runs[v,u]: device u runs operator v")
    sends_over = model.booleans("sends_over", itertools.product(range(len(instance.edges)), classes),
        "sends_over[e,c]: edge e is cut, over a link of class c or slower")

    model.rows("one_owner", devices, lambda u: model.add_at_most_one([owns[s, u] for s in places]),
        "the D_s are disjoint [GraphPipe, section 3, C3]")
    model.rows("degree_devices", places,
        lambda s: sum(owns[s, u] for u in devices) == sum(r * degree[s, r] for (r,) in data.degrees),
        "|D_s| is the degree of the stage")
    model.rows("linked_inside", [(s, *pair) for s in places for pair in apart],
        lambda s, u, v: model.add_bool_or(~owns[s, u], ~owns[s, v]),
        "devices without a link are not in one stage")
    model.rows("slow_inside", [(s, *pair) for s in places for pair in slower],
        lambda s, u, v, c: model.add_bool_or(reduces_over[s, c], ~owns[s, u], ~owns[s, v]),
        "a ring is as slow as the slowest link between any two of its devices")

    # Where devices of two stages lie, an edge between them is as slow as the slowest link from one to the other.
    model.rows("owner_runs", [(*at, s) for at in runs for s in places],
        lambda v, u, s: model.add_bool_or(runs[v, u], ~within[v, s], ~owns[s, u]),
        "the devices of a stage run its operators")

    def sends(e: int, u: int, v: int, *otherwise: Any) -> Any:  # from device u to device v, unless otherwise
        edge = instance.edges[e]
        inside = [inner[e, s] for s in places]
        return model.add_bool_or(*otherwise, *inside, ~runs[edge.source, u], ~runs[edge.target, v])

    both_ways = [(e, *way) for e in range(len(instance.edges)) for u, v in apart for way in ((u, v), (v, u))]
    model.rows("linked_between", both_ways, sends, "stages with a tensor between them are linked")
    ways = [(e, *way, c) for e in range(len(instance.edges)) for u, v, c in slower for way in ((u, v), (v, u))]
    model.rows("slow_between", ways, lambda e, u, v, c: sends(e, u, v, sends_over[e, c]),
        "a cut edge is as slow as the slowest link between its stages")
    cut_over = model.booleans("cut_over", [(e, s, c) for e, s in cut for c in classes],
        "cut_over[e,s,c]: edge e leaves or enters stage s, over a link of class c or slower")
    model.rows("cut_and_slow", cut_over, lambda e, s, c: cut_over[e, s, c] >= cut[e, s] + sends_over[e, c] - 1,
        "both at once: cut_over[e,s,c] >= cut + sends_over - 1")
    # fmt: on
    return Links(owns, reduces_over, over | cut_over)
