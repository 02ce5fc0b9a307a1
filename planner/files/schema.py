"""The format of a problem's instances as JSON Schema, made of the same rules that read them."""

from typing import Any

from instances.exchange import kind_of
from instances.validation import json_schema
from planner.files.load import family_named
from planner.types import Json

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema(problem: str) -> dict[str, Json]:
    """JSON Schema of the instance files of a problem; `UsageError` if there is no such problem.

    It says what single fields may be; rules between fields (ids that occur once, edges that lead somewhere, no cycles)
    are in their descriptions at most, and `planner.load` holds instances to them.
    """
    problem = family_named(problem).name
    found: dict[str, Any] = json_schema(kind_of(problem))
    fields = {"problem": {"const": problem}, "schema_version": {"const": 1, "default": 1}}
    return {
        "$schema": _DRAFT,
        **found,
        "title": f"an instance of {problem}",
        "properties": {**fields, **found["properties"]},
        "required": ["problem", *found.get("required", ())],
    }
