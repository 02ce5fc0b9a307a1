"""Rings as sets of links for CP-SAT: do rings of R devices for all stages take at most a target, rings alone?

Parmesan's Equation 7: with a target t, a link (d, e) of the ring of s needs c_u(s) + 2 (R - 1) P(s) / (R B(d, e)) <= t.

    holds[s,d]    stage s has device d          link[s,d,e]    the ring of s uses the link of d and e, fast enough

A device has two links of its stage's ring (one with two replicas), so the links of a stage are cycles through its R
devices: one cycle if R is 5 or less, as two cycles need three devices each. With more replicas a stage that falls into
several cycles is cut off, and the model runs again. Source: this project.
"""

from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from formulations.device_mapping.data.arrays import SLACK, Arrays, needed_speed
from solvers.cpsat import backend as cpsat

Pair = tuple[int, int]


class LinkModel(cpsat.Runnable):
    """The model of one target; symmetries between stages with the same demand are left to the solver."""

    def __init__(self, given: Arrays, target: float) -> None:
        self.given = given
        self.model = cp_model.CpModel()
        stages, devices = range(given.num_stages), range(given.num_devices)
        self.holds = [[self.model.new_bool_var(f"holds[{s},{d}]") for d in devices] for s in stages]
        # p is a bijection: every device has one stage.
        for d in devices:
            self.model.add_exactly_one(row[d] for row in self.holds).with_name(f"one_stage[{d}]")
        needed = needed_speed(given, target) * (1 - SLACK)
        self.links = [self._links(s, max(float(needed[s]), 1e-300)) for s in stages]
        self.num_cut = 0

    def _links(self, stage: int, slowest: float) -> dict[Pair, Any]:
        model, given, held = self.model, self.given, self.holds[stage]
        # A stage has R devices.
        model.add(cp_model.LinearExpr.sum(held) == given.replicas).with_name(f"replicas[{stage}]")
        pairs = zip(*np.nonzero(np.triu(given.speed >= slowest, 1)), strict=True)
        links = {(int(d), int(e)): model.new_bool_var(f"link[{stage},{d},{e}]") for d, e in pairs}
        if given.replicas == 1:
            return links
        # Each device of the stage has two links of the ring, or one; every other device none.
        degree = 1 if given.replicas == 2 else 2
        mine: list[list[Any]] = [[] for _ in held]
        for pair, link in links.items():
            for device in pair:
                mine[device].append(link)
        for device, one in enumerate(held):
            ring = model.add(cp_model.LinearExpr.sum(mine[device]) == degree * one)
            ring.with_name(f"ring_degree[{stage},{device}]")
        return links

    def decode(self, values: Any) -> list[list[list[int]]]:
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

    def cut_off(self, cycles: list[list[list[int]]]) -> bool:
        """Forbid cycles that are not all of their stage, at every stage; false if there are none."""
        short = [cycle for stage in cycles if len(stage) > 1 for cycle in stage]
        for cycle in short:
            inside = set(cycle)
            for stage, links in enumerate(self.links):
                among = [link for pair, link in links.items() if inside.issuperset(pair)]
                broken = self.model.add(cp_model.LinearExpr.sum(among) <= len(cycle) - 1)
                broken.with_name(f"short_cycle[{self.num_cut},{stage}]")
            self.num_cut += 1
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
