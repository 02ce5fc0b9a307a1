"""AMP's record: a trainer's model as AMP's instance, its strategies as plans, and the first of them run in order."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import planner
from formulations.amp_strategy.definition.problem import strategies, terms
from planner.cli.app import main
from planner.files.load import family_of
from planner.process.errors import UsageError
from planner.training.record import plans_of, run_in_order, write
from planner.training.runtime.launch import RunError


def model(**more: Any) -> dict[str, Any]:
    """Three layers on two machines of two devices, with an edge that skips the second layer."""
    layers = [
        {"id": v, "name": f"layer {v}", "tmpcs": {
            str(t): [{"id": name, "time": time * (v + 1) / t, "weight_bytes": 120.0 / t, "activation_bytes": 9.0,
                      "static_bytes": 480.0 / t} for name, time in (("again", 4e-3), ("vanilla", 3e-3))]
            for t in (1, 2)
        }}
        for v in (0, 1, 2)
    ]  # fmt: skip
    edges = [{"source": 0, "target": 1, "bytes": 64.0}, {"source": 1, "target": 2, "bytes": 32.0}]
    edges.append({"source": 0, "target": 2, "bytes": 16.0})
    flat = {
        "problem": "stage_partitioning", "schema_version": 1, "name": "three", "num_devices": 4, "memory_bytes": 1e9,
        "bandwidth": 1e4, "num_microbatches": 4, "layers": layers, "edges": edges,
    }  # fmt: skip
    machines = {"devices_per_machine": 2, "inner_bandwidth": 1e5, "schedules": ["1f1b", "gpipe"], "virtual_stages": 1}
    return {"problem": "training_strategy", "schema_version": 1, "flat": flat, **machines, **more}


def test_what_amp_plans_is_a_plan_of_the_model(tmp_path: Path) -> None:
    instance = planner.load(model())
    made = planner.load(write(instance))
    assert [(node.intra_bytes_per_s, node.inter_bytes_per_s) for node in made.nodes] == [(1e5, 1e4)] * 2
    assert [layer.activation_bytes for layer in made.layers] == [80, 48, 0]
    assert [layer.forward_s["gpu"] for layer in made.layers] == [
        {t: pytest.approx(1e-3 * v / t) for t in (1, 2)} for v in (1, 2, 3)
    ]
    record = planner.solve(made, method="amp", options={"top": "99"}).to_json()
    ranked = record["stats"]["ranked"]
    own = [degrees for degrees in strategies(made) if degrees.microbatch == 1 and degrees.pp_degree <= 3]
    assert len(ranked) == len(own) == 4
    assert [row["predicted_s"] for row in ranked] == sorted(row["predicted_s"] for row in ranked)
    family = family_of(instance)
    for row, content in zip(ranked, plans_of(record, instance, "record"), strict=True):
        plan = family.plan_from_json(instance, content)
        assert family.judge(instance, plan) == ()
        assert tuple(len(chunk) for chunk in plan.chunks) == tuple(row["lengths"])
        assert set(plan.tmpcs.values()) == {"vanilla"}
    alone = next(row for row in ranked if (row["dp_degree"], row["pp_degree"]) == (4, 1))
    plan = family_of(made).plan_from_json(made, {name: alone[name] for name in list(alone)[:6]})
    assert terms(made, plan).all_reduce == pytest.approx(2 * 3 / 4 * 360 / 1e4)  # the ring is between machines
    for wrong in ({**record, "problem": "stage_graph"}, {"stats": None}, {**record, "stats": {}}):
        with pytest.raises(UsageError, match="--budget is 'record'; expected what planner alternatives"):
            plans_of(wrong, instance, "record")
    with pytest.raises(UsageError, match="the training_strategy that planner convert --to amp was given"):
        plans_of(record, instance.flat, "record")
    shorter = {**record, "stats": {"ranked": [{**ranked[0], "lengths": [2]}]}}
    with pytest.raises(UsageError, match="strategies of three"):
        plans_of(shorter, instance, "record")
    with pytest.raises(UsageError, match="without 1f1b"):
        write(planner.load(model(schedules=["gpipe"])))
    with pytest.raises(UsageError, match="whole machines of 3"):
        write(planner.load(model(devices_per_machine=3)))
    (tmp_path / "model.json").write_text(json.dumps(model()))
    assert main(["convert", str(tmp_path / "model.json"), "--to", "amp", "--out", str(tmp_path / "amp.json")]) == 0
    assert planner.load(str(tmp_path / "amp.json")) == made
    flat = model()["flat"]
    (tmp_path / "branches.json").write_text(json.dumps({**flat, "edges": flat["edges"][1:]}))
    assert main(["convert", str(tmp_path / "branches.json"), "--to", "amp", "--out", str(tmp_path / "amp.json")]) == 0
    assert [layer.activation_bytes for layer in planner.load(str(tmp_path / "amp.json")).layers] == [16, 48, 0]


def runs(*outcomes: Any) -> Callable[[Any], Any]:
    """A stand-in for `run_plan`: plan i ends with outcome i, seconds of a right or (negative) of a wrong run."""

    def run(plan: Any) -> Any:
        outcome = outcomes[plan["plan"]]
        if isinstance(outcome, Exception):
            raise outcome
        return SimpleNamespace(ok=outcome > 0, seconds=99.0, step_s=abs(outcome), to_json=lambda: {"ok": outcome > 0})

    return run


def test_the_budget_counts_what_was_begun_and_keeps_the_fastest() -> None:
    plans = [{"plan": number} for number in range(7)]
    refused, failed = UsageError("breaks memory"), RunError("process 1 died")
    run = runs(refused, 5.0, failed, -1.0, 3.0, 4.0, 0.5)
    found = run_in_order(plans, run, 5)  # the first is refused, and the last is not reached
    assert [each.number for each in found.tried] == [1, 2, 3, 4, 5, 6]
    assert found.fastest.number == 5 and found.kept.step_s == 3.0
    assert [each.seconds for each in found.tried] == [math.inf, 5.0, math.inf, math.inf, 3.0, 4.0]
    shown = found.to_json()
    assert (shown["fastest"], shown["ok"]) == (5, True)
    assert [row["is_run"] for row in shown["tried"]] == [False, True, True, True, True, True]
    assert shown["tried"][0]["reason"] == "breaks memory" and shown["tried"][3]["seconds"] is None
    assert run_in_order(plans, run, 1).fastest.number == 2
    assert run_in_order(plans, runs(*[2.0] * 7), 3).fastest.number == 1
    with pytest.raises(UsageError, match="breaks memory"):
        run_in_order(plans, runs(*[refused] * 7), 3)
    with pytest.raises(RunError, match="died"):
        run_in_order(plans, runs(refused, *[failed] * 6), 2)
