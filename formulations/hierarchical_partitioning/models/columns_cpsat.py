"""Hierarchical stage partitioning as a path of priced superstages (`paths`) in CP-SAT.

Times are whole units, rounded down, so that a bound holds for the instance as declared.

Source: this project; the problem is Piper's, Appendix E.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ortools.sat.python import cp_model

from formulations.contract.family import Answer
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan
from formulations.hierarchical_partitioning.definition.quantities import VOCABULARY
from formulations.hierarchical_partitioning.models.paths import SENTENCES, START, Paths, reach_of, solve_with
from formulations.hierarchical_partitioning.models.usable_arcs import Reach
from formulations.modelling.solve_model import go_on, require
from formulations.stage_partitioning.models.stage_costs import NOISE
from instances.problems.hierarchical_partitioning import HierarchicalInstance
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Run, Watch
from solvers.scaling import cost_scale


class Model(Paths, cpsat.Runnable):
    """``arc[a]`` is 1 if the plan has the superstage of arc a; ``time`` is T in whole units."""

    def __init__(self, reach: Reach, watch: Watch, *, whole: bool) -> None:
        super().__init__(reach, watch, whole=whole)
        self.model = cpsat.SpokenModel()
        for name, text in SENTENCES.items():
            self.model.says(name, text)
        superstages = reach.superstages
        lower = superstages.terms.lower_bound / superstages.K2 if superstages.configs else 0.0
        self.costs = cost_scale(lower, 1, reach.target * 2 * (1 + len(self.arcs)))
        self.arc = [self.model.new_bool_var(f"flow[{a}]") for a in range(len(self.arcs))]
        self.time = self.model.new_int_var(0, self.costs.ceil(reach.target * 2), "time")
        self._path()
        taken = self.total(lambda a: self.arcs[a].devices)
        self.model.add(taken <= superstages.K2).with_name("machines")
        times = [self.costs.floor(arc.time) for arc in self.arcs]
        for v in superstages.terms.nodes:
            go_on(watch)
            holding = [a for a, bits in enumerate(self.bits) if bits >> v & 1]
            slowest = cp_model.LinearExpr.weighted_sum([self.arc[a] for a in holding], [times[a] for a in holding])
            self.model.add(slowest <= self.time).with_name(f"superstage_time[{v}]")
        self.model.minimize(self.time)

    def _path(self) -> None:
        """One path from the empty set to V."""
        leaving, entering = self.ends()
        begins = [self.arc[a] for a in leaving.get(START, [])]
        self.model.add_exactly_one(begins).with_name("one_path")
        for inner, s in self.between():
            out, into = ([self.arc[a] for a in ends.get((inner, s), [])] for ends in (leaving, entering))
            row = cp_model.LinearExpr.sum(out) == cp_model.LinearExpr.sum(into)
            self.model.add(row).with_name(f"conserved[{inner},{s}]")

    def flow(self, a: int) -> Any:
        """1 if the path has arc a."""
        return self.arc[a]

    def total(self, factor: Callable[[int], int]) -> Any:
        """A whole number of every arc of the path, summed."""
        return cp_model.LinearExpr.weighted_sum(self.arc, [factor(a) for a in range(len(self.arcs))])

    def lower_bound(self, bound: float) -> float:
        """A bound in the instance's unit, less what sums in another order may differ by."""
        units = self.costs.restore(cpsat.whole(bound)) * (1 - NOISE)
        return max(0.0, min(units, self.reach.target))  # slower plans are not in the model

    def run(
        self,
        limits: Limits,
        watch: Watch,
        on_solution: Callable[[Any], None] | None = None,
        on_bound: Callable[[float], None] | None = None,
    ) -> Run:
        """Run CP-SAT on it; ``stats`` counts downsets and arcs."""
        run = super().run(limits, watch, on_solution, on_bound)
        return replace(run, stats={**run.stats, **self.counts()})


def build(instance: HierarchicalInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The CP-SAT model of all plans that are hardly slower than the watch's best one; as `paths.reach_of`."""
    watch = watch or Watch()
    reach = reach_of(instance, watch, complete=complete)
    model = Model(reach, watch, whole=complete or bool(instance.requirements))
    require(model, VOCABULARY, instance)
    return model


def solve(instance: HierarchicalInstance, limits: Limits, watch: Watch) -> Answer[HierarchicalPlan]:
    """The optimum by a path of superstages, with CP-SAT.

    Source
    ------
    This project; see the module.
    """
    return solve_with(lambda: build(instance, watch), instance, limits, watch)
