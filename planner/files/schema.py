"""The format of a problem's instances as JSON Schema, made of the same rules that read them."""

from __future__ import annotations

from typing import Any

from instances.validation import json_schema
from planner.files.load import catalog, family_named, load
from planner.types import Json

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema(problem: str) -> dict[str, Json]:
    """JSON Schema of the instance files of a problem; `UsageError` if there is no such problem.

    It says what single fields may be; rules between fields (ids that occur once, edges that lead somewhere, no cycles)
    are in their descriptions at most, and `planner.load` holds instances to them.
    """
    family = family_named(problem)
    example = load(next(name for name, entry in catalog().items() if entry.family == problem))
    found: dict[str, Any] = json_schema(type(example))
    fields = {"problem": {"const": problem}, "schema_version": {"const": 1, "default": 1}}
    # What files say beside the fields, such as a count that follows from them.
    more: dict[str, Any] = {name: {} for name in family.to_json(example) if name not in found["properties"]}
    return {
        "$schema": _DRAFT,
        **found,
        "title": f"an instance of {problem}",
        "properties": {**more, **fields, **found["properties"]},
        "required": ["problem", *found.get("required", ())],
    }
