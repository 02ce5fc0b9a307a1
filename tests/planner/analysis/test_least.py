"""The fewest devices and the least memory for a time, against all plans of tiny instances."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from plan_amounts import everything, plans_with_amounts, taken
from small_instances import random_case
from thinned import thinned

import planner
from planner.analysis import least
from planner.analysis.least import solve_least, split_bounds
from planner.cli.app import main
from planner.files.load import family_of
from planner.process.errors import UsageError
from planner.results.result import Result
from solvers.outcome import Limits, Status, Stop

#: Of each problem the amounts that its plans take, and a part of the cases: models are solved again and again.
KINDS = {
    "stage_partitioning": (("devices", "memory"), 2), "flushed_partitioning": (("devices", "memory"), 2),
    "stage_graph": (("devices", "memory"), 4), "training_strategy": (("devices", "memory"), 4),
    "layer_assignment": (("memory",), 8), "operator_partitioning": (("memory",), 8),
}  # fmt: skip


@thinned("name", KINDS)
def test_the_least_amount_is_that_of_brute_force(name: str, cases: int) -> None:
    """With bounds on each of the others that some plan just keeps, or that none keeps."""
    names, part = KINDS[name]
    feasible = infeasible = 0
    for number in range(max(cases, 24) // part):
        instance = random_case(name, 61, number)
        if getattr(instance, "device_graph", None) is not None or not getattr(instance, "parameters", True):
            continue
        every = everything(instance)
        if every is None or getattr(instance, "devices_per_machine", None) is not None:
            continue
        rng = random.Random(f"least {name} {number}")
        minimise = rng.choice([*names, *names, "time"])
        bounds = {
            other: rng.choice(every)[other] * (1 if other == "devices" else rng.choice([1, 1 + 1e-9, 1.3, 1 - 5e-6]))
            for other in ("time", *names)
            if every and other != minimise and rng.random() < 0.7
        }
        within = [plan for plan in every if all(plan[each] <= most for each, most in bounds.items())]
        found = solve_least(instance, minimise, bounds)
        assert found.own is not None and found.own["minimised"] == minimise
        if not within:
            infeasible += 1
            assert found.own["status"] != "feasible" and found.own["objective"] is None and found.plan is None
            continue
        feasible += 1
        best = min(plan[minimise] for plan in within)
        assert found.own["status"] == "optimal" and found.own["objective"] == pytest.approx(best, rel=4e-6), number
        assert found.own["bound"] <= best * (1 + 1e-12) and found.status is Status.FEASIBLE and found.bound is None
        own = taken(instance, dict(found.plan or {}), family_of(instance).plan_from_json(instance, found.plan))
        assert own[minimise] == pytest.approx(found.own["objective"], rel=1e-12)
        assert all(own[each] <= most * (1 + 1e-11) for each, most in bounds.items()), number
        assert found.objective == pytest.approx(own["time"])
    assert feasible > 2 * infeasible / 3 and feasible and (infeasible or name == "layer_assignment")


@thinned("name", [name for name in KINDS if name != "layer_assignment"][::-1])
def test_a_limited_instance_has_the_plans_that_take_no_more(name: str) -> None:
    """Of each amount the plans that take as much, one less, or some more of it (of parameters: test_alternatives)."""
    compared = 0
    for number in range(8):
        instance = random_case(name, 71, number)
        found = plans_with_amounts(instance)
        if not found or getattr(instance, "device_graph", None) is not None:
            continue
        family = family_of(instance)
        for kind in KINDS[name][0]:
            axis = family.nearby.axes[kind]
            steps = (0, -1) if kind == "devices" else (0.0, -1e-6)
            for step in steps:
                amount = random.Random(number).choice(found)[1][kind]
                amount = amount + step if kind == "devices" else amount * (1 + step)
                if amount < 1 or (kind == "devices" and getattr(instance, "devices_per_machine", None)):
                    continue
                limited = axis.limited(instance, amount)
                compared += 1
                for plan, own in found[:100]:
                    broken = family.judge(limited, plan)
                    assert (not broken) is (own[kind] <= amount * (1 + 1e-9)), (number, kind, amount, broken)
    assert compared >= 10


@pytest.mark.parametrize(("bound", "status"), [(0.039, "unknown"), (0.041, "infeasible")])
def test_what_is_above_the_time_and_not_proved_is_not_infeasible(bound: float, status: str, monkeypatch: Any) -> None:
    """Of a plan that takes longer than 0.04 s, found with a bound below and above that."""
    instance = planner.load("chain8", memory="60MB")
    found = replace(planner.solve(instance), objective=0.05, bound=bound, status=Status.FEASIBLE)
    monkeypatch.setattr(least.Variants, "attempt", lambda *_, **__: found)
    for minimise in ("devices", "time"):
        result = solve_least(instance, minimise, {"time": 0.04})
        assert result.own is not None and result.own["status"] == status and result.plan is None


def test_a_limit_leaves_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of so many devices, and a bound from what was refuted, where the time ends between two solves."""
    instance = planner.load("chain8", memory="60MB", devices=8)
    whole = solve_least(instance, "devices", {"time": 0.03})
    assert whole.own is not None and whole.own["status"] == "optimal" and whole.stats["solves"] > 2  # type: ignore[operator]
    original = least.Variants.attempt
    seen = set()
    for most in range(1, int(whole.stats["solves"])):  # type: ignore[arg-type]

        def attempt(self: Any, variant: Any, *, is_first: bool, most: int = most) -> Result:
            if self.solved >= most:
                self.stop = Stop.TIME_LIMIT
                raise least.Unfinished
            return original(self, variant, is_first=is_first)

        monkeypatch.setattr(least.Variants, "attempt", attempt)
        own = solve_least(instance, "devices", {"time": 0.03}).own
        assert own is not None and own["bound"] <= whole.own["objective"] <= own["objective"]
        seen.add((own["status"], own["bound"] > 1))
    assert ("feasible", True) in seen
    assert solve_least(instance, "devices", {}, limits=Limits(time_s=0.0)).stop is Stop.TIME_LIMIT


def test_bounds_are_read() -> None:
    assert split_bounds(["time<=40ms", "num_stages <= 3", "memory <= 8 GiB"]) == (
        {"time": "40ms", "memory": "8 GiB"},
        ["num_stages <= 3"],
    )
    for texts in (["time >= 3"], ["devices < 3"], ["time"], ["time <= 1s", "time <= 2s"], ["memory <="]):
        with pytest.raises(UsageError, match="--require"):
            split_bounds(texts)


@pytest.mark.parametrize(
    ("instance", "minimise", "bounds", "words"),
    [
        ("layers", "devices", {}, "time for this instance of layer_assignment; devices is an amount of"),
        ("chain8", "stages", {}, "time or memory or devices"),
        ("chain8", "devices", {"time": "3GB"}, "a time such as"),
        ("chain8", "memory", {"devices": "2.5"}, "an integer"),
        ("dgx1", "time", {"memory": "1GB"}, "--require is 'memory'"),
    ],
)
def test_what_is_refused(instance: str, minimise: str, bounds: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        solve_least(planner.load(instance), minimise, bounds)


GIVEN = ["solve", "chain8", "--memory", "60MB", "--devices", "4"]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["--minimise", "devices", "--require", "time <= 38ms"]
    assert main([*GIVEN, *wanted, "--exact", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["own"] == {"objective": 3.0, "bound": 3.0, "unit": "devices", "status": "optimal",
                            "minimised": "devices", "within": ["time <= 38ms"]}  # fmt: skip
    assert found["options"]["require"] == "time <= 38ms", "and not that of the last step"
    assert found["objective"] <= 0.038 and found["bound"] is None and found["status"] == "feasible"
    assert main([*GIVEN, *wanted, "--verbose"]) == 0
    said = capsys.readouterr().out
    assert "of all plans with time <= 38ms, the least takes 3 devices; that is proved" in said
    assert "proved by None" not in said, "nothing is said of the instance's own objective"
    assert main([*GIVEN, *wanted, "--require", "num_stages <= 1"]) == 4
    assert "there is no plan with time <= 38ms and num_stages <= 1, which is proved" in capsys.readouterr().out
    assert main([*GIVEN, "--require", "memory <= 40MB"]) == 0, "the least time is what is minimised"
    assert "of all plans with memory <= 40MB, the least takes" in capsys.readouterr().out
    assert main([*GIVEN, *wanted, "--exact", "--time-limit", "0"]) == 3
    assert main([*GIVEN, *wanted, "--compare"]) == 2
    assert "--compare is True; expected none with --minimise" in capsys.readouterr().err


def test_in_python_it_is_the_same_and_other_commands_say_where_bounds_are_taken(capsys: Any) -> None:
    instance = planner.load("chain8", memory="60MB", devices=4)
    found = planner.solve_least(instance, "devices", {"time": "41ms"})
    assert found.own is not None and (found.own["objective"], found.own["status"]) == (3.0, "optimal")
    assert "of all plans with time <= 41ms, the least takes 3 devices" in str(found)
    unbound = planner.solve_least(instance, "devices")
    free = unbound.own
    assert free is not None and free["within"] == [] and "require" not in unbound.options
    plans = [planner.solve(planner.load("chain8", memory="60MB", devices=count)).plan for count in range(1, 5)]
    assert free["objective"] == next(count for count, plan in enumerate(plans, 1) if plan is not None)
    for given in ("time <= 41ms", "devices<=3", "memory <= 6GiB"):
        assert main(["crosscheck", "chain8", "--require", given]) == 2
        assert "are of planner solve alone (in Python planner.solve_least)" in capsys.readouterr().err
    assert main(["list", "layer_assignment"]) == 0
    assert "time, memory <= AMOUNT" in capsys.readouterr().out
