"""Requirements in all families: declared, judged by the definition, honoured by whatever method says so.

A family with a vocabulary is found by itself.
"""

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from random_instances import warmed
from requirement_cases import compared, enumerated, required
from small_instances import random_case
from thinned import thinned

import planner
from formulations import FAMILIES
from instances.errors import InstanceError
from instances.requirements import parse, requirements_of
from planner.analysis.frontier import frontier
from planner.experiments.census.extract import extract
from planner.experiments.census.run import census
from planner.files.load import validate
from solvers.outcome import Status

WITH_VOCABULARY = [family.name for family in FAMILIES if family.vocabulary]


@thinned("name", WITH_VOCABULARY)
def test_methods_that_honour_requirements_agree_with_brute_force(name: str, cases: int) -> None:
    family = warmed(name)
    assert any(method.build is not None for method in family.methods if method.honours)
    counted = [found for number in range(max(6, cases // 3)) if (found := compared(name, number)) is not None]
    tried = sum(found["runs"] for found in counted)
    assert tried >= cases // 12 and 0 < sum(found["feasible"] for found in counted) < len(counted)


@thinned("name", WITH_VOCABULARY)
def test_models_express_what_their_method_honours(name: str) -> None:
    family = warmed(name)
    instance = random_case(name, 7, 1)
    for method in family.methods:
        if method.build is not None and method.supports(instance) is None:
            assert set(method.build(instance).quantities()) == method.honours, method.name
            groups = method.build(instance).inspected().groups
            assert groups and all(group.says for group in groups), [group.name for group in groups if not group.says]


@pytest.mark.parametrize("name", WITH_VOCABULARY)
def test_files_declare_requirements(name: str) -> None:
    family = warmed(name)
    drawn = (
        (case, required(random.Random(name), family, case, []))
        for case in map(partial(random_case, name, 7), range(2, 20))
    )
    plain, instance = next(pair for pair in drawn if pair[1].requirements)
    again = planner.load(family.to_json(instance))
    assert again.requirements == instance.requirements
    assert planner.load(family.to_json(plain), require=list(instance.requirements)).requirements == again.requirements


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("num_stages<7", "num_stages <= 6"),
        ("num_stages = 4", "num_stages == 4"),
        ("not num_stages > 6", "num_stages <= 6"),
        ("same_stage( 3 , 7 )", "same_stage(3, 7)"),
        ("not same_stage(3,7)", "not same_stage(3, 7)"),
        ('stage_of("a layer, it is") >= 2', 'stage_of("a layer, it is") >= 2'),
        ("stage_of('3') >= 2", 'stage_of("3") >= 2'),
        ("layers(-1) >= 2", "layers(-1) >= 2"),
    ],
)
def test_texts_that_state_one(text: str, meant: str) -> None:
    assert str(parse(text)) == meant == str(parse(meant))


#: Texts of another form than the grammar's.
WRONG = (
    *("", "not", "3", "<= 6", "f(", "f()", "f(1", "f(1,)", "f(,1)", "f(1 2)", "f(1) 6", "f(1) <= x", "f <= 1.5", "f <"),
    *("f(1) <= 6 <= 7", "f == 1e3", "F(1)", "__import__('os')", "f(1);g(2)", "f\n(", "f(g(1))", "f <= 99999999"),
    *("f(" * 9, "f" + "(1" * 10_000, "f <= " + "9" * 400),
)


@pytest.mark.parametrize("text", WRONG)
def test_texts_that_state_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"requirement such as|whole number"):
        parse(text)


def test_a_number_that_is_compared_with_nothing_is_refused() -> None:
    instance = planner.load("chain8")
    for text in ("num_stages", "not num_stages", "nodes(0)"):
        with pytest.raises(InstanceError, match="a whole number to compare it with"):
            planner.load("chain8", require=[text])
    model = planner.model(instance, "milp")
    with pytest.raises(InstanceError, match="a whole number to compare it with"):
        model.require(model.num_stages())
    assert planner.load("chain8", require=["not same_stage(1, 2)"]).requirements == ("not same_stage(1, 2)",)


@pytest.mark.parametrize("name", WITH_VOCABULARY)
def test_what_may_stand_alone_is_yes_or_no(name: str, cases: int) -> None:
    family = warmed(name)
    yes_no = [quantity for quantity in family.vocabulary if quantity.is_yes_no]
    assert all(each.is_yes_no == each.says.startswith("whether ") for each in family.vocabulary)
    for number in range(cases // 8):
        instance = random_case(name, 7, number)
        plan = next(iter(enumerated(family, instance) or ()), None)
        for quantity in yes_no if plan is not None else ():
            arguments = [next(iter(domain.values(instance)), None) for domain in quantity.domains]
            if None not in arguments:
                assert quantity.of_plan(instance, plan, *arguments) in (0, 1), quantity.name


def test_requirements_are_negated_or_refused() -> None:
    assert str(parse("f >= 3").negated()) == "f <= 2" and str(parse("not f")) == "not f"
    for text in ("f == 3", "f == 1", "f == 0", "f"):  # f may be more than yes and no
        with pytest.raises(ValueError, match="negated"):
            parse(text).negated()
    with pytest.raises(ValueError, match="negated"):
        parse("not f == 1")


def test_methods_refuse_what_they_cannot_honour() -> None:
    instance = planner.load("layers", layers=9, stages=3, require="layers(0) >= 4")
    assert requirements_of(instance)
    with pytest.raises(planner.UsageError, match=r"cannot honour the requirement layers"):
        planner.solve(instance, method="exact")
    found = planner.solve(instance, exact=True)
    assert found.method in ("cpsat", "milp") and "exact does not take the instance" in found.reason
    assert found.plan is not None and found.plan["lengths"][0] >= 4
    assert "infeasible with the requirements" in planner.solve(planner.load(instance_json(8)), exact=True).reason


def instance_json(layers: int) -> dict[str, Any]:
    """Nine layers in three stages, of which the first cannot have so many."""
    made = planner.load("layers", layers=9, stages=3)
    family = warmed("layer_assignment")
    return {**family.to_json(made), "requirements": [f"layers(0) >= {layers}"]}


def test_stages_of_more_layers_than_any_good_plan_has() -> None:
    """On 16 layers the first stage takes at least 6: a model pruned by a plan with fewer calls that infeasible."""
    for seed in range(1):
        instance = planner.load("layers", layers=16, stages=8, seed=seed, require="layers(0) >= 6")
        found = [planner.solve(instance, method=method) for method in ("cpsat", "milp")]
        assert [each.status for each in found] == [Status.OPTIMAL, Status.OPTIMAL]
        assert found[0].objective == pytest.approx(found[1].objective, rel=1e-6)


def test_commands_that_cannot_honour_requirements_refuse_them() -> None:
    """As soon as stage_partitioning has quantities, these must not pass over them."""
    instance = replace(planner.load("chain8"), requirements=("num_stages <= 2",))
    if not warmed("stage_partitioning").vocabulary:
        with pytest.raises(ValueError, match="requirements"):
            validate(instance)
        return
    for call in (frontier, extract, census):
        with pytest.raises(ValueError, match="not honoured here"):
            call(instance) if call is not extract else call(instance, "rows.jsonl")
