"""Profiles of other tools become instances: every number is that of a formula on the file's own numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.cli.app import main

MIB = 2.0**20
#: Written by hand after the format: milliseconds of a sample, MiB of a layer and of a sample.
TIMES = {
    "layernum[2]_bsz2_seq64": 11.0, "layertype_0_bsz1_seq64": 3.0, "layertype_0_bsz2_seq64": 2.0,
    "layertype_1_bsz2_seq64": 5.0, "layertype_other_bsz1_seq64": 4.0, "layertype_other_bsz2_seq64": 1.0,
}  # fmt: skip
LAYER = {"parameter_size": 8.0, "tp_activation_per_bsz_dict": {"1": 6.0, "2": 4.0, "checkpoint": 0.5}}
END = {"model_states": {"1": 32.0, "2": 16.0}, "activation": {"1": 2.0, "2": 1.0}}
MEMORY = {
    "layertype_0": {"64": LAYER},
    "layertype_1": {"64": {**LAYER, "parameter_size": 4.0}},
    "other_memory_pp_on_first": {"64": END},
    "other_memory_pp_on_last": {"64": {**END, "activation": {"1": 3.0, "2": 2.0}}},
}
MACHINE = ["--devices", "4", "--memory", "1GB", "--bandwidth", "1GB/s"]
LOG = """ iteration 10/ 20 | elapsed time per iteration (ms): 130.0 |
times across ranks (ms):
  forward-compute:
     rank  0: 900.00
     rank  1: 900.00
  backward-compute:
     rank  0: 900.00
     rank  1: 900.00
 iteration 20/ 20 | elapsed time per iteration (ms): 130.0 |
INFO:megatron.core.timers:times across ranks (ms):
  forward-compute:
     rank  0: 40.00
     rank  1: 44.00
     rank  2: 20.00
     rank  3: 19.00
  forward-recv:
     rank  2: 999.00
  backward-compute:
     rank  0: 80.00
     rank  1: 76.00
     rank  2: 60.00
     rank  3: 60.00
"""


def galvatron(folder: Path, *more: str, times: Any = None, memory: Any = None) -> list[str]:
    """The command on the two files, which it writes."""
    for name, content in (
        ("times", TIMES if times is None else times),
        ("memory", MEMORY if memory is None else memory),
    ):
        (folder / f"{name}.json").write_text(json.dumps(content))
    files = ["galvatron", str(folder / "times.json"), "--memory-profile", str(folder / "memory.json")]
    return ["convert", *files, "--layers", "2,1", "--hidden-size", "1000", "--microbatch", "2", *MACHINE, *more]


def megatron(folder: Path, *more: str, log: str = LOG) -> list[str]:
    """The command on a log, which it writes."""
    (folder / "train.log").write_text(log)
    sizes = ["--weight-bytes", "100", "--activation-bytes", "30", "--output-bytes", "7"]
    run = ["--layers", "4", "--pp", "2", "--microbatches", "10"]
    return ["convert", "megatron", str(folder / "train.log"), *run, *sizes, *MACHINE, *more]


def test_galvatrons_profiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model.json"
    assert main(galvatron(tmp_path, "--tp", "1,2", "--microbatches", "16", "--out", str(out))) == 0
    found = planner.load(str(out))
    assert [layer.name for layer in found.layers] == ["embedding", "layer 0", "layer 1", "layer 2", "head"]
    assert (found.num_devices, found.memory_bytes, found.bandwidth, found.num_microbatches) == (4, 1e9, 1e9, 16)
    tensor = 2 * 64 * 1000 * 2.0
    assert [edge.bytes for edge in found.edges] == [tensor] * 4
    ring = 2 * (1 / 2) * tensor / 1e9
    keep, again = found.layers[1].tmpcs[1]
    assert keep.time == pytest.approx(2.0 * 2 / 1e3 * 3) and again.time == pytest.approx(2.0 * 2 / 1e3 * 4)
    assert (keep.activation_bytes, again.activation_bytes) == (12 * MIB, 1 * MIB)
    assert (keep.weight_bytes, keep.static_bytes) == (4 * MIB, 32 * MIB), "2 and 16 bytes of each of 2 Mi parameters"
    split, split_again = found.layers[1].tmpcs[2]
    assert split.time == pytest.approx(2.0 * 2 / 1e3 * 3 / 2 + 4 * ring) and split.activation_bytes == 8 * MIB
    assert split_again.time == pytest.approx(2.0 * 2 / 1e3 * 4 / 2 + 6 * ring)
    assert (split.weight_bytes, split.static_bytes) == (2 * MIB, 16 * MIB)
    assert found.layers[3].tmpcs[1][0].time == pytest.approx(5.0 * 2 / 1e3 * 3), "of the other type"
    assert found.layers[3].tmpcs[1][0].weight_bytes == 2 * MIB
    first, last = (found.layers[place].tmpcs[1][0] for place in (0, 4))
    assert first.time == last.time == pytest.approx(1.0 / 2 * 2 / 1e3 * 3)
    assert (first.activation_bytes, last.activation_bytes) == (4 * MIB, 6 * MIB)
    assert (first.weight_bytes, first.static_bytes) == (4 * MIB, 32 * MIB)
    assert planner.solve(found, exact=True).status is planner.Status.OPTIMAL
    assert main(galvatron(tmp_path, "--backward", "1", "--dtype", "fp32")) == 0
    other = json.loads(capsys.readouterr().out)
    assert other["layers"][1]["tmpcs"]["1"][0]["time"] == pytest.approx(2.0 * 2 / 1e3 * 2)
    assert other["edges"][0]["bytes"] == 2 * tensor


@pytest.mark.parametrize(
    ("more", "times", "memory", "words"),
    [
        (["--microbatch", "4"], None, None, "times.json: layertype_0_bsz4_seq64 is missing; expected a batch of"),
        (["--seq-len", "128"], None, None, "times.json: the sequence length is 128; expected one that was"),
        (["--tp", "4"], None, None, "memory.json: layertype_0.64.tp_activation_per_bsz_dict.4 is missing"),
        (["--sequence-parallel"], None, None, "memory.json: layertype_0_sp is missing"),
        (["--layers", "2,1,1"], None, None, "times.json: layertype_2_bsz2_seq64 is missing"),
        ([], {"a": 1}, None, "times.json: content is 'no profile of times'; expected keys such"),
        ([], {**TIMES, "layertype_0_bsz2_seq64": "2"}, None, "times.json: layertype_0_bsz2_seq64 is '2'; expected"),
        ([], {**TIMES, "layertype_0_bsz2_seq64": -1}, None, "times.json: layertype_0_bsz2_seq64 is -1; expected"),
        ([], {**TIMES, "layertype_0_bsz2_seq32": 1.0}, None, "the sequence length is None; expected one that was"),
        ([], None, [1], "memory.json: content is 'no object'"),
        (["--dtype", "int8"], None, None, "--dtype is bf16, fp16 or fp32"),
    ],
)  # fmt: skip
def test_errors_of_galvatrons_files(
    more: list[str], times: Any, memory: Any, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(galvatron(tmp_path, *more, times=times, memory=memory)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err.replace(f"{tmp_path}/", "")


def test_megatrons_timers(tmp_path: Path) -> None:
    """Stages of two ranks: the slower one counts, in the second block, as the first one warms up."""
    out = tmp_path / "model.json"
    assert main(megatron(tmp_path, "--tp", "1", "--out", str(out))) == 0
    found = planner.load(str(out))
    times = [layer.tmpcs[1][0].time for layer in found.layers]
    assert times == pytest.approx([0.120 / 10 / 2] * 2 + [0.080 / 10 / 2] * 2)
    one = found.layers[0].tmpcs[1][0]
    assert (one.weight_bytes, one.activation_bytes, one.static_bytes) == (100.0, 30.0, 800.0)
    assert found.num_microbatches == 20, "two replicas have 10 each"
    assert [edge.bytes for edge in found.edges] == [7.0] * 3
    assert planner.solve(found, exact=True).status is planner.Status.OPTIMAL
    assert main(megatron(tmp_path, "--tp", "2", "--out", str(out))) == 0
    split = planner.load(str(out))
    assert split.num_microbatches == 10 and list(split.layers[0].tmpcs) == [2]


@pytest.mark.parametrize(
    ("more", "log", "words"),
    [
        (["--layers", "3"], LOG, "train.log: layers is 3; expected a multiple of the 2 pipeline stages"),
        (["--tp", "4"], LOG, "train.log: ranks is 4; expected a multiple of 2 stages of 4 tensor-parallel ranks"),
        ([], LOG.replace("     rank  3: 60.00\n", ""), "train.log: backward-compute of rank 3 is missing"),
        ([], LOG.replace("44.00", "nan"), "train.log: a rank's time is 'nan'; expected milliseconds above 0"),
        ([], "(min, max) time across ranks (ms):\n    forward-compute ....: (1.0, 2.0)\n",
         "forward-compute is missing; expected times of all ranks, as --timing-log-level 2 --timing-log-option all"),
        ([], '{"a": 1}', "expected a training log"),
        (["--memory-scheme", "none"], LOG, "of --memory-scheme one of weights, adam"),
    ],
)  # fmt: skip
def test_errors_of_megatrons_log(more: list[str], log: str, words: str, tmp_path: Path, capsys: Any) -> None:
    assert main(megatron(tmp_path, *more, log=log)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err.replace(f"{tmp_path}/", "")


def test_what_the_files_do_not_have_is_not_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.log").write_text(LOG)
    assert main(["convert", "megatron", str(tmp_path / "train.log"), "--layers", "4"]) == 2
    assert "--weight-bytes is missing; timers do not have it" in capsys.readouterr().err
    (tmp_path / "times.json").write_text(json.dumps(TIMES))
    assert main(["convert", "galvatron", str(tmp_path / "times.json"), "--layers", "4"]) == 2
    assert "--memory-profile is missing" in capsys.readouterr().err
    assert main(["convert", "alpha", str(tmp_path / "times.json"), "--layers", "4"]) == 2
    assert "galvatron" in capsys.readouterr().err
