"""Plans of a strategy search as JSON (docs/interface.md)."""

from __future__ import annotations

from typing import Any

from formulations.amp_strategy.definition.plan import Degrees, StrategyPlan
from instances.errors import InstanceError
from instances.problems.amp_strategy import AmpInstance

_DEGREES = ("microbatch", "tp_degree", "dp_degree", "pp_degree")


def plan_to_json(_: AmpInstance, plan: StrategyPlan) -> dict[str, Any]:
    """Degrees, ``lengths`` of the stages, and ``placement``: the device of each rank."""
    degrees = {name: getattr(plan.degrees, name) for name in _DEGREES}
    return {**degrees, "lengths": list(plan.lengths), "placement": list(plan.placement)}


def plan_from_json(instance: AmpInstance, content: Any, where: str = "plan") -> StrategyPlan:
    """The plan that parsed JSON describes; without ``placement`` it is Megatron's.

    Raises
    ------
    InstanceError
        If a field is missing or not of integers.
    """
    if not isinstance(content, dict):
        raise InstanceError.at(where, "content", content, "an object")
    for name in (*_DEGREES, "lengths"):
        if name not in content:
            raise InstanceError.missing(where, name)
    for name in _DEGREES:
        if isinstance(content[name], bool) or not isinstance(content[name], int):
            raise InstanceError.at(where, name, content[name], "an integer")
    rows = [_integers(content, name, where) for name in ("lengths", "placement") if name in content]
    placement = rows[1] if len(rows) > 1 else tuple(range(instance.num_devices))
    return StrategyPlan(Degrees(*(content[name] for name in _DEGREES)), rows[0], placement)


def _integers(content: dict[str, Any], name: str, where: str) -> tuple[int, ...]:
    values = content[name]
    if not isinstance(values, list) or not all(isinstance(x, int) and not isinstance(x, bool) for x in values):
        raise InstanceError.at(where, name, values, "a list of integers")
    return tuple(values)
