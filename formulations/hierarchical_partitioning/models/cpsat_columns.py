"""Hierarchical stage partitioning as a path of priced superstages (`columns`) in CP-SAT.

Times are whole units, rounded down, so that a bound holds for the instance as declared.

Source: this project; the problem is Piper's, Appendix E.
"""

from dataclasses import dataclass, replace
from typing import Any

from formulations.contract.family import Answer
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan
from formulations.hierarchical_partitioning.definition.quantities import VOCABULARY
from formulations.hierarchical_partitioning.models.columns import Data, Paths, solve_with, usable
from formulations.modelling.layered_paths import START
from formulations.modelling.solve_model import add_requirements
from formulations.stage_partitioning.models.stage_costs import NOISE
from instances.problems.hierarchical_partitioning import HierarchicalInstance
from solvers.build_stop import stops_with
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, OnBound, OnSolution, Run, Watch
from solvers.scaling import cost_scale


def data_of(instance: HierarchicalInstance, watch: Watch, *, complete: bool) -> Data:
    """The superstages that are `usable`, with times in whole units, rounded down."""
    reach, arcs = usable(instance, watch, complete=complete)
    superstages, most = reach.superstages, reach.target * 2
    lower = superstages.terms.lower_bound / superstages.K2 if superstages.configs else 0.0
    scale = cost_scale(lower, 1, most * (1 + len(arcs)))
    return Data(reach, arcs, [scale.floor(arc.time) for arc in arcs], scale.restore(1), scale.ceil(most))


def build(data: Data) -> cpsat.SpokenModel:
    """The model of all paths."""
    arcs = range(len(data.arcs))
    model = cpsat.SpokenModel()
    flow = model.booleans(
        "flow", arcs,
        "flow[a]: the plan has the superstage of arc a: nodes D \\ D' on d_2 machines, in which degrees d_1 sum to x, "
        "in front of degrees that sum to s",
    )  # fmt: skip
    time = model.new_int_var(0, int(data.most), "time")
    model.says("time", "T, the time per sample: that of the slowest superstage [Piper, Appendix E]")

    def total(own: list[int]) -> Any:
        return cpsat.weighted_sum((1, flow[a]) for a in own)

    model.says("one_path", "one path begins at the empty set: sum over the arcs a that leave it of flow[a] = 1")
    model.add_exactly_one(flow[a] for a in data.leaving[START]).with_name("one_path")
    model.rows(
        "conserved", data.between, lambda *at: total(data.leaving[at]) == total(data.entering[at]),
        "it leaves a state (D,s) as often as it enters it, up to V: sum over a that leave of flow[a] = sum over a that "
        "enter of flow[a]",
    )  # fmt: skip
    model.says("machines", "the superstages of the path take at most K_2 machines: sum over a of d_2 flow[a] <= K_2 "
               "[Piper, Appendix E]")  # fmt: skip
    machines = cpsat.weighted_sum((data.arcs[a].devices, flow[a]) for a in arcs)
    model.add(machines <= data.reach.superstages.K2).with_name("machines")
    model.rows(
        "superstage_time", data.arcs_of,
        lambda v: cpsat.weighted_sum((int(data.times[a]), flow[a]) for a in data.arcs_of[v]) <= time,
        "T is at least the time of the superstage that holds v, its link or its slowest stage: sum over the arcs a "
        "that hold v of time(a) flow[a] <= T [Piper, Appendix E]",
    )  # fmt: skip
    model.minimize(time)
    return model


@dataclass
class Model(Paths, cpsat.Runnable):
    """The model of ``data``."""

    model: cpsat.SpokenModel
    data: Data
    weighted_sum = staticmethod(cpsat.weighted_sum)

    @property
    def flow(self) -> Any:
        """1 for the arcs of the path."""
        return self.model.variables["flow"]

    def run(self, limits: Limits, watch: Watch, on_solution: OnSolution = None, on_bound: OnBound = None) -> Run:
        """Run CP-SAT on it; ``stats`` counts downsets and arcs."""
        run = super().run(limits, watch, on_solution, on_bound)
        return replace(run, stats={**run.stats, **self.counts()})

    def lower_bound(self, bound: float) -> float:
        """A bound in the instance's unit, less what sums in another order may differ by."""
        units = cpsat.whole(bound) * self.data.unit * (1 - NOISE)
        return max(0.0, min(units, self.data.reach.target))  # slower plans are not in the model


def model_of(instance: HierarchicalInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:
    """The model of an instance (`data_of`), with its requirements."""
    watch = watch or Watch()
    with stops_with(watch):
        data = data_of(instance, watch, complete=complete)
        return add_requirements(Model(build(data), data), VOCABULARY, instance)


def solve(instance: HierarchicalInstance, limits: Limits, watch: Watch) -> Answer[HierarchicalPlan]:
    """The optimum by a path of superstages, with CP-SAT."""
    return solve_with(lambda: model_of(instance, watch), instance, limits, watch)
