"""What the declarative models begin with: the best chain of a few downsets, those of some orders and of clusters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from formulations.compiled.array_types import Words
from formulations.compiled.downsets import chain_downsets
from formulations.compiled.kernel_deadline import alarm
from formulations.contract.quantities import judge
from formulations.modelling.warm_start import First
from formulations.operator_partitioning.costs.chains import Search
from formulations.operator_partitioning.costs.costs import load_bound
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import evaluate, violations
from formulations.operator_partitioning.paper.parmesan import cluster, equal
from formulations.operator_partitioning.paper.refinement import refine
from instances.graph import lifo_order, topological_order
from instances.problems.operator_partitioning import OperatorInstance
from solvers.outcome import Watch


def first_plan(instance: OperatorInstance) -> First:
    """Better and better plans of an instance with a given S, from more and more downsets; all are refined."""

    def offer(plan: OperatorPlan | None, watch: Watch) -> None:
        if plan is not None and not judge(violations, instance, plan):
            watch.plan(plan, evaluate(instance, plan))

    def find(watch: Watch) -> None:
        offer(equal(instance), watch)
        with alarm(watch):
            for bits in _families(instance, watch):
                if watch.stopped():
                    return
                found = Search(instance, bits, watch).least(load_bound(instance), watch.best_plan).plan
                offer(found and refine(instance, found, stopped=watch.stopped)[0], watch)

    return First("chains of some downsets, refined", find)


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
