"""Numbers, amounts and names as a person reads them, in plain text."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from formulations.contract.rounding import amount_text
from formulations.contract.rounding import plural as plural
from instances.units import size
from solvers.outcome import OPTIMAL_GAP

#: Units of time and of bytes, the largest first.
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
#: More nodes than this in a stage are shown as first and last.
_SHOWN_NODES = 6


def number(value: float | None) -> str:
    """Nine digits, or a dash for an absent number."""
    return "-" if value is None else f"{value:.9g}"


def with_unit(value: float | None, unit: str) -> str:
    """A number and its unit."""
    return number(value) if value is None else f"{number(value)} {unit}".rstrip()


def percent(gap: float | None, digits: int = 3) -> str:
    """A relative gap, or a share, in percent; one that an optimum may have is none, and less than all is not 100 %.

    >>> percent(0.3333), percent(20.0), percent(1e-9), percent(0.99996), percent(None)
    ('33.3 %', '2,000 %', '0 %', '99.9 %', '-')
    >>> percent(0.0471, 2), percent(0.27, 2), percent(0.998, 2), percent(1.0, 2)
    ('4.7 %', '27 %', '99.8 %', '100 %')
    >>> percent(1.578e15)  # a plan whose cost stands for "never"
    '1.58e+17 %'
    """
    if gap is not None and abs(gap) <= OPTIMAL_GAP:
        return "0 %"
    if gap is not None and 1 - 0.5 * 0.1**digits <= gap < 1 - OPTIMAL_GAP:
        return f"{math.floor(1000 * gap) / 10:.1f} %"
    if gap is None or gap < 1:
        return "-" if gap is None else f"{100 * gap:.{digits}g} %"
    return f"{100 * gap:,.0f} %" if gap < 1e5 else f"{100 * gap:.{digits}g} %"


def format_loss(loss: float | None, is_proved: bool) -> str:
    """A loss in a table: of an optimal plan that it is, and where no optimum is proved that it may be less.

    >>> format_loss(0.0, True), format_loss(0.25, True), format_loss(0.25, False), format_loss(None, True)
    ('optimal', '25 %', '<= 25 %', '-')
    """
    if loss is None:
        return "-"
    if loss <= OPTIMAL_GAP:
        return "optimal"
    return f"{'' if is_proved else '<= '}{100 * loss:.3g} %"


def facts(values: Mapping[str, Any], unit: str = "") -> str:
    """Names and values on one line, without what is absent; bandwidths are per ``unit`` of time, or that of the values.

    >>> facts({"memory": 2.0**30, "bandwidth": 25e9, "exactly": False}, "ms")
    'memory 1 GiB, bandwidth 23.28 GiB/ms'
    """
    declared = unit.partition("/")[0] if unit.startswith(("s", "ms")) else values.get("time_unit", "s")
    per = "s" if values.get("fix-units") else declared
    known = {name: value for name, value in values.items() if value is not None and value is not False}
    return ", ".join(_fact(name, value, per) for name, value in known.items())


def _fact(name: str, value: Any, per: str) -> str:
    if name.endswith("bandwidth") and isinstance(value, float):
        return f"{name} {size(value)}/{per}"
    if name.startswith("least_") and name.endswith("_bytes"):  # to be typed again: not rounded
        return f"{name.removesuffix('_bytes')} {amount_text(value)} B"
    if name.endswith("_bytes") or name == "memory":
        return f"{name.removesuffix('_bytes')} {size(value)}"
    if isinstance(value, Mapping):
        return f"{name} ({facts(value)})"
    return f"{name} {format_cell(name, value, 6)}" if isinstance(value, float) else f"{name} {value}"


def brief(value: Any) -> str:
    """A part of a plan in a few characters: runs of nodes as first and last, choices as counts."""
    if isinstance(value, Mapping):
        return ", ".join(f"{count} x {name}" for name, count in Counter(map(str, value.values())).most_common())
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) <= _SHOWN_NODES:
            return ", ".join(map(str, value))
        return f"{value[0]} .. {value[-1]} ({len(value)})"
    return number(value) if isinstance(value, float) else str(value)


def format_cell(name: str, value: Any, digits: int = 9) -> str:
    """A cell under a heading: bytes and shares by their name, anything else in a few characters.

    >>> format_cell("peak_memory_bytes", 2.0**31), format_cell("bubble_share", 0.25), format_cell("depth", 3)
    ('2 GiB', '25 %', '3')
    """
    if isinstance(value, float) and name.endswith("_bytes"):
        return f"-{size(-value)}" if value < 0 else size(value)
    if isinstance(value, float) and name.endswith("_share"):
        return f"{100 * value:.3g} %"
    return f"{value:.{digits}g}" if isinstance(value, float) else brief(value)


def heading(name: str) -> str:
    """A heading for figures: their name in words, with the unit where the figures do not show it.

    >>> heading("all_reduce_s"), heading("memory_bytes"), heading("in_flight")
    ('all reduce, s', 'memory', 'in flight')
    """
    for ending, unit in (("_bytes", ""), ("_share", ""), ("_s", ", s")):
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " ") + unit
    return name.replace("_", " ")


def amount(value: float, unit: str) -> str:
    """A value in six digits and its unit, bytes as sizes.

    >>> amount(0.0273, "s"), amount(2.0**31, "bytes"), amount(1.5, "")
    ('0.0273 s', '2 GiB', '1.5')
    """
    return size(value) if unit == "bytes" else f"{value:.6g} {unit}".rstrip()


def unit_for(unit: str, most: float) -> tuple[float, str]:
    """What to divide by so that ``most`` is at least one where a unit can do it, and the unit then.

    >>> unit_for("s", 0.02), unit_for("ms", 0.5), unit_for("bytes", 3 * 2**30), unit_for("", 5.0)
    ((0.001, 'ms'), (0.001, 'µs'), (1073741824.0, 'GiB'), (1.0, ''))
    """
    if unit == "bytes":
        return next((each for each in _BYTES if most >= each[0]), _BYTES[-1])
    base = next((size for size, name in _SECONDS if name == unit), None)
    if base is None or most <= 0:
        return 1.0, unit
    size, name = next((each for each in _SECONDS if most * base >= each[0] * (1 - 1e-12)), _SECONDS[-1])
    return size / base, name


def short(value: float, digits: int = 3) -> str:
    """A number in so many digits, of a thousand and more in all of its whole ones.

    >>> short(0.0123456), short(999.96), short(2345.6), short(12345.6, 4)
    ('0.0123', '1,000', '2,346', '12,346')
    """
    return f"{value:.{digits}g}" if float(f"{value:.{digits}g}") < 1000 else f"{value:,.0f}"


def short_amount(value: float, unit: str) -> str:
    """A number in three digits in the unit that suits it.

    >>> short_amount(0.0123456, "s"), short_amount(12.0 * 2**30, "bytes"), short_amount(7.0, "")
    ('12.3 ms', '12 GiB', '7')
    """
    factor, name = unit_for(unit, abs(value))
    return f"{short(value / factor)} {name}".rstrip()


def columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, its columns as wide as their texts.

    >>> columns(["stage", "s"], [["0-3", "1"], ["4", "2.5"]])
    ['stage  s', '0-3    1', '4      2.5']
    """
    lines = [headings, *rows]
    wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(each) for cell, each in zip(line, wide, strict=True)).rstrip() for line in lines]
