"""``planner make method PROBLEM``: a blank that runs as it stands, and names completed by shells."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import formulations
from planner.cli import completion

Run = Callable[..., tuple[int, str, str]]
FAMILIES = [family.name for family in formulations.FAMILIES]


def written(run: Run, problem: str) -> str:
    code, out, err = run("make", "method", problem)
    assert (code, err) == (0, "")
    return out


@pytest.mark.parametrize("problem", FAMILIES)
def test_a_blank_is_python_and_names_what_an_instance_holds(run: Run, problem: str) -> None:
    text = written(run, problem)
    compile(text, "mine.py", "exec")
    assert max(map(len, text.splitlines())) <= 120
    assert "requirements: tuple[str, ...]" in text and "typing." not in text and "def solve(instance" in text
    assert f'@planner.method("{problem}"' in text


def test_a_blank_runs_as_it_stands(run: Run) -> None:
    Path("mine.py").write_text(written(run, "stage_partitioning").replace("# @planner.method", "@planner.method"))
    code, out, err = run("solve", "chain8", "--method", "./mine.py:solve", "--time-limit", "60", "--json")
    found = json.loads(out)
    assert code == 0 and found["verified"] and found["claim"] == "exact", (found["reason"], err)


@pytest.mark.slow
@pytest.mark.parametrize("problem", FAMILIES)
def test_every_blank_runs_on_the_problems_own_example(run: Run, problem: str) -> None:
    text = written(run, problem)
    Path("mine.py").write_text(text)
    example = text.partition("planner solve ")[2].split()[0]
    code, out, err = run("solve", example, "--method", "./mine.py:solve", "--time-limit", "60", "--json")
    found = json.loads(out)
    assert code == 0 and found["verified"] and found["claim"] == "heuristic", (found["reason"], err)


def test_a_blank_overwrites_nothing(run: Run) -> None:
    Path("mine.py").write_text("# somebody's work")
    code, out, err = run("make", "method", "mesh_tiling", "--out", "mine.py")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--out is 'mine.py'; expected a file that is not there yet" in err
    assert Path("mine.py").read_text() == "# somebody's work"
    assert run("make", "method", "mesh_tiling", "--out", "new.py")[0] == 0
    assert Path("new.py").read_text() == written(run, "mesh_tiling")


def test_functions_of_a_file_are_completed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.py").write_text("x = 1\ndef solve(instance): pass\ndef search(instance): pass\nraise SystemExit\n")
    monkeypatch.setenv("COMP_WORDS", "planner crosscheck chain8 --methods ")
    assert completion.methods("exact,./mine.py:se") == ["exact,./mine.py:search"]
    assert completion.methods("./mine.py:") == ["./mine.py:solve", "./mine.py:search"]
    assert completion.methods("linear") == ["linearised"]
    assert completion.methods("./absent.py:") == []
    assert "method" in completion.names_to_make("me")
