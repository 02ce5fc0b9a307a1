"""Random instances and command lines: no claims exclude each other, and no line ends in another way than is said."""

import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import random_command_lines
import random_instances
from command_lines import Maker
from random_command_lines import Ran, wrong
from random_instances import NAMES, against, examine_chunk

import planner
from formulations.contract.family import Answer, Family, Method
from planner.cli.app import main
from solvers.outcome import Status, Stop

EVERY_FAMILY = pytest.mark.parametrize("name", NAMES)


@EVERY_FAMILY
def test_no_claims_exclude_each_other(name: str, cases: int, many: int) -> None:
    count = {"pipeline_placement": max(2, cases // 5), "operator_partitioning": max(20, cases)}.get(
        name, max(1, cases // 3)
    )
    found = examine_chunk(name, 2 if many else 1, 0, many or count, None)
    assert found.wrong == []
    proofs = Counter[str]()
    for proof, number in found.proofs.items():
        proofs[proof.partition(" by ")[0]] += number
    proved = all(proofs[method] >= 0.9 * runs for method, runs in found.runs.items())
    assert found.runs and (proved or many), found.proofs


def _with(monkeypatch: pytest.MonkeyPatch, name: str, method: str, change: Any) -> None:
    """Let a method return ``change(instance, its answer)``."""
    family: Family[Any, Any] = random_instances.warmed(name)

    def lying(honest: Method[Any, Any]) -> Method[Any, Any]:
        return replace(honest, solve=lambda *given, **options: change(given[0], honest.solve(*given, **options)))

    methods = tuple(lying(each) if each.name == method else each for each in family.methods)
    monkeypatch.setattr(random_instances, "warmed", lambda _: replace(family, methods=methods))


def _bound_too_high(_: Any, answer: Answer[Any]) -> Answer[Any]:
    return replace(answer, plan=None, bound=1.001 * (answer.bound or 0.0))


def _no_plan(_: Any, answer: Answer[Any]) -> Answer[Any]:
    return replace(answer, plan=None, bound=None, infeasible=True)


def _failing(instance: Any, _: Answer[Any]) -> Answer[Any]:
    raise RuntimeError(f"no solution for {instance.name}")


@pytest.mark.parametrize(
    ("change", "said"),
    [(_bound_too_high, "claims the"), (_no_plan, "calls the instance infeasible"), (_failing, "exact fails")],
)
def test_a_false_claim_is_found_and_kept(monkeypatch: Any, tmp_path: Path, change: Any, said: str) -> None:
    _with(monkeypatch, "tmpc_knapsack", "exact", change)
    found = examine_chunk("tmpc_knapsack", 0, 0, 8, str(tmp_path))
    assert found.instances == 8 and any(said in sentence for sentence in found.wrong)
    kept = sorted(tmp_path.glob("tmpc_knapsack-*.json"))
    assert kept and planner.load(str(kept[0])).nodes is not None


def test_brute_force_is_a_witness_of_its_own() -> None:
    result = planner.solve(planner.load("diamond"), method="exact")
    assert result.objective is not None
    assert against(result.objective, [result]) == []
    assert against(None, [result]) and against(1.01 * result.objective, [result])
    assert against(0.99 * result.objective, [result])
    assert against(1.0, [replace(result, status=Status.INFEASIBLE, stop=Stop.PROVED, objective=None, bound=None)])


PROGRAM = [sys.executable, random_command_lines.__file__]


def ran(*words: str, code: int = 0, out: str = "", err: str = "", cpu_s: float = 0.1, left: int = 0) -> Ran:
    return Ran(words, code, out, err, cpu_s, 0.1, left)


TRACEBACK = "Traceback (most recent call last):\nKeyError: 3\n"
NOT_ALLOWED = (
    *(ran("solve", "x", code=code) for code in (70, 1, 5, -6, -11, 2)),
    *(ran("solve", "x", "--json", out=out) for out in ("{}\n{}\n", "", '{"bound": NaN}\n', "[]\n")),
    ran("solve", "x", code=70, err=TRACEBACK),
    ran("solve", "x", err=TRACEBACK),
    ran("solve", "x", "--quiet", code=2, err="one line\nanother\n"),
    ran("solve", "x", err="numpy/core.py:385: RuntimeWarning: overflow\n"),
    ran("solve", "x", out="\x1b[31m"),
    ran("solve", "x", left=1),
    ran("model", "x", code=2, err="--out is 'x'; expected a file that can be written\n"),
    ran("solve", "x", "--time-limit", "0.1", code=-9),
    ran("solve", "x", "--time-limit=0.1", cpu_s=100.0),
)


def test_what_is_not_allowed_is_noticed() -> None:
    assert [bad for bad in NOT_ALLOWED if not wrong(bad)] == []


def test_random_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    """In this process: cheap, and only of commands that need neither processes nor pictures."""
    drawn = ("solve", "check", "verify", "export", "list", "explain", "model", "frontier", "diff", "census")
    for number in range(8):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        words = Maker(0, number, Path(), drawn).line()
        capfd.readouterr()
        began = time.process_time()
        code = main(words)
        shown = capfd.readouterr()
        found = ran(*words, code=code, out=shown.out, err=shown.err, cpu_s=time.process_time() - began)
        assert wrong(found) == [], (number, words, shown)


@pytest.mark.slow
def test_many_random_command_lines(tmp_path: Path, cases: int) -> None:
    command = [*PROGRAM, "--count", str(cases), "--seed", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("nothing was wrong")
