"""A device graph in the CP-SAT model: which devices a stage has, and how slow the links are that it uses.

GraphPipe (section 3) gives every edge of the device graph a bandwidth C_e. Here the distinct bandwidths are classes,
fastest first, and a link "of class c or slower" has at most the c-th bandwidth. A ring is as fast as the slowest link
between any two of its devices, and so are the tensors between two stages.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from instances.problems.stage_graph import StageGraph
from solvers.cpsat import backend as cpsat
from solvers.outcome import Watch


class Partition(Protocol):
    """What a model needs to have before rows are added to it: its partition and degrees, as `partition.Model` says."""

    instance: StageGraph
    model: cpsat.SpokenModel
    watch: Watch
    stages: range
    degrees: range
    within: dict[tuple[int, int], Any]
    inner: dict[tuple[int, int], Any]
    cut: dict[tuple[int, int], Any]
    degree: dict[tuple[int, int], Any]
    used: list[Any]


@dataclass
class Links:
    """Literals of the device graph.

    ``owns[s, u]``: device u is in D_s. ``reduces_over[s, c]``: the ring of stage s has a link of class c or slower.
    ``cut_over[e, s, c]``: edge e leaves or enters stage s, over a link of class c or slower; both for c from 1 on.
    ``bandwidths``: of the classes, descending.
    """

    owns: dict[tuple[int, int], Any]
    bandwidths: list[float]
    reduces_over: dict[tuple[int, int], Any] = field(default_factory=dict)
    cut_over: dict[tuple[int, int, int], Any] = field(default_factory=dict)

    def inside(self, s: int) -> list[tuple[float, list[Any]]]:
        """Bandwidths that an all-reduce of the stage may have at most, and under which literals."""
        slower = ((rate, [self.reduces_over[s, c]]) for c, rate in enumerate(self.bandwidths) if c)
        return [(self.bandwidths[0], []), *slower]

    def here(self, s: int) -> list[tuple[int, Any]]:
        """Devices, and the literals that they belong to the stage."""
        return [(device, each) for (slot, device), each in self.owns.items() if slot == s]

    def devices(self, values: Any, s: int) -> tuple[int, ...]:
        """Devices of the stage in a solution."""
        return tuple(device for device, each in self.here(s) if values[each])


def link_devices(built: Partition) -> Links:
    """Add devices and links to a model that has its partition and degrees."""
    graph, devices = built.instance.device_graph, range(built.instance.num_devices)
    if graph is None:
        raise ValueError("devices are identical; expected a device graph")
    links = graph.bandwidth_bytes_per_s
    #: Bandwidth in the slower direction, as gradients go back; 0 for no link.
    rate = {(u, v): min(links[u][v], links[v][u]) for u, v in itertools.combinations(devices, 2)}
    bandwidths = sorted({each for each in rate.values() if each}, reverse=True) or [1.0]
    owns = {(s, u): built.model.new_bool_var(f"owns[{s},{u}]") for s in built.stages for u in devices}
    found = Links(owns, bandwidths)
    _dealt(built, found, rate)
    _sent(built, found, rate)
    return found


def _dealt(built: Partition, links: Links, rate: dict[tuple[int, int], float]) -> None:
    """C3: the D_s are disjoint, and |D_s| is the stage's degree; links inside a stage bound its all-reduce."""
    model, owns, devices = built.model, links.owns, range(built.instance.num_devices)
    for u in devices:
        model.add_at_most_one([owns[s, u] for s in built.stages]).with_name(f"one_owner[{u}]")
    for s in built.stages:
        owned, size = sum(owns[s, u] for u in devices), sum(r * built.degree[s, r] for r in built.degrees)
        model.add(owned == size).with_name(f"degree_devices[{s}]")
        over = links.reduces_over
        over |= {(s, c): model.new_bool_var(f"reduces_over[{s},{c}]") for c in range(1, len(links.bandwidths))}
        for (u, v), each in rate.items():
            apart = owns[s, u].negated(), owns[s, v].negated()
            if not each:
                model.add_bool_or(*apart).with_name(f"linked_inside[{s},{u},{v}]")
            for c in range(1, links.bandwidths.index(each) + 1) if each else ():
                model.add_bool_or(over[s, c], *apart).with_name(f"slow_inside[{s},{u},{v},{c}]")


def _sent(built: Partition, links: Links, rate: dict[tuple[int, int], float]) -> None:
    """Where devices of two stages lie: an edge between them is as slow as the slowest link from one to the other.

    ``runs[v, u]``: device u runs operator v. ``sends_over[e, c]``: edge e is cut, over a link of class c or slower.
    """
    instance, model, within = built.instance, built.model, built.within
    devices, classes = range(instance.num_devices), range(1, len(links.bandwidths))
    runs = {(v, u): model.new_bool_var(f"runs[{v},{u}]") for v in range(instance.num_operators) for u in devices}
    for (v, u), literal in runs.items():
        for s in built.stages:
            ran = model.add_bool_or(literal, within[v, s].negated(), links.owns[s, u].negated())
            ran.with_name(f"owner_runs[{v},{u},{s}]")
    for e, edge in enumerate(instance.edges):
        together = [built.inner[e, s] for s in built.stages]
        over = {c: model.new_bool_var(f"sends_over[{e},{c}]") for c in classes}
        for pair, each in rate.items():
            for one, other in (pair, pair[::-1]):
                apart = runs[edge.source, one].negated(), runs[edge.target, other].negated()
                if not each:
                    model.add_bool_or(*together, *apart).with_name(f"linked_between[{e},{one},{other}]")
                for c in range(1, links.bandwidths.index(each) + 1) if each else ():
                    slow = model.add_bool_or(over[c], *together, *apart)
                    slow.with_name(f"slow_between[{e},{one},{other},{c}]")
        for s in built.stages:
            for c, literal in over.items():
                both = links.cut_over[e, s, c] = model.new_bool_var(f"cut_over[{e},{s},{c}]")
                model.add(both >= built.cut[e, s] + literal - 1).with_name(f"cut_and_slow[{e},{s},{c}]")


def identical(instance: StageGraph) -> StageGraph:
    """An instance with identical devices on which no plan is slower or needs more memory."""
    graph = instance.device_graph
    if graph is None:
        return instance
    fastest = max(max(row) for row in graph.bandwidth_bytes_per_s) or 1.0
    return replace(
        instance,
        device_graph=None,
        memory_bytes=max(graph.memory_bytes),
        bandwidth_bytes_per_s=fastest,
        inner_bandwidth_bytes_per_s=None,
        devices_per_node=None,
    )


def longest_s(instance: StageGraph) -> float:
    """Seconds per sample that no stage exceeds, if it has links and samples for all of its devices."""
    slowest = instance.bandwidth_bytes_per_s
    if instance.device_graph is not None:
        slowest = min((b for row in instance.device_graph.bandwidth_bytes_per_s for b in row if b), default=1.0)
    passes = math.fsum(each.forward_s(1) + each.backward_s(1) for each in instance.operators)
    sent = math.fsum(2 * (instance.latency_s + edge.bytes_per_sample / slowest) for edge in instance.edges)
    reduced = 2 * math.fsum(each.weight_bytes for each in instance.operators) / slowest
    return passes + sent + reduced + 2 * instance.num_devices * instance.latency_s
