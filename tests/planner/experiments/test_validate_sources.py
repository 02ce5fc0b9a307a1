"""Where populations come from: rows, folders, patterns, catalog entries that are drawn; and what is none."""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import planner
from formulations.tmpc_knapsack import FAMILY
from instances.problems.tmpc_knapsack import generate
from planner.cli.app import main
from planner.experiments.validation.sources import Member, first_name, generator, members
from planner.files.rows import count_rows, read_rows
from planner.process.errors import UsageError

Run = Callable[..., tuple[int, str, str]]


def lines(count: int, nodes: int = 3) -> list[str]:
    return [json.dumps(FAMILY.to_json(generate(nodes, seed=seed))) for seed in range(count)]


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the same seven knapsacks as three row files."""
    monkeypatch.chdir(tmp_path)
    text = "\n".join(lines(7)) + "\n\n"
    (tmp_path / "seven.jsonl").write_text(text)
    (tmp_path / "seven.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


@pytest.mark.parametrize("name", ["seven.jsonl", "seven.jsonl.gz"])
def test_all_rows_of_a_file_are_read_in_one_pass(rows: Path, name: str) -> None:
    found = list(members([name]))
    assert [each.name for each in found] == [f"{name}#{row}" for row in range(7)]
    assert [each.load(None, {}) for each in found] == [planner.load(each.name) for each in found]
    assert [each.content for each in members([name], names_only=True)] == [None] * 7


def test_rows_of_parquet_are_those_that_are_read_one_by_one(rows: Path) -> None:
    pytest.importorskip("pyarrow")
    from planner.experiments.census.extract import extract

    count = extract(planner.load("chain8"), "chain.parquet", sample=30)
    path = Path("chain.parquet")
    assert count_rows(path) == count == 30
    assert [row for row, _ in read_rows(path, {4, 17})] == [4, 17]
    for row, content in read_rows(path):
        assert Member("", content=content).load(None, {}) == planner.load(f"chain.parquet#{row}")


@pytest.mark.parametrize("column", ["parent", "tmpcs", "time", "none"])
def test_a_parquet_file_that_is_damaged_inside_is_one_line(run: Run, column: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    assert run("extract", "chain8", "--sample", "3", "--out", "rows.parquet", "--quiet")[0] == 0
    table = parquet.read_table("rows.parquet")
    if column == "none":
        table = table.drop_columns(["outer"])
    else:
        kind = table.schema.field(column).type
        values = {"parent": [b"\x86"] * 3, "tmpcs": [None] * 3, "time": [[]] * 3}[column]
        text = column == "parent"  # no UTF-8
        other = arrow.array(values).view(arrow.string()) if text else arrow.array(values, kind)
        table = table.set_column(table.schema.get_field_index(column), column, other)
    parquet.write_table(table, "rows.parquet")
    for source in ("rows.parquet", "rows.parquet#1"):
        code, _, err = run("validate", source, "--out", "run")
        assert code == 2 and err.startswith("rows.parquet: ") and err.count("\n") == 1


def test_a_sample_has_no_row_twice_and_follows_the_seed(rows: Path) -> None:
    def picked(count: int, seed: int) -> list[int]:
        return [int(each.name.partition("#")[2]) for each in members(["seven.jsonl"], count, seed)]

    assert picked(4, 0) == picked(4, 0) == sorted(set(picked(4, 0)))
    assert len({tuple(picked(4, seed)) for seed in range(20)}) > 5
    assert Counter(row for seed in range(70) for row in picked(2, seed)).keys() == set(range(7))
    assert picked(9, 0) == list(range(7))


def test_folders_and_patterns(rows: Path) -> None:
    folder = rows / "some"
    folder.mkdir()
    for number, line in enumerate(lines(3)):
        (folder / f"{number}.json").write_text(line)
    (folder / ".hidden").write_text("no instance")
    names = [f"some/{number}.json" for number in range(3)]
    assert [each.name for each in members(["some"])] == names
    assert [each.name for each in members(["some/[02].json"])] == [names[0], names[2]]
    (folder / "more.jsonl").write_text("\n".join(lines(2)))
    assert [each.name for each in members(["some"])] == [*names, "some/more.jsonl#0", "some/more.jsonl#1"]
    assert len(list(members(["some", "seven.jsonl"], 2))) == 4


def test_a_catalog_entry_is_drawn_by_the_seed() -> None:
    source = "bert:layers=4..7,hidden-size=1024|2048,memory=8GiB..9GiB,parameter_bytes=0.5..0.75"
    drawn = generator(source)
    assert drawn is not None
    found = list(drawn.draws(60, 3))
    assert {each["layers"] for each in found} == {"4", "5", "6", "7"}
    assert {each["hidden-size"] for each in found} == {"1024", "2048"}
    assert all(8 * 2**30 <= int(each["memory"]) <= 9 * 2**30 for each in found)
    assert all(0.5 <= float(each["parameter-bytes"]) <= 0.75 for each in found)
    assert list(drawn.draws(20, 3)) == found[:20] and list(drawn.draws(60, 4)) != found
    member = next(members([source], 1, 3))
    instance: Any = member.load(None, {"devices": "3", "memory": "1GiB"})
    assert instance.num_devices == 3 and instance.memory_bytes == int(found[0]["memory"])
    assert member.origin.startswith(f"bert --layers {found[0]['layers']} --hidden-size")
    flags = {each.origin for each in members(["bert:forward-only=true|false"], 12)}
    assert flags == {"bert --forward-only", "bert"}


def test_what_is_drawn_of_a_generator_with_a_seed_differs() -> None:
    found = [each.load(None, {}) for each in members(["knapsack:nodes=5"], 6, 0)]
    assert len({each.options["seed"] if hasattr(each, "options") else str(each) for each in found}) == 6
    fixed = list(members(["knapsack:nodes=5,seed=1"], 6, 0))
    assert len(fixed) == 1  # nothing varies
    assert [each.name for each in members(["knapsack"])] == ["knapsack"]


def test_small_instances_of_a_problem_are_drawn_within_its_limits(run: Run) -> None:
    """Those of `planner mine`: whole numbers, each seed its own, fewer the beginning of more; overrides go before."""
    source = "stage_graph:nodes=3,devices=2"
    found = [each.load(None, {"schedule": "per-stage"}) for each in members([source], 30, 1)]
    assert {each.num_devices for each in found} == {1, 2} and {len(each.operators) for each in found} == {1, 2, 3}
    assert {each.schedule for each in found} == {"per-stage"} and len({str(each) for each in found}) > 25
    nine, other = (
        [each.load(None, {"schedule": "per-stage"}) for each in members([source], 9, seed)] for seed in (1, 2)
    )
    assert nine == found[:9] and other != nine
    given = ["--count", "20", "--methods", "graphpipe", "--schedule", "per-stage", "--against", "configurations"]
    assert run("validate", source, *given, "--out", "run", "--quiet")[0] == 0


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("bert:layers=4..8", "--count is missing; expected how many instances"),
        ("knapsack:nodes=4", "--count is missing"),
        ("stage_graph:nodes=4", "--count is missing; expected how many instances of stage_graph:nodes=4"),
        ("stage_graph:node=4", "parameter is 'node'; expected one of nodes"),
        ("stage_graph:nodes=0", "nodes is '0'; expected an integer"),
        ("bert:layer=4..8", "parameter is 'layer'; expected one of layers"),
        ("bert:layers", "SOURCE is 'bert:layers'; expected bert:PARAMETER=VALUES,..., each parameter once"),
        ("bert:", "each parameter once"),
        ("bert:layers=4,layers=5", "each parameter once"),
        ("bert:layers=8..4", "--layers is '8..4'; expected LOW..HIGH"),
        ("bert:layers=4..x", "--layers is 'x in 4..x'; expected an integer"),
        ("bert:layers=4|0", "--layers is '0 in 4|0'; expected an integer"),
        ("chain8:devices=2,4", "; of several values one is drawn: A|B or LOW..HIGH"),
        ("bert:forward-only=false..true", "LOW..HIGH"),
        ("none.json", "none.json: file is 'No such file or directory'"),
        ("bert3", "INSTANCE is 'bert3'; expected one of bert32"),
        ("*.none", "SOURCE is '*.none'; expected a pattern that files match"),
        ("empty", "SOURCE is 'empty'; expected a folder that holds files"),
        ("empty.jsonl", "SOURCE is 'empty.jsonl'; expected at least one instance"),
    ],
)
def test_what_is_no_source_is_one_line(run: Run, source: str, words: str) -> None:
    Path("empty").mkdir()
    Path("empty.jsonl").write_text("\n\n")
    code, out, err = run("validate", source, "--out", "run", "--quiet")
    assert code == 2 and not out and err.count("\n") == 1 and words in err
    assert not Path("run").exists()


def test_a_source_that_mixes_problems_is_one_line(run: Run) -> None:
    code, _, err = run("validate", "chain8", "layers", "--out", "run")
    assert code == 2 and err == (
        "layers: problem is 'layer_assignment'; expected stage_partitioning, as chain8 is one of\n"
    )
    mixed = [*lines(2), json.dumps({"problem": "layer_assignment", "schema_version": 1})]
    Path("mixed.jsonl").write_text("\n".join(mixed))
    code, _, err = run("validate", "mixed.jsonl", "--out", "run")
    assert code == 2 and err.startswith("mixed.jsonl#2: ") and err.count("\n") == 1
    assert not Path("run").exists()


@pytest.mark.parametrize("sample", [(), ("--count", "1", "--seed", "2")])
def test_a_row_file_that_was_cut_is_one_line_whatever_the_sample(run: Run, sample: tuple[str, ...]) -> None:
    whole = "\n".join(lines(5)) + "\n"
    Path("cut.jsonl").write_text(whole[:-40])
    code, _, err = run("validate", "cut.jsonl", *sample, "--out", "run")
    assert code == 2 and err.startswith("cut.jsonl#4: line 1 column") and err.count("\n") == 1
    Path("cut.jsonl.gz").write_bytes(gzip.compress(whole.encode())[:-20])
    code, _, err = run("validate", "cut.jsonl.gz", *sample, "--out", "run")
    assert code == 2 and err.startswith("cut.jsonl.gz: file is ") and err.count("\n") == 1
    pytest.importorskip("pyarrow")
    assert run("extract", "chain8", "--sample", "9", "--out", "cut.parquet", "--quiet")[0] == 0
    Path("cut.parquet").write_bytes(Path("cut.parquet").read_bytes()[:-30])
    code, _, err = run("validate", "cut.parquet", *sample, "--out", "run")
    assert code == 2 and err.startswith("cut.parquet: file is ") and err.count("\n") == 1


def test_the_first_name_of_a_source_is_an_instance(rows: Path) -> None:
    named = ("bert:layers=1..2", "seven.jsonl", "chain8", "mesh_tiling:nodes=2")
    assert [first_name(each) for each in named] == ["bert", "seven.jsonl#0", "chain8", "mesh"]
    with pytest.raises(UsageError):
        list(members(["seven.jsonl"], 0))


def test_what_another_planner_solved_inside_is_a_source(run: Run) -> None:
    given = ["extract", "amp-homogeneous", "--problem", "layer_assignment", "--from", "amp", "--sample", "4"]
    assert run(*given, "--out", "inside.jsonl", "--quiet")[0] == 0
    given = ["validate", "inside.jsonl", "--methods", "amp,uniform", "--against", "exact-joint", "--out", "run"]
    code, out, _ = run(*given, "--json", "--quiet")
    found = json.loads(out)
    assert code == 0 and (found["problem"], found["instances"]) == ("layer_assignment", 4)
    assert all(each["optimal"] + each["suboptimal"] == 4 for each in found["methods"].values())


def test_a_reference_that_refuses_an_instance_is_stated(run: Run) -> None:
    given = ["validate", "layers:all-reduce=true", "--count", "2", "--methods", "amp", "--out", "run", "--quiet"]
    code, out, _ = run(*given)
    assert code == 0 and "0 infeasible, 2 unproved" in out
    assert "exact: left out: an all-reduce is declared; use exact-joint" in out and "(2 instances, first 0)" in out


def test_help_of_a_source_shows_the_options_of_its_problem(run: Run) -> None:
    for command in ("validate", "bench", "crosscheck"):
        code, out, _ = run(command, "bert:layers=4..8", "--help")
        assert code == 0 and "Options of stage_partitioning" in out and "--hidden-size" in out


def test_a_parameter_of_an_instance_may_have_the_name_of_an_argument(tmp_path: Path, capsys: Any) -> None:
    arguments = ["validate", "knapsack", "--nodes", "3", "--options", "2", "--count", "2", "--out", str(tmp_path / "o")]
    assert main([*arguments, "--methods", "piper", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["instances"] == 2


def test_a_range_of_seeds_is_an_instance_for_each() -> None:
    found = list(members(["random-layers:seed=3..7,devices=4|8"]))
    assert [each.overrides["seed"] for each in found] == ["3", "4", "5", "6", "7"]
    assert {each.overrides["devices"] for each in found} <= {"4", "8"}
    assert all(set(each.drawn) == {"devices"} for each in found), "a seed is no parameter of what is lost by"
    again = [each.overrides["seed"] for each in members(["random-layers:seed=3..7"], 7)]
    assert again == ["3", "4", "5", "6", "7", "3", "4"]
    assert len({each.overrides["seed"] for each in members(["random-layers:layers=4"], 20)}) > 15, "without a range"
    with pytest.raises(UsageError, match="--seed"):
        list(members(["random-layers:seed=x..7"]))
