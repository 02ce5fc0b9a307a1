"""On what a method loses, by hand; and the tables that a paper takes."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from planner.cli.app import main
from planner.display.paper_tables import format_table, kind_and_file, paper_table
from planner.display.populations import features_of
from planner.experiments.validation.loss_by import losses_by
from planner.experiments.validation.records import reasons, totals_of
from planner.experiments.validation.run import Validation
from planner.process.errors import UsageError

Run = Callable[..., tuple[int, str, str]]
#: In a file whose name LaTeX does not take as it is.
OWN = """
def least(instance):
    return {"choice": {str(n.id): min(n.options, key=lambda o: (o.memory_bytes, -o.time)).id for n in instance.nodes}}
"""
SOURCE = "knapsack:nodes=3..6,kind=layers|uncorrelated,memory=8GiB"


def records(losses: list[float | None], **parameters: list[Any]) -> list[dict[str, Any]]:
    """A record for each loss of the method "m", with what was drawn."""
    found = []
    for place, loss in enumerate(losses):
        outcome = "no_plan" if loss is None else "suboptimal" if loss else "optimal"
        row = {"outcome": outcome, "loss": loss, "seconds": 0.25}
        drawn = {name: values[place] for name, values in parameters.items() if values[place] is not None}
        found.append({"rows": {"m": row}, "infeasible": False, "size": place, "parameters": drawn})
    return found


@pytest.mark.parametrize(
    ("losses", "drawn", "share"),
    [
        ([0.0, 0.0, 0.1, 0.1], [1, 1, 2, 2], 1.0),  # H = 3 of 4 losses in two groups
        ([0.1, 0.2, 0.3, 0.4], [1, 2, 1, 2], 0.0),  # H = 0.6, less than chance has
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], ["a", "a", "b", "b", "c", "c"], (32 / 7 - 2) / 3),
        ([0.0, 0.0, 0.0, 0.0], [1, 1, 2, 2], None),
        ([0.1, 0.2, None, None], [1, 2, 1, 2], None),
        ([0.1, 0.2, 0.3], [1, 1, 1], None),
    ],
)
def test_what_a_parameter_explains(losses: list[float | None], drawn: list[Any], share: float | None) -> None:
    [found] = losses_by(records(losses, a=drawn), ["a"], ["m"])
    assert found.explains["m"] == (None if share is None else pytest.approx(share))


def test_the_one_that_explains_most_comes_first_however_it_does() -> None:
    """Losses in the middle alone: a rank correlation would be 0."""
    rng = Random(1)
    layers = [rng.randint(1, 40) for _ in range(400)]
    losses = [0.1 + 0.01 * rng.random() if 10 < each <= 30 else 0.01 * rng.random() for each in layers]
    found = losses_by(records(losses, a=[rng.random() for _ in layers], layers=layers), ["a", "layers", "size"], ["m"])
    assert found[0].parameter == "layers"
    shares = {each.parameter: each.explains["m"] for each in found}
    assert shares["layers"] > 0.5 and shares["a"] < 0.05 and shares["size"] < 0.05


def test_groups_are_values_or_quantiles_and_have_all_instances() -> None:
    drawn = [1.0] * 6 + [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    [found] = losses_by(records([0.1] * 13, a=drawn), ["a"], ["m"])
    assert found.instances == {"1": 6, "2": 1, "3..5": 3, "6..8": 3} and sum(found.instances.values()) == 13
    [few] = losses_by(records([0.1, None, 0.3, 0.1], memory=[2.0**33, 2.0**30, 2.0**33, None]), ["memory"], ["m"])
    assert few.instances == {"1 GiB": 1, "8 GiB": 2} and few.methods["m"]["1 GiB"].no_plan == 1
    assert few.methods["m"]["8 GiB"].mean_loss == pytest.approx(0.2)


GIVEN = ("validate", SOURCE, "--count", "4", "--methods", "piper,./own_one.py:least", "--out", "run")


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a validation, of which nothing is solved again."""
    folder = tmp_path_factory.mktemp("solved")
    (folder / "own_one.py").write_text(OWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("planner.display.populations.draw_validation", lambda _: [])
        assert main([*GIVEN, "--quiet"]) == 0
    return folder


@pytest.fixture
def here(run: Run, solved: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(solved)
    return run


def test_what_is_drawn_has_columns_and_losses_by_it(here: Run) -> None:
    code, _, err = here(*GIVEN[:-1], "other", "--by", "node")
    assert code == 2 and "node" in err and "nodes" in err and not Path("other").exists()
    code, out, _ = here(*GIVEN, "--by", "kind,nodes", "--json")
    found = json.loads(out)
    assert code == 0 and {each["parameter"] for each in found["by"]} == {"kind", "nodes"}
    assert sum(found["by"][0]["instances"].values()) == 4
    from pyarrow import parquet

    rows = parquet.read_table("run/rows.parquet").to_pylist()
    assert {row["kind"] for row in rows} == {"layers", "uncorrelated"} and "memory" not in rows[0]
    assert all(row["nodes"] == row["size"] for row in rows)
    code, out, _ = here(*GIVEN, "--by", "nodes")
    assert (
        code == 0
        and re.search(r"nodes explains [\d.]+ % of ./own_one.py:least's losses", out)
        and re.search(r"nodes +instances +method +mean loss +worst loss +suboptimal +no plan\n", out)
    )


def test_tables_of_a_paper(here: Run) -> None:
    assert here(*GIVEN, "--table", "doc")[0] == here(*GIVEN, "--table", "md", "--json")[0] == 2
    code, out, _ = here(*GIVEN, "--by", "kind", "--table", "csv")
    first, second = out.split("\n\n")
    rows = list(csv.DictReader(io.StringIO(first)))
    assert code == 0 and [row["method"] for row in rows] == ["piper", "./own_one.py:least"]
    totals = json.loads(here(*GIVEN, "--json")[1])["methods"]
    assert [float(row["mean_loss"]) for row in rows] == [each["mean_loss"] for each in totals.values()]
    assert second.startswith("kind,instances,method,optimal,suboptimal,no_plan,invalid,errors,mean_loss")
    groups = list(csv.DictReader(io.StringIO(second)))
    assert [row["method"] for row in groups[:2]] == ["piper", "./own_one.py:least"] and groups[1]["kind"]
    assert sum(int(row["optimal"]) for row in groups if row["method"] == "piper") == totals["piper"]["optimal"]
    code, out, _ = here(*GIVEN, "--table", "tex=table.tex")
    text = Path("table.tex").read_text()
    assert code == 0 and "4 instances of tmpc_knapsack" in out
    assert "./own\\_one.py:least & " in text and "\\toprule" in text and "mean loss, \\%" in text
    assert all(line.count(" & ") == 6 for line in text.splitlines() if line.endswith("\\\\"))


def test_cells_of_tables_keep_their_signs() -> None:
    fared = totals_of(records([0.5, 0.0]), "m")
    found = Validation("p", "exact", 2, 2, 0, 0, {"a|b_{}^~\\&%$#": fared}, {}, "", "", "", ())
    assert paper_table(found, "md").splitlines()[2].startswith(r"| a\|b\_{}^~\\\&%\$# | 1 | 1 | 25 | 50 |")
    said = r"a|b\_\{\}\textasciicircum{}\textasciitilde{}\textbackslash{}\&\%\$\# & 1 & 1 &"
    assert said in paper_table(found, "tex")
    assert kind_and_file("csv=a=b.csv") == ("csv", "a=b.csv")
    for wrong in ("csv=", "", "=x"):
        with pytest.raises(UsageError, match="tex, md, csv, or one of them with =FILE"):
            kind_and_file(wrong)


def test_numbers_stand_at_the_right_and_words_at_the_left() -> None:
    heads, rows = ["method", "loss", "effect"], [["a", "12 %", "3 of 4"], ["b", None, "none"], ["c", "optimal", "-"]]
    assert format_table("md", heads, rows).splitlines()[1] == "| --- | ---: | --- |"
    assert r"\begin{tabular}{lrl}" in format_table("tex", heads, rows)


def test_reasons_that_differ_in_numbers_are_one() -> None:
    said = ["needs 12.5 GiB of 8 GiB a device", "crashed", "needs 900 MiB of 512 MiB a device", ""]
    found = [
        {"number": number, "rows": {"m": {"reason": reason, "outcome": "no_plan"}}}
        for number, reason in enumerate(said)
    ]
    assert reasons(found, "m") == [(said[0], 2, 0), ("crashed", 1, 1)]


def test_pictures_are_of_what_explains_most_and_no_more_than_can_be_read() -> None:
    """Of four features that were drawn, ``b`` and ``same`` are equal, and the losses go with ``b``."""
    losses = [0.0, 0.1, 0.2, 0.3] * 3
    drawn = {
        "a": [1.0, 2.0] * 6, "b": [1.0, 2.0, 3.0, 4.0] * 3, "c": [5.0, 5.0, 6.0] * 4, "d": [1.0, 1.0, 2.0, 3.0] * 3,
    }  # fmt: skip
    found = records(losses, **drawn, same=drawn["b"])
    for each in found:
        each["rows"] |= dict.fromkeys(("n", "o", "p"), each["rows"]["m"])
    every = Validation("p", "exact", 12, 12, 0, 0, {}, {}, "layers", "", "", tuple(found))
    for methods, features in (("m", 3), ("mn", 3), ("mno", 3), ("mnop", 2)):
        charts = features_of(every, found, dict.fromkeys(methods, losses))
        assert len(charts) == features * len(methods), methods
        assert charts[0].title == "m over b" and not any("same" in chart.title for chart in charts)
