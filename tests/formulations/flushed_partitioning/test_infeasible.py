"""What would make an infeasible instance feasible, against brute force."""

import math
from dataclasses import replace

import pytest
from oracles.flushed_partitioning import brute_force, random_flushed

import planner
from formulations.contract.rounding import Least
from formulations.flushed_partitioning.exact import labels
from formulations.flushed_partitioning.questions import why_infeasible
from instances.problems.flushed_partitioning import FlushedInstance, Schedule
from solvers.outcome import Limits, Stop, Watch


def sized(instance: FlushedInstance, **fields: float) -> FlushedInstance:
    return replace(instance, flat=replace(instance.flat, **fields))


@pytest.mark.parametrize("schedule", list(Schedule))
def test_the_way_out_is_one_and_the_smallest(schedule: Schedule, cases: int) -> None:
    seen = {"memory": 0, "no memory": 0, "devices": 0, "no devices": 0, "1f1b": 0, "not 1f1b": 0}
    for seed in range(3 * cases):
        instance = replace(random_flushed(seed, memory="any" if seed % 2 else "planted"), schedule=schedule)
        instance = sized(instance, memory_bytes=instance.flat.memory_bytes // 2)
        if brute_force(instance) is not None:
            continue
        sentence, figures = why_infeasible.why_infeasible(instance, Limits(), Watch())
        memory, devices = figures.get("least_memory_bytes"), figures.get("fewest_devices")
        if memory is None:
            seen["no memory"] += 1
            assert "no memory would suffice" in sentence
            assert brute_force(sized(instance, memory_bytes=1e9)) is None, seed
        else:
            seen["memory"] += 1
            assert brute_force(sized(instance, memory_bytes=memory)) is not None, seed
            assert brute_force(sized(instance, memory_bytes=memory * (1 - 1e-8))) is None, seed
        if devices is None:
            seen["no devices"] += 1
            assert "no number of devices" in sentence
            assert brute_force(sized(instance, num_devices=8)) is None, seed
        elif devices <= 7:
            seen["devices"] += 1
            assert brute_force(sized(instance, num_devices=devices)) is not None, seed
            assert brute_force(sized(instance, num_devices=devices - 1)) is None, seed
        other = brute_force(replace(instance, schedule=Schedule.ONE_F_ONE_B)) is not None
        assert ("--schedule 1f1b" in sentence) is other, seed
        seen["1f1b" if other else "not 1f1b"] += 1
    if schedule is Schedule.ONE_F_ONE_B:
        assert seen.pop("1f1b") == 0
    assert min(seen.values()) > 0, seen


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
