"""What a catalog entry is: a named generator, and where it comes from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from instances.parameters import Setting, parse_seed

SEED = Setting("seed", parse_seed, "seed of the random numbers", "0", metavar="N")
#: The source of instances that are ours.
MADE = "made for this project"


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
    published: Published | None = None
