"""Certificates of device mapping: a bound that `checker` recomputes, or a solver's refutation of its clauses."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from formulations.contract.certificates import Proof, certificate, check_stop
from formulations.contract.checker.frame import RejectedError
from formulations.contract.family import UncertifiedError
from formulations.device_mapping.bounds.combinatorial import groupings
from formulations.device_mapping.certificate import checker
from formulations.device_mapping.data.arrays import arrays
from formulations.device_mapping.definition.plan import plan_from_json, plan_to_json
from formulations.device_mapping.definition.problem import ring_devices
from instances.exchange import to_json
from instances.problems.device_mapping import DeviceMapping
from solvers.outcome import Watch

#: More bandwidths than this are rounded up to so many.
_MAX_LEVELS = 24
#: Conflicts of the solver, at first between looks at the clock, then in all: on groups of devices, and on devices.
_CONFLICTS, _ON_GROUPS, _ON_DEVICES = 1_000, 20_000, 200_000
#: More literals than this would be a file of over 50 MB.
_MAX_LITERALS = 8_000_000

Clauses = list[list[int]]


def write(instance: DeviceMapping, plan: Mapping[str, Any] | None, bound: float, watch: Watch) -> dict[str, Any]:
    """`certificate` of a plan, with the order of its free rings, and a bound."""

    def prove(exact: checker.Instance, T: Fraction | None) -> tuple[Fraction | None, Proof] | None:
        return None if T is None else (T, _proof(instance, exact, T, watch))

    plan = None if plan is None else _with_rings(instance, plan)
    return certificate(checker.CHECKER, to_json(instance), plan, bound, prove)


def _with_rings(instance: DeviceMapping, plan: Mapping[str, Any]) -> dict[str, Any]:
    """The plan with the order of its free rings stated."""
    mapping = plan_from_json(instance, dict(plan))
    if instance.ring == "free":
        rings = [
            tuple(devices.index(device) for device in ring_devices(instance, mapping, stage))
            for stage, devices in enumerate(mapping.devices)
        ]
        mapping = replace(mapping, rings=tuple(rings))
    return plan_to_json(instance, mapping)


def _proof(instance: DeviceMapping, exact: checker.Instance, bound: Fraction, watch: Watch) -> dict[str, Any]:
    """What proves the bound; `UncertifiedError`."""
    parts = checker.Parts(exact, bound)
    for name, possible in (("assignment", parts.can_be_dealt), ("rings", parts.rings_fit)):
        if not possible():
            return {"kind": "bound", "name": name}
    reasons = []
    for groups in _groupings(instance):
        levels = _levels(exact, bound)
        try:
            clauses = checker.clauses_of(exact, parts, groups, levels)
            most = _ON_DEVICES if len(groups) == exact.D else _ON_GROUPS
            return {"kind": "drup", "groups": groups, "levels": levels, "clauses": _refutation(clauses, most, watch)}
        except (UncertifiedError, RejectedError) as error:
            on = "devices" if len(groups) == exact.D else f"{len(groups)} groups of devices"
            reasons.append(str(error) if "python-sat" in str(error) else f"on {on}: {error}")
        check_stop(watch)
    raise UncertifiedError(f"no named bound meets it, and no clauses refute it ({', '.join(dict.fromkeys(reasons))})")


def _groupings(instance: DeviceMapping) -> Iterator[list[list[int]]]:
    """Devices in groups of fast links, the clearest hierarchy first; at last every device alone."""
    for groups in groupings(arrays(instance)):
        yield [np.nonzero(group)[0].tolist() for group in groups]
    yield [[device] for device in range(instance.num_devices)]


def _levels(exact: checker.Instance, bound: Fraction) -> list[float]:
    """Bandwidths between which links make no difference, falling; rounded up to a few where they are many.

    Without edges a stage looks at one bandwidth only: the one that its ring needs.
    """
    speeds = sorted({speed for row in exact.B for speed in row if speed}, reverse=True) or [1.0]
    if len(speeds) <= _MAX_LEVELS:
        return speeds
    if exact.edges:
        shares = np.linspace(0, 1, _MAX_LEVELS) ** 2
        return [speeds[place] for place in sorted({int(share * (len(speeds) - 1)) for share in shares})]
    slow = {speeds[0]}
    for compute, size in zip(exact.compute, exact.W, strict=True):
        if size and compute < bound:
            slow |= {next((speed for speed in speeds if speed < size / (bound - compute)), speeds[0])}
    return sorted(slow, reverse=True)


def _refutation(clauses: checker.Clauses, most: int, watch: Watch) -> Clauses:
    """Clauses that follow one after the other by unit propagation, up to a contradiction; `UncertifiedError`."""
    try:
        from pysat.solvers import Glucose4
    except ImportError:
        raise UncertifiedError("proofs by clauses need python-sat (pip install '.[proofs]')") from None
    with Glucose4(bootstrap_with=clauses.all, with_proof=True) as solver:
        verdict, conflicts = None, 0
        while verdict is None:
            check_stop(watch)
            if conflicts >= most:
                raise UncertifiedError(f"no proof with {most:,} conflicts")
            solver.conf_budget(_CONFLICTS)
            verdict = solver.solve_limited()
            conflicts += _CONFLICTS
        if verdict:
            raise UncertifiedError("the few bandwidths that clauses keep are too coarse")
        lines = [line.split() for line in solver.get_proof()]
    found = [[int(literal) for literal in line[:-1]] for line in lines if line[0] != "d"]
    if sum(map(len, found)) > _MAX_LITERALS:
        raise UncertifiedError(f"the proof has over {_MAX_LITERALS:,} literals")
    return found
