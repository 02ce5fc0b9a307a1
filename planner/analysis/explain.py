"""Why there is no plan and what would repair it, or what binds and what more of a resource would gain.

Every statement is a proof by an exact method on a changed instance: no duals, no estimates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from formulations.compiled.compile_times import compiling
from formulations.contract.what_if import Change, Member, Questions
from instances.requirements import with_requirements
from planner.analysis.proofs import Findings, Proofs, asked_of, beats, least
from planner.files.load import validate
from planner.files.settings import expect_types
from planner.results.result import Result
from planner.solving.solve import silent
from solvers.outcome import OPTIMAL_GAP, Limits, Status

#: Another value of a decision is proved within this share; that may take so many seconds, or as long as the first.
NEAR_GAP, NEAR_S = 0.005, 5.0
#: A stage whose memory is filled to this share is tight.
TIGHT_SHARE = 0.95


@dataclass(frozen=True)
class Repair:
    """A change with which there is a plan: of its kind the smallest, its objective (``None``: of another meaning)."""

    change: str
    amount: float
    says: str
    objective: float | None
    instance: Any = field(repr=False)


@dataclass(frozen=True)
class Gain:
    """What more of a resource is worth: the optimum with it, and by what share that is less (below 0: more).

    With some requirements, such as to use all devices, there may be no plan with more: ``None`` each.
    ``next_amount`` is the least amount with a plan that is better than now, ``next_objective`` the optimum there; both
    are ``None`` if no amount helps, or, without ``others_tried``, if it was not looked for.
    """

    change: str
    says: str
    amount: float
    objective: float | None
    gain: float | None
    next_amount: float | None = None
    next_says: str = ""
    next_objective: float | None = None
    others_tried: bool = False


@dataclass(frozen=True)
class Other:
    """Another value of a decision of the plan: what is found of all plans with it, within `NEAR_GAP` or not.

    ``answer`` is what a trainer does with the best of them, where one was named.
    """

    requirement: str
    result: Result
    answer: Any = None

    def more(self, now: float) -> tuple[float | None, float | None]:
        """By what share it takes longer than the optimum, and at least; ``None``: not known, or there is no plan."""
        known = self.result.objective, self.result.bound
        found, least = (None if each is None or not now else max(0.0, each / now - 1) for each in known)
        return found, least

    def to_json(self, now: float) -> dict[str, Any]:
        """As the object of an explanation has it."""
        more, least = self.more(now)
        head = {"requirement": self.requirement, "status": self.result.status.value, "more": more, "more_least": least}
        figures = {} if self.answer is None else self.answer.figures()
        return {**head, "objective": self.result.objective, "plan": self.result.plan, **figures}


@dataclass(kw_only=True)
class Explanation(Findings):
    """What `explain` found.

    Parameters
    ----------
    reason
        Where there is no plan, why in a sentence: that of `planner.solve`.
    conflict
        Rules and layers that no plan can keep together; without any one of them one can, if ``irreducible``.
    repairs
        Changes with which there is a plan.
    untried
        What was not tried though it might repair it, in words; more of anything else is proved not to.
    rows
        Where there is a plan, what each stage takes; ``bottleneck``: which are slowest, ``tight``: which fill their
        memory.
    gains
        What more of each resource would gain.
    others
        What other values of each decision cost, with the best of everything else, if that was wanted.
    answer
        What a trainer does with the plan, where one was named.
    """

    reason: str = ""
    conflict: Sequence[Member] = ()
    irreducible: bool = False
    repairs: Sequence[Repair] = ()
    untried: Sequence[str] = ()
    rows: Sequence[dict[str, Any]] = ()
    gains: Sequence[Gain] = ()
    others: Sequence[Other] = ()
    answer: Any = None

    @property
    def bottleneck(self) -> list[int]:
        """The slowest stages."""
        return [row["stage"] for row in self.rows if row["time_share"] >= 1 - OPTIMAL_GAP]

    @property
    def tight(self) -> list[int]:
        """The stages that fill their memory."""
        return [row["stage"] for row in self.rows if (row["memory_share"] or 0.0) >= TIGHT_SHARE]

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner explain --json`` prints (docs/interface/analyses.md)."""
        now = (self.result.objective if self.result is not None else None) or 0.0
        return {
            **self.head(),
            "reason": self.reason,
            "conflict": [_fields(each, "kind", "name", "says") for each in self.conflict],
            "irreducible": self.irreducible,
            "repairs": [_fields(each, "change", "amount", "says", "objective") for each in self.repairs],
            "untried": list(self.untried),
            "bottleneck": self.bottleneck,
            "tight": self.tight,
            "stages": list(self.rows),
            "gains": [
                _fields(each, "change", "says", "amount", "objective", "gain", "next_amount", "next_objective")
                for each in self.gains
            ],
            **({"others": [each.to_json(now) for each in self.others]} if self.others else {}),
            **({} if self.answer is None else {"answer": self.answer.stats()}),
            "plan": None if self.result is None else self.result.plan,
            "proofs": self.proofs,
            "seconds": self.seconds,
        }


def _fields(found: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(found, name) for name in names}


def explain(
    instance: Any,
    *,
    limits: Limits | None = None,
    listen: Callable[[int], None] | None = None,
    notice: Callable[[str], None] = silent,
    others: bool = False,
) -> Explanation:
    """Why an instance has no plan, or what binds its optimum.

    Parameters
    ----------
    instance
        From `planner.load`; of a problem whose rules can be left out one by one.
    limits
        The time is that of all proofs together; what is not known by then is left out (``stop``).
    listen
        Called with how many proofs there were, after each.
    notice
        As for `planner.solve`.
    others
        Whether other values of what the plan decides are priced first, of problems that say what that is.

    Raises
    ------
    UsageError
        If the problem has no such rules.
    """
    expect_types(limits=limits, notice=notice)
    instance = validate(instance)
    family, questions = asked_of(instance)
    with compiling(notice):
        family.load()
        proofs = Proofs(instance, limits or Limits(), listen)
        asked = _Asked(instance, questions, proofs, others)
        with proofs.into(asked.found):
            asked.ask()
    return asked.found


class _Asked:
    """An explanation as far as it is."""

    def __init__(self, instance: Any, questions: Questions[Any], proofs: Proofs, others: bool) -> None:
        self._instance, self._questions, self._proofs, self._prices = instance, questions, proofs, others
        self.found = Explanation(**proofs.subject(instance))

    def ask(self) -> None:
        """Find out; `EndedError` where the time is over, after which what is known is kept."""
        found = self._proofs.optimum(self._instance, explained=True)
        self.found.status = found.status
        if found.status is Status.INFEASIBLE:
            self.found.reason = found.reason
            self._filter()
            self._repair()
        else:
            self._binds(found)

    # -- infeasible

    def _filter(self) -> None:
        """Leave out member after member, whole groups first, as long as there is no plan; again until none can go."""
        every = self.found.conflict = self._questions.members(self._instance)
        while True:
            before = self.found.conflict
            for member in [each for each in before if each.kind != "layer"]:
                self._leave_out(every, [member])
            self._leave_out(every, [each for each in self.found.conflict if each.kind == "layer"])
            # A plan may keep a requirement only as long as another member stays: look again.
            if before == self.found.conflict or not self._instance.requirements:
                break
        self.found.irreducible = True

    def _leave_out(self, every: Sequence[Member], group: Sequence[Member]) -> None:
        """Drop the whole group if there is still no plan without it, or else each half of it."""
        if not group:
            return
        kept = tuple(each for each in self.found.conflict if each not in set(group))
        relaxed = self._questions.relaxed(self._instance, frozenset(every) - set(kept))
        if all(self._proofs.plan(each).status is Status.INFEASIBLE for each in relaxed):
            self.found.conflict = kept
        elif len(group) > 1:
            half = len(group) // 2
            self._leave_out(every, group[:half])
            self._leave_out(every, group[half:])

    def _repair(self) -> None:
        layers = [each.name for each in self.found.conflict if each.kind == "layer"]
        repairs: list[Repair] = []
        untried: list[str] = []
        self.found.repairs, self.found.untried = repairs, untried
        for group in self._questions.repairs(self._instance, layers):
            found = [each for change in group if (each := self._smallest(change)) is not None]
            if found:
                repairs.append(max(found, key=lambda each: each.amount) if len(found) > 1 else found[0])
            else:
                untried += dict.fromkeys(change.untried for change in group if change.untried)

    def _smallest(self, change: Change[Any]) -> Repair | None:
        amount = least(change, lambda result: result.plan is not None, self._proofs.plan)
        if amount is None:
            return None
        repaired = change.changed(amount)
        solved = self._proofs.optimum(repaired)
        if solved.plan is None:
            raise AssertionError(f"{change.says(amount)} was to repair {self._instance.name}")
        objective = solved.objective if change.same_times else None
        return Repair(change.name, amount, change.says(amount), objective, repaired)

    # -- feasible

    def _binds(self, found: Result) -> None:
        self.found.result = found
        self.found.rows = tuple(self._questions.rows(self._instance, found.own_plan))
        now = found.objective
        assert now is not None
        if self._prices and self._questions.decisions is not None:
            self.found.others = priced = list[Other]()
            for each in self._questions.decisions(self._instance):
                changed, most_s = with_requirements(self._instance, (each,)), max(NEAR_S, found.seconds)
                if self._proofs.family.judge(changed, found.own_plan):
                    priced.append(Other(str(each), self._proofs.near(changed, NEAR_GAP, most_s)))
        self.found.gains = gains = []
        for more in self._questions.resources(self._instance):
            with_more = self._proofs.optimum(more.change.changed(more.amount)).objective
            gain = None if with_more is None else 1 - with_more / now if now else 0.0
            others = bool(more.change.steps or more.change.needed)
            gained = Gain(more.change.name, more.unit, more.amount, with_more, gain, others_tried=others)
            gains.append(gained)
            if not now or not others:
                continue
            amount = least(more.change, beats(now), self._proofs.optimum)
            if amount is not None:
                then = self._proofs.optimum(more.change.changed(amount)).objective
                says = more.change.says(amount)
                gains[-1] = replace(gained, next_amount=amount, next_says=says, next_objective=then)
