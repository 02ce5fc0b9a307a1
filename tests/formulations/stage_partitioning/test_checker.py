"""The checker of certificates against tables that are made from its theorem alone, rightly and with subtle faults."""

import json
import math
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from label_tables import FAULTS, Maker
from strategies import random_stage_instance

import planner
from formulations.contract.checker import downsets
from formulations.contract.checker.frame import RejectedError
from formulations.stage_partitioning.certificate import checker
from instances.exchange import to_json
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc


def parsed(instance: StageInstance) -> dict:
    """The instance as its file has it."""
    return json.loads(json.dumps(to_json(instance)))


def digest(instance: StageInstance) -> str:
    return checker.Instance(parsed(instance)).digest


def verdict(instance: StageInstance, certificate: dict) -> dict:
    return checker.verify(parsed(instance), json.loads(json.dumps(certificate)))


def small(number: int, **fixed: Any) -> StageInstance:
    rng = random.Random(f"labels {number}")
    return random_stage_instance(rng, max_nodes=3, max_devices=4, max_tmpcs=3, **fixed)


def optimum(instance: StageInstance) -> tuple[dict | None, Fraction | float]:
    """A best plan and its exact time; infinite if there is none."""
    result = planner.solve(instance, method="exact")
    assert result.status in ("optimal", "infeasible")
    if result.plan is None:
        return None, math.inf
    plan = dict(result.plan)
    return plan, Maker(instance, math.inf).time(plan)


def test_tables_with_a_fault_that_prove_too_much_are_rejected(cases: int) -> None:
    """At the optimum itself there is nothing to prove: where a faulty table finds no plan, it lacks a label."""
    false = dict.fromkeys(FAULTS, 0)
    for number in (31, 164, *range(2 * cases)):  # 31 and 164 are the first that show the rarest faults
        instance = small(number)
        plan, least = optimum(instance)
        if plan is None or least == 0:
            continue
        assert Maker(instance, least).certificate(digest(instance), plan, least) is None
        for fault in FAULTS:
            certificate = Maker(instance, least, fault).certificate(digest(instance), plan, least)
            if certificate is not None:
                found = verdict(instance, certificate)
                assert not found["accepted"], (number, fault)
                assert found["reason"].startswith("rule 3: "), (number, fault, found["reason"])
                false[fault] += 1
    assert min(false.values()) >= max(1, cases // 300), false


def test_tables_at_random_prove_nothing_false(cases: int) -> None:
    """Labels and claims of any kind, mostly too few or too large, for bounds that some plan attains."""
    tried = 0
    for number in range(2 * cases):
        instance = small(number, exactly=number % 3 == 0)
        plan, least = optimum(instance)
        if plan is None or least == 0:
            continue
        rng, sets = random.Random(f"tables {number}"), Maker(instance, least).downsets
        right = Maker(instance, least).labels()
        names = [layer.id for layer in instance.layers]
        for _ in range(20):
            rows = []
            for each in sets:
                labels = {(rng.randint(0, 4), rng.randint(0, 5)) for _ in range(rng.choice([0, 0, 1, 2]))}
                labels |= {label for label in right[each] if rng.random() < 0.7 and len(each) < len(names)}
                row = [f"{sum(1 << names.index(v) for v in each):x}", sorted(labels)]
                rows.append([*row, rng.randint(0, 6)] if rng.random() < 0.4 else row)
            bound = rng.choice([least, least * Fraction(10**9 + 1, 10**9), least * 2, None])
            certificate = claim(instance, None if bound is None else str(bound), rows)
            tried += 1
            assert not verdict(instance, certificate)["accepted"], (number, certificate)
    assert tried >= 10 * cases


def one_layer(**fields: object) -> StageInstance:
    """A layer of 8 s and 3 bytes in flight, on one device of 3 bytes."""
    x = Tmpc("x", 8.0, 0.0, 3.0, 0.0)
    base = StageInstance("one", (Layer("v", {1: (x,)}),), (), 1, 3.0, 1.0, 1)
    return replace(base, **fields)


def claim(instance: StageInstance, bound: str | None, downsets: list) -> dict:
    return {
        "format": 1, "problem": "stage_partitioning", "instance_sha256": digest(instance), "plan": None,
        "objective": None, "bound": bound, "proof": {"kind": "labels", "downsets": downsets},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "bound", "accepted"),
    [
        ({}, "799999/100000", True),
        ({}, "8", False),  # a plan that takes 8 s does not take more
        ({}, "9", False),
        ({"num_devices": 2, "num_microbatches": 2}, "399999/100000", True),
        ({"num_devices": 2, "num_microbatches": 2}, "4", False),
        ({"num_devices": 3, "num_microbatches": 3}, "8/3", False),  # floor(8/3) would be 2
        ({"num_devices": 3, "num_microbatches": 3}, "2666666/1000000", True),
        ({}, None, False),
        ({"memory_bytes": 3 * (1 - 1e-11)}, None, True),
        ({"memory_bytes": 3 * (1 - 0.9e-12)}, None, False),  # the definition's slack
        ({"num_microbatches": 2, "exactly": True}, None, True),  # two replicas need two devices
        ({"max_dp_degree": 1, "num_devices": 2, "num_microbatches": 2}, "799999/100000", True),
        ({"max_dp_degree": 1, "num_devices": 2, "num_microbatches": 2}, "8", False),
        ({}, "0", True),
    ],
)
def test_bounds_at_and_around_the_time_of_a_stage(fields: dict, bound: str | None, accepted: bool) -> None:
    instance = one_layer(**fields)
    found = verdict(instance, claim(instance, bound, [["0", [[0, 0]]]]))
    assert found["accepted"] is accepted, found["reason"]


def test_a_layer_that_nothing_can_run_needs_no_table() -> None:
    x = Tmpc("x", 1.0, 0.0, 1.0, 0.0)
    layers = (Layer("a", {1: (x,)}), Layer("b", {2: (x,)}))
    instance = StageInstance("two", layers, (), 1, 9.0, 1.0, 4)
    assert verdict(instance, claim(instance, None, []))["accepted"]
    assert not verdict(replace(instance, num_devices=3), claim(replace(instance, num_devices=3), None, []))["accepted"]


def test_claimed_numbers_of_devices_are_checked() -> None:
    """Two layers of 4 s, none of which can be replicated: within 4 s one more device is needed, but not two."""
    x = Tmpc("x", 4.0, 0.0, 1.0, 0.0)
    instance = StageInstance("two", tuple(Layer(v, {1: (x,)}) for v in "ab"), (), 2, 9.0, 1.0, 2, max_dp_degree=1)
    rows = [["0", [[0, 0]], 2], ["1", [[1, 1]], 2], ["2", [[1, 1]], 1]]
    assert verdict(instance, claim(instance, "4", rows))["reason"].startswith("rule 1: from 1 to 3")
    rows = [["0", [[0, 0]]], ["1", [[1, 1]]], ["2", [[1, 1]]], ["3", [], 1]]  # behind all layers there are none
    assert verdict(instance, claim(instance, "4", rows))["reason"].startswith("rule 1: all layers")
    rows = [["0", [], 3]]
    assert verdict(instance, claim(instance, "4", rows))["reason"].startswith("rule 1: from 0 to ")


def test_claims_count_the_micro_batches_behind_one_stage() -> None:
    """Layer a holds a byte for each micro-batch in flight, and there are two of them before layer b, not three."""
    rows = {"a": Tmpc("x", 4.0, 0.0, 1.0, 0.0), "b": Tmpc("x", 4.0, 0.0, 0.0, 2.0)}
    layers = tuple(Layer(name, {1: (x,)}) for name, x in rows.items())
    instance = StageInstance("two", layers, (Edge("a", "b", 0.0),), 2, 2.0, 1.0, 2, max_dp_degree=1)
    certificate = claim(instance, "4", [["0", [[0, 0]]], ["2", [[1, 1]], 2]])
    assert verdict(instance, certificate)["reason"].startswith("rule 1: from 2 to 3")
    assert verdict(replace(instance, memory_bytes=1.9), certificate | {"bound": None})["accepted"] is False


def test_exact_sums_are_reached_with_the_devices_of_the_label() -> None:
    """Two layers of 1 s on two devices, one replica each: a label that states a device more covers nothing."""
    x = Tmpc("x", 1.0, 0.0, 1.0, 0.0)
    layers = tuple(Layer(v, {1: (x,)}) for v in "ab")
    edges = (Edge("a", "b", 0.0),)
    instance = StageInstance("two", layers, edges, 2, 9.0, 1.0, 2, exactly=True, max_dp_degree=1)
    found = verdict(instance, claim(instance, "1", [["0", [[0, 0]]], ["2", [[1, 2]]]]))
    assert found["reason"].startswith("rule 3: from 0 to 2 at [0, 0], a stage with d = 1")
    assert verdict(instance, claim(instance, "999/1000", [["0", [[0, 0]]]]))["accepted"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.update(bound="1e999999999"), "fractions as text"),
        (lambda c: c.update(bound="1/0"), "fractions as text"),
        (lambda c: c.update(bound="9" * 5000), "fractions as text"),
        (lambda c: c.update(bound=0.5), "TypeError"),
        (lambda c: c.pop("plan"), "KeyError: 'plan'"),
        (lambda c: c["proof"].update(downsets=[["zz", []]]), "invalid literal"),
        (lambda c: c["proof"].update(downsets=[["4", []]]), "downsets that hold all successors"),
        (lambda c: c["proof"].update(downsets=[["0", [[0, 0]]], ["0", [[0, 0]]]]), "no downset twice"),
        (lambda c: c["proof"].update(downsets=[["0", [[0, 10**9]]]]), "an integer from 0"),
        (lambda c: c["proof"].update(downsets=[["0", [[float("nan"), 0]]]]), "an integer from 0"),
        (lambda c: c["proof"].update(downsets=[[["0"], [[0, 0]]]]), "TypeError"),
        (lambda c: c.update(plan={"stages": [{}]}, objective="8"), "KeyError"),
        (lambda c: c.update(plan={"stages": []}), "a plan and its objective"),
    ],
)
def test_what_is_no_certificate_is_bad_input(change, says: str) -> None:
    instance = one_layer()
    certificate = claim(instance, "8", [["0", [[0, 0]]]])
    change(certificate)
    with pytest.raises(ValueError, match=says):
        checker.verify(parsed(instance), certificate)


def _stage(nodes: str, d: int = 1, t: int = 1, tmpc: str = "x") -> dict:
    return {"nodes": list(nodes), "dp_degree": d, "tp_degree": t, "tmpcs": dict.fromkeys(nodes, tmpc)}


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ([_stage("a"), _stage("b")], None), ([_stage("b")], "every layer in one stage"),
        ([_stage("ab"), _stage("b")], "every layer in one stage"),
        ([_stage("aa"), _stage("b")], "every layer in one stage"), ([], "every layer in one stage"),
        ([_stage("a"), _stage("bc")], "an unknown one"), ([_stage("ab"), _stage("")], "without layers"),
        ([_stage("b"), _stage("a")], "runs backwards"), ([_stage("a", tmpc="y"), _stage("b")], "TMPCs at t = 1"),
        ([_stage("a", t=2), _stage("b")], "TMPCs at t = 2"), ([_stage("a", d=4), _stage("b")], "d = 4"),
        ([_stage("a", d=3), _stage("b")], "4 devices"), ([_stage("a", d=2), _stage("b", d=2)], "4 devices"),
    ],
)  # fmt: skip
def test_plans_that_break_one_rule_are_rejected(stages: list, says: str | None) -> None:
    """Two layers of 4 s and 2 bytes for a micro-batch in flight; three devices of 20 bytes."""
    layers = tuple(Layer(v, {1: (Tmpc("x", 4.0, 0.0, 2.0, 0.0),)}) for v in "ab")
    instance = StageInstance("two", layers, (Edge("a", "b", 0.0),), 3, 20.0, 1.0, 3)
    exact = checker.Instance(parsed(instance))
    if says is None:
        assert checker.plan_time(exact, {"stages": stages}) == 4
        broken = {"exactly": (True, "sum to 2"), "num_microbatches": (1, "sum to 2"), "memory_bytes": (3.9, "memory")}
        for changed, rule in (({name: value}, rule) for name, (value, rule) in broken.items()):
            with pytest.raises(RejectedError, match=rule):
                checker.plan_time(checker.Instance(parsed(replace(instance, **changed))), {"stages": stages})
        return
    with pytest.raises(RejectedError, match=f"plan: .*{says}"):
        checker.plan_time(exact, {"stages": stages})


def test_graphs_of_too_many_downsets_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "MAX_DOWNSETS", 1000)
    x = Tmpc("x", 1.0, 0.0, 1.0, 0.0)
    instance = StageInstance("wide", tuple(Layer(v, {1: (x,)}) for v in range(40)), (), 40, 99.0, 1.0, 4)
    assert verdict(instance, claim(instance, "1", []))["reason"] == "size: a graph of over 1000 downsets"


def test_knapsacks_of_too_many_states_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that are either slow or large, by amounts of which no two sums are equal."""
    monkeypatch.setattr(downsets, "MAX_STATES", 50)
    sizes = [198.0 + 2 ** (v + 1) for v in range(8)]
    layers = tuple(
        Layer(v, {1: (Tmpc("x", size, 0.0, 0.0, 0.0), Tmpc("y", 0.0, 0.0, 0.0, size))}) for v, size in enumerate(sizes)
    )
    instance = StageInstance("hard", layers, (), 1, sum(sizes) / 2, 1.0, 1)
    assert sum(sizes) / 2 % 2 == 1  # so that no choice is within both limits, and none is far from them
    found = verdict(instance, claim(instance, str(int(sum(sizes) / 2)), [["0", [[0, 0]]]]))
    assert found["reason"] == "size: a knapsack with over 50 states"
