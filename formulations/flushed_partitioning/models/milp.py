"""Flushed stage partitioning as a MILP: the flat assignment model with depth, bottleneck and synchronisation apart.

A batch of m micro-batches takes (1 + (L - 1) / m) C + R per sample, where C is the slowest stage's step, L the stages
on the longest path and R the longest synchronisation. The product of L and C is one row for each depth.

Source: this project; symbols as in the flat family's model (`stage_partitioning.milp`), Piper's.
"""

# mypy: disallow_untyped_calls=False

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyomo.environ as pyo

from formulations.contract.family import Answer
from formulations.flushed_partitioning.definition.problem import evaluate, violations
from formulations.flushed_partitioning.definition.quantities import VOCABULARY
from formulations.flushed_partitioning.models.first_plan import first_plan
from formulations.modelling.solve_model import prove, require
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.problem import MEMORY_SLACK, stage_memory
from formulations.stage_partitioning.model_size import demand_assignment
from formulations.stage_partitioning.models import milp as flat_milp
from formulations.stage_partitioning.models.assignment_data import Terms
from instances.problems.flushed_partitioning import FlushedInstance, Schedule
from solvers.milp.backend import weighted_sum
from solvers.outcome import Limits, Prover, Watch


class Model(flat_milp.Model):
    """The flat model of the weightless instance (``time`` is C), with L, R and the objective added.

    ``known``: the objective of a known plan (``None``: none); no better plan has a step or a synchronisation as long.
    """

    def __init__(self, instance: FlushedInstance, known: float | None, watch: Watch) -> None:
        self.instance = instance
        self.microbatches = instance.flat.num_microbatches
        super().__init__(Terms(instance.weightless), None, watch, upper=known)
        self.weights = [option.tmpc.weight_bytes for option in Terms(instance.flat).options]
        model = self.model
        model.synchronisation = pyo.Var(
            domain=pyo.NonNegativeReals, doc="R, the longest synchronisation of a stage per micro-batch"
        )
        model.total = pyo.Var(domain=pyo.NonNegativeReals, doc="the objective: (1 + (L - 1) / m) C + R")
        self._depths()
        self._batch_time()
        self._stage_synchronisation()
        model.objective.deactivate()
        model.batch = pyo.Objective(expr=model.total)

    def _depths(self) -> None:
        """For every depth from 2 on whether some path has that many stages."""
        model, stages, most = self.model, self.stages, len(self.stages)
        model.level = pyo.Var(
            stages,
            bounds=(1, most),
            doc="level[j]: at least the stages on the longest path from position j on, itself included",
        )
        model.deep = pyo.Var(range(2, most + 1), domain=pyo.Binary, doc="deep[l]: some path may have l stages or more")

        def in_front(m: Any, u: int, v: int, j: int, after: int) -> Any:
            if after <= j:
                return pyo.Constraint.Skip
            both = self._chosen(self.terms.of_node[u], j) + self._chosen(self.terms.of_node[v], after)
            return m.level[j] >= m.level[after] + 1 - most * (2 - both)

        model.in_front = pyo.Constraint(
            self.instance.flat.edge_indices,
            stages,
            stages,
            rule=self._polled(in_front),
            doc="an edge (u,v) from position j to a later one puts j in front of it: level_j > level_after; big-M: "
            "levels are from 1 to the number of positions",
        )
        model.shallow = pyo.Constraint(
            range(2, most + 1),
            stages,
            rule=lambda m, depth, j: m.level[j] <= depth - 1 + (most - depth + 1) * m.deep[depth],
            doc="no path is longer unless it is said to be: level_j <= l - 1 if not deep[l]",
        )
        model.deeper = pyo.Constraint(
            range(3, most + 1),
            rule=lambda m, depth: m.deep[depth] <= m.deep[depth - 1],
            doc="a path of l stages has one of l - 1 in it: deep[l] <= deep[l-1]",
        )

    def _batch_time(self) -> None:
        m = self.microbatches

        def batch_time(model: Any, depth: int) -> Any:
            steps = 1 + (depth - 1) / m
            spared = (depth - 1) / m * self.upper * (1 - model.deep[depth]) if depth > 1 else 0.0
            return model.total >= steps * model.time + model.synchronisation - spared

        self.model.batch_time = pyo.Constraint(
            range(1, len(self.stages) + 1),
            rule=batch_time,
            doc="with l stages on a path a batch takes m + l - 1 steps: total >= (1 + (l - 1)/m) C + R if deep[l]; "
            "big-M: without the path the row asks for (l - 1)/m C less, and C is at most that of a known plan",
        )

    def _stage_synchronisation(self) -> None:
        """R is at least the synchronisation of a stage."""
        flat, terms = self.instance.flat, self.terms

        def stage_synchronisation(m: Any, j: int, d: int) -> Any:
            factor = 4 * (d - 1) / d / flat.bandwidth / flat.num_microbatches
            costs = [self._units(factor * weight) for weight in self.weights]
            most = sum(max(costs[o] for o in options) for options in terms.of_node if options)
            if not most:
                return pyo.Constraint.Skip
            has_d = weighted_sum((1.0, m.degrees[j, t, dp]) for t, dp in terms.configs if dp == d)
            total = weighted_sum((cost, m.choice[o, j]) for o, cost in enumerate(costs))
            return m.synchronisation >= total - most * (1 - has_d)

        self.model.stage_synchronisation = pyo.Constraint(
            self.stages,
            terms.dp_degrees,
            rule=self._polled(stage_synchronisation),
            doc="R is at least the synchronisation of a stage: 4 (d-1)/d sum of X.w / (B m) <= R if its degree is d; "
            "big-M: what all nodes together can have [reconstructed]",
        )

    def numbers_in_flight(self) -> range:
        """As in the flat model; none under GPipe, where the order of the stages does not count."""
        return range(0) if self.instance.schedule is Schedule.GPIPE else super().numbers_in_flight()

    def _memory(self) -> None:
        """As in the flat model; under GPipe all micro-batches are in flight before the first backward pass."""
        if self.instance.schedule is not Schedule.GPIPE:
            super()._memory()
            return
        of_degree = {d: -(-self.microbatches // d) for d in self.terms.dp_degrees}

        def has(m: Any, j: int, y: int) -> Any:
            return weighted_sum((1.0, m.degrees[j, t, d]) for t, d in self.terms.configs if of_degree[d] == y)

        self._add_memory(
            sorted(set(of_degree.values())),
            has,
            "sum over v of (X(v).a y + X(v).b) <= M with y = ceil(m/d) micro-batches in flight, if the stage's degree "
            "is d; big-M: no stage has more bytes than the unit of the row [reconstructed]",
        )

    def hint(self) -> Iterable[tuple[Any, float]]:
        """What it begins with."""
        return self._start

    def cut_off(self, plan: StagePlan, values: Any) -> None:
        """Forbid every stage that is too large."""
        if self.instance.schedule is not Schedule.GPIPE:
            super().cut_off(plan, values)
            return
        flat, m = self.instance.flat, self.microbatches
        for stage in plan.stages:
            if stage_memory(flat, stage, m) <= flat.memory_bytes * MEMORY_SLACK:
                continue
            options = self.terms.chosen(StagePlan((stage,)))[0].options
            fewest = -(-m // stage.dp_degree)
            for j in self.stages:
                degrees = [(t, d) for t, d in self.terms.configs if -(-m // d) >= fewest]
                large = weighted_sum((1.0, self.model.degrees[j, t, d]) for t, d in degrees)
                self.model.forbidden.add(large + self._chosen(options, j) <= len(options))


def build(instance: FlushedInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The Pyomo model of an instance. Raises `modelled.Stopped` once the watch is, `SizeError` if too large.

    A step takes no longer than the watch's best plan; any time if it has none, or if ``complete``.
    """
    watch = watch or Watch()
    watch.bound(Terms(instance.weightless).lower_bound, Prover.BOUNDS)  # no step is shorter
    demand_assignment(instance.flat)
    model = Model(instance, None if complete else watch.best_objective, watch)
    require(model, VOCABULARY, instance)
    return model


def solve(instance: FlushedInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum by HiGHS."""
    return prove(
        instance,
        lambda: build(instance, watch),
        evaluate,
        violations,
        limits,
        watch,
        to_scale=True,
        first=first_plan(instance),
    )
