"""What the column models for HiGHS and for CP-SAT share: paths and plans, and which arcs they are built of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar

from formulations.contract.family import Answer
from formulations.modelling.solve_model import Extensible, Stopped, add_requirements
from formulations.modelling.solve_model import Model as Modelled
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.quantities import VOCABULARY
from formulations.stage_partitioning.model_size import MAX_DOWNSETS, columns_supports
from formulations.stage_partitioning.models.assignment_data import Terms
from formulations.stage_partitioning.models.solving import prove
from formulations.stage_partitioning.models.stage_costs import Prices
from formulations.stage_partitioning.models.usable_arcs import SAME, WIDER, Arc, Reach, first_reach
from instances.graph import downsets
from instances.problems.stage_partitioning import StageInstance
from solvers.outcome import Limits, Prover, Stop, Watch

#: The target of a model whose plans do not meet the requirements rises by this factor, the next by its square.
GROWTH = 1.25


class Flow:
    """Arcs of priced stages; a path of them is a plan."""

    prices: Prices
    reach: Reach
    arcs: list[Arc]

    def path_of(self, plan: StagePlan) -> set[int]:
        """The arcs of a plan's path; a dominated stage by one that dominates it."""
        path = {}
        bits = s = 0
        for stage in reversed(plan.stages):
            tail = bits, s
            bits |= sum(1 << self.reach.instance.index[node] for node in stage.nodes)
            s += stage.dp_degree
            path[tail, (bits, s)] = stage.dp_degree * stage.tp_degree
        taken: dict[Any, int] = {}
        for a, arc in enumerate(self.arcs):
            ends = self._ends(arc)
            if arc.devices <= path.get(ends, 0) and (ends not in taken or arc.devices > self.arcs[taken[ends]].devices):
                taken[ends] = a
        return set(taken.values())

    def _ends(self, arc: Arc) -> tuple[tuple[int, int], tuple[int, int]]:
        """The states that an arc joins, as downsets and sums."""
        (inner, before), (outer, after) = arc.tail, arc.head
        return (self.prices.downsets[inner], before), (self.prices.downsets[outer], after)

    def plan_of(self, taken: Iterable[int]) -> StagePlan:
        """The plan of the arcs of a path."""
        inwards = sorted((self.arcs[a] for a in taken), key=lambda arc: -arc.block.inner)
        return self.prices.terms.plan(
            self.prices.decisions_of(arc.block, arc.tp_degree, arc.dp_degree, arc.in_flight, self.reach.target)
            for arc in inwards
        )


class FlowModel(Modelled[StagePlan], Extensible, Protocol):
    """A solver's model of a flow."""


Built = TypeVar("Built", bound=FlowModel)
#: Makes a model of prices and of what is in reach: whether arcs that another one beats, which requirements may ask for,
#: are in it as well, and whether it is run by targets.
Kind = Callable[[Prices, Reach, bool, bool], Built]


def build(
    kind: Kind[Built], instance: StageInstance, watch: Watch, *, complete: bool = False, search: bool = False
) -> Built:
    """A model of all plans that are hardly slower than a known one, the watch's or that of `first_reach`.

    Of all plans if ``complete``, or where no plan is known that meets the instance's requirements. With ``search``
    it is run by targets, if a plan is known. Raises `solve_model.Stopped` once the watch is, and ``ValueError`` if
    the instance has too many downsets.
    """
    prices = _prices(instance, watch)
    watch.bound(prices.terms.lower_bound, Prover.BOUNDS)
    if complete:
        return _within(kind, prices, prices.terms.largest_time)
    reach = first_reach(prices, watch)
    if not instance.requirements:
        return kind(prices, reach, False, search and watch.best_plan is not None)
    known = watch.best_objective
    return _within(kind, prices, prices.terms.largest_time if known is None else known * (1 + WIDER))


def _within(kind: Kind[Built], prices: Prices, target: float) -> Built:
    """The model of all plans of at most ``target`` that meet the requirements."""
    model = kind(prices, Reach(prices, target), True, False)
    add_requirements(model, VOCABULARY, prices.terms.instance)
    return model


def solve(
    kind: Kind[Built], instance: StageInstance, limits: Limits, watch: Watch, *, search: bool = True
) -> Answer[StagePlan]:
    """The optimum by a flow of stages, by targets if ``search``."""
    reason = columns_supports(instance)
    if reason is not None:
        return Answer(stop=Stop.SIZE_LIMIT, reason=reason)
    if instance.requirements:
        return _solve_required(kind, instance, limits, watch)
    return prove(instance, lambda: build(kind, instance, watch, search=search), limits, watch)


def _solve_required(kind: Kind[Built], instance: StageInstance, limits: Limits, watch: Watch) -> Answer[StagePlan]:
    """The optimum where requirements may exclude the plans of `first_reach`: the target rises until a plan meets it.

    A model without a solution proves that no plan is as fast as its target.
    """
    try:
        prices = _prices(instance, watch)
        watch.bound(prices.terms.lower_bound, Prover.BOUNDS)
        target, most = first_reach(prices, watch).target, prices.terms.largest_time
    except Stopped:
        return Answer(plan=watch.best_plan, bound=watch.best_bound, stop=watch.why())

    def model(target: float) -> Built:
        known = watch.best_objective
        return _within(kind, prices, target if known is None else min(target, known * (1 + WIDER)))

    growth = GROWTH
    while True:
        answer = prove(instance, partial(model, min(target, most)), limits, watch, to_scale=True)
        if not answer.infeasible or target >= most:
            return answer
        watch.bound(target * (1 - SAME), Prover.SOLVER)
        target, growth = max(target * growth, most * 2.0**-40), growth**2


def _prices(instance: StageInstance, watch: Watch) -> Prices:
    found = downsets(len(instance.layers), instance.edge_indices, MAX_DOWNSETS)
    if found is None:
        raise ValueError(f"the graph has more than {MAX_DOWNSETS} downsets")
    return Prices(Terms(instance), found, watch)
