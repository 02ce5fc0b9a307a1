"""The direct models' search: a known plan is the best one if no plan is faster, which is a model with the time given.

Each target is a model of its own (`within_target`): its numbers are parts of the target, and what exceeds it is not in
it. A target that cannot be met is a bound; a plan that meets one is the next to be beaten.

Source: this project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from formulations.modelling.solve_model import Stopped, WithoutSizes
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import evaluate, stage_time
from formulations.stage_partitioning.models.assignment_data import Chosen, Terms
from formulations.stage_partitioning.models.blocks_within_target import MAX_CHOICES, WithinTarget, num_choices
from formulations.stage_partitioning.models.solving import too_large
from instances.problems.stage_partitioning import StageInstance
from solvers.gc_pause import no_collection
from solvers.outcome import DEFAULT_SOLVER, OPTIMAL_GAP, Limits, Run, Stop, Watch

#: A plan faster by less than this part is none that is looked for; and this part of a refuted target is given up, as
#: solvers' tolerances may have refuted a plan that just meets it.
_CLOSE, _GIVEN_UP = 5e-7, 3e-7

#: How often the interval is halved in which the least target is that relaxations do not refute.
_HALVINGS = 5


class TargetModel(Protocol):
    """A solver's model of all plans within a target."""

    def decide(self, limits: Limits, watch: Watch) -> tuple[Run, tuple[Chosen, ...] | None]:
        """Look for a plan; ``infeasible`` is a proof that there is none. The second is a plan that was found."""

    def forbid_beyond(self, stage: Chosen, in_flight: int) -> None:
        """Forbid these TMPCs in a stage with these degrees and so many micro-batches in flight or more."""

    def forbid(self, stage: Chosen) -> None:
        """Forbid this very stage; one that holds more may cross fewer edges, and take less."""


Built = TypeVar("Built", bound=TargetModel)


@dataclass
class Search(WithoutSizes, Generic[Built]):
    """A search from the best plan that the watch knows; its values are plans, in the instance's unit of time.

    ``build`` makes the model of a target. ``refute`` says what its relaxation proves: whether that alone refutes the
    target; ``None`` if it is not looked at.
    """

    terms: Terms
    build: Callable[[WithinTarget], Built]
    refute: Callable[[Built, Limits, Watch], bool] | None = None
    stats: dict[str, float | int | str] = field(default_factory=dict)

    def decode(self, plan: StagePlan) -> StagePlan:
        """The plan itself."""
        return plan

    def lower_bound(self, bound: float) -> float:
        """The bound itself."""
        return bound

    def run(
        self,
        limits: Limits,
        watch: Watch,
        on_solution: Callable[[StagePlan], None],
        on_bound: Callable[[float], None],
    ) -> Run:
        """Refute ever larger targets, the last of them just below the best plan; arguments as of a model's ``run``."""
        close = max(_CLOSE, 0.999 * limits.gap if limits.gap > OPTIMAL_GAP else 0.0)
        low, solver, reason, decided, ended = 0.0, "", "", 0, Stop.COMPLETED
        try:
            low = self._relaxed(limits, watch, on_bound)
            while not watch.stopped() and low < (best := _best(watch)) * (1 - close - _GIVEN_UP) * (1 - 1e-12):
                target = best * (1 - close)
                if low == 0.0:  # a bound halfway is soon proved, and something to hold where the proof takes too long
                    target = min(target, (self.terms.lower_bound + best) / 2)
                run, plan = self._decide(target, limits, watch)
                decided, solver, reason = decided + 1, run.solver, run.reason
                self.stats |= {name: run.stats[name] for name in ("variables", "constraints") if name in run.stats}
                if plan is not None:
                    on_solution(plan)
                elif not run.infeasible:
                    if run.stop is not Stop.PROVED:
                        ended = run.stop  # a solver's clock may be a little ahead of the watch
                    break
                else:
                    low = max(low, target * (1 - _GIVEN_UP))
                    on_bound(low)
        except Stopped:
            pass
        is_proved = low >= _best(watch) * (1 - close - 2 * _GIVEN_UP)
        return Run(
            stop=Stop.PROVED if is_proved else watch.why() if watch.stopped() else ended,
            values=watch.best_plan,
            objective=watch.best_objective,
            bound=low or None,
            solver=solver,
            reason=reason,
            stats={**self.stats, "targets": decided},
        )

    def _relaxed(self, limits: Limits, watch: Watch, on_bound: Callable[[float], None]) -> float:
        """What relaxations refute, ``root_bound`` in `stats`; 0 where they are not looked at, or refute nothing.

        The terms' own lower bound says where to begin, and proves nothing here.
        """
        if self.refute is None:
            return 0.0
        found, high = 0.0, _best(watch)
        low = self.terms.lower_bound
        for _ in range(_HALVINGS):
            target = (low + high) / 2
            if watch.stopped() or not low < target < high:
                break
            if self.refute(self._model(target, watch), limits, watch):
                low, found = target, target * (1 - _GIVEN_UP)
                on_bound(found)
            else:
                high = target
        if found:
            self.stats["root_bound"] = found
        return found

    def _decide(self, target: float, limits: Limits, watch: Watch) -> tuple[Run, StagePlan | None]:
        """A plan within a target that the definition accepts, or a proof that there is none.

        Solvers' tolerances, a millionth of everything, admit the best plan itself where the target is just below it.
        """
        instance, best = self.terms.instance, _best(watch)
        model = self._model(target, watch)
        large, slow = list[tuple[Stage, int]](), list(self._too_slow(watch.best_plan, target))
        while True:
            for stage, in_flight in large:
                model.forbid_beyond(self._chosen(stage), in_flight)
            for stage in slow:
                model.forbid(self._chosen(stage))
            run, chosen = model.decide(limits, watch)
            if chosen is None:
                return run, None
            plan = self.terms.plan(chosen)
            large = list(too_large(instance, plan))
            slow = list(self._too_slow(plan, target)) if evaluate(instance, plan) >= best else []
            if not large and not slow:
                return run, plan

    @no_collection()
    def _model(self, target: float, watch: Watch) -> Built:
        return self.build(WithinTarget(self.terms, target, watch))

    def _chosen(self, stage: Stage) -> Chosen:
        return self.terms.chosen(StagePlan((stage,)))[0]

    def _too_slow(self, plan: StagePlan, target: float) -> Iterator[Stage]:
        """The stages beyond a target."""
        return (stage for stage in plan.stages if stage_time(self.terms.instance, stage) > target)


def _best(watch: Watch) -> float:
    found = watch.best_objective
    return float("inf") if found is None else found


def searchable(instance: StageInstance, limits: Limits, watch: Watch) -> bool:
    """Whether a direct model of an instance is searched, rather than run as it is.

    Not where requirements speak of what the blocks do not say, nor for another solver, nor without a plan to beat, nor
    where there are too many blocks.
    """
    plain = not instance.requirements and limits.solver == DEFAULT_SOLVER
    return plain and watch.best_plan is not None and num_choices(Terms(instance)) <= MAX_CHOICES
