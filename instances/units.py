"""Quantities with units: "8GB", "25GiB/s", "1.3ms" -> numbers in bytes, bytes per second, seconds.

The one place that parses units. GB is 10^9 bytes and GiB is 2^30 bytes; a bare number is taken as it is.
"""

import math
import re
from typing import Any

from instances.parameters import AMOUNTS, MIN_AMOUNT, POSITIVE, is_amount, vanishes

_BYTES = {"": 1.0, "b": 1.0}
for _power, _letter in enumerate("kmgtp", start=1):
    _BYTES[f"{_letter}b"] = 1000.0**_power
    _BYTES[f"{_letter}ib"] = 1024.0**_power

_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}

_QUANTITY = re.compile(r"^\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\s\d]*)\s*$")


def parse_bytes(value: Any) -> float:
    """Bytes of "8GiB", "8 GB", "1e9" or a number; `AMOUNTS`.

    >>> parse_bytes("8GiB")
    8589934592.0
    >>> parse_bytes("8GB")
    8000000000.0
    """
    return _parse(value, _BYTES, "a size such as 8GiB, 8GB or a number of bytes")


def size(value: float, *, up: bool = False) -> str:
    """Bytes in the largest binary unit that leaves at least one, in four digits; ``up``: never less than they are.

    >>> size(8 * 2**30), size(1000), size(36e6), size(36e6, up=True)
    ('8 GiB', '1000 B', '34.33 MiB', '34.34 MiB')
    """
    power, unit = next((each for each in ((30, "GiB"), (20, "MiB"), (10, "KiB")) if value >= 2 ** each[0]), (0, "B"))
    amount = value / 2**power
    text = f"{amount:.4g}"
    if up and float(text) < amount:
        text = f"{float(text) + 10.0 ** (math.floor(math.log10(amount)) - 3):.4g}"
    return f"{text} {unit}"


def of_room(needed: float, room: float) -> str:
    """A size beside the one that there is room for; how much more it is where both look the same.

    >>> of_room(117 * 2.0**30, 8 * 2.0**30), of_room(2.0**33 + 1, 2.0**33)
    ('117 GiB of 8 GiB', '8 GiB of 8 GiB, 1 B more')
    """
    more = f", {needed - room:.4g} B more" if needed > room and size(needed) == size(room) else ""
    return f"{size(needed)} of {size(room)}{more}"


def parse_bandwidth(value: Any) -> float:
    """Bytes per second of "25GiB/s", "200Gbit/s" or a number; positive, from `MIN_AMOUNT` on.

    >>> parse_bandwidth("25GiB/s")
    26843545600.0
    """
    rule = "a bandwidth such as 25GiB/s, 25GB/s, 200Gbit/s or a number of bytes per second"
    if isinstance(value, str):
        text = value.strip()
        bits = re.fullmatch(r"(.*\d\s*)([kKmMgGtT]?)(?:bit/s|bps)", text)
        if bits:
            text, eighth = f"{bits[1]}{bits[2]}B", 0.125
        else:
            text, eighth = re.sub(r"/s$", "", text), 1.0
        number = _parse(text, _BYTES, rule, POSITIVE) * eighth
    else:
        number = _parse(value, _BYTES, rule, POSITIVE)
    if number < MIN_AMOUNT:
        raise ValueError(f"{rule}, {POSITIVE}")
    return number


def parse_time(value: Any) -> float:
    """Seconds of "1.3ms", "20us", "2s" or a number; `AMOUNTS`.

    >>> parse_time("2ms")
    0.002
    """
    return _parse(value, _SECONDS, "a time such as 1.3ms, 2s or a number of seconds")


def _parse(value: Any, factors: dict[str, float], rule: str, numbers: str = AMOUNTS) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(rule)
    if isinstance(value, str):
        match = _QUANTITY.match(value)
        if not match or match[2].lower() not in factors:
            raise ValueError(rule)
        if vanishes(match[1]):
            raise ValueError(f"{rule}, {numbers}")
        number = float(match[1]) * factors[match[2].lower()]
    else:
        number = float(value) if abs(value) < 1e300 else math.inf  # a huge int has no float
    if not is_amount(number):
        raise ValueError(f"{rule}, {numbers}")
    return number
