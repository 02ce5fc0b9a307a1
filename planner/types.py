"""The types of what planner takes and returns: instances of any problem, and JSON."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

#: A JSON value: what a plan, figures and options consist of.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
#: A JSON object.
JsonObject: TypeAlias = Mapping[str, Json]


class Instance(Protocol):
    """An instance of one of the problems: a dataclass of ``instances``, such as `problems.stage_partitioning`'s.

    ``isinstance`` shows which one, and a type checker then knows its fields.
    """

    @property
    def name(self) -> str:
        """The name it is reported under."""
