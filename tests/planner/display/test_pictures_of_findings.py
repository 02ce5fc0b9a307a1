"""Every finding has a picture, which shows numbers that its section has."""

import importlib.util
import sys
from typing import Any

import pytest
from paths import ROOT

pytest.importorskip("vl_convert")
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def made() -> Any:
    """docs/findings/make.py."""
    found = importlib.util.spec_from_file_location("pictures_of_findings", DOCS / "findings" / "make.py")
    assert found is not None and found.loader is not None
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    yield module
    del sys.modules[found.name]


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
