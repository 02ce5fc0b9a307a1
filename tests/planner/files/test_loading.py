"""Files and names: every one is an instance, or one line that names the error."""

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thinned import thinned

import formulations
import planner
from instances.catalog.catalog import CATALOG
from instances.errors import InstanceError
from instances.validation import validate_fields
from planner.cli.app import main
from planner.files.load import family_of
from planner.files.read import parse_json
from planner.process.errors import UsageError
from planner.results.check import read_plan


def refusal(path: str | Path, **overrides: object) -> str:
    with pytest.raises((InstanceError, UsageError)) as caught:
        planner.load(path, **overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_and_its_overrides(problem: Callable[..., str]) -> None:
    instance = planner.load(problem(), target="7")
    assert (instance.numbers, instance.target) == ((1, 2, 3, 4), 7)
    assert family_of(instance).name == "counting"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "content is ''"),
        (b"  \n ", "content is ''"),
        (b"\xff\xfe\x00", "byte 0 is 255; expected UTF-8 text"),
        (b'{"problem": "counting", "numbers": [1, 2', "line 1 column"),
        (b'{"problem": "counting", "numbers": [NaN]}', "line 1: numbers[0] is 'NaN'"),
        (b'{"problem": "counting", "target": -Infinity}', "line 1: target is '-Infinity'"),
        (b'{"problem": "counting", "problem": "counting"}', "key is 'problem'"),
        (b'{"problem": "countng"}', "problem is 'countng'; expected one of"),
        (b'{"nodes": 3}', "content is 'JSON'"),
        (b"[1, 2]", "content is 'JSON'"),
        (b"hello, world", "content is 'text'"),
        (b"[" * 100_000, "nesting is 'too deep'"),
        (b'{"numbers": ' + b"9" * 10_000 + b"}", "line 1: numbers is '999"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    message = refusal(path)
    assert message.startswith(f"{path}: ") and words in message


def test_a_name_with_a_nul_is_refused_in_one_line() -> None:
    assert "expected one of" in refusal("instance\0.json")
    with pytest.raises(InstanceError, match="file is 'embedded null byte'; expected a readable file"):
        read_plan("plan\0.json")


def test_a_byte_order_mark_is_no_harm(problem: Callable[..., str]) -> None:
    path = Path(problem())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert planner.load(path).target == 5


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Is a directory" in refusal(tmp_path)
    assert "No such file" in refusal(tmp_path / "absent.json")
    monkeypatch.setattr("instances.files.MAX_FILE_BYTES", 1000)
    assert "size is 'over 1000 bytes'" in refusal("/dev/zero")
    for folder in (tmp_path, tmp_path / "absent"):
        monkeypatch.setenv("PLANNER_PUBLISHED", str(folder))
        for name in ("x" * 5000, "a\0b", "", "*.json"):
            refusal(name)


def test_unknown_names_and_settings(problem: Callable[..., str]) -> None:
    assert "expected one of bert32, bert, bert-l, ..." in refusal("bert31")
    assert "unknown option --targt for counting; expected one of --target" in refusal(problem(), targt=3)
    assert "--target is 'x'; expected an integer" in refusal(problem(), target="x")


def test_published_inputs_are_found(problem: Callable[..., str], tmp_path: Path, monkeypatch: Any) -> None:
    folder = tmp_path / "inputs"
    (folder / "sub").mkdir(parents=True)
    Path(problem()).rename(folder / "sub" / "given.json")
    assert planner.load("given.json", inputs=str(folder)).target == 5
    monkeypatch.setenv("PLANNER_PUBLISHED", str(folder))
    assert planner.load("given.json").target == 5
    assert planner.load("sub/given.json").target == 5
    refusal("*.json")


def test_a_catalog_name_wins_over_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chain8").write_text("not an instance")
    assert planner.load("chain8").name == "chain8"
    refusal("./chain8")


@thinned("name", sorted(CATALOG))
def test_an_entry_of_the_catalog_keeps_the_rules_of_its_fields(name: str) -> None:
    """As it stands it is not validated when it is loaded."""
    found, family = planner.load(name), formulations.family_named(CATALOG[name].family)
    assert family is not None and vars(found)["_is_valid"] and not found.requirements
    assert repr(validate_fields(replace(found), name)) == repr(found)  # 1 is not 1.0
    family.check(found, name)


def test_parameters_and_overrides_of_a_catalog_name() -> None:
    instance = planner.load("bert", layers=2, devices=3, cost_model="released")
    assert (instance.num_devices, str(instance.cost_model)) == (3, "released")
    assert len(instance.layers) < len(planner.load("bert", layers=4).layers)
    assert "--layers is 0" in refusal("bert", layers=0)


def test_a_reproducer_is_an_instance(tmp_path: Path) -> None:
    path = tmp_path / "reproducer.json"
    path.write_text('{"contradictions": ["x"], "instance": {"problem": "counting", "numbers": [3]}}')
    assert planner.load(path).numbers == (3,)


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,0123456789.eE-+ problemcuntgs\\', max_size=60).map(str.encode))
def test_any_bytes_are_an_instance_or_one_line(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_bytes(data)
    refusal(path)


def test_a_row_of_an_endless_device_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read on behind a NUL; a stream of rows without an end is read as far as any file."""
    (tmp_path / "z.jsonl").symlink_to("/dev/zero")
    assert "z.jsonl: byte 0 of a line is 0; expected UTF-8 text" in refusal(f"{tmp_path}/z.jsonl#7")
    monkeypatch.setattr("instances.files.MAX_FILE_BYTES", 1000)
    (tmp_path / "long.jsonl").write_text("{}\n" + "x" * 2000)
    assert "size is 'over 1000 bytes'" in refusal(f"{tmp_path}/long.jsonl#1")
    monkeypatch.setattr("planner.files.rows.MAX_FILE_BYTES", 1000)
    stream = tmp_path / "stream.jsonl"
    os.mkfifo(stream)
    threading.Thread(target=lambda: stream.write_text("{}\n" * 1000), daemon=True).start()
    assert "size is 'over 1000 bytes'" in refusal(f"{stream}#900")


@pytest.mark.parametrize("name", ["loop", "./loop", "loop/file.json"])
def test_links_in_a_circle_are_one_line(name: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    assert main(["solve", name]) == 2
    rule = "expected a readable file or a name of the catalog"
    assert capsys.readouterr().err == f"{name}: file is 'Too many levels of symbolic links'; {rule}\n"


@pytest.mark.parametrize("command", [["solve"], ["check", "chain8"]])
@pytest.mark.parametrize("name", ["x" * 301, "x" * 5000 + ".json", "y" * 300 + "/file"])
def test_names_too_long_for_a_file_are_one_short_line(command: list[str], name: str, capsys: Any) -> None:
    assert main([*command, name]) == 2
    shown = capsys.readouterr().err
    assert "...: file is" not in shown and f"...{name[-150:]}: file is 'File name too long'; expected" in shown
    assert shown.count("\n") == 1 and len(shown) < 420


def test_parameters_of_a_catalog_entry_may_stand_behind_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    """``--seed`` of a command is that of its solver; that of the instance is one of its name."""
    wanted = planner.load("random-layers", seed=5, layers=6, devices=4)
    assert planner.load("random-layers:seed=5, layers=6", devices=4) == wanted
    assert planner.load("random-layers:seed=5,layers=6,devices=4") == wanted
    for name, words in (
        ("random-layers:seed", "expected random-layers:PARAMETER=VALUE"),
        ("random-layers:sed=5", "unknown option --sed"),
        ("random-layers:seed=1..3", "--seed is '1..3'"),
        ("random-layer:seed=5", "closest|one of"),
    ):
        with pytest.raises(planner.UsageError, match=words):
            planner.load(name)
    assert main(["solve", "random-layers:seed=5", "--help"]) == 0
    assert "--cost-model" in capsys.readouterr().out


def chained(count: int) -> list[tuple[int, int]]:
    return [(u, v) for u in range(count) for v in range(u + 1, min(count, u + 3))]


def schedule(count: int) -> dict[str, Any]:
    return {
        "problem": "microbatch_schedule",
        "minibatch": 1,
        "stages": [{"forward_s": 1, "backward_s": 2}] * count,
        "edges": [{"source": u, "target": v} for u, v in chained(count)],
    }


def graph(count: int) -> dict[str, Any]:
    passes = {"forward": {"per_sample_s": 1}, "backward": {"per_sample_s": 2}}
    return {
        "problem": "stage_graph",
        "num_devices": 2,
        "memory_bytes": 1,
        "minibatch": 2,
        "operators": [{"id": f"v{v}", **passes} for v in range(count)],
        "edges": [{"source": f"v{u}", "target": f"v{v}"} for u, v in chained(count)],
    }


def knapsack(count: int) -> dict[str, Any]:
    options = [{"id": f"x{x}", "time": 1.5, "memory_bytes": 2.5} for x in range(3)]
    return {
        "problem": "tmpc_knapsack",
        "capacity_bytes": 1,
        "nodes": [{"id": v, "options": options} for v in range(count)],
    }


def layers(count: int) -> dict[str, Any]:
    tmpc = {"id": "x", "time": 1, "weight_bytes": 1, "activation_bytes": 1, "static_bytes": 1}
    return {
        "problem": "stage_partitioning",
        "schema_version": 1,
        "num_devices": 2,
        "memory_bytes": 1,
        "bandwidth": 1,
        "num_microbatches": 1,
        "layers": [{"id": v, "tmpcs": {"1": [tmpc]}} for v in range(count)],
        "edges": [{"source": u, "target": v, "bytes": 1} for u, v in chained(count)],
    }


def cpu_seconds(path: Path) -> float:
    began = time.process_time()
    planner.load(path)
    return time.process_time() - began


@thinned("make", [schedule, graph, knapsack, layers], 2)
def test_loading_takes_time_in_proportion_to_the_file(make: Callable[[int], dict[str, Any]], tmp_path: Path) -> None:
    small, large = tmp_path / "small.json", tmp_path / "large.json"
    small.write_text(json.dumps(make(500)))
    large.write_text(json.dumps(make(4000)))
    cpu_seconds(small)  # imports
    ratios = []
    for _ in range(4):  # 8 where it is linear, 64 where it is quadratic
        ratios.append(cpu_seconds(large) / cpu_seconds(small))
        if ratios[-1] < 20:
            return
    raise AssertionError(f"eight times the file, and {ratios} times the time")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": [1, {"b": NaN}]}', "line 1: a[1].b is 'NaN'"),
        ('{"a":\n [1,\n {"b": -Infinity}]}', "line 3: a[1].b is '-Infinity'"),
        ('{"a": "NaN",\n "c[": {"d\\n": "1e999"}, "b": [\n2, [], {}, -1e999]}', "line 3: b[3] is '-1e999'"),
        ('{"long": 0.' + "1" * 400 + ', "n": {"x": {"y": 1}, "z":\r\n 1E+400}}', "line 2: n.z is '1E+400'"),
        ('[1e308, "\\"", ' + "9" * 309 + "]", "line 1: [2] is '99999"),
        ('{"a": {"b":\n-' + "9" * 5000 + "}}", "line 2: a.b is '-9999"),
        ("1e999", "line 1: content is '1e999'"),
        ('[0e-400, 0.0, {"a": -1E-400}]', "line 1: [2].a is '-1E-400'"),
    ],
)
def test_a_number_that_no_float_holds_is_named_with_field_and_line(text: str, place: str) -> None:
    with pytest.raises(InstanceError) as caught:
        parse_json(text, "some.json")
    assert str(caught.value).startswith(f"some.json: {place}")
    assert str(caught.value).endswith("expected a number that a 64-bit float can hold")


def test_numbers_that_floats_hold_are_read() -> None:
    assert parse_json('[1e308, 5e-324, 0e-400, 0, "1e999", 12345678901234567890]', "x") == [
        1e308, 5e-324, 0.0, 0, "1e999", 12345678901234567890,
    ]  # fmt: skip
