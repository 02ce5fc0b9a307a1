"""What the methods of one run know of each other: results, bounds by their provers, and whether a solver is believed.

A solver of one's choice is not ours: once a plan contradicts what it claims, none of its claims counts in the whole
run, whichever method it ran for, before or after.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from planner.results.check import exceeds
from planner.results.result import Result
from solvers.outcome import DEFAULT_SOLVER


@dataclass(frozen=True)
class Proof:
    """A bound of ``method``, ``by`` a `solvers.outcome.Prover` or the method named there.

    ``is_claim``: it rests on what a solver of one's choice states.
    """

    bound: float
    method: str
    by: str
    is_claim: bool


@dataclass
class Known:
    """The results and proofs so far; ``doubted`` is the false claim of the chosen ``solver``, if it made one."""

    solver: str = DEFAULT_SOLVER
    results: list[Result] = field(default_factory=list)
    doubted: str = ""
    _proofs: list[Proof] = field(default_factory=list)
    _by_claim: list[bool] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """What the methods took together."""
        return sum(each.seconds for each in self.results)

    def add(self, result: Result, proofs: Iterable[Proof], by_claim: bool) -> None:
        """Keep what a method ended with, and all that it proved; ``by_claim``: the bound of the result is a claim."""
        self.results.append(result)
        self._proofs.extend(proofs)
        self._by_claim.append(by_claim)

    def proofs_beside(self, objective: float | None) -> list[Proof]:
        """The proofs that count beside a plan of this objective (``None``: beside no plan)."""
        is_doubted = bool(self.doubted or self._false_claim(objective))
        return [each for each in self._proofs if not (each.is_claim and is_doubted)]

    def compare(self, objective: float | None) -> None:
        """Doubt the solver if the objective of a verified plan contradicts a claim of it."""
        false = self._false_claim(objective)
        if false is not None:
            self.doubt(f"claims the bound {false.bound:.9g} above a plan of {objective:.9g}")

    def doubt(self, claim: str) -> None:
        """Believe no claim of the solver any more; results that rest on one have no bound."""
        self.doubted = self.doubted or claim
        unproved = [replace(each, bound=None, gap=None, proved_by=None) for each in self.results]
        self.results = [
            without if by_claim else each
            for each, without, by_claim in zip(self.results, unproved, self._by_claim, strict=True)
        ]

    def _false_claim(self, objective: float | None) -> Proof | None:
        """The greatest claim, if it exceeds an objective."""
        claims = [each for each in self._proofs if each.is_claim]
        greatest = max(claims, key=lambda each: each.bound, default=None)
        if objective is None or greatest is None or not exceeds(greatest.bound, objective):
            return None
        return greatest
