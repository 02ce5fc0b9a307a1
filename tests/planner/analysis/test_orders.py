"""Several linear orders at once: the least objective counts and the least bound holds."""

import json
from dataclasses import replace
from typing import Any

import pytest

import planner
from formulations.contract.rounding import step_below
from instances.problems.stage_edits import linearise
from instances.problems.stage_partitioning import Layer, StageInstance, Tmpc
from planner.analysis.sweep import best_order, load_orders, solve_orders
from planner.cli.app import main
from planner.process.errors import UsageError
from solvers.outcome import Limits, Status, Stop

ORDERS = "id,name,depth-first,lifo"


def test_the_best_order_is_kept() -> None:
    by_order = load_orders("diamond", linearize=ORDERS, devices=3)
    assert list(by_order) == ORDERS.split(",")
    alone = {name: planner.solve(instance, method="exact") for name, instance in by_order.items()}
    found = solve_orders(by_order, method="exact")
    assert found.stats["orders"] == {name: result.objective for name, result in alone.items()}
    assert found.objective == min(result.objective for result in alone.values() if result.objective is not None)
    assert found.bound == min(result.bound for result in alone.values() if result.bound is not None)
    assert (found.status, found.stop, found.options["linearize"]) == ("optimal", "proved", ORDERS)
    graph = planner.solve(planner.load("diamond", devices=3), method="exact")
    assert graph.objective is not None and graph.objective <= found.objective * (1 + 1e-9)


def test_one_order_or_none_is_a_plain_run() -> None:
    assert list(load_orders("diamond")) == [""] and list(load_orders("diamond", linearize="id")) == [""]
    found = solve_orders(load_orders("diamond"), method="exact")
    assert "orders" not in found.stats


def test_infeasible_only_if_all_orders_are() -> None:
    by_order = load_orders("diamond", linearize="id,lifo", memory="1B")
    assert solve_orders(by_order, method="exact").status is Status.INFEASIBLE
    mixed = {**by_order, "lifo": load_orders("diamond")[""]}
    found = solve_orders(mixed, method="exact")
    assert found.status is Status.OPTIMAL and found.stats["orders"]["id"] is None


def test_a_bound_is_lost_with_the_order_that_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    proved = planner.solve(planner.load("diamond"), method="exact")
    limited = replace(
        proved, status=Status.UNKNOWN, stop=Stop.TIME_LIMIT, objective=None, bound=None, gap=None, plan=None
    )
    results: list[Any] = [proved, limited]
    monkeypatch.setattr("planner.analysis.sweep.solve", lambda *_, **__: results.pop(0))
    found = solve_orders({"id": None, "lifo": None}, limits=Limits(time_s=5))
    assert (found.status, found.stop, found.bound, found.objective) == (
        Status.FEASIBLE, Stop.TIME_LIMIT, None, proved.objective
    )  # fmt: skip


def test_infeasible_is_not_proved_by_some_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    proved = planner.solve(planner.load("diamond", memory="1B"), method="exact")
    results: list[Any] = [proved, replace(proved, status=Status.UNKNOWN, stop=Stop.SIZE_LIMIT)]
    monkeypatch.setattr("planner.analysis.sweep.solve", lambda *_, **__: results.pop(0))
    found = solve_orders({"id": None, "lifo": None})
    assert (found.status, found.stop) == (Status.UNKNOWN, Stop.SIZE_LIMIT)


def one_after_the_other(monkeypatch: pytest.MonkeyPatch, results: list[Any]) -> list[Limits]:
    """Let the orders' runs have these results; returns the limits that each run is given."""
    seen: list[Limits] = []

    def solve(*_: Any, limits: Limits, **__: Any) -> Any:
        seen.append(limits)
        return results[len(seen) - 1]

    monkeypatch.setattr("planner.analysis.sweep.solve", solve)
    return seen


def test_the_orders_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    proved = planner.solve(planner.load("diamond"), method="exact")
    seen = one_after_the_other(monkeypatch, [replace(proved, seconds=seconds) for seconds in (2.0, 4.0, 1.0)])
    found = solve_orders({"id": None, "name": None, "lifo": None}, limits=Limits(time_s=5.0, seed=3))
    assert [limits.time_s for limits in seen] == [5.0, 3.0, 0.0] and {limits.seed for limits in seen} == {3}
    assert found.seconds == 7.0


def test_a_signal_ends_the_orders_and_their_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the orders not run could have is not known, so there is no bound, and no word of infeasible either."""
    proved = planner.solve(planner.load("diamond"), method="exact")
    seen = one_after_the_other(monkeypatch, [replace(proved, signal=2, stop=Stop.INTERRUPTED)])
    found = solve_orders({"id": None, "lifo": None})
    assert len(seen) == 1 and found.signal == 2 and found.bound is None and found.status is Status.FEASIBLE
    nothing = replace(proved, signal=15, status=Status.INFEASIBLE, objective=None, bound=None, gap=None, plan=None)
    one_after_the_other(monkeypatch, [nothing])
    assert solve_orders({"id": None, "lifo": None}).status is Status.UNKNOWN


def test_the_order_of_the_plan() -> None:
    by_order = load_orders("diamond", linearize="lifo,id,name", devices=3)
    found = solve_orders(by_order, method="exact")
    alone = replace(found, stats={**found.stats, "orders": {"lifo": None, "id": 2.0, "name": 1.0}})
    assert best_order(alone, by_order) == "name"
    assert best_order(replace(found, stats={}), {"": None}) == ""


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "diamond", "--linearize", "id, lifo", "--exact", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["stats"]["orders"]) == {"id", "lifo"} and found["verified"]
    assert main(["solve", "diamond", "--linearize", "id,sideways"]) == 2
    assert "sideways" in capsys.readouterr().err


def test_other_commands_take_one_order() -> None:
    with pytest.raises((UsageError, ValueError), match="depth-first or lifo: planner sweep --orders"):
        planner.load("diamond", linearize="id,lifo")


def test_what_would_do_is_said_of_each_order() -> None:
    """Four layers of 1, 3, 1 and 3 bytes on two devices: 4 bytes by their ids, 5 by their names."""
    sizes = {"a": 1.0, "c": 3.0, "b": 1.0, "d": 3.0}
    layers = tuple(
        Layer(v, {1: (Tmpc("x", 1.0, 0.0, 0.0, size),)}, name) for v, (name, size) in enumerate(sizes.items())
    )
    flat = StageInstance("four", layers, (), 2, 0.0, 1.0, 4)

    def run(memory: float) -> planner.Result:
        roomy = replace(flat, memory_bytes=memory)
        return solve_orders({name: linearise(roomy, name) for name in ("name", "id")}, method="exact")

    found = run(3.5)
    first, second = found.reason.split("; order id: ")
    assert first.startswith("order name: ") and "2 devices of 5 bytes would suffice" in first
    assert "2 devices of 4 bytes would suffice" in second and found.stats["least_memory_bytes"] == 4
    assert run(4.0).status is Status.OPTIMAL and run(step_below(4.0)).status is Status.INFEASIBLE
    # No number of devices helps either order.
    assert "fewest_devices" not in run(2.0).stats


def test_no_figure_holds_for_orders_of_which_one_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    starved = planner.load("diamond", memory="1B", devices=2)
    proved = planner.solve(starved, method="exact")
    assert "least_memory_bytes" in proved.stats
    cut = replace(proved, stats={name: value for name, value in proved.stats.items() if name != "least_memory_bytes"})
    one_after_the_other(monkeypatch, [proved, cut])
    assert solve_orders({"id": starved, "lifo": starved}).stats["least_memory_bytes"] is None
