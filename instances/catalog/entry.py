"""What a catalog entry is: a named generator, where it comes from, and the best values known for its instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from instances.parameters import Setting


@dataclass(frozen=True)
class Bound:
    """The best value known for an instance under these overrides: what it is, how and when it was found.

    ``kind`` is ``optimum`` (proved), ``upper`` (a plan) or ``lower`` (a bound); ``value`` is in the instance's unit.
    """

    kind: str
    value: float
    overrides: Mapping[str, str | int]
    source: str
    date: str


@dataclass(frozen=True)
class Published:
    """A published file that an entry is made from where it is at hand: ``make(content, where)``, its parsed content."""

    file: str
    make: Callable[[Any, str], Any]


@dataclass(frozen=True)
class Entry:
    """A catalog instance.

    ``make(**values)`` takes parsed values of ``parameters`` (dashes as underscores) and returns the instance, or raises
    `InstanceError`; values not given are the defaults.
    """

    name: str
    family: str
    make: Callable[..., Any]
    help: str
    source: str
    parameters: tuple[Setting, ...] = ()
    best_known: tuple[Bound, ...] = ()
    published: Published | None = None
