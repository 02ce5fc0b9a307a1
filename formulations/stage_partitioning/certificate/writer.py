"""Certificates of stage partitioning: the labels of one threshold test at the reported bound, for `checker`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from formulations.compiled.downsets import all_downsets, position_masks, too_many
from formulations.contract.family import UncertifiedError
from formulations.stage_partitioning.certificate import checker
from formulations.stage_partitioning.exact.threshold import Search
from formulations.stage_partitioning.kernels.tables import build_lattice, build_profile
from formulations.stage_partitioning.methods import MAX_DOWNSETS, MAX_LABELS
from instances.problems.stage_partitioning import StageInstance, to_json
from solvers.outcome import Watch

#: A test at T admits plans that are slower by float noise; below a plan by this, it does not find that plan.
_BELOW = 2e-11
#: More labels than this would make a file that nobody wants to read.
_MAX_LABELS = 1_000_000


def write(instance: StageInstance, plan: Mapping[str, Any] | None, bound: float, watch: Watch) -> dict[str, Any]:
    """A certificate of a plan and a bound.

    Parameters
    ----------
    plan
        In its JSON form, if there is one.
    bound
        Time units per sample; infinite: there is no plan. What is certified is the bound itself, or what is smaller by
        a few 1e-11 of it where the plan attains it: every plan takes *more* than the certified bound.

    Raises
    ------
    UncertifiedError
        If the graph has too many downsets for the labels, the run is stopped, or a plan within the bound is found.
    """
    try:
        exact = checker.Instance(to_json(instance))
        objective = None if plan is None else checker.plan_time(exact, plan)
    except checker.RejectedError as error:
        raise UncertifiedError(f"the checker refuses: {error}") from None
    if objective is not None:
        bound = min(bound, float(objective) * (1 - _BELOW))
    bound, downsets = _proof(instance, exact, bound, watch)
    return {
        "format": 1,
        "problem": "stage_partitioning",
        "instance_sha256": exact.digest,
        "plan": None if plan is None else dict(plan),
        "objective": None if objective is None else str(objective),
        "bound": None if math.isinf(bound) else str(Fraction(bound)),
        "proof": {"kind": "labels", "downsets": downsets},
    }


def _proof(
    instance: StageInstance, exact: checker.Instance, bound: float, watch: Watch
) -> tuple[float, list[list[Any]]]:
    """The bound that is certified, and the labels that prove it."""
    search = None
    for T in (bound, bound * (1 - _BELOW)):
        if T <= 0 or checker.Table(exact, None if math.isinf(T) else Fraction(T)).settled:
            return max(T, 0.0), []
    search = _search(instance, watch)
    for T in (bound, bound * (1 - _BELOW)):
        label = search.test(T)
        if label == -2:
            raise UncertifiedError("the run was stopped before the labels were complete")
        if label == -1:
            return T, _labels(search, T)
    raise UncertifiedError(f"the test of the labels finds a plan within the bound {bound!r}")


def _search(instance: StageInstance, watch: Watch) -> Search:
    profile, downsets = build_profile(instance, prune=True), all_downsets(instance, MAX_DOWNSETS)
    if downsets is None:
        raise UncertifiedError(too_many(len(instance.layers), MAX_DOWNSETS))
    if len(downsets) * (profile.max_s + 1) > MAX_LABELS:
        raise UncertifiedError(f"{len(downsets)} downsets times {profile.max_s} micro-batches are too many labels")
    return Search(instance, profile, build_lattice(profile, downsets), np.frombuffer(watch.flag, np.uint8))


def _labels(search: Search, T: float) -> list[list[Any]]:
    """Rows of `checker`: what the test at T, which found no plan, left in its tables."""
    K, exactly = search.instance.num_devices, search.instance.exactly
    work, total, rest = search.lattice.work.tolist(), float(search.lattice.work[-1]), search.reach[0].tolist()
    rows: list[list[Any]] = []
    found, everything = 0, (1 << len(search.instance.layers)) - 1
    for i, mask in enumerate(position_masks(search.lattice.bits)):
        before, behind = _fewest(work[i], T), 0 if mask == everything else _fewest(total - work[i], T)
        if i and before + behind > K:
            continue
        labels: list[list[int]] = []
        if rest[0] <= K:
            for s, k in enumerate(search.labels[i].tolist()):
                if k + rest[i] <= K and (exactly or not labels or k < labels[-1][1]):
                    labels.append([s, k])
        found += len(labels)
        if found > _MAX_LABELS:
            raise UncertifiedError(f"the certificate would have over {_MAX_LABELS} labels")
        # The test looks no further than the K devices less those that the downset itself takes.
        claim = [min(rest[i], K + 1 - (before if i else 0))] if rest[i] > behind else []
        if labels or claim:
            rows.append([format(mask, "x"), labels, *claim])
    return rows


def _fewest(work: float, T: float) -> int:
    """The devices that a part of the layers takes at least, as the test counts them."""
    return max(1, math.ceil(work / T * (1 - 1e-11) - 1e-9))
