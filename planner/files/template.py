"""A small instance of a problem to start from: every key that its file can have a use for, with numbers."""

from __future__ import annotations

import json

from planner.files.load import catalog, family_named, load
from planner.files.write import plain


def template(problem: str) -> str:
    """The smallest instance of the catalog as indented JSON, to be edited; `UsageError` if there is no such problem."""
    family = family_named(problem)
    names = [name for name, entry in catalog().items() if entry.family == problem]
    texts = [json.dumps(plain(family.to_json(load(name))), indent=1) for name in names]
    return min(texts, key=len)
