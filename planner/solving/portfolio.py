"""Two kinds of exact methods at once, a search and a model, on one instance: the first proof ends both.

They share plans through the watch of the run: what one has found the other may prune by. So a bound is proved by whom
it names, with plans that anybody found and the definition accepted.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from formulations.contract.family import Answer, Claim, Family, Method
from planner.plugins.method_names import PORTFOLIO
from planner.process.errors import UsageError
from planner.solving.choose import Candidate, candidates
from solvers.outcome import OPTIMAL_GAP, Limits, Stop, Watch, relative_gap

#: A method that is to end may take this long; then its answer is given up.
_PATIENCE_S = 1.0


@dataclass(frozen=True)
class Portfolio(Method[Any, Any]):
    """The method that runs its ``members`` at once."""

    members: tuple[Method[Any, Any], ...] = ()


def portfolio(family: Family[Any, Any], instance: Any, limits: Limits) -> list[Candidate]:
    """The method that runs both, each kind's first in the dispatcher's order; after it the other exact ones.

    `UsageError` if the family has no two kinds of exact methods that take the instance.
    """
    every = list(candidates(family, instance, limits, exact=True))
    fitting = [method for method, _ in every]
    search = next((method for method in fitting if method.build is None), None)
    model = next((method for method in fitting if method.build is not None), None)
    if search is None or model is None:
        known = ", ".join(method.name for method in fitting)
        raise UsageError(
            f"--portfolio needs an exact search and a model that take the instance; expected {known} alone"
        )
    both = (search, model)
    made = Portfolio(
        name=PORTFOLIO,
        claim=Claim.EXACT,
        source=" and ".join(method.name for method in both),
        solve=lambda instance, limits, watch: _solve(family, both, instance, limits, watch),
        prepare=lambda: _load(both),
        members=both,
    )
    others = [each for each in every if each[0] not in both]
    return [(made, f"{search.name} and {model.name} at once"), *others]


def _load(methods: Sequence[Method[Any, Any]]) -> None:
    for method in methods:
        method.load()


class _Member(threading.Thread):
    """One method at work, with a part of the run's watch."""

    def __init__(
        self,
        family: Family[Any, Any],
        method: Method[Any, Any],
        instance: Any,
        limits: Limits,
        watch: Watch,
        ended: threading.Semaphore,
    ) -> None:
        super().__init__(daemon=True, name=f"planner-{method.name}")
        self._family, self.method, self._instance, self._limits = family, method, instance, limits
        self._ended = ended
        self.watch = watch.part(shared=True, obsolete=lambda: _is_closed(watch))
        self.answer: Answer[Any] | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """The thread's body; errors are kept for whoever waits."""
        try:
            answer = self.method.solve(self._instance, self._limits, self.watch)
            if answer.plan is not None:  # `planner.solving.solve` judges it
                self.watch.plan(answer.plan, self._family.evaluate(self._instance, answer.plan))
            if answer.bound is not None and not answer.infeasible:
                self.watch.bound(answer.bound, answer.proved_by or self.method.name)
            self.answer = answer
        except BaseException as error:  # handed to the waiting thread, which raises it
            self.error = error
        finally:
            self._ended.release()

    @property
    def is_proof(self) -> bool:
        """Whether it has proved what there is to prove."""
        return self.answer is not None and (self.answer.infeasible or _is_closed(self.watch))


def _solve(
    family: Family[Any, Any], methods: Sequence[Method[Any, Any]], instance: Any, limits: Limits, watch: Watch
) -> Answer[Any]:
    ended = threading.Semaphore(0)
    own = replace(limits, threads=max(1, limits.threads // len(methods)))
    members = [_Member(family, method, instance, own, watch, ended) for method in methods]
    for member in members:
        member.start()
    for _ in members:
        ended.acquire()
        failed = next((member for member in members if member.error is not None), None)
        if failed is not None or any(member.is_proof for member in members):
            break
    for member in members:
        member.watch.stop(watch.why())
        member.join(_PATIENCE_S)
    return _unite(members, watch)


def _unite(members: Sequence[_Member], watch: Watch) -> Answer[Any]:
    """What both have found; an error of one is raised."""
    for member in members:
        if member.error is not None:
            raise member.error
    answers = [(member.method.name, member.answer) for member in members if member.answer is not None]
    stats = {f"{name}.{key}": value for name, answer in answers for key, value in answer.stats.items()}
    refuted = next(((name, answer) for name, answer in answers if answer.infeasible), None)
    if refuted is not None:
        name, answer = refuted
        return replace(answer, plan=watch.best_plan, proved_by=answer.proved_by or name, stats=stats)
    return Answer(
        plan=watch.best_plan,
        bound=None,
        stop=Stop.PROVED if _is_closed(watch) else watch.why(),
        solver=", ".join(dict.fromkeys(answer.solver for _, answer in answers if answer.solver)),
        reason="; ".join(f"{name}: {answer.reason}" for name, answer in answers if answer.reason),
        stats=stats,
    )


def _is_closed(watch: Watch) -> bool:
    gap = relative_gap(watch.best_objective, watch.best_bound)
    return gap is not None and gap <= OPTIMAL_GAP
