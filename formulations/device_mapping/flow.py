"""The layered flow for CP-SAT: is there a plan within a target, between stages alone? Replicas have no names here.

``at[s, d]``: some replica of stage s is on device d. ``arc[e][d, d']``: edge e runs from d to d' in one replica. Arcs
match the devices of two stages; along a stage graph without cycles the matchings compose to replicas, so the model is
exact there. With cycles it is a relaxation: a refutation is a proof, a solution counts if its replicas happen to close.

Only devices and arcs that survive arc consistency have variables. Costs are rounded down to integers.
Source: reconstructed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from formulations.device_mapping.arrays import Arrays, loosened
from formulations.device_mapping.bounds import Domains

#: Units of a budget: costs are rounded down to this part of the target.
_UNITS = 10**8


class FlowModel:
    """The model of one target; ``impossible`` if arc consistency refutes it."""

    def __init__(self, arrays: Arrays, target: float, domains: Domains | None = None) -> None:
        self.arrays = arrays
        self.cp = cp_model.CpModel()
        domains = domains or Domains(arrays, target)
        self.impossible = not domains.possible
        if self.impossible:
            self.cp.add_bool_or([])
            return
        self.at = {
            (int(stage), int(device)): self.cp.new_bool_var(f"at[{stage},{device}]")
            for stage, device in zip(*np.nonzero(domains.allowed), strict=True)
        }
        self.arcs = [self._arcs(number, domains) for number in range(len(arrays.edges))]
        self._deal()
        self._match()
        self._budgets(target)

    @property
    def num_arcs(self) -> int:
        """Arc variables."""
        return sum(len(arcs) for arcs in self.arcs)

    def _arcs(self, number: int, domains: Domains) -> dict[tuple[int, int], Any]:
        a, b, _ = self.arrays.edges[number]
        mask = domains.arcs[number] & domains.allowed[a][:, None] & domains.allowed[b][None, :]
        pairs = zip(*np.nonzero(mask), strict=True)
        return {(int(d), int(e)): self.cp.new_bool_var(f"arc[{number},{d},{e}]") for d, e in pairs}

    def _deal(self) -> None:
        """Every device runs one stage, every stage on R devices."""
        for device in range(self.arrays.num_devices):
            self.cp.add_exactly_one(one for (_, d), one in self.at.items() if d == device)
        for stage in range(self.arrays.num_stages):
            here = [one for (s, _), one in self.at.items() if s == stage]
            self.cp.add(cp_model.LinearExpr.sum(here) == self.arrays.replicas)

    def _match(self) -> None:
        """A device of a stage has one arc of each of the stage's edges."""
        for (a, b, _), arcs in zip(self.arrays.edges, self.arcs, strict=True):
            for end, stage in ((0, a), (1, b)):
                here: dict[int, list[Any]] = {}
                for pair, arc in arcs.items():
                    here.setdefault(pair[end], []).append(arc)
                for (s, device), one in self.at.items():
                    if s == stage:
                        self.cp.add_exactly_one([*here.get(device, []), one.negated()])

    def _budgets(self, target: float) -> None:
        """What a node's arcs cost together; one arc alone was looked at before."""
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
            left = int((loosened(target) - float(arrays.compute[stage])) / unit) + 1
            self.cp.add(cp_model.LinearExpr.weighted_sum(arcs, costs) <= left)

    def placement(self, values: Any) -> list[list[int]] | None:
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
