"""Numbers, amounts and names as a person reads them, in plain text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from formulations.contract.rounding import amount_text
from instances.units import size
from solvers.outcome import OPTIMAL_GAP

#: More nodes than this in a stage are shown as first and last.
_SHOWN_NODES = 6


def number(value: float | None) -> str:
    """Nine digits, or a dash for an absent number."""
    return "-" if value is None else f"{value:.9g}"


def with_unit(value: float | None, unit: str) -> str:
    """A number and its unit."""
    return number(value) if value is None else f"{number(value)} {unit}".rstrip()


def percent(gap: float | None) -> str:
    """A relative gap in percent; one that an optimum may have is none.

    >>> percent(0.3333), percent(20.0), percent(1e-9), percent(None)
    ('33.3 %', '2,000 %', '0 %', '-')
    """
    if gap is not None and abs(gap) <= OPTIMAL_GAP:
        return "0 %"
    return "-" if gap is None else f"{100 * gap:.3g} %" if gap < 1 else f"{100 * gap:,.0f} %"


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


def facts(values: Mapping[str, Any]) -> str:
    """Names and values on one line, without what is absent."""
    return ", ".join(_fact(name, value) for name, value in values.items() if value is not None and value is not False)


def _fact(name: str, value: Any) -> str:
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


def plural(count: int, noun: str) -> str:
    """So many of a noun.

    >>> plural(1, "device"), plural(2, "device")
    ('1 device', '2 devices')
    """
    return f"{count} {noun}" + ("" if count == 1 else "s")


def amount(value: float, unit: str) -> str:
    """A value in six digits and its unit, bytes as sizes.

    >>> amount(0.0273, "s"), amount(2.0**31, "bytes"), amount(1.5, "")
    ('0.0273 s', '2 GiB', '1.5')
    """
    return size(value) if unit == "bytes" else f"{value:.6g} {unit}".rstrip()


def columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, its columns as wide as their texts.

    >>> columns(["stage", "s"], [["0-3", "1"], ["4", "2.5"]])
    ['stage  s', '0-3    1', '4      2.5']
    """
    lines = [headings, *rows]
    wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(each) for cell, each in zip(line, wide, strict=True)).rstrip() for line in lines]
