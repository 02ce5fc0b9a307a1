"""Which methods solve an instance, in which order to try them, and why.

One rule for all families: the method that the problem prefers (`Family.choose`), if it takes the instance and will
end in time; then exact methods, the quickest first; then heuristics as the problem lists them. Where a method gives up,
or an exact one ends without a proof, the next one has its turn (`planner.solving.solve.solve`).
"""

import math
from collections.abc import Iterator
from typing import Any

from formulations.contract.family import Claim, Family, Method
from planner.plugins import registry
from planner.plugins.method_names import AUTO
from planner.process.errors import UsageError
from planner.solving.predicted_runtime import predicted_s
from solvers.outcome import Limits

#: Where no time limit is given, a method that is going to take longer is tried last.
PATIENCE_S = 600.0

#: A method to try, and the sentence that says why.
Candidate = tuple[Method[Any, Any], str]


def pick(family: Family[Any, Any], instance: Any, limits: Limits, name: str = AUTO, exact: bool = False) -> Candidate:
    """The method to use and the sentence that says why; errors as of `candidates`."""
    return next(candidates(family, instance, limits, name, exact))


def candidates(
    family: Family[Any, Any], instance: Any, limits: Limits, name: str = AUTO, exact: bool = False
) -> Iterator[Candidate]:
    """The methods to try, one after the other, at least one; the only one, if it is requested by name.

    `UsageError` if the named method does not exist, does not take the instance, or does not claim exactness under
    ``exact``, or if no method, or no exact one under ``exact``, takes the instance.
    """
    if name != AUTO:
        yield _find_requested(family, instance, name, exact), "requested by the user"
        return
    chosen, reason = family.choose(instance, limits, exact)
    preferred = family.method(chosen)
    missing = preferred.misfit(instance)
    patience = PATIENCE_S if limits.time_s is None else limits.time_s
    seconds = None if missing else _lasting(family, preferred, instance)
    is_tried = missing is None and (seconds is None or seconds <= patience)
    if is_tried:
        yield preferred, reason
        why = f"{chosen} gave up"
    elif missing is None:
        why = f"{chosen} is predicted to take {seconds:.0f} s"
    else:
        why = f"{chosen} does not take the instance: {missing}"
    others = [
        method
        for method in family.methods
        if not (is_tried and method is preferred)
        and (method.claim is Claim.EXACT or not exact)
        and method.refusal(instance) is None
    ]
    if not others and not is_tried:
        raise UsageError(_nobody(family, instance, exact))
    for method in _in_order(family, others, instance, patience):
        yield method, reason if method is preferred else why


def _nobody(family: Family[Any, Any], instance: Any, exact: bool) -> str:
    reasons: dict[str, list[str]] = {}
    for method in family.methods:
        if method.claim is Claim.EXACT or not exact:
            reasons.setdefault(method.refusal(instance) or "", []).append(method.name)
    said = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    return f"no {'exact ' * exact}method takes the instance ({said})"


def _lasting(family: Family[Any, Any], method: Method[Any, Any], instance: Any) -> float | None:
    """Predicted seconds before a method has anything to show; ``None`` where it soon has a plan, or nobody knows."""
    return predicted_s(family, method, instance) if method.only_at_end else None


def _in_order(
    family: Family[Any, Any], methods: list[Method[Any, Any]], instance: Any, patience: float
) -> list[Method[Any, Any]]:
    """First those that end in time; of these exact ones, the quickest first, then those of which nobody knows how quick
    they are; then heuristics. What is not ordered otherwise is as it is listed; models too large to be built come last.
    """

    def rank(place: int) -> tuple[bool, bool, float]:
        method, is_heuristic = methods[place], methods[place].claim is Claim.HEURISTIC
        seconds, lasting = predicted_s(family, method, instance), _lasting(family, method, instance)
        is_late = lasting is not None and lasting > patience
        is_last = is_late or method.too_large(instance) is not None
        return is_last, is_heuristic, math.inf if is_heuristic or seconds is None else seconds

    return [methods[place] for place in sorted(range(len(methods)), key=rank)]


def _find_requested(family: Family[Any, Any], instance: Any, name: str, exact: bool) -> Method[Any, Any]:
    method = find_method(family, name)
    if exact and method.claim is not Claim.EXACT:
        raise UsageError.at("method", name, f"an exact method, as required; one of {', '.join(exact_names(family))}")
    missing = method.refusal(instance)
    if missing:
        fit = [other.name for other in family.methods if other.refusal(instance) is None]
        others = f"try {', '.join(fit)}" if fit else "no other method does either"
        raise UsageError.at("method", name, f"a method that supports this instance ({missing}); {others}")
    return method


def find_method(family: Family[Any, Any], name: str) -> Method[Any, Any]:
    """The family's method of that name, or the one that a user brought (`planner.plugins`).

    `UsageError` if there is none, with the closest match, or if what was brought cannot be loaded.
    """
    for method in family.methods:
        if method.name == name:
            return method
    from planner.plugins.methods import load_method  # what runs a function of a user's

    found = load_method(family, name) if isinstance(name, str) else None
    if found is None:
        known = (method.name for method in family.methods)
        raise UsageError.unknown(
            "method", name, [AUTO, *known, *registry.functions_of(family.name), *registry.installed_methods()]
        )
    return found


def exact_names(family: Family[Any, Any]) -> list[str]:
    """Names of the methods that claim exactness."""
    return [method.name for method in family.methods if method.claim is Claim.EXACT]


def reference_name(family: Family[Any, Any], but: str = "") -> str:
    """The method that proves optima by default: ``exact``, or the first exact one that is listed."""
    names = [name for name in exact_names(family) if name != but]
    return "exact" if "exact" in names else names[0]
