"""Instances drawn from a catalog entry: ``'bert:layers=4..48,hidden-size=1024|2048,memory=8GiB..40GiB'``.

``LOW..HIGH`` is a range (whole numbers where both ends are), ``A|B`` a choice, anything else the one value. Parameters
of the entry and overrides of its problem can be drawn; what is not named has its default, but for the ``seed`` of an
entry that has one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import formulations
from instances.parameters import MAX_COUNT, Setting
from planner.files.load import catalog
from planner.process.errors import UsageError

#: Commas also stand in values: what separates two parameters is followed by a name.
_COMMA = re.compile(r",(?=\s*[a-z][\w-]*=)")
_SEED = "seed"

Draw = Callable[[random.Random], str]


@dataclass(frozen=True)
class Generator:
    """A catalog entry with what is drawn of it; ``spelled``: parameters were given, ``varies``: draws differ."""

    source: str
    entry: str
    axes: Mapping[str, Draw]
    varies: bool
    spelled: bool

    def draws(self, count: int, seed: int) -> Iterator[dict[str, str]]:
        """Settings of so many instances; fewer are the beginning of more."""
        rng = random.Random(seed)
        for _ in range(count):
            yield {name: draw(rng) for name, draw in self.axes.items()}


def generator(source: str) -> Generator | None:
    """The catalog entry that a source names, with what varies; ``None`` if it names none.

    `UsageError` if a parameter is unknown, is given twice, or its values break its rule.
    """
    name, colon, given = source.partition(":")
    entry = catalog().get(name)
    if entry is None:
        return None
    family = next(family for family in formulations.FAMILIES if family.name == entry.family)
    known = {setting.name: setting for setting in (*family.overrides, *entry.parameters)}
    axes: dict[str, Draw] = {}
    varies = False
    for part in _COMMA.split(given) if colon else ():
        parameter, sign, values = (each.strip() for each in part.partition("="))
        parameter = parameter.replace("_", "-")
        if not sign or not values or parameter in axes:
            raise UsageError.at("SOURCE", source, f"{name}:PARAMETER=VALUES,..., each parameter once")
        if parameter not in known:
            raise UsageError.unknown("parameter", parameter, list(known))
        axes[parameter], is_one = _axis(known[parameter], values)
        varies |= not is_one
    if any(each.name == _SEED for each in entry.parameters) and _SEED not in axes:
        axes[_SEED], varies = (lambda rng: str(rng.randrange(MAX_COUNT))), True
    return Generator(source, name, axes, varies, bool(colon))


def _axis(setting: Setting, values: str) -> tuple[Draw, bool]:
    """How values of a parameter are drawn, and whether there is only one; `UsageError` if one breaks its rule."""
    choices = [each.strip() for each in values.split("|")]
    low, dots, high = values.partition("..")
    if dots and len(choices) == 1:
        ends = [_parse_value(setting, values, each.strip()) for each in (low, high)]
        if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends) or ends[0] > ends[1]:
            raise UsageError.at(f"--{setting.name}", values, "LOW..HIGH, two numbers in this order")
        return _between(*ends), ends[0] == ends[1]
    for choice in choices:
        _parse_value(setting, values, choice)
    return (lambda rng: rng.choice(choices)), len(set(choices)) == 1


def _between(low: float, high: float) -> Draw:
    if float(low).is_integer() and float(high).is_integer():
        return lambda rng: str(rng.randint(int(low), int(high)))
    return lambda rng: repr(rng.uniform(low, high))


def _parse_value(setting: Setting, values: str, text: str) -> Any:
    try:
        return setting.parse(text)
    except ValueError as rule:
        shown = values if values == text else f"{text} in {values}"
        raise UsageError.at(f"--{setting.name}", shown, str(rule)) from None
