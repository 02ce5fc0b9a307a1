"""What the declarative model begins with: the recursion with depth on a few linear orders, almost to their optima."""

from formulations.compiled.downsets import chain_downsets, linear_orders
from formulations.compiled.kernel_deadline import alarm
from formulations.flushed_partitioning.exact.labels import Search
from formulations.flushed_partitioning.exact.pareto_set import search_pareto_set
from formulations.modelling.warm_start import First
from instances.problems.flushed_partitioning import FlushedInstance
from solvers.memory_budget import SizeError
from solvers.outcome import Watch

#: An order is left at this gap to the bound that the recursion has on it.
_GAP = 1e-3


def first_plan(instance: FlushedInstance) -> First:
    """Plans whose stages are intervals of an order; none where an order has too many labels."""

    def find(watch: Watch) -> None:
        with alarm(watch):
            for order in linear_orders(instance.flat):
                if watch.stopped():
                    return
                # The bound of one order is none of the instance, and would end the search on the next one.
                part = watch.part(bounds=False)
                try:
                    with alarm(part):
                        search_pareto_set(Search(instance, chain_downsets(order), part), part, _GAP)
                except SizeError:
                    return

    return First("labels on linear orders", find)
