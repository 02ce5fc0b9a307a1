"""Every number that a finding or a claim calls printed has its origin in docs/findings/printed.toml."""

import ast
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from paths import ROOT

from planner.cli.app import main
from planner.display.reproduction import show_reproduction
from planner.process.errors import UsageError
from planner.reproduction import CLAIMS, Evidence
from planner.reproduction.claim import meets
from planner.reproduction.parmesan import orders
from planner.reproduction.reproduce import Reproduction, claims_listing, reproduce
from planner.reproduction.verdicts import CPU_S, KINDS, VERDICTS, verdict_of

DOCS, MODULES = ROOT / "docs", ROOT / "planner" / "reproduction"
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
LIST = rf"{NUMBER}(?:(?: to | and |, |-){NUMBER})*"
#: "(printed: 1.2 to 1.6)", "Printed are ... .", "printed 22", "printed at least 14.7", "1.1, 1.1 and 1.0 are printed",
#: "prints pp 1 and 2", and a number that stands in quotes by itself.
FORMS = (
    r"\(printed: ([^()]*)\)", r"[Pp]rinted are (.*?)(?:\. |\.?$|; )",
    rf"[Pp]rinted(?: within| at least|,? up to)? ({LIST})", rf"({LIST})(?: %)? (?:is|are) printed",
    rf"[Pp]rints(?: [a-z]+)? ({LIST})", rf'"({LIST}) ?[%x]?"(?!:)',
)  # fmt: skip


def called_printed(text: str) -> Iterator[str]:
    """The numbers that a text calls printed, and those of its tables' columns that do."""
    heads: list[int] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.strip().startswith("|") else []
        if not cells:
            heads = []
        elif not heads:
            heads = [at for at, cell in enumerate(cells) if cell.startswith("printed")] or [-1]
        else:
            yield from (number for at in heads if at >= 0 for number in re.findall(NUMBER, cells[at]))
    prose = " ".join(line.strip() for line in text.splitlines() if not line.strip().startswith(("|", "![")))
    for form in FORMS:
        for found in re.findall(form, prose):
            yield from re.findall(NUMBER, found)


@pytest.fixture(scope="module")
def made() -> Iterator[ModuleType]:
    """docs/findings/make.py."""
    pytest.importorskip("vl_convert")
    found = importlib.util.spec_from_file_location("origins_of_findings", DOCS / "findings" / "make.py")
    assert found is not None and found.loader is not None
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    yield module
    del sys.modules[found.name]


def recorded(made: Any, where: str) -> set[str]:
    """The numbers recorded for a section of the findings or a claim's module."""
    return {
        number
        for record in made.origins()
        if any(where.startswith(each) for each in record["where"])
        for number in record.get("numbers", ())
    }


def claim_modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(MODULES.glob("*/*.py")):
        yield f"{path.parent.name}/{path.stem}", path


def test_numbers_that_findings_call_printed_have_an_origin(made: Any) -> None:
    sections = made.sections((DOCS / "findings.md").read_text())
    bars = {f.section: [b.number for b in f.bars if "printed" in b.label] for f in made.FINDINGS}
    called = {heading: {*called_printed(body)} for heading, body in sections.items()}
    for section, numbers in bars.items():
        heading = next(heading for heading in sections if heading.startswith(section))
        called[heading] |= set(numbers)
    lacking = {heading: found - recorded(made, heading) for heading, found in called.items()}
    assert {heading: found for heading, found in lacking.items() if found} == {}
    assert sum(map(len, called.values())) > 20


def test_numbers_that_claims_call_printed_have_an_origin(made: Any) -> None:
    lacking: dict[str, set[str]] = {}
    constants = set()
    for where, path in claim_modules():
        tree = ast.parse(path.read_text())
        texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        found = {number for text in texts if isinstance(text, str) for number in called_printed(text)}
        if found - recorded(made, where):
            lacking[where] = found - recorded(made, where)
        for node in tree.body:
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and re.fullmatch("_?(PRINTED|RELEASED)(_[A-Z]+)?", target.id):
                constants.add((where, target.id))
    assert lacking == {}
    records = [record for record in made.origins() if "constant" in record]
    known = {(where, record["constant"]) for record in records for where in record["where"] if "/" in where}
    assert constants == known and len(known) > 10


def measured(path: Path) -> set[str]:
    """Numbers of a page's prose, or of a notebook's cells of text: shares, factors, times, rates, counts, thousands."""
    text = path.read_text()
    if path.suffix == ".py":
        text = "\n".join(cell for cell in text.split("\n# %%") if cell.startswith(" [markdown]"))
    prose = re.sub(r"\s*\n# ?|\s+", " ", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    with_unit = rf"(?<![\w.,]){NUMBER}(?= (?:%|times|m?s\b|samples/s|tokens/s|of \d))"
    return {*re.findall(rf"{with_unit}|\b\d{{1,3}}(?:,\d{{3}})+\b", prose)}


def test_the_readme_and_each_notebook_state_what_one_finding_has(made: Any) -> None:
    """Or what the page's own samples show, which another test executes."""
    sections = [*made.sections((DOCS / "findings.md").read_text()).values()]
    pages = {path: measured(path) for path in (ROOT / "README.md", *sorted((ROOT / "notebooks").glob("*.py")))}
    for path, found in pages.items():
        samples = "".join(re.findall("```.*?```", path.read_text(), re.DOTALL))
        assert any(found <= {*re.findall(NUMBER, text)} for text in (*sections, samples)), (path.name, found)
    assert pages[ROOT / "notebooks" / "03_knapsack_census.py"] >= {"332", "246,762", "26", "23.6", "2.5"}


def test_every_record_is_used_and_the_page_has_all(made: Any) -> None:
    sections = made.sections((DOCS / "findings.md").read_text())
    modules = dict(claim_modules())
    for record in made.origins():
        for where in record["where"]:
            own = [body for heading, body in sections.items() if heading.startswith(where)]
            assert where in modules or len(own) == 1, where
            for number in record.get("numbers", ()) if own else ():
                assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d])", own[0]), (where, number)
    assert (DOCS / "printed-numbers.md").read_text() == made.page()


def test_every_claim_has_a_verdict_with_numbers_of_its_finding(made: Any) -> None:
    """A number that is printed has its record where the finding does not have it."""
    assert sorted(filter(None, (verdict.name for verdict in VERDICTS))) == sorted(claim.name for claim in CLAIMS)
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS) and all(each.summary and each.paper for each in CLAIMS)
    assert all(verdict.kind in KINDS and (verdict.name or verdict.own_command) for verdict in VERDICTS)
    sections = made.sections((DOCS / "findings.md").read_text())
    for verdict in VERDICTS:
        (body,) = (body for heading, body in sections.items() if heading.startswith(verdict.section))
        module = verdict.name.replace("-", "/", 1).replace("-", "_")
        for text in (verdict.found, *(each.value for each in verdict.printed)):
            known = {*re.findall(NUMBER, body)} | (recorded(made, module) if text != verdict.found else set())
            assert {*re.findall(NUMBER, text)} <= known, (verdict.claim, text)
        assert all(each.origin in ("paper", "release", "ours") for each in verdict.printed)


def test_the_findings_begin_with_the_verdicts(made: Any) -> None:
    text = (DOCS / "findings.md").read_text()
    assert made.with_verdicts(text) == text and text.index("| verdict |") < text.index("\n## ")
    assert made.with_verdicts(text.replace("| holds in part |", "| holds |")) == text


def test_a_record_has_one_origin(made: Any) -> None:
    with pytest.raises(SystemExit, match="one of paper, release, ours"):
        made.origin({"where": ["x"], "paper": "Piper", "place": "Table 1", "ours": "a command"})
    with pytest.raises(SystemExit, match="a place for a paper"):
        made.origin({"where": ["x"], "paper": "Piper"})


def test_forms_in_which_a_number_is_called_printed() -> None:
    text = """A gain (printed: 1.2 to 1.6; up to 2). Printed are 9 to 21 on all, and 74 on one.
        It is 2.5, where 1.1 and 1.0 are printed. The printed 61.2086; it prints pp 3, "10-15%" and {"4": 5}.

        | here | printed, there |
        |---|---|
        | 7 | 8.5 |
        """
    assert sorted(called_printed(text)) == [
        "1.0", "1.1", "1.2", "1.6", "10", "15", "2", "21", "3", "61.2086", "74", "8.5", "9",
    ]  # fmt: skip


def test_every_section_has_its_picture_with_its_numbers(made: Any) -> None:
    text = (DOCS / "findings.md").read_text()
    assert [line for finding in made.FINDINGS for line in made.missing(finding, text)] == []
    without = [name for name, body in made.sections(text).items() if "](findings/" not in body]
    assert [name.split(" (")[0] for name in without] == ["What of this is certified"]
    files = {path.name for path in (DOCS / "findings").glob("*.svg")}
    assert files == {finding.file for finding in made.FINDINGS} and len(files) == len(made.FINDINGS)


def test_a_number_that_the_section_lacks_is_named(made: Any) -> None:
    finding = made.Finding("A", "says", "s", (made.Bar("one", "1,922"), made.Bar("two", "2.5", times=10.0)))
    text = f"# Page\n\n## A: b\n\n{finding.line}\n\nIt was 1,922 and 2.5.\n\n## B\n\n2.55\n"
    assert list(made.missing(finding, text)) == [] and "two 25 (s)" in finding.line
    for old, new in (("and 2.5.", "and 2.55."), ("was 1,922", "was 11,922"), ("was 1,922", "was 1,922.5")):
        [lack] = made.missing(finding, text.replace(old, new))
        assert "no number" in lack
    [lack] = made.missing(finding, text.replace("![says", "![said"))
    assert "no line" in lack


def test_a_folder_without_the_inputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--inputs is .*bert32a100\.json"):
        reproduce("piper-fig-4", inputs=str(tmp_path))


def test_what_is_met_and_compared_are_counted_apart() -> None:
    evidence = Evidence(({"here": 1.0},), "published", compared=3, matched=2, notes=("a",), figures={"calls": 7})
    found = Reproduction(CLAIMS[0], evidence, 0.5).to_json()
    assert found == {
        "claim": CLAIMS[0].name, "paper": CLAIMS[0].paper, "inputs": "published", "compared": 3, "matched": 2,
        "rows": [{"here": 1.0}], "notes": ["a"], "tables": None, "seconds": 0.5, "calls": 7,
        "verdict": verdict_of(CLAIMS[0].name).to_json(),
    }  # fmt: skip


def test_the_command_lists_the_claims(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == claims_listing()
    assert main(["reproduce", "--list"]) == 0
    printed = capsys.readouterr().out
    assert all(claim.name in printed for claim in CLAIMS)
    assert {verdict_of(claim.name).says for claim in CLAIMS} == {
        kind for kind in KINDS.values() if f" {kind} " in printed
    }


def test_a_verdict_is_said_first_and_ten_rows_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    rows = tuple({"setting": f"row {number}"} for number in range(12))
    found = Reproduction(CLAIMS[0], Evidence(rows, "published"), 0.5)
    show_reproduction(found)
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{found.verdict.says}: {found.verdict.claim}")
    assert sum("row " in line for line in others) == 10 and others[-1] == "10 of 12 rows; all with --full"
    show_reproduction(found, full=True)
    assert sum("row " in line for line in capsys.readouterr().out.splitlines()) == 12


@pytest.mark.parametrize(
    ("found", "printed", "met"),
    [
        (17.01672, "17.0167", True), (17.01676, "17.0167", False), (7.838028, "7.83803", True),
        (10.26, "10.26", True), (10.264, "10.26", True), (10.266, "10.26", False), (0.021238, "0.021238", True),
        (None, None, True), (None, "1.5", False), (1.5, None, False),
    ],
)  # fmt: skip
def test_printed_precision(found: float | None, printed: str | None, met: bool) -> None:
    assert meets(found, printed) is met


def test_optima_of_a_claim_are_certified_into_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "proofs"
    given = ["reproduce", "piper-fig-4", "--quiet", "--json"]
    assert main([*given, "--certify", str(folder)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert f"certified in {folder}: 2 of 2" in found["notes"]
    files = {each["file"] for each in found["certificates"]}
    assert files == {str(path) for path in folder.glob("*.certificate.json")} and len(files) == 2
    for file in files:
        instance = file.rpartition("-")[0] + ".instance.json"
        assert main(["verify", instance, file]) == 0


def test_what_a_claim_takes_is_what_its_finding_states() -> None:
    """Where a finding says the CPU time of a command, that; and of no claim that there is not."""
    findings = (ROOT / "docs" / "findings.md").read_text()
    stated = re.findall(r"`planner\s+reproduce\s+([a-z0-9-]+)`\s*[(,]\s*(\d+)\s+(?:s of )?CPU", findings)
    assert len(stated) >= 10 and all(CPU_S.get(name, int(s)) == int(s) for name, s in stated)
    assert {claim.name for claim in CLAIMS} >= set(CPU_S)


def test_orders_are_compared_with_the_print_and_with_each_other() -> None:
    names = [", ".join(each) for each in orders.VARIANTS]
    *others, last = orders._sentences([{"paper_speedup": 2.0, **dict.fromkeys(names, 1.0), names[-1]: 2.0}])
    assert "in 0 of 1 cells; a factor of 1.00 from it, and of 1.00 behind" in last
    assert all("in 1 of 1 cells; a factor of 2.00 from it, and of 2.00 behind" in each for each in others)
