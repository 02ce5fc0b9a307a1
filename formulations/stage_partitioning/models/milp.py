"""Stage partitioning as a mixed-integer program in Pyomo: Piper's problem as a path of blocks, a constraint a sentence.

A block b = (s, t, d) is a stage with degrees (t, d) whose data-parallel degrees and those of all later stages sum to s,
so that y = ceil(s/d) micro-batches are in flight in it; what it may hold is in the data (`blocks`). Its nodes v run
with an option o = (v, t, X), X in T(v, t)::

    min T   a path of blocks from s = d (the last stage) on, on K devices; every node in one block, with one option;
            no edge from a later stage to an earlier one; in each block  bytes <= M,  time of nodes and crossings <= T

With a number T for the slowest stage's time (``target``) no big-M is left, and the relaxation is strong:
`block_search` looks for plans within such numbers.

Exact for the instance as declared; times are in parts of T (without a target: of what bounds it) and bytes in parts
of M, so that HiGHS works on numbers of natural size, and a plan that its tolerances let through is cut off. (Tolerances
are HiGHS's own: at 1e-9 it loses the 1e-9 by which a plan may exceed M, and with it plans that fill M.)

Source: this project; the problem is Piper's, sections 3.1 to 3.6 and 4.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.quantities import VOCABULARY
from formulations.stage_partitioning.models import block_search
from formulations.stage_partitioning.models.assignment_data import Chosen
from formulations.stage_partitioning.models.block_search import ANY, BlockModel
from formulations.stage_partitioning.models.blocks import Block, Blocks, Side, in_order
from formulations.stage_partitioning.models.stage_quantities import MilpQuantities
from instances.problems.stage_partitioning import StageInstance
from solvers.build_stop import stops_with
from solvers.milp import backend as milp
from solvers.milp.backend import in_units, weighted_sum
from solvers.milp.reusable_lp import Repeated
from solvers.outcome import Limits, Run, Watch

#: What fills a block exactly may exceed it by this part, so that no solver's tolerance loses it.
_ROOM = 1e-9

#: The bounds that T lies between count as no further apart.
_SPREAD = 10.0

#: Devices are counted: a bound this little above a number of them says that one more is needed.
_PART_OF_A_DEVICE = 1e-3


def unit_of_time(data: Blocks, target: float | None = None) -> float:
    """The model's unit of time, in the instance's."""
    least = max(data.terms.lower_bound, data.most / _SPREAD)
    return (least if target is None else target) / milp.NATURAL


def build(data: Blocks, target: float | None = None) -> pyo.ConcreteModel:
    """The model of ``data``; with a target (``data.most``) of plans within it, the one on the fewest devices first."""
    terms, blocks, every = data.terms, data.blocks, range(len(data.blocks))
    instance, time_unit, byte_unit = terms.instance, unit_of_time(data, target), (data.limit or 1.0) / milp.NATURAL

    model = pyo.ConcreteModel()
    model.taken = pyo.Var(every, domain=pyo.Binary, doc="taken[b]: the plan has the stage of block b = (s,t,d), with "
                          "degrees (t,d); those of it and of all later stages sum to s")  # fmt: skip
    model.choice = pyo.Var(((b, o) for b in every for o in blocks[b].times), domain=pyo.Binary,
                           doc="choice[b,o]: option o, a TMPC of a node, runs in block b")  # fmt: skip
    model.done = pyo.Var(terms.nodes, range(terms.max_s + 1), bounds=(0, 1),
                         doc="done[v,s]: node v runs in a block of sum s or less (from the output side)")  # fmt: skip
    model.paid = pyo.Var(((b, c) for b in every for c in blocks[b].paid), bounds=(0, 1), doc="paid[b,c]: block b pays "
                         "crossing c, whose payer and neighbour it might hold together")  # fmt: skip
    if target is None:
        model.time = pyo.Var(bounds=(0, data.most / time_unit * (1 + milp.ROOM)),
                             doc="T, the Time-Per-Sample: that of the slowest stage [Piper, section 3.2]")  # fmt: skip

    def number(where: Iterable[int]) -> Any:  # how many of these blocks are taken
        return weighted_sum((1.0, model.taken[b]) for b in where)

    def holds(v: int, *where: int) -> Any:  # 1 if one of these blocks holds node v
        return weighted_sum((1.0, model.choice[b, o]) for b in where for o in data.own(v, b))

    # Stages follow each other, on K devices [Piper, section 3.1].
    def conserved(_: Any, s: int) -> Any:
        in_front, here = number(data.leaving[s]), number(data.of_sum[s])
        return in_front == here if instance.exactly and s != instance.num_microbatches else in_front <= here

    model.one_path = pyo.Constraint(expr=number(data.leaving[0]) == 1, doc="one block is the last stage, "
                                    "with s = d: sum of taken[b] over those = 1")  # fmt: skip
    model.conserved = pyo.Constraint(
        range(1, terms.max_s + 1), rule=conserved,
        doc="a block with s_b - d_b = s stands in front of one of sum s; the path ends anywhere, or at N if exactly N "
        "is required: sum of taken[b] over s_b - d_b = s <= sum over s_b = s [Piper, section 3.1]")  # fmt: skip
    devices = weighted_sum((block.devices, model.taken[b]) for b, block in enumerate(blocks))
    model.devices = pyo.Constraint(expr=devices <= instance.num_devices, doc="the stages take disjoint sets of "
                                   "devices: sum of t d taken[b] <= K [Piper, section 3.1]")  # fmt: skip

    # Every node runs in one of them, and no edge goes backwards [Piper, section 3.1].
    model.done_so_far = pyo.Constraint(
        model.done.index_set(),
        rule=lambda m, v, s: m.done[v, s] - (m.done[v, s - 1] if s else 0) == holds(v, *data.of_sum[s]),
        doc="what is done grows by what blocks hold: done[v,s] = done[v,s-1] + sum over b of sum s of holds(v,b)",
    )
    model.one_place = pyo.Constraint(terms.nodes, rule=lambda m, v: m.done[v, terms.max_s] == 1, doc="a node is in one "
                                     "stage, with one TMPC: done[v,s] = 1, s largest [Piper, section 3.1]")  # fmt: skip
    model.forward = pyo.Constraint(
        instance.edge_indices, range(1, terms.max_s), rule=lambda m, u, v, s: m.done[u, s] <= m.done[v, s],
        doc="no edge (u,v) runs backwards: where u is done, so is v behind it [Piper, section 3.1]")  # fmt: skip
    model.not_empty = pyo.Constraint(
        every, rule=lambda m, b: m.taken[b] <= weighted_sum((1.0, m.choice[b, o]) for o in blocks[b].times),
        doc="a stage holds a node: taken[b] <= sum over o of choice[b,o]")  # fmt: skip
    model.apart = pyo.Constraint(
        ((b, group) for b, block in enumerate(blocks) for group in range(len(block.apart))),
        rule=lambda m, b, group: pyo.quicksum(holds(v, b) for v in blocks[b].apart[group]) <= m.taken[b],
        doc="only a stage that is taken holds nodes, and of those that exceed T or M together one at most: sum over "
        "such v of holds(v,b) <= taken[b] [this project]")  # fmt: skip

    # What a stage holds fits its devices [Piper, section 3.5], and it takes T at most [Piper, sections 3.2 and 4].
    model.memory = pyo.Constraint(
        (b for b, block in enumerate(blocks) if sum(block.sizes.values()) > data.limit),
        rule=lambda m, b: weighted_sum((in_units(y, byte_unit), m.choice[b, o]) for o, y in blocks[b].sizes.items())
        <= milp.NATURAL * (1 + _ROOM) * m.taken[b],
        doc="sum over v of (X(v).a y + X(v).b) <= M taken[b], y = ceil(s/d) [Piper, section 3.5]")  # fmt: skip

    def boundary(m: Any, b: int, c: int) -> Any:
        crossing = terms.crossings[c]
        runs = weighted_sum((1.0, m.choice[b, o]) for o in crossing.options if o in blocks[b].times)
        return runs - holds(crossing.other, b) <= m.paid[b, c]

    def stage_time(m: Any, b: int) -> Any:
        running = [(in_units(time, time_unit), m.choice[b, o]) for o, time in blocks[b].times.items()]
        paid = [(in_units(time, time_unit), m.paid[b, c]) for c, time in blocks[b].paid.items()]
        most = m.time if target is None else target / time_unit * (1 + _ROOM) * m.taken[b]
        return weighted_sum([*running, *paid]) <= most

    model.boundary = pyo.Constraint(
        model.paid.index_set(), rule=boundary,
        doc="the edges of delta^-(S) and delta^+(S) are paid by their end in S: where c's payer runs with one of its "
        "options, and its neighbour does not run [Piper, section 4]")  # fmt: skip
    model.stage_time = pyo.Constraint(
        every, rule=stage_time,
        doc="compute + comm / B is at most T: (sum of X.p + sum of 2 (c + X.c^fw)/B + sum of 2 (c + X.c^bw)/B + "
        "kappa(d) sum of X.w) / d <= T, times taken[b] if T is a number; kappa(d) = 4 (d-1)/(d B), or /(N B) as "
        "released [Piper, sections 3.2 and 4]")  # fmt: skip
    # With a number for T: a bound above K devices refutes it.
    model.objective = pyo.Objective(expr=model.time if target is None else devices)
    strengthen(model, data, target)
    model.forbidden = pyo.ConstraintList(doc="stages that only tolerances admitted")
    return model


def strengthen(model: pyo.ConcreteModel, data: Blocks, target: float | None = None) -> None:
    """Implied rows that the relaxation does not have."""
    blocks, second = data.blocks, unit_of_time(data, target)

    def pays(m: Any, b: int, side: Side) -> Any:
        certain = [(1.0, m.choice[b, o]) for o in side.options]
        free = [(1.0, m.choice[b, o]) for v in side.free for o in data.own(v, b)]
        return m.taken[b] <= weighted_sum([*((1.0, m.paid[b, c]) for c in side.crossings), *certain, *free])

    # The first node of a stage, in any order of the graph, has no predecessor in it, and the last one no successor.
    for number, (name, side) in enumerate((("begins", "predecessor"), ("ends", "successor"))):
        model.add_component(name, pyo.Constraint(
            range(len(blocks)), rule=lambda m, b, number=number: pays(m, b, blocks[b].sides[number]),
            doc=f"implied: a stage has a node with no {side} in it, which pays a crossing or is free of them",
        ))  # fmt: skip
    # Nothing is behind the last stage, so that the successors of its last node would have to be in it.
    model.holds_sink = pyo.Constraint(
        data.leaving[0], rule=lambda m, b: m.taken[b] <= weighted_sum((1.0, m.choice[b, o]) for v in data.sinks
                                                                      for o in data.own(v, b)),
        doc="implied: the last stage holds a node without successors")  # fmt: skip
    if target is None:  # each stage takes T on its t d devices at most, and all have K; with a number stage_time has it
        times = ((block.devices * in_units(time, second), variable) for b, block in enumerate(blocks)
                 for variable, time in [*((model.choice[b, o], time) for o, time in block.times.items()),
                                        *((model.paid[b, c], time) for c, time in block.paid.items())])  # fmt: skip
        model.all_device_time = pyo.Constraint(
            expr=weighted_sum(times) <= data.terms.instance.num_devices * model.time,
            doc="implied: all stages together have K devices for T each")  # fmt: skip


@dataclass(eq=False)
class Model(BlockModel, MilpQuantities):
    """The model of ``data``."""

    model: Any
    data: Blocks

    def decide(self, limits: Limits, watch: Watch) -> Run:
        """Run HiGHS until it has a plan, or a proof that there is none."""
        return milp.run(self.model, replace(limits, gap=ANY), watch)

    def is_refuted_by_relaxation(self, limits: Limits, watch: Watch) -> bool:
        """Whether more than K devices are needed, by what the duals of the linear relaxation prove."""
        self.model.devices.deactivate()
        bound = Repeated(self.model, limits, watch).run(()).bound
        self.model.devices.activate()
        return bound is not None and bound > self.terms.instance.num_devices + _PART_OF_A_DEVICE

    def decisions_of(self, values: milp.Values) -> tuple[Chosen, ...]:
        """The stages of a solution."""
        model = self.model
        return in_order(
            (block, [o for o in sorted(block.times) if values[model.choice[b, o]] > 0.5])
            for b, block in enumerate(self.data.blocks)
            if values[model.taken[b]] > 0.5
        )

    def values_of(self, plan: StagePlan) -> Iterator[tuple[Any, int]]:
        """The blocks and options of a plan, as pairs of a variable and its value."""
        own = self.data.of_plan(plan)
        for b, taken in self.model.taken.items():
            yield taken, int(b in own)
        for (b, o), choice in self.model.choice.items():
            yield choice, int(b in own and o in own[b].options)

    def lower_bound(self, bound: float) -> float:
        """The bound in the instance's unit, less what the solver's tolerances may have added."""
        return milp.proved_bound(bound, to_scale=True) * unit_of_time(self.data)

    def forbid(self, b: int, stage: Chosen, others: Iterable[int] = ()) -> None:
        """Not all options of a stage together in block b, without one of the others."""
        choice, options = self.model.choice, stage.options
        together = weighted_sum([*((1.0, choice[b, o]) for o in options), *((-1.0, choice[b, o]) for o in others)])
        self.model.forbidden.add(together <= len(options) - 1)

    def _over_stages(self, factor: Callable[[Block], int]) -> Any:
        return weighted_sum((factor(block), self.model.taken[b]) for b, block in enumerate(self.data.blocks))

    def _of_stage_with(self, v: int, factor: Callable[[Block], int]) -> Any:
        blocks = enumerate(self.data.blocks)
        return weighted_sum(
            (factor(block), self.model.choice[b, o]) for b, block in blocks for o in self.data.own(v, b)
        )

    def time_unit(self) -> float | None:
        """The instance's unit of time for 1 of the model's."""
        return unit_of_time(self.data)

    def _times_with(self, v: int) -> Iterable[tuple[Any, Any]]:
        model, unit = self.model, unit_of_time(self.data)
        for s in range(1, self.terms.max_s + 1):
            times = []
            for b in self.data.of_sum[s]:
                block = self.data.blocks[b]
                times += [(in_units(time, unit), model.choice[b, o]) for o, time in block.times.items()]
                times += [(in_units(time, unit), model.paid[b, c]) for c, time in block.paid.items()]
            yield model.done[v, s] - model.done[v, s - 1], weighted_sum(times)

    def _together(self, u: int, v: int) -> Any:
        model = self.model
        if model.component("together") is None:
            model.together = pyo.Var(
                pyo.Any,
                bounds=(0, 1),
                dense=False,
                doc="together[u,v,s]: a block of sum s holds nodes u and v, for a requirement",
            )
            model.holds_each = pyo.Constraint(pyo.Any, doc="it holds both of them: together[u,v,s] <= done[u,s] - "
                                              "done[u,s-1], and so for v")  # fmt: skip
            model.holds_both = pyo.Constraint(pyo.Any, doc="what holds both holds them together: together[u,v,s] >= "
                                              "what is done of u and of v at s, less 1")  # fmt: skip
        sums = range(1, self.terms.max_s + 1)
        for s in sums:
            if (u, v, s) not in model.together:
                first, second = (model.done[w, s] - model.done[w, s - 1] for w in (u, v))
                here = model.together[u, v, s]
                model.holds_each[u, v, s, 0] = here <= first
                model.holds_each[u, v, s, 1] = here <= second
                model.holds_both[u, v, s] = here >= first + second - 1
        return weighted_sum((1, model.together[u, v, s]) for s in sums)

    def _stage_of(self, v: int) -> Any:
        model, most = self.model, self.most_stages
        if model.component("number") is None:
            model.number = pyo.Var(
                pyo.Any,
                bounds=(0, most),
                dense=False,
                doc="number[v]: stages in front of the one that holds node v, for a requirement",
            )
            model.own_number = pyo.Constraint(pyo.Any, doc="that many blocks of larger sums are taken, if node v runs "
                                              "at sum s; big-M: no plan has more stages")  # fmt: skip
        for s in range(1, self.terms.max_s + 1):
            if (v, s, 0) not in model.own_number:
                elsewhere = most * (1 - (model.done[v, s] - model.done[v, s - 1]))
                front = weighted_sum((1, model.taken[b]) for b, block in enumerate(self.data.blocks) if block.s > s)
                model.own_number[v, s, 0] = model.number[v] <= front + elsewhere
                model.own_number[v, s, 1] = model.number[v] >= front - elsewhere
        return weighted_sum([(1, model.number[v])])


def model_within(data: Blocks, target: float | None = None) -> Model:
    """The model of data, as `build` makes it."""
    with stops_with(data.watch):
        return Model(build(data, target), data)


def model_of(instance: StageInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`block_search.data_of`), with its requirements."""
    data = block_search.data_of(instance, watch or Watch(), complete=complete)
    return add_requirements(model_within(data), VOCABULARY, instance)


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by HiGHS: by targets from the plan of ``linearised`` on, or by the model as it is."""
    return block_search.solve(instance, limits, watch, model_within, model_of)
