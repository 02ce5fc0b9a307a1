"""The definition of layer assignment, its files and its family."""

import random
from dataclasses import replace
from typing import Any

import pytest
from oracles.layer_assignment import random_instance, step_seconds

from formulations.layer_assignment import FAMILY
from formulations.layer_assignment.definition.plan import LayerPlan
from formulations.layer_assignment.definition.problem import Terms, cuts, evaluate, parameters_of, terms
from instances.errors import InstanceError
from instances.exchange import to_json
from instances.problems.layer_assignment import LayerAssignmentInstance, TiedParameters, generate
from solvers.outcome import Limits

#: Four layers, two stages, three micro-batches; the first and the last layer share 10 parameters.
BY_HAND = LayerAssignmentInstance(
    "by hand",
    (1.0, 2.0, 3.0, 4.0),
    ((0.5,), (0.25,), (0.125,)),
    2,
    3,
    parameters=(1.0, 2.0, 3.0, 4.0),
    tied=(TiedParameters((0, 3), 10.0),),
    ring_s_per_parameter=(1.0, 2.0),
)


def test_terms_by_hand() -> None:
    # 3 + 7: the second stage waits twice more; it syncs (7 + 10) parameters at 2 s each, the first 3 + 10 at 1 s.
    assert terms(BY_HAND, LayerPlan((2, 2))) == Terms(waiting=14.0, filling=10.0, sending=0.25, all_reduce=34.0)
    assert evaluate(BY_HAND, LayerPlan((2, 2))) == 58.25
    assert evaluate(BY_HAND, LayerPlan((3, 1))) == 2 * 6 + 10 + 0.125 + 2 * 14
    assert cuts(LayerPlan((3, 1))) == (0, 3, 4)


def test_tied_parameters_count_once_in_a_stage() -> None:
    whole = replace(BY_HAND, num_stages=1, ring_s_per_parameter=(1.0,))
    assert parameters_of(whole, 0, 4) == 20.0
    assert parameters_of(whole, 1, 3) == 5.0
    assert evaluate(whole, LayerPlan((4,))) == 2 * 10 + 10 + 20


@pytest.mark.parametrize(
    ("lengths", "rules"),
    [
        ((2, 2), set()), ((4,), {"stages"}), ((1, 1, 2), {"stages"}), ((0, 4), {"empty"}), ((5, -1), {"empty"}),
        ((1, 2), {"layers"}), ((3, 2), {"layers"}),
    ],
)  # fmt: skip
def test_every_rule_is_named(lengths: tuple[int, ...], rules: set[str]) -> None:
    assert {found.rule for found in FAMILY.judge(BY_HAND, LayerPlan(lengths))} == rules
    if rules:
        with pytest.raises(ValueError, match=next(iter(rules))[:5]):
            evaluate(BY_HAND, LayerPlan(lengths))


def test_the_oracle_and_the_definition_agree(cases: int) -> None:
    for case in range(cases):
        rng = random.Random(case)
        instance = random_instance(rng)
        lengths = [1] * instance.num_stages
        for _ in range(instance.num_layers - instance.num_stages):
            lengths[rng.randrange(instance.num_stages)] += 1
        if sum(lengths) == instance.num_layers:
            plan = LayerPlan(tuple(lengths))
            assert evaluate(instance, plan) == pytest.approx(step_seconds(instance, lengths), rel=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_time_s": []}, "layer_time_s is []"),
        ({"layer_time_s": [1, -2, 3, 4]}, "layer_time_s[1] is -2"),
        ({"cut_cost_s": [[1], [1]]}, "len(cut_cost_s) is 2; expected 3 (one less than layers)"),
        ({"cut_cost_s": [[1], [1, 2], [1]]}, "len(cut_cost_s[1]) is 2"),
        ({"parameters": [1]}, "len(parameters) is 1; expected 0 or 4"),
        ({"parameters": [], "tied": []}, "parameters is []"),
        ({"ring_s_per_parameter": [1, 2, 3]}, "len(ring_s_per_parameter) is 3"),
        ({"tied": [{"layers": [4], "parameters": 1}]}, "tied[0].layers is [4]"),
        ({"tied": [{"layers": [], "parameters": 1}]}, "tied[0].layers is []"),
        ({"head_layers": 3, "tail_layers": 2}, "head_layers + tail_layers is 5"),
        ({"num_stages": 0}, "num_stages is 0"),
    ],
)
def test_bad_files_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InstanceError) as error:
        FAMILY.read({**to_json(BY_HAND), **change}, "file.json", {})
    assert str(error.value).startswith("file.json: ") and message in str(error.value)


@pytest.mark.parametrize(
    ("stages", "rule"), [(1, "1 or 0 (one less than stages)"), (2, "1"), (4, "1 or 3 (one less than stages)")]
)
def test_the_columns_of_cut_costs_are_ruled_as_they_are_checked(stages: int, rule: str) -> None:
    costs = [[1.0] * 5, [1.0], [1.0]]
    with pytest.raises(InstanceError) as error:
        FAMILY.read({**to_json(BY_HAND), "num_stages": stages, "cut_cost_s": costs}, "file.json", {})
    assert str(error.value) == f"file.json: len(cut_cost_s[0]) is 5; expected {rule}"


def test_overrides() -> None:
    free = replace(BY_HAND, ring_s_per_parameter=(1.0,))
    changed = FAMILY.read(free, "f", {"stages": 3, "microbatches": 9})
    assert (changed.num_stages, changed.num_microbatches) == (3, 9)
    assert FAMILY.read(BY_HAND, "f", {"ignore-all-reduce": True}).ring_s_per_parameter == ()
    with pytest.raises(InstanceError, match="--stages is 3"):
        FAMILY.read(BY_HAND, "f", {"stages": 3})


def test_supports_and_choice() -> None:
    plain, joint = generate(), generate(all_reduce=True)
    assert FAMILY.choose(plain, Limits(), True)[0] == "exact"
    vast = replace(plain, layer_time_s=plain.layer_time_s * 2000, num_stages=2000)
    assert FAMILY.choose(vast, Limits(), False)[0] == "uniform"
    assert FAMILY.choose(joint, Limits(), True)[0] == "exact-joint"
    assert "--ignore-all-reduce" in str(FAMILY.method("exact").supports(joint))
    assert FAMILY.method("exact-joint").supports(plain) is None
    assert "unknown" in str(FAMILY.method("parameters").supports(plain))
    large = generate(400, 64)
    assert FAMILY.method("exact").supports(large) is None
    assert FAMILY.method("amp").supports(large)
    assert all(FAMILY.method(name).supports(large) is None for name in ("cpsat", "milp"))
    for beyond in (
        generate(4000, 64),
        generate(400, 64, all_reduce=True),
        replace(large, requirements=("layers(0)>=2",)),
    ):
        assert "expected at most" in str(FAMILY.method("milp").supports(beyond))
    assert FAMILY.describe(joint)["all_reduce"] is True
