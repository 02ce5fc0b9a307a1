"""What would make an infeasible instance feasible where the search for it ends early (else: contracts)."""

import math

import pytest

import planner
from formulations.contract.rounding import Least
from formulations.flushed_partitioning.exact import labels
from formulations.flushed_partitioning.questions import why_infeasible
from solvers.outcome import Limits, Stop, Watch


def test_what_is_too_large_or_stopped_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = planner.load("chain8-flushed", schedule="gpipe", devices=8, memory="20MB")
    assert len(why_infeasible.why_infeasible(instance, Limits(), Watch())[1]) == 2
    watch = Watch()
    watch.stop(Stop.INTERRUPTED)
    sentence, figures = why_infeasible.why_infeasible(instance, Limits(), watch)
    assert "would suffice" not in sentence and figures == {}
    monkeypatch.setattr(why_infeasible, "MAX_DOWNSETS", 3)
    sentence, figures = why_infeasible.why_infeasible(instance, Limits(), Watch())
    assert "would suffice" not in sentence and figures == {}
    monkeypatch.undo()
    monkeypatch.setattr(labels, "_MAX_BYTES", 100)
    monkeypatch.setattr(labels, "_POOL", 2)
    sentence, figures = why_infeasible.why_infeasible(instance, Limits(), Watch())
    assert "would suffice" not in sentence and figures == {}


def test_a_search_that_is_stopped_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after each number of passes: nothing, then what would suffice, then the least memory."""
    instance = planner.load("chain8-flushed", schedule="gpipe", devices=8, memory="20MB")
    passes, results = labels.Search.labels_at, []
    for most in range(60):
        watch = Watch()

        def counted(search, T, most_sync, *, plain, most=most, watch=watch):
            if search.passes >= most:
                watch.stop(Stop.INTERRUPTED)
            return passes(search, T, most_sync, plain=plain)

        monkeypatch.setattr(labels.Search, "labels_at", counted)
        results.append(why_infeasible.least_memory(instance, watch))
        if results[-1].proved:
            break
    assert results[0] == Least() and len(results) > 5 and results[-1].amount == 23e6
    # A plan that was found is said to do, as it does, but not to be the least.
    known = [each.amount for each in results if each.amount is not None]
    assert known == sorted(known, reverse=True) and 23e6 < known[0] < math.inf


def test_the_reason_is_a_sentence() -> None:
    found = planner.solve(planner.load("chain8-flushed", schedule="gpipe", devices=8, memory="22MB"))
    ways = (
        "8 devices of 21.94 MiB (23000000 bytes) would suffice; 16 devices of 20.98 MiB (22000000 bytes) would suffice;"
    )
    assert ways in found.reason
    assert found.reason.endswith("; so would --schedule 1f1b")
    for memory, devices in (("23MB", 8), ("22MB", 16)):
        assert planner.solve(planner.load("chain8-flushed", schedule="gpipe", devices=devices, memory=memory)).plan
