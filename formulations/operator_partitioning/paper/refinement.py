"""Iterative refinement: operators on a border move to a neighbouring stage while that helps.

Source: Parmesan, section 4.3; what counts as help: Source: reconstructed (its Appendix C is not published): first the
slowest stage, then the sum of squares of all stages, then what crosses between stages, then the first operator.
"""

import math
from collections.abc import Callable, Iterator

from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import stage_of, violations
from instances.graph import adjacency, topological_order
from instances.problems.operator_partitioning import OperatorInstance

#: Most moves (the paper's I), and most moves of one operator.
MOVES, MOVES_EACH = 100, 2
#: A sum of squares has to fall by this part.
_LEAST_GAIN = 1e-9

Move = tuple[int, int]


def refine(
    instance: OperatorInstance, plan: OperatorPlan, moves: int = MOVES, stopped: Callable[[], bool] = lambda: False
) -> tuple[OperatorPlan, int]:
    """The plan after at most ``moves`` moves, and their number; every plan on the way is feasible if the first is."""
    done = 0
    for _, after in steps(instance, plan, moves, stopped):
        plan, done = after, done + 1
    return plan, done


def steps(
    instance: OperatorInstance, plan: OperatorPlan, moves: int = MOVES, stopped: Callable[[], bool] = lambda: False
) -> Iterator[tuple[Move, OperatorPlan]]:
    """The moves one by one, each with the plan after it."""
    state = _Loads(instance, plan)
    moved: dict[int, int] = {}
    for _ in range(moves):
        better = None if stopped() else _best_move(instance, state, moved, stopped)
        if better is None:
            return
        move, plan = better
        moved[move[0]] = moved.get(move[0], 0) + 1
        state = _Loads(instance, plan)
        yield move, plan


def _best_move(
    instance: OperatorInstance, state: "_Loads", moved: dict[int, int], stopped: Callable[[], bool]
) -> tuple[Move, OperatorPlan] | None:
    """The best valid move that helps, and where it leads."""
    slowest, squares = max(state.times), math.fsum(time * time for time in state.times)
    ranked = []
    for operator, stage in state.moves():
        if moved.get(operator, 0) >= MOVES_EACH:
            continue
        if stopped():
            return None
        times, crossing = state.after(operator, stage)
        worst = max(times)
        if worst > slowest:
            continue
        score = (worst, math.fsum(time * time for time in times), crossing, operator, stage)
        if worst < slowest or score[1] < squares * (1 - _LEAST_GAIN):
            ranked.append(score)
    for _, _, _, operator, stage in sorted(ranked):
        plan = _move(instance, state.plan, operator, stage)
        if plan is not None:
            return (operator, stage), plan
    return None


def _move(instance: OperatorInstance, plan: OperatorPlan, operator: int, stage: int) -> OperatorPlan | None:
    """The plan after a move, its stages reordered if need be; ``None`` if no order is left, or memory is short."""
    home = stage_of(plan)
    old = home[operator]
    if len(plan.stages[old]) == 1:
        return None
    home[operator] = stage
    arcs = sorted({(home[a], home[b]) for a, b in instance.edges if home[a] != home[b]})
    order = topological_order(len(plan.stages), arcs)
    if len(order) < len(plan.stages):
        return None
    members = [list(each) for each in plan.stages]
    members[old].remove(operator)
    members[stage].append(operator)
    found = OperatorPlan(
        tuple(tuple(sorted(members[each])) for each in order), tuple(plan.replicas[each] for each in order)
    )
    if instance.memory_bytes is not None and violations(instance, found):
        return None
    return found


class _Loads:
    """The stages' times under a plan, and how a move would change them."""

    def __init__(self, instance: OperatorInstance, plan: OperatorPlan) -> None:
        self.plan = plan
        self._instance = instance
        self._home = stage_of(plan)
        self._seconds = [tensor.volume_bytes / instance.bandwidth_bytes_per_s for tensor in instance.tensors]
        self._touching: list[list[int]] = [[] for _ in instance.operators]
        for number, tensor in enumerate(instance.tensors):
            for operator in (tensor.source, *tensor.targets):
                self._touching[operator].append(number)
        self._loads = [math.fsum(instance.operators[each].compute_s for each in stage) for stage in plan.stages]
        self._crossing = 0.0
        for number in range(len(instance.tensors)):
            self._crossing += self._charge(number, self._loads, 1)
        self.times = self._over_replicas(self._loads)

    def _over_replicas(self, loads: list[float]) -> list[float]:
        return [load / count for load, count in zip(loads, self.plan.replicas, strict=True)]

    def _charge(self, number: int, loads: list[float], sign: int) -> float:
        """Add (or take away) what a tensor costs its stages; returns what crosses."""
        tensor, seconds = self._instance.tensors[number], sign * self._seconds[number]
        source = self._home[tensor.source]
        takers = {self._home[target] for target in tensor.targets} - {source}
        for stage in takers:
            loads[stage] += seconds
            loads[source] += seconds
        return len(takers) * seconds

    def moves(self) -> list[Move]:
        """Operators on a border, each with the stages of its neighbours."""
        _, before = adjacency(len(self._instance.operators), self._instance.edges)
        found = set()
        for operator, sources in enumerate(before):
            for source in sources:
                a, b = self._home[source], self._home[operator]
                if a != b:
                    found |= {(source, b), (operator, a)}
        return sorted(found)

    def after(self, operator: int, stage: int) -> tuple[list[float], float]:
        """The stages' times and what crosses, once ``operator`` is in ``stage``."""
        loads, crossing, old = self._loads.copy(), self._crossing, self._home[operator]
        for number in self._touching[operator]:
            crossing += self._charge(number, loads, -1)
        self._home[operator] = stage
        for number in self._touching[operator]:
            crossing += self._charge(number, loads, 1)
        self._home[operator] = old
        seconds = self._instance.operators[operator].compute_s
        loads[old] -= seconds
        loads[stage] += seconds
        return self._over_replicas(loads), crossing
