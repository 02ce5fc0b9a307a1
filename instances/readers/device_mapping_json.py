"""The project's own JSON of device mappings, schema version 1 (docs/interface.md)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from instances.errors import expect
from instances.problems.device_mapping import AUTO, OBJECTIVES, DeviceMapping, check, with_objective
from instances.rules import Count, one_of
from instances.validation import read_instance, validated


class _ExtraRecord(BaseModel):
    """The keys that no instance has, or that have a value more."""

    model_config = ConfigDict(extra="ignore")
    objective: Annotated[str, one_of(*OBJECTIVES, AUTO)] = AUTO
    num_devices: Count | None = None


def read(content: Any, where: str) -> DeviceMapping:
    """The instance that parsed JSON declares.

    Raises
    ------
    InstanceError
        One line that names the field, its value and the rule.
    """
    extra = validated(_ExtraRecord, content, where)
    kept = {name: value for name, value in content.items() if name not in _ExtraRecord.model_fields}
    instance = read_instance(DeviceMapping, kept, where, check, "options", name="mapping", edges=[])
    needed = instance.num_stages * instance.replicas
    expect(extra.num_devices in (None, needed), where, "num_devices", extra.num_devices, f"{needed}: stages x replicas")
    return with_objective(instance, extra.objective)
