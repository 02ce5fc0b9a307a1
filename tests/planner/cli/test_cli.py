"""The command line in this process: exit codes, one JSON object, one line for bad input, files."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import networkx
import pytest
import typer
from thinned import thinned
from typer._coercion import build_runtime_param

import formulations
from instances.catalog.catalog import CATALOG
from planner.cli import app, first_page, options
from planner.cli.app import main
from planner.reproduction import CLAIMS
from planner.solving.predicted_runtime import seconds_per_step

Problem = Callable[..., str]
Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--exact"], 0),
        (["--method", "greedy"], 0),
        (["--method", "bounded"], 0),
        (["--exact", "--gap", "0"], 0),
        (["--method", "bounded", "--exact"], 3),
        (["--method", "bounded", "--exact", "--gap", "0.5"], 0),
        (["--method", "patient", "--exact", "--time-limit", "0.1"], 3),
        (["--method", "patient", "--time-limit", "0.1"], 0),
        (["--method", "stubborn", "--exact", "--time-limit", "0.1"], 3),
        (["--method", "nothing"], 3),
        (["--target", "11"], 4),
        (["--target", "11", "--exact"], 4),
        (["--method", "false-infeasible"], 4),
        (["--method", "bad-plan"], 5),
        (["--method", "bad-bound"], 5),
    ],
)
def test_exit_codes_of_solve_and_its_one_object(run: Run, problem: Problem, arguments: list[str], code: int) -> None:
    done, out, _ = run("solve", problem(), *arguments, "--json")
    assert done == code
    assert isinstance(json.loads(out), dict) and out.count("\n") == 1
    shown, text, _ = run("solve", problem(), *arguments)
    assert shown == code and (text or code == 5)


def test_the_result_object_has_every_field(run: Run, problem: Problem) -> None:
    _, out, err = run("solve", problem(), "--exact", "--json", "--seed", "3")
    result = json.loads(out)
    keys = "problem instance method claim status stop objective bound gap unit seconds proved_by reason "
    keys += "solver seed threads options stats verified plan certificate loss clock fingerprint"
    assert list(result) == keys.split()
    assert (result["status"], result["stop"], result["seed"], result["verified"]) == ("optimal", "proved", 3, True)
    assert err == ""
    _, out, _ = run("solve", problem(), "--method", "nothing", "--json")
    assert json.loads(out)["objective"] is None and json.loads(out)["plan"] is None


@thinned("command", app._COMMANDS)
def test_every_command_answers_an_unknown_option_in_one_line_with_the_closest(run: Run, command: str) -> None:
    code, out, err = run(command, "--hepl")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert err.startswith(f"unknown option --hepl for planner {command}; expected one of ") and "--help" in err


def test_no_unknown_name_is_answered_with_a_whole_list(run: Run, problem: Problem) -> None:
    Path("other.json").write_text('{"problem": "flushed_partitionning"}')
    for arguments in (
        ["solve", "nothing-like-it"],
        ["solve", "chain8", "--method", "nothing-like-it"],
        ["solve", "chain8", "--nodes", "3"],
        ["solve", "other.json"],
        ["reproduce", "nothing-like-it"],
        ["make", "nothing-like-it"],
        ["crosscheck", problem(), "--methods", "nothing-like-it"],
        ["solve", "resnet50", "--topology", "nothing-like-it"],
    ):
        code, _, err = run(*arguments)
        assert code == 2 and err.count("\n") == 1
        offered = err.partition("expected one of ")[2].strip().split(", ")
        assert len(offered) == 4 and offered[-1] == "...", err
    assert "expected one of flushed_partitioning, " in run("solve", "other.json")[2]


def test_a_plan_written_is_a_plan_that_checks(run: Run, problem: Problem) -> None:
    code, _, _ = run("solve", problem(), "--exact", "--out", "plan.json")
    assert code == 0
    assert json.loads(Path("plan.json").read_text())["picked"] == [0, 3]
    assert sorted(path.name for path in Path().iterdir()) == ["plan.json"]
    code, out, _ = run("check", problem(), "plan.json", "--json")
    assert (code, json.loads(out)["objective"], json.loads(out)["feasible"]) == (0, 2.0, True)
    code, out, _ = run("check", problem(), "plan.json", "--target", "6", "--json")
    assert code == 1
    assert json.loads(out)["violations"] == [{"rule": "target", "message": "5 of 6"}]
    assert run("check", problem(), "plan.json", "--target", "6")[:2] == (1, "target: 5 of 6\n")


def test_a_result_object_checks_too(run: Run, problem: Problem) -> None:
    Path("result.json").write_text(run("solve", problem(), "--json")[1])
    assert run("check", problem(), "result.json")[0] == 0
    Path("result.json").write_text(run("solve", problem(), "--json", "--target", "11")[1])
    assert run("check", problem(), "result.json")[0] == 2


def test_without_a_plan_nothing_is_written(run: Run, problem: Problem) -> None:
    Path("plan.json").write_text("mine")
    code, _, err = run("solve", problem(), "--target", "11", "--out", "plan.json")
    assert code == 4 and "no plan to write" in err
    assert Path("plan.json").read_text() == "mine"


def test_warnings_go_to_stderr_unless_quiet(run: Run, problem: Problem) -> None:
    file = problem([13])
    assert run("solve", file, "--json")[2] == "warning: thirteen is unlucky\n"
    assert run("solve", file, "--json", "--quiet")[2] == ""


def test_crosscheck(run: Run, problem: Problem) -> None:
    code, out, _ = run("crosscheck", problem(), "--json")
    report = json.loads(out)
    assert (code, report["agree"], report["optimum"], report["contradictions"]) == (0, True, 2.0, [])
    assert [result["method"] for result in report["results"]] == ["exact", "greedy"]
    assert "agree" in run("crosscheck", problem())[1]
    code, out, _ = run("crosscheck", problem(), "--methods", "exact,false-bound", "--reproducer-dir", "found", "--json")
    report = json.loads(out)
    assert (code, report["agree"]) == (5, False)
    assert Path(report["reproducer"]).parent == Path("found")
    assert run("crosscheck", report["reproducer"], "--methods", "exact,false-bound")[0] == 5
    assert run("crosscheck", problem(), "--target", "11", "--methods", "exact")[0] == 4


def test_a_contradiction_in_solve_leaves_a_reproducer(run: Run, problem: Problem) -> None:
    code, out, err = run("solve", problem(), "--method", "bad-plan", "--json")
    content = json.loads(Path(json.loads(out)["reproducer"]).read_text())
    assert code == 5 and err.count("\n") == 1
    assert content["plan"] == {"picked": []} and content["method"] == "bad-plan"


def test_make_and_load_again(run: Run) -> None:
    assert run("make", "chain8", "--devices", "3", "--out", "chain.json")[0] == 0
    code, out, _ = run("make", "chain8", "--devices", "3")
    assert code == 0 and json.loads(out) == json.loads(Path("chain.json").read_text())
    assert json.loads(out)["num_devices"] == 3
    code, again, _ = run("make", "chain8", "--devices", "4")
    assert json.loads(again)["num_devices"] == 4


def test_a_catalog_name_takes_its_parameters_everywhere(run: Run) -> None:
    given = ("--layers", "1", "--hidden-size", "64", "--heads", "2", "--devices", "2", "--forward-only")
    code, out, _ = run("solve", "bert", *given, "--exact", "--out", "plan.json", "--json")
    assert code == 0
    code, text, _ = run("check", "bert", "plan.json", *given)
    assert code == 0 and f"{json.loads(out)['objective']:.9g}" in text
    _, out, _ = run("solve", "--help")
    assert "--forward-only" not in out and "--hidden-size" not in run("check", "--help")[1]


def test_a_plan_of_another_problem_is_checked_with_a_warning(run: Run) -> None:
    given = ("--problem", "flushed_partitioning")
    assert run("solve", "chain8", *given, "--out", "plan.json")[0] == 0
    assert "warning" not in run("check", "chain8", "plan.json", *given)[2]
    code, _, err = run("check", "chain8", "plan.json")
    assert code == 0
    assert "plan.json is a plan of flushed_partitioning; checked as one of stage_partitioning (--problem)" in err
    assert run("check", "chain8", "plan.json", "--quiet")[2] == ""
    code, _, err = run("check", "resnet50", "plan.json")
    assert code == 2 and "problem is 'flushed_partitioning'; expected operator_partitioning, as the instance has" in err


def words_of(text: str) -> str:
    """The words of a page of help, without its frames."""
    return " ".join(text.replace("│", " ").split())


@thinned("name", sorted(app._COMMANDS))
def test_general_help_is_one_screen_without_options_of_problems(run: Run, name: str) -> None:
    code, out, _ = run(name, "--help")
    assert code == 0
    assert len(out.splitlines()) <= 50 and max(map(len, out.splitlines())) <= 80
    shown = {word for line in out.splitlines() if line[:1] == "│" for word in line.split()[:3]}
    own = {
        f"--{parameter.replace('_', '-')}" for parameter in inspect.signature(app._COMMANDS[name].function).parameters
    }
    of_most = {"--memory", "--devices", "--solver"}
    of_problems = {"--memory", "--target", "--extra", "--hidden-size", "--topology"} - own
    if name == "solve":
        assert of_most <= shown and {"The instance", "The search"} <= {line.strip("╭╮─ ") for line in out.splitlines()}
        of_problems -= of_most
    assert "--help" in shown and not of_problems & shown


def test_help_with_an_instance_shows_its_problem_and_keeps_brackets(run: Run, problem: Problem) -> None:
    for arguments in ([problem(), "--help"], ["--help", problem()], ["--quiet", problem(), "--help"]):
        code, out, _ = run("solve", *arguments)
        text = words_of(out)
        assert code == 0
        for words in ("--exact", "Options of counting", "--target", "[at least]", "--extra", "greedy: "):
            assert words in text
        assert "--cost-model" not in text and "--batch-size" not in text
    assert "--target" in words_of(run("check", problem(), "--help")[1])
    assert "--extra" not in words_of(run("check", problem(), "--help")[1])


def test_help_follows_the_problem_the_entry_and_the_claim(run: Run) -> None:
    text = words_of(run("solve", "bert", "--help")[1])
    for words in ("--cost-model", "--knapsack", "--hidden-size", "transformer layers (default: 24)"):
        assert words in text
    assert "--schedule" not in text
    assert "--schedule" in words_of(run("solve", "chain8", "--problem", "flushed_partitioning", "--help")[1])
    assert "--schedule" in words_of(run("solve", "--problem", "flushed_partitioning", "--help")[1])
    assert "--hidden-size" in words_of(run("make", "bert", "--help")[1])
    assert "--problem" not in words_of(run("reproduce", "--help")[1])
    assert "--cost-model" in words_of(run("reproduce", "piper-fig-2", "--help")[1])
    assert {"--tp-degree", "--cost-model"} <= set(run("bench", "chain8", "mesh", "--help")[1].split())
    assert {"--topology", "--replicas"} <= set(run("solve", "resnet50", "--help")[1].split())


def test_help_with_a_graph_needs_nothing_that_options_may_add(run: Run) -> None:
    graph = networkx.DiGraph()
    graph.add_node("a")
    Path("some.json").write_text(json.dumps(networkx.node_link_data(graph, edges="edges")))
    assert "--cost-model" in words_of(run("solve", "some.json", "--help")[1])
    given = ("--problem", "operator_partitioning", "--help")
    assert "--weight-copies" in words_of(run("solve", "some.json", *given)[1])


def test_bench(run: Run, problem: Problem) -> None:
    Path("suite.jsonl").write_text(
        json.dumps({"instance": problem(), "settings": {"target": 7}, "methods": ["exact", "greedy"]}) + "\n\n"
    )
    code, out, _ = run("bench", "--suite", "suite.jsonl", "--repeats", "2", "--out", "rows.jsonl")
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert code == 0 and "exact" in out
    assert [(row["method"], row["objective"], len(row["all_seconds"])) for row in rows] == [
        ("exact", 2.0, 2),
        ("greedy", 4.0, 2),
    ]
    assert rows[0]["settings"] == {"target": 7} and rows[0]["versions"]["ortools"]
    code, out, _ = run("bench", problem(), "--methods", "exact", "--target", "8", "--json")
    assert json.loads(out)["rows"][0]["objective"] == 3.0


@pytest.mark.parametrize(
    ("line", "words"),
    [("[]", "case is '[]'"), ('{"instance": "x", "methods": "exact"}', "methods is 'exact'"), ("{", "valid JSON")],
)
def test_bad_suites_are_one_line(run: Run, line: str, words: str) -> None:
    Path("suite.jsonl").write_text(line)
    code, _, err = run("bench", "--suite", "suite.jsonl")
    assert code == 2 and err.count("\n") == 1 and words in err


def test_a_row_shows_the_median(run: Run, problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    from planner.experiments.bench import measure

    times = iter([3.0, 1.0, 1.5])
    honest = measure.run
    monkeypatch.setattr(measure, "run", lambda *given, **more: replace(honest(*given, **more), seconds=next(times)))
    row = json.loads(run("bench", problem(), "--repeats", "3", "--json")[1])["rows"][0]
    assert (row["seconds"], row["all_seconds"]) == (1.5, [3.0, 1.0, 1.5])


@pytest.mark.paper
@pytest.mark.slow
def test_the_suite_of_published_inputs(run: Run, published: Path) -> None:
    code, out, _ = run(
        "bench", "--suite", "piper", "--methods", "exact", "--repeats", "1", "--inputs", str(published), "--json"
    )
    rows = json.loads(out)["rows"]
    assert code == 0 and len(rows) > 8
    assert all(row["status"] == "optimal" for row in rows)
    by_size = {(row["instance"], row["settings"]["devices"], row["settings"].get("layers")): row for row in rows}
    largest = by_size["bert32a100", 2048, None]
    assert largest["objective"] == pytest.approx(0.000703591184, rel=3e-9, abs=1e-12)
    assert largest["reference_s"] == 63.005 and largest["speedup"] == 63.005 / largest["seconds"]


@thinned("name", sorted(app._COMMANDS))
def test_examples_of_the_help_name_options_that_exist(name: str) -> None:
    """Every option of an example stands in the help above it."""
    examples = [line for line in app.EXAMPLES if line.startswith(f"planner {name} ")]
    command = typer.main.get_command(app.application(name)).commands[name]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    for example in examples:
        assert {word for word in example.split() if word.startswith("--")} <= known


@thinned("name", sorted(app._COMMANDS))
def test_no_argument_of_a_command_hides_a_setting(name: str) -> None:
    """`planner diff PLAN_A PLAN_B bert32 --first 8`: an argument named ``first`` would take the setting's place."""
    offered = app._COMMANDS[name].offered
    settings = set() if offered is None else {choice.name for choice in offered.taken()}
    command = typer.main.get_command(app.application(name)).commands[name]  # type: ignore[attr-defined]
    assert not settings & {each.name for each in command.params if each.param_type_name == "argument"}


def test_a_command_is_built_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for shells, which complete its name, and for what is no command."""
    for wanted in (None, "sol", "solve"):
        found = typer.main.get_command(app.application(wanted)).commands  # type: ignore[attr-defined]
        assert list(found) == (["solve"] if wanted == "solve" else list(app._COMMANDS))
    monkeypatch.setenv("_PLANNER_COMPLETE", "complete_bash")
    assert len(typer.main.get_command(app.application("solve")).commands) == len(app._COMMANDS)  # type: ignore[attr-defined]


def test_settings_are_found_where_a_word_may_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """That imports every problem: a line of the command's own options does without."""
    own = ["chain8", "--exact", "--time-limit=3", "--require", "num_stages <= 2"]
    for given, finds in ((own, False), ([*own, "--memory", "1GiB"], True), (["--help"], True), (None, True)):
        found = typer.main.get_command(app.application("solve", given)).commands["solve"]  # type: ignore[attr-defined]
        assert ("--memory" in {name for each in found.params for name in each.opts}) == finds


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (str, ["", "7", " x"]),
        (int, [0, "0", "12", "007", " 3", "-3", "1_0", "1.0", "1.5", "x", "9" * 16, True]),
        (float, [0.5, "2", "2.50", "1e3", "inf", "nan", ".5", "5.", "x", 1]),
        (list[str], [(), ["a"], ("a", "b")]),
        (bool, [True, "yes", "x"]),
    ],
)
def test_values_are_read_as_typer_reads_them(kind: Any, values: list[Any]) -> None:
    several = kind == list[str]

    def command(value: Any = None) -> None:
        """Nothing."""

    command.__annotations__["value"] = Annotated[kind, typer.Option("--value")]
    alone = typer.Typer()
    alone.command()(command)
    param: Any = next(each for each in typer.main.get_command(alone).params if each.name == "value")
    for value in [*values, None]:
        read = []
        for reader in (build_runtime_param(param.type_descriptor), options._AsGiven()):
            try:
                read.append(repr(reader.coerce(value, param=param, ctx=None)))  # type: ignore[arg-type]
            except typer.BadParameter as error:
                read.append(error.message)
        assert read[0] == read[1] and (value is not None or read[0] == repr(() if several else None))


def texts() -> list[tuple[str, str]]:
    """Every text that describes a setting, a method, an instance or a claim, and what it describes."""
    families = [family for family in formulations.FAMILIES if family.name != "counting"]
    claims, entries = CLAIMS, CATALOG.values()
    methods = [method for family in families for method in family.methods]
    owners = [*((family.name, family.overrides) for family in families), *((one.name, one.options) for one in methods)]
    owners += [
        *((claim.name, claim.options) for claim in claims),
        *((entry.name, entry.parameters) for entry in entries),
    ]
    return [
        *((f"{owner} --{setting.name}", setting.help) for owner, settings in owners for setting in settings),
        *((method.name, method.source) for method in methods),
        *((entry.name, entry.help) for entry in entries),
        *((claim.name, claim.summary) for claim in claims),
        *((name, command.function.__doc__ or "") for name, command in app._COMMANDS.items()),
        *first_page.BRIEFS.items(),
    ]


def test_help_is_written_in_the_words_of_the_field() -> None:
    odd = re.compile(r"\b(alike|unlike|in a row|asked for by name|ill|mended|moot|told|heard|the best there is)\b")
    found = texts()
    assert len(found) > 200
    for what, text in found:
        assert text and not odd.search(text), f"{what}: {text}"
        assert text.isprintable() and "``" not in text and not text.startswith("None"), f"{what}: {text}"


def test_a_comparison_of_methods_none_of_which_takes_the_instance(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crosscheck", "chain8-flushed", "--objective", "iteration", "--methods", "labels,milp"]) == 0
    shown = capsys.readouterr()
    assert "none of the methods takes the instance" in shown.out and "labels is left out" in shown.err


def test_the_first_page_is_printed_alone_as_with_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    named = [line.split()[0] for line in shown.splitlines() if line.startswith("  ") and "--" not in line.split()[0]]
    assert named == [*app._COMMANDS]
    script = (
        "import sys; sys.argv = ['planner', '--help']\nfrom planner.__main__ import main\n"
        "try: main()\nfinally: print('typer' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout.rstrip(), done.stderr) == (shown.rstrip(), "False\n")
    assert not first_page.is_asked([]) and not first_page.is_asked(["solve", "--help"])


def test_list(run: Run) -> None:
    code, out, _ = run("list", "--json")
    found = json.loads(out)
    family = next(family for family in found["families"] if family["name"] == "counting")
    assert code == 0
    assert [method["supports"] for method in family["methods"][:2]] == ["at most 10 numbers", "every instance"]
    assert family["methods"][1]["options"][0]["name"] == "extra"
    assert "bert32" in {entry["name"] for entry in found["catalog"]}
    assert found["versions"]["highspy"] == "1.12.0"
    out = run("list")[1]
    assert "counting" in out and max(map(len, out.splitlines())) <= 80


def test_list_of_one_problem_has_its_methods_options_and_instances(run: Run) -> None:
    for family in formulations.FAMILIES:
        code, out, _ = run("list", family.name)
        assert code == 0 and max(map(len, out.splitlines())) <= 80 and "None" not in out
        shown = set(out.split())
        assert {method.name for method in family.methods} <= shown
        settings = [*family.overrides, *(option for method in family.methods for option in method.options)]
        assert {f"--{setting.name}" for setting in settings} <= shown
        text = " ".join(out.split())
        assert all(f"Takes {method.limits}." in text for method in family.methods if method.limits)
        listed = json.loads(run("list", family.name, "--json")[1])["families"][0]["methods"]
        assert [each["supports"] for each in listed] == [method.limits or "every instance" for method in family.methods]
    text = " ".join(run("list", "flushed_partitioning")[1].split())
    assert "chain8-flushed chain8 with a flush after every batch." in text and "bert32" not in text
    found = json.loads(run("list", "flushed_partitioning", "--json")[1])
    assert [family["name"] for family in found["families"]] == ["flushed_partitioning"]
    assert [entry["name"] for entry in found["catalog"]] == ["chain8-flushed"]


def test_list_of_an_instance_shows_who_takes_it_and_why_others_do_not(run: Run, problem: Problem) -> None:
    code, out, err = run("list", "chain8", "--devices", "3", "--microbatches", "5", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["problem"], found["instance"], found["figures"]["devices"]) == ("stage_partitioning", "chain8", 3)
    methods = {each["name"]: each for each in found["methods"]}
    steps = 9 * 2 * (3 + 9 / 2000)
    seconds = steps * seconds_per_step()["stage_partitioning/exact"]
    made = {"name": "exact", "claim": "exact", "refusal": None, "effort": steps, "predicted_s": seconds}
    assert methods["exact"] == made
    code, out, _ = run("list", problem(list(range(1, 12)), 3))
    text = " ".join(out.split())
    assert code == 0 and max(map(len, out.splitlines()[1:])) <= 80  # the first line is a path
    assert "exact* does not take it: 11 numbers are more than 10" in text and "greedy takes it" in text
    found = json.loads(run("list", problem(list(range(1, 12)), 3), "--json")[1])["methods"]
    assert {each["refusal"] is None for each in found} == {True, False}
    assert [each["effort"] for each in found if each["refusal"]] == [None] * sum(
        bool(each["refusal"]) for each in found
    )
    assert run("list", "bert32", "--problem", "flushed_partitioning")[0] == 0
    assert "6e+04 are built; named, it has a first plan" in " ".join(run("list", "gpt3-175b")[1].split())
    assert "--devices" in run("list", "chain8", "--help")[1]
