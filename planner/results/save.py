"""Write an instance or a result to a file that every command reads."""

from __future__ import annotations

import os
from pathlib import Path

from planner.files.load import admitted, family_of
from planner.files.write import write_atomically
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
    from planner.display.tables import as_json

    if isinstance(instance_or_result, Result):
        content = instance_or_result.to_json()
    else:
        instance = admitted(instance_or_result)
        content = family_of(instance).to_json(instance)
    return as_json(content) + "\n"
