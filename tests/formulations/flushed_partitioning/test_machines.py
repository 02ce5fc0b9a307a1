"""Flushed pipelines on machines with a network of their own: by hand, against brute force, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from oracles.flushed_partitioning import brute_force, on_machines

import planner
from formulations.compiled.downsets import all_downsets
from formulations.flushed_partitioning import FAMILY
from formulations.flushed_partitioning.definition.problem import Place, evaluate, places, simulate_batch, violations
from formulations.flushed_partitioning.exact import labels
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from instances.errors import InstanceError
from instances.exchange import to_json
from instances.exchange import to_json as flat_to_json
from instances.problems.flushed_partitioning import FlushedInstance, Schedule, check, flush_pipeline
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from planner.analysis.explain import explain
from planner.cli.app import main
from solvers.outcome import Limits, Watch


def three(devices: int = 8, machine: int = 4, inner: float = 100.0) -> FlushedInstance:
    """a, b, c in a chain; 10 bytes of weights each, a bandwidth of 10 between machines."""
    layers = tuple(Layer(v, {t: (Tmpc("x", 12.0 / t, 10.0, 1.0, 0.0),) for t in (1, 2, 8)}) for v in ("a", "b", "c"))
    flat = StageInstance("abc", layers, (Edge("a", "b", 0.0), Edge("b", "c", 0.0)), devices, 1e3, 10.0, 8)
    return flush_pipeline(flat, Schedule.ONE_F_ONE_B, "here", machine, inner)


def plan(*degrees: tuple[int, int]) -> StagePlan:
    """A stage for each of a, b, c, with its (d, t)."""
    return StagePlan(tuple(Stage((v,), d, t, {v: "x"}) for v, (d, t) in zip("abc", degrees, strict=True)))


@pytest.mark.parametrize(
    ("degrees", "lies", "longest"),
    [
        # c on 0 to 2, b on 3; a would straddle from 4 on, if it did not begin a machine
        (((3, 1), (1, 1), (3, 1)), ((4, 7), (3, 4), (0, 3)), 4 * 2 / 3 * 10 / 100 / 8),
        # b must straddle, as 3 + 3 + 2 devices take all of both machines
        (((2, 1), (3, 1), (3, 1)), ((6, 8), (3, 6), (0, 3)), 4 * 2 / 3 * 10 / 10 / 8),
        # device 3 stays idle, so that b lies in one machine
        (((1, 1), (2, 1), (3, 1)), ((6, 7), (4, 6), (0, 3)), 4 * 2 / 3 * 10 / 100 / 8),
        # a replica of two devices lies in one machine: device 3 stays idle, b straddles nothing
        (((1, 1), (2, 2), (3, 1)), None, None),
        (((1, 1), (1, 2), (3, 1)), ((6, 7), (4, 6), (0, 3)), 4 * 2 / 3 * 10 / 100 / 8),
        (((1, 1), (1, 8), (1, 1)), None, None),
    ],
)
def test_places_by_hand(degrees: tuple, lies: tuple | None, longest: float | None) -> None:
    instance, made = three(), plan(*degrees)
    assert places(instance, made) == (None if lies is None else tuple(Place(*each) for each in lies))
    broken = {found.rule for found in violations(instance, made)}
    if longest is None:
        assert "machines" in broken
        return
    assert not broken
    step = max(12.0 / (d * t) for d, t in degrees)
    assert evaluate(instance, made) == pytest.approx((1 + 2 / 8) * step + longest)
    without = replace(instance, flat=instance.weightless)
    assert simulate_batch(instance, made) == pytest.approx(simulate_batch(without, made) + longest)


def test_one_machine_is_one_network() -> None:
    instance = three(machine=8)
    flat = replace(instance, devices_per_machine=None, inner_bandwidth=None)
    fast = flush_pipeline(replace(flat.flat, bandwidth=100.0))
    made = plan((2, 1), (3, 1), (3, 1))
    assert evaluate(instance, made) == pytest.approx(evaluate(fast, made))
    assert evaluate(replace(instance, inner_bandwidth=10.0), made) == evaluate(flat, made)


def test_labels_agree_with_brute_force(cases: int) -> None:
    infeasible = better = 0
    for seed in range(cases):
        instance = on_machines(seed)
        answer, expected = labels.solve(instance, Limits(), Watch()), brute_force(instance)
        assert answer.infeasible == (expected is None), seed
        if expected is None:
            infeasible += 1
            continue
        assert not violations(instance, answer.plan), seed
        assert evaluate(instance, answer.plan) == pytest.approx(expected, rel=1e-8), seed
        assert answer.bound == pytest.approx(expected, rel=1e-8) and answer.bound <= expected * (1 + 1e-9), seed
        one = replace(instance, devices_per_machine=None, inner_bandwidth=None)
        before = labels.solve(one, Limits(), Watch())
        better += evaluate(one, before.plan) > evaluate(instance, answer.plan) * (1 + 1e-6)
    assert infeasible > cases / 50 and better > cases / 4


def test_labels_synchronise_as_some_placement_does(cases: int) -> None:
    straddling = 0
    for seed in range(cases):
        instance = on_machines(seed)
        downsets = all_downsets(instance.flat, 1000)
        assert downsets is not None
        search = labels.Search(instance, downsets, Watch())
        T = 1.2 * search.work_bound
        for label in search.labels_at(T, np.full(9, np.inf), plain=False) or []:
            found = search.plan_of_label(label, T)
            assert found.sync <= search.pool.sync[label] * (1 + 1e-9), seed
            straddling += found.sync > 0 and instance.devices_per_machine < instance.flat.num_devices
    assert straddling > cases / 10


def test_what_does_not_know_machines_refuses_them() -> None:
    instance = three()
    for method in FAMILY.methods:
        refused = method.refusal(instance)
        assert (refused is None) == (method.name == "labels")
        assert refused is None or "machines" in refused or method.name in ("best-first", "cpsat-orders")
    result = planner.solve(instance, exact=True)
    assert result.status.value == "optimal"
    too_small = replace(instance, flat=replace(instance.flat, memory_bytes=0.5))
    assert FAMILY.why_infeasible(too_small, Limits(), Watch()) == ("", {})
    assert planner.crosscheck(instance).uncertified == {}


def test_conflicts_name_the_machines() -> None:
    large = three()
    layers = tuple(replace(layer, tmpcs={8: layer.tmpcs[8]}) for layer in large.flat.layers)
    found = explain(replace(large, flat=replace(large.flat, layers=layers)))
    assert found.irreducible and [member.name for member in found.conflict] == ["machines", "c"]
    # two stages of three devices each take six, and two machines of five
    five = three(devices=5, machine=5)
    layers = tuple(replace(layer, tmpcs={3: layer.tmpcs[1]}) for layer in five.flat.layers)
    found = explain(replace(five, flat=replace(five.flat, layers=layers, memory_bytes=2.0)))
    repaired = next(each.instance for each in found.repairs if each.change == "devices")
    assert repaired.flat.num_devices == 10
    check(repaired, "repaired")


@pytest.mark.parametrize("inner", [10.5, 100.0])
def test_more_of_a_resource_is_an_instance_on_machines(inner: float) -> None:
    instance = three(inner=inner)
    for more in FAMILY.questions().resources(instance):
        check(more.change.changed(more.amount), more.unit)
        for step in list(more.change.steps)[:3]:
            check(more.change.changed(step), more.unit)
    assert [(gain.change, gain.amount) for gain in explain(instance).gains][1] == ("devices", 12)


@pytest.mark.parametrize(
    ("overrides", "bandwidths"),
    [
        ({"bandwidth": "5B/s"}, (5.0, 0.1)),
        ({"bandwidth": "5B/s", "inner_bandwidth": "50B/s"}, (5.0, 50.0)),
        ({"bandwidth": "5000B/s", "inner_bandwidth": "50000B/s", "fix_units": True}, (5.0, 50.0)),
        ({"inner_bandwidth": "500B/s", "fix_units": True}, (0.01, 0.5)),
        ({"inner_bandwidth": "0.5B/s"}, (0.01, 0.5)),
    ],
)
def test_both_networks_have_one_unit(overrides: dict, bandwidths: tuple[float, float]) -> None:
    made = planner.load(to_json(three()), time_unit="ms", fix_units=True)
    content = to_json(made)
    if bandwidths[1] < bandwidths[0]:
        with pytest.raises(InstanceError, match=r"inner_bandwidth is 0\.1; expected at least 5"):
            planner.load(content, **overrides)
        return
    found = planner.load(content, **overrides)
    assert (found.flat.bandwidth, found.inner_bandwidth) == pytest.approx(bandwidths)


def test_fixed_units_are_those_of_both_networks() -> None:
    made = planner.load(to_json(three()), time_unit="ms", fix_units=True, bandwidth="50B/s")
    assert (made.flat.bandwidth, made.inner_bandwidth) == (0.05, 0.1)


def test_json_and_overrides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance = three()
    assert planner.load(to_json(instance)) == instance
    assert "devices_per_machine" not in to_json(flush_pipeline(instance.flat))
    made = planner.load(flat_to_json(instance.flat), problem="flushed_partitioning", devices_per_machine=2,
                        inner_bandwidth="50B/s")  # fmt: skip
    assert (made.devices_per_machine, made.inner_bandwidth) == (2, 50.0)
    again = planner.load(to_json(instance), inner_bandwidth="60B/s", schedule="gpipe", devices=4)
    assert (again.devices_per_machine, again.inner_bandwidth, again.schedule) == (4, 60.0, "gpipe")
    milliseconds = planner.load(to_json(instance), time_unit="ms", fix_units=True)
    assert (milliseconds.flat.bandwidth, milliseconds.inner_bandwidth) == (0.01, 0.1)
    for changed, words in (
        ({"devices": 6}, "devices_per_machine is 4; expected a divisor of the 6 devices"),
        ({"inner_bandwidth": "9B/s"}, "inner_bandwidth is 9.0; expected at least 10, the bandwidth between"),
    ):
        with pytest.raises(InstanceError, match=words):
            planner.load(to_json(instance), **changed)
    with pytest.raises(InstanceError, match="inner_bandwidth is missing; expected both"):
        planner.load(flat_to_json(instance.flat), problem="flushed_partitioning", devices_per_machine=2)
    file = tmp_path / "abc.json"
    file.write_text(json.dumps(to_json(instance)))
    assert main(["solve", str(file), "--exact", "--quiet"]) == 0
    assert "devices" in capsys.readouterr().out
