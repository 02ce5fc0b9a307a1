"""The pages on heuristics of one's own: their examples go through every command without a change of the package."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import ROOT
from thinned import thinned

Run = Callable[..., tuple[int, str, str]]
PAGE = (ROOT / "docs" / "your-own-heuristic.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, flags=re.DOTALL))
EXAMPLES = [("greedy.py", "chain8"), ("swaps.py", "uniform-dist")]
MANY = (ROOT / "docs" / "validating-a-heuristic.md").read_text()
FILES |= dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", MANY, flags=re.DOTALL))
_SECONDS = re.compile(r"(?<=proved )\d\S+|(?<=completed )\d\S+")


@pytest.fixture(autouse=True)
def _written(run: Run) -> None:
    for name, text in FILES.items():
        Path(name).write_text(text)  # in the folder that `run` made


def test_examples_have_twenty_lines() -> None:
    assert set(FILES) == {*(name for name, _ in EXAMPLES), "largest.py"}
    for text in FILES.values():
        body = text.partition('"""\n')[2]
        assert len([line for line in body.splitlines() if line.strip()]) <= 20


def test_the_samples_are_what_the_commands_print(run: Run) -> None:
    samples = re.findall(r"```console\n\$ planner (.*?)\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(samples) == 2
    for command, printed in samples:
        code, out, _ = run(*command.split(), "--quiet")
        shown = [[_SECONDS.sub("...", " ".join(line.split())) for line in text.splitlines()] for text in (out, printed)]
        assert code == 0 and shown[0] == shown[1]


@pytest.mark.slow
def test_the_samples_of_populations_are_what_the_commands_print(run: Run) -> None:
    samples = re.findall(r"```console\n(.*?)```", MANY, flags=re.DOTALL)
    assert len(samples) == 2
    for sample in samples:
        *commands, printed = re.split(r"^\$ planner (.*)\n", sample, flags=re.MULTILINE)[1:]
        outs = [run(*shlex.split(command), "--quiet") for command in commands if command]
        assert all(code == 0 for code, _, _ in outs)
        assert [_timeless(outs[-1][1])] == [_timeless(printed)]


def _timeless(text: str) -> list[list[str]]:
    """The words of every line; of a row of totals but its last, the seconds."""
    return [line.split()[: -1 if "%" in line else None] for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(("file", "case"), [EXAMPLES[0], pytest.param(*EXAMPLES[1], marks=pytest.mark.slow)])
def test_an_example_is_solved_checked_and_compared(run: Run, file: str, case: str) -> None:
    method = f"./{file}:solve"
    code, out, _ = run("solve", case, "--method", method, "--compare", "--out", "plan.json", "--json")
    found = json.loads(out)
    assert code == 0 and found["verified"] and found["compared"][0]["status"] == "optimal"
    loss = found["loss"]
    assert loss == pytest.approx(found["objective"] / found["compared"][0]["objective"] - 1, abs=1e-9)
    assert run("check", case, "plan.json")[0] == 0
    entered = ["--plan", "theirs=plan.json"]
    code, out, _ = run("crosscheck", case, "--methods", f"exact,{method}", *entered, "--json")
    rows = json.loads(out)["results"]
    assert code == 0 and [row["loss"] for row in rows[1:]] == [loss, loss]


@thinned(("file", "case"), [("greedy.py", "uniform-dist"), ("swaps.py", "chain8")], 2)
def test_an_example_on_another_problem_is_a_reason(run: Run, file: str, case: str) -> None:
    code, out, _ = run("crosscheck", case, "--methods", f"exact,./{file}:solve", "--json")
    exact, own = json.loads(out)["results"]
    assert code == 0 and exact["status"] == "optimal" and own["plan"] is None
    assert "raised AttributeError" in own["reason"] and f"of {file})" in own["reason"]
