"""Piper restricted to data parallelism: a sequential pipeline whose stages are differences of downsets.

The program is exponential in the branches of a model. Operators of a chain are merged until it fits (``merged`` in the
result's stats); where even whole chains do not help there is no plan, as in the paper's evaluation.

Source: GraphPipe, section 7.2; Piper, section 4 without tensor parallelism and recomputation.
"""

from formulations.compiled.kernel_deadline import alarm
from formulations.contract.family import Answer
from formulations.stage_graph.costs.costs import Costs
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.paper.device_graph import least_machine
from formulations.stage_graph.paper.graphpipe import answer_of, degrees_of, each_size, published_sizes
from formulations.stage_graph.upsets.chains import Chains, TooManyError
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Limits, Stop, Watch


def solve(
    instance: StageGraph,
    limits: Limits,  # noqa: ARG001
    watch: Watch,
    *,
    any_degree: bool = False,
    merge: int = 0,
) -> Answer[StagePlan]:
    """The best sequential pipeline over all chains of downsets.

    Parameters
    ----------
    any_degree
        Data-parallel degrees need not be powers of two.
    merge
        Operators of a chain that stay together; 0: as few as fit.
    """
    costs = Costs(least_machine(instance))
    search, reason = None, ""
    for size in [merge] if merge else range(1, instance.num_operators + 1):
        groups = fold_chains(costs, size)
        if size > 1 and len(groups) == len(fold_chains(costs, size - 1)) and not merge:
            continue  # the chains are no longer than that
        try:
            search = Chains(costs, watch, groups, degrees_of(instance, any_degree))
            break
        except TooManyError as error:
            reason = str(error)
        if watch.stopped():
            break
    if search is None:
        return Answer(stop=watch.why(Stop.SIZE_LIMIT), reason=reason)
    with alarm(watch):
        plans = each_size(instance, watch, search.best_at, published_sizes(instance))
    merged = {"merged_operators": instance.num_operators, "merged_into": len(groups)} if size > 1 else {}
    return answer_of(instance, watch, plans, {**search.stats(), **merged})


def fold_chains(costs: Costs, size: int) -> list[int]:
    """Chains of up to ``size`` operators: each the only successor of the one before, its only predecessor."""
    found: list[int] = []
    place: dict[int, int] = {}
    for node in range(costs.instance.num_operators):
        before = costs.predecessors[node]
        if before and before & (before - 1) == 0:
            previous = before.bit_length() - 1
            alone = costs.successors[previous] == 1 << node
            if alone and found[place[previous]].bit_count() < size:
                place[node] = place[previous]
                found[place[node]] |= 1 << node
                continue
        place[node] = len(found)
        found.append(1 << node)
    return found
