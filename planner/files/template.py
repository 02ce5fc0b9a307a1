"""A small instance of a problem to start from: every key that its file can have a use for, with numbers."""

from __future__ import annotations

import json

from planner.files.load import examples_of, family_named
from planner.files.write import plain


def template(problem: str) -> str:
    """A small instance of the problem as indented JSON, to be edited; `UsageError` if there is no such problem."""
    family = family_named(problem)
    return min((json.dumps(plain(family.to_json(each)), indent=1) for _, each in examples_of(family)), key=len)
