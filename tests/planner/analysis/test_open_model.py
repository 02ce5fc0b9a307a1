"""Models in the open: what they say, requirements, relaxations, files, solutions of other solvers, and limits."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from solved_by_highs import solved_by_highs

import planner
from formulations.amp_strategy.models import cpsat, milp
from instances.errors import InstanceError
from planner.analysis.model_view import OpenModel
from planner.cli.app import main
from planner.display import progress
from planner.process.errors import UsageError
from solvers import highs_settings
from solvers.outcome import Limits, Status, Stop, Watch


def opened(method: str = "milp", **more: Any) -> OpenModel:
    return planner.model(planner.load("layers", layers=8, stages=3), method, **more)


def test_groups_have_sentences_and_sources() -> None:
    found = {group.name: group for group in opened(complete=True).sizes().groups}
    assert found["carries"].kind == "variable" and found["carries"].count > 8
    assert found["stage_time"].count == 3 and found["stage_time"].source == "AMP, section 6.4"
    assert "stage_time x 3" in repr(opened()) and "<td>follows</td>" in opened()._repr_html_()


def test_relaxation_bounds_the_optimum_and_names_what_is_fractional() -> None:
    model = opened(complete=True)
    root, best = model.root(), model.solve().objective
    assert root.bound is not None and best is not None
    assert 0.5 * best < root.bound < best
    assert any(name.startswith("carries[") and 0 < value < 1 for name, value in root.fractional.items())
    assert any(name.startswith("stage_time[") for name in root.duals) and model.duals() == root.duals


def test_a_requirement_for_all_is_one_for_each() -> None:
    """Below their optimum of six layers no stage has more than three; a file and a model say it as the command does."""
    layers = planner.load("layers", layers=8, stages=3, require="layers(*) <= 3")
    assert layers.requirements == ("layers(0) <= 3", "layers(1) <= 3", "layers(2) <= 3")
    model = opened()
    model.require(model.layers("*") <= 3)
    assert model.instance.requirements == layers.requirements
    assert max(planner.solve(layers, exact=True).plan["lengths"]) == 3  # type: ignore[index]
    with pytest.raises(UsageError, match=r"expected m\.layers\(stage\), or m\.layers\('\*'\) for all"):
        model.require(model.layers <= 3)
    chain = planner.model(planner.load("chain8"), "milp")
    assert chain.require(chain.num_stages <= 1).instance.requirements == ("num_stages <= 1",)
    with pytest.raises(InstanceError, match=r"expected <= for every stage: a plan need not have all"):
        planner.load("chain8", require="nodes(*) >= 2")
    with pytest.raises(InstanceError, match="at most 10,000 requirements"):
        planner.load("bert32", layers=110, require="same_stage(*, *)")
    few = planner.load("chain8", require="not same_stage(*, 7)", first=8)
    assert len(few.requirements) == 8


def test_what_states_no_requirement() -> None:
    model = opened()
    stated: list[Callable[[], Any]] = [
        *(lambda: model.layers(0) == 2.0, lambda: model.layers(0) <= 2.5, lambda: model.layers(0) > None),
        *(lambda: model.layers([0]), lambda: model.layers(0.0), lambda: model.require(model.layers(0) != 2)),
        *(lambda: model.require(3), lambda: model.require(None), lambda: model.fix("layers", 0, value="2")),
        *(lambda: model.forbid(model.layers(0) == 1), lambda: model.forbid("not same_stage(1, 2)")),
        *(lambda: model.root(-1), lambda: model.solve(3), lambda: planner.load("layers", require=3)),
        *(lambda: planner.load("layers", require=[3]), lambda: planner.load("layers", require={"a": 1})),
    ]
    for call in stated:
        with pytest.raises(UsageError, match="expected"):
            call()
    one = np.int64(1)
    assert model.require(model.layers(one) <= one).instance.requirements == ("layers(1) <= 1",)


def test_requirements_in_four_spellings() -> None:
    texts = opened().require("layers(0) >= 4", "not same_stage(6, 7)").instance.requirements
    model = opened()
    assert model.require(model.layers(stage=0) > 3).forbid(model.same_stage(6, 7)).instance.requirements == texts
    fixed = opened().fix("layers", stage=1, value=1)
    assert fixed.instance.requirements == ("layers(1) == 1",)
    plan = fixed.solve().plan
    assert plan is not None and plan["lengths"][1] == 1
    for wrong in ("layers(0) >= x", "stages <= 3", "layers(3) >= 1", "layers >= 1"):
        with pytest.raises(ValueError, match="expected"):
            opened().require(wrong)
    with pytest.raises(UsageError, match=r"layers\(stage\)"):
        opened().fix("layers", layer=1, value=1)
    with pytest.raises(AttributeError):
        opened().rows()


@pytest.mark.parametrize("suffix", [".lp", ".mps"])
def test_solutions_of_files_are_judged(tmp_path: Path, suffix: str) -> None:
    model = opened(complete=True).require("layers(0) >= 4")
    path = tmp_path / f"model{suffix}"
    model.write(str(path))
    beside = json.loads(Path(f"{path}.json").read_text())
    assert beside["instance"]["requirements"] == ["layers(0) >= 4"] and "carries(0,0,4)" in beside["variables"]
    found, own = model.read_solution(str(solved_by_highs(path)[1])), model.solve()
    assert found.verified and found.bound is None and found.status is Status.FEASIBLE
    assert found.objective == pytest.approx(own.objective, rel=1e-6)
    # The same solution does not meet another requirement.
    other = opened(complete=True).require("layers(0) >= 5")
    assert found.plan == {"lengths": [4, *found.plan["lengths"][1:]]}
    judged = other.read_solution(str(path.with_suffix(".sol")))
    assert not judged.verified and "required: layers(0) >= 5; it is 4" in judged.reason


def test_rows_and_nl_files(tmp_path: Path) -> None:
    model = opened(complete=True)
    model.write(str(tmp_path / "m.json"))
    rows = json.loads((tmp_path / "m.json").read_text())
    model.write(str(tmp_path / "m.nl"))
    lines = (tmp_path / "m.nl").read_text().splitlines()
    variables, constraints = map(int, lines[1].split()[:2])
    assert lines[0].startswith("g3") and constraints == len(rows["constraints"])
    in_order = json.loads((tmp_path / "m.nl.json").read_text())["variables"]
    assert sorted(in_order) == sorted(each["name"] for each in rows["variables"]) and len(in_order) == variables
    # Continuous variables come before whole ones there.
    assert in_order[0] == "waiting" and all(name.startswith("carries") for name in in_order[1:])


def test_what_is_added_by_hand_proves_nothing_of_the_instance() -> None:
    model = opened(complete=True)
    best = model.solve().objective
    pyomo_model = model.model
    pyomo_model.carries[0, 0, 6].fix(1)
    found = model.solve()
    assert found.plan is not None and found.plan["lengths"][0] == 6 and found.objective > best
    assert found.bound is None and found.status is Status.FEASIBLE and found.own is not None
    assert found.own["status"] == "optimal" and best < found.own["bound"] <= found.own["objective"] * (1 + 1e-9)


def test_cpsat_models_are_written_and_read(tmp_path: Path) -> None:
    model = opened("cpsat")
    model.write(str(tmp_path / "model.pb.txt"))
    assert "stays_begun[1,1]" in (tmp_path / "model.pb.txt").read_text()
    begun = [f"begun[1,{layer}] 1" for layer in range(2, 6)] + [f"begun[2,{layer}] 1" for layer in range(5, 7)]
    (tmp_path / "a.sol").write_text("\n".join(begun))
    assert model.read_solution(str(tmp_path / "a.sol")).plan == {"lengths": [2, 3, 3]}
    model.write(str(tmp_path / "model.json"))
    assert json.loads((tmp_path / "model.json").read_text())["variables"][0]["name"] == "begun[1,1]"
    model.write(str(tmp_path / "model.lp"))  # nothing of it is left out
    assert model.read_solution(str(solved_by_highs(tmp_path / "model.lp")[1])).objective == model.solve().objective
    with pytest.raises(UsageError, match=r"\.pb\.txt"):
        model.write(str(tmp_path / "model.nl"))


def test_methods_without_a_model() -> None:
    for method in ("exact", "uniform"):
        with pytest.raises(UsageError, match="cpsat, milp"):
            opened(method)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["model", "layers", "--layers", "8", "--stages", "3", "--method", "milp", "--require", "layers(0) >= 4"]
    path = tmp_path / "m.lp"
    assert main([*given, "--root", "--write", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["files"] == [str(path), f"{path}.json"] and shown["requirements"] == ["layers(0) >= 4"]
    assert shown["variables"]["total"] == shown["variables"]["binary"] + shown["variables"]["continuous"]
    assert shown["root_bound"] > 0 and {"name", "kind", "count", "says", "source"} == set(shown["groups"][0])
    assert main([*given, "--root"]) == 0
    assert "root bound" in capsys.readouterr().out
    assert main([*given, "--read", str(solved_by_highs(path)[1]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"]
    assert main([*given[:-1], "layers(0) >= 5", "--read", str(path.with_suffix(".sol"))]) == 1
    for wrong in ([*given, "--write", str(tmp_path / "m.xyz")], [*given, "--method", "nobody"]):
        assert main(wrong) == 2
    assert main(["solve", "layers", "--require", "layers(0) >= "]) == 2
    assert "requirement such as" in capsys.readouterr().err.splitlines()[-1]


MODEL = ["model", "layers", "--layers", "8", "--stages", "3", "--method", "milp", "--root"]


class Ending(Watch):
    """A watch that ends a run when it is polled from inside HiGHS."""

    inside = False

    def stopped(self) -> bool:
        """Whether it has been."""
        if self.inside:
            self.stop(Stop.INTERRUPTED)
        return super().stopped()

    @contextmanager
    def runs(self) -> Iterator[None]:
        """Around a run of HiGHS."""
        self.inside = True
        yield
        self.inside = False


def test_a_relaxation_ends_once_its_watch_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    built, watch = cpsat.model_of(planner.load("amp-homogeneous")), Ending()
    monkeypatch.setattr(highs_settings, "silent", watch.runs)
    found = built.relaxation(Limits(), watch)
    assert found.bound is None and found.reason == "the relaxation was not solved (interrupted)"
    assert not found.infeasible


@pytest.mark.parametrize("more", [["--root"], ["--read", "a.sol"]])
def test_without_time_there_is_no_model(more: list[str], capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sol").write_text("x 1\n")
    given = [*MODEL[:-1], *more, "--time-limit", "0"]
    assert main(given) == 3
    assert "milp: the model was not built (time_limit)" in capsys.readouterr().out
    assert main([*given, "--json"]) == 3
    shown = json.loads(capsys.readouterr().out)
    assert shown["variables"] is None and shown["reason"] == "the model was not built (time_limit)"


def test_what_was_built_is_shown_where_its_relaxation_takes_too_long(monkeypatch: Any, capsys: Any) -> None:
    relaxation = milp.milp.Runnable.relaxation

    def slow(self: Any, limits: Limits, watch: Watch) -> Any:
        watch.stop(Stop.TIME_LIMIT)
        return relaxation(self, limits, watch)

    monkeypatch.setattr("solvers.milp.backend.Runnable.relaxation", slow)
    assert main([*MODEL, "--json"]) == 3
    shown = json.loads(capsys.readouterr().out)
    assert shown["variables"]["total"] > 0 and shown["root_bound"] is None
    assert shown["root_reason"] == "the relaxation was not solved (time_limit)"


def test_a_signal_ends_what_hangs(listening: list[int], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    released = threading.Event()

    def hangs(_self: OpenModel, limits: Limits) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        released.wait(20)

    monkeypatch.setattr(OpenModel, "root", hangs)
    assert main([*MODEL, "--json"]) == 130
    shown = json.loads(capsys.readouterr().out)
    assert shown["variables"]["total"] > 0 and shown["root_bound"] is None and listening == []
    assert shown["root_reason"] == "the relaxation was not solved (interrupted)"
    released.set()


def test_a_person_sees_what_is_being_done(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[Any] = []

    class Terminal:
        @contextmanager
        def status(self, line: Any) -> Iterator[None]:
            lines.append(line)
            yield

    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(progress, "console", lambda **_: Terminal())
    with progress.words_line(quiet=False) as listen:
        listen("solving")
        assert lines[0].__rich__() == "0 s  solving"
    with progress.words_line(quiet=True) as listen:
        listen("solving")
    assert len(lines) == 1
