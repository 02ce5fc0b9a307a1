"""From the models of blocks to an answer: which data they have, and the search by targets just below the best plan.

Each target has data of its own: what exceeds it is in no block, and the numbers of its model are parts of it.

Source: this project.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from formulations.contract.family import Answer
from formulations.modelling.solve_model import WithoutSizes
from formulations.modelling.threshold_search import GIVEN_UP, search_below_best
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import evaluate, stage_time
from formulations.stage_partitioning.model_size import blocks_too_large
from formulations.stage_partitioning.models.assignment_data import Chosen, Terms
from formulations.stage_partitioning.models.blocks import Blocks
from formulations.stage_partitioning.models.solving import begin, prove, too_large
from instances.problems.stage_partitioning import StageInstance
from solvers.gc_pause import no_collection
from solvers.memory_budget import SizeError
from solvers.milp.backend import ROOM
from solvers.outcome import DEFAULT_SOLVER, Limits, Prover, Run, Watch

#: A gap at which any plan will do.
ANY = 0.999

#: How often the interval is halved in which the least target is that relaxations do not refute.
_HALVINGS = 5


class BlockModel(ABC):
    """A solver's model of blocks."""

    data: Blocks

    @property
    def terms(self) -> Terms:
        """The instance's."""
        return self.data.terms

    @abstractmethod
    def decide(self, limits: Limits, watch: Watch) -> Run:
        """Look for a plan within the model's target; ``infeasible`` is a proof that there is none."""

    @abstractmethod
    def decisions_of(self, values: Any) -> tuple[Chosen, ...]:
        """The stages of a solution."""

    @abstractmethod
    def forbid(self, b: int, stage: Chosen, others: Iterable[int] = ()) -> None:
        """Not all options of a stage together in block b, without one of the others."""

    def meaning(self, name: str, index: Any) -> Mapping[str, Any]:
        """What a variable's index means, by words; empty where that is not declared."""
        layers, options = self.terms.instance.layers, self.terms.options
        if name == "done":
            return {"node": layers[index[0]].id, "s": index[1]}
        if name not in ("taken", "choice"):
            return {}
        b, o = (index, None) if name == "taken" else index
        block = self.data.blocks[b]
        own = {"s": block.s, "tp_degree": block.tp_degree, "dp_degree": block.dp_degree}
        return own if o is None else {"node": layers[options[o].node].id, "tmpc": options[o].tmpc.id, **own}

    def decode(self, values: Any) -> StagePlan:
        """The plan of a solution."""
        return self.terms.plan(self.decisions_of(values))

    def cut_off(self, plan: StagePlan, _values: Any) -> None:
        """Forbid every stage that is too large, with so many micro-batches in flight or more."""
        for stage, in_flight in too_large(self.terms.instance, plan):
            self.forbid_beyond(self._of(stage), in_flight)

    def forbid_beyond(self, stage: Chosen, in_flight: int) -> None:
        """Forbid these TMPCs in a stage with so many micro-batches in flight or more, whatever its d."""
        for b, block in enumerate(self.data.blocks):
            if block.in_flight >= in_flight and all(o in block.times for o in stage.options):
                self.forbid(b, stage)

    def forbid_alone(self, stage: Chosen) -> None:
        """Forbid this very stage; one that holds more may cross fewer edges, and take less."""
        for b, block in enumerate(self.data.blocks):
            if block.may_be(stage):
                self.forbid(b, stage, [o for o in block.times if o not in stage.options])

    def _of(self, stage: Stage) -> Chosen:
        return self.terms.decisions_of(StagePlan((stage,)))[0]

    def plan_within(self, target: float, limits: Limits, watch: Watch) -> Run:
        """A run whose ``values`` are a plan that the definition accepts, faster than the watch's best one, or a proof.

        Solvers' tolerances, a millionth of everything, admit the best plan itself where the target is just below it.
        """
        instance, best = self.terms.instance, watch.best_objective or 0.0
        slow = [] if watch.best_plan is None else list(self._too_slow(watch.best_plan, target))
        while True:
            for stage in slow:
                self.forbid_alone(self._of(stage))
            run = self.decide(limits, watch)
            if run.values is None:
                return run
            plan = self.decode(run.values)
            slow = list(self._too_slow(plan, target)) if evaluate(instance, plan) >= best else []
            self.cut_off(plan, run.values)
            if not slow and not any(too_large(instance, plan)):
                return replace(run, values=plan)

    def _too_slow(self, plan: StagePlan, target: float) -> Iterator[Stage]:
        """The stages beyond a target."""
        return (stage for stage in plan.stages if stage_time(self.terms.instance, stage) > target)


@dataclass
class BlockSearch(WithoutSizes):
    """A search from the best plan that the watch knows; its values are plans, in the instance's unit of time.

    ``model_within`` makes the model of data and a target. ``stats["root_bound"]`` is what its relaxation refutes.
    """

    terms: Terms
    model_within: Callable[[Blocks, float], Any]
    stats: dict[str, float | int | str] = field(default_factory=dict)

    def decode(self, plan: StagePlan) -> StagePlan:
        """The plan itself."""
        return plan

    def lower_bound(self, bound: float) -> float:
        """The bound itself."""
        return bound

    def run(
        self, limits: Limits, watch: Watch, on_solution: Callable[[StagePlan], None], on_bound: Callable[[float], None]
    ) -> Run:
        """Refute ever larger targets, the last of them just below the best plan; arguments as of a model's ``run``."""

        def decide(target: float) -> Run:
            run: Run = self._model(target, watch).plan_within(target, limits, watch)
            self.stats |= {name: run.stats[name] for name in ("variables", "constraints") if name in run.stats}
            return run

        proved = self._refute_by_relaxations(limits, watch, on_bound)
        found = search_below_best(decide, self.terms.lower_bound, proved, limits, watch, on_solution, on_bound)
        return replace(found, stats={**self.stats, "targets": found.stats["targets"]})

    def _refute_by_relaxations(self, limits: Limits, watch: Watch, on_bound: Callable[[float], None]) -> float:
        """What relaxations alone refute; 0 where the model has none, or it refutes nothing.

        The terms' own lower bound says where to begin, and proves nothing here.
        """
        found, low, high = 0.0, self.terms.lower_bound, watch.best_objective or 0.0
        for _ in range(_HALVINGS):
            target = (low + high) / 2
            if watch.stopped() or not low < target < high:
                break
            model = self._model(target, watch)
            if not hasattr(model, "is_refuted_by_relaxation"):
                break
            if model.is_refuted_by_relaxation(limits, watch):
                low, found = target, target * (1 - GIVEN_UP)
                self.stats["root_bound"] = found
                on_bound(found)
            else:
                high = target
        return found

    @no_collection()
    def _model(self, target: float, watch: Watch) -> Any:
        return self.model_within(Blocks(self.terms, target, watch), target)


def data_of(instance: StageInstance, watch: Watch, *, complete: bool = False) -> Blocks:
    """The blocks of all plans no slower than the watch's best one, or than that of ``linearised``.

    Of all plans if ``complete``, or where none is known. Raises `solve_model.Stopped` once the watch is, and
    `SizeError` if the model would be too large.
    """
    terms, reason = Terms(instance), blocks_too_large(instance)
    watch.bound(terms.lower_bound, Prover.BOUNDS)
    if reason is not None:
        raise SizeError(reason)
    if watch.best_plan is None and not complete:
        begin(instance, Limits(), watch)
    known = None if complete else watch.best_objective
    most = terms.largest_time if known is None else known * (1 + ROOM)
    return Blocks(terms, most or 1.0, watch, whole=complete)


def solve(
    instance: StageInstance,
    limits: Limits,
    watch: Watch,
    model_within: Callable[[Blocks, float], Any],
    model_of: Callable[[StageInstance, Watch], Any],
) -> Answer[StagePlan]:
    """The optimum by targets, or by the model as it is: with requirements, for other solvers, and without a plan."""

    def model() -> Any:
        plain = not instance.requirements and limits.solver == DEFAULT_SOLVER
        if not plain or watch.best_plan is None or blocks_too_large(instance):
            return model_of(instance, watch)
        terms = Terms(instance)
        watch.bound(terms.lower_bound, Prover.BOUNDS)
        return BlockSearch(terms, model_within)

    return prove(instance, model, limits, watch, to_scale=True)
