"""How certificates are written: plan and bound in exact numbers, and the proof that a problem finds."""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import wraps
from typing import Any

from formulations.contract.checker.frame import Checker, RejectedError, floor
from formulations.contract.family import UncertifiedError
from instances.exchange import to_json
from solvers.outcome import Watch

#: What is certified where the bound itself is not proved in exact numbers: smaller by what float arithmetic rounds.
BELOW = Fraction(2, 10**11)

Proof = dict[str, Any]
#: What is certified, T or a little less, and its proof; ``None`` if T is not proved.
Proved = tuple[Fraction | None, Proof] | None


def certificate(
    checker: Checker,
    content: Any,
    plan: Mapping[str, Any] | None,
    bound: float,
    prove: Callable[[Any, Fraction | None], Proved],
) -> dict[str, Any]:
    """A certificate of a plan and a bound; every plan takes *more* than what is certified.

    ``checker``, ``content``: the problem's own part of its checker, and the instance in JSON types.
    ``plan``: in its JSON form, if there is one.
    ``bound``: in the unit of the objective; infinite: there is no plan. Where it is not below the objective of the
    plan, or only float rounding puts it above what can be proved, a bound is certified that is smaller by up to 4e-11
    of it.
    ``prove(exact, T)``: what is certified, T or a little less, and its proof; ``None`` if T is not proved.
    ``exact`` is the checker's instance; without T, that there is no plan.
    `UncertifiedError` if exact arithmetic does not confirm the plan or the bound, the checker would refuse the proof
    for its size, or the run is stopped.
    """
    try:
        exact = checker.read(content)
        objective = None if plan is None else checker.price(exact, plan)
        bounds: list[Fraction | None] = [None]
        if not math.isinf(bound):
            first = Fraction(bound) if objective is None else min(Fraction(bound), objective * (1 - BELOW))
            bounds = [Fraction(floor(T)) for T in (first, first * (1 - BELOW))]
        for T in bounds:
            # That nothing takes less than 0 needs no proof.
            found = prove(exact, T) if T is None or T > 0 else (Fraction(0), {"kind": checker.kinds[0]})
            if found is not None:
                certified, proof = found
                return {
                    "format": 1,
                    "problem": checker.problem,
                    "instance_sha256": exact.digest,
                    "plan": None if plan is None else dict(plan),
                    "objective": None if objective is None else str(objective),
                    "bound": None if certified is None else str(certified),
                    "proof": proof,
                }
    except RejectedError as error:
        raise UncertifiedError(f"the checker refuses: {error}") from None
    if math.isinf(bound):
        raise UncertifiedError("exact arithmetic finds a plan")
    raise UncertifiedError(f"exact arithmetic does not confirm the bound {bound!r}")


def certifies(checker: Checker) -> Callable[[Callable[[Any, Any, Fraction | None, Watch], Proved]], Callable[..., Any]]:
    """Makes ``write(instance, plan, bound, watch)``, a `certificate`, of ``prove(instance, exact, T, watch)``."""

    def made(prove: Callable[[Any, Any, Fraction | None, Watch], Proved]) -> Callable[..., dict[str, Any]]:
        @wraps(prove)
        def write(instance: Any, plan: Mapping[str, Any] | None, bound: float, watch: Watch) -> dict[str, Any]:
            return certificate(
                checker, to_json(instance), plan, bound, lambda exact, T: prove(instance, exact, T, watch)
            )

        return write

    return made


def check_stop(watch: Watch) -> None:
    """`UncertifiedError` if the run is stopped."""
    if watch.stopped():
        raise UncertifiedError("the run was stopped")
