"""The project's own JSON of TMPC knapsacks, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from typing import Any

from instances.problems.tmpc_knapsack import KnapsackInstance, check
from instances.validation import read_instance


def read(content: Any, where: str) -> KnapsackInstance:
    """The instance that parsed JSON declares.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule.
    """
    return read_instance(KnapsackInstance, content, where, check, name="knapsack")
