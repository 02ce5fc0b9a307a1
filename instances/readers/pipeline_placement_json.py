"""The project's own JSON of pipeline placements: the operator graph inside is read as one (docs/problems/)."""

from typing import Any

from instances.problems.pipeline_placement import PlacementInstance, check, place_on
from instances.readers import operator_json
from instances.validation import read_keys


def read(content: Any, where: str) -> PlacementInstance:
    """The instance that parsed JSON declares; `InstanceError` for the first field that breaks a rule."""
    given = read_keys(PlacementInstance, content, where)
    declared = {"problem": "operator_partitioning", **given.pop("operators")}
    operators = operator_json.read(declared, f"{where}: operators")
    instance = place_on(operators, given.pop("bandwidth_bytes_per_s"), where, **given)
    check(instance, where)
    return instance
