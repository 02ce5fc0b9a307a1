"""Which problems a method solves inside: each as an instance, and what the method's inner heuristic chose for it.

A room lists them as `Family.subproblems`; whoever extracts or counts them knows no family by name.

Source: Piper, Appendix C, does this for its knapsacks.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Decision(NamedTuple):
    """A question about an instance that a heuristic answered: is there a plan of at most ``target``?

    ``answer``: whether it says so; ``is_proved``: whether its "no" is a proof, as its search came to an end.
    """

    target: float
    answer: bool
    is_proved: bool


@dataclass(frozen=True)
class Subproblem:
    """One instance that arose inside a run.

    ``instance``: of the other problem, complete.
    ``inner``: what chose inside, in a word or two: the name of the method or rule.
    ``plan``: what it chose, a plan of ``instance``; ``None``: it found none.
    ``origin``: where in the run it arose, and from what: texts and numbers.
    ``decision``: the question that was asked, where it was not for the best plan.
    """

    instance: Any
    inner: str
    plan: Any
    origin: Mapping[str, str | int | float] = field(default_factory=dict)
    decision: Decision | None = None


#: Makes a subproblem; called for those alone that are looked at.
Arisen = Callable[[], Subproblem]


@dataclass(frozen=True)
class Inside:
    """The subproblems of one kind that arise inside a method.

    ``method``, ``problem``: the method of this family inside which they arise, and the family that they are instances
    of.
    ``says``: what they are, in words that continue "the".
    ``arise(instance, limits, watch)``: those of a run, in its order; what makes them is called later, or
    never. It ends early once the watch is stopped.
    ``exactly(instance, limits, watch)``: the same method with each of them solved exactly; ``None``: there
    is no such run.
    ``walk``: where there are millions of them: a class that counts, picks and compares them in compiled loops
    (`formulations.stage_partitioning.questions.studies.subproblems.Subproblems`) in place of ``arise``.
    """

    method: str
    problem: str
    says: str
    arise: Callable[..., Iterator[Arisen]] | None = None
    exactly: Callable[..., Any] | None = None
    walk: Callable[..., Any] | None = None
