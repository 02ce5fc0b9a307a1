"""Certificates of stage partitioning: the labels of one threshold test at the reported bound, for `checker`."""

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from formulations.compiled.downsets import all_downsets, position_masks, too_many
from formulations.contract.certificates import Proof, certificate
from formulations.contract.family import UncertifiedError
from formulations.stage_partitioning.certificate import checker
from formulations.stage_partitioning.exact.threshold import ThresholdSearch
from formulations.stage_partitioning.kernels.tables import build_lattice, build_profile
from formulations.stage_partitioning.methods import MAX_DOWNSETS, MAX_LABELS
from instances.exchange import to_json
from instances.problems.stage_partitioning import StageInstance
from solvers.outcome import Watch

#: More labels than this would make a file that nobody wants to read.
_MAX_LABELS = 1_000_000


def write(instance: StageInstance, plan: Mapping[str, Any] | None, bound: float, watch: Watch) -> dict[str, Any]:
    """`certificate` of a plan and a bound."""

    @cache
    def search() -> ThresholdSearch:
        return _search(instance, watch)

    def prove(exact: checker.Instance, T: Fraction | None) -> tuple[Fraction | None, Proof] | None:
        rows: list[list[Any]] = []
        if not checker.Table(exact, T).settled:
            limit = math.inf if T is None else float(T)
            label = search().test(limit)
            if label == -2:
                raise UncertifiedError("the run was stopped before the labels were complete")
            if label != -1:
                return None
            rows = _labels(search(), limit)
        return T, {"kind": "labels", "downsets": rows}

    return certificate(checker.CHECKER, to_json(instance), plan, bound, prove)


def _search(instance: StageInstance, watch: Watch) -> ThresholdSearch:
    profile, downsets = build_profile(instance, prune=True), all_downsets(instance, MAX_DOWNSETS)
    if downsets is None:
        raise UncertifiedError(too_many(len(instance.layers), MAX_DOWNSETS))
    if len(downsets) * (profile.max_s + 1) > MAX_LABELS:
        raise UncertifiedError(f"{len(downsets)} downsets times {profile.max_s} micro-batches are too many labels")
    return ThresholdSearch(instance, profile, build_lattice(profile, downsets), np.frombuffer(watch.flag, np.uint8))


def _labels(search: ThresholdSearch, T: float) -> list[list[Any]]:
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
