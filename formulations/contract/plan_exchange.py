"""Plans as JSON (docs/problems/): the fields of their dataclass, or of one that stands for it in files."""

from collections.abc import Callable
from typing import Any

from instances.exchange import to_json

Read = Callable[..., Any]
Write = Callable[[Any, Any], dict[str, Any]]


def exchange(
    says: str,
    kind: type,
    built: Callable[[Any, Any, str], Any] = lambda _instance, declared, _where: declared,
    written: Callable[[Any, Any], Any] = lambda _, plan: plan,
) -> tuple[Read, Write]:
    """``plan_from_json(instance, content, where="plan")`` and ``plan_to_json(instance, plan)`` of a problem.

    The first leaves broken rules to ``violations``: a plan that names what the instance does not have may be read. It
    ignores keys that it does not know. `InstanceError`, one line, if a field is missing or of the wrong type.

    ``says``: the JSON, in a line.
    ``kind``: the dataclass whose fields are the keys in files.
    ``built``: ``built(instance, declared, where)``: the plan, where it is not that dataclass itself; or
    `InstanceError`.
    ``written``: ``written(instance, plan)``: the dataclass that stands in files.
    """

    def plan_from_json(instance: Any, content: Any, where: str = "plan") -> Any:
        from instances.validation import Header, read_fields, read_record  # imports pydantic, which only files need

        if isinstance(content, dict):
            read_record(Header, content, where)
        return built(instance, read_fields(kind, content, where, extra="ignore"), where)

    def plan_to_json(instance: Any, plan: Any) -> dict[str, Any]:
        found: dict[str, Any] = to_json(written(instance, plan))
        return found

    plan_from_json.__doc__ = "The plan that parsed JSON describes; broken rules are left to ``violations``."
    plan_to_json.__doc__ = says
    return plan_from_json, plan_to_json
