"""Flushed stage partitioning in CP-SAT: the flat assignment model with depth, bottleneck and synchronisation apart.

A batch of m micro-batches takes (m + L - 1) C / m + R per sample, where C is the slowest stage's step, L the stages on
the longest path and R the longest synchronisation; the objective is m times that.

Source: this project; symbols as in the flat family's model (`stage_partitioning.cpsat`), Piper's.
"""

from __future__ import annotations

import math
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.flushed_partitioning.definition.problem import evaluate, violations
from formulations.flushed_partitioning.definition.quantities import VOCABULARY
from formulations.flushed_partitioning.models.first_plan import first_plan
from formulations.modelling.solve_model import prove, require
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import allowed_dp_degrees
from formulations.stage_partitioning.model_size import demand_assignment
from formulations.stage_partitioning.models import cpsat as flat_cpsat
from formulations.stage_partitioning.models.assignment_data import Terms
from instances.problems.flushed_partitioning import FlushedInstance, Schedule
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Prover, Watch

_weighted = cp_model.LinearExpr.weighted_sum


class Model(flat_cpsat.Model):
    """The flat model of the weightless instance (``time`` is C), with L, R and the objective added.

    Raises
    ------
    formulations.modelling.solve_model.Stopped
        Once the watch is.
    """

    def __init__(self, instance: FlushedInstance, watch: Watch) -> None:
        self.instance = instance
        self.weighted = Terms(instance.flat)
        super().__init__(Terms(instance.weightless), None, watch)
        m, cp = instance.flat.num_microbatches, self.model
        most = self.costs.ceil(self._longest_synchronisation())
        cp.says("time", "C, compute and communication of the slowest stage per micro-batch, in whole units")
        cp.says("synchronisation", "R, the longest synchronisation of a stage per micro-batch, in whole units")
        cp.says("total", "the objective, times m: (m + L - 1) C + m R, in whole units")
        cp.says("batch_time", "with l stages on a path a batch takes m + l - 1 steps: total >= (m + l - 1) C + m R")
        self.synchronisation = cp.new_int_var(0, most, "synchronisation")
        self.total = cp.new_int_var(0, (m + len(self.terms.stages)) * self.upper + m * most, "total")
        for j in self.terms.stages:
            self._synchronise(j)
        for depth, deep in enumerate(self._depths(), start=1):
            total = (m + depth - 1) * self.time + m * self.synchronisation
            cp.add(self.total >= total).only_enforce_if(deep).with_name(f"batch_time[{depth}]")
        cp.minimize(self.total)

    def largest_sum(self, upper: float) -> float:
        """As in the flat model, and all of the objective, with every weight synchronised at once."""
        m = self.instance.flat.num_microbatches
        objective = (m + len(self.terms.stages)) * upper + m * self._longest_synchronisation()
        return max(super().largest_sum(upper), objective)

    def _depths(self) -> list[Any]:
        """For every depth from 1 on whether some path has that many stages; the first is always true."""
        cp, stages = self.model, self.terms.stages
        cp.says("level", "level[j]: at least the stages on the longest path from position j on, itself included")
        cp.says("deep", "deep[l]: some path may have l stages or more")
        cp.says("in_front", "an edge (u,v) from position j to a later one puts j in front of it: level_j > level_after")
        cp.says("shallow", "no path is longer unless it is said to be: level_j <= l - 1 if not deep[l]")
        level = [cp.new_int_var(1, len(stages), f"level[{j}]") for j in stages]
        for u, v in self.instance.flat.edge_indices:
            for j in stages:
                for after in range(j + 1, len(stages)):
                    in_front = cp.add(level[j] >= level[after] + 1).with_name(f"in_front[{u},{v},{j},{after}]")
                    in_front.only_enforce_if([self.holds[u, j], self.holds[v, after]])
        deep = [cp.new_constant(1), *(cp.new_bool_var(f"deep[{depth}]") for depth in range(2, len(stages) + 1))]
        for depth in range(2, len(stages) + 1):
            for j in stages:
                shallow = cp.add(level[j] <= depth - 1).only_enforce_if(~deep[depth - 1])
                shallow.with_name(f"shallow[{depth},{j}]")
        return deep

    def _longest_synchronisation(self) -> float:
        weight = math.fsum(option.tmpc.weight_bytes for option in self.weighted.options)
        return self._synchronisation(max(allowed_dp_degrees(self.instance.flat)), weight)

    def _synchronisation(self, d: int, weight: float) -> float:
        flat = self.instance.flat
        return 4 * (d - 1) / d * weight / flat.bandwidth / flat.num_microbatches

    def _synchronise(self, j: int) -> None:
        """R is at least the synchronisation of a stage."""
        self.model.says(
            "stage_synchronisation",
            "R is at least the synchronisation of a stage: 4 (d-1)/d sum of X.w / (B m) <= R if its degree is d "
            "[reconstructed]",
        )
        for d in self.terms.dp_degrees:
            costs = [self.costs.floor(self._synchronisation(d, o.tmpc.weight_bytes)) for o in self.weighted.options]
            total = _weighted(self._choices(j), costs)
            row = self.model.add(total <= self.synchronisation).only_enforce_if(self.has_d[j, d])
            row.with_name(f"stage_synchronisation[{j},{d}]")

    def most_in_flight(self) -> int:
        """As in the flat model; under GPipe a stage may hold all micro-batches, however few devices there are."""
        m = self.instance.flat.num_microbatches
        return m if self.instance.schedule is Schedule.GPIPE else super().most_in_flight()

    def numbers_in_flight(self) -> range:
        """As in the flat model; none under GPipe, where the order of the stages does not count."""
        return range(0) if self.instance.schedule is Schedule.GPIPE else super().numbers_in_flight()

    def _memory(self, j: int) -> None:
        """As in the flat model; under GPipe all micro-batches are in flight before the first backward pass."""
        if self.instance.schedule is not Schedule.GPIPE:
            super()._memory(j)
            return
        self.model.says(
            "memory",
            "sum over v of (X(v).a y + X(v).b) <= M with y = ceil(m/d) micro-batches in flight, if the stage's degree "
            "is d [reconstructed]",
        )
        limit = self.sizes.floor(self.terms.memory_limit)
        for d in self.terms.dp_degrees:
            y = -(-self.instance.flat.num_microbatches // d)
            sizes = [self.sizes.floor(self._size(o, y)) for o in range(len(self.terms.options))]
            mem = _weighted(self._choices(j), sizes)
            self.model.add(mem <= limit).only_enforce_if(self.has_d[j, d]).with_name(f"memory[{j},{d}]")

    def lower_bound(self, bound: float) -> float:
        """C and R are rounded up to whole units, and the objective is times m."""
        m = self.instance.flat.num_microbatches
        return max(0.0, self.costs.restore((cpsat.whole(bound) - (2 * m + len(self.terms.stages))) / m))

    def cut_off(self, plan: StagePlan, values: Any) -> None:
        """Not this combination of decisions, which only rounded bytes allowed, nor any with a stage as large."""
        decided = [*self.choice.values(), *self.degrees.values()]
        self.forbid([~var for var in decided if values[var]])
        if self.instance.schedule is Schedule.GPIPE:
            self._cut_large(plan)
        else:
            super().cut_off(plan, values)

    def _cut_large(self, plan: StagePlan) -> None:
        """Of every stage that is too large under GPipe, not the fewest TMPCs that are too large together.

        They are at any degree that leaves as many micro-batches to a replica.
        """
        m, limit = self.instance.flat.num_microbatches, self.terms.memory_limit
        for chosen in self.terms.chosen(plan):
            y = -(-m // chosen.dp_degree)
            sizes = {o: self._size(o, y) for o in chosen.options}
            fewest: list[int] = []
            for option in sorted(sizes, key=lambda o: -sizes[o]):
                fewest.append(option)
                if math.fsum(sizes[o] for o in fewest) > limit:
                    break
            else:
                continue
            for (j, d), has_d in self.has_d.items():
                if -(-m // d) >= y:
                    self.forbid([~has_d, *(~self.choice[o, j] for o in fewest)])

    def _size(self, option: int, in_flight: int) -> float:
        tmpc = self.terms.options[option].tmpc
        return tmpc.activation_bytes * in_flight + tmpc.static_bytes


def build(
    instance: FlushedInstance,
    watch: Watch | None = None,
    *,
    complete: bool = False,  # noqa: ARG001 - it always is
) -> Model:
    """The CP-SAT model of an instance. Raises `modelled.Stopped` once the watch is, `SizeError` if too large.

    Nothing is left out for a known plan, ``complete`` or not.
    """
    watch = watch or Watch()
    watch.bound(Terms(instance.weightless).lower_bound, Prover.BOUNDS)  # no step is shorter
    demand_assignment(instance.flat)
    model = Model(instance, watch)
    require(model, VOCABULARY, instance)
    return model


def solve(instance: FlushedInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by CP-SAT."""
    first = first_plan(instance)
    return prove(instance, lambda: build(instance, watch), evaluate, violations, limits, watch, first=first)
