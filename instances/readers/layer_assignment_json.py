"""The project's own JSON of layer assignments, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from typing import Any

from instances.problems.layer_assignment import LayerAssignmentInstance, check
from instances.validation import read_instance


def read(content: Any, where: str) -> LayerAssignmentInstance:
    """The instance that parsed JSON declares.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule.
    """
    return read_instance(LayerAssignmentInstance, content, where, check, "options", name="layers")
