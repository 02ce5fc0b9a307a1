"""What the declarative model begins with: the appendix's recursion on a few linear orders."""

import numpy as np

from formulations.compiled.downsets import chain_downsets, linear_orders
from formulations.compiled.kernel_deadline import alarm
from formulations.hierarchical_partitioning.paper import Incumbent, Search
from formulations.modelling.bisection import minimise
from formulations.modelling.warm_start import First
from instances.problems.hierarchical_partitioning import HierarchicalInstance
from solvers.memory_budget import SizeError
from solvers.outcome import Limits, Watch


def first_plan(instance: HierarchicalInstance, limits: Limits) -> First:
    """Plans whose stages are intervals of an order; none where the tables of an order do not fit."""

    def find(watch: Watch) -> None:
        best: Incumbent | None = None
        with alarm(watch):
            for order in linear_orders(instance.flat):
                if watch.stopped():
                    return
                try:
                    search = Search(instance, chain_downsets(order), np.frombuffer(watch.flag, np.uint8))
                except SizeError:
                    return
                best = minimise(search, watch, limits.gap, start=best, chain=True)[0]

    return First("piper-hierarchical on linear orders", find)
