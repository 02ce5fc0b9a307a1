"""Requirements: what a caller demands of a plan beyond the problem's own rules, as text and as data.

Nouns only. An instance declares its requirements as texts in their canonical form; which quantities its plans have is
the family's vocabulary (`formulations.contract.quantities`).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from instances.errors import expect
from instances.parameters import MAX_COUNT

#: An argument of a quantity: a number, such as that of a stage, or a name, such as that of a node.
Argument = int | str

RELATIONS = ("<=", ">=", "==")

#: The grammar, in words.
GRAMMAR = (
    "a requirement such as num_stages <= 6 or not same_stage(3, 7), one a --require; names with blanks in quotes "
    "(planner list PROBLEM)"
)

_TOKENS = re.compile(r"""\s*(?:(?P<name>[^\s()<>=!,"']+)|(?P<quoted>"[^"]*"|'[^']*')|(?P<sign><=|>=|==|=|<|>|[(),]))""")
_PLAIN = re.compile(r"""[^\s()<>=!,"']+""")
_WORD = re.compile(r"[a-z][a-z0-9_]*")
_NUMBER = re.compile(r"-?[0-9]{1,15}")
_LONGEST = 10_000


@dataclass(frozen=True)
class Requirement:
    """A quantity of a plan, and the whole number that it must not exceed, reach at least, or be.

    ``relation`` is one of `RELATIONS`. A quantity of yes and no is 1 or 0, and may stand alone (``is_alone``):
    ``same_stage(3, 7)`` demands that it is 1, ``not same_stage(3, 7)`` that it is 0.
    """

    quantity: str
    arguments: tuple[Argument, ...]
    relation: str
    amount: int
    is_alone: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        if self.is_alone:
            return f"{'' if self.amount else 'not '}{_call_text(self.quantity, self.arguments)}"
        return f"{_call_text(self.quantity, self.arguments)} {self.relation} {self.amount}"

    def holds(self, value: int) -> bool:
        """Whether a quantity of this value meets it."""
        if self.relation == "<=":
            return value <= self.amount
        return value >= self.amount if self.relation == ">=" else value == self.amount

    def negated(self) -> "Requirement":
        """What holds of a whole number where this does not; ``ValueError`` for ``==``, whose opposite is two ranges."""
        if self.relation == "<=":
            return replace(self, relation=">=", amount=self.amount + 1)
        if self.relation == ">=":
            return replace(self, relation="<=", amount=self.amount - 1)
        raise ValueError(f"<= or >= where it is negated, or a quantity of yes and no alone, instead of {self}")


def _call_text(quantity: str, arguments: tuple[Argument, ...]) -> str:
    return f"{quantity}({', '.join(map(_argument_text, arguments))})" if arguments else quantity


def _argument_text(argument: Argument) -> str:
    """As `parse` reads it back: names that could be taken for anything else stand in quotes."""
    if isinstance(argument, int) or (_PLAIN.fullmatch(argument) and not _NUMBER.fullmatch(argument)):
        return str(argument)
    return f'"{argument}"' if '"' not in argument else f"'{argument}'"


@cache
def parse(text: str) -> Requirement:
    """The requirement that a text states.

    ::

        requirement  ["not"] quantity [("<=" | ">=" | "==" | "=" | "<" | ">") whole number]
        quantity     NAME ["(" argument {"," argument} ")"]
        argument     whole number | NAME | "any text" | 'any text' | *

    ``*`` stands for every value of the argument (`formulations.contract.quantities.for_all`). Without a relation the
    quantity, one of yes and no, must be yes, and after ``not`` it must be no; ``==`` cannot be negated.

    `ValueError`: with the grammar in words, if the text is of another form.

    >>> str(parse("not same_stage(3, 7)")), str(parse("num_stages<7"))
    ('not same_stage(3, 7)', 'num_stages <= 6')
    """
    tokens = _tokens_of(text)
    is_negated = tokens[:1] == ["not"]
    del tokens[: int(is_negated)]
    quantity = tokens.pop(0) if tokens else ""
    if not _WORD.fullmatch(quantity):
        raise ValueError(GRAMMAR)
    arguments = _arguments(tokens)
    if not tokens:
        return Requirement(quantity, arguments, "==", 0 if is_negated else 1, is_alone=True)
    if len(tokens) != 2 or not _NUMBER.fullmatch(tokens[1]):
        raise ValueError(GRAMMAR)
    found = _make_requirement(quantity, arguments, tokens[0], int(tokens[1]))
    return found.negated() if is_negated else found


def _tokens_of(text: str) -> list[str]:
    tokens, at = [], 0
    text = text.strip()
    while at < len(text):
        found = _TOKENS.match(text, at)
        if found is None or len(text) > _LONGEST:
            raise ValueError(GRAMMAR)
        tokens.append(found.group().strip())
        at = found.end()
    return tokens


def _arguments(tokens: list[str]) -> tuple[Argument, ...]:
    """The arguments in brackets that the tokens begin with, which are taken off."""
    if tokens[:1] != ["("]:
        return ()
    if ")" not in tokens:
        raise ValueError(GRAMMAR)
    end = tokens.index(")")
    inside = tokens[1:end]
    del tokens[: end + 1]
    between = set(inside[1::2])
    if len(inside) % 2 == 0 or between - {","} or {"(", ","} & set(inside[::2]):
        raise ValueError(GRAMMAR)
    return tuple(_argument(token) for token in inside[::2])


def _argument(token: str) -> Argument:
    if token[0] in "\"'":
        return token[1:-1]
    return int(token) if _NUMBER.fullmatch(token) else token


def _make_requirement(quantity: str, arguments: tuple[Argument, ...], sign: str, amount: int) -> Requirement:
    if abs(amount) > MAX_COUNT:
        raise ValueError(f"a whole number of at most {MAX_COUNT}")
    strict = {"<": ("<=", -1), ">": (">=", 1), "=": ("==", 0)}
    relation, step = strict.get(sign, (sign, 0))
    if relation not in RELATIONS:
        raise ValueError(GRAMMAR)
    return Requirement(quantity, arguments, relation, amount + step)


def spoken(requirements: Iterable[str]) -> str:
    """Requirements as one sentence says them: those of numbers that count up by 1 are named by the first and the last.

    >>> spoken(["nodes(0) <= 5", "nodes(1) <= 5", "nodes(2) <= 5", "num_stages <= 6"])
    'nodes(0) to nodes(2) <= 5 and num_stages <= 6'
    """
    runs: list[list[Requirement]] = []
    for requirement in map(parse, requirements):
        number = requirement.arguments[0] if len(requirement.arguments) == 1 else None
        if (
            runs
            and isinstance(number, int)
            and not requirement.is_alone
            and replace(requirement, arguments=(number - 1,)) == runs[-1][-1]
        ):
            runs[-1].append(requirement)
        else:
            runs.append([requirement])
    return " and ".join(
        f"{_call_text(run[0].quantity, run[0].arguments)} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs
    )


def requirements_of(instance: Any) -> tuple[Requirement, ...]:
    """The requirements that an instance declares."""
    return tuple(map(parse, instance.requirements))


def with_requirements(instance: Any, more: Iterable[Requirement]) -> Any:
    """The instance with these requirements as well, each once."""
    return replace(instance, requirements=tuple(dict.fromkeys([*instance.requirements, *map(str, more)])))


def expect_none(part: Any, where: str, field: str) -> None:
    """The part of an instance has no requirements of its own; `InstanceError` if it has."""
    rule = "none: requirements are those of the whole instance"
    expect(not part.requirements, where, f"{field}.requirements", list(part.requirements), rule)
