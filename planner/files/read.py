"""Text and JSON from files that anybody may have written: every error is one line that names the file."""

import json
import math
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

from instances.errors import InstanceError, path
from instances.files import read_text, read_utf8
from instances.parameters import vanishes
from solvers import memory_budget

#: The name of standard input.
STANDARD = "-"


def read_named(name: str) -> tuple[str, str]:
    """The UTF-8 text of a file or (``-``) of standard input, and its name for errors; `InstanceError`."""
    return (read_text(Path(name)), name) if name != STANDARD else (_all_of(sys.stdin), "standard input")


def read_object(name: str, rule: str) -> Mapping[str, Any]:
    """The JSON object in a file or on standard input (`read_named`); `InstanceError`, which says the ``rule``."""
    text, where = read_named(name)
    content = parse_json(text, where)
    if not isinstance(content, dict):
        raise InstanceError.at(where, "content", json.dumps(content)[:60], rule)
    return content


@lru_cache(maxsize=1)
def _all_of(stream: TextIO | None) -> str:
    """Standard input, which can be read once, for those who read it more often."""
    if stream is None:
        raise InstanceError.at("standard input", "file", "closed", "a readable file")
    return read_utf8(stream.buffer, "standard input")


#: Texts of fewer letters are parsed without a look at the memory that it takes.
_LARGE = 2**22
#: What a mark of a JSON text stands for in memory, in bytes: an object, a list, a value in one of them.
_WEIGHTS = {"{": 192, "[": 88, ",": 40, ":": 40}

#: Longer integers are no floats, or close to the largest.
_FLOAT_DIGITS = 308

#: The marks of a JSON text from which the place of a number follows: a key (or another string), a bracket or comma,
#: a number. Without possessive parts: those of Python 3.11.2 match too much.
_MARK = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|([][{},])|(-?(?:\d[\d.eE+-]*|Infinity|NaN))', re.DOTALL)


def parse_json(text: str, where: str) -> Any:
    """A JSON value.

    `InstanceError`: duplicate keys, text cut short, too deep a nesting; NaN, infinities and numbers beyond floats, with
    the field and the line they stand in.
    """

    def no_constant(_name: str) -> None:
        raise _bad_number(text, where)

    def number(spelled: str) -> float:
        if not _is_held(spelled):
            raise _bad_number(text, where)
        return float(spelled)

    def integer(spelled: str) -> int:
        if _is_long(spelled):
            raise _bad_number(text, where)
        return int(spelled)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise InstanceError.at(where, "key", twice, "no key twice in one object")
        return found

    _expect_room(text, where)
    try:
        return json.loads(
            text, parse_constant=no_constant, parse_float=number, parse_int=integer, object_pairs_hook=unique
        )
    except InstanceError:
        raise
    except json.JSONDecodeError as error:
        shown = text[error.pos : error.pos + 20] or "the end of the file"
        raise InstanceError.at(
            where, f"line {error.lineno} column {error.colno}", shown, f"valid JSON ({error.msg})"
        ) from None
    except RecursionError:
        raise InstanceError.at(where, "nesting", "too deep", "a few levels") from None


def _expect_room(text: str, where: str) -> None:
    """`InstanceError` if the values of a large JSON text would not fit into memory: ``[],`` takes 40 times its text."""
    needed = sum(each * text.count(mark) for mark, each in _WEIGHTS.items()) if len(text) > _LARGE else 0
    if needed and needed > (most := memory_budget.room()):
        rule = f"at most {most:.3g}, half of what is free"
        raise InstanceError.at(where, "size of its values in memory", f"{needed} bytes", rule)


def _is_long(spelled: str) -> bool:
    return len(spelled) > _FLOAT_DIGITS and spelled.removeprefix("-").isdecimal()


def _is_held(spelled: str) -> bool:
    """Whether a float holds a number: it is finite, and 0 only where it is spelled so."""
    return math.isfinite(float(spelled)) and not vanishes(spelled)


def _bad_number(text: str, where: str) -> InstanceError:
    """The error of the first number of a JSON text that no float holds: its field, its line, its spelling."""
    field, start, spelled = _first_bad(text)
    line = text.count("\n", 0, start) + 1
    return InstanceError.at(where, f"line {line}: {field}", spelled, "a number that a 64-bit float can hold")


def _first_bad(text: str) -> tuple[str, int, str]:
    """Field, place and spelling of the first number of a JSON text that no float holds."""
    location: list[int | str] = []  # of the value that comes next; keys as they are spelled
    for mark in _MARK.finditer(text):
        string, colon, sign, number = mark.groups()
        if string:
            if colon:
                location[-1] = string
        elif number:
            if _is_long(number) or not _is_held(number):
                keys = [json.loads(part, strict=False) if isinstance(part, str) else part for part in location]
                return path(keys), mark.start(4), number
        elif sign == "[":
            location.append(0)
        elif sign == "{":
            location.append("")
        elif sign != ",":
            location.pop()
        elif isinstance(location[-1], int):
            location[-1] += 1
    raise AssertionError("called for a text that has such a number")
