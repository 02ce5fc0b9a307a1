"""Plans of device mapping as JSON (docs/interface.md)."""

from __future__ import annotations

from typing import Any

from formulations.device_mapping.definition.plan import Mapping
from instances.errors import InstanceError
from instances.problems.device_mapping import DeviceMapping


def plan_to_json(_: DeviceMapping, plan: Mapping) -> dict[str, Any]:
    """``{"devices": [[...], ...]}``, and ``rings`` where the plan states them."""
    content: dict[str, Any] = {"devices": [list(devices) for devices in plan.devices]}
    if plan.rings is not None:
        content["rings"] = [list(ring) for ring in plan.rings]
    return content


def plan_from_json(_: DeviceMapping, content: Any, where: str = "plan") -> Mapping:
    """The plan that parsed JSON describes; whether it keeps the rules is left to ``violations``.

    Raises
    ------
    InstanceError
        If ``devices`` is missing, or ``devices`` or ``rings`` is no list of lists of integers.
    """
    if not isinstance(content, dict):
        raise InstanceError.at(where, "content", content, "an object")
    if "devices" not in content:
        raise InstanceError.missing(where, "devices", "a list of integers for each stage")
    rings = content.get("rings")
    return Mapping(
        _table(content["devices"], where, "devices"), None if rings is None else _table(rings, where, "rings")
    )


def _table(rows: Any, where: str, field: str) -> tuple[tuple[int, ...], ...]:
    rule = "a list of integers for each stage"
    if not isinstance(rows, list):
        raise InstanceError.at(where, field, rows, rule)
    for stage, row in enumerate(rows):
        if not isinstance(row, list):
            raise InstanceError.at(where, f"{field}[{stage}]", row, "a list of integers")
        for replica, value in enumerate(row):
            if isinstance(value, bool) or not isinstance(value, int):
                raise InstanceError.at(where, f"{field}[{stage}][{replica}]", value, "an integer")
    return tuple(tuple(row) for row in rows)
