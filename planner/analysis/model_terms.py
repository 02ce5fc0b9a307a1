"""What is stated of an open model: its quantities, compared with whole numbers, as requirements.

Source: this project.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from formulations.contract.quantities import Quantity
from instances.requirements import GRAMMAR, Argument, Requirement, parse
from planner.process.errors import UsageError


@dataclass(frozen=True, eq=False)
class Term:
    """A quantity with its arguments; comparing it with a whole number makes a requirement of it.

    >>> str(Term("num_stages") <= 6), str(Term("same_stage", (3, 7)).requirement())
    ('num_stages <= 6', 'same_stage(3, 7)')
    """

    quantity: str
    arguments: tuple[Argument, ...] = ()

    def requirement(self, relation: str = "", amount: object = 1) -> Requirement:
        """That the quantity is so; as it stands: that it holds. `UsageError` for what is no whole number."""
        return Requirement(self.quantity, self.arguments, relation or "==", _whole(amount), is_alone=not relation)

    def __le__(self, amount: int) -> Requirement:
        return self.requirement("<=", amount)

    def __lt__(self, amount: int) -> Requirement:
        return self.requirement("<=", _whole(amount) - 1)

    def __ge__(self, amount: int) -> Requirement:
        return self.requirement(">=", amount)

    def __gt__(self, amount: int) -> Requirement:
        return self.requirement(">=", _whole(amount) + 1)

    def __eq__(self, amount: object) -> Requirement:  # type: ignore[override]
        return self.requirement("==", amount)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class Named(Term):
    """A quantity of a model before it has its arguments; one that takes none is compared as it is."""

    of: Quantity | None = None

    def __call__(self, *arguments: Argument, **by_name: Argument) -> Term:
        """The quantity with arguments, in their order or by their names."""
        assert self.of is not None
        return Term(self.quantity, in_order(self.of, arguments, by_name))

    def requirement(self, relation: str = "", amount: object = 1) -> Requirement:
        """As of a `Term`; `UsageError`, which shows how it is written, if the quantity takes arguments."""
        assert self.of is not None
        if self.of.domains:
            every = ", ".join(["'*'"] * len(self.of.domains))
            written = f"m.{self.of.signature}, or m.{self.quantity}({every}) for all"
            raise UsageError(f"{self.quantity} is of {self.of.domains[0].name}s; expected {written}")
        return super().requirement(relation, amount)


#: What states a requirement: one, a term that is yes or no, or text.
Stated = Requirement | Term | str


def requirement_of(stated: Stated) -> Requirement:
    """What was stated, as a requirement; `UsageError` for text that is none."""
    if isinstance(stated, Requirement):
        return stated
    if isinstance(stated, Term):
        return stated.requirement()
    if not isinstance(stated, str):
        raise UsageError.at("requirement", stated, GRAMMAR)
    try:
        return parse(stated)
    except ValueError as rule:
        raise UsageError.at("requirement", stated, str(rule)) from None


def opposite_of(stated: Stated) -> Requirement:
    """The requirement that it does not hold; errors as of `requirement_of`."""
    if isinstance(stated, Term):
        return stated.requirement(amount=0)
    if isinstance(stated, str):
        return requirement_of(f"not {stated}")
    try:
        return requirement_of(stated).negated()
    except ValueError as rule:
        raise UsageError.at("requirement", str(stated), str(rule)) from None


def _whole(given: object, what: str = "the amount of a requirement", rule: str = "a whole number") -> int:
    try:
        return int(operator.index(given))  # type: ignore[arg-type]
    except TypeError:
        raise UsageError.at(what, given, rule) from None


def _argument(given: object) -> Argument:
    return given if isinstance(given, str) else _whole(given, "an argument of a quantity", "a whole number or a name")


def in_order(
    quantity: Quantity, arguments: Sequence[Argument], by_name: Mapping[str, Argument]
) -> tuple[Argument, ...]:
    """The arguments of a quantity in its own order; `UsageError` if they are not those that it takes."""
    rest = dict(by_name)
    found = list(arguments) + [rest.pop(each.name) for each in quantity.domains[len(arguments) :] if each.name in rest]
    if rest or len(found) != len(quantity.domains):
        raise UsageError(f"{quantity.name} has other arguments; expected {quantity.signature}")
    return tuple(map(_argument, found))
