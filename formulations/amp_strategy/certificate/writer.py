"""Certificates of training strategies: caps for each chain of layers that is left of degrees and placement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from formulations.amp_strategy.certificate import checker
from formulations.contract.family import UncertifiedError
from formulations.layer_assignment.certificate.writer import rows_above
from instances.problems.amp_strategy import AmpInstance, to_json
from instances.problems.layer_assignment import LayerAssignmentInstance, TiedParameters
from solvers.outcome import Watch

#: What is certified where the bound itself is not proved in exact numbers: smaller by what float arithmetic rounds.
_BELOW = Fraction(1, 10**11)


def write(instance: AmpInstance, plan: Mapping[str, Any] | None, bound: float, watch: Watch) -> dict[str, Any]:
    """A certificate of a plan and a bound; every plan takes *more* than what is certified.

    Parameters
    ----------
    plan
        In its JSON form, if there is one.
    bound
        Seconds; infinite: there is no plan. Where it is not below the objective of the plan, or only float rounding
        puts it above what can be proved, a bound is certified that is smaller by up to 1e-11 of it.

    Raises
    ------
    UncertifiedError
        If exact arithmetic does not confirm the plan or the bound, there are too many placements or caps, or the run is
        stopped.
    """
    exact = checker.Instance(to_json(instance))
    try:
        objective = None if plan is None else checker.plan_time(exact, plan)
        certified, chains = _proof(exact, bound, objective, watch)
    except checker.RejectedError as error:
        raise UncertifiedError(f"the checker refuses: {error}") from None
    return {
        "format": 1,
        "problem": "amp_strategy",
        "instance_sha256": exact.digest,
        "plan": None if plan is None else dict(plan),
        "objective": None if objective is None else str(objective),
        "bound": None if certified is None else str(certified),
        "proof": {"kind": "caps", "chains": chains},
    }


def _proof(
    exact: checker.Instance, bound: float, objective: Fraction | None, watch: Watch
) -> tuple[Fraction | None, list[Any]]:
    """The bound that is certified, and the rows of the chains that need some."""
    if math.isinf(bound):
        return None, []
    first = Fraction(bound) if objective is None or bound < objective else objective * (1 - _BELOW)
    for B in (first, first * (1 - _BELOW)):
        if B <= 0:
            return Fraction(0), []
        chains = _chains(exact, B, watch)
        if chains is not None:
            return B, chains
    raise UncertifiedError(f"exact arithmetic does not confirm the bound {bound!r}")


def _chains(exact: checker.Instance, B: Fraction, watch: Watch) -> list[Any] | None:
    """The rows of the chains that need some, as `checker` reads them; ``None`` if some plan takes no more than B."""
    found: list[Any] = []
    caps = 0
    for number, chain in enumerate(exact.chains()):
        rows = rows_above(_floats(chain), chain, B, watch)
        if rows is None:
            return None
        caps += sum(1 + len(each) for _, each in rows)
        if max(caps, number) >= checker.MAX_CAPS:
            raise UncertifiedError(f"more than {checker.MAX_CAPS} caps would be needed")
        if rows != [(None, [])]:
            texts = [[None if most is None else str(most), list(map(str, each))] for most, each in rows]
            found.append([number, texts])
    return found


def _floats(chain: checker.Chain) -> LayerAssignmentInstance:
    """The chain in seconds, and parameters in its own unit."""
    return LayerAssignmentInstance(
        name="chain",
        layer_time_s=tuple(t / chain.unit for t in chain.times),
        cut_cost_s=tuple(tuple(e / chain.unit for e in row) or (0.0,) for row in chain.cuts),
        num_stages=chain.S,
        num_microbatches=chain.N,
        parameters=tuple(map(float, chain.sizes)),
        tied=tuple(TiedParameters(tuple(sorted(held)), float(size)) for held, size in chain.tied),
        ring_s_per_parameter=tuple(map(float, chain.rings)),
    )
