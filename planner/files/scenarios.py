"""A file of scenarios: instances, or changes of one instance."""

from collections.abc import Mapping
from typing import Any

from instances.errors import InstanceError
from planner.files.load import load
from planner.files.read import parse_json, read_named
from planner.process.errors import UsageError


def read_scenarios(file: str, instance: str, inputs: str | None, settings: Mapping[str, Any]) -> list[Any]:
    """The instances of a JSON list.

    ``file``: its entries are names as `load` takes them, instances in the project's own JSON, or objects of overrides,
    such as ``{"bandwidth": "10GB/s", "devices": 32}``.
    ``instance``, ``inputs``, ``settings``: what overrides are added to: a name, where published inputs are, and the
    overrides of all.
    `InstanceError`, `UsageError`: one line with the file and the number of the entry.
    """
    text, where = read_named(file)
    content = parse_json(text, where)
    if not isinstance(content, list) or not content:
        shown = "[]" if content == [] else type(content).__name__
        raise InstanceError.at(where, "content", shown, "a list of scenarios: names, instances or overrides")
    found = []
    for number, entry in enumerate(content):
        try:
            found.append(_scenario(entry, instance, inputs, settings))
        except ValueError as error:
            raise UsageError(f"{where}: scenario {number}: {error}") from None
    return found


def _scenario(entry: Any, instance: str, inputs: str | None, settings: Mapping[str, Any]) -> Any:
    if isinstance(entry, str):
        return load(entry, inputs=inputs)
    if not isinstance(entry, dict):
        raise ValueError(f"entry is {entry!r}; expected a name, an instance, or an object of overrides")
    if "problem" in entry and "schema_version" in entry:
        return load(entry)
    changes = {name.replace("-", "_"): value for name, value in entry.items()}
    return load(instance, inputs=inputs, **{**settings, **changes})
