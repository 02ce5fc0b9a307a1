"""Flushed stage partitioning in CP-SAT: the flat model of blocks with depth, bottleneck and synchronisation apart.

A batch of m micro-batches takes (m + L - 1) C / m + R per sample, where C is the slowest stage's step, L the stages on
the longest path and R the longest synchronisation; the objective is m times that. Where replicas fill it is
(S + P) / m + R, with S the longest path in times t of a replica, and P the most of (ceil(m/d) - 1) t.

Source: this project; symbols as in the flat problem's model (`stage_partitioning.models.cpsat`), Piper's.
"""

from typing import Any

from formulations.contract.family import Answer
from formulations.flushed_partitioning.definition.problem import evaluate, violations
from formulations.flushed_partitioning.definition.quantities import VOCABULARY
from formulations.flushed_partitioning.models.blocks import FlushedBlocks, FlushedModel, data_of
from formulations.flushed_partitioning.models.first_plan import first_plan
from formulations.modelling.solve_model import add_requirements, prove
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.models import cpsat as flat
from instances.problems.flushed_partitioning import FlushedInstance
from solvers.build_stop import stops_with
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch


def build(data: FlushedBlocks) -> cpsat.SpokenModel:
    """The flat model of the instance without weights (``time`` is C), with L, R and the objective added."""
    model = flat.build(data)
    second, m, most = flat.scales(data)[0], data.microbatches, len(data.terms.stages)
    choice = model.variables["choice"]
    slowest, longest = second.ceil(data.most) + 1, second.ceil(data.longest) + 1
    # fmt: off
    model.says("time", "C, compute and communication of the slowest stage per micro-batch, in whole units")
    synchronisation = model.integer("synchronisation", 0, longest,
        "R, the longest synchronisation of a stage per micro-batch, in whole units")
    total = model.integer("total", 0, (m + most) * slowest + m * longest, "the objective, times m, in whole units")

    def stage_synchronisation(b: int) -> Any:
        own = {o: second.floor(data.synchronisation(b, o)) for o in data.blocks[b].times}
        return cpsat.weighted_sum((units, choice[b, o]) for o, units in own.items()) <= synchronisation

    model.rows("stage_synchronisation", range(len(data.blocks)), stage_synchronisation,
        "R is at least the synchronisation of a stage: 4 (d-1)/d sum of X.w / (B m) <= R [reconstructed]")
    # fmt: on
    (_fill_by_replicas if data.by_replicas else _fill_by_stages)(model, data)
    model.minimize(total)
    return model


def _in_front(model: cpsat.SpokenModel, data: FlushedBlocks, path: Any, own: Any, sentence: str) -> None:
    """``path[s]`` is at least ``own[s]`` more than that of a smaller sum to which an edge leads."""
    done, sums = model.variables["done"], range(1, data.terms.max_s + 1)

    def in_front(u: int, v: int, s: int, after: int) -> tuple[Any, ...]:
        before = [~done[u, s - 1], *([~done[v, after - 1]] if after > 1 else [])]
        return path[s] >= path[after] + own[s], done[u, s], done[v, after], *before

    edges = data.flushed.flat.edge_indices
    model.rows(
        "in_front", [(u, v, s, after) for u, v in edges for s in sums for after in range(1, s)], in_front, sentence
    )


# fmt: off
def _fill_by_stages(model: cpsat.SpokenModel, data: FlushedBlocks) -> None:
    """L, and the rows of the objective."""
    m, most, sums = data.microbatches, len(data.terms.stages), range(1, data.terms.max_s + 1)
    time, synchronisation, total = (model.variables[name][()] for name in ("time", "synchronisation", "total"))
    level = model.integers("level", sums, 1, most,
        "level[s]: at least the stages on the longest path from sum s on, itself included")
    deep = model.booleans("deep", range(2, most + 1), "deep[l]: some path may have l stages or more")

    def batch_time(depth: int) -> tuple[Any, ...]:
        row = total >= (m + depth - 1) * time + m * synchronisation
        return row, *([deep[depth]] if depth > 1 else [])

    _in_front(model, data, level, dict.fromkeys(sums, 1),
        "an edge (u,v) from sum s to a smaller one puts s in front of it: level_s > level_after")
    model.rows("shallow", [(depth, s) for depth in deep for s in sums],
        lambda depth, s: (level[s] <= depth - 1, ~deep[depth]),
        "no path is longer unless it is said to be: level_s <= l - 1 if not deep[l]")
    model.rows("deeper", range(3, most + 1), lambda depth: model.add_implication(deep[depth], deep[depth - 1]),
        "implied: where a path may have l stages, it may have l - 1; the search needs fewer conflicts with it")
    model.rows("batch_time", range(1, most + 1), batch_time,
        "with l stages on a path a batch takes m + l - 1 steps: total >= (m + l - 1) C + m R if deep[l]")


def _fill_by_replicas(model: cpsat.SpokenModel, data: FlushedBlocks) -> None:
    """S and P, and the rows of the objective."""
    second, m, sums = flat.scales(data)[0], data.microbatches, range(1, data.terms.max_s + 1)
    time, synchronisation, total = (model.variables[name][()] for name in ("time", "synchronisation", "total"))
    # S is at most that of a known plan, whose objective ``most`` is, or what all layers take; each time is rounded.
    longest = second.ceil(min(m * data.most, data.terms.largest_time)) + len(data.terms.stages)
    own = model.integers("own", sums, 0, longest,
        "own[s]: t of the stage of sum s, its time for a micro-batch on a replica; 0 without one")
    path = model.integers("path", sums, 0, longest,
        "path[s]: at least the sum of t on the heaviest path from sum s on, itself included")
    fill = model.integer("fill", 0, longest, "S, the sum of t on the heaviest path")
    later = model.integer("later", 0, m * (second.ceil(data.most) + 1),
        "P, the most that the busiest replica of a stage runs behind its first micro-batch")

    def replica_time(b: int, factor: int) -> Any:
        return cpsat.weighted_sum((factor * second.floor(each), model.variables[name][b, at])
                                  for (name, at), each in data.replica_times(b))

    every = range(len(data.blocks))
    model.rows("replica_time", every, lambda b: replica_time(b, 1) <= own[data.blocks[b].s],
        "t of a stage, d times its compute and communication: sum of X.p and of what it pays at its boundary <= own[s]")
    _in_front(model, data, path, own,
        "an edge (u,v) from sum s to a smaller one puts s in front of it: path_s >= own_s + path_after")
    model.rows("path_ends", sums, lambda s: path[s] >= own[s], "a path has its first stage: path_s >= own_s")
    model.rows("heaviest", sums, lambda s: path[s] <= fill, "no path is heavier than S: path_s <= S")
    model.rows("later_rounds", every, lambda b: replica_time(b, data.later(b)) <= later,
        "the busiest of d replicas runs ceil(m/d) micro-batches, one of them in S: (ceil(m/d) - 1) t <= P")
    model.row("batch_time", total >= fill + later + m * synchronisation,
        "a batch takes a micro-batch on the heaviest path, and all others of the busiest replica: total >= S + P + m R")
    model.row("steps", total >= m * time + m * synchronisation,
        "implied: m C is at most what a replica runs, of which S has one micro-batch and P the others")
# fmt: on


class Model(FlushedModel, flat.Model):
    """The model of ``data``."""

    data: FlushedBlocks

    def cut_off(self, plan: StagePlan, values: Any) -> None:
        """Not this combination of decisions, which only rounded bytes allowed, nor any with a stage as large."""
        decided = [*self.taken.values(), *self.choice.values()]
        self.model.says("forbidden", "a plan with more bytes than fit, which only rounding admitted, is cut off")
        cut = self.model.add_bool_or([~each for each in decided if values[each]])
        cut.with_name(f"forbidden[{len(self.model.proto.constraints)}]")
        super().cut_off(plan, values)

    def lower_bound(self, bound: float) -> float:
        """C and R are rounded up to whole units, and by one more at most; the objective is times m."""
        m, most = self.data.microbatches, len(self.data.terms.stages)
        return max(0.0, flat.scales(self.data)[0].restore((cpsat.whole(bound) - 2 * (2 * m + most)) / m))


def model_of(instance: FlushedInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements; `solve_model.Stopped` once the watch is."""
    data = data_of(instance, watch or Watch(), complete=complete)
    with stops_with(data.watch):
        return add_requirements(Model(build(data), data), VOCABULARY, instance)


def solve(instance: FlushedInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by CP-SAT."""
    first = first_plan(instance)
    return prove(instance, lambda: model_of(instance, watch), evaluate, violations, limits, watch, first=first)
