"""What Parmesan's flow solves inside: the clustered graph, the states of its dynamic program, and its moves.

Source: Parmesan, section 4.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from formulations.compiled.array_types import Words
from formulations.compiled.kernel_deadline import alarm
from formulations.contract.inner_problems import Arisen, Subproblem
from formulations.operator_partitioning.costs.chains import chain_to, fill
from formulations.operator_partitioning.costs.costs import graph, rows
from formulations.operator_partitioning.costs.downsets import membership
from formulations.operator_partitioning.costs.shapes import instances_by_shape
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import stage_of, violations
from formulations.operator_partitioning.paper import parmesan
from formulations.operator_partitioning.paper.refinement import Move, steps
from instances.errors import expect
from instances.graph import topological_order
from instances.problems.operator_partitioning import OperatorInstance, Tensor
from instances.requirements import Requirement
from solvers.outcome import Limits, Watch

Groups = Sequence[Sequence[int]]
Where = dict[str, str | int | float]


def steps_of_parmesan(instance: OperatorInstance, _limits: Limits, watch: Watch) -> Iterator[Arisen]:
    """The clustered graph, cut by the dynamic program, and each move of the refinement."""
    for each in _by_num_stages(instance):
        with alarm(watch):
            family = parmesan.cluster(each, watch)
            plan, _ = parmesan.dynamic_program(each, family, watch)
        yield partial(_clustered, each, family.clusters, plan)
        if plan is not None and not watch.stopped():
            yield from _moves(each, plan, watch)


def states_of_dp(instance: OperatorInstance, _limits: Limits, watch: Watch) -> Iterator[Arisen]:
    """Each entry of Equation 2: a fronted part of the clustered graph in so many stages, counted as Equation 3 does."""
    for each in _by_num_stages(instance):
        with alarm(watch):
            family = parmesan.cluster(each, watch)
            tensors = parmesan.pair_tensors(each, family.clusters)
            table = graph(each, tensors)
            found = rows(each, table, family.bits)
            best, before, done = fill(each, table, found, math.inf, watch)
        if done < 0:
            return
        for row in range(1, len(found.bits)):
            for stages in range(1, (each.num_stages or 1) + 1):
                if best[row, stages] < math.inf:
                    chain = [found.bits[number] for number in chain_to(before, row, stages)]
                    yield partial(_state, each, family.clusters, tensors, chain, {"row": row, "in_stages": stages})


def moves_of_refine(instance: OperatorInstance, _limits: Limits, watch: Watch) -> Iterator[Arisen]:
    """Each move of the refinement from the even cut."""
    for each in _by_num_stages(instance):
        plan = parmesan.equal(each)
        if plan is not None and not violations(each, plan):
            yield from _moves(each, plan, watch)


def _by_num_stages(instance: OperatorInstance) -> list[OperatorInstance]:
    """The instance for each number of stages that there may be; `InstanceError` where clusters are no operators."""
    expect(instance.num_devices is None or instance.num_stages is None, instance.name, "num_devices",
           instance.num_devices, "none: each stage has as many replicas")  # fmt: skip
    counted = instance.memory_bytes is None or instance.training is None
    rule = "none, or no memory limit: the memory of a cluster is no sum of its operators'"
    expect(counted, instance.name, "training", "declared", rule)
    return [instance] if instance.num_stages is not None else list(instances_by_shape(instance).values())


def contract(instance: OperatorInstance, groups: Groups) -> tuple[OperatorInstance, list[int]]:
    """The graph with a single operator, of the first one's id, for each group, and the group of each of these.

    Operators that are in no group are left out, with what they send and receive.
    """
    home = {operator: number for number, group in enumerate(groups) for operator in group}
    inside = [(a, b) for a, b in instance.edges if a in home and b in home]
    order = topological_order(len(groups), sorted({(home[a], home[b]) for a, b in inside if home[a] != home[b]}))
    place = {group: position for position, group in enumerate(order)}
    volumes: dict[tuple[int, tuple[int, ...]], list[float]] = {}
    for tensor in instance.tensors:
        if tensor.source not in home:
            continue
        source = place[home[tensor.source]]
        targets = tuple(sorted({place[home[each]] for each in tensor.targets if each in home} - {source}))
        if targets:
            volumes.setdefault((source, targets), []).append(tensor.volume_bytes)
    operators = []
    for group in order:
        members = [instance.operators[each] for each in groups[group]]
        operators.append(replace(
            members[0],
            compute_s=math.fsum(each.compute_s for each in members),
            parameter_bytes=math.fsum(each.parameter_bytes for each in members),
            activation_bytes=math.fsum(each.activation_bytes for each in members),
            memory_bytes=math.fsum(each.memory_bytes for each in members),
        ))  # fmt: skip
    tensors = tuple(Tensor(*ends, math.fsum(found)) for ends, found in sorted(volumes.items()))
    return replace(instance, operators=tuple(operators), tensors=tensors, options={}), order


def _plan_on(order: Sequence[int], groups: Groups, plan: OperatorPlan) -> OperatorPlan:
    """A plan that splits no group, on the contracted graph."""
    home = stage_of(plan)
    stages: list[list[int]] = [[] for _ in plan.stages]
    for position, group in enumerate(order):
        stages[home[groups[group][0]]].append(position)
    return OperatorPlan(tuple(map(tuple, stages)), plan.replicas)


def _clustered(instance: OperatorInstance, clusters: Groups, plan: OperatorPlan | None) -> Subproblem:
    small, order = contract(instance, clusters)
    found = None if plan is None else _plan_on(order, clusters, plan)
    return Subproblem(small, "dp", found, {"step": "clustered graph", "clusters": len(clusters)})


def _state(
    instance: OperatorInstance, clusters: Groups, tensors: Sequence[Tensor], chain: Sequence[Words], where: Where
) -> Subproblem:
    """The clusters inside the last row, what they hand to others outside added to what they compute."""
    home = membership(clusters, len(instance.operators))
    inside = [number for number, cluster in enumerate(clusters) if _has(chain[-1], cluster[0])]
    small, order = contract(instance, [clusters[number] for number in inside])
    place = {inside[group]: position for position, group in enumerate(order)}
    kept, sent = [], [[operator.compute_s] for operator in small.operators]
    for tensor in tensors:
        source, target = home[tensor.source], home[tensor.targets[0]]
        if source in place and target in place:
            kept.append(Tensor(place[source], (place[target],), tensor.volume_bytes))
        elif source in place:
            sent[place[source]].append(tensor.volume_bytes / instance.bandwidth_bytes_per_s)
    operators = tuple(
        replace(each, compute_s=math.fsum(parts)) for each, parts in zip(small.operators, sent, strict=True)
    )
    in_order = tuple(sorted(kept, key=lambda each: (each.source, each.targets)))
    part = replace(small, operators=operators, tensors=in_order, num_stages=int(where["in_stages"]))
    stages: list[list[int]] = [[] for _ in chain[1:]]
    for number in inside:
        first = next(row for row, bits in enumerate(chain) if _has(bits, clusters[number][0]))
        stages[first - 1].append(place[number])
    plan = OperatorPlan(tuple(tuple(sorted(each)) for each in stages), (instance.replicas,) * len(stages))
    return Subproblem(part, "dp", plan, {**where, "step": "state", "clusters": len(inside)})


def _has(bits: Words, operator: int) -> bool:
    return bool((bits[operator >> 6] >> np.uint64(operator & 63)) & np.uint64(1))


def _moves(instance: OperatorInstance, plan: OperatorPlan, watch: Watch) -> Iterator[Arisen]:
    for number, (move, after) in enumerate(steps(instance, plan, stopped=watch.stopped)):
        yield partial(_inside_move, instance, plan, move, after, number)
        plan = after


def _inside_move(
    instance: OperatorInstance, before: OperatorPlan, move: Move, after: OperatorPlan, number: int
) -> Subproblem:
    """Where the operators of both stages belong, all others being where they are after the move."""
    operator, old = move[0], stage_of(before)[move[0]]
    stays = next(each for each in before.stages[old] if each != operator)
    free = {stage_of(after)[operator], stage_of(after)[stays]}
    fixed = [stage for stage in range(len(after.stages)) if stage not in free]
    groups: list[Sequence[int]] = [after.stages[stage] for stage in fixed]
    groups += [(each,) for stage in sorted(free) for each in after.stages[stage]]
    small, order = contract(instance, groups)
    home = stage_of(after)
    required = tuple(
        str(
            Requirement(
                "stage_of", (instance.operators[after.stages[stage][0]].id,), "==", home[after.stages[stage][0]]
            )
        )
        for stage in fixed
    )
    part = replace(small, requirements=required)
    return Subproblem(part, "move", _plan_on(order, groups, after), {"step": "move", "move": number})
