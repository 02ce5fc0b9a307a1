"""Which proofs are certified, in comparisons, in measurements and on the page: by files that the checker accepts."""

import json
import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from counting import Counting

import planner
from formulations.stage_partitioning.certificate import checker
from planner.cli.app import main
from planner.experiments.bench import folders

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def accepted(certificate: dict[str, Any]) -> bool:
    """By the checker alone, of the files that were written."""
    path = Path(certificate["file"])
    instance = next(path.parent.glob(path.name.rsplit("-", 1)[0] + ".instance.json"))
    assert certificate["bytes"] == path.stat().st_size
    return checker.main([str(instance), str(path)]) == 0


@pytest.mark.parametrize("memory", ["1GiB", "1MB"], ids=["optimal", "infeasible"])
def test_a_comparison_certifies_every_proof(memory: str) -> None:
    instance = planner.load("chain8", memory=memory)
    report = planner.crosscheck(instance, methods=["exact", "equi"], certificates="proofs")
    by_method = {result.method: result for result in report.results}
    assert report.uncertified == {}
    assert by_method["exact"].certificate is not None and accepted(by_method["exact"].certificate)
    assert by_method["equi"].certificate is None  # it proves nothing


def test_without_a_request_nothing_is_written_and_what_can_be_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crosscheck", "chain8", "--methods", "exact,equi", "--quiet"]) == 0
    rows = {line.split()[1]: line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:3]}
    assert rows == {"exact": "possible", "equi": "-"}
    assert not list(Path().iterdir())


def test_a_proof_without_certificate_says_why() -> None:
    instance = Counting("four", (1, 2, 3, 4), 5)
    report = planner.crosscheck(instance, methods=["exact"], certificates="proofs")
    assert list(report.uncertified) == ["exact"] and report.to_json()["uncertified"] == report.uncertified
    assert report.uncertified["exact"] == f"{report.problem} has no certificates yet"
    assert not Path("proofs").exists()


def test_measurements_have_a_column_where_certificates_are_requested(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["bench", "chain8", "--methods", "exact,equi", "--repeats", "1", "--quiet", "--json"]
    assert main([*given, "--out", "plain"]) == 0
    assert "certificate" not in Path("plain/table.md").read_text().splitlines()[0]
    capsys.readouterr()
    assert main([*given, "--out", "rows", "--certify", "proofs"]) == 0
    exact, equi = json.loads(capsys.readouterr().out)["rows"]
    assert accepted(exact["certificate"]) and equi["certificate"] is None
    assert [row.certificate for row in folders.rows_of("rows")] == [exact["certificate"], None]
    head, _, first, second = Path("rows/table.md").read_text().splitlines()[:4]
    assert head.endswith("| certificate |") and "| labels, " in first and second.endswith("| - |")


def test_the_page_shows_the_certificate_and_the_commands_that_check_it(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    assert main(["report", "chain8", "--devices", "4", "--methods", "exact,equi", "--quiet"]) == 0
    part = unescape(Path("report.html").read_text()).partition("<h2>Proof</h2>")[2].partition("<h2>")[0]
    assert "The proof of exact has a certificate of the kind labels, " in part
    commands = [shlex.split(line) for line in re.findall("<pre>(.*)</pre>", part)]
    assert [command[1] for command in commands] == ["certify", "verify"]
    capsys.readouterr()
    assert [main([*command[1:], "--quiet"]) for command in commands] == [0, 0]
    assert "accepted: " in capsys.readouterr().out


def test_a_verdict_has_units_and_a_missing_certificate_its_reason(tmp_path: Path, capsys: Any) -> None:
    instance = planner.load("chain8", memory="40MB")
    certified = planner.certify(instance)
    found = planner.verify(instance, certified.content or {})
    assert re.fullmatch(r"accepted: every plan takes more than 0\.02729\d+ s, this one 0\.0273 s", str(found))
    assert found.unit == "s" and found.to_json()["unit"] == "s"
    other = planner.verify(planner.load("chain8", memory="50MB"), certified.content or {})
    assert str(other) == "rejected: instance: the certificate is of another one"
    none = planner.load("chain8", memory="10MB")
    assert str(planner.verify(none, planner.certify(none).content or {})) == "accepted: there is no plan"
    given = ["solve", "chain8-strategy", "--devices", "4", "--exact", "--certificate", str(tmp_path / "c.json")]
    assert main([*given, "--json"]) == 0
    said = "there is nothing to write: uncertified: training_strategy has no certificates yet"
    assert said in capsys.readouterr().err
