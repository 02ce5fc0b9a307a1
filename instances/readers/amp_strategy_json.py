"""The project's own JSON of strategy searches, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from typing import Any

from instances.problems.amp_strategy import AmpInstance, check
from instances.validation import read_instance


def read(content: Any, where: str) -> AmpInstance:
    """The instance that parsed JSON declares.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule.
    """
    return read_instance(AmpInstance, content, where, check, "options", name="strategies")
