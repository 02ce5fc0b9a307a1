"""A problem in one file, and one of four files in the tree: every command takes them, brute force comes for free."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import documents
from thinned import thinned

import formulations
import planner
from planner.cli.app import main
from planner.files import problems as files

pytestmark = pytest.mark.usefixtures("forgotten")
PAGE = (documents() / "adding-a-problem.md").read_text(encoding="utf-8")
(CODE,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
Run = Callable[..., tuple[int, str, str]]
FIVE = {"problem": "bin_split", "schema_version": 1, "name": "five", "sizes": [5, 4, 3, 3, 3], "bins": 2}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """A command in a folder with the file and an instance."""
    monkeypatch.chdir(tmp_path)
    Path("bin_split.py").write_text(CODE)
    Path("five.json").write_text(json.dumps(FIVE))

    def called(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        out, err = capfd.readouterr()
        return code, out, err

    return called


def test_it_is_small() -> None:
    assert CODE.count("\n") <= 100
    assert len(PAGE.splitlines()) <= 160


HERE = ("--problem", "bin_split.py:PROBLEM")


@thinned(
    ("arguments", "words"),
    [
        (("list", "bin_split.py:PROBLEM"), "--bins N"),
        (("list", "five.json", *HERE), "largest-first  takes it"),
        (("solve", "five.json", *HERE, "--exact"), "the least bytes of the fullest bin is 9 B"),
        (("solve", "five.json", *HERE, "--exact", "--bins", "3"), "the least bytes of the fullest bin is 7 B"),
        (("solve", "five.json", *HERE, "--method", "brute-force", "--require", "bin_of(0) == 1"), "proved by search"),
        (("crosscheck", "five.json", *HERE), "2 proofs, 2 independent"),
        (("alternatives", "five.json", *HERE, "--count", "3"), "no other plan is below 10 bytes"),
        (("model", "five.json", *HERE, "--method", "cpsat"), "no bin holds more than the fullest"),
        (("formulations", "five.json", *HERE, "--methods", "cpsat,largest-first"), "complete"),
        (("schema", "bin_split.py:PROBLEM"), '"title": "an instance of bin_split"'),
        (("make", "template", "bin_split.py:PROBLEM"), '"bins": 2'),
        (("make", "method", "bin_split.py:PROBLEM"), "Tensors"),
        (("validate", "five.json", *HERE, "--out", "a", "--methods", "cpsat"), "1 instance of bin_split"),
        (("validate", "five.json", *HERE, "--out", "b", "--jobs", "2"), "of bin_split"),
        (("bench", "five.json", *HERE, "--repeats", "1", "--methods", "largest-first,cpsat"), "11.1 %"),
        (("report", "five.json", *HERE, "--out", "page.html", "--methods", "cpsat"), "page.html"),
        (("mine", "largest-first", *HERE, "--out", "worst.json", "--time-limit", "1"), "largest-first against cpsat"),
    ],
)
def test_every_command_takes_it(
    run: Run, arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.display.populations.draw_validation", lambda _: [])
    code, out, err = run(*arguments)
    assert code == (3 if "mine" in arguments else 0), err  # a search for losses ends at its limit
    assert "Traceback" not in err
    assert words in out + err


def test_its_plans_are_read_again_and_judged(run: Run) -> None:
    assert run("solve", "five.json", *HERE, "--exact", "--out", "plan.json")[0] == 0
    assert run("check", "five.json", "plan.json", *HERE)[:2] == (0, "feasible, objective 9 bytes\n")
    content = json.loads(Path("plan.json").read_text())
    Path("plan.json").write_text(json.dumps({**content, "bin_of": [0, 0, 0, 0, 2]}))
    code, out, _ = run("check", "five.json", "plan.json", *HERE)
    assert code == 1 and "bin_of(4) is 2; expected one of 0, 1" in out


@thinned("seed", range(2))
def test_brute_force_is_the_witness_of_its_model(run: Run, seed: int) -> None:
    sizes = [1 + (7 * seed + 5 * number) % 11 for number in range(5)]
    instance = planner.load({**FIVE, "sizes": sizes}, problem="bin_split.py:PROBLEM")
    for required in ([], ["bin_of(1) == 1"], ["bin_of(0) >= 1", "bin_of(4) <= 0"]):
        found = [
            planner.solve(planner.load({**FIVE, "sizes": sizes, "requirements": required}), method=method)
            for method in ("brute-force", "cpsat")
        ]
        assert [each.status for each in found] == ["optimal"] * 2
        assert found[0].objective == pytest.approx(found[1].objective)
    assert planner.check(instance, found[0].plan).feasible


@thinned(
    ("change", "words"),
    [
        (("PROBLEM = Problem(", "OTHER = Problem("), "problem is 'PROBLEM'; expected one of OTHER"),
        (('"bin_split",', '"stage_partitioning",'), "expected a problem with a name of its own"),
        (("from dataclasses", "import os; os._exit(3)\nfrom dataclasses"), "ends|ended with exit code 3|SyntaxError"),
        (("return max(bins)", "return 1 / 0"), "objective raised ZeroDivisionError: division by zero"),
        (("return max(bins)", "return 'no'"), "objective is 'no'; expected a finite number"),
        (('return {"bin_of"', 'return {"bins_of"'), "expected a mapping with bin_of"),
        (("class Tensors(Instance)", "class Tensors"), "got an unexpected keyword argument 'name'"),
        (("    Tensors,\n", "    Split,\n"), "expected a dataclass that inherits Instance"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(run: Run, change: tuple[str, str], words: str) -> None:
    assert change[0] in CODE
    Path("bin_split.py").write_text(CODE.replace(*change))
    code, out, err = run("solve", "five.json", *HERE, "--method", "largest-first")
    assert code == 2 and err.count("\n") == 1 and not out
    assert re.search(words, err) or words in err


def test_a_method_reports_plans_as_users_methods_do(run: Run) -> None:
    reported = CODE.replace("_watch: Watch", "watch: Watch")
    reported = reported.replace(
        "return Answer(Split(tuple(bin_of))", "watch.plan(Split(tuple(bin_of)))\n    return Answer(None"
    )
    Path("bin_split.py").write_text(reported)
    code, out, _ = run("solve", "five.json", *HERE, "--method", "largest-first")
    assert code == 0 and "the bytes of the fullest bin is 10 B" in out


def test_a_file_that_ends_its_process_or_whose_decisions_fail_is_one_sentence(run: Run) -> None:
    for text, words in (
        (CODE + "\nimport os\n\nos._exit(3)\n", "the process that imports it ended with exit code 3"),
        (CODE.replace('return {"bin_of"', 'raise KeyError(3)\n    return {"bin_of"'), "decisions raised KeyError: 3"),
    ):
        Path("bin_split.py").write_text(text)
        code, out, err = run("solve", "five.json", *HERE, "--method", "largest-first")
        assert code == 2 and err.count("\n") == 1 and not out
        assert words in err and err.count("raised") <= 1


def test_a_problem_of_four_files_in_the_tree(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "tree" / "bin_split"
    home.mkdir(parents=True)
    before, sign, after = CODE.partition("def largest_first(")
    body, made = after.split("PROBLEM = Problem(")
    imports = before.partition("@dataclass")[0]
    home.joinpath("methods.py").write_text(
        f"{imports}from formulations.bin_split.nouns import Split, Tensors\n\n\n{sign}{body}"
    )
    home.joinpath("nouns.py").write_text(before)
    home.joinpath("definition.py").write_text(
        f"{imports}from formulations.bin_split.methods import largest_first, rows\n"
        f"from formulations.bin_split.nouns import Split, Tensors, decisions, fullest\n\nPROBLEM = Problem({made}"
    )
    home.joinpath("__init__.py").write_text(
        "from formulations.bin_split.definition import PROBLEM\n\nFAMILY = PROBLEM.family\n"
    )
    assert len(list(home.iterdir())) <= 4
    monkeypatch.setattr(formulations, "__path__", [*formulations.__path__, str(home.parent)])
    monkeypatch.setattr(formulations, "_packages", ())
    assert formulations.FAMILIES[-1].name == "bin_split"
    assert run("solve", "five.json", "--exact", "--require", "bin_of(0) == 1")[0] == 0
    code, out, _ = run("crosscheck", "five.json")
    assert code == 0 and "2 proofs, 2 independent" in out
    for arguments in (("list", "bin_split"), ("schema", "bin_split"), ("make", "template", "bin_split")):
        assert run(*arguments)[0] == 0


def test_an_installed_package_offers_its_problem(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "own_problems.py").write_text(CODE)
    folder = tmp_path / "own_problems-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: own-problems\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[dnn_planner.problems]\nbin_split = own_problems:PROBLEM\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    files.installed_problems.cache_clear()
    try:
        code, out, err = run("solve", "five.json", "--exact")
        assert code == 0 and "the least bytes of the fullest bin is 9 B" in out, err
    finally:
        files.installed_problems.cache_clear()


def test_an_objective_may_begin_with_a_short_word(run: Run) -> None:
    Path("bin_split.py").write_text(CODE.replace('"""Bytes of the fullest bin."""', '"""A sum of\n    sizes."""'))
    code, out, _ = run("solve", "five.json", *HERE)
    assert code == 0 and "the least a sum of sizes is 9 B" in out
