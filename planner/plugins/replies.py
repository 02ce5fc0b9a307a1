"""What the process of a brought function may say: the one schema of its replies. Whatever else comes is no reply."""

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError

#: Deeper plans than this are none, nor are whole numbers of more bits, or replies of more values.
MOST_DEPTH, MOST_BITS, MOST_VALUES = 64, 63, 1 << 22
_LONGEST = 200


class ReplyError(ValueError):
    """Why a line is no reply: one line."""


def _plain(content: dict[str, Any]) -> dict[str, Any]:
    """The form of a plan, if every number in it is one that all formulas can take."""
    left: list[tuple[int, Any]] = [(1, content)]
    while left:
        depth, value = left.pop()
        if isinstance(value, dict | list):
            if depth > MOST_DEPTH:
                raise ValueError(f"a plan of more than {MOST_DEPTH} lists in each other")
            left += [(depth + 1, part) for part in (value.values() if isinstance(value, dict) else value)]
        elif isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise ValueError(f"a whole number of more than {MOST_BITS} bits")
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value}, which is no number of JSON")
    return content


def _one_line(text: str) -> str:
    shown = "".join(sign if sign.isprintable() else " " for sign in text)
    return " ".join(shown.split())


_Form = Annotated[dict[str, Any], AfterValidator(_plain)]
_Words = Annotated[str, Field(max_length=1000), AfterValidator(_one_line)]
_Name = Annotated[str, Field(max_length=200), AfterValidator(_one_line)]


class _Said(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Declared(_Said):
    """What `planner.method` declared of the function."""

    problem: _Name | None = None
    name: _Name | None = None
    claim: Literal["heuristic", "exact"] = "heuristic"


class Started(_Said):
    """The process is there, and nothing of the user's has run in it."""

    kind: Literal["started"]


class Loaded(_Said):
    """The function is there; what it takes beside the instance, and whether each run is in a copy of the process."""

    kind: Literal["loaded"] = "loaded"
    declared: Declared
    takes: tuple[Literal["limits", "watch"], ...]
    copied: bool = False


class Refused(_Said):
    """There is no such function."""

    kind: Literal["refused"] = "refused"
    words: _Words


class Began(_Said):
    """The function is called now."""

    kind: Literal["began"]


class Plan(_Said):
    """A plan, before the end."""

    kind: Literal["plan"]
    plan: _Form | None


class Bound(_Said):
    """A lower bound."""

    kind: Literal["bound"]
    value: FiniteFloat


class Failed(_Said):
    """The function raised an exception, or returned what is no plan."""

    kind: Literal["failed"]
    words: _Words


class Returned(_Said):
    """The function returned a plan or nothing; ``late``: after its time."""

    kind: Literal["returned"]
    plan: _Form | None
    late: bool


class Ended(_Said):
    """The copy for a run has ended, and all that it started; its exit code, negative for a signal."""

    kind: Literal["ended"]
    code: Annotated[int, Field(ge=-64, le=255)]


Reply = Started | Loaded | Refused | Began | Plan | Bound | Failed | Returned | Ended
_SCHEMA: TypeAdapter[Reply] = TypeAdapter(Annotated[Reply, Field(discriminator="kind")])


def parse_reply(line: bytes) -> Reply:
    """The reply in a line; `ReplyError` if it is none."""
    if sum(map(line.count, (b",", b"[", b"{"))) > MOST_VALUES:  # so that parsing takes no more memory
        raise ReplyError(f"a line of more than {MOST_VALUES} values")
    try:
        return _SCHEMA.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ReplyError(_one_line(f"{where}: {first['msg']}" if where else first["msg"])[:_LONGEST]) from None
