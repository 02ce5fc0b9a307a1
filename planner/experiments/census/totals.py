"""What every census has: its totals, and what the losses inside do to the whole plan."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from formulations.contract.family import Family, Method
from formulations.contract.inner_problems import Inside
from planner.files.load import family_of
from planner.files.settings import declared_options
from planner.solving.solve import run
from solvers.outcome import Limits

#: The worst subproblems of every inner heuristic that are kept as files.
WORST = 5


@dataclass(kw_only=True)
class Census(ABC):
    """The totals of a census; ``complete``: neither a ``signal`` nor workers that are ``lost`` ended it early.

    ``counts`` has how many subproblems there are, ``variants`` how each inner heuristic fared; ``variant`` is the one
    that the method uses, where it has several. ``end_to_end`` has the objective of the method as it is, the one with
    these solved exactly (of knapsacks: the optimum), and how much more the former is (``loss``; below 0: less).
    ``contradictions``: claims that exclude each other, in words. ``seconds``: until the last subproblem was solved;
    ``cpu_seconds``: of all solving, that of earlier runs included. ``unwritten`` says which files could not be written.
    """

    instance: Any
    inside: Inside
    complete: bool
    counts: dict[str, int]
    variants: dict[str, Any]
    variant: str = ""
    out: str
    seconds: float
    cpu_seconds: float
    contradictions: list[str] = field(default_factory=list)
    end_to_end: dict[str, Any] | None = None
    signal: int | None = None
    lost: str | None = None
    unwritten: list[str] = field(default_factory=list)

    @property
    def agree(self) -> bool:
        """Whether no two claims exclude each other."""
        return not self.contradictions

    @property
    @abstractmethod
    def progress(self) -> str:
        """How far it came, in words that continue "in a folder"."""

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """What its JSON object has of its own."""

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner census --json`` prints."""
        return {
            "problem": family_of(self.instance).name,
            "instance": self.instance.name,
            "options": declared_options(self.instance),
            **self.counts,
            **self.figures(),
            **{name: getattr(self, name) for name in ("complete", "end_to_end", "seconds", "cpu_seconds", "out")},
        }


def compare_runs(
    family: Family[Any, Any],
    instance: Any,
    runs: Mapping[str, tuple[Method[Any, Any], Mapping[str, Any]]],
    limits: Limits,
) -> tuple[dict[str, Any] | None, int | None]:
    """The objectives of two runs by their names, and by how much the first is more; nothing if a signal ended one."""
    found: dict[str, Any] = {}
    for name, (method, options) in runs.items():
        result = run(family, method, instance, limits, options)
        if result.signal is not None:
            return None, result.signal
        found[name] = result.objective
    as_it_is, exactly = found.values()
    loss = as_it_is / exactly - 1 if as_it_is is not None and exactly else None
    return {**found, "loss": loss, "unit": family.unit(instance)}, None
