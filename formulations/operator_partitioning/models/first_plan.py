"""What the declarative models begin with: the best chain of a few downsets, those of some orders and of clusters."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from formulations.compiled.array_types import Words
from formulations.compiled.downsets import chain_downsets
from formulations.compiled.kernel_deadline import alarm
from formulations.contract.quantities import judge
from formulations.modelling.warm_start import First
from formulations.operator_partitioning.costs.chains import Search
from formulations.operator_partitioning.costs.costs import load_bound
from formulations.operator_partitioning.costs.downsets import all_downsets
from formulations.operator_partitioning.costs.shapes import flushed_bound
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import evaluate, violations
from formulations.operator_partitioning.paper.parmesan import cluster, equal
from formulations.operator_partitioning.paper.refinement import refine
from instances.graph import lifo_order, topological_order
from instances.problems.operator_partitioning import OperatorInstance
from solvers.outcome import Watch

#: Chains of this many downsets are searched within a second, mostly.
_FEW_DOWNSETS = 2_000


def first_plan(instance: OperatorInstance) -> First:
    """Better and better plans of an instance with a given S, from more and more downsets; all are refined.

    Of a flushed pipeline those with the least slowest stage, on their own clock.
    """
    chained = replace(instance, flushed=False)

    def offer(plan: OperatorPlan | None, watch: Watch) -> None:
        if plan is not None and not judge(violations, instance, plan):
            watch.plan(plan, evaluate(instance, plan))

    def find(watch: Watch) -> None:
        offer(equal(chained), watch)
        with alarm(watch):
            for bits in _families(chained, watch):
                if watch.stopped():
                    return
                start = watch.best_plan
                found = Search(chained, bits, watch).least(load_bound(chained), start, report=not instance.flushed).plan
                for plan in (found, found and refine(chained, found, stopped=watch.stopped)[0]):
                    offer(plan, watch)

    return First("chains of some downsets, refined", find)


def bound(instance: OperatorInstance, watch: Watch) -> float:
    """A bound that needs no model; of a flushed step by the least slowest stage of all chains, where these are few."""
    load, chained = load_bound(instance), replace(instance, flushed=False)
    if not instance.flushed:
        return load
    bits = all_downsets(instance, _FEW_DOWNSETS)
    if bits is not None:
        with alarm(watch):
            found = Search(chained, bits, watch).least(load, report=False)
        load = load if found.infeasible else max(load, found.bound)
    return flushed_bound(instance, load)


def _families(instance: OperatorInstance, watch: Watch) -> Iterator[Words]:
    """The downsets of Parmesan's clusters; then those of three orders as well, and of more and smaller clusters."""
    clusters = cluster(instance, watch).bits
    yield clusters
    n, forward = len(instance.operators), instance.edges
    backward = [(v, u) for u, v in forward]
    orders = [topological_order(n, forward), lifo_order(n, forward), lifo_order(n, backward)[::-1]]
    chains = [chain_downsets(order[::-1]) for order in orders]
    yield _union([*chains, clusters])
    yield _union([*chains, cluster(instance, watch, clusters=3 * n // 4).bits])


def _union(families: list[Words]) -> Words:
    """All downsets of some families, smaller ones first."""
    bits = np.unique(np.concatenate(families), axis=0)
    return bits[np.argsort(np.bitwise_count(bits).sum(axis=1), kind="stable")]
