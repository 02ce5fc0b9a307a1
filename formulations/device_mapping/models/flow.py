"""The layered flow for CP-SAT: is there a plan within a target, between stages alone? Replicas have no names here.

Parmesan's Equation 6: c_u(s) + sum over neighbours s' of M(s, s') / B(p(s), p(s')) <= t for a target t.

    at[s,d]    some replica of s is on d          arc[e,d,f]    edge e of the stage graph runs from d to f in a replica

Arcs match the devices of two stages; along a stage graph without cycles the matchings compose to replicas. With cycles
they must close: the graph is made chordal with edges that cost nothing (`chords`, ``chord[s, s', d, f]``), and around
every triangle two arcs imply the third. If that is too much to write down the model is a relaxation: a refutation is a
proof, a solution counts if its replicas happen to close.

Only devices and arcs that survive arc consistency have variables. Costs are rounded down to integers.
Source: this project.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from formulations.device_mapping.bounds.combinatorial import Domains
from formulations.device_mapping.data.arrays import Arrays, with_slack
from solvers.cpsat import backend as cpsat

#: Units of a budget: costs are rounded down to this part of the target.
_UNITS = 10**8
#: Clauses that close triangles, at most.
_MAX_CLOSING = 2_000_000

Arcs = dict[tuple[int, int], Any]


class FlowModel(cpsat.Runnable):
    """The model of one target; ``impossible`` if arc consistency refutes it."""

    def __init__(self, arrays: Arrays, target: float, domains: Domains) -> None:
        self.arrays = arrays
        self.model = cp_model.CpModel()
        self.impossible = not domains.possible
        if self.impossible:
            self.model.add_bool_or([]).with_name("no_arcs")
            return
        self.at = {
            (int(stage), int(device)): self.model.new_bool_var(f"at[{stage},{device}]")
            for stage, device in zip(*np.nonzero(domains.allowed), strict=True)
        }
        self.arcs = [self._arcs(number, domains) for number in range(len(arrays.edges))]
        self._deal()
        for number, ((a, b, _), arcs) in enumerate(zip(arrays.edges, self.arcs, strict=True)):
            self._match(a, b, arcs, f"one_arc[{number}")
        self._close(domains)
        self._budgets(target)

    def _arcs(self, number: int, domains: Domains) -> Arcs:
        a, b, _ = self.arrays.edges[number]
        mask = domains.arcs[number] & domains.allowed[a][:, None] & domains.allowed[b][None, :]
        pairs = zip(*np.nonzero(mask), strict=True)
        return {(int(d), int(e)): self.model.new_bool_var(f"arc[{number},{d},{e}]") for d, e in pairs}

    def _deal(self) -> None:
        """p is a bijection: every device runs one stage, every stage on R devices."""
        of_device: list[list[Any]] = [[] for _ in range(self.arrays.num_devices)]
        of_stage: list[list[Any]] = [[] for _ in range(self.arrays.num_stages)]
        for (stage, device), one in self.at.items():
            of_device[device].append(one)
            of_stage[stage].append(one)
        for device, stages in enumerate(of_device):
            self.model.add_exactly_one(stages).with_name(f"one_stage[{device}]")
        for stage, devices in enumerate(of_stage):
            dealt = self.model.add(cp_model.LinearExpr.sum(devices) == self.arrays.replicas)
            dealt.with_name(f"replicas[{stage}]")

    def _match(self, a: int, b: int, arcs: Arcs, name: str) -> None:
        """A device of a stage has one arc of each of the stage's edges."""
        for end, stage in ((0, a), (1, b)):
            here: dict[int, list[Any]] = {}
            for pair, arc in arcs.items():
                here.setdefault(pair[end], []).append(arc)
            for (s, device), one in self.at.items():
                if s == stage:
                    matched = self.model.add_exactly_one([*here.get(device, []), one.negated()])
                    matched.with_name(f"{name},{stage},{device}]")

    def _close(self, domains: Domains) -> None:
        """Around every triangle of the chordal stage graph two arcs imply the third."""
        given = self.arrays
        triangles, extra = chords(given.num_stages, [(a, b) for a, b, _ in given.edges])
        if not triangles:
            return
        degree = max(sum(map(len, self.arcs)) / len(self.arcs) / given.num_devices, 1.0)
        if len(triangles) * given.num_devices * degree**2 * 3 > _MAX_CLOSING:
            return
        between: dict[tuple[int, int], Arcs] = {}
        for (a, b, _), arcs in zip(given.edges, self.arcs, strict=True):
            between[a, b] = arcs
            between[b, a] = {(e, d): arc for (d, e), arc in arcs.items()}
        for a, b in extra:
            mask = domains.allowed[a][:, None] & domains.allowed[b][None, :] & (given.speed > 0)
            pairs = zip(*np.nonzero(mask), strict=True)
            arcs = {(int(d), int(e)): self.model.new_bool_var(f"chord[{a},{b},{d},{e}]") for d, e in pairs}
            self._match(a, b, arcs, f"one_chord[{a},{b}")
            between[a, b] = arcs
            between[b, a] = {(e, d): arc for (d, e), arc in arcs.items()}
        for stage, one, other in triangles:
            # The edge that elimination added is what the other two compose to; where it is an edge of the instance all
            # three say something of each other.
            ways = [(one, stage, other)]
            if (one, other) not in extra:
                ways += [(stage, one, other), (stage, other, one)]
            for a, middle, b in ways:
                self._imply(between[a, middle], between[middle, b], between[a, b], f"closes[{a},{middle},{b}")

    def _imply(self, first: Arcs, second: Arcs, third: Arcs, name: str) -> None:
        """An arc from d to e and one from e to f imply the third from d to f: a replica is on each device once."""
        onward: dict[int, list[tuple[int, Any]]] = {}
        for (d, e), arc in second.items():
            onward.setdefault(d, []).append((e, arc.negated()))
        for (d, e), arc in first.items():
            not_first, row = arc.negated(), f"{name},{d},{e}]"  # one name for all f
            for f, not_second in onward.get(e, []):
                closing = third.get((d, f)) if f != d else None
                clause = [not_first, not_second, *([] if closing is None else [closing])]
                self.model.add_bool_or(clause).with_name(row)

    def _budgets(self, target: float) -> None:
        """Equation 6 at each device of a stage: its arcs take at most t - c_u(s). A single arc was checked before."""
        arrays, unit = self.arrays, target / _UNITS
        for (stage, device), _ in self.at.items():
            if len(arrays.incident[stage]) < 2:
                continue
            costs, arcs = [], []
            for number, volume in arrays.incident[stage]:
                end = 0 if arrays.edges[number][0] == stage else 1
                for pair, arc in self.arcs[number].items():
                    if pair[end] == device:
                        costs.append(int(volume / arrays.speed[pair] / unit))
                        arcs.append(arc)
            left = int((with_slack(target) - float(arrays.compute[stage])) / unit) + 1
            within = self.model.add(cp_model.LinearExpr.weighted_sum(arcs, costs) <= left)
            within.with_name(f"stage_time[{stage},{device}]")

    def decode(self, values: Any) -> list[list[int]] | None:
        """Devices by stage and replica; ``None`` if the arcs do not close to replicas (stage graphs with cycles)."""
        arrays = self.arrays
        chosen = [dict(pair for pair, arc in arcs.items() if values[arc]) for arcs in self.arcs]
        devices = [[-1] * arrays.replicas for _ in range(arrays.num_stages)]
        for root in range(arrays.num_stages):
            if devices[root][0] >= 0:
                continue
            devices[root] = [d for (s, d), one in self.at.items() if s == root and values[one]]
            reached = [root]
            for stage in reached:
                for number, (a, b, _) in enumerate(arrays.edges):
                    if stage not in (a, b):
                        continue
                    other = b if stage == a else a
                    onward = chosen[number] if stage == a else {e: d for d, e in chosen[number].items()}
                    image = [onward[device] for device in devices[stage]]
                    if devices[other][0] < 0:
                        devices[other] = image
                        reached.append(other)
                    elif devices[other] != image:
                        return None
        return devices


def chords(
    num_stages: int, edges: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
    """Triangles of a chordal graph with these edges, which generate its cycles, and the edges that make it chordal.

    Stages are taken out in the order of fewest neighbours left; the neighbours of each become neighbours of each other.
    """
    near = {stage: set[int]() for stage in range(num_stages)}
    for a, b in edges:
        near[a].add(b)
        near[b].add(a)
    triangles, extra = [], []
    while near:
        stage = min(near, key=lambda each: (len(near[each]), each))
        around = sorted(near.pop(stage))
        for one, other in itertools.combinations(around, 2):
            if other not in near[one]:
                near[one].add(other)
                near[other].add(one)
                extra.append((one, other))
            triangles.append((stage, one, other))
        for other in around:
            near[other].discard(stage)
    return triangles, extra
