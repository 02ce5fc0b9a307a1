"""Names are data: no name of an instance is markup, a formula, a control character or an order to a terminal."""

import json
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from planner.cli.app import main
from planner.display.page.library import library
from planner.display.tables import show_report, show_result
from planner.display.terminal import printable
from planner.results.result import Result
from planner.solving.compare import Report
from solvers.outcome import Status, Stop

#: Parts of names, by what they mean to somebody: rich, Vega, HTML, markdown, Python's formats.
MARKUP = ("[/gelu]", "[bold]", "[a]", "[/]", "\\[", "\\", ":smile:", "$x_$", "$\\frac", "<script>", "&amp;", "]]>", "|")
PLAIN = ("layer", "7", " ", "`", "*", "_", "%s", "{0}", "'", '"', "é", "中", "\N{GRINNING FACE}")
#: What must not reach a terminal.
UNSEEN = (
    "\x1b[31m", "\n", "\r", "\t", "\x07", "\x00", "\x85", "\u2028", "\u202e", "\u2066", "\u200b", "\ud800", "\xa0",
)  # fmt: skip


def name(rng: random.Random, parts: tuple[str, ...], longest: int = 3) -> str:
    return "".join(rng.choice(parts) for _ in range(rng.randint(1, longest)))


def names(rng: random.Random, parts: tuple[str, ...], count: int, longest: int = 3) -> list[str]:
    return [f"{name(rng, parts, longest)}{number}" for number in range(count)]


def stage_graph(own: list[str]) -> dict[str, Any]:
    passes = {"forward": {"per_sample_s": 1}, "backward": {"per_sample_s": 2}}
    return {
        "problem": "stage_graph", "schema_version": 1, "name": own[0], "num_devices": 2, "memory_bytes": 100,
        "bandwidth_bytes_per_s": 4, "minibatch": 2, "operators": [{"id": each, **passes} for each in own[1:3]],
        "edges": [{"source": own[1], "target": own[2], "bytes_per_sample": 1}],
    }  # fmt: skip


def stage_partitioning(own: list[str]) -> dict[str, Any]:
    option = {
        "id": own[3], "time": 0.004, "weight_bytes": 4e6, "activation_bytes": 2e6, "static_bytes": 8e6,
        "sync_forward_bytes": {}, "sync_backward_bytes": {},
    }  # fmt: skip
    return {
        "problem": "stage_partitioning", "schema_version": 1, "name": own[0], "num_devices": 2, "memory_bytes": 1e9,
        "bandwidth": 1e9, "num_microbatches": 4, "edges": [{"source": own[1], "target": own[2], "bytes": 1e6}],
        "layers": [{"id": each, "name": each, "tmpcs": {"1": [option]}} for each in own[1:3]],
    }  # fmt: skip


def knapsack(own: list[str]) -> dict[str, Any]:
    options = [{"id": own[2], "time": 3, "memory_bytes": 7}, {"id": own[3], "time": 5, "memory_bytes": 2}]
    return {
        "problem": "tmpc_knapsack", "schema_version": 1, "name": own[0], "capacity_bytes": 10,
        "nodes": [{"id": own[1], "options": options}],
    }  # fmt: skip


MAKERS = (stage_graph, stage_partitioning, knapsack)


class Tags(HTMLParser):
    """The tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:  # noqa: ARG002
        self.tags.append(tag)


def clean(text: str) -> None:
    """Every line can be seen, and is in the order in which it was written."""
    assert all(line.isprintable() for line in text.split("\n")), text


def every_command(file: str, own: list[str], capsys: Any, folder: Path, report: bool) -> None:
    """Every command that shows names, on an instance that has them."""
    plan = str(folder / "plan.json")
    assert main(["solve", file, "--exact", "--out", plan, "--quiet"]) == 0
    shown = capsys.readouterr()
    assert own[0] in shown.out and any(each in shown.out for each in own[1:])
    clean(shown.out + shown.err)
    for command in (
        ["check", file, plan],
        ["crosscheck", file, "--time-limit", "20"],
        ["bench", file, "--repeats", "1"],
    ):
        out = ["--out", str(folder / "bench")] if command[0] == "bench" else []
        assert main([*command, *out]) == 0
        shown = capsys.readouterr()
        clean(shown.out + shown.err)
        assert own[0] in shown.out or command[0] == "check"
    table = (folder / "bench" / "table.md").read_text()
    clean(table)
    cells = [re.sub(r"\\.", "", line).count("|") for line in table.splitlines() if line.startswith("|")]
    assert len(cells) >= 3 and set(cells) == {11}
    pytest.importorskip("vl_convert")
    for suffix in ("svg", "png") if report else ("svg",):
        assert main(["solve", file, "--plot", str(folder / f"plan.{suffix}")]) == 0
        assert capsys.readouterr().err.count("\n") <= 1  # no warning of the fonts
    if report:
        pytest.importorskip("jinja2")
        page = folder / "page.html"
        assert main(["report", file, "--out", str(page), "--time-limit", "20", "--quiet"]) == 0
        text = page.read_text()
        assert library() in text
        clean(text.replace(library(), ""))
        assert Tags(text).tags.count("script") == 3 and "<h1 " in text


def test_names_are_shown_as_they_are(many: int, tmp_path: Path, capsys: Any) -> None:
    for seed in range(1, 1 + many) or (2,):
        folder = tmp_path / str(seed)
        folder.mkdir()
        own = names(random.Random(seed), MARKUP + PLAIN, 4)
        path = folder / "instance.json"
        path.write_text(json.dumps(MAKERS[seed % len(MAKERS)](own)))
        every_command(str(path), own, capsys, folder, report=seed % 20 == 1)  # a page takes a second


@pytest.mark.parametrize("seed", range(12))
def test_names_that_cannot_be_seen_never_reach_a_terminal(seed: int, tmp_path: Path, capsys: Any) -> None:
    """A file either has such a name refused, in one line, or shown escaped; so are names of files and settings."""
    rng = random.Random(seed)
    own = names(rng, MARKUP + PLAIN + UNSEEN, 4, longest=5)
    odd = name(rng, tuple(part for part in UNSEEN if part not in ("\x00", "\ud800")) + PLAIN).replace("/", "")
    path = tmp_path / f"{odd}.json"
    path.write_text(json.dumps(MAKERS[seed % len(MAKERS)](own)))
    for given in ([str(path)], [str(path), "--method", own[1]], [own[2]], [str(path), "--time-unit", own[3]]):
        code = main(["solve", *given])
        shown = capsys.readouterr()
        clean(shown.out + shown.err)
        assert code in (0, 2) and (code == 0 or shown.err.count("\n") == 1)


def test_results_made_in_python_are_shown_escaped(capsys: Any) -> None:
    odd = "".join(UNSEEN) + "".join(MARKUP)
    plan = {"stages": [{"nodes": [odd], odd: {"a": odd}}], odd: odd, "choice": {odd: odd}}
    texts = dict.fromkeys(("problem", "instance", "method", "claim", "unit", "reason", "solver", "proved_by"), odd)
    result = Result(
        **texts, status=Status.OPTIMAL, stop=Stop.PROVED, objective=1.0, bound=1.0, gap=0.0, seconds=0.1,
        options={odd: odd}, stats={odd: odd}, verified=True, plan=plan,
    )  # fmt: skip
    show_result(result, verbose=True)
    show_report(Report("p", odd, (result,), (odd,), None, odd))
    shown = capsys.readouterr().out
    clean(shown)
    assert printable(odd)[:40] in shown and "\N{SMILING FACE WITH OPEN MOUTH AND SMILING EYES}" not in shown
