"""What the declarative model begins with: the appendix's recursion on a few linear orders."""

from __future__ import annotations

import numpy as np

from formulations.alarm import alarm
from formulations.first_plan import First
from formulations.hierarchical_partitioning.paper import Incumbent, Search
from formulations.size import SizeError
from formulations.stage_partitioning.downsets import chain_downsets, linear_orders
from formulations.stage_partitioning.exact.bisection import minimise
from instances.hierarchical_partitioning import HierarchicalInstance
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
