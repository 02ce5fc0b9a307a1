"""The direct model with the time given, for CP-SAT: a path of blocks (`within_target`) on the fewest devices."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ortools.sat.python import cp_model

from formulations.modelling.solve_model import go_on
from formulations.stage_partitioning.models.assignment_data import Chosen
from formulations.stage_partitioning.models.blocks_within_target import ANY, Side, WithinTarget, in_order
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Run, Watch

_sum = cp_model.LinearExpr.sum
_weighted = cp_model.LinearExpr.weighted_sum

#: What a block has of time and of memory, in whole units: parts are rounded down, so that no plan is lost.
_WHOLE = 2**30

#: The same, with room for sums of floats in another order.
_ROOM = _WHOLE + 2


class TargetModel:
    """The CP-SAT model as ``model``."""

    def __init__(self, within: WithinTarget) -> None:
        self.within, self.blocks = within, within.blocks
        self.model = cpsat.SpokenModel()
        self._variables()
        self._path()
        self._nodes()
        for b in range(len(self.blocks)):
            go_on(within.watch)
            self._contents(b)
        self.model.minimize(self._devices())

    def _variables(self) -> None:
        terms, says, new_bool = self.within.terms, self.model.says, self.model.new_bool_var
        says(
            "taken",
            "taken[b]: the plan has the stage of block b = (s,t,d), with degrees (t,d); those of it and of all later "
            "stages sum to s",
        )
        self.taken = [new_bool(f"taken[{b}]") for b in range(len(self.blocks))]
        says("choice", "choice[b,o]: option o, a TMPC of a node, runs in block b")
        self.choice = {(b, o): new_bool(f"choice[{b},{o}]") for b, block in enumerate(self.blocks) for o in block.times}
        says("done", "done[v,s]: node v runs in a block of sum s or less")
        sums = range(1, terms.max_s + 1)
        self.done = {(v, s): new_bool(f"done[{v},{s}]") for v in terms.nodes for s in sums}
        says("paid", "paid[b,c]: block b pays crossing c, whose payer and neighbour it might hold together")
        self.paid = {(b, c): new_bool(f"paid[{b},{c}]") for b, block in enumerate(self.blocks) for c in block.paid}

    def _devices(self) -> Any:
        return _weighted(self.taken, [block.devices for block in self.blocks])

    def _held(self, v: int, b: int) -> Any:
        """1 if block b holds node v."""
        return _sum([self.choice[b, o] for o in self.within.terms.of_node[v] if (b, o) in self.choice])

    def _path(self) -> None:
        """A plan is a path over s (section 3.1)."""
        cp, terms = self.model, self.within.terms
        instance = terms.instance
        cp.says("one_path", "one block is the last stage, with s = d: sum of taken[b] over those = 1")
        cp.says(
            "conserved",
            "a block with s' = s - d stands before one with sum s'; the path ends anywhere, or at N if exactly N is "
            "required: sum of taken[b] over b with s - d = s' <= sum over b with s = s' [Piper, section 3.1]",
        )
        cp.says("devices", "the stages take disjoint sets of devices: sum of t d taken[b] <= K [Piper, section 3.1]")
        leaving: dict[int, list[Any]] = {s: [] for s in range(terms.max_s + 1)}
        entering: dict[int, list[Any]] = {s: [] for s in range(terms.max_s + 1)}
        for block, taken in zip(self.blocks, self.taken, strict=True):
            leaving[block.s - block.dp_degree].append(taken)
            entering[block.s].append(taken)
        cp.add_exactly_one(leaving[0]).with_name("one_path")
        for s in range(1, terms.max_s + 1):
            after, before = _sum(leaving[s]), _sum(entering[s])
            goes_on = instance.exactly and s != instance.num_microbatches
            cp.add(after == before if goes_on else after <= before).with_name(f"conserved[{s}]")
        cp.add(self._devices() <= instance.num_devices).with_name("devices")

    def _nodes(self) -> None:
        """Nodes of the stages (section 3.1)."""
        cp, terms = self.model, self.within.terms
        cp.says(
            "done_so_far",
            "what is done grows by what blocks hold: done[v,s] = done[v,s-1] + sum over b of sum s of held(v,b)",
        )
        cp.says("one_place", "a node is in one stage, with one TMPC: done[v,S] = 1 [Piper, section 3.1]")
        cp.says("forward", "no edge (u,v) runs backwards: where u is done, so is v behind it [Piper, section 3.1]")
        at_sum: dict[int, list[int]] = {s: [] for s in range(terms.max_s + 1)}
        for b, block in enumerate(self.blocks):
            at_sum[block.s].append(b)
        for v in terms.nodes:
            for s in range(1, terms.max_s + 1):
                grows = _sum([self._held(v, b) for b in at_sum[s]])
                before = self.done[v, s - 1] if s > 1 else 0
                cp.add(self.done[v, s] == before + grows).with_name(f"done_so_far[{v},{s}]")
            cp.add(self.done[v, terms.max_s] == 1).with_name(f"one_place[{v}]")
        for u, v in terms.instance.edge_indices:
            for s in range(1, terms.max_s):
                cp.add(self.done[u, s] <= self.done[v, s]).with_name(f"forward[{u},{v},{s}]")

    def _contents(self, b: int) -> None:
        """What a block may hold: its t, its memory, and its time (sections 3.3, 3.5 and 4)."""
        cp, terms, block, taken = self.model, self.within.terms, self.blocks[b], self.taken[b]
        cp.says("not_empty", "a stage holds a node: taken[b] <= sum over o of choice[b,o]")
        cp.says(
            "apart",
            "only a stage holds nodes, all with its t, and one of those that exceed T or M together at most: sum over "
            "such v of held(v,b) <= taken[b] [Piper, section 3.3]",
        )
        cp.says("memory", "sum over v of (X(v).a y + X(v).b) <= M taken[b], y = ceil(s/d) [Piper, section 3.5]")
        cp.says(
            "boundary",
            "the edges of delta^-(S) and delta^+(S) are paid by their end in S: where c's payer runs with one of its "
            "options, and its neighbour does not run [Piper, section 4]",
        )
        cp.says(
            "stage_time",
            "compute + comm / B, times d, is at most d T: sum of X.p + sum of 2 (c + X.c^fw)/B + sum of 2 (c + X.c^bw)/"
            "B + 4 (d-1)/(d B) sum of X.w <= d T taken[b] [Piper, sections 3.2 and 4]",
        )
        running = [self.choice[b, o] for o in block.times]
        cp.add(taken <= _sum(running)).with_name(f"not_empty[{b}]")
        for group, nodes in enumerate(block.apart):
            cp.add(_sum([self._held(v, b) for v in nodes]) <= taken).with_name(f"apart[{b},{group}]")
        if sum(block.sizes.values()) > 1:
            cp.add(_weighted(running, _units(block.sizes.values())) <= _ROOM * taken).with_name(f"memory[{b}]")
        paid = [self.paid[b, c] for c in block.paid]
        for c, pays in zip(block.paid, paid, strict=True):
            crossing = terms.crossings[c]
            runs = _sum([self.choice[b, o] for o in crossing.options if o in block.times])
            cp.add(runs <= self._held(crossing.other, b) + pays).with_name(f"boundary[{b},{c}]")
        time = _weighted([*running, *paid], [*_units(block.times.values()), *_units(block.paid.values())])
        cp.add(time <= _ROOM * taken).with_name(f"stage_time[{b}]")
        self._sides(b)

    def _sides(self, b: int) -> None:
        """Implied, but not by the relaxation: where a stage begins and ends."""
        cp, block, taken = self.model, self.blocks[b], self.taken[b]

        def pays(side: Side) -> Any:
            paid = [self.paid[b, c] for c in side.crossings]
            certain = [self.choice[b, o] for o in side.options]
            return _sum([*paid, *certain, *(self._held(v, b) for v in side.free)])

        for name, side, none in zip(("begins", "ends"), block.sides, ("predecessor", "successor"), strict=True):
            cp.says(
                name,
                f"implied: a stage has a node with no {none} in it, which pays a crossing or is free of them",
            )
            cp.add(taken <= pays(side)).with_name(f"{name}[{b}]")
        if block.s == block.dp_degree:
            cp.says("holds_sink", "implied: the last stage holds a node without successors")
            sinks = _sum([self._held(v, b) for v in self.within.sinks])
            cp.add(taken <= sinks).with_name(f"holds_sink[{b}]")

    def decide(self, limits: Limits, watch: Watch) -> tuple[Run, tuple[Chosen, ...] | None]:
        """Run CP-SAT until it has a plan, or a proof that there is none."""
        run = cpsat.run(self.model, replace(limits, gap=ANY), watch, parameters=cpsat.INTEGRAL)
        return run, None if run.values is None else self.chosen(run.values)

    def chosen(self, values: cpsat.Values) -> tuple[Chosen, ...]:
        """The stages of a solution."""
        return in_order(
            (block, [o for o in sorted(block.times) if values[self.choice[b, o]]])
            for b, block in enumerate(self.blocks)
            if values[self.taken[b]]
        )

    def forbid_beyond(self, stage: Chosen, in_flight: int) -> None:
        """Not all of these options together, in a block with these degrees and so many micro-batches or more."""
        for b, block in enumerate(self.blocks):
            if block.in_flight >= in_flight and block.may_be(stage):
                self._forbid(b, stage, [])

    def forbid(self, stage: Chosen) -> None:
        """Not all of these options together without another, in a block with these degrees."""
        for b, block in enumerate(self.blocks):
            if block.may_be(stage):
                self._forbid(b, stage, [self.choice[b, o] for o in block.times if o not in stage.options])

    def _forbid(self, b: int, stage: Chosen, others: list[Any]) -> None:
        self.model.says("forbidden", "a stage that takes too much, which only rounding admitted, is cut off")
        number = len(self.model.proto.constraints)
        apart = [*(~self.choice[b, o] for o in stage.options), *others]
        self.model.add_bool_or(apart).with_name(f"forbidden[{number}]")


def _units(parts: Iterable[float]) -> list[int]:
    return [math.floor(part * _WHOLE) for part in parts]
