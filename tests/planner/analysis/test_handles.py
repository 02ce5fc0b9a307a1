"""Variables and amounts of open models by what they mean, against all plans of tiny instances."""

import random
from collections.abc import Callable
from typing import Any

import pyomo.environ as pyo
import pytest
from requirement_cases import enumerated
from small_instances import random_case
from thinned import thinned

import planner
from formulations.stage_partitioning.definition.problem import stage_time
from planner.analysis.model_view import OpenModel
from planner.files.load import family_of
from planner.process.errors import UsageError

LIMITS = planner.Limits(time_s=600)
METHODS = ["milp", "cpsat", "milp-columns", "cpsat-columns"]


def opened(instance: Any, method: str) -> OpenModel | None:
    """The complete model, or ``None`` if the method does not take the instance."""
    chosen = next(each for each in family_of(instance).methods if each.name == method)
    return None if chosen.misfit(instance) else planner.model(instance, method, complete=True)


def add(model: OpenModel, row: Any) -> None:
    """A row with the solver's own means."""
    if isinstance(model.model, pyo.ConcreteModel):
        model.model.add_component(f"ours_{len(list(model.model.component_objects()))}", pyo.Constraint(expr=row))
    else:
        model.model.add(row)


def instances(name: str, seed: int, count: int) -> list[tuple[int, Any, list[Any]]]:
    """Random instances that have plans, with all of these."""
    found = []
    for number in range(count):
        instance = random_case(name, seed, number)
        plans = enumerated(family_of(instance), instance)
        if plans:
            found.append((number, instance, plans))
    return found


def agrees(model: OpenModel, plans: list[Any], instance: Any, where: int) -> None:
    """The best of the plans that keep what was added is what the model finds."""
    found, best = (
        model.solve(LIMITS).own,
        min((family_of(instance).evaluate(instance, each) for each in plans), default=None),
    )
    assert found is not None
    if best is None:
        assert found["objective"] is None and found["status"] == "infeasible", where
    else:
        assert found["objective"] == pytest.approx(best, rel=2e-6), where


@thinned("method", METHODS[::-1], 3)
def test_the_time_of_a_stage_by_its_number(method: str, many: int) -> None:
    """At most some stage's time of some plan, or a little less: in the instance's unit, and minimised."""
    tried = 0
    for number, instance, plans in instances("stage_partitioning", 83, many // 4 or 9):
        model = opened(instance, method)
        if model is None:
            continue
        rng = random.Random(f"stage time {number}")
        one = rng.choice(plans)
        stage = rng.randrange(len(one.stages))

        def time(plan: Any, stage: int = stage, instance: Any = instance) -> float:
            return stage_time(instance, plan.stages[stage]) if stage < len(plan.stages) else 0.0

        most = time(one) * rng.choice([1.0, 1 - 1e-4, 0.8])
        if not 1e-9 < most < 1e9:
            continue
        tried += 1
        add(model, model.expression("stage_time", stage=stage) <= most)
        agrees(model, [plan for plan in plans if time(plan) <= most * (1 + 1e-9)], instance, number)
        model = opened(instance, method)
        assert model is not None
        own = model.minimise(model.expression("stage_time", stage=stage)).solve(LIMITS).own
        assert own is not None and own["unit"] == instance.time_unit
        least = min(map(time, plans))
        assert own["objective"] == pytest.approx(least, rel=1e-5, abs=1e-6 * max(map(time, plans))), number
    assert tried > 3


@thinned(
    ("name", "method"),
    [*(("stage_partitioning", each) for each in METHODS), ("flushed_partitioning", "milp"),
     ("flushed_partitioning", "cpsat"), ("layer_assignment", "milp"), ("layer_assignment", "cpsat")],
)  # fmt: skip
def test_what_stage_holds_a_node(name: str, method: str, many: int) -> None:
    tried = 0
    for number, instance, plans in instances(name, 89, max(many // 5, 10 if name == "flushed_partitioning" else 6)):
        model = opened(instance, method)
        if model is None:
            continue
        rng = random.Random(f"choice {number}")
        if name == "layer_assignment":
            key, nodes = "layer", list(range(instance.num_layers))
            held = [[own for own, length in enumerate(plan.lengths) for _ in range(length)] for plan in plans]
        else:
            key, nodes = "node", [layer.id for layer in getattr(instance, "flat", instance).layers]
            held = [[next(j for j, own in enumerate(plan.stages) if v in own.nodes) for v in nodes] for plan in plans]
        place, wanted = rng.randrange(len(nodes)), rng.choice([0, 1])
        stage = rng.choice(held)[place]
        tried += 1
        row = model.expression("choice", **{key: nodes[place], "stage": stage})
        if isinstance(row, int):  # it is so, or not, in every plan
            wanted = row
        else:
            add(model, row == wanted)
        agrees(
            model, [p for p, own in zip(plans, held, strict=True) if (own[place] == stage) == wanted], instance, number
        )
    assert tried > 1


@thinned("method", METHODS, 3)
def test_variables_by_their_keys(method: str) -> None:
    """A sum of all with the keys is what the vocabulary has; the only one with all keys is that one."""
    instance = planner.load("chain8", memory="60MB", devices=4, first=5)
    wanted = planner.solve(instance, exact=True)
    model = planner.model(instance, method, complete=True)
    group, keys = ("choice", {"node": 3}) if "columns" not in method else ("flow", {"node": 3})
    add(model, model.expression(group, tp_degree=2, **keys) == 1)
    found = model.solve(LIMITS)
    of = next(stage for stage in found.plan["stages"] if 3 in stage["nodes"])  # type: ignore[index, union-attr]
    assert of["tp_degree"] == 2  # type: ignore[index, call-overload]
    instance = planner.load("chain8", memory="60MB", devices=4, first=5, require=["tp_degree_of(3) == 2"])
    required = planner.solve(instance, exact=True)
    assert found.objective == pytest.approx(required.objective) and found.objective >= wanted.objective  # type: ignore[operator]
    if group == "choice":
        one = model.variable("choice", node=3, tmpc="keep", s=2, tp_degree=2, dp_degree=1)
        assert "choice" in str(getattr(one, "name", one))
        with pytest.raises(UsageError, match=r"variables choice have these keys; expected .*s.* as well"):
            model.variable("choice", node=3, tmpc="keep")
    held = model.variable("choice", node=3, stage=0)
    assert str(getattr(held, "name", held)) == "at[0,3]"
    for call, words in (
        (lambda: model.variable(group, colour=3), f"{group} has no key colour; expected keys of {group}: node"),
        (lambda: model.variable(group, node=99), f"{group} is 'node=99'; expected node among 0, 1"),
        (lambda: model.variable("choice", node=99, stage=0), "expected node and stage that the instance has"),
        (lambda: model.expression("choice", node=3, stage=99), "expected node and stage that the instance has"),
        (
            lambda: model.expression("choice", node=3, colour=1, stage=0),
            r"node and stage alone$|node=\.\.\., stage=\.\.\.\)$",
        ),
        (lambda: model.expression("stage_time", node=3), r"expected m.expression\('stage_time', stage=...\)"),
        (lambda: model.expression("stage_tim", stage=3), r"no quantity 'stage_tim'; expected .*stage_time\(stage\)"),
        (lambda: model.expression("stage_time", stage=0) >= 3, "expected <= with a number: .* from below only"),
        (lambda: model.expression("stage_time", stage=0) * -1, "a whole number from 0 on"),
        (lambda: model.expression("stage_time", stage=0) <= "1ms", "the bound is '1ms'"),
    ):
        with pytest.raises(UsageError, match=words):
            call()


@thinned("method", METHODS, 3)
def test_what_is_refused_of_times(method: str) -> None:
    """In one sentence, whichever side they stand on: a row with a time on its larger side would hold nothing."""
    model = planner.model(planner.load("chain8", memory="60MB", devices=4, first=5), method, complete=True)
    one, other = (model.expression("stage_time", stage=stage) for stage in (0, 1))
    count = model.expression("num_devices")
    units, high = "an amount in s and a count, as of devices, have different units", "and may count it too high"
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: 100 * one + 2 * count, units),
        (lambda: one - count, units),
        (lambda: one <= count, units),
        (lambda: one == count, units),
        (lambda: one * count, units),
        (lambda: one - other, high),
        (lambda: 1 - one, high),
        (lambda: one <= other, high),
        (lambda: one >= other, high),
        (lambda: one < 0.1, high),
        (lambda: one > 0.1, high),
        (lambda: one == 0.1, high),
        (lambda: one != other, high),
        (lambda: -one, "a whole number from 0 on"),
        (lambda: one + 1, "expected an amount in s of the same model"),
    ]
    for call, words in calls:
        with pytest.raises(UsageError, match=words) as refused:
            call()
        assert "0x" not in str(refused.value) and "\n" not in str(refused.value)
    for turned in (lambda: 2 * count + one, lambda: count - one, lambda: count >= one, lambda: count * one):
        with pytest.raises((UsageError, TypeError)) as raised:  # CP-SAT's own error ends with what it was given
            turned()
        said = str(raised.value)
        assert "0x" not in said and (
            isinstance(raised.value, UsageError) or "an amount in s, which is added to" in said
        )


def test_letters_of_sentences_are_keys_where_a_model_declares_no_words() -> None:
    model = planner.model(planner.load("knapsack"), "milp", complete=True)
    index = next(iter(model.model.chosen))
    assert model.variable("chosen", v=index[0], j=index[1]) is model.model.chosen[index]
