"""Sweeps over gradient accumulation and micro-batch sizes (Piper, Appendix A), and over linear orders."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import planner
from formulations.contract.rounding import step_below
from instances.generators.transformer import FORWARD, RECOMPUTE, VANILLA
from instances.problems.stage_edits import change_tmpcs, linearise
from instances.problems.stage_partitioning import Layer, StageInstance, Tmpc
from planner.analysis.sweep import best_order, load_orders, parse_counts, solve_orders, sweep
from planner.cli.app import main
from planner.files.load import family_of
from planner.process.errors import UsageError
from planner.results.result import Result
from solvers.outcome import Limits, Status, Stop

SMALL = {"layers": 2, "hidden_size": 256, "heads": 4, "sequence_length": 128, "vocabulary": 1024, "devices": 8}


def test_every_combination_is_solved_at_its_own_profile() -> None:
    best, instance, rows = sweep("bert", 8, [1, 2, 16], [1, 2, 4], overrides=SMALL, exact=True)
    expected = [(g, b, 8 // (g * b)) for b in (1, 2, 4) for g in (1, 2)]  # 16 * b' is more than the batch
    assert [(row.grad_accum, row.microbatch_size, row.microbatches) for row in rows] == expected
    for row in rows:
        alone = planner.load("bert", **SMALL, microbatch_size=row.microbatch_size, microbatches=row.microbatches)
        assert row.objective == planner.solve(alone, exact=True).objective
        assert math.isclose(row.time_per_sequence, row.objective / row.microbatch_size)
    least = min(rows, key=lambda row: row.time_per_sequence)
    assert best.status is Status.OPTIMAL and best.objective == least.objective
    assert planner.check(instance, best.plan).feasible and len(best.stats["sweep"]) == len(rows)


@pytest.mark.slow
def test_several_combinations_at_once_find_the_same() -> None:
    def found(jobs: int) -> tuple[Any, ...]:
        best, _, rows = sweep("bert", 8, [1, 2], [1, 2], overrides=SMALL, exact=True, jobs=jobs, listen=print)
        return best.objective, best.bound, best.status, [{**vars(row), "seconds": None} for row in rows]

    assert found(2) == found(1)
    with pytest.raises(UsageError, match="--jobs is 0"):
        sweep("bert", 8, jobs=0)


def test_a_batch_is_never_exceeded() -> None:
    _, _, rows = sweep("chain8", 9, [1, 2, 4], [2], overrides={"devices": 2})
    assert [row.microbatches for row in rows] == [4, 2, 1]  # 9 / 2, 9 / 4 and 9 / 8, rounded down


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_pipelines_with_flushes(schedule: str, tmp_path) -> None:
    content = {"problem": "flushed_partitioning", "schema_version": 1, "schedule": schedule}
    file = tmp_path / "flushed.json"
    flat = planner.load("chain8", devices=4)
    file.write_text(json.dumps({**content, "flat": family_of(flat).to_json(flat)}))
    best, instance, rows = sweep(str(file), 8, [1, 2], exact=True)
    assert [row.microbatches for row in rows] == [8, 4] and best.status is Status.OPTIMAL
    assert (
        instance.flat.num_microbatches == {row.grad_accum: row.microbatches for row in rows}[best.options["grad-accum"]]
    )


def test_batches_of_trainers_are_compared_by_sequence(tmp_path: Path) -> None:
    """Micro-batches of two that take 1.5 times as long: half as many, so a pipeline fills for longer."""
    flat = planner.load("chain8", devices=4)
    for b, factor in ((1, 1.0), (2, 1.5)):
        slower = change_tmpcs(flat, lambda x, factor=factor: replace(x, time=factor * x.time))
        content = {"problem": "training_strategy", "schema_version": 1, "flat": family_of(flat).to_json(slower)}
        (tmp_path / f"t{b}.json").write_text(json.dumps(content))
    best, _, rows = sweep(str(tmp_path / "t{b}.json"), 8, [1], [1, 2], exact=True)
    alone = [planner.load(str(tmp_path / f"t{b}.json"), microbatches=8 // b) for b in (1, 2)]
    assert [row.objective for row in rows] == [planner.solve(each, exact=True).objective for each in alone]
    assert [row.time_per_sequence for row in rows] == [pytest.approx(row.objective / 8) for row in rows]
    assert best.objective == min(row.objective for row in rows) and best.status is Status.OPTIMAL
    assert best.bound == pytest.approx(best.objective)


def test_files_of_several_profiles(tmp_path) -> None:
    for b in (1, 2):
        assert (
            main(["make", "bert", "--layers", "2", "--microbatch-size", str(b), "--out", f"{tmp_path}/b{b}.json"]) == 0
        )
    _, _, rows = sweep(str(tmp_path / "b{b}.json"), 4, [1], [1, 2], overrides={"devices": 4})
    assert [row.microbatches for row in rows] == [4, 2] and rows[0].objective != rows[1].objective


def test_what_cannot_be_swept_is_refused() -> None:
    for arguments in ({"batch_size": 1, "grad_accum": [2]}, {"batch_size": 4, "microbatch_sizes": [1, 2]}):
        with pytest.raises(UsageError):
            sweep("chain8", **arguments)
    with pytest.raises(UsageError, match="microbatches"):
        sweep("chain8", 4, overrides={"microbatches": 3})
    with pytest.raises(UsageError, match="--microbatch-size"):
        sweep("bert", 4, overrides={"microbatch_size": 3})
    with pytest.raises(UsageError, match="hierarchical_partitioning"):
        sweep("mmt", 4)  # its micro-batches are counted in samples
    assert parse_counts("--grad-accum", "1, 2,2") == [1, 2]
    for wrong in ("0", "", "1,x"):
        with pytest.raises(UsageError, match="grad-accum"):
            parse_counts("--grad-accum", wrong)


def test_warnings_are_printed_once(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    instance = planner.load("chain8")
    content = {**family_of(instance).to_json(instance), "warnings": ["mind the gap"]}
    file = tmp_path / "warned.json"
    file.write_text(json.dumps(content))
    arguments = ["solve", str(file), "--batch-size", "4", "--grad-accum", "1,2"]
    assert main(arguments) == 0
    assert capsys.readouterr().err.count("warning: mind the gap") == 1
    assert main([*arguments, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    sweep(str(file), 4)  # nobody listens


def result(status: Status, objective: float | None, bound: float | None, **given) -> Result:
    stop = Stop.PROVED if status in (Status.OPTIMAL, Status.INFEASIBLE) else Stop.TIME_LIMIT
    gap = None if objective is None or bound is None else (objective - bound) / objective
    return Result("p", "i", "m", "exact", status, stop, objective, bound, gap, "s", 1.0, **given)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        # g = 1 at b' = 1 and 2: all proved; the one at b' = 2 is better per sequence
        ([(Status.OPTIMAL, 4.0, 4.0), (Status.OPTIMAL, 6.0, 6.0)], (Status.OPTIMAL, Stop.PROVED, 6.0, 6.0)),
        # the other one might still be better than 3 per sequence: its bound, at two sequences a sample
        ([(Status.FEASIBLE, 4.0, 2.0), (Status.OPTIMAL, 6.0, 6.0)], (Status.FEASIBLE, Stop.TIME_LIMIT, 6.0, 4.0)),
        ([(Status.FEASIBLE, 4.0, 3.5), (Status.OPTIMAL, 6.0, 6.0)], (Status.OPTIMAL, Stop.PROVED, 6.0, 6.0)),
        ([(Status.UNKNOWN, None, None), (Status.OPTIMAL, 6.0, 6.0)], (Status.FEASIBLE, Stop.TIME_LIMIT, 6.0, None)),
        ([(Status.INFEASIBLE, None, None), (Status.OPTIMAL, 6.0, 6.0)], (Status.OPTIMAL, Stop.PROVED, 6.0, 6.0)),
        ([(Status.INFEASIBLE, None, None), (Status.UNKNOWN, None, 1.0)], (Status.UNKNOWN, Stop.TIME_LIMIT, None, 1.0)),
        ([(Status.INFEASIBLE, None, None)] * 2, (Status.INFEASIBLE, Stop.PROVED, None, None)),
        # less than a percent is left open
        ([(Status.FEASIBLE, 4.0, 2.98), (Status.OPTIMAL, 6.0, 6.0)], (Status.FEASIBLE, Stop.TIME_LIMIT, 6.0, 5.96)),
    ],
)
def test_a_sweep_is_proved_as_a_whole(results, expected, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([result(*one) for one in results])
    monkeypatch.setattr("planner.analysis.sweep.solve", lambda *_args, **_given: next(answers))
    swept, _, rows = sweep("bert", 2, [1], [1, 2], overrides=SMALL)
    status, stop, objective, bound = expected
    assert (swept.status, swept.stop, swept.objective) == (status, stop, objective)
    assert swept.bound == bound and swept.seconds == 2.0 and len(rows) == 2
    if objective is not None:
        assert swept.options["grad-accum"] == 1 and swept.options["microbatch-sizes"] == 2


def test_a_signal_ends_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([result(Status.OPTIMAL, 4.0, 4.0), result(Status.FEASIBLE, 6.0, 1.0, signal=2)])
    monkeypatch.setattr("planner.analysis.sweep.solve", lambda *_args, **_given: next(answers))
    swept, _, rows = sweep("chain8", 8, [1, 2, 4], [1])
    assert len(rows) == 2 and swept.signal == 2 and swept.objective == 4.0
    assert swept.status is Status.FEASIBLE and swept.bound is None  # the third one was never run


def test_what_was_not_asked_may_have_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([result(Status.INFEASIBLE, None, None), result(Status.INFEASIBLE, None, None, signal=15)])
    monkeypatch.setattr("planner.analysis.sweep.solve", lambda *_args, **_given: next(answers))
    swept, _, rows = sweep("chain8", 8, [1, 2, 4], [1])
    assert len(rows) == 2 and swept.status is Status.UNKNOWN and swept.signal == 15


def test_a_profile_is_read_once(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many g there are; and what is read is what a run of its own reads."""
    for b in (1, 2):
        assert (
            main(["make", "bert", "--layers", "2", "--microbatch-size", str(b), "--out", f"{tmp_path}/{b}.json"]) == 0
        )
    read: list[str] = []

    def counted(name, *arguments, **given):
        read.append(name)
        return planner.load(name, *arguments, **given)

    monkeypatch.setattr("planner.analysis.sweep.load", counted)
    seen = []
    monkeypatch.setattr(
        "planner.analysis.sweep.solve", lambda instance, **_: seen.append(instance) or result(Status.OPTIMAL, 4.0, 4.0)
    )
    given = {"devices": "4", "memory": "8GiB", "exactly": True}
    sweep(str(tmp_path / "{b}.json"), 8, [1, 2, 4], [1, 2], overrides=given)
    assert read == [f"{tmp_path}/1.json", f"{tmp_path}/2.json"]
    counts = [(1, 8), (1, 4), (1, 2), (2, 4), (2, 2), (2, 1)]
    assert seen == [planner.load(tmp_path / f"{b}.json", **given, microbatches=n) for b, n in counts]


def test_a_batch_of_just_as_many_micro_batches_as_there_may_be_is_swept() -> None:
    _, _, rows = sweep("chain8", 3_000_002, [3], overrides={"devices": 2})
    assert rows[0].microbatches == 1_000_000


def test_time_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def answer(*_args, limits, **_given):
        given.append(limits.time_s)
        return result(Status.OPTIMAL, 4.0, 4.0)

    monkeypatch.setattr("planner.analysis.sweep.solve", answer)
    sweep("chain8", 8, [1, 2, 4], [1], limits=Limits(time_s=1.5))
    assert given == [1.5, 0.5, 0.0]


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["solve", "chain8", "--batch-size", "8", "--grad-accum", "1,2"]
    assert main([*arguments, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert [row["microbatches"] for row in output["stats"]["sweep"]] == [8, 4] and output["verified"]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert "gradient accumulation" in output and "grad-accum 1" in output
    assert "grad_accum" not in output  # the rows are shown once
    assert main(["solve", "chain8", "--batch-size", "8", "--grad-accum", "4,1", "--devices", "8"]) == 0
    assert re.findall(r"^ *(\d) +1 +\d +optimal", capsys.readouterr().out, re.M) == ["1", "4"]  # best first
    assert main(["solve", "chain8", "--batch-size", "8", "--memory", "1"]) == 4
    assert main(["solve", "chain8", "--grad-accum", "2"]) == 2


def tmpcs(**given):
    """The TMPCs of a transformer layer at t = 2, by id."""
    layer = next(layer for layer in planner.load("bert", **given).layers if layer.name == "transformer layer")
    return {x.id: x for x in layer.tmpcs[2]}


def test_pipedream_stashes_weights_with_the_activations() -> None:
    two, one = tmpcs(), tmpcs(memory_scheme="pipedream")
    for name in (VANILLA, RECOMPUTE):
        weights = two[name].weight_bytes
        assert weights == one[name].weight_bytes > 0 and two[name].time == one[name].time
        assert one[name].activation_bytes == pytest.approx(two[name].activation_bytes + weights)
        assert one[name].static_bytes == pytest.approx(two[name].static_bytes - 2 * weights)


def test_forward_only_profiles() -> None:
    both, forward = planner.load("bert"), planner.load("bert", forward_only=True)
    assert [edge.bytes * 2 for edge in forward.edges] == [edge.bytes for edge in both.edges]
    trained, served = tmpcs()[VANILLA], tmpcs(forward_only=True)
    assert set(served) == {FORWARD}
    only = served[FORWARD]
    # a forward pass is a third of both, and holds neither gradients nor what a backward pass would need
    assert only.time == pytest.approx(trained.time / 3, rel=0.2) and only.weight_bytes == 0
    assert only.activation_bytes < trained.activation_bytes and only.static_bytes < trained.static_bytes
    assert not only.sync_backward_bytes and only.sync_forward_bytes
    faster = planner.solve(planner.load("bert", forward_only=True, devices=8), exact=True)
    assert faster.objective < planner.solve(planner.load("bert", devices=8), exact=True).objective / 2


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


def test_the_command_of_orders(capsys: pytest.CaptureFixture[str]) -> None:
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
