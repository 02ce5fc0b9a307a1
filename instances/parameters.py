"""Parameters of generators and overrides: how a text or a Python value becomes a checked number.

Every parser takes what it returns, and raises ``ValueError`` with the rule that the value breaks.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

#: Largest number of devices, micro-batches, layers.
MAX_COUNT = 10**6
#: Largest size, time or bandwidth, and the smallest above 0: sums, products and quotients of such numbers stay far from
#: overflow, and from where floats lose digits.
MAX_AMOUNT = 1e30
MIN_AMOUNT = 1e-30
#: The rule of what is above 0, in words, and that of sizes and times.
POSITIVE = f"a positive number from {MIN_AMOUNT:g} to {MAX_AMOUNT:g}"
AMOUNTS = f"0 or {POSITIVE}"

_ABOVE_0 = re.compile(r"\s*[-+]?[0._]*[1-9]")


@dataclass(frozen=True)
class Setting:
    """A parameter of a catalog entry, an override of an instance, or an option of a method or claim.

    ``--name``, how its text is read, its help line and its default (as text, for the help). ``parse`` turns the command
    line's text (or a Python value) into the value, raising ``ValueError`` with the rule it breaks. ``is_flag`` settings
    are given without a value. ``field``: what an override replaces in the instance (empty: the field of its name).
    """

    name: str
    parse: Callable[[Any], Any]
    help: str
    default: str = ""
    is_flag: bool = False
    metavar: str = "TEXT"
    field: str = ""


def parse_count(value: Any) -> int:
    """A positive integer, as an int, an integral float or text.

    >>> parse_count("64"), parse_count(1920.0)
    (64, 1920)
    """
    rule = f"an integer from 1 to {MAX_COUNT}"
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    try:
        found = int(value) if isinstance(value, float) and value.is_integer() else as_int(value)
    except ValueError:
        raise ValueError(rule) from None
    if not 1 <= found <= MAX_COUNT:
        raise ValueError(rule)
    return found


def as_int(value: Any) -> int:
    """An integer of any type, such as numpy's, as an int; ``ValueError`` for what is none, and for True and False."""
    if isinstance(value, bool):
        raise ValueError("an integer")
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError("an integer") from None


def parse_amount(value: Any) -> float:
    """0 or a number from ``MIN_AMOUNT`` to ``MAX_AMOUNT``, as a number or text."""
    if isinstance(value, str):
        try:
            value = math.nan if vanishes(value) else float(value)
        except ValueError:
            raise ValueError(AMOUNTS) from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_amount(value):
        raise ValueError(AMOUNTS)
    return float(value)


def is_amount(value: float) -> bool:
    """Whether a number keeps the rule of sizes and times (`AMOUNTS`)."""
    return value == 0 or MIN_AMOUNT <= value <= MAX_AMOUNT


def vanishes(number: str) -> bool:
    """Whether a number as text is not 0, but nearer to it than all floats, so that it would be read as 0.

    >>> vanishes("1e-400"), vanishes("0e5"), vanishes("5e-324")
    (True, False, False)
    """
    return float(number) == 0 and _ABOVE_0.match(number) is not None


def parse_search_timeout(value: Any) -> float | None:
    """Seconds above 0, or ``None`` for "none".

    >>> parse_search_timeout("none"), parse_search_timeout("2.5")
    (None, 2.5)
    """
    if value == "none":
        return None
    try:
        seconds = parse_amount(value)
    except ValueError:
        seconds = 0.0
    if not seconds:
        raise ValueError("a number of seconds above 0, or none")
    return seconds


def parse_flag(value: Any) -> bool:
    """True or False, as such or as text."""
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def parse_degrees(value: Any) -> tuple[int, ...]:
    """Distinct positive integers, ascending, from "1,2,8", a number or a sequence.

    >>> parse_degrees("8, 1")
    (1, 8)
    """
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, Sequence) else [value]
    try:
        degrees = tuple(sorted({parse_count(part) for part in parts}))
    except ValueError:
        degrees = ()
    if not degrees:
        raise ValueError("positive integers such as 1,2,8")
    return degrees


def parse_names(value: Any) -> tuple[str, ...]:
    """Distinct names from "one,other" or a sequence of texts."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or not all(isinstance(part, str) for part in parts):
        raise ValueError("names separated by commas")
    names = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not names:
        raise ValueError("names separated by commas")
    return names


def parse_seed(value: Any) -> int:
    """A seed: 0 or a count."""
    return 0 if value in (0, "0") else parse_count(value)


def count_between(least: int, most: int) -> Callable[[Any], int]:
    """A parser of counts from ``least`` to ``most``."""

    def parse(value: Any) -> int:
        if not least <= parse_count(value) <= most:
            raise ValueError(f"an integer from {least} to {most}")
        return parse_count(value)

    return parse


def one_of(*choices: str) -> Callable[[Any], str]:
    """A parser that accepts these words."""

    def parse(value: Any) -> str:
        if str(value) not in choices:
            raise ValueError(" or ".join(choices))
        return str(value)

    return parse


def within(parse: Callable[[Any], float], least: float = 0.0) -> Callable[[Any], float]:
    """A parser of an amount (`AMOUNTS`) that is also at least ``least``."""

    def bounded(value: Any) -> float:
        number = parse(value)
        if not (is_amount(number) and number >= least):
            raise ValueError(f"a number from {least:g} to {MAX_AMOUNT:g}" if least else AMOUNTS)
        return number

    return bounded


def choice(name: str, choices: Iterable[str], help: str, default: str = "", field: str = "") -> Setting:
    """A setting that is one of these words, which its help lists."""
    words = tuple(map(str, choices))
    return Setting(name, one_of(*words), help, default, metavar="|".join(words), field=field)


def flag(name: str, help: str) -> Setting:
    """A setting that is given without a value."""
    return Setting(name, parse_flag, help, is_flag=True)
