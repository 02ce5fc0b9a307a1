"""What the declarative models begin with: the plan of ``graphpipe-plus``, or of ``downsets``."""

from dataclasses import replace

from formulations.modelling.warm_start import First
from formulations.stage_graph.costs.costs import Costs
from formulations.stage_graph.downsets import solve_downsets
from formulations.stage_graph.paper import fewest_devices
from formulations.stage_graph.upsets.branches import UnsuitableError, structure_of
from instances.problems.stage_graph import StageGraph
from solvers.outcome import Limits

#: A plan this close to what the search over downsets refutes is good enough to begin with.
_NEAR = 0.005
#: Pairs of upsets: of so many a target takes a few hundredths of a second.
_MOST_PAIRS = 2_000_000


def first_plan(instance: StageGraph, limits: Limits) -> First:
    """Of all partitions where the model is small; else of the recursion, and of downsets where these are few."""
    instance = unshared(instance)
    if instance.requirements or instance.device_graph is not None or not _has_few_downsets(instance):
        return First("graphpipe-plus", lambda watch: fewest_devices.solve(instance, limits, watch))

    near = replace(limits, gap=max(limits.gap, _NEAR))
    return First("downsets", lambda watch: solve_downsets(instance, near, watch))


def unshared(instance: StageGraph) -> StageGraph:
    """The instance without tensor-parallel degrees: its plans are plans of the other."""
    return replace(instance, operators=tuple(replace(each, tensor_parallel=()) for each in instance.operators))


def _has_few_downsets(instance: StageGraph) -> bool:
    try:
        structure = structure_of(Costs(instance))
        structure.check()
    except UnsuitableError:
        return False
    return structure.num_pairs() <= _MOST_PAIRS
