"""Files of solutions: as each solver writes them, and what is no solution of the model, in one line."""

import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from solved_by_highs import solved_by_highs
from thinned import thinned

import planner
from instances.errors import InstanceError
from planner.analysis.model_view import OpenModel
from planner.cli.app import main


@cache
def opened() -> OpenModel:
    return planner.model(planner.load("layers", layers=8, stages=3), "milp", complete=True)


@cache
def solved() -> tuple[dict[str, float], float, str]:
    """Values of all variables that are not 0, the objective, and HiGHS's own file."""
    folder = Path(tempfile.mkdtemp())
    opened().write(str(folder / "model.lp"))
    highs, solution = solved_by_highs(folder / "model.lp")
    names = highs.getLp().col_names_
    values = {name: value for name, value in zip(names, highs.getSolution().col_value, strict=True) if value}
    return values, highs.getInfo().objective_function_value, solution.read_text()


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


@thinned("write", [*WRITERS, "highs"])
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
        ("solution status: infeasible\nno solution available\n", "the solver found the model infeasible"),
        ("Model status\nInfeasible\n\n# Primal solution values\nNone\n", "the solver found the model infeasible"),
        ("solution status: time limit reached\nno solution available\n", "lines of a name and a value"),
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


#: Of names that the model does not have, or no lines at all.
WRONG = (
    "nosuch 1|nosuch 0|nosuch -1e-9|x_999 1|x999 1 (obj:0)|      7 nosuch 1 0|**    7 nosuch 1 0|"
    "carries(0,0,99) 1|carries(0,0) 1|carries[0,0,4] 1|carries_0_0_4 1|CARRIES(0,0,4) 1|carries 1|"
    "carris(0,0,4) 1|carries(0,0,4)x 1|'carries(0,0,4)' 1|nosuch carries(0,0,4) 1|1 nosuch carries(0,0,4) 1|"
    "waiting 1 nosuch 1|waiting 1 (obj:0) nosuch|nosuch = 1|nosuch: 1|nosuch,1|nosuch\t1|nosuch|999 1|"
    "objective(0) 1|Optimal 1|ONE 1|nosuch nan"
)


@thinned("line", WRONG.split("|"))
@pytest.mark.parametrize("write", [scip, cbc, gurobi])
def test_a_name_that_the_model_does_not_have_is_refused_by_name(
    write: Callable[[dict[str, float], float], str], line: str, tmp_path: Path
) -> None:
    values, objective, _ = solved()
    text = write(values, objective)
    name = next(word for word in line.replace("**", "7").split() if not word.isdigit() or word == "999")
    for place in (len(text), text.index("\n") + 1):  # at the end, and before the values
        rule = "a variable is .*; expected one of this model|a line is .*; expected lines of a name and a value"
        with pytest.raises(InstanceError, match=rule) as refused:
            judged(f"{text[:place]}{line}\n{text[place:]}", tmp_path)
        assert name in str(refused.value)


@pytest.mark.parametrize(
    ("name", "closest"),
    [("carries(0,0,44)", "carries(0,0,4)"), ("carris(0,0,4)", "carries(0,0,4)"), ("wating", "waiting")],
)
def test_the_closest_name_is_named(name: str, closest: str, tmp_path: Path) -> None:
    rule = f": a variable is '{name}'; expected one of this model (closest: {closest})"
    for text in (f"{name} 1\n", f'<variables><variable name="{name}" value="1"/></variables>'):
        with pytest.raises(InstanceError, match=re.escape(rule)):
            judged(text, tmp_path)


@pytest.mark.parametrize("tag", ["variable", "var", "Variable", "column", "{ns}variable"])
def test_a_name_of_xml_that_the_model_does_not_have_is_refused(tag: str, tmp_path: Path) -> None:
    values, objective, _ = solved()
    line = f'<{tag} name="nosuch" index="0" value="0"/>'.replace("<{ns}variable", '<variable xmlns="ns"')
    text = cplex(values, objective).replace(" </variables>", f"{line}\n </variables>")
    with pytest.raises(InstanceError, match="a variable is 'nosuch'"):
        judged(text, tmp_path)


def test_a_name_behind_those_that_highs_counts_is_refused(tmp_path: Path) -> None:
    _, _, own = solved()
    assert judged(own, tmp_path).verified
    for place in ("# Rows", "waiting "):
        with pytest.raises(InstanceError, match="a variable is 'nosuch'"):
            judged(own.replace(place, f"nosuch 1\n{place}", 1), tmp_path)


def test_one_variable_in_two_spellings_is_named_twice(tmp_path: Path) -> None:
    model = planner.model(planner.load("layers", layers=8, stages=3), "cpsat", complete=True)
    path = tmp_path / "a.sol"
    path.write_text("begun(1,2) 1\nbegun[1,2] 0\n")
    with pytest.raises(InstanceError, match="named twice"):
        model.read_solution(str(path))


def test_a_file_of_a_complete_model_says_so(tmp_path: Path) -> None:
    """As the model's file beside it has it; without one, that it may be of such a model."""
    values, objective, _ = solved()
    pruned = planner.model(opened().instance, "milp")
    (tmp_path / "a.sol").write_text(gurobi({"nosuch(0)": 1.0, **values}, objective))
    (tmp_path / "a.other.json").write_text("[")
    with pytest.raises(InstanceError, match=r"; a model written by --complete needs it to be read as well$"):
        pruned.read_solution(str(tmp_path / "a.sol"))
    opened().write(str(tmp_path / "a.lp"))
    with pytest.raises(
        InstanceError, match=r"; a\.lp\.json was written by --method milp with --complete, which --read"
    ):
        pruned.read_solution(str(tmp_path / "a.sol"))
    with pytest.raises(InstanceError, match=r"'nosuch\(0\)'; expected one of this model[^;]*$"):
        opened().read_solution(str(tmp_path / "a.sol"))
    pruned.write(str(tmp_path / "a.lp"))
    with pytest.raises(InstanceError, match=r"; a\.lp\.json was written by --method milp without --complete"):
        opened().read_solution(str(tmp_path / "a.sol"))


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["model", "layers", "--layers", "8", "--stages", "3", "--method", "milp", "--read"]
    unknown = tmp_path / "unknown.sol"
    unknown.write_text("carries(0,0,2) 1\nwating 0\n")
    assert main([*given, str(unknown)]) == 2
    rule = "one of this model (closest: waiting); a model written by --complete needs it to be read as well"
    said = f"{unknown}: a variable is 'wating'; expected {rule}\n"
    assert capsys.readouterr() == ("", said)
    for path in (tmp_path / "no.sol", tmp_path):
        assert main([*given, str(path)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
