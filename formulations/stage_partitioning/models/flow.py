"""What the column models for HiGHS and for CP-SAT share: paths and plans, and which arcs they are built of."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from formulations.contract.family import Answer
from formulations.modelling.layered_paths import arcs_on
from formulations.modelling.solve_model import Extensible, Stopped, WithoutSizes, add_requirements
from formulations.modelling.solve_model import Model as Modelled
from formulations.stage_partitioning.definition.plan import StagePlan
from formulations.stage_partitioning.definition.quantities import VOCABULARY
from formulations.stage_partitioning.model_size import MAX_DOWNSETS, columns_supports
from formulations.stage_partitioning.models.assignment_data import Terms
from formulations.stage_partitioning.models.solving import prove
from formulations.stage_partitioning.models.stage_costs import SAME, Prices
from formulations.stage_partitioning.models.stage_quantities import StageQuantities
from formulations.stage_partitioning.models.usable_arcs import WIDER, Arc, Reach, first_reach
from instances.graph import downsets
from instances.problems.stage_partitioning import StageInstance
from solvers.outcome import Limits, Prover, Run, Stop, Watch

#: The target of a model whose plans do not meet the requirements rises by this factor, the next by its square.
GROWTH = 1.25


class Flow(StageQuantities, WithoutSizes):
    """A model of paths of priced stages: ``flow[a]`` is 1 if the plan has the stage of arc a."""

    prices: Prices
    reach: Reach
    arcs: list[Arc]
    flow: Mapping[int, Any]
    #: The solver's sum of factor times variable.
    weighted_sum: Callable[[Iterable[tuple[int, Any]]], Any]

    @property
    def terms(self) -> Terms:
        """The instance's."""
        return self.prices.terms

    def values_of(self, plan: StagePlan) -> Iterator[tuple[Any, int]]:
        """The path of a plan, as pairs of a variable and its value; a dominated stage by one that dominates it."""
        index, path, bits, s = self.reach.instance.index, dict[Any, int](), 0, 0
        for stage in reversed(plan.stages):
            tail = bits, s
            bits |= sum(1 << index[node] for node in stage.nodes)
            s += stage.dp_degree
            path[tail, (bits, s)] = stage.dp_degree * stage.tp_degree
        on_path = arcs_on(path, [self._ends(arc) for arc in self.arcs], [arc.devices for arc in self.arcs])
        return ((taken, int(a in on_path)) for a, taken in self.flow.items())

    def meaning(self, name: str, index: Any) -> Mapping[str, Any]:
        """What the index of an arc means, by words: all nodes of its stage stand for ``node``; else empty."""
        if name != "flow":
            return {}
        arc, layers = self.arcs[index], self.terms.instance.layers
        nodes = frozenset(layers[v].id for v in arc.block.nodes)
        return {"node": nodes, "s": arc.s + arc.dp_degree, "tp_degree": arc.tp_degree, "dp_degree": arc.dp_degree}

    def _ends(self, arc: Arc) -> tuple[tuple[int, int], tuple[int, int]]:
        """The states that an arc joins, as downsets and sums."""
        (inner, before), (outer, after) = arc.tail, arc.head
        return (self.prices.downsets[inner], before), (self.prices.downsets[outer], after)

    def decode(self, values: Any) -> StagePlan:
        """The plan of a solution."""
        taken = [self.arcs[a] for a, variable in self.flow.items() if values[variable] > 0.5]
        return self.prices.terms.plan(
            self.prices.decisions_of(arc.block, arc.tp_degree, arc.dp_degree, arc.in_flight, self.reach.target)
            for arc in sorted(taken, key=lambda arc: -arc.block.inner)
        )

    def with_counts(self, run: Run) -> Run:
        """The run, whose ``stats`` count downsets and arcs as well."""
        return replace(run, stats={**run.stats, "downsets": len(self.prices.downsets), "arcs": len(self.arcs)})

    def _over_stages(self, factor: Callable[[Arc], int]) -> Any:
        factors = ((factor(self.arcs[a]), taken) for a, taken in self.flow.items())
        return self.weighted_sum((amount, taken) for amount, taken in factors if amount)

    def _of_stage_with(self, v: int, factor: Callable[[Arc], int]) -> Any:
        return self._over_stages(lambda arc: factor(arc) if v in arc.block.nodes else 0)

    def _together(self, u: int, v: int) -> Any:
        return self._over_stages(lambda arc: int(u in arc.block.nodes and v in arc.block.nodes))

    def _stage_of(self, v: int) -> Any:  # those that follow its own on the path
        return self._over_stages(lambda arc: self.prices.downsets[arc.block.inner] >> v & 1)


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
    return add_requirements(kind(prices, Reach(prices, target), True, False), VOCABULARY, prices.terms.instance)


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
