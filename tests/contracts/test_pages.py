"""Pages: their Python is run, their commands end well, their pictures can be drawn, and their links lead somewhere."""

import ast
import doctest
import importlib
import json
import re
import shlex
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import typer
from paths import ROOT, documents, of_a_checkout
from small_instances import family_named, random_case
from thinned import thinned

import planner
from formulations import FAMILIES
from planner.cli.app import application, main

DOCS = documents()
PAGES = sorted((DOCS / "problems").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "notebooks/README.md", *DOCS.glob("*.md"), *PAGES, *DOCS.glob("[ai]*/*.md")]
ROOMS = sorted((ROOT / "formulations").glob("*/README.md"))

each = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
each_and_the_readme = thinned("page", [ROOT / "README.md", *PAGES], ids=lambda path: path.stem)


def extension(name: str) -> ModuleType:
    """An extension of the site."""
    pytest.importorskip("sphinx", reason="sphinx is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS / "extensions"))
        return importlib.import_module(name)


@pytest.fixture(scope="module")
def generated() -> ModuleType:
    """What the site's build puts into pages."""
    return extension("generated")


@pytest.fixture(scope="module")
def model_lines() -> ModuleType:
    """The lines that build models, and the tables that name their files."""
    return extension("model_lines")


@each_and_the_readme
def test_the_python_of_a_page_does_what_it_shows(page: Path) -> None:
    outcome = doctest.testfile(str(page), module_relative=False)
    assert outcome.attempted >= 2 and outcome.failed == 0


@each_and_the_readme
def test_the_commands_of_a_page_end_well(
    page: Path, capsys: pytest.CaptureFixture[str], many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default three that run one method; words of all are examined in test_documents."""
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ planner (.*)$", page.read_text(), flags=re.MULTILINE)
    few = [each for each in commands if not each.startswith(("crosscheck", "reproduce"))][:3]
    assert few
    for command in commands if many else few:
        assert main(shlex.split(command)) in (0, 4 * command.startswith("explain ")), capsys.readouterr().err


@each
def test_a_page_is_listed_and_shows_methods_and_pictures(page: Path) -> None:
    text = page.read_text()
    assert f"\nproblems/{page.stem}\n" in (DOCS / "methods.md").read_text()
    assert "<!-- methods -->" in text and "<!-- figure -->" in text and text.startswith("---\ninstance:")


#: Pages whose models add rows to those of another page's, method by method.
ADDED_TO = {"flushed_partitioning": "stage_partitioning"}


def rows_of(page: str, model_lines: ModuleType) -> dict[str, set[str]]:
    """By method the groups that have a row on a page, all of which can be read."""
    found: dict[str, set[str]] = {}
    for part in model_lines.PART.finditer((DOCS / "problems" / f"{page}.md").read_text()):
        rows = [row[1] for row in model_lines.ROW.finditer(part[3])]
        assert len(rows) == part[3].count("\n| `") == len(set(rows)), (page, part[2])
        for method in re.findall(r"`(.*?)`", part[2]):
            found.setdefault(method, set()).update(rows)
    return found


@pytest.mark.slow
@each
def test_every_group_of_a_model_has_its_row_beside_the_files_that_build_it(
    page: Path, model_lines: ModuleType, cases: int
) -> None:
    """The models are those of the page's instances, and of random ones."""
    family, text = page.stem, page.read_text()
    linked = model_lines.linked(text, family)
    rows = rows_of(family, model_lines)
    assert set(rows) == {method.name for method in family_named(family).methods if method.build is not None}
    for method, more in rows_of(ADDED_TO[family], model_lines).items() if family in ADDED_TO else ():
        for each in (method, f"{method}-orders"):
            rows.get(each, set()).update(more)
    assert len(re.findall(r"^\| `\w+` \| \$.*</a> \|$", linked, flags=re.MULTILINE)) == text.count("\n| `")
    for instance, settings in (model_lines.example(text, "models"), *model_lines.variants(text, family)):
        for built in model_lines.models(instance, settings):
            assert {group.name for group in built.groups if group.kind == "constraint"} <= rows[built.method.name]
    for number in range(cases):
        instance = random_case(family, 1, number)
        for method in family_named(family).methods:
            if method.build is None or method.misfit(instance) is not None:
                continue
            try:
                groups = planner.model(instance, method.name).sizes().groups
            except planner.UsageError:  # more stages than layers, say: there is nothing to build
                continue
            assert {group.name for group in groups if group.kind == "constraint"} <= rows[method.name], method.name


@pytest.mark.slow
@each
def test_a_group_is_built_on_the_lines_that_its_row_leads_to(page: Path, model_lines: ModuleType) -> None:
    """They name it, or what makes its name."""
    text = page.read_text()
    for line in model_lines.linked(text, page.stem).splitlines():
        group = re.match(r"\| `(\w+)` \|", line)
        for path, number in re.findall(r'sources/([\w/]+)\.html#line-(\d+)"', line):
            tree = ast.parse((ROOT / f"{path}.py").read_text())
            begun = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno == int(number)]
            assert group is not None and len(begun) == 1, (path, number)
            assert re.search(rf"\b{group[1]}\b|\{{name\}}_|\(name\b", ast.unparse(begun[0])), (path, number)


@of_a_checkout
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[cpsat.py], [milp.py] |", "[cpsat.py] |"),
        (
            "[cpsat.py]: ../../formulations/tmpc_knapsack/models/cpsat.py",
            "[cpsat.py]: ../../formulations/tmpc_knapsack/models/milp.py",
        ),
        ("| `memory` |", "| `memories` |"),
    ],
)
def test_a_row_that_names_other_files_than_build_it_is_an_error(
    model_lines: ModuleType, before: str, after: str
) -> None:
    text = (DOCS / "problems" / "tmpc_knapsack.md").read_text()
    assert before in text and "milp.html#line-" in model_lines.linked(text, "tmpc_knapsack")
    with pytest.raises(ValueError, match=r"tmpc_knapsack\.md: row `"):
        model_lines.linked(text.replace(before, after), "tmpc_knapsack")


@of_a_checkout
def test_files_that_pages_link_to_have_pages_with_their_lines() -> None:
    sources = extension("sources")
    site = SimpleNamespace(env=SimpleNamespace())
    path = "formulations/tmpc_knapsack/models/cpsat"
    sources.on_source_read(site, "problems/page", [f'<a href="../sources/{path}.html#line-3">'])
    ((name, context, _),) = sources.on_collect_pages(site)
    assert name == f"sources/{path}" and 'id="line-3"' in context["body"]
    for linked in (f"{path}.html#line-9999", "formulations/none.html#line-1"):
        with pytest.raises(sources.ExtensionError, match="has no line"):
            sources.on_source_read(site, "problems/page", [f'<a href="../sources/{linked}">'])
    sources.on_purge(site, site.env, "problems/page")
    assert list(sources.on_collect_pages(site)) == []


def test_every_problem_is_in_the_readme_and_has_a_page_and_its_instances_are_in_the_reference() -> None:
    assert {page.stem for page in PAGES} == {family.name for family in FAMILIES}
    readme, reference = (ROOT / "README.md").read_text(), (DOCS / "api" / "instances.md").read_text()
    for family in FAMILIES:
        assert f"| [`{family.name}`](docs/problems/{family.name}.md) |" in readme
        assert f".. automodule:: instances.problems.{family.name}\n   :members:" in reference, family.name


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
    assert {*dir(planner)} == {*planner.__all__, "__version__"}
    modules = {name for name in planner.__all__ if isinstance(getattr(planner, name), ModuleType)}
    assert {*shown} == {*planner.__all__} - modules
    for name in modules:
        assert f"## planner.{name}\n" in (DOCS / "api" / "planner.md").read_text()


def slug(heading: str) -> str:
    """The anchor that code hosts and the site make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def prose(documents: list[Path]) -> dict[Path, str]:
    """Without code."""
    return {path: re.sub(r"```.*?```|`[^`]*`", "", path.read_text(), flags=re.DOTALL) for path in documents}


@of_a_checkout
def test_links_lead_to_files_and_headings() -> None:
    for document, text in prose([*DOCUMENTS, *ROOMS]).items():
        for target in re.findall(r"(?<=\]\()[^)\s]+(?=\))|(?<=\]: )\S+$", text, flags=re.MULTILINE):
            path, _, anchor = target.partition("#") if "://" not in target else ("", "", "")
            there = document.parent / path if path else document
            assert there.exists(), (document, target)
            lines = there.read_text().splitlines() if anchor else []
            assert not anchor or anchor in {slug(each.lstrip("#")) for each in lines if each[:1] == "#"}, target


def test_formulas_are_those_that_the_site_understands() -> None:
    docutils = pytest.importorskip("docutils.utils.math.latex2mathml", reason="docutils is not installed")
    for text in prose(DOCUMENTS).values():
        for formula in re.findall(r"\$\$(.*?)\$\$|(?<![$\\])\$([^$\n]+)\$(?!\$)", text, flags=re.DOTALL):
            docutils.tex2mathml("".join(formula))


#: Words that were used here in place of the field's; ``unlike`` as an English preposition is among them.
DIALECT = re.compile(r"\b(alike|unlike|in a row|asked for|ill|mended|moot|told|heard|tells|hears|sings?)\b")


@of_a_checkout
def test_documents_and_sources_are_written_in_the_words_of_the_field() -> None:
    sources = [
        path for each in ("formulations", "instances", "planner", "solvers") for path in (ROOT / each).rglob("*.py")
    ]
    for path in [*DOCUMENTS, *ROOMS, ROOT / "CHANGELOG.md", *sources]:
        assert DIALECT.findall(path.read_text()) == [], path


def test_the_sidebar_has_four_parts_and_at_most_fifteen_entries() -> None:
    """Pages below these fold; Sphinx refuses a page that is in no list."""
    lists = re.findall(
        r"```{toctree}\n:hidden:\n:caption: (.*?)\n\n(.*?)\n```", (DOCS / "index.md").read_text(), re.DOTALL
    )
    assert [caption for caption, _ in lists] == ["Tutorial", "How-to", "Explanation", "Reference"]
    entries = [entry for _, listed in lists for entry in listed.split()]
    assert len(entries) <= 15 and all((DOCS / f"{entry}.md").exists() for entry in entries if "notebooks" not in entry)


@each
def test_a_page_shows_the_fields_of_its_files_and_the_settings(page: Path) -> None:
    """Those that are read: a field that a page does not have is refused there, too."""
    interface, family = extension("interface"), family_named(page.stem)
    files = page.read_text().partition("\n## Files\n")[2]
    assert f"### Fields\n\n{interface.FIELDS}\n" in files and f"### Settings\n\n{interface.SETTINGS}\n" in files
    rows = [line.split(" | ") for line in interface.fields(family.name).splitlines()[2:]]
    assert rows and all(len(row) == 4 for row in rows)
    example = json.loads(re.findall(r"```json\n(.*?)```", files, flags=re.DOTALL)[0])
    assert set(example) - {"problem", "schema_version"} <= {row[1].strip("`") for row in rows if row[0] == "| the file"}
    shown = re.findall(r"^\| `--([\w-]+)", interface.settings(family.name), flags=re.MULTILINE)
    assert shown == [setting.name for setting in family.overrides]


def test_the_page_of_commands_has_every_command_with_its_options() -> None:
    interface = extension("interface")
    assert interface.COMMANDS in (DOCS / "interface" / "commands.md").read_text()
    shown = interface.commands()
    commands = typer.main.get_command(application()).commands  # type: ignore[attr-defined]
    assert re.findall(r"^## `planner (.*)`$", shown, flags=re.MULTILINE) == [*commands]
    for name, command in commands.items():
        section = shown.partition(f"## `planner {name}`\n")[2].partition("\n## ")[0]
        options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
        expected = [each.opts[0] for each in options if each.name != "help"]
        assert re.findall(r"^\| `(--[\w-]+)", section, flags=re.MULTILINE) == expected, name


def test_outputs_that_a_narrow_window_cuts_can_be_moved_with_a_keyboard() -> None:
    context = {
        "body": '<pre>long</pre><math xmlns="m" display="block"></math><div class="table-wrapper wide"></div>',
        "furo_navigation_tree": '<p class="caption" role="heading">Tutorial</p>',
    }
    body = context["body"]
    extension("accessible").on_page(None, "", "", context, None)
    assert re.sub(" tabindex=.0.", "", context["body"]) == body and context["body"].count('tabindex="0"') == 3
    assert context["furo_navigation_tree"] == '<p class="caption" role="heading" aria-level="2">Tutorial</p>'


def test_a_word_that_the_search_does_not_find_is_named() -> None:
    search = extension("search_words")
    pages = sorted({page for pages in search.WORDS.values() for page in pages})
    index = {
        "docnames": pages,
        "terms": {word: [pages.index(page) for page in found] for word, found in search.WORDS.items()},
        "titleterms": {},
    }
    assert search.not_found(index, str) == []
    index["titleterms"] = {"latex": pages.index("how-to"), "csv": index["terms"].pop("csv")}
    index["terms"]["latex"] = []
    assert search.not_found(index, str) == ["validating-a-heuristic by latex"]
    assert all((DOCS / f"{page}.md").exists() for page in pages)


def test_the_gallery_has_a_picture_of_every_problem() -> None:
    made = extension("pictures")
    assert made.MARK in (DOCS / "gallery-of-pictures.md").read_text()
    assert {family.name for family in FAMILIES} <= set(made.COMMANDS)
    for says, *commands in made.COMMANDS.values():
        assert says.endswith((".", "?")) and all(command.startswith("planner ") for command in commands)
