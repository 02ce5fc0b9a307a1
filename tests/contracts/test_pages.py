"""Pages: their Python is run, their commands end well, their pictures can be drawn, and their links lead somewhere."""

from __future__ import annotations

import doctest
import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest

import planner
from formulations import FAMILIES
from planner.cli.app import main

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted((DOCS / "problems").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "notebooks/README.md", *DOCS.glob("*.md"), *PAGES, *(DOCS / "api").glob("*.md")]
ROOMS = sorted((ROOT / "formulations").glob("*/README.md"))

each = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
each_and_the_readme = pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def generated() -> ModuleType:
    """What the site's build puts into pages."""
    spec = importlib.util.spec_from_file_location("generated", DOCS / "extensions" / "generated.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@each_and_the_readme
def test_the_python_of_a_page_does_what_it_shows(page: Path) -> None:
    outcome = doctest.testfile(str(page), module_relative=False)
    assert outcome.attempted >= 2 and outcome.failed == 0


@each_and_the_readme
def test_the_commands_of_a_page_end_well(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^\$ planner (.*)$", page.read_text(), flags=re.MULTILINE)
    assert commands
    for command in commands:
        assert main(shlex.split(command)) == 0, capsys.readouterr().err


@each
def test_a_page_is_listed_and_shows_methods_and_pictures(page: Path) -> None:
    text = page.read_text()
    assert f"\nproblems/{page.stem}\n" in (DOCS / "index.md").read_text()
    assert "<!-- methods -->" in text and "<!-- figure -->" in text and text.startswith("---\ninstance:")


@pytest.mark.slow
@each
def test_models_in_mathematics_have_the_rows_that_they_are_built_of(page: Path, generated: ModuleType) -> None:
    text = page.read_text()
    instance, settings = generated._example(text, "models")
    loaded = planner.load(instance, **settings)
    parts = re.findall(r"^### Rows (of|added by) ([^\n]*)\n(.*?)(?=\n###|\n<!--)", text, flags=re.M | re.S)
    assert parts
    for kind, methods, rows in parts:
        written = re.findall(r"^\| `(\w+)` \| \$.*\$ \| [^|\n]*\|$", rows, flags=re.M)
        assert len(written) == rows.count("\n| `")
        built = [
            {group.name for group in planner.model(loaded, method).sizes().groups if group.kind == "constraint"}
            for method in re.findall(r"`(.*?)`", methods)
        ]
        assert set(written) <= set().union(*built), (page.stem, methods)
        if kind == "of":
            assert set().union(*built) <= set(written), (page.stem, methods)


def test_every_problem_is_in_the_readme_and_has_a_page_and_its_instances_are_in_the_reference() -> None:
    assert {page.stem for page in PAGES} == {family.name for family in FAMILIES}
    readme, reference = (ROOT / "README.md").read_text(), (DOCS / "api" / "instances.md").read_text()
    for family in FAMILIES:
        assert f"| [`{family.name}`](docs/problems/{family.name}.md) |" in readme
        assert f".. automodule:: instances.{family.name}\n   :members:" in reference, family.name


def test_the_page_of_methods_names_every_method_with_its_claim(generated: ModuleType) -> None:
    assert generated.ALL_METHODS in (DOCS / "methods.md").read_text()
    family, shown = "", []
    for line in generated.all_methods().splitlines():
        if line.startswith("## "):
            family = line.partition("](problems/")[2].removesuffix(".md)")
        elif line.startswith("| `"):
            name, claim, source = (cell.strip() for cell in line.strip("|").split("|"))
            assert source
            shown.append((family, name.strip("`"), claim))
    assert shown == [(family.name, method.name, method.claim) for family in FAMILIES for method in family.methods]


def test_a_page_shows_the_models_of_its_example(generated: ModuleType) -> None:
    shown = generated.models("candle-uno", {"devices": 4})
    assert "| `within` | " in shown and "### `milp-columns`" in shown
    assert "The example is too large for it: method is 'milp-columns'; expected one whose model can be built" in shown


def test_the_reference_has_every_public_name(generated: ModuleType) -> None:
    assert generated.NAMES in (DOCS / "api" / "planner.md").read_text()
    shown = re.findall(r"auto(?:class|function):: planner\.(\w+)", generated.names())
    modules = {name for name in planner.__all__ if isinstance(getattr(planner, name), ModuleType)}
    assert {*shown} == {*planner.__all__} - modules
    for name in modules:
        assert f"## planner.{name}\n" in (DOCS / "api" / "planner.md").read_text()


def slug(heading: str) -> str:
    """The anchor that code hosts and the site make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("document", [*DOCUMENTS, *ROOMS], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(document: Path) -> None:
    text = re.sub(r"```.*?```|`[^`]*`", "", document.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = document.parent / path if path else document
        assert there.exists(), target
        if anchor:
            assert anchor in {slug(line.lstrip("#")) for line in there.read_text().splitlines() if line.startswith("#")}


#: Words that were used here in place of the field's; ``unlike`` as an English preposition is among them.
DIALECT = re.compile(r"\b(alike|unlike|in a row|asked for|ill|mended|moot|told|heard|tells|hears|sings?)\b")


@pytest.mark.parametrize(
    "page", [*DOCUMENTS, *ROOMS, ROOT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_documents_are_written_in_the_words_of_the_field(page: Path) -> None:
    assert DIALECT.findall(page.read_text()) == []


@pytest.mark.parametrize("package", ["formulations", "instances", "planner", "solvers"])
def test_sources_are_written_in_the_words_of_the_field(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        assert DIALECT.findall(path.read_text()) == [], path


def test_the_gallery_has_a_picture_of_every_problem() -> None:
    pytest.importorskip("sphinx", reason="sphinx is not installed")
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "extensions" / "pictures.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.MARK in (DOCS / "gallery-of-pictures.md").read_text()
    assert {family.name for family in FAMILIES} <= set(made.COMMANDS)
    for says, *commands in made.COMMANDS.values():
        assert says.endswith((".", "?")) and all(command.startswith("planner ") for command in commands)
