"""What a plan decides."""

from dataclasses import dataclass

from formulations.contract.plan_exchange import exchange
from instances.errors import closest, expect
from instances.problems.operator_partitioning import OperatorInstance
from instances.rules import Count, NodeId


@dataclass(frozen=True)
class OperatorPlan:
    """Stages from the input side on (indices of operators, ascending), and the replicas of each."""

    stages: tuple[tuple[int, ...], ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True)
class _Declared:
    """A plan as files have it: ids of operators; without ``replicas`` every stage has as many as declared."""

    stages: tuple[tuple[NodeId, ...], ...]
    replicas: tuple[Count, ...] | None = None


def _built(instance: OperatorInstance, declared: _Declared, where: str) -> OperatorPlan:
    index = {str(operator.id): number for number, operator in enumerate(instance.operators)}
    for number, stage in enumerate(declared.stages):
        for place, name in enumerate(stage):
            known = str(name) in index
            expect(known, where, f"stages[{number}][{place}]", name, f"an operator{closest(name, index)}")
    stages = tuple(tuple(sorted(index[str(name)] for name in stage)) for stage in declared.stages)
    replicas = declared.replicas
    if replicas is None:
        free = max(1, (instance.num_devices or 1) // max(1, len(stages)))
        replicas = (free if instance.num_stages is None else instance.replicas,) * len(stages)
    return OperatorPlan(stages, replicas)


def _written(instance: OperatorInstance, plan: OperatorPlan) -> _Declared:
    ids = [operator.id for operator in instance.operators]
    return _Declared(tuple(tuple(ids[each] for each in stage) for stage in plan.stages), plan.replicas)


plan_from_json, plan_to_json = exchange(
    '``{"stages": [[id, ...], ...], "replicas": [...]}``.', _Declared, _built, _written
)
