"""What both solvers' models of placement share: how a plan is read, what requirements speak of, how they are run."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.device_mapping.definition.plan import Mapping as Places
from formulations.modelling.solve_model import Model, prove
from formulations.modelling.warm_start import First
from formulations.operator_partitioning.costs.shapes import shortage
from formulations.operator_partitioning.models.partition import Partition
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.problem import evaluate, violations
from formulations.pipeline_placement.definition.simulate import simulate_plan
from formulations.pipeline_placement.models.placement_data import Data
from formulations.pipeline_placement.models.two_phase import best_start, partition_bound
from instances.problems.pipeline_placement import PlacementInstance
from solvers.outcome import Limits, Prover, Watch


class Placement(ABC):
    """A partition of operators, and ``at[s, r, d]``: replica r of stage s is on device d."""

    data: Data

    @property
    @abstractmethod
    def partition(self) -> Partition:
        """The partition in the same model, which knows all its variables."""

    def decode(self, values: Any) -> PlacementPlan:
        """The plan that the values of a solution describe."""
        device = {(s, r): d for (s, r, d), each in self.partition.var("at").items() if values[each] > 0.5}
        places = tuple(tuple(device[s, r] for r in self.data.replicas) for s in self.data.stages)
        return PlacementPlan(self.partition.decode(values), Places(places))

    def values_of(self, plan: PlacementPlan) -> Iterator[tuple[Any, int]]:
        """The values of the partition and of all places in a plan."""
        yield from self.partition.values_of(plan.partition)
        for (s, r, d), variable in self.partition.var("at").items():
            yield variable, int(plan.mapping.devices[s][r] == d)

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a placement, as sums over both phases."""
        at, stages, replicas = self.partition.var("at"), self.data.stages, self.data.replicas
        partition = self.partition.quantities()
        return {
            "stage_of": partition["stage_of"],
            "same_stage": partition["same_stage"],
            "runs": lambda device, stage: sum(at[stage, r, device] for r in replicas),
            "stage_on": lambda device: sum(s * at[s, r, device] for s in stages for r in replicas),
        }

    def cut_off(self, plan: PlacementPlan, values: Any) -> None:
        """Not this partition, of which only rounded sizes fit."""
        self.partition.cut_off(plan.partition, values)


def solve_with(
    build: Callable[[], Model[PlacementPlan]],
    instance: PlacementInstance,
    limits: Limits,
    watch: Watch,
    *,
    to_scale: bool,
) -> Answer[PlacementPlan]:
    """The best plan of both phases at once; starts from the best of both in turns (`best_start`).

    ``to_scale``: as for `formulations.modelling.solve_model.prove`.
    """
    reason = shortage(instance.operators)
    if reason is not None:
        return infeasible_by_counting(reason)
    watch.bound(partition_bound(instance, limits, watch), Prover.BOUNDS)
    found = prove(
        instance,
        build,
        evaluate,
        violations,
        limits,
        watch,
        reason="no partition fits",
        to_scale=to_scale,
        first=First("turns", lambda part: best_start(instance, limits, part)),
    )
    if found.plan is None:
        return found
    return replace(found, stats={**found.stats, "step_s": simulate_plan(instance, found.plan).seconds})
