"""Which method solves an instance, and why."""

from __future__ import annotations

from typing import Any

from formulations.family import Claim, Family, Method
from planner.errors import UsageError
from solvers.outcome import Limits

AUTO = "auto"


def pick(
    family: Family[Any, Any], instance: Any, limits: Limits, name: str = AUTO, exact: bool = False
) -> tuple[Method[Any, Any], str]:
    """The method to use and the sentence that says why.

    Raises
    ------
    UsageError
        If the named method does not exist, does not support the instance, or does not claim exactness under
        ``exact``, or if no exact method supports the instance.
    """
    if name == AUTO:
        chosen, reason = family.choose(instance, limits, exact)
        missing = family.method(chosen).refusal(instance)
        return _instead(family, instance, chosen, missing, exact) if missing else (family.method(chosen), reason)
    method = named(family, name)
    if exact and method.claim is not Claim.EXACT:
        raise UsageError.at("method", name, f"an exact method, as required; one of {', '.join(exact_names(family))}")
    missing = method.refusal(instance)
    if missing:
        fit = [other.name for other in family.methods if other.refusal(instance) is None]
        raise UsageError.at("method", name, f"a method that supports this instance ({missing}); try {', '.join(fit)}")
    return method, "requested by the user"


def _instead(
    family: Family[Any, Any], instance: Any, chosen: str, missing: str, exact: bool
) -> tuple[Method[Any, Any], str]:
    """The method with the least predicted work of those that take the instance, where the chosen one does not."""
    fitting = [
        method
        for method in family.methods
        if (method.claim is Claim.EXACT or not exact) and method.refusal(instance) is None
    ]
    if not fitting:
        raise UsageError.at("exact" if exact else "method", exact or AUTO, f"an instance for {chosen}: {missing}")
    return min(fitting, key=lambda method: method.effort(instance)), f"{chosen} does not take the instance: {missing}"


def named(family: Family[Any, Any], name: str) -> Method[Any, Any]:
    """The family's method of that name, or a `UsageError` with the closest match."""
    try:
        return family.method(name)
    except KeyError:
        raise UsageError.unknown("method", name, [AUTO, *(method.name for method in family.methods)]) from None


def exact_names(family: Family[Any, Any]) -> list[str]:
    """Names of the methods that claim exactness."""
    return [method.name for method in family.methods if method.claim is Claim.EXACT]
