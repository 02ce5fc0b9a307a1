"""The project's own JSON of mesh tilings, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from typing import Any

from instances.problems.mesh_tiling import MeshInstance, check
from instances.validation import read_instance


def read(content: Any, where: str) -> MeshInstance:
    """The instance that parsed JSON declares.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule.
    """
    return read_instance(MeshInstance, content, where, check, "options", name="mesh")
