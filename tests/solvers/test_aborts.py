"""A solver whose process ends by itself, as where a check in its native code fails, costs its own answer alone."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backend_models import ITEMS, WRITTEN, Bench
from random_instances import against
from small_instances import family_named, known_optimum, random_case

import planner
from formulations import FAMILIES
from planner.cli.app import main
from planner.solving.solve import run
from solvers import BACKENDS
from solvers.cpsat import backend as cpsat
from solvers.external import process
from solvers.external.messages import OWN
from solvers.outcome import Limits, Run, Status, Stop, Watch

#: Run in a solver's process before it takes a task; ``NAME`` is the solver's.
AT_ONCE = """
def abort(*_):
    print("Check failed: of a test", file=sys.stderr, flush=True)
    os.abort()
if NAME == "own/cpsat":
    from solvers.external.own_cpsat import CpSat as Engine
else:
    from solvers.external.own_highs import Highs as Engine
Engine.solve = abort
"""
#: The same once a solution was told.
AFTER_A_SOLUTION = """
from solvers.external import own_cpsat, own_highs
from solvers.external.messages import Solution
def aborting(solve):
    def wrapped(self, task, tell):
        def told(message):
            tell(message)
            if isinstance(message, Solution):
                os.abort()
        return solve(self, task, told)
    return wrapped
own_cpsat.CpSat.solve = aborting(own_cpsat.CpSat.solve)
own_highs.Highs.solve = aborting(own_highs.Highs.solve)
"""
#: After `AT_ONCE`: an answer that no side can make anything of.
UNREADABLE = """
class Answer:
    def __reduce__(self):
        return int, ("no number",)
Engine.solve = lambda *_: Answer()
"""

#: One operator, which two devices share: there is a hint, and the first look refutes the model.
ONE: dict[str, Any] = {
    "problem": "stage_graph",
    "schema_version": 1,
    "name": "one",
    "num_devices": 2,
    "memory_bytes": 1e9,
    "bandwidth_bytes_per_s": 100.0,
    "minibatch": 2,
    "schedule": "uniform",
    "weight_copies": 4,
    "operators": [
        {
            "id": "o0", "forward": {"fixed_s": 6e-07, "per_sample_s": 0.002}, "backward": {"per_sample_s": 1},
            "weight_bytes": 0.0, "activation_bytes": 0,
        }
    ],
    "edges": [],
}  # fmt: skip

#: Three operators on two devices, whose weights take long to be synchronised: no formula proves the best plan.
THREE = {
    **ONE,
    "name": "three",
    "operators": [{**ONE["operators"][0], "weight_bytes": 1e3, "id": name} for name in ("o0", "o1", "o2")],
    "edges": [{"source": "o0", "target": "o1"}, {"source": "o1", "target": "o2"}],
}

Abort = Callable[[str], None]


def _end_idle() -> None:
    for name in OWN:
        for each in process._idle.pop(name, ()):
            each.kill()


@pytest.fixture
def aborting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Abort]:
    """Lets solvers abort, in processes that start from now on."""

    def change(code: str) -> None:
        _end_idle()
        before = f"import os; NAME = {{name!r}}; exec({code!r}); from solvers.external.__main__"
        monkeypatch.setattr(process, "_COMMAND", process._COMMAND.replace("from solvers.external.__main__", before))

    yield change
    _end_idle()


@pytest.fixture
def three(tmp_path: Path) -> str:
    path = tmp_path / "three.json"
    path.write_text(json.dumps(THREE))
    return str(path)


def test_an_abort_is_a_run_that_proves_nothing_and_the_next_run_has_another(bench: Bench, aborting: Abort) -> None:
    aborting(AT_ONCE)
    watch = Watch()
    model, _ = WRITTEN[bench.name](ITEMS)
    found: Run = BACKENDS[bench.name].load().run(model, Limits(), watch)
    assert (found.stop, found.infeasible, found.values, found.bound) == (Stop.COMPLETED, False, None, None)
    assert found.reason.startswith("solver aborted: ")
    assert found.reason.endswith("its process was ended by SIGABRT (Check failed: of a test)")
    assert watch.aborts == [found.reason]


def test_after_an_abort_solvers_are_started_anew(
    bench: Bench, aborting: Abort, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborting(AT_ONCE)
    assert bench.run(ITEMS).reason
    monkeypatch.undo()
    assert bench.run(ITEMS).stop is Stop.PROVED


def test_what_was_found_before_an_abort_is_kept(bench: Bench, aborting: Abort) -> None:
    aborting(AFTER_A_SOLUTION)
    heard: list[Any] = []
    model, _ = WRITTEN[bench.name](ITEMS)
    found = BACKENDS[bench.name].load().run(model, Limits(), on_solution=heard.append)
    assert heard and found.reason.startswith("solver aborted: ") and found.stop is Stop.COMPLETED
    assert found.values is not None and found.objective is not None


def test_an_idle_process_that_has_ended_is_replaced(bench: Bench) -> None:
    bench.run(ITEMS)
    for waiting in process._idle.values():
        for each in waiting:
            each._running.kill()
            each._running.wait()
    assert bench.run(ITEMS).stop is Stop.PROVED


#: A first process waits while another one of its parent searches, and a second one is made in the midst of that search.
FORKED = """
import os, sys
from backend_models import ITEMS, Bench
bench, children, ended = Bench("cpsat"), [], []
bench.run(ITEMS)
waits, goes = os.pipe()
children.append(os.fork())
if not children[0]:
    os.read(waits, 1)
    sys.exit(bench.run(ITEMS).stop != "proved")
def meanwhile(_):
    if not ended:
        os.write(goes, b".")
        ended.append(os.waitpid(children[0], 0)[1])
        children.append(os.fork())
found = bench.run(ITEMS, on_solution=meanwhile)
if not children[1]:
    sys.exit(not found.reason.endswith("the process from which this one was forked"))
print(found.stop, found.reason, ended, os.waitpid(children[1], 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_has_solvers_of_its_own() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr) == ("proved  [0] 0\n", "")


def test_what_is_printed_when_python_starts_is_no_answer(bench: Bench, aborting: Abort) -> None:
    aborting("print('hello', flush=True)")
    assert bench.run(ITEMS).stop is Stop.PROVED


def test_an_answer_that_cannot_be_read_is_called_that(
    bench: Bench, aborting: Abort, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborting(AT_ONCE + UNREADABLE)
    monkeypatch.setattr(process, "_END_S", 0.1)
    assert bench.run(ITEMS).reason.endswith(", its process answered what cannot be read")


def test_a_working_folder_that_is_gone_costs_nothing(
    bench: Bench, aborting: Abort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborting("")
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert bench.run(ITEMS).stop is Stop.PROVED


def test_one_process_waits_of_those_that_ran_at_once(bench: Bench) -> None:
    _end_idle()
    inner: list[Run] = []
    found = bench.run(ITEMS, on_solution=lambda _: inner or inner.append(bench.run(ITEMS)))
    assert (found.stop, inner[0].stop) == (Stop.PROVED, Stop.PROVED)
    name = BACKENDS[bench.name].process
    assert len(process._idle[name]) == 1
    assert [each for each in process._living if each.name == name] == process._idle[name]


def test_after_a_large_model_no_process_waits(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = BACKENDS[bench.name].process
    assert bench.run(ITEMS).stop is Stop.PROVED
    assert process._idle[name]
    monkeypatch.setattr(process, "LARGE_BYTES", 100)
    assert bench.run(ITEMS).stop is Stop.PROVED
    assert not [each for each in process._living if each.name == name]


def test_what_cpsat_aborts_at_is_met_by_no_model_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several workers, a hint and a model that the first look refutes: a newer version may pass this."""
    path = tmp_path / "one.json"
    path.write_text(json.dumps(ONE))
    instance = planner.load(str(path))
    found = planner.solve(instance, method="cpsat", limits=Limits(threads=2))
    assert (found.status, found.reason) == (Status.OPTIMAL, "requested by the user")
    monkeypatch.setattr(cpsat, "_complete_hint", lambda *_: None)
    found = planner.solve(instance, method="cpsat", limits=Limits(threads=2))
    assert "heuristics.fixed_search != nullptr" in found.reason and found.stats["solver_aborts"] > 0
    assert found.plan is not None


@pytest.mark.parametrize("threads", [2, 3])
def test_a_hint_of_several_threads_is_a_whole_solution_or_none(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from ortools.sat.python import cp_model

    tasks: list[Any] = []
    own = process.run_task

    def noting(name: str, task: Any, *given: Any) -> Any:
        tasks.append(task)
        return own(name, task, *given)

    monkeypatch.setattr(process, "run_task", noting)
    for value, hints in ((1, 10), (0, 0)):
        model = cp_model.CpModel()
        ones = [model.new_bool_var(f"one[{place}]") for place in range(10)]
        model.add(sum(ones[:5]) >= 3)
        model.add_bool_or(ones[0], ones[1])
        model.minimize(sum(ones))
        for each in ones[:2] if value else ones:
            model.add_hint(each, value)
        before = str(model.proto)
        tasks.clear()
        found = cpsat.run(model, Limits(threads=threads))
        assert (found.stop, found.objective) == (Stop.PROVED, 3.0)
        assert str(model.proto) == before
        assert [task.parameters.count(f"num_workers: {threads}") for task in tasks] == [0, 1]
        hint = tasks[-1].model.partition("solution_hint")[2]
        assert hint.count("vars:") in (hints, 10)


def test_the_command_line_says_it_and_another_method_goes_on(
    three: str, aborting: Abort, capsys: pytest.CaptureFixture[str]
) -> None:
    aborting(f"if NAME == 'own/cpsat': exec({AT_ONCE!r})")
    assert main(["solve", three, "--method", "cpsat", "--json"]) == 3
    asked = json.loads(capsys.readouterr().out)
    assert "solver aborted: CP-SAT, its process was ended by SIGABRT" in asked["reason"]
    assert main(["solve", three, "--require", "num_stages <= 2", "--json"]) == 0
    handed = json.loads(capsys.readouterr().out)
    assert "cpsat" in handed["stats"]["tried"] and "solver aborted: CP-SAT" in handed["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [family.name for family in FAMILIES])
def test_a_method_whose_solver_aborts_has_a_result(name: str, aborting: Abort) -> None:
    """Whatever a method does with its models: no error, no claim that is false, and the reason says what happened."""
    aborting(AT_ONCE)
    family = family_named(name)
    tried = 0
    for number in range(3):
        instance = random_case(name, 5, number)
        known = known_optimum(name, instance)
        for method in family.methods:
            if not method.backend or method.misfit(instance) is not None:
                continue
            found = run(family, method, instance, Limits(time_s=20.0), {})
            tried += "solver_aborts" in found.stats
            assert ("solver aborted" in found.reason) == ("solver_aborts" in found.stats)
            if known[0]:
                assert against(known[1], [found]) == []
    assert tried
