"""Documents that can be run are run: doctests of all modules, and the JSON in docs/problems/."""

import doctest
import importlib
import json
import re
import runpy
import shlex
import tomllib
from pathlib import Path

import pytest
import typer
from paths import ROOT, documents, of_a_checkout

import planner
from formulations import FAMILIES
from planner.cli.app import application, main
from planner.files.load import recognise_family
from planner.reproduction import CLAIMS

DOCS = documents()
PACKAGES = ("planner", "formulations", "solvers", "instances")


@of_a_checkout
def test_doctests() -> None:
    """Of the modules with examples: looking for them in all the others takes far longer than running them."""
    attempted = 0
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if ">>>" not in path.read_text():
            continue
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in ("torch", "transformers"):  # the extra of planner.training.capture
                raise
            continue
        outcome = doctest.testmod(module)
        assert outcome.failed == 0, name
        attempted += outcome.attempted
    assert attempted >= 10


@pytest.mark.parametrize("page", [path.name for path in ROOT.glob("docs/*.md") if ">>>" in path.read_text()])
def test_sessions_of_pages_run(page: str) -> None:
    outcome = doctest.testfile(str(DOCS / page), module_relative=False)
    assert outcome.failed == 0 < outcome.attempted


@pytest.mark.parametrize(
    "family",
    [
        "stage_partitioning", "tmpc_knapsack", "layer_assignment", "mesh_tiling", "operator_strategies",
        "amp_strategy", "operator_partitioning", "stage_graph", "training_strategy", "serving_strategy",
        "microbatch_schedule", "device_mapping", "pipeline_placement",
    ],
)  # fmt: skip
def test_schemas_shown_are_read_and_their_plans_check(family: str) -> None:
    section = (DOCS / "problems" / f"{family}.md").read_text().partition("\n## Files\n")[2]
    blocks = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", section, flags=re.DOTALL)]
    plans = [json.loads(text) for text in re.findall(r"Plan: `(.*?)`", section)]
    content, plan = [*blocks, *plans][:2]
    instance = recognise_family(content, "page").read(content, "page", {})
    assert planner.check(instance, plan).feasible


def commands_of(text: str) -> list[list[str]]:
    """The words of every ``planner`` command that is written out, in backticks or on a line of a block."""
    inline = re.findall(r"`(planner [^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    blocks = re.findall(r"```(?:console|sh)\n(.*?)```", text, flags=re.DOTALL)
    lines = [line.removeprefix("$ ").strip() for block in blocks for line in block.splitlines()]
    return [shlex.split(command, comments=True) for command in (*inline, *lines) if re.match(r"planner [a-z]", command)]


def test_commands_of_documents_are_commands() -> None:
    """They name subcommands, options, methods and claims that exist."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("formulations/*/README.md")]
    texts = [(page.name, page.read_text()) for page in pages]
    texts.append(("gallery", runpy.run_path(str(DOCS / "gallery" / "make.py"))["sections"]()))
    commands = [(name, words) for name, text in texts for words in commands_of(text)]
    applications = {name: typer.main.get_command(application(name)) for name in {words[1] for _, words in commands}}
    methods = {method.name for family in FAMILIES for method in family.methods} | {"portfolio"}
    for page, (_, name, *words) in commands:
        command = applications[name].commands[name]  # type: ignore[attr-defined]
        known = {"--help"} | {option for parameter in command.params for option in parameter.opts}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, (page, words)
        named = {words[i + 1] for i, word in enumerate(words[:-1]) if word == "--method"}
        assert {method for method in named if re.fullmatch(r"[a-z-]+", method)} <= methods, (page, words)
        claims = {word for word in words[:1] if name == "reproduce" and re.fullmatch(r"[a-z][a-z0-9-]+", word)}
        assert claims <= {claim.name for claim in CLAIMS}, (page, words)
    assert len(commands) > 350


def test_every_finding_has_its_paper_and_a_way_to_see_it() -> None:
    """A sentence of the paper in quotation marks, or a word that no claim is at stake; a command or a test."""
    for section in (DOCS / "findings.md").read_text().split("\n## ")[1:]:
        title = section.partition("\n")[0]
        plain = re.sub(r"`[^`]*`", "", re.sub(r"```.*?```", "", section, flags=re.DOTALL)).replace("\n", " ")
        quoted = "aper" in plain and re.search(r'"[A-Z1][^"]{40,}[.\])]"', plain)
        assert quoted or re.search(r"No (sentence of the paper|paper's claim)", plain), title
        assert re.search(r"`(planner|pytest)\s|`tests/", section), title


@of_a_checkout
def test_there_is_one_version() -> None:
    """Of what is installed and built, the citation, the changelog's last section and the example of a result."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    cited = dict(re.findall(r"(?m)^(\S+): (.*)$", (ROOT / "CITATION.cff").read_text()))
    last = re.findall(r"(?m)^## (.*)$", (ROOT / "CHANGELOG.md").read_text())[0]
    shown = re.findall(r'"dnn-planner": "(.*?)"', (DOCS / "interface" / "results.md").read_text())
    assert planner.__version__ == cited["version"] == version and shown == [version]
    assert last == f"{version} ({cited['date-released']})"


def test_the_readme_lists_all_extras_and_texts_install_from_this_folder() -> None:
    """The package is on no index."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    section = (ROOT / "README.md").read_text().partition("\n## Extras\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)) == set(declared)
    texts = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    for path in (*texts, ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("notebooks/*.py")):
        named = re.findall(r"pip install '(.*?)\[(.*?)\]'", path.read_text())
        assert all(where == "." and set(extras.split(",")) <= set(declared) for where, extras in named), path


#: Seconds differ from run to run.
_SECONDS = re.compile(
    r"(?<=\(exact\), )\S+(?= s)|(?<=, seconds )\S+|(?<=compile_seconds )\S+|(?<=proved )\d\S+|(?<=completed )\d\S+"
)


def _shown(text: str) -> list[str]:
    """The lines of an output without seconds and without the width of columns."""
    return [_SECONDS.sub("...", " ".join(line.split())) for line in text.strip().splitlines()]


@pytest.mark.parametrize(
    ("page", "shown"),
    [("README.md", 3), ("docs/first-plan.md", 3), ("docs/first-heuristic.md", 2), ("docs/first-instance.md", 3)],
)
def test_the_samples_of_a_page_are_what_its_commands_print(
    page: str, shown: int, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder with the Python files that it has; ``cat`` shows a file that is given."""
    text = (ROOT / page).read_text()
    monkeypatch.chdir(tmp_path)
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, flags=re.DOTALL):
        (tmp_path / name).write_text(code)
    samples = re.findall(r"```console\n\$ (\w+) (.*?)\n(.*?)```", text, flags=re.DOTALL)
    assert len(samples) == shown
    for program, command, printed in samples:
        if program == "cat":
            (tmp_path / command).write_text(printed)
            continue
        assert main([*shlex.split(command), "--quiet"]) == (4 if "there is no plan" in printed else 0)
        assert _shown(capsys.readouterr().out) == _shown(printed), command
