"""Heuristics on a population: totals known by hand, what may go wrong in a heuristic, one result whoever solves it."""

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from validation_totals import totals

import formulations
import planner
from formulations.contract.family import Answer
from formulations.tmpc_knapsack import FAMILY
from instances.problems.tmpc_knapsack import Choice, KnapsackInstance, KnapsackNode, generate
from planner.experiments.validation import records
from planner.experiments.validation.run import Validation
from planner.process.errors import UsageError
from solvers.outcome import Stop

Run = Callable[..., tuple[int, str, str]]

#: The slow option needs no memory, the fast one does.
BY_HAND = """
def slowest(instance):
    return {"choice": {str(node.id): "slow" for node in instance.nodes}}

def first_fast(instance):
    fast = {str(instance.nodes[0].id): "fast"}
    return {"choice": {str(node.id): "slow" for node in instance.nodes} | fast}
"""


def knapsack(name: str, capacity: float, *slow: float) -> KnapsackInstance:
    """A node for each of the times of the slow option; the fast one takes 1 and needs 1 byte."""
    nodes = [KnapsackNode(v, (Choice("fast", 1.0, 1.0), Choice("slow", time, 0.0))) for v, time in enumerate(slow)]
    return KnapsackInstance(name, tuple(nodes), capacity)


#: Optima: 2 + 1 = 3 of 1 byte, 1 + 1, 5 + 1, and none.
POPULATION = [
    knapsack("tight", 1.0, 2.0, 4.0),
    knapsack("free", 2.0, 2.0, 4.0),
    knapsack("large", 1.0, 5.0, 5.0),
    KnapsackInstance("none", (KnapsackNode(0, (Choice("slow", 1.0, 9.0),)),), 1.0),
]


@pytest.fixture
def methods(run: Run) -> Run:
    """Writes the methods into the folder that `run` made, and the population as rows."""
    Path("by_hand.py").write_text(BY_HAND)
    Path("four.jsonl").write_text("".join(json.dumps(FAMILY.to_json(each)) + "\n" for each in POPULATION))
    return run


def test_totals_are_those_by_hand(methods: Run) -> None:
    code, out, _ = methods(
        *("validate", "four.jsonl", "--methods", "./by_hand.py:slowest,./by_hand.py:first_fast,piper"),
        *("--against", "exact", "--out", "run", "--json"),
    )
    found = json.loads(out)
    slowest, first, piper = (
        found["methods"][name] for name in ("./by_hand.py:slowest", "./by_hand.py:first_fast", "piper")
    )
    assert code == 0 and list(found) == [
        *("problem", "against", "instances", "infeasible", "unproved", "methods", "worst", "out")
    ]
    assert found["problem"] == "tmpc_knapsack" and found["against"] == "exact" and found["out"] == "run"
    assert (found["instances"], found["infeasible"], found["unproved"]) == (4, 1, 0)
    names = ["optimal", "suboptimal", "no_plan", "invalid", "errors", "mean_loss", "p95_loss", "worst_loss", "seconds"]
    assert all(list(each) == names for each in (slowest, first, piper))
    # slowest: 6 / 3 - 1, 6 / 2 - 1, 10 / 6 - 1; a slow choice breaks the capacity where there is no plan at all
    assert [slowest[name] for name in names[:5]] == [0, 3, 0, 1, 0]
    assert slowest["mean_loss"] == pytest.approx((1 + 2 + 2 / 3) / 3)
    assert slowest["worst_loss"] == slowest["p95_loss"] == pytest.approx(2.0)
    # first_fast: (1 + 4) / 3 - 1, 5 / 2 - 1, 0; "fast" is no option of the last
    assert [first[name] for name in names[:5]] == [1, 2, 0, 1, 0]
    assert first["mean_loss"] == pytest.approx((2 / 3 + 1.5) / 3) and first["worst_loss"] == pytest.approx(1.5)
    assert [piper[name] for name in names[:5]] == [3, 0, 0, 0, 0] and piper["worst_loss"] == 0.0
    assert slowest["seconds"] > 0
    # the worst first, as files that solve reads
    worst = found["worst"]
    assert [planner.load(file).name for file in worst["./by_hand.py:slowest"]] == ["free", "tight", "large"]
    assert [planner.load(file).name for file in worst["./by_hand.py:first_fast"]] == ["free", "tight"]
    assert worst["piper"] == []
    code, out, _ = methods("solve", worst["./by_hand.py:slowest"][0], "--exact", "--json")
    assert code == 0 and json.loads(out)["objective"] == 2.0
    assert planner.load("run/instances.jsonl#2") == POPULATION[2]
    # a row says what came of every method
    rows = rows_of("run")
    assert [(row["number"], row["method"]) for row in rows] == list(product(range(4), [*found["methods"], "exact"]))
    own = [row for row in rows if row["method"] == "./by_hand.py:first_fast"]
    assert [row["outcome"] for row in own] == ["suboptimal", "suboptimal", "optimal", "invalid"]
    assert [row["optimum"] for row in own] == [3.0, 2.0, 6.0, None]
    assert [row["infeasible"] for row in own] == [False, False, False, True]
    assert [row["size"] for row in own] == [2, 2, 2, 1]
    assert [row["memory_pressure"] for row in own] == [2.0, 1.0, 2.0, 9.0]
    assert own[0]["loss"] == pytest.approx(2 / 3) and own[0]["instance"] == "tight"
    assert own[3]["reason"].startswith("returned a plan that breaks") and own[0]["reason"] == ""
    assert [row["outcome"] for row in rows if row["method"] == "exact"] == ["optimal"] * 3 + ["infeasible"]


def rows_of(folder: str) -> list[dict[str, Any]]:
    pytest.importorskip("pyarrow")
    import pyarrow.parquet

    table: list[dict[str, Any]] = pyarrow.parquet.read_table(f"{folder}/rows.parquet").to_pylist()
    return table


def test_without_a_proof_losses_are_to_the_bound_and_it_is_stated(run: Run) -> None:
    code, out, _ = run("validate", "chain8", "--methods", "equi,piper", "--against", "piper", "--out", "run", "--quiet")
    assert code == 0 and "0 infeasible, 1 unproved" in out and "<= " in out and "1 optimum is not proved" in out
    found = planner.validate("chain8", methods=["equi", "piper"], against="piper", out="run")
    (record,) = found.records
    assert record["optimum"] is None and found.unproved == 1
    results = planner.crosscheck(planner.load("chain8"), methods=["equi", "piper"]).results
    bound = max(result.bound for result in results if result.bound is not None)
    for result in results:
        assert record["rows"][result.method]["loss"] == pytest.approx(result.objective / bound - 1)
    best = min(result.objective for result in results)
    for result in results:
        is_best = math.isclose(result.objective, best, rel_tol=1e-6)
        assert record["rows"][result.method]["outcome"] == ("open" if is_best else "suboptimal")
        assert found.methods[result.method].optimal == 0


@pytest.mark.slow
def test_identical_instances_are_solved_once_and_counted_as_often_as_they_are_drawn(methods: Run) -> None:
    Path("counted.py").write_text(
        "def solve(instance):\n    open('calls', 'a').write('x')\n"
        "    return {'choice': {str(n.id): min(n.options, key=lambda o: o.memory_bytes).id for n in instance.nodes}}\n"
    )
    given = ["validate", "knapsack:nodes=3..4,seed=1", "--count", "40", "--methods", "./counted.py:solve"]
    code, out, _ = methods(*given, "--out", "run", "--json")
    found = json.loads(out)
    assert code == 0 and found["instances"] == 40 and Path("calls").read_text() == "xx"
    own = found["methods"]["./counted.py:solve"]
    assert own["optimal"] + own["suboptimal"] == 40
    assert len(Path("run/instances.jsonl").read_text().splitlines()) == 40
    assert len(found["worst"]["./counted.py:solve"]) <= 2
    rows = [json.loads(line) for line in Path("run/instances.jsonl").read_text().splitlines()]
    Path("renamed.jsonl").write_text(
        "".join(json.dumps({**row, "name": f"row {n}"}) + "\n" for n, row in enumerate(rows))
    )
    renamed = planner.validate("renamed.jsonl", methods=["./counted.py:solve"], out="renamed")
    assert Path("calls").read_text() == "xxxx" and [each["instance"] for each in renamed.records][3] == "row 3"
    again = planner.validate("run", methods=["./counted.py:solve"], out="again")  # its population is a source
    assert totals(again)["methods"] == {"./counted.py:solve": {k: v for k, v in own.items() if k != "seconds"}}


def test_plans_from_elsewhere_are_rows(methods: Run) -> None:
    Path("plan.json").write_text(json.dumps({"choice": {"0": "fast", "1": "slow"}}))
    given = ["validate", "four.jsonl", "--methods", "piper", "--plan", "theirs=plan.json", "--out", "run", "--json"]
    code, out, _ = methods(*given)
    theirs = json.loads(out)["methods"]["theirs"]
    assert code == 0 and [theirs[name] for name in ("optimal", "suboptimal", "invalid")] == [1, 2, 1]


def test_a_bound_that_a_plan_refutes_is_a_contradiction_with_a_reproducer(methods: Run, monkeypatch: Any) -> None:
    sure = replace(FAMILY.method("exact"), name="sure", solve=lambda *_: Answer(bound=100.0, stop=Stop.COMPLETED))
    monkeypatch.setattr(formulations, "FAMILIES", (replace(FAMILY, methods=(*FAMILY.methods, sure)),))
    Path("two.jsonl").write_text("".join(Path("four.jsonl").read_text().splitlines(keepends=True)[:2]))
    code, out, err = methods("validate", "two.jsonl", "--methods", "sure,piper", "--out", "run", "--json")
    assert code == 5 and json.loads(out)["instances"] == 2
    said = [line for line in err.splitlines() if line.startswith("contradiction: two.jsonl#0")]
    assert len(said) == 1 and "sure claims the lower bound 100.0" in said[0]
    reproducer = said[0].partition("reproducer: ")[2].rstrip(")")
    assert planner.load(reproducer) == POPULATION[0]


def test_a_method_that_refuses_an_instance_has_no_plan(run: Run) -> None:
    found = planner.validate("layers", methods=["parameters", "amp"], out="run")
    assert (found.methods["parameters"].no_plan, found.methods["amp"].no_plan) == (1, 0)
    assert found.records[0]["rows"]["parameters"]["reason"] == "left out: the layers' parameters are unknown"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--methods", "nope"], "method is 'nope'; expected one of"),
        (["--against", "nope"], "method is 'nope'"),
        (["--methods", "piper,piper"], "expected piper once"),
        (["--methods", "./none.py:solve"], "FILE.py:FUNCTION with a file that can be read"),
        (["--plan", "a=none.json"], "none.json: file is"),
        (["--ring", "index"], "unknown option --ring for tmpc_knapsack"),
        (["--jobs", "2", "--dask", "tcp://127.0.0.1:1"], "--jobs is 2; expected none with --dask"),
        (["--jobs", "0"], "--jobs is '0'; expected greater than or equal to 1"),
        (["--count", "0"], "--count is '0'; expected greater than or equal to 1"),
    ],
)
def test_bad_usage_is_one_line_before_anything_is_written(methods: Run, given: list[str], words: str) -> None:
    code, out, err = methods("validate", "four.jsonl", *given, "--out", "run")
    assert code == 2 and not out and words in err and err.count("\n") == 1 and not Path("run").exists()


def test_functions_of_this_process_need_it(run: Run) -> None:
    @planner.method("tmpc_knapsack", name="here")
    def solve(instance: Any) -> Any:
        return {"choice": {str(node.id): "slow" for node in instance.nodes}}

    assert planner.validate(POPULATION[:2], methods=["here"], out="run").methods["here"].suboptimal == 2
    with pytest.raises(UsageError, match=r"methods is 'here'; expected FILE.py:FUNCTION with --jobs"):
        planner.validate(POPULATION[:2], methods=["here"], out="other", jobs=2)


def test_without_the_extras_there_are_json_lines_and_a_word_about_it(methods: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr("planner.files.rows.is_columnar", lambda: False)
    monkeypatch.setattr("planner.experiments.validation.folders.is_columnar", lambda: False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    code, _, err = methods("validate", "four.jsonl", "--methods", "piper", "--out", "run")
    assert code == 0 and err.splitlines() == [
        "no pictures: they need vl-convert-python (pip install '.[plot]')",
        "run/rows.jsonl is JSON lines: parquet needs pyarrow (pip install '.[columnar]')",
    ]
    rows = [json.loads(line) for line in Path("run/rows.jsonl").read_text().splitlines()]
    assert [row["method"] for row in rows] == ["piper", "exact"] * 4 and not list(Path("run").glob("*.png"))
    assert list(rows[0]) == list(records.COLUMNS)


@pytest.mark.slow
def test_several_instances_of_crosscheck_and_bench(methods: Run) -> None:
    code, out, _ = methods("crosscheck", "four.jsonl", "--methods", "exact,piper", "--json")
    found = json.loads(out)
    assert code == 0 and found["agree"] and found["instances"] == 4
    assert [report["optimum"] for report in found["reports"]] == [3.0, 2.0, 6.0, None]
    code, out, _ = methods("crosscheck", "four.jsonl", "--methods", "exact,piper")
    assert code == 0 and out.count("four.jsonl#") == 4
    assert out.splitlines()[-1] == "4 instances: the methods agree; 3 optima proved, 1 infeasible"
    assert methods("crosscheck", "four.jsonl#3", "--methods", "exact,piper", "--quiet")[0] == 4
    code, _, err = methods("crosscheck", "four.jsonl", "chain8", "--methods", "exact", "--plot", "x.png")
    assert code == 2 and err == "--plot is 'x.png'; expected one instance; there are 5\n"
    given = ["bench", "knapsack:nodes=3..5", "--count", "2", "--methods", "exact,piper"]
    measured = [methods(*given, "--repeats", "1", *jobs, "--json", "--quiet") for jobs in ((), ("--jobs", "2"))]
    here, there = (
        {row["case"] + str(row["settings"]) + row["method"]: row for row in json.loads(out)["rows"]}
        for _, out, _ in measured
    )
    assert len(here) == 2 * 2 and here.keys() == there.keys() and [code for code, *_ in measured] == [0, 0]
    for key, row in here.items():
        assert {name: row[name] for name in ("objective", "loss", "status", "source", "reason")} == {
            name: there[key][name] for name in ("objective", "loss", "status", "source", "reason")
        }


@pytest.mark.slow
def test_pictures_are_drawn(methods: Run) -> None:
    pytest.importorskip("vl_convert")
    assert methods("validate", "four.jsonl", "--methods", "piper,exact", "--out", "run")[0] == 0
    for name in ("losses", "profile", "features"):
        assert (Path("run") / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert b"/MediaBox [0 0 244.8 " in (Path("run") / f"{name}.pdf").read_bytes(), "3.4 inches, a column of two"


def test_memory_pressure_is_a_share_of_what_there_is() -> None:
    stages: Any = planner.load("chain8", memory="40MB")
    from formulations.stage_partitioning import FAMILY as STAGES

    least = sum(
        min(t * (tmpc.static_bytes + tmpc.activation_bytes) for t, tmpcs in layer.tmpcs.items() for tmpc in tmpcs)
        for layer in stages.layers
    )
    assert STAGES.memory_pressure(stages) == pytest.approx(least / (4 * 40e6))
    free = generate(4, tightness=1.0)
    assert FAMILY.memory_pressure(free) is not None


METHODS = ["piper", "./slow.py:solve"]
#: Fails on some instances, is slow where a file says so, and keeps a record of its calls.
SLOW = """
import os, time

def solve(instance):
    with open(os.path.join(os.path.dirname(__file__), "calls"), "a") as file:
        file.write(instance.name + "\\n")
    if os.path.exists(os.path.join(os.path.dirname(__file__), "slowly")):
        time.sleep(0.4)
    if len(instance.nodes) == 5:
        raise ValueError("five")
    return {"choice": {str(n.id): min(n.options, key=lambda o: o.memory_bytes).id for n in instance.nodes}}
"""
COUNT = 5


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in with a method and a population."""
    monkeypatch.chdir(tmp_path)
    Path("slow.py").write_text(SLOW)
    made = [generate(3 + number % 4, seed=number) for number in range(COUNT)]
    Path("some.jsonl").write_text("".join(json.dumps(FAMILY.to_json(each)) + "\n" for each in made))
    return tmp_path


def whole(out: str = "whole", **more: Any) -> Validation:
    return planner.validate("some.jsonl", methods=METHODS, out=out, **more)


def calls() -> list[str]:
    return Path("calls").read_text().splitlines() if Path("calls").exists() else []


def lines() -> int:
    journal = Path("out/journal.jsonl")
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def started(*more: str) -> subprocess.Popen[str]:
    given = ["validate", "some.jsonl", "--methods", ",".join(METHODS), "--out", "out", "--json", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "planner", *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def killed_after_some(*more: str) -> None:
    """A validation that is ended by kill -9 when three instances are done."""
    Path("slowly").touch()
    with started(*more) as process:
        while lines() < 3:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.kill()
        process.communicate(timeout=60)
    Path("slowly").unlink()


@pytest.mark.slow
def test_a_killed_validation_goes_on(folder: Path) -> None:
    """In another way than it began: what processes found is what this one finds."""
    killed_after_some("--jobs", "2")
    done = lines()
    assert 3 <= done < COUNT and not list(Path("out").glob("rows*"))
    before = len(calls())
    found = whole("out")
    assert len(calls()) - before == COUNT - done  # nothing that was kept is solved again
    assert totals(found) == totals(whole()) and found.methods["./slow.py:solve"].errors > 0


@pytest.fixture(params=[1, 2])
def cluster(folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """Workers that are at home in another folder."""
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with distributed.LocalCluster(
        n_workers=request.param, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as local:
        monkeypatch.chdir(folder)
        yield local.scheduler_address


@pytest.mark.slow
def test_a_cluster_killed_once_and_continued_equals_this_process(folder: Path, cluster: str) -> None:
    killed_after_some("--dask", cluster)
    assert 3 <= lines() < COUNT
    found = whole("out", dask=cluster)
    assert totals(found) == totals(whole())
    assert found.instances == found.wanted == COUNT


@pytest.mark.slow
def test_a_validation_that_was_killed_before_its_population_was_written_goes_on(folder: Path) -> None:
    first = whole("out")
    for path in Path("out").iterdir():
        if path.name != "validate.json":
            path.unlink()
    assert totals(whole("out")) == totals(first) and len(Path("out/instances.jsonl").read_text().splitlines()) == COUNT


@pytest.mark.slow
def test_another_folder_is_refused(folder: Path) -> None:
    Path("other").mkdir()
    Path("other/letter.txt").write_text("dear reader")
    with pytest.raises(UsageError, match="--out is 'other'; expected an empty folder"):
        whole("other")
    assert [path.name for path in Path("other").iterdir()] == ["letter.txt"]
    whole("out")
    for more in ({"against": "cpsat"}, {"seed": 1}, {"memory": "1MB"}, {"limits": planner.Limits(time_s=7.0)}):
        with pytest.raises(UsageError, match="of this very validation by this very program, or a new one"):
            whole("out", **more)
    Path("slow.py").write_text(SLOW + "# another file\n")
    with pytest.raises(UsageError, match=r"very validation .*what differs: methods ./slow.py:solve \(has changed\)$"):
        whole("out")
    with pytest.raises(UsageError, match="--out is 'slow"):
        whole("slow.py")


@pytest.mark.parametrize(("jobs", "number"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
@pytest.mark.slow
def test_a_signal_ends_it_with_what_is_known_and_it_goes_on(jobs: int, number: int, folder: Path) -> None:
    """Though the method would take minutes for each instance but the first."""
    text = SLOW.replace("time.sleep(0.4)", "time.sleep(600 if open('calls').read().count('\\n') > 3 else 0)")
    Path("slow.py").write_text(text)
    Path("slowly").touch()
    with started("--jobs", str(jobs), "--time-limit", "600") as process:
        while len(calls()) < 4 or lines() < 2:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(number)
        try:
            out, err = process.communicate(timeout=100)
        finally:
            process.kill()
    assert process.returncode == 128 + number, err
    found = json.loads(out)
    assert 2 <= found["instances"] < COUNT and "the same command resumes" in err and "Traceback" not in err
    assert "matplotlib" not in err
    assert found["instances"] == lines()
    assert found["methods"]["piper"]["optimal"] + found["methods"]["piper"]["suboptimal"] == found["instances"]
    Path("slowly").unlink()
    assert whole("out", limits=planner.Limits(600.0)).instances == COUNT


@pytest.mark.slow
def test_a_signal_while_a_source_is_read_ends_it_at_once(folder: Path) -> None:
    given = [sys.executable, "-m", "planner", "validate", "-", "--out", "out"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(given, **pipes) as process:
        try:
            time.sleep(4)  # until it reads
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
    assert not Path("out").exists()
