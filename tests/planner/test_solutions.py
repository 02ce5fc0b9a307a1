"""Files of solutions: as each solver writes them, and what is no solution of the model, in one line."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import highspy
import pytest

import planner
from instances.errors import InstanceError
from planner import solutions
from planner.cli.app import main
from planner.open_model import OpenModel


@cache
def opened() -> OpenModel:
    return planner.model(planner.load("layers", layers=8, stages=3), "milp", complete=True)


@cache
def solved() -> tuple[dict[str, float], float, str]:
    """Values of all variables that are not 0, the objective, and HiGHS's own file."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    folder = Path(tempfile.mkdtemp())
    opened().write(str(folder / "model.lp"))
    highs.readModel(str(folder / "model.lp"))
    highs.run()
    highs.writeSolution(str(folder / "a.sol"), 0)
    names = highs.getLp().col_names_
    values = {name: value for name, value in zip(names, highs.getSolution().col_value, strict=True) if value}
    return values, highs.getInfo().objective_function_value, (folder / "a.sol").read_text()


def scip(values: dict[str, float], objective: float) -> str:
    lines = [f"{name:<50} {value:>20} \t(obj:1)" for name, value in values.items()]
    return "\n".join(["solution status: optimal solution found", f"objective value: {objective:>40}", *lines, ""])


def cbc(values: dict[str, float], objective: float) -> str:
    lines = [f"{'**' if not n else '  '} {n} {name} {value} 0" for n, (name, value) in enumerate(values.items())]
    return "\n".join([f"Optimal - objective value {objective:.8f}", *lines, ""])


def gurobi(values: dict[str, float], objective: float) -> str:
    return "\n".join([f"# Objective value = {objective}", *(f"{name} {value}" for name, value in values.items()), ""])


def cplex(values: dict[str, float], objective: float) -> str:
    lines = [f'  <variable name="{name}" index="0" value="{value}"/>' for name, value in values.items()]
    head = ['<?xml version = "1.0" encoding="UTF-8" standalone="yes"?>', '<CPLEXSolution version="1.2">']
    return "\n".join([*head, f' <header objectiveValue="{objective}"/>', " <variables>", *lines, " </variables>", "</CPLEXSolution>", ""])  # fmt: skip  # noqa: E501


WRITERS = [scip, cbc, gurobi, cplex]


def judged(text: str | bytes, folder: Path) -> planner.Result:
    path = folder / "a.sol"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return opened().read_solution(str(path))


@pytest.mark.parametrize("write", WRITERS)
def test_solutions_in_the_words_of_other_solvers(
    write: Callable[[dict[str, float], float], str], tmp_path: Path
) -> None:
    values, objective, _ = solved()
    found = judged(write(values, objective), tmp_path)
    assert found.verified and found.objective == pytest.approx(opened().solve().objective)


@pytest.mark.parametrize("write", [*WRITERS, "highs"])
def test_a_file_that_is_cut_off_is_refused_or_says_the_same(
    write: Callable[[dict[str, float], float], str] | str, tmp_path: Path
) -> None:
    values, objective, own = solved()
    text = own if isinstance(write, str) else write(values, objective)
    best = opened().solve().objective
    refused = 0
    for end in range(0, len(text), 7):
        try:
            found = judged(text[:end], tmp_path)
        except InstanceError:
            refused += 1
        else:  # what is missing costs nothing: digits, or a stage, and then it is no plan
            assert not found.verified or found.objective == pytest.approx(best, rel=1e-3)
    assert refused > len(text) / 7 / 3


@pytest.mark.parametrize("write", WRITERS)
def test_a_solution_of_another_model_is_refused(
    write: Callable[[dict[str, float], float], str], tmp_path: Path
) -> None:
    values, objective, _ = solved()
    with pytest.raises(InstanceError, match="of another model"):
        judged(write(values, 1.1 * objective), tmp_path)
    with pytest.raises(InstanceError, match="one of this model"):
        judged(write({**values, "carries(0,0,99)": 1.0}, objective), tmp_path)
    with pytest.raises(InstanceError, match="one of this model"):
        judged(write({"degrees(0,1)": 1.0}, objective), tmp_path)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "lines of a name and a value"),
        ("nothing here\n", "lines of a name and a value"),
        ("solution status: infeasible\nno solution available\n", "lines of a name and a value"),
        (b"\x7fELF\x02\x01\x00\xff\xfe" * 100, "UTF-8"),
        ("\x00" * 1000, "lines of a name and a value"),
        ("carries(0,0,4) nan\n", "finite number"),
        ("carries(0,0,4) 1e999\n", "finite number"),
        ("carries(0,0,4) 0.5\n", "whole number"),
        ("carries(0,0,4)\n", "the file is cut off"),
        ("carries(0,0,4) 1\ncarries(0,0,4) 1\n", "named twice"),
        ("carries(0,0,99) 1\n", "one of this model"),
        ("# Objective value = x\ncarries(0,0,4) 1\n", "finite number"),
        ("# Columns 9\ncarries(0,0,4) 1\n# Rows 1\n", "without 8 of its lines"),
        ('<variable name="carries(0,0,4)" index="0" value="x"/>\n', "finite number"),
        ('<variable name="carries(0,0,4)" index="0"/>\n', "finite number"),
        ('<variables><variable name="carries(0,0,4)" value="1"/>\n', "no XML"),
        ("<!DOCTYPE a [" + "<!ENTITY a 'a'>" + "]><a>&b;</a>", "no XML"),
        ("<html><body>404</body></html>", "lines of a name and a value"),
    ],
)
def test_what_is_no_solution_is_one_line(text: str | bytes, rule: str, tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match=rule) as refused:
        judged(text, tmp_path)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "text",
    [
        '<variable name="a" ' * 200_000,
        "carries( " * 400_000,
        "a" * 4_000_000,
        "carries(" + "(" * 2_000_000 + ") 1",
        "x 1\n" * 200_000,
        "objective value " * 200_000,
    ],
    ids=["xml", "words", "word", "brackets", "lines", "objective"],
)
def test_large_files_are_refused_in_time(text: str, tmp_path: Path) -> None:
    began = time.process_time()
    with pytest.raises(InstanceError):
        judged(text, tmp_path)
    assert time.process_time() - began < 5


def test_an_unknown_name_is_compared_with_few_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[list[str]] = []
    monkeypatch.setattr(solutions, "closest", lambda _, names: compared.append(list(names)) or "")
    known = dict.fromkeys([f"holds({place})" for place in range(50_000)] + ["carries(0,1)"])
    for name in ("holds(49999,1)", "carries(1)", "other"):
        solutions._closest(name, known)
    assert len(compared[0]) <= 10_000 and compared[1:] == [["carries(0,1)"], []]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["model", "layers", "--layers", "8", "--stages", "3", "--method", "milp", "--read"]
    for path in (tmp_path / "no.sol", tmp_path):
        assert main([*given, str(path)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
