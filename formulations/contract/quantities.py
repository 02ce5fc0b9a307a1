"""What requirements may speak of: the quantities of a family's plans, and whether a plan meets an instance's.

A quantity is a whole number that can be read off a plan, or yes (1) and no (0). Each room lists its own
(``definition/quantities.py``), `judge` holds plans to them, and its models express them.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from itertools import product
from typing import Any

from formulations.contract.violation import Violation
from instances.errors import InstanceError, closest
from instances.exchange import form_of
from instances.requirements import GRAMMAR, Argument, Requirement, parse, requirements_of

#: An argument that stands for every value: ``nodes(*) <= 5``.
EVERY = "*"
#: So many requirements at most stand for one.
_MOST = 10_000
#: Longer lists of an argument's values are described by their first and last.
_FEW = 6


@dataclass(frozen=True)
class Domain:
    """What an argument of a quantity may be: ``values(instance)`` lists it (node ids, or numbers from 0 on).

    ``in_every_plan``: whether every plan has all of them; it may have fewer stages than the last one that there may be.
    """

    name: str
    values: Callable[[Any], Iterable[Argument]]
    in_every_plan: bool = True


@dataclass(frozen=True)
class Quantity:
    """A whole number that can be read off every plan.

    ``name``: as requirements call it.
    ``says``: one line for a person, with what numbers count from.
    ``of_plan(instance, plan, *arguments) -> int``, with arguments of the ``domains``; 0 where a plan has
    no such thing, such as a stage of that number.
    ``domains``: one for each argument.
    ``is_yes_no``: whether it is 1 for yes and 0 for no, and may stand alone in a requirement.
    """

    name: str
    says: str
    of_plan: Callable[..., int]
    domains: tuple[Domain, ...] = ()
    is_yes_no: bool = False

    @property
    def signature(self) -> str:
        """``same_stage(node, node)``."""
        return f"{self.name}({', '.join(each.name for each in self.domains)})" if self.domains else self.name


def names(vocabulary: Iterable[Quantity]) -> frozenset[str]:
    """The names of all quantities: what a model expresses that leaves none out."""
    return frozenset(quantity.name for quantity in vocabulary)


def judge(violations: Callable[[Any, Any], tuple[Violation, ...]], instance: Any, plan: Any) -> tuple[Violation, ...]:
    """The rules of a problem that a plan breaks; if there are none, the requirements of the instance (`unmet`)."""
    broken = violations(instance, plan)
    if broken or not getattr(instance, "requirements", ()):
        return broken
    kind: Any = type(instance)
    return tuple(unmet(vocabulary_of(kind), instance, plan))


#: By the dataclass of their instances, those of problems without a package (`formulations.contract.problem`).
OWN_VOCABULARIES: dict[Any, tuple[Quantity, ...]] = {}


@cache
def vocabulary_of(kind: Any) -> tuple[Quantity, ...]:
    """The quantities of the problem whose instances are of this dataclass."""
    if kind in OWN_VOCABULARIES:
        return OWN_VOCABULARIES[kind]
    home = import_module(f"formulations.{form_of(kind).problem}.definition.quantities")
    found: tuple[Quantity, ...] = home.VOCABULARY
    return found


def unmet(vocabulary: Iterable[Quantity], instance: Any, plan: Any) -> list[Violation]:
    """The rule ``required``, broken once for each requirement of the instance that a plan does not meet."""
    found = []
    for requirement in requirements_of(instance):
        quantity, arguments = resolve_requirement(vocabulary, instance, requirement)
        value = quantity.of_plan(instance, plan, *arguments)
        if not requirement.holds(value):
            found.append(Violation("required", f"{requirement}; it is {value}"))
    return found


def resolve_requirement(
    vocabulary: Iterable[Quantity], instance: Any, requirement: Requirement
) -> tuple[Quantity, tuple[Argument, ...]]:
    """The quantity that a requirement speaks of, and its arguments as the instance has them.

    `ValueError`: with the rule that is broken: an unknown quantity, another number of arguments, an argument of no such
    name, a number that is compared with nothing.
    """
    known = {quantity.name: quantity for quantity in vocabulary}
    if requirement.quantity not in known:
        signatures = ", ".join(quantity.signature for quantity in known.values())
        raise ValueError(f"one of {signatures or 'none'}{closest(requirement.quantity, known)}")
    quantity = known[requirement.quantity]
    if len(requirement.arguments) != len(quantity.domains):
        raise ValueError(quantity.signature)
    if requirement.is_alone and not quantity.is_yes_no:
        raise ValueError(f"a whole number to compare it with, such as {requirement.quantity} <= 6: it is no yes or no")
    arguments = map(partial(_find_argument, instance), quantity.domains, requirement.arguments)
    return quantity, tuple(arguments)


def _find_argument(instance: Any, domain: Domain, argument: Argument) -> Argument:
    """The argument as the instance has it: 3 and "3" name the same node."""
    values = domain.values(instance)
    if isinstance(values, range):
        if isinstance(argument, int) and argument in values:
            return argument
        raise ValueError(f"{domain.name} from {values.start} to {values[-1]}" if values else f"a {domain.name}: none")
    known = {str(value): value for value in values}
    if str(argument) not in known:
        some = ", ".join([*list(known)[:_FEW], *(["..."] if len(known) > _FEW else [])])
        raise ValueError(f"{domain.name} that exists ({some}){closest(argument, known)}")
    return known[str(argument)]


def check(vocabulary: Iterable[Quantity], instance: Any, where: str) -> tuple[str, ...]:
    """The requirements of the instance, in place of one for ``*`` those for all that it stands for.

    `InstanceError` for the first that speaks of other quantities than there are.
    """
    vocabulary, found = list(vocabulary), []
    for number, text in enumerate(instance.requirements):
        field = f"requirements[{number}]"
        try:
            for requirement in for_all(vocabulary, instance, parse(text)):
                resolve_requirement(vocabulary, instance, requirement)
                found.append(str(requirement))
        except ValueError as rule:
            raise InstanceError.at(where, field, text, str(rule)) from None
    return tuple(dict.fromkeys(found))


def for_all(vocabulary: Iterable[Quantity], instance: Any, requirement: Requirement) -> list[Requirement]:
    """A requirement for each value of the arguments that are ``*``; the requirement itself where none is.

    A node may be called ``*``: then it is that node. ``ValueError`` for what would require that a plan has all the
    stages that there may be, and for very many.
    """
    quantity = next((each for each in vocabulary if each.name == requirement.quantity), None)
    if quantity is None or len(requirement.arguments) != len(quantity.domains):
        return [requirement]
    choices: list[list[Argument]] = []
    for domain, argument in zip(quantity.domains, requirement.arguments, strict=True):
        values = list(domain.values(instance)) if argument == EVERY else []
        is_every = bool(values) and EVERY not in values
        if is_every and not domain.in_every_plan and not requirement.holds(0):
            raise ValueError(f"<= for every {domain.name}: a plan need not have all that there may be")
        choices.append(values if is_every else [argument])
    if math.prod(map(len, choices)) > _MOST:
        raise ValueError(f"at most {_MOST:,} requirements for all")
    return [replace(requirement, arguments=arguments) for arguments in product(*choices)]


def unknown_to(honours: frozenset[str], instance: Any) -> str | None:
    """Which requirement a method with these quantities cannot honour; ``None``: it honours all."""
    for requirement in requirements_of(instance):
        if requirement.quantity not in honours:
            can = f"requirements about {', '.join(sorted(honours))} alone" if honours else "no requirements"
            return f"it cannot honour the requirement {requirement}: it takes {can}"
    return None


__all__ = ["GRAMMAR", "Domain", "Quantity", "check", "judge", "names", "resolve_requirement", "unknown_to", "unmet"]
