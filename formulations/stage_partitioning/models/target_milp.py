"""The direct model with the time given, for HiGHS: a path of blocks (`within_target`) on the fewest devices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyomo.environ as pyo

from formulations.modelling.solve_model import go_on
from formulations.stage_partitioning.models.assignment_data import Chosen
from formulations.stage_partitioning.models.blocks_within_target import ANY, Block, Side, WithinTarget, in_order
from solvers.milp import backend as milp
from solvers.milp.backend import until_stopped, weighted_sum
from solvers.milp.reusable_lp import Repeated
from solvers.outcome import Limits, Run, Watch

#: What fills a block exactly may exceed it by this part, so that no solver's tolerance loses it.
_ROOM = 1e-9

#: Devices are counted: a bound this little above a number of them says that one more is needed.
_PART_OF_A_DEVICE = 1e-3


class TargetModel:
    """The Pyomo model as ``model``; times and sizes are in thousandths of what a block has."""

    def __init__(self, within: WithinTarget) -> None:
        self.within, self.blocks = within, within.blocks
        self.model = model = pyo.ConcreteModel()
        at = range(len(self.blocks))
        model.taken = pyo.Var(
            at,
            domain=pyo.Binary,
            doc="taken[b]: the plan has the stage of block b = (s,t,d), with degrees (t,d); those of it and of all "
            "later stages sum to s",
        )
        model.choice = pyo.Var(
            [(b, o) for b in at for o in self.blocks[b].times],
            domain=pyo.Binary,
            doc="choice[b,o]: option o, a TMPC of a node, runs in block b",
        )
        model.done = pyo.Var(
            within.terms.nodes,
            range(within.terms.max_s + 1),
            bounds=(0, 1),
            doc="done[v,s]: node v runs in a block of sum s or less",
        )
        model.paid = pyo.Var(
            [(b, c) for b in at for c in self.blocks[b].paid],
            bounds=(0, 1),
            doc="paid[b,c]: block b pays crossing c, whose payer and neighbour it might hold together",
        )
        model.fewest = pyo.Objective(expr=weighted_sum((block.devices, model.taken[b]) for b, block in self._at()))
        self._path()
        self._nodes()
        self._contents()
        self._sides()
        go_on(within.watch)
        model.forbidden = pyo.ConstraintList(doc="stages that only tolerances admitted")

    def _at(self) -> Iterable[tuple[int, Block]]:
        return enumerate(self.blocks)

    def _held(self, v: int, b: int) -> Any:
        """1 if block b holds node v."""
        times = self.blocks[b].times
        return weighted_sum((1.0, self.model.choice[b, o]) for o in self.within.terms.of_node[v] if o in times)

    def _path(self) -> None:
        """A plan is a path over s (section 3.1)."""
        model, terms = self.model, self.within.terms
        instance = terms.instance
        leaving: dict[int, list[int]] = {}
        entering: dict[int, list[int]] = {}
        for b, block in self._at():
            leaving.setdefault(block.s - block.dp_degree, []).append(b)
            entering.setdefault(block.s, []).append(b)

        def through(m: Any, blocks: list[int]) -> Any:
            return weighted_sum((1.0, m.taken[b]) for b in blocks)

        model.one_path = pyo.Constraint(
            rule=lambda m: through(m, leaving.get(0, [])) == 1,
            doc="one block is the last stage, with s = d: sum of taken[b] over those = 1",
        )

        def conserved(m: Any, s: int) -> Any:
            after, before = through(m, leaving.get(s, [])), through(m, entering.get(s, []))
            if instance.exactly and s != instance.num_microbatches:
                return after == before
            return after <= before

        model.conserved = pyo.Constraint(
            range(1, terms.max_s + 1),
            rule=conserved,
            doc="a block with s' = s - d stands before one with sum s'; the path ends anywhere, or at N if exactly N "
            "is required: sum of taken[b] over b with s - d = s' <= sum over b with s = s' [Piper, section 3.1]",
        )
        model.devices = pyo.Constraint(
            expr=weighted_sum((block.devices, model.taken[b]) for b, block in self._at()) <= instance.num_devices,
            doc="the stages take disjoint sets of devices: sum of t d taken[b] <= K [Piper, section 3.1]",
        )

    def _nodes(self) -> None:
        """Nodes of the stages (section 3.1)."""
        model, terms = self.model, self.within.terms
        at_sum: dict[int, list[int]] = {s: [] for s in range(terms.max_s + 1)}
        for b, block in self._at():
            at_sum[block.s].append(b)

        def done_so_far(m: Any, v: int, s: int) -> Any:
            if s == 0:
                return m.done[v, 0] == 0
            return m.done[v, s] - m.done[v, s - 1] == pyo.quicksum(self._held(v, b) for b in at_sum[s])

        model.done_so_far = pyo.Constraint(
            model.done.index_set(),
            rule=until_stopped(self.within.watch, done_so_far),
            doc="what is done grows by what blocks hold: done[v,s] = done[v,s-1] + sum over b of sum s of held(v,b)",
        )
        model.one_place = pyo.Constraint(
            terms.nodes,
            rule=lambda m, v: m.done[v, terms.max_s] == 1,
            doc="a node is in one stage, with one TMPC: done[v,S] = 1 [Piper, section 3.1]",
        )
        model.forward = pyo.Constraint(
            terms.instance.edge_indices,
            range(1, terms.max_s),
            rule=lambda m, u, v, s: m.done[u, s] <= m.done[v, s],
            doc="no edge (u,v) runs backwards: where u is done, so is v behind it [Piper, section 3.1]",
        )
        model.not_empty = pyo.Constraint(
            range(len(self.blocks)),
            rule=lambda m, b: m.taken[b] <= weighted_sum((1.0, m.choice[b, o]) for o in self.blocks[b].times),
            doc="a stage holds a node: taken[b] <= sum over o of choice[b,o]",
        )

    def _contents(self) -> None:
        """What a block may hold: its t, its memory, and its time (sections 3.3, 3.5 and 4)."""
        model, terms = self.model, self.within.terms
        model.apart = pyo.Constraint(
            [(b, group) for b, block in self._at() for group in range(len(block.apart))],
            rule=until_stopped(self.within.watch, self._one_of),
            doc="only a stage holds nodes, all with its t, and one of those that exceed T or M together at most: sum "
            "over such v of held(v,b) <= taken[b] [Piper, section 3.3]",
        )

        def memory(m: Any, b: int) -> Any:
            sizes = self.blocks[b].sizes
            if sum(sizes.values()) <= 1:
                return pyo.Constraint.Skip
            return _parts((part, m.choice[b, o]) for o, part in sizes.items()) <= _whole(m.taken[b])

        model.memory = pyo.Constraint(
            range(len(self.blocks)),
            rule=until_stopped(self.within.watch, memory),
            doc="sum over v of (X(v).a y + X(v).b) <= M taken[b], y = ceil(s/d) [Piper, section 3.5]",
        )

        def boundary(m: Any, b: int, c: int) -> Any:
            crossing, times = terms.crossings[c], self.blocks[b].times
            runs = weighted_sum((1.0, m.choice[b, o]) for o in crossing.options if o in times)
            return runs - self._held(crossing.other, b) <= m.paid[b, c]

        model.boundary = pyo.Constraint(
            model.paid.index_set(),
            rule=until_stopped(self.within.watch, boundary),
            doc="the edges of delta^-(S) and delta^+(S) are paid by their end in S: where c's payer runs with one of "
            "its options, and its neighbour does not run [Piper, section 4]",
        )

        def stage_time(m: Any, b: int) -> Any:
            block = self.blocks[b]
            running = [(part, m.choice[b, o]) for o, part in block.times.items()]
            paid = [(part, m.paid[b, c]) for c, part in block.paid.items()]
            return _parts([*running, *paid]) <= _whole(m.taken[b])

        model.stage_time = pyo.Constraint(
            range(len(self.blocks)),
            rule=until_stopped(self.within.watch, stage_time),
            doc="compute + comm / B, times d, is at most d T: sum of X.p + sum of 2 (c + X.c^fw)/B + sum of 2 (c + "
            "X.c^bw)/B + 4 (d-1)/(d B) sum of X.w <= d T taken[b] [Piper, sections 3.2 and 4]",
        )

    def _one_of(self, m: Any, b: int, group: int) -> Any:
        return pyo.quicksum(self._held(v, b) for v in self.blocks[b].apart[group]) <= m.taken[b]

    def _sides(self) -> None:
        """Implied, but not by the relaxation: where a stage begins and ends."""
        model = self.model

        def pays(m: Any, b: int, side: Side) -> Any:
            paid = [(1.0, m.paid[b, c]) for c in side.crossings]
            certain = [(1.0, m.choice[b, o]) for o in side.options]
            free = pyo.quicksum(self._held(v, b) for v in side.free)
            return m.taken[b] <= weighted_sum([*paid, *certain]) + free

        for number, name in enumerate(("begins", "ends")):
            side = "no predecessor" if name == "begins" else "no successor"
            model.add_component(
                name,
                pyo.Constraint(
                    range(len(self.blocks)),
                    rule=lambda m, b, number=number: pays(m, b, self.blocks[b].sides[number]),
                    doc=f"implied: a stage has a node with {side} in it, which pays a crossing or is free of them",
                ),
            )
        model.holds_sink = pyo.Constraint(
            [b for b, block in self._at() if block.s == block.dp_degree],
            rule=lambda m, b: m.taken[b] <= pyo.quicksum(self._held(v, b) for v in self.within.sinks),
            doc="implied: the last stage holds a node without successors",
        )

    def decide(self, limits: Limits, watch: Watch) -> tuple[Run, tuple[Chosen, ...] | None]:
        """Run HiGHS until it has a plan, or a proof that there is none."""
        run = milp.run(self.model, replace(limits, gap=ANY), watch)
        return run, None if run.values is None else self.chosen(run.values)

    def is_refuted_by_relaxation(self, limits: Limits, watch: Watch) -> bool:
        """Whether more than K devices are needed, by what the duals of the linear relaxation prove."""
        self.model.devices.deactivate()
        bound = Repeated(self.model, limits, watch).run(()).bound
        self.model.devices.activate()
        return bound is not None and bound > self.within.terms.instance.num_devices + _PART_OF_A_DEVICE

    def chosen(self, values: milp.Values) -> tuple[Chosen, ...]:
        """The stages of a solution."""
        model = self.model
        return in_order(
            (block, [o for o in sorted(block.times) if values[model.choice[b, o]] > 0.5])
            for b, block in self._at()
            if values[model.taken[b]] > 0.5
        )

    def forbid_beyond(self, stage: Chosen, in_flight: int) -> None:
        """Not all of these options together, in a block with these degrees and so many micro-batches or more."""
        for b, block in self._at():
            if block.in_flight >= in_flight and block.may_be(stage):
                self.model.forbidden.add(self._running(b, stage.options) <= len(stage.options) - 1)

    def forbid(self, stage: Chosen) -> None:
        """Not all of these options together without another, in a block with these degrees."""
        for b, block in self._at():
            if block.may_be(stage):
                others = self._running(b, (o for o in block.times if o not in stage.options))
                self.model.forbidden.add(self._running(b, stage.options) - others <= len(stage.options) - 1)

    def _running(self, b: int, options: Iterable[int]) -> Any:
        return weighted_sum((1.0, self.model.choice[b, o]) for o in options)


def _parts(terms: Iterable[tuple[float, Any]]) -> Any:
    """Parts of a block in thousandths, those too small for HiGHS as 0."""
    return weighted_sum((milp.in_units(part * milp.NATURAL, 1.0), variable) for part, variable in terms)


def _whole(taken: Any) -> Any:
    return milp.NATURAL * (1 + _ROOM) * taken
