"""Methods that users bring: whatever they do is a result with a reason, and nothing of them is left behind."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from counting import FAMILY, Counting
from load import allowed_s
from thinned import thinned

import planner
from formulations.contract.family import Claim
from planner import Limits, Status, Stop, UsageError
from planner.cli.app import main
from planner.experiments.bench.measure import MeasuredRow, measure
from planner.experiments.bench.suites import Case
from planner.plugins import methods, registry
from planner.plugins.replies import Bound, Failed, Plan, ReplyError, parse_reply
from planner.process.supervised import Supervised
from planner.process.target import Target

Bring = Callable[[str], str]
Run = Callable[..., tuple[int, str, str]]
FOUR = Counting("four", (1, 2, 3, 4), 5)
slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture
def bring(tmp_path: Path) -> Bring:
    """Writes a file with these lines as the body of ``solve(instance)``; returns the method's name."""

    def write(body: str, arguments: str = "instance") -> str:
        path = tmp_path / "mine.py"
        path.write_text(f"def solve({arguments}):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n")
        return f"{path}:solve"

    return write


def test_a_plan_in_its_json_form_is_verified(bring: Bring) -> None:
    found = planner.solve(FOUR, method=bring("return {'picked': (3, 1)}"))
    assert (found.status, found.objective, found.verified, found.claim) == (Status.FEASIBLE, 2.0, True, "heuristic")
    assert found.bound is None and found.proved_by is None and found.plan == {"picked": [3, 1]}
    assert len(found.stats["sha256"]) == 64


@thinned(
    ("body", "failure", "words"),
    [
        ("raise ValueError('no\\nidea')", "error", "raised ValueError: no idea (line 2 of mine.py)"),
        slow(
            r"raise ValueError('\ud800, no idea')", "error", r"raised ValueError: \ud800, no idea (line 2 of mine.py)"
        ),
        slow("raise SystemExit(7)", "error", "raised SystemExit: 7 (line 2 of mine.py)"),
        ("return None", "no_plan", "returned None, not a plan"),
        ("yield 3", "error", "returned <generator object solve>, which is no plan of counting"),
        ("return {'picked': solve}", "error", "returned what is no JSON: <function solve> in a plan"),
        ("return {'picked': [9]}", "invalid_plan", "returned what is no plan of this instance: plan: picked is [9]"),
        ("return {'picked': [0]}", "invalid_plan", "returned a plan that breaks target: 1 of 5"),
        ("import os; os._exit(3)", "error", "its process ended with exit code 3"),
        slow("import os; os.kill(os.getpid(), 9)", "error", "its process was ended by SIGKILL"),
        ("import os; [os.write(n, b'x\\n') for n in range(3, 9) if n > 2]", "error", ""),
        # Of each of their kinds one is above.
        slow(
            r"return type('T', (), {'__repr__': lambda _: '\ud800'})()", "error", r"returned \ud800, which is no plan"
        ),
        slow("return float('nan')", "error", "returned nan, which is no plan of counting"),
        slow("import os; os.closerange(3, 99); return {}", "error", "its process ended with exit code 1"),
        slow(r"raise ValueError('\ud800' * 999)", "error", r"raised ValueError: \ud800\ud800"),
        slow("return {'picked': [float('nan')]}", "error", "returned what is no JSON"),
        slow("plan = {}; plan['picked'] = plan; return plan", "error", "returned what is no JSON"),
        slow("return {'stages': []}", "invalid_plan", "no plan of this instance: plan: picked is"),
    ],
    2,
)
def test_whatever_a_function_does_is_a_result_with_a_reason(bring: Bring, body: str, failure: str, words: str) -> None:
    found = planner.solve(FOUR, method=bring(body), limits=Limits(time_s=20))
    assert (found.status, found.stop, found.plan) == (Status.UNKNOWN, Stop.COMPLETED, None)
    assert found.stats["failure"] == failure
    assert words in found.reason and "\n" not in found.reason


def test_ending_a_process_takes_nothing_from_its_row(bring: Bring, tmp_path: Path, monkeypatch: Any) -> None:
    """However long it takes to end what a function left: its plan, its words and its seconds are as they were."""
    hangs = tmp_path / "hangs"
    name = bring(f"import os, time; time.sleep(60 * os.path.exists({str(hangs)!r})); return {{'picked': [1, 2]}}")
    assert planner.solve(FOUR, method=name).objective == 2.0
    own = Supervised._end
    wait_s = allowed_s(0.6)
    monkeypatch.setattr(Supervised, "_end", lambda process: (time.sleep(1.1 * wait_s), own(process)))
    honest = planner.solve(FOUR, method=name, limits=Limits(time_s=wait_s))
    assert (honest.stop, honest.objective) == (Stop.COMPLETED, 2.0) and honest.seconds < wait_s
    hangs.touch()
    found = planner.solve(FOUR, method=name, limits=Limits(time_s=0.1))
    assert (found.status, found.stop, found.stats["failure"]) == (Status.UNKNOWN, Stop.TIME_LIMIT, "stopped")
    assert found.reason.endswith("; its process was ended at the time limit") and len(found.stats["sha256"]) == 64
    assert found.seconds < wait_s and "left_behind" not in found.stats


def test_importing_does_not_count(tmp_path: Path) -> None:
    wait_s = allowed_s(0.5)
    text = f"import time\ntime.sleep({1.1 * wait_s})\ndef solve(instance): return {{'picked': [1, 2]}}"
    (tmp_path / "slow.py").write_text(text)
    found = planner.solve(FOUR, method=f"{tmp_path}/slow.py:solve", limits=Limits(time_s=wait_s))
    assert found.objective == 2.0 and found.seconds < wait_s


@pytest.mark.parametrize(("begin_s", "counts"), [(30.0, False), (0.1, True)])
def test_who_delays_its_call_does_not_move_the_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begin_s: float, counts: bool
) -> None:
    """The transfer of an instance does not count, as long as it takes no longer than transfers do."""
    monkeypatch.setattr(methods, "BEGIN_S", begin_s)
    wait_s = allowed_s(0.4)
    text = "import pickle, time\nloads = pickle.loads\n"
    text += f"pickle.loads = lambda held: (time.sleep({wait_s}), loads(held))[1]\n"
    (tmp_path / "mine.py").write_text(text + "def solve(instance): return {'picked': [1, 2]}")
    found = planner.solve(FOUR, method=f"{tmp_path}/mine.py:solve", limits=Limits(time_s=30.0))
    assert found.objective == 2.0 and (found.seconds >= wait_s) == counts


def test_what_it_prints_is_in_the_result_and_not_on_standard_error(bring: Bring, problem: Any, capfd: Any) -> None:
    body = """
        import os, subprocess, sys, threading
        thread = threading.Thread(target=lambda: 1 / 0)  # Python prints its traceback
        thread.start(), thread.join()
        subprocess.run([sys.executable, "-c", "1 / 0"])
        os.write(2, b"\\x1b[31m" + 9000 * b"thinking ")
        os.write(1, b"\\xff\\n")
        print("done")
        return {'picked': [1, 2]}
    """
    assert main(["solve", problem(), "--method", bring(body), "--json"]) == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert found["objective"] == 2.0 and err == ""
    printed = found["stats"]["printed"]
    assert printed.endswith("thinking thinking \ufffd\ndone") and len(printed) == 2000


def test_the_last_words_of_a_process_that_dies_are_in_the_reason(bring: Bring) -> None:
    found = planner.solve(FOUR, method=bring("import os; print('first'); print('no\\tlicence'); os.abort()"))
    assert found.reason.endswith("its process was ended by SIGABRT, and printed last: no licence")
    assert found.stats["printed"] == "first\nno licence"


def test_a_function_with_a_watch_reports_plans_and_stops(bring: Bring) -> None:
    body = """
        import time
        watch.plan({'picked': [0, 1, 2]}, 3)
        watch.plan({'picked': [0]})
        watch.plan({'picked': [0, 1, 2, 3]}, 4)
        assert limits.time_s > 0 and limits.seed == 7
        while not watch.stopped():
            time.sleep(0.01)
        return {'picked': [1, 2]}
    """
    limits = Limits(time_s=1.0, seed=7)
    seen: list[float | None] = []
    method = bring(body, "instance, limits, watch")
    found = planner.solve(FOUR, method=method, limits=limits, listen=lambda event: seen.append(event.objective))
    assert (found.objective, found.stop) == (2.0, Stop.TIME_LIMIT)
    assert seen == [3.0, 2.0] and "reported a plan that breaks target: 1 of 5" in found.reason


@thinned(
    ("claim", "bound", "status", "proved_by", "words"),
    [
        ("exact", 2.0, Status.OPTIMAL, "mine", ""),
        ("exact", 1.0, Status.FEASIBLE, "mine", ""),
        slow("exact", None, Status.FEASIBLE, None, ""),
        ("exact", 2.5, Status.FEASIBLE, None, "its bound 2.5 does not count: its own plan has 2"),
        ("heuristic", 2.0, Status.FEASIBLE, None, "its bound 2 does not count: it does not claim to be exact"),
        slow("exact", float("inf"), Status.FEASIBLE, None, ""),
    ],
    2,
)
def test_a_claim_of_exactness_needs_a_bound(
    monkeypatch: pytest.MonkeyPatch, claim: str, bound: float | None, status: Status, proved_by: str | None, words: str
) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})

    @planner.method("counting", name="mine", claim=claim)
    def solve(instance: Any, watch: Any) -> Any:
        if bound is not None:
            watch.bound(bound)
        return {"picked": [1, 2]}

    found = planner.solve(FOUR, method="mine", exact=claim == "exact")
    assert (found.status, found.proved_by, found.claim) == (status, proved_by, claim)
    assert words in found.reason
    if claim == "heuristic":
        with pytest.raises(UsageError, match="an exact method"):
            planner.solve(FOUR, method="mine", exact=True)


def test_a_false_bound_contradicts_the_plans_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})

    @planner.method("counting", claim="exact")
    def boastful(instance: Any, watch: Any) -> Any:
        watch.bound(3.0)
        return {"picked": [0, 1, 2]}

    report = planner.crosscheck(FOUR, methods=["exact", "boastful"], reproducers=None)
    assert report.contradictions == (
        "boastful claims the lower bound 3.0, but exact has a verified plan of 2.0 numbers",
    )
    assert planner.solve(FOUR, method="boastful").status is Status.OPTIMAL  # alone nobody contradicts it


def test_functions_of_this_process_are_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    extra = [1, 2]

    @planner.method("counting", name="mine")
    def solve(instance: Any) -> Any:
        return {"picked": extra}

    assert solve(FOUR) == {"picked": [1, 2]}
    extra[:] = [0, 1, 2]
    report = planner.crosscheck(FOUR)
    assert [result.method for result in report.results] == ["exact", "greedy", "mine"]
    assert report.results[-1].objective == 3.0
    for wrong, rule in (
        ({"problem": "counting", "name": "exact"}, "a name that no method of counting has"),
        ({"problem": "counting", "name": "auto"}, "a name that no method of counting has"),
        ({"problem": "counting", "claim": "sure"}, "heuristic or exact"),
        ({"problem": "none"}, "problem is 'none'"),
    ):
        with pytest.raises(UsageError, match=rule):
            planner.method(**wrong)(solve)
    with pytest.raises(UsageError, match="signature is"):
        planner.method("counting")(lambda _, more: more)
    lock = threading.Lock()

    @planner.method("counting", name="unsendable")
    def _(instance: Any) -> Any:
        return lock

    with pytest.raises(UsageError, match="expected a function that a process of its own can get"):
        planner.solve(FOUR, method="unsendable")


def test_installed_packages_offer_methods(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "offering.py").write_text(
        "import planner\n@planner.method('stage_partitioning', claim='exact')\n"
        "def whole(instance):\n    return planner.solve(instance, method='equi')\n"
    )
    (tmp_path / "offering-1.dist-info").mkdir()
    (tmp_path / "offering-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1\n")
    (tmp_path / "offering-1.dist-info" / "entry_points.txt").write_text(f"[{registry.GROUP}]\nwhole = offering:whole\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = planner.solve(planner.load("chain8"), method="whole")
    assert (found.method, found.claim, found.status) == ("whole", "exact", Status.FEASIBLE)
    with pytest.raises(UsageError, match="problem is 'stage_partitioning'; expected counting"):
        planner.solve(FOUR, method="whole")


@thinned(
    ("text", "function", "words"),
    [
        (None, "solve", "method is '{file}:solve'; expected FILE.py:FUNCTION with a file that can be read (No such"),
        ("def other(instance): pass", "solve", "{file}: function is 'solve'; expected one of other"),
        ("solve = 3", "solve", "{file}: function is 'solve'; expected a function that it has; there is none"),
        ("def solve(a, b): pass", "solve", "{file}:solve: signature is '(a, b)'; expected (instance) or (instance, li"),
        slow("x = 1\nimport nothing_of_this_name", "solve", "ModuleNotFoundError: No module named"),
        ("x = 1\nx.y", "solve", "{file}: import is \"AttributeError: 'int' object has no attribute 'y' (line 2 of "),
        ("def solve(", "solve", "(line 1 of mine.py)"),
        ("import os; os._exit(1)", "solve", "{file}:solve: the process that imports it ended with exit code 1"),
        slow("raise SystemExit", "solve", "{file}: import is 'SystemExit (line 1 of mine.py)'; "),
        ("", "", "{file}: function is ''"),
    ],
    2,
)
def test_a_file_that_cannot_be_used_is_one_line(
    run: Run, problem: Any, tmp_path: Path, text: str | None, function: str, words: str
) -> None:
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    both = (["solve", problem(), "--method"], ["crosscheck", problem(), "--methods"])
    for command in both if text == "solve = 3" else both[:1]:
        code, out, err = run(*command, f"{path}:{function}")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert words.format(file=path)[:60] in err


def test_an_import_that_hangs_is_ended(bring: Bring, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(methods, "IMPORT_S", 0.5)
    (tmp_path / "mine.py").write_text("while True: pass")
    with pytest.raises(UsageError, match=r"mine\.py:solve: import takes more than 0\.5 s"):
        planner.solve(FOUR, method=f"{tmp_path}/mine.py:solve")


GOOD = """{'stages': [{'nodes': list(range(8)), 'dp_degree': 1, 'tp_degree': 1,
                       'tmpcs': {str(n): 'keep' for n in range(8)}}]}"""


@pytest.mark.parametrize(
    ("how", "then"),
    [
        ("crosscheck", "os.unlink(__file__)"),
        pytest.param("validate", "open(__file__, 'w').write('1 / 0')", marks=pytest.mark.slow),
        ("bench", "os.unlink(__file__); os.mkfifo(__file__)"),
    ],
)
def test_all_runs_are_of_the_text_that_a_file_had_at_first(bring: Bring, tmp_path: Path, how: str, then: str) -> None:
    """Whatever becomes of it: no row is lost, and none is of another text."""
    method = bring(f"import contextlib, os\nwith contextlib.suppress(OSError): {then}\nreturn {GOOD}")
    sha256 = hashlib.sha256((tmp_path / "mine.py").read_bytes()).hexdigest()
    names = [method, "exact"]
    if how == "crosscheck":
        report = planner.crosscheck(planner.load("chain8", memory="1GB"), methods=names, reproducers=None)
        assert [each.verified for each in report.results] == [True, True]
        assert report.results[0].stats["sha256"] == sha256
    elif how == "validate":
        instances = [planner.load("chain8", memory=memory) for memory in ("1GB", "2GB")]
        done = planner.validate(instances, methods=names, out=tmp_path / "out")
        assert None not in [row["objective"] for each in done.records for row in each["rows"].values()]
        assert len(done.records) == 2 and sha256[:12] in (tmp_path / "out" / "validate.json").read_text()
    else:
        case = Case("chain8", {"memory": "1GB"}, tuple(names))
        rows: list[MeasuredRow] = []
        measure([case], Limits(), 2, None, rows.append)
        assert [row.method for row in rows] == names and None not in [row.objective for row in rows]
        assert sha256[:12] in str(rows[0].source)


def test_a_file_that_is_gone_is_still_known_to_this_process(bring: Bring, tmp_path: Path) -> None:
    method = bring("return {'picked': [1, 2]}")
    assert planner.solve(FOUR, method=method).objective == 2.0
    (tmp_path / "mine.py").unlink()
    assert planner.solve(FOUR, method=method).objective == 2.0


def test_a_plan_that_the_definition_cannot_judge_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(instance: Any, plan: Any) -> Any:
        raise TypeError("nobody\nhas thought of it")

    judge = methods.Judge(replace(FAMILY, violations=fails), FOUR, "mine", Claim.HEURISTIC, None)
    reason = "returned what the definition of counting cannot judge: TypeError: nobody has thought of it"
    assert judge.judge_end({"picked": [1]}) == ("invalid_plan", reason)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "Invalid JSON: EOF"),
        (b"\xff\xfe", "Invalid JSON"),
        (b"null", "Input should be an object"),
        (b"[]", "Input should be an object"),
        (b"{}", "Unable to extract tag using discriminator 'kind'"),
        (b'{"kind": ["plan"]}', "Input tag '['plan']' found"),
        (b'{"kind": "plan"}', "plan.plan: Field required"),
        (b'{"kind": "plan", "plan": [1]}', "plan.plan: Input should be an object"),
        (b'{"kind": "plan", "plan": {}, "more": 1}', "plan.more: Extra inputs are not permitted"),
        (b'{"kind": "plan", "plan": {"a": NaN}}', "nan, which is no number of JSON"),
        (b'{"kind": "plan", "plan": {"a": [-1e400]}}', "-inf, which is no number of JSON"),
        (b'{"kind": "plan", "plan": {"a": 9223372036854775808}}', "a whole number of more than 63 bits"),
        (b'{"kind": "plan", "plan": {"a": ' + 5000 * b"9" + b"}}", "Invalid JSON: number out of range"),
        (b'{"kind": "plan", "plan": {"a": ' + 64 * b"[" + 64 * b"]" + b"}}", "a plan of more than 64 lists in"),
        (b'{"kind": "plan", "plan": {"a": ' + 10**6 * b"[", "Invalid JSON: recursion limit exceeded"),
        (b'{"kind": "plan", "plan": {"a": [' + 5 * 10**6 * b"0,", "a line of more than 4194304 values"),
        (b'{"kind": "plan", "plan": {"a": "\\ud800"}}', "Invalid JSON"),
        (b'{"kind": "bound", "value": true}', "bound.value: Input should be a valid number"),
        (b'{"kind": "bound", "value": "3"}', "bound.value: Input should be a valid number"),
        (b'{"kind": "bound", "value": Infinity}', "bound.value: Input should be a finite number"),
        (b'{"kind": "bound", "value": ' + 400 * b"9" + b"}", "bound.value: Input should be a finite number"),
        (b'{"kind": "returned", "plan": {}, "late": 1}', "returned.late: Input should be a valid boolean"),
        (b'{"kind": "loaded", "declared": {"claim": "sure"}, "takes": []}', "loaded.declared.claim: Input should be"),
        (b'{"kind": "loaded", "declared": {}, "takes": ["watch", 3]}', "loaded.takes.1: Input should be 'limits'"),
        (b'{"kind": "failed", "words": ' + b'"' + 2000 * b"x" + b'"}', "failed.words: String should have at most"),
    ],
)
def test_what_is_no_reply(line: bytes, words: str) -> None:
    with pytest.raises(ReplyError) as raised:
        parse_reply(line)
    assert words in str(raised.value) and str(raised.value).isprintable() and len(str(raised.value)) <= 200


def test_words_of_replies_are_one_line_without_control_characters() -> None:
    assert parse_reply(b'{"kind": "failed", "words": "\\u001b[2J a\\n\\tb"}') == Failed(kind="failed", words="[2J a b")
    assert parse_reply(b'{"kind": "bound", "value": 3}') == Bound(kind="bound", value=3.0)
    form = {"a": [2**62, 1.5, "x", None, {"b": True}]}
    line = json.dumps({"kind": "plan", "plan": form}).encode()
    assert parse_reply(line) == Plan(kind="plan", plan=form)


@thinned(
    ("declared", "words"),
    [
        ({"claim": "sure"}, "loaded.declared.claim: Input should be 'heuristic' or 'exact'"),
        ({"problem": 3}, "loaded.declared.problem: Input should be a valid string"),
        ({"more": "x"}, "loaded.declared.more: Extra inputs are not permitted"),
        (7, "expected what planner.method declares of a function"),
    ],
    2,
)
def test_a_declaration_that_is_none_is_an_error_of_the_file(
    run: Run, problem: Any, tmp_path: Path, declared: Any, words: str
) -> None:
    (tmp_path / "mine.py").write_text(f"def solve(instance): pass\nsolve.__planner_method__ = {declared!r}")
    code, out, err = run("solve", problem(), "--method", f"{tmp_path}/mine.py:solve")
    assert (code, out, err.count("\n")) == (2, "", 1) and words in err


def test_a_changed_file_is_read_again_and_imports_what_lies_beside_it(bring: Bring, tmp_path: Path) -> None:
    method = bring("from beside_it import PLAN\nreturn PLAN")
    (tmp_path / "beside_it.py").write_text("PLAN = {'picked': [1, 2]}")
    assert planner.solve(FOUR, method=method).objective == 2.0
    assert planner.solve(FOUR, method=bring("return {'picked': [0, 1, 2]}")).objective == 3.0


@pytest.mark.slow
def test_a_file_of_the_same_size_and_time_is_read_again_and_leaves_no_bytecode(
    bring: Bring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    for picked, objective in (("[0, 1, 2]", 3.0), ("[1, 2   ]", 2.0), ("[0, 1, 2]", 3.0)):
        method = bring(f"return {{'picked': {picked}}}")
        os.utime(tmp_path / "mine.py", (1e9, 1e9))
        assert planner.solve(FOUR, method=method).objective == objective
    assert not (tmp_path / "__pycache__").exists()


def test_a_function_may_start_processes_that_import_its_file(bring: Bring) -> None:
    body = """
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context
        if instance is None:
            return {'picked': [1, 2]}
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
            return processes.submit(solve, None).result()
    """
    assert planner.solve(FOUR, method=bring(body)).objective == 2.0


def test_a_plan_must_keep_the_requirements(bring: Bring) -> None:
    method = bring(f"return {GOOD}")
    assert planner.solve(planner.load("chain8", memory="1GB"), method=method).verified
    required = planner.load("chain8", memory="1GB", require="num_stages >= 8")
    found = planner.solve(required, method=method)
    assert found.plan is None and "returned a plan that breaks required" in found.reason


def test_no_time_at_all_is_a_result(bring: Bring) -> None:
    found = planner.solve(FOUR, method=bring("return {'picked': [1, 2]}"), limits=Limits(time_s=0.0))
    assert (found.status, found.stop) == (Status.UNKNOWN, Stop.TIME_LIMIT)


def test_rows_go_on_after_failures_and_plans_from_elsewhere_are_rows(
    run: Run, problem: Any, bring: Bring, tmp_path: Path
) -> None:
    broken = bring("raise ValueError")
    plans = {"good": {"picked": [1, 2]}, "bad": {"picked": [0]}, "other": {"stages": []}}
    entered = []
    for name, plan in plans.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"problem": "counting", **plan}))
        entered += ["--plan", f"{name}={tmp_path}/{name}.json"]
    code, out, _ = run("crosscheck", problem(), "--methods", f"{broken},exact", *entered, "--json")
    rows = {row["method"]: row for row in json.loads(out)["results"]}
    assert code == 0 and list(rows) == [broken, "exact", "good", "bad", "other"]
    assert rows["good"]["objective"] == 2.0 and rows["good"]["verified"] and rows["good"]["bound"] is None
    assert "bad.json holds a plan that breaks target: 1 of 5" in rows["bad"]["reason"]
    assert "other.json holds what is no plan of this instance" in rows["other"]["reason"]
    assert run("solve", problem(), "--method", broken, "--json")[0] == 3
    for wrong in ("x", "x=", "=x", "exact=x.json"):
        assert run("crosscheck", problem(), "--plan", wrong)[0] == 2
    code, _, err = run("crosscheck", problem(), "--plan", "x=absent.json")
    assert code == 2 and "absent.json" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "ending",
    [
        "watch.plan(plan); begun.touch()\nwhile True: time.sleep(1)",
        slow("begun.touch()\nwhile not watch.stopped(): pass"),
    ],
)
def test_ctrl_c_ends_the_function_and_keeps_its_plan(bring: Bring, ending: str, tmp_path: Path) -> None:
    """What it reported before, or what it returns once its watch tells it to stop."""
    begun = tmp_path / "begun"
    body = f"import pathlib, time\nbegun, plan = pathlib.Path({str(begun)!r}), {GOOD}\n{ending}\nreturn plan"
    method = bring(body, "instance, watch")
    command = [sys.executable, "-m", "planner", "solve", "chain8", "--memory", "1GB", "--method", method, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while not begun.exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    found = json.loads(out)
    assert process.returncode == 130 and found["stop"] == "interrupted"
    assert found["plan"] is not None, found["reason"]


def test_a_target_of_a_module_has_its_place() -> None:
    assert Target("mine", module="numpy", function="nothing").place == "numpy"
