"""Rings as sets of links for CP-SAT: is there a dealing of devices to stages within a target, rings alone?

``holds[s, d]``: stage s has device d. ``link[s][d, d']``: the ring of s uses the link. A device has two links of its
stage's ring (one with two replicas), so the links of a stage are cycles through its R devices: one cycle if R is 5 or
less, as two cycles need three devices each. With more replicas a stage that falls into several cycles is cut off, and
the model is run again. Source: reconstructed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from formulations.device_mapping.arrays import SLACK, Arrays, needed_speed

Pair = tuple[int, int]


class RingModel:
    """The model of one target; symmetries between stages with the same demand are left to the solver."""

    def __init__(self, given: Arrays, target: float) -> None:
        self.given = given
        self.cp = cp_model.CpModel()
        stages, devices = range(given.num_stages), range(given.num_devices)
        self.holds = [[self.cp.new_bool_var(f"holds[{s},{d}]") for d in devices] for s in stages]
        for device in devices:
            self.cp.add_exactly_one(row[device] for row in self.holds)
        needed = needed_speed(given, target)
        self.links = [self._links(stage, float(needed[stage]) * (1 - SLACK)) for stage in stages]

    def _links(self, stage: int, slowest: float) -> dict[Pair, Any]:
        given, held = self.given, self.holds[stage]
        self.cp.add(cp_model.LinearExpr.sum(held) == given.replicas)
        pairs = zip(*np.nonzero(np.triu(given.speed >= max(slowest, 1e-300), 1)), strict=True)
        links = {(int(d), int(e)): self.cp.new_bool_var(f"link[{stage},{d},{e}]") for d, e in pairs}
        if given.replicas == 1:
            return links
        degree = 1 if given.replicas == 2 else 2
        for device, one in enumerate(held):
            mine = [link for pair, link in links.items() if device in pair]
            self.cp.add(cp_model.LinearExpr.sum(mine) == degree * one)
        return links

    def rings(self, values: Any) -> list[list[list[int]]]:
        """The cycles of each stage in a solution, as devices in their order."""
        found = []
        for held, links in zip(self.holds, self.links, strict=True):
            near: dict[int, list[int]] = {device: [] for device, one in enumerate(held) if values[one]}
            for (d, e), link in links.items():
                if values[link] and self.given.replicas > 1:
                    near[d].append(e)
                    near[e].append(d)
            found.append(_cycles(near))
        return found

    def cut(self, cycles: list[list[list[int]]]) -> bool:
        """Cut off cycles that are not all of their stage; false if there are none."""
        short = [cycle for stage in cycles if len(stage) > 1 for cycle in stage]
        for cycle in short:
            inside = set(cycle)
            for links in self.links:
                among = [link for pair, link in links.items() if inside.issuperset(pair)]
                self.cp.add(cp_model.LinearExpr.sum(among) <= len(cycle) - 1)
        return bool(short)


def num_links(given: Arrays, target: float) -> int:
    """Links that the model of a target has, over all stages."""
    return sum(int((given.speed >= max(slowest, 1e-300)).sum()) // 2 for slowest in needed_speed(given, target))


def _cycles(near: dict[int, list[int]]) -> list[list[int]]:
    """The connected pieces of a graph of degree at most two, walked along."""
    unseen, found = set(near), []
    while unseen:
        device = min(unseen)
        walk: list[int] = []
        while True:
            walk.append(device)
            unseen.discard(device)
            onward = [other for other in near[device] if other in unseen]
            if not onward:
                break
            device = onward[0]
        found.append(walk)
    return found
