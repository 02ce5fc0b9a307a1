"""Unlike devices in the CP-SAT model: which devices a stage has, and how slow the links are that it uses.

Bandwidths are classes, fastest first; a link of a class is at least as slow as all classes before it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ortools.sat.python import cp_model

from instances.stage_graph import StageGraph


class Partition(Protocol):
    """What a model needs to have before devices are added: its partition and degrees, as `cpsat_model` says."""

    instance: StageGraph
    model: cp_model.CpModel
    slots: range
    degrees: range
    within: dict[tuple[int, int], Any]
    same: dict[tuple[int, int], Any]
    degree: dict[tuple[int, int], Any]


@dataclass
class Links:
    """``held[s, u]``: device u belongs to stage s. ``bandwidths``: the distinct ones of all links, descending."""

    held: dict[tuple[int, int], Any]
    bandwidths: list[float]
    _inside: dict[int, list[tuple[float, list[Any]]]] = field(default_factory=dict)
    _between: dict[tuple[int, int, int], Any] = field(default_factory=dict)

    def inside(self, s: int) -> list[tuple[float, list[Any]]]:
        """Bandwidths that an all-reduce of the stage may have at most, and under which literals."""
        return self._inside[s]

    def between(self, e: int, s: int, number: int) -> Any:
        """Whether the edge leaves or enters the stage over a link of at least this class."""
        return self._between[e, s, number]

    def here(self, s: int) -> list[tuple[int, Any]]:
        """Devices, and the literals that they belong to the stage."""
        return [(device, each) for (slot, device), each in self.held.items() if slot == s]

    def devices(self, values: Any, s: int) -> tuple[int, ...]:
        """Devices of the stage in a solution."""
        return tuple(device for device, each in self.here(s) if values[each])

    def chosen(self, values: Any) -> list[Any]:
        """Literals that are true."""
        return [each for each in self.held.values() if values[each]]


def link_devices(built: Partition) -> Links:
    """Add devices and links to a model that has its partition and degrees."""
    instance, model = built.instance, built.model
    graph = instance.device_graph
    if graph is None:
        raise ValueError("devices are all alike; expected a device graph")
    devices = range(instance.num_devices)
    rate = {
        (u, v): min(graph.bandwidth_bytes_per_s[u][v], graph.bandwidth_bytes_per_s[v][u])
        for u, v in itertools.combinations(devices, 2)
    }
    bandwidths = sorted({each for each in rate.values() if each}, reverse=True) or [1.0]
    held = {(s, u): model.new_bool_var(f"held_{s}_{u}") for s in built.slots for u in devices}
    links = Links(held, bandwidths)
    for u in devices:
        model.add_at_most_one([held[s, u] for s in built.slots])
    for s in built.slots:
        model.add(sum(held[s, u] for u in devices) == sum(r * built.degree[s, r] for r in built.degrees))
        slow = [model.new_bool_var(f"slow_{s}_{number}") for number in range(1, len(bandwidths))]
        for (u, v), each in rate.items():
            if not each:
                model.add_bool_or(held[s, u].negated(), held[s, v].negated())
            for literal in slow[: bandwidths.index(each)] if each else ():
                model.add_bool_or(literal, held[s, u].negated(), held[s, v].negated())
        links._inside[s] = [(bandwidths[0], []), *((b, [z]) for b, z in zip(bandwidths[1:], slow, strict=True))]
    runs = {(v, u): model.new_bool_var(f"runs_{v}_{u}") for v in range(instance.num_operators) for u in devices}
    for (v, u), literal in runs.items():
        for s in built.slots:
            model.add_bool_or(literal, built.within[v, s].negated(), held[s, u].negated())
    for e, edge in enumerate(instance.edges):
        together = [built.same[e, s] for s in built.slots]
        slow = [model.new_bool_var(f"over_{e}_{number}") for number in range(1, len(bandwidths))]
        for (u, v), each in rate.items():
            for one, other in ((u, v), (v, u)):
                apart = [runs[edge.source, one].negated(), runs[edge.target, other].negated()]
                if not each:
                    model.add_bool_or(*together, *apart)
                for literal in slow[: bandwidths.index(each)] if each else ():
                    model.add_bool_or(literal, *together, *apart)
        for s in built.slots:
            cut = built.within[edge.source, s] + built.within[edge.target, s] - 2 * built.same[e, s]
            for number, literal in enumerate(slow, start=1):
                both = links._between[e, s, number] = model.new_bool_var(f"between_{e}_{s}_{number}")
                model.add(both >= cut + literal - 1)
    return links


def alike(instance: StageGraph) -> StageGraph:
    """An instance with like devices on which no plan is slower or needs more memory."""
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


def most_s(instance: StageGraph) -> float:
    """Seconds per sample that no stage exceeds, if it has links and samples for all of its devices."""
    slowest = instance.bandwidth_bytes_per_s
    if instance.device_graph is not None:
        slowest = min((b for row in instance.device_graph.bandwidth_bytes_per_s for b in row if b), default=1.0)
    passes = math.fsum(each.forward_s(1) + each.backward_s(1) for each in instance.operators)
    sent = math.fsum(2 * (instance.latency_s + edge.bytes_per_sample / slowest) for edge in instance.edges)
    reduced = 2 * math.fsum(each.weight_bytes for each in instance.operators) / slowest
    return passes + sent + reduced + 2 * instance.num_devices * instance.latency_s
