"""Requirements that only mappings far slower than any known one meet, and rings whose replicas have numbers."""

from dataclasses import replace

import pytest
from oracles.device_mapping import mappings, seconds_of

import planner
from instances.problems.device_mapping import DeviceMapping, MappingEdge, MappingStage
from solvers.outcome import Status

#: Devices 0-1 and 2-3 are near, all else is a hundred times as far.
MATRIX = tuple(tuple(0.0 if a == b else 100.0 if a // 2 == b // 2 else 1.0 for b in range(4)) for a in range(4))
PAIR = DeviceMapping(
    "pair", (MappingStage(1.0, 8.0), MappingStage(2.0, 4.0)), (MappingEdge(0, 1, 12.0),), 2, MATRIX, "p2p"
)
#: A free ring of four, whose fast links are 0-2, 2-1, 1-3 and 3-0.
FAST = {(0, 2), (1, 2), (1, 3), (0, 3)}
RING = DeviceMapping(
    "ring",
    (MappingStage(0.0, 4.0),),
    (),
    4,
    tuple(tuple(0.0 if a == b else 6.0 if (min(a, b), max(a, b)) in FAST else 1.0 for b in range(4)) for a in range(4)),
    "allreduce",
    "free",
)


@pytest.mark.parametrize("method", ["cpsat", "milp"])
def test_mappings_far_slower_than_consecutive_ones(method: str) -> None:
    instance = replace(PAIR, requirements=("on(0, 0, 0)", "device_of(1, 0) >= 2"))
    best = min(seconds_of(PAIR, device) for device in mappings(PAIR) if device[0, 0] == 0 and device[1, 0] >= 2)
    assert best > 2 * min(seconds_of(PAIR, device) for device in mappings(PAIR))
    found = planner.solve(instance, method=method)
    assert found.status is Status.OPTIMAL and found.objective == pytest.approx(best, rel=1e-6)
    none = planner.solve(replace(instance, requirements=("runs(1, 0)", "stage_of(1) == 1")), method=method)
    assert none.status is Status.INFEASIBLE


@pytest.mark.parametrize("method", ["cpsat", "milp"])
def test_numbered_replicas_of_a_free_ring(method: str) -> None:
    """Their numbers are required; the ring may still go round as is fastest."""
    instance = replace(RING, requirements=tuple(f"on(0, {replica}, {replica})" for replica in range(4)))
    found = planner.solve(instance, method=method)
    assert found.status is Status.OPTIMAL and found.objective == pytest.approx(1.0)
    assert found.plan["devices"] == [[0, 1, 2, 3]]
