"""Stage partitioning as a CP-SAT model: Piper's problem as a path of blocks, one named constraint a sentence.

A block b = (s, t, d) is a stage with degrees (t, d) whose data-parallel degrees and those of all later stages sum to s,
so that y = ceil(s/d) micro-batches are in flight in it; what it may hold is in the data (`blocks`). Its nodes v run
with an option o = (v, t, X), X in T(v, t)::

    min T   a path of blocks from s = d (the last stage) on, on K devices; every node in one block, with one option;
            no edge from a later stage to an earlier one; in each block  bytes <= M,  time of nodes and crossings <= T

With a number T for the slowest stage's time (``target``) the relaxation is strong: `block_search` looks for plans
within such numbers.

Exact for the instance as declared: any number of TMPCs, weights and volumes that differ between them, any degrees,
several sources and sinks, "at most" and "exactly" N. Costs and bytes are rounded down (`solvers.scaling`), so the bound
holds; a plan that only rounding let through is cut off and the search goes on.

Source: this project; the problem is Piper's, sections 3.1 to 3.6 and 4.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.quantities import VOCABULARY
from formulations.stage_partitioning.models import block_search
from formulations.stage_partitioning.models.assignment_data import Chosen
from formulations.stage_partitioning.models.block_search import ANY, BlockModel
from formulations.stage_partitioning.models.blocks import Block, Blocks, in_order
from formulations.stage_partitioning.models.stage_quantities import CpsatQuantities
from instances.problems.stage_partitioning import StageInstance
from solvers.build_stop import stops_with
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Run, Watch
from solvers.scaling import Scale, cost_scale, size_scale

_sum = cp_model.LinearExpr.sum
_weighted = cp_model.LinearExpr.weighted_sum

#: Binary digits of a target in whole units: rounding is then far below what is given up of a refuted one.
_DIGITS = 30


def scales(data: Blocks, target: float | None = None) -> tuple[Scale, Scale]:
    """Whole units of times and of bytes."""
    terms, count = data.terms, len(data.terms.options) + len(data.terms.crossings)
    sizes = [size for o in terms.options for size in (o.tmpc.activation_bytes, o.tmpc.static_bytes)]
    byte = size_scale(sizes, data.limit, count * data.limit)
    if target is not None:
        return Scale(_DIGITS - math.ceil(math.log2(target))), byte
    return cost_scale(terms.lower_bound, count + 1, data.largest), byte


def build(data: Blocks, target: float | None = None) -> cpsat.SpokenModel:
    """The model of ``data``; with a target (``data.most``) of plans within it, the one on the fewest devices first."""
    terms, blocks, model = data.terms, data.blocks, cpsat.SpokenModel()
    instance, every, sums = terms.instance, range(len(data.blocks)), range(1, data.terms.max_s + 1)
    time_scale, byte_scale = scales(data, target)

    # fmt: off
    taken = model.booleans("taken", every,
        "taken[b]: the plan has the stage of block b = (s,t,d), with degrees (t,d); those of it and of all later "
        "stages sum to s")
    choice = model.booleans("choice", [(b, o) for b in every for o in blocks[b].times],
        "choice[b,o]: option o, a TMPC of a node, runs in block b")
    done = model.booleans("done", [(v, s) for v in terms.nodes for s in sums],
        "done[v,s]: node v runs in a block of sum s or less (s counts from the output side)")
    paid = model.booleans("paid", [(b, c) for b in every for c in blocks[b].paid],
        "paid[b,c]: block b pays crossing c, whose payer and neighbour it might hold together")
    most = time_scale.ceil(data.most) + 1  # sums of rounded floats may be a little more
    time = most if target is not None else model.integer("time", 0, most,
        "T, the Time-Per-Sample: that of the slowest stage, in whole units [Piper, section 3.2]")

    def number(where: Iterable[int]) -> Any:  # how many of these blocks are taken
        return _sum([taken[b] for b in where])

    def holds(v: int, *where: int) -> Any:  # 1 if one of these blocks holds node v
        return _sum([choice[b, o] for b in where for o in data.own(v, b)])

    # Stages follow each other, on K devices [Piper, section 3.1].
    def conserved(s: int) -> Any:
        in_front, here = number(data.leaving[s]), number(data.of_sum[s])
        return in_front == here if instance.exactly and s != instance.num_microbatches else in_front <= here

    model.row("one_path", model.add_exactly_one([taken[b] for b in data.leaving[0]]),
        "one block is the last stage, with s = d: sum of taken[b] over those = 1")
    model.rows("conserved", sums, conserved,
        "a block with s_b - d_b = s stands in front of one of sum s; the path ends anywhere, or at N if exactly N is "
        "required: sum of taken[b] over b with s_b - d_b = s <= sum over b with s_b = s [Piper, section 3.1]")
    devices = cpsat.weighted_sum((block.devices, taken[b]) for b, block in enumerate(blocks))
    model.row("devices", devices <= instance.num_devices,
        "the stages take disjoint sets of devices: sum of t d taken[b] <= K [Piper, section 3.1]")
    # Every node runs in one of them, and no edge goes backwards [Piper, section 3.1].
    model.rows("done_so_far", done,
        lambda v, s: done[v, s] == done.get((v, s - 1), 0) + holds(v, *data.of_sum[s]),
        "what is done grows by what blocks hold: done[v,s] = done[v,s-1] + sum over b of sum s of holds(v,b)")
    model.rows("one_place", terms.nodes, lambda v: done[v, terms.max_s] == 1,
        "a node is in one stage, with one TMPC: done[v,s] = 1 at the largest s [Piper, section 3.1]")
    model.rows("forward", [(u, v, s) for u, v in instance.edge_indices for s in sums[:-1]],
        lambda u, v, s: done[u, s] <= done[v, s],
        "no edge (u,v) runs backwards: where u is done, so is v behind it [Piper, section 3.1]")
    model.rows("not_empty", every, lambda b: taken[b] <= _sum([choice[b, o] for o in blocks[b].times]),
        "a stage holds a node: taken[b] <= sum over o of choice[b,o]")
    model.rows("apart", [(b, group) for b in every for group in range(len(blocks[b].apart))],
        lambda b, group: _sum([holds(v, b) for v in blocks[b].apart[group]]) <= taken[b],
        "only a stage that is taken holds nodes, and of those that exceed T or M together one at most: sum over such v "
        "of holds(v,b) <= taken[b] [this project]")
    # What a stage holds fits its devices [Piper, section 3.5], and it takes T at most [Piper, sections 3.2 and 4].
    # The limit is rounded down as all sizes are: a sum that keeps M keeps it in whole units, too.
    model.rows("memory", [b for b in every if sum(blocks[b].sizes.values()) > data.limit],
        lambda b: _weighted([choice[b, o] for o in blocks[b].sizes],
                            [byte_scale.floor(size) for size in blocks[b].sizes.values()])
        <= byte_scale.floor(data.limit) * taken[b],
        "sum over v of (X(v).a y + X(v).b) <= M taken[b], y = ceil(s/d) [Piper, section 3.5]")

    def boundary(b: int, c: int) -> Any:
        crossing = terms.crossings[c]
        runs = _sum([choice[b, o] for o in crossing.options if o in blocks[b].times])
        return runs <= holds(crossing.other, b) + paid[b, c]

    def stage_time(b: int) -> Any:
        own = [*((choice[b, o], each) for o, each in blocks[b].times.items()),
               *((paid[b, c], each) for c, each in blocks[b].paid.items())]
        slowest = time if target is None else time * taken[b]
        return _weighted([variable for variable, _ in own], [time_scale.floor(each) for _, each in own]) <= slowest

    model.rows("boundary", paid, boundary,
        "the edges of delta^-(S) and delta^+(S) are paid by their end in S: where c's payer runs with one of its "
        "options, and its neighbour does not run [Piper, section 4]")
    model.rows("stage_time", every, stage_time,
        "compute + comm / B is at most T: (sum of X.p + sum of 2 (c + X.c^fw)/B + sum of 2 (c + X.c^bw)/B + kappa(d) "
        "sum of X.w) / d <= T, times taken[b] if T is a number; kappa(d) = 4 (d-1)/(d B), or /(N B) as released "
        "[Piper, sections 3.2 and 4]")
    # With a number for T: a bound above K devices refutes it.
    model.minimize(time if target is None else devices)
    # fmt: on
    strengthen(model, data, target)
    return model


def strengthen(model: cpsat.SpokenModel, data: Blocks, target: float | None = None) -> None:
    """Implied rows that the relaxation does not have."""
    blocks = data.blocks
    taken, choice, paid = (model.variables[name] for name in ("taken", "choice", "paid"))

    def pays(b: int, number: int) -> Any:
        side = blocks[b].sides[number]
        free = [choice[b, o] for v in side.free for o in data.own(v, b)]
        return taken[b] <= _sum([*(paid[b, c] for c in side.crossings), *(choice[b, o] for o in side.options), *free])

    # fmt: off
    # The first node of a stage, in any order of the graph, has no predecessor in it, and the last one no successor.
    for number, (name, end) in enumerate((("begins", "predecessor"), ("ends", "successor"))):
        model.rows(name, range(len(blocks)), lambda b, number=number: pays(b, number),
            f"implied: a stage has a node with no {end} in it, which pays a crossing or is free of them")
    # Nothing is behind the last stage, so that the successors of its last node would have to be in it.
    model.rows("holds_sink", data.leaving[0],
        lambda b: taken[b] <= _sum([choice[b, o] for v in data.sinks for o in data.own(v, b)]),
        "implied: the last stage holds a node without successors")
    if target is None:  # each stage takes T on its t d devices at most, and all have K; with a number stage_time has it
        second, time = scales(data)[0], model.variables["time"][()]
        times = ((block.devices * second.floor(each), variable) for b, block in enumerate(blocks)
                 for variable, each in [*((choice[b, o], each) for o, each in block.times.items()),
                                        *((paid[b, c], each) for c, each in block.paid.items())])
        model.row("all_device_time", cpsat.weighted_sum(times) <= data.terms.instance.num_devices * time,
            "implied: all stages together have K devices for T each")
    # fmt: on


@dataclass(eq=False)
class Model(BlockModel, CpsatQuantities):
    """The model of ``data``."""

    #: The linear part says most: without all of it 9.15 raises T step by step, for minutes where a second is enough.
    parameters: ClassVar[Mapping[str, Any]] = {**cpsat.INTEGRAL, "linearization_level": 2}

    model: cpsat.SpokenModel
    data: Blocks

    def __post_init__(self) -> None:
        self.taken, self.choice, self.done = (self.model.variables[name] for name in ("taken", "choice", "done"))

    def decide(self, limits: Limits, watch: Watch) -> Run:
        """Run CP-SAT until it has a plan, or a proof that there is none."""
        return cpsat.run(self.model, replace(limits, gap=ANY), watch, parameters=cpsat.INTEGRAL)

    def decisions_of(self, values: cpsat.Values) -> tuple[Chosen, ...]:
        """The stages of a solution."""
        return in_order(
            (block, [o for o in sorted(block.times) if values[self.choice[b, o]]])
            for b, block in enumerate(self.data.blocks)
            if values[self.taken[b]]
        )

    def values_of(self, plan: StagePlan) -> Iterator[tuple[Any, int]]:
        """The blocks and options of a plan, as pairs of a variable and its value."""
        own = self.data.of_plan(plan)
        for b, taken in self.taken.items():
            yield taken, int(b in own)
        for (b, o), choice in self.choice.items():
            yield choice, int(b in own and o in own[b].options)

    def lower_bound(self, bound: float) -> float:
        """T is the scaled T rounded up, and one more, at most: it may exceed the true one by less than two units."""
        return max(0.0, scales(self.data)[0].restore(cpsat.whole(bound) - 2))

    def forbid(self, b: int, stage: Chosen, others: Iterable[int] = ()) -> None:
        """Not all options of a stage together in block b, without one of the others."""
        self.model.says("forbidden", "a stage that takes too much, which only rounding admitted, is cut off")
        choice = self.choice
        literals = [*(~choice[b, o] for o in stage.options), *(choice[b, o] for o in others)]
        self.model.add_bool_or(literals).with_name(f"forbidden[{len(self.model.proto.constraints)}]")

    def _over_stages(self, factor: Callable[[Block], int]) -> Any:
        return cpsat.weighted_sum((factor(block), self.taken[b]) for b, block in enumerate(self.data.blocks))

    def _of_stage_with(self, v: int, factor: Callable[[Block], int]) -> Any:
        blocks = enumerate(self.data.blocks)
        return cpsat.weighted_sum(
            (factor(block), self.choice[b, o]) for b, block in blocks for o in self.data.own(v, b)
        )

    def time_unit(self) -> float | None:
        """The instance's unit of time for 1 of the model's."""
        return scales(self.data)[0].restore(1)

    def _times_with(self, v: int) -> Iterable[tuple[Any, Any]]:
        done, paid, second = self.done, self.model.variables["paid"], scales(self.data)[0]
        for s in range(1, self.terms.max_s + 1):
            times = []
            for b in self.data.of_sum[s]:
                block = self.data.blocks[b]
                times += [(second.floor(time), self.choice[b, o]) for o, time in block.times.items()]
                times += [(second.floor(time), paid[b, c]) for c, time in block.paid.items()]
            yield [done[v, s], *([~done[v, s - 1]] if s > 1 else [])], cpsat.weighted_sum(times)

    def _together(self, u: int, v: int) -> Any:
        model, done, name = self.model, self.done, f"together[{u},{v}]"
        if u != v and name not in self.derived_terms:
            model.says("together", "together[u,v]: nodes u and v are in one stage, for a requirement")
            model.says("together_if", "then they are done at the same sums: done[u,s] = done[v,s]")
            model.says("together_unless", "else not: at some sum s one of them is done and the other is not")
            model.says("parted", "parted[u,v,s]: one of them is done at sum s, and the other is not")
            model.says("parted_if", "then done[u,s] + done[v,s] = 1")
            found, parted = self.derived_terms.setdefault(name, model.new_bool_var(name)), []
            for s in range(1, self.terms.max_s + 1):
                same = model.add(done[u, s] == done[v, s]).with_name(f"together_if[{u},{v},{s}]")
                same.only_enforce_if(found)
                parted.append(model.new_bool_var(f"parted[{u},{v},{s}]"))
                other = model.add(done[u, s] + done[v, s] == 1).with_name(f"parted_if[{u},{v},{s}]")
                other.only_enforce_if(parted[-1])
            model.add_bool_or([found, *parted]).with_name(f"together_unless[{u},{v}]")
        return self.derived_terms.get(name, 1)

    def _stage_of(self, v: int) -> Any:
        model, done, name = self.model, self.done, f"number[{v}]"
        if name not in self.derived_terms:
            model.says("number", "number[v]: stages in front of the one that holds node v, for a requirement")
            model.says("own_number", "that many blocks of larger sums are taken, if node v runs at sum s")
            found = self.derived_terms[name] = model.new_int_var(0, self.most_stages, name)
            for s in range(1, self.terms.max_s + 1):
                front = [self.taken[b] for b, block in enumerate(self.data.blocks) if block.s > s]
                here = [done[v, s], *([~done[v, s - 1]] if s > 1 else [])]
                model.add(found == _sum(front)).with_name(f"own_number[{v},{s}]").only_enforce_if(here)
        return self.derived_terms[name]


def model_within(data: Blocks, target: float | None = None) -> Model:
    """The model of data, as `build` makes it."""
    with stops_with(data.watch):
        return Model(build(data, target), data)


def model_of(instance: StageInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`block_search.data_of`), with its requirements."""
    data = block_search.data_of(instance, watch or Watch(), complete=complete)
    return add_requirements(model_within(data), VOCABULARY, instance)


def solve(instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by CP-SAT: by targets from the plan of ``linearised`` on, or by the model as it is."""
    return block_search.solve(instance, limits, watch, model_within, model_of)
