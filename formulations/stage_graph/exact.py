"""``exact``: compiled searches first, then a CP-SAT model on what they leave open.

Plans go from one to the next, as a hint and as what has to be beaten; bounds do not, so the proof is one method's own
and the result has its name.
"""

from dataclasses import replace

from formulations.contract.family import Answer, infeasible_by_counting
from formulations.stage_graph import downsets
from formulations.stage_graph.costs.costs import Costs, identical
from formulations.stage_graph.definition.plan import StagePlan
from formulations.stage_graph.definition.quantities import NO_SIZE, at_required_sizes
from formulations.stage_graph.models import cpsat
from formulations.stage_graph.paper import fewest_devices
from formulations.stage_graph.upsets import levels
from formulations.stage_graph.upsets.bounds import DOWNSETS, simple_bound
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Limits, Prover, Stop, Watch

#: Models with so few operators have all their partitions searched first.
_SMALL = 20


def solve(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum with one micro-batch size and 1F1B, by whichever method proves it first; ``proved_by`` names it."""
    if instance.requirements:  # which are about the size alone
        allowed = at_required_sizes(instance)
        return infeasible_by_counting(NO_SIZE) if allowed is None else solve(allowed, limits, watch)
    watch.bound(simple_bound(Costs(identical(instance))), Prover.BOUNDS)
    start = Answer[StagePlan]() if instance.device_graph is not None else _search(instance, limits, watch)
    if start.stop is Stop.PROVED:
        return start
    if watch.stopped():
        return replace(start, stop=watch.why())
    found = cpsat.solve(instance, limits, watch, first=start.plan)
    return replace(found, proved_by="cpsat", stats={**start.stats, **found.stats})


def _search(instance: StageGraph, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """A plan, and mostly a proof, without a solver."""
    if instance.num_operators > _SMALL and downsets.suits(instance) is None:
        return downsets.solve_downsets(instance, limits, watch, by=DOWNSETS)
    found = levels.solve(instance, limits, watch)
    if found.stop is not Stop.SIZE_LIMIT:
        return replace(found, proved_by="levels")
    return fewest_devices.solve_wide(instance, watch)
