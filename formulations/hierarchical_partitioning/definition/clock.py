"""The objective is that of a pipeline that never runs empty; pipelines inside of pipelines are not simulated."""

from formulations.contract.clock import Clock
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan
from instances.problems.hierarchical_partitioning import HierarchicalInstance


def clock(instance: HierarchicalInstance, _: HierarchicalPlan) -> Clock:
    """A steady state alone."""
    return Clock("steady", None, instance.flat.num_microbatches, lambda: None)
