"""The problems that runs of two phases solve inside."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from formulations.contract.family import Answer
from formulations.contract.inner_problems import Arisen, Subproblem
from formulations.device_mapping import paper as paper_mapping
from formulations.device_mapping.annealing import near
from formulations.device_mapping.definition.plan import Mapping
from formulations.operator_partitioning.paper import parmesan as paper_partition
from formulations.pipeline_placement.definition.plan import PlacementPlan
from formulations.pipeline_placement.definition.problem import second_phase
from formulations.pipeline_placement.models.two_phase import Place, in_phases, turns
from instances.problems.device_mapping import DeviceMapping
from instances.problems.pipeline_placement import PlacementInstance
from solvers.outcome import Limits, Watch


def of_parmesan(instance: PlacementInstance, limits: Limits, watch: Watch) -> Iterator[Arisen]:
    """The mapping of the partition that Parmesan's first phase ends with."""
    placing = _Placing("parmesan", paper_mapping.solve)
    in_phases(instance, limits, watch, paper_partition.solve, placing)
    yield from placing.solved


def first_phase_of_parmesan(instance: PlacementInstance, limits: Limits, watch: Watch) -> Iterator[Arisen]:
    """The partition for the flat network."""
    plan = paper_partition.solve(instance.operators, limits, watch).plan
    yield partial(Subproblem, instance.operators, "parmesan", plan)


def of_turns(instance: PlacementInstance, limits: Limits, watch: Watch) -> Iterator[Arisen]:
    """The mapping of each round, and of each move of an operator that is looked at, which keeps the last mapping."""
    placing = _Placing("anneal", near.solve)
    moves: list[tuple[int, PlacementPlan]] = []
    turns(instance, limits, watch, placing, lambda plan: moves.append((len(placing.solved), plan)))
    yield from placing.solved
    for turn, plan in moves:
        yield partial(_keep_mapping, instance, plan, turn)


def _keep_mapping(instance: PlacementInstance, plan: PlacementPlan, turn: int) -> Subproblem:
    return Subproblem(second_phase(instance, plan.partition), "kept", plan.mapping, {"round": turn})


class _Placing:
    """A method of mapping that keeps what it was given and what it found."""

    def __init__(self, name: str, place: Place) -> None:
        self._name, self._place = name, place
        self.solved: list[Arisen] = []

    def __call__(self, instance: DeviceMapping, limits: Limits, watch: Watch, **options: Any) -> Answer[Mapping]:
        answer = self._place(instance, limits, watch, **options)
        plan = answer.plan if answer.plan is not None else watch.incumbent()[0]
        found = plan.mapping if isinstance(plan, PlacementPlan) else plan
        self.solved.append(partial(Subproblem, instance, self._name, found, {"round": len(self.solved)}))
        return answer
