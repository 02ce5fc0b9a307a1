"""`planner fidelity`: the term that is most wrong is named; nothing here needs torch."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from instances.errors import InstanceError
from planner.cli.app import main
from planner.display.runs import show_run
from planner.training.runtime.fidelity import fidelity, order_fidelity
from planner.training.runtime.layout import Duty, Layout

PASSES = [[0, "F", 0, 0.0, 1.0], [1, "F", 0, 1.0, 2.0], [1, "B", 0, 2.0, 4.0], [0, "B", 0, 4.0, 6.0]]


def record(**changed: Any) -> dict[str, Any]:
    """Two processes, a micro-batch: forward passes of 1 s, backward passes of 2 s, as predicted."""
    content = {
        "instance": "two", "processes": 2, "bytes_sent": [8, 8], "bytes_planned": [8.0, 8.0], "held_bytes": [5, 7],
        "held_planned": [5.0, 7.0], "measured": PASSES, "simulated": PASSES, "resimulated_s": 6.0,
    }  # fmt: skip
    return content | changed


def test_a_run_as_predicted_has_no_wrong_term() -> None:
    found = fidelity(record())
    assert found.worst is None
    values = {term.term: (term.predicted, term.measured) for term in found.terms}
    assert values == {
        "forward": (2.0, 2.0), "backward": (4.0, 4.0), "transfer": (16.0, 16), "memory": (7.0, 7),
        "bubble": (0.5, 0.5), "waiting": (0.0, 0.0), "iteration": (6.0, 6.0),
    }  # fmt: skip


SLOW = [[0, "F", 0, 0.0, 1.0], [1, "F", 0, 1.0, 2.0], [1, "B", 0, 2.0, 8.0], [0, "B", 0, 8.0, 14.0]]
LATE = [[0, "F", 0, 0.0, 1.0], [1, "F", 0, 9.0, 10.0], [1, "B", 0, 10.0, 12.0], [0, "B", 0, 20.0, 22.0]]


@pytest.mark.parametrize(
    ("changed", "worst"),
    [
        ({"measured": SLOW, "resimulated_s": 14.0}, "backward"),
        ({"measured": LATE}, "bubble"),
        ({"bytes_sent": [8, 0]}, "transfer"),
        ({"collective_bytes": [8, 8], "collective_planned": [8, 0]}, "collectives"),
        ({"gradient_bytes": [8, 8], "gradient_planned": [8, 0]}, "gradients"),
        ({"held_bytes": [5, 14]}, "memory"),
        ({"state_bytes": [8, 16], "state_planned": [8, 8]}, "states"),
        ({"processes": 1, "held_bytes": [6, 7]}, "memory"),  # two stages of one
        ({"held_bytes": [5, 0], "held_planned": [0.0, 0.0]}, "memory"),
    ],
)
def test_the_term_that_is_most_wrong_is_named(changed: dict[str, Any], worst: str) -> None:
    assert fidelity(record(**changed)).worst == worst


@pytest.mark.parametrize("sums", ["collective", "gradient"])
@pytest.mark.parametrize("cut", [[[8]], []])
def test_both_lists_of_sums_are_there_whole(sums: str, cut: list[Any]) -> None:
    with pytest.raises(InstanceError, match=f"{sums}_planned"):
        fidelity(record(**{f"{sums}_bytes": [8, 8]}, **{f"{sums}_planned": each for each in cut}))


def test_waiting_is_what_measured_passes_do_not_explain() -> None:
    waiting = next(term for term in fidelity(record(measured=LATE)).terms if term.term == "waiting")
    assert (waiting.predicted, waiting.measured, waiting.ratio) == (0.0, 16.0, None)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"ok": True}, "instance is missing"),
        (record(measured=[[0, "X", 0, 0.0, 1.0]]), "measured[0] is"),
        (record(held_bytes=["much"]), "held_bytes[0] is 'much'; expected a number"),
        (record(simulated=[]), "simulated is []"),
        (record(resimulated_s=None), "resimulated_s is"),
        (record(processes=None), "processes is None; expected a whole number"),
        (record(held_bytes=[5]), "len(held_bytes) is 1; expected 2, as bytes_sent has"),
        (record(bytes_sent=[8, 8, 8]), "len(bytes_sent) is 3; expected 2"),
        (record(measured=PASSES[:3]), "len(measured) is 3; expected 4 passes, as in simulated, B0 of process 0"),
        (record(simulated=PASSES[1:]), "len(simulated) is 3; expected 4 passes, as in measured, F0 of process 0"),
        (record(measured=PASSES[1:3], simulated=PASSES[1:3]), "'without process 0'; expected passes of every"),
    ],
)
def test_bad_input_is_one_line(content: dict[str, Any], words: str, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(content))
    assert main(["fidelity", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1 and words in captured.err


def test_the_command_prints_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(record(bytes_sent=[8, 0])))
    assert main(["fidelity", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["instance", "terms", "worst"] and found["worst"] == "transfer"
    assert found["terms"][2] == {
        "term": "transfer", "unit": "bytes", "predicted": 16.0, "measured": 8.0, "ratio": 0.5,
    }  # fmt: skip
    assert main(["fidelity", str(file)]) == 0
    assert "most wrong: transfer" in capsys.readouterr().out


def _scaled(predicted: float, measured: float, **more: Any) -> dict[str, Any]:
    """A run whose plan predicts so many times the seconds of `PASSES`, and takes so many times them."""
    both = {"simulated": predicted, "measured": measured}
    rows = {name: [[*row[:3], row[3] * by, row[4] * by] for row in PASSES] for name, by in both.items()}
    return record(**rows, **more)


def test_several_runs_are_compared_by_their_order() -> None:
    found = order_fidelity({"a": _scaled(1, 1.25), "b": _scaled(2, 2), "c": _scaled(3, 1), "d": _scaled(4, 5)})
    first = found.plans[0]
    assert (first.run, first.predicted_s, first.measured_s, first.ratio) == ("a", 6.0, 7.5, 1.25)
    assert found.spearman == pytest.approx(1 - 6 * (1 + 1 + 4 + 0) / (4 * 15))
    assert found.median_error == pytest.approx(0.2) and found.worst_error == pytest.approx(2.0)
    assert found.regret == pytest.approx(0.25), "a is predicted to be the fastest, c is"
    assert order_fidelity({"a": _scaled(1, 1), "b": _scaled(1, 2)}).spearman is None, "there is no predicted order"


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (_scaled(1, 1, instance="three"), "instance is 'three'; expected two"),
        (_scaled(1, 1, device="NVIDIA H200"), "device is 'NVIDIA H200'; expected cpu"),
        (_scaled(1, 0), "measured_s is 0"),
        ({"ok": True}, "instance is missing"),
    ],
)
def test_runs_that_cannot_be_compared_are_one_line(
    second: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, content in zip(files, (_scaled(1, 1, device="cpu"), {"device": "cpu", **second}), strict=True):
        file.write_text(json.dumps(content))
    assert main(["fidelity", *map(str, files)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1 and words in captured.err


def test_the_order_is_printed_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, content in zip(files, (_scaled(1, 3), _scaled(2, 2)), strict=True):
        file.write_text(json.dumps(content))
    assert main(["fidelity", *map(str, files), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["instance", "device", "plans", "spearman", "median_error", "worst_error", "regret"]
    assert found["spearman"] == -1.0 and found["plans"][0]["ratio"] == 3.0
    assert main(["fidelity", *map(str, files)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "rank correlation (Spearman) -1.000" in out and "was 50.0% slower than the fastest" in out
    assert out.index("b.json") < out.index("a.json"), "by measured iteration"


def test_stages_of_a_process_hold_their_memory_together() -> None:
    """In a V the first and the last of four stages are of one process, as its rows say."""
    passes = [[row, kind, 0, 0.0, 1.0] for row in range(4) for kind in "FB"]
    lists = {name: [8.0] * 4 for name in ("bytes_sent", "bytes_planned", "held_planned")}
    rows = [{"process": process} for process in (0, 1, 1, 0)]
    found = fidelity(record(**lists, held_bytes=[5, 7, 1, 9], measured=passes, simulated=passes, rows=rows))
    assert {each.term: each.measured for each in found.terms}["memory"] == 5 + 9


def test_all_memory_is_that_of_the_process_with_most_beside_its_plan() -> None:
    terms = {each.term: each for each in fidelity(record(peak_bytes=[90, 60], memory_planned=[100.0, 50.0])).terms}
    assert (terms["all memory"].predicted, terms["all memory"].measured) == (50.0, 60.0)
    with pytest.raises(InstanceError, match="memory_planned"):
        fidelity(record(peak_bytes=[90, 60]))


@pytest.mark.parametrize(
    ("tolerance", "error", "compared", "said"),
    [(1e-6, 1.8e-6, 4, True), (1e-6, 0.12, 4, False), (1e-12, 1.8e-12, 4, False), (1e-6, 1.8e-6, 3, False)],
)
def test_float32_beyond_its_limit_is_said_to_be_rounding_perhaps(
    tolerance: float, error: float, compared: int, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    names = "bytes_sent bytes_planned held_bytes held_planned gradient_bytes gradient_planned state_bytes"
    sums = dict.fromkeys(names.split(), (0.0,))
    layout = Layout({}, frozenset(), (Duty(0, 0, (), 0.0, 0.0, 0.0, 0.0),), 1, ())
    errors = {"loss_error": 0.0, "gradient_error": error, "step_error": None, "parameters": 4, "compared": compared}
    run: Any = SimpleNamespace(layout=layout, seconds=1.0, loss=1.0, tolerance=tolerance, ok=False, **errors, **sums)
    show_run(run)
    out = capsys.readouterr().out
    assert "DIFFERENT" in out and ("float32 may round" in out) == said


@pytest.mark.parametrize(
    ("planned", "summed", "words"),
    [
        ((7.0, 5.0), 3.0, "is as planned in all"),
        ((7.0, 9.0), 3.0, "is not as planned"),
        ((8.0, 4.0), 4.0, "gradients take 8 B to sum, 6 B planned"),
    ],
)
def test_other_bytes_are_explained(planned: tuple[float, float], summed: float, words: str, capsys: Any) -> None:
    duty = Duty(0, 0, (), 0.0, 0.0, 0.0, 0.0, device=5)
    bytes_moved = {"bytes_sent": (8, 4), "bytes_planned": planned, "held_bytes": (1, 1), "held_planned": (1, 1)}
    bytes_moved |= {"gradient_bytes": (summed, summed), "gradient_planned": (3.0, 3.0), "state_bytes": ()}
    layout = Layout({}, frozenset(), (duty, duty), 2, (), shares_states=True)
    run: Any = SimpleNamespace(layout=layout, seconds=1.0, loss=1.0, tolerance=None, **bytes_moved)
    show_run(run)
    out = capsys.readouterr().out
    assert (
        words in out
        and "no step was made" in out
        and ("gradients take" in out) == (summed != 3.0)
        and " device " in out
    )
