"""Write an instance or a result to a file that every command reads."""

import json
import os
from pathlib import Path
from typing import Any

from planner.files.load import family_of, validate
from planner.files.write import as_json, plain, write_atomically
from planner.results.result import Result
from planner.types import Instance


def save(instance_or_result: Instance | Result, path: str | os.PathLike[str]) -> None:
    """Write an instance (for `planner.load`) or a `Result` (for ``planner check``) as JSON, whole or not at all.

    Raises
    ------
    InstanceError
        If the instance breaks a rule.
    UsageError
        If it is neither, or the file cannot be written.
    """
    write_atomically(Path(path), text_of(instance_or_result), "path")


def text_of(instance_or_result: Instance | Result) -> str:
    """The text of the file that `save` writes; the same errors."""
    if isinstance(instance_or_result, Result):
        content = instance_or_result.to_json()
    else:
        instance = validate(instance_or_result)
        content = family_of(instance).to_json(instance)
    return as_json(content) + "\n"


#: Of plan files (docs/interface/instances.md).
SCHEMA_VERSION = 1


def plan_file(result: Result) -> str:
    """The text of a plan file: the plan in its JSON form, with its problem, its instance and how both were made."""
    head: dict[str, Any] = {"problem": result.problem, "schema_version": SCHEMA_VERSION, "instance": result.instance}
    if result.options:
        head["options"] = result.options
    return json.dumps(plain({**head, **(result.plan or {})}), indent=1) + "\n"
