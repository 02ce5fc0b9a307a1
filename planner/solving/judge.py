"""What of a method's answer is true: its plan against the definition, its bounds against every plan, its proof.

A method's own figures are never copied: the objective is ``evaluate`` of a plan that ``violations`` accepted, the
status is derived from objective and bound, and a plan or bound that cannot be true raises `CrosscheckError`.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from formulations.contract.family import Answer, Family, Method
from planner.process.errors import CrosscheckError
from planner.results.check import agree, exceeds
from planner.solving.known import Known, Proof
from solvers.outcome import DEFAULT_SOLVER, OPTIMAL_GAP, Limits, Prover, Status, Stop, Watch, relative_gap


@dataclass(frozen=True)
class Verdict:
    """What is true of an answer; ``answer`` is without what is not believed, and ``doubts`` says why."""

    answer: Answer[Any]
    doubts: str
    plan: Any
    objective: float | None
    proof: Proof | None

    @property
    def gap(self) -> float | None:
        """Between objective and bound, relatively; ``None`` where one of them is missing."""
        return relative_gap(self.objective, self.bound)

    @property
    def bound(self) -> float | None:
        """The best one that is proved, whichever method proved it; an infeasible instance has none."""
        return None if self.answer.infeasible or self.proof is None else self.proof.bound

    @property
    def proved_by(self) -> str | None:
        """By whose means the bound, or infeasibility, was proved."""
        if self.answer.infeasible:
            return self.answer.proved_by or Prover.SEARCH
        return None if self.proof is None else self.proof.by

    @property
    def status(self) -> Status:
        """Derived from objective and bound."""
        if self.answer.infeasible:
            return Status.INFEASIBLE
        if self.objective is None:
            return Status.UNKNOWN
        return Status.OPTIMAL if _closes(self.objective, self.bound) else Status.FEASIBLE

    def stop(self, watch: Watch) -> Stop:
        """Why the run ended: a proof counts whenever it came; that a method reports one is not enough."""
        if self.status in (Status.OPTIMAL, Status.INFEASIBLE):
            return Stop.PROVED
        if self.answer.stop in (Stop.PROVED, Stop.COMPLETED):
            return watch.why(Stop.COMPLETED)
        return self.answer.stop


@dataclass(frozen=True)
class Judge:
    """Judges what a method answers on an instance; ``known`` is what others found, ``watch`` what it reported."""

    family: Family[Any, Any]
    method: Method[Any, Any]
    instance: Any
    limits: Limits
    watch: Watch
    known: Known

    def verdict(self, answer: Answer[Any]) -> Verdict:
        """What is true of an answer; a contradiction is raised."""
        plan, objective = self._best(answer)
        answer, doubts = self._without_doubted(answer, objective)
        if answer.infeasible:
            if plan is not None:
                raise self._contradiction("calls the instance infeasible, yet has a plan", plan)
            return Verdict(answer, doubts, None, None, None)
        own = self._own_proof(answer, plan, objective)
        return Verdict(answer, doubts, plan, objective, self._best_proof(own, plan, objective))

    def proofs(self, answer: Answer[Any]) -> list[Proof]:
        """The bounds of the method, as the methods after it report them."""
        if answer.infeasible:
            return []
        name = self.method.name
        return [
            self._proof(value, name if by in (Prover.SEARCH, Prover.SOLVER) else by)
            for by, value in _bounds(answer, self.watch).items()
        ]

    def _best(self, answer: Answer[Any]) -> tuple[Any, float | None]:
        """The best plan among the answer's and the watch's, and its objective, both checked."""
        plan, objective = answer.plan, None
        if plan is not None:
            objective = self._verify(plan)
        seen, claimed = self.watch.incumbent()
        if seen is not None and claimed is not None and (objective is None or claimed < objective):
            attained = self._verify(seen, claimed)
            if objective is None or attained < objective:
                plan, objective = seen, attained
        return plan, objective

    def _verify(self, plan: Any, claimed: float | None = None) -> float:
        """The plan's objective, if it keeps every rule and is worth what the method claimed."""
        broken = self.family.judge(self.instance, plan)
        if broken:
            raise self._contradiction("returned a plan that breaks: " + "; ".join(map(str, broken)), plan)
        objective = self.family.evaluate(self.instance, plan)
        if claimed is not None and not agree(objective, claimed):
            raise self._contradiction(f"claims {claimed!r} for a plan of {objective!r}", plan)
        return objective

    def _without_doubted(self, answer: Answer[Any], objective: float | None) -> tuple[Answer[Any], str]:
        """The answer without what its solver claims, if that is one of choice and a plan contradicts it, and why.

        A plan may contradict what that solver claimed for another method as well: then all that it claims is forgotten.
        """
        known, is_chosen = self.known, self._is_chosen
        was_doubted = known.doubted
        known.compare(objective)
        if is_chosen:
            self._doubt(answer, objective)
        if not known.doubted or (was_doubted and not is_chosen):
            return answer, ""
        said = f"solver {known.solver} {known.doubted}: nothing that it claims is believed in this run"
        if not is_chosen:
            return answer, said
        infeasible = answer.infeasible and answer.proved_by == Prover.BOUNDS
        reason = answer.reason if infeasible or not answer.infeasible else ""
        return replace(answer, bound=None, infeasible=infeasible, reason=reason), said

    @property
    def _is_chosen(self) -> bool:
        return self.limits.solver != DEFAULT_SOLVER

    def _doubt(self, answer: Answer[Any], objective: float | None) -> None:
        """Doubt the solver of choice that gave an answer, in this method and in all, if a plan contradicts it."""
        known, watch = self.known, self.watch
        if known.doubted:
            watch.doubt(known.doubted)
        elif objective is not None and answer.infeasible and answer.proved_by != Prover.BOUNDS:
            watch.doubt("calls the instance infeasible, which has a plan")
        elif objective is not None and answer.bound is not None and exceeds(answer.bound, objective):
            watch.doubt(f"claims the bound {answer.bound:.9g} above a plan of {objective:.9g}")
        if watch.doubted:
            known.doubt(watch.doubted)

    def _own_proof(self, answer: Answer[Any], plan: Any, objective: float | None) -> Proof | None:
        """The best bound that the method itself has."""
        bounds = [value for value in (answer.bound, self.watch.best_bound) if value is not None]
        bound = max(filter(math.isfinite, bounds), default=None)
        if bound is None:
            return None
        if objective is not None and exceeds(bound, objective):
            raise self._contradiction(f"claims the bound {bound!r}, yet has a plan of {objective!r}", plan)
        if objective is not None:
            bound = min(bound, objective)  # what is left above it is rounding
        return self._proof(bound, prover(answer, self.watch, objective))

    def _proof(self, bound: float, by: str) -> Proof:
        return Proof(bound, self.method.name, by, self._is_chosen and by != Prover.BOUNDS)

    def _best_proof(self, own: Proof | None, plan: Any, objective: float | None) -> Proof | None:
        """The best proof, with those of the methods before this one; each bound stays its method's."""
        best = max(self.known.proofs_beside(objective), key=lambda each: each.bound, default=None)
        if best is None:
            return own
        if objective is not None and exceeds(best.bound, objective):
            what = f"has a plan of {objective!r}, yet {best.method} claims the bound {best.bound!r}"
            raise self._contradiction(what, plan)
        if own is not None and (own.bound >= best.bound or _closes(objective, own.bound)):
            return own
        return best if objective is None else replace(best, bound=min(best.bound, objective))

    def _contradiction(self, what: str, plan: Any) -> CrosscheckError:
        family, instance = self.family, self.instance
        return CrosscheckError(
            f"{self.method.name} {what}",
            {
                "problem": family.name,
                "instance": family.to_json(instance),
                "method": self.method.name,
                "plan": family.plan_to_json(instance, plan),
            },
        )


def prover(answer: Answer[Any], watch: Watch, objective: float | None) -> str:
    """By whose means the best bound of an answer and its watch, which have one, was proved.

    Where several bounds close the gap, the method's own is named before one that it shares with others; where none
    does, the greatest.
    """
    bounds = _bounds(answer, watch)
    closing = [by for by, value in bounds.items() if _closes(objective, value)]
    if closing:
        return min(closing, key=lambda by: by == Prover.BOUNDS)
    return max(bounds, key=lambda by: bounds[by])


def _bounds(answer: Answer[Any], watch: Watch) -> dict[str, float]:
    found = {by: value for by, value in watch.bounds.items() if math.isfinite(value)}
    value = answer.bound
    if value is None or not math.isfinite(value):
        return found
    if answer.proved_by or value > max(found.values(), default=-math.inf):
        by = answer.proved_by or Prover.SEARCH
        found[by] = max(value, found.get(by, value))
    return found


def _closes(objective: float | None, bound: float | None) -> bool:
    gap = relative_gap(objective, bound)
    return gap is not None and gap <= OPTIMAL_GAP
