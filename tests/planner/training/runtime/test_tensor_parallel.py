"""Stages with tensor parallelism: shares of blocks compute what whole ones do, and exchange what the TMPCs count."""

import json
from pathlib import Path
from typing import Any

import pytest

import planner
from instances.exchange import to_json
from instances.generators.hardware import HARDWARE
from planner.training.capture.choices import Choices, Work

pytest.importorskip("torch", reason="needs PyTorch (extra torch)", exc_type=ImportError)
pytest.importorskip("transformers", reason="needs transformers (extra torch)", exc_type=ImportError)

from runtime.test_kinds import captured, ran, run

from planner.training.runtime.fidelity import fidelity

SAMPLES = 6
#: With sequences shared, which the instances offer besides.
SEQUENCE, AGAIN = "sequence parallel", "activation recomp"


def imported(kind: str, **offered: Any) -> dict[str, Any]:
    """The instance that `planner import` makes of a kind of model."""
    from planner.training.capture.instances import stage_partitioning

    choices = Choices(degrees=(1, 2, 3, 4), sequence_parallel=True, **offered)
    work, facts = Work(2, "fp32", SAMPLES), {"granularity": "block"}
    return to_json(stage_partitioning(captured(kind), HARDWARE["h100"], 8, work, choices, facts))


def plan(stages: list[tuple[list[int], int, int]], chosen: dict[int, str]) -> dict[str, Any]:
    """Stages as (nodes, replicas, tensor-parallel degree)."""
    return {
        "stages": [
            {"nodes": nodes, "dp_degree": d, "tp_degree": t, "tmpcs": {str(v): chosen.get(v, "vanilla") for v in nodes}}
            for nodes, d, t in stages
        ]
    }


#: Bytes of logits that a split head gathers, and of a tensor that enters or leaves nodes that share sequences.
LOGITS, HALF = SAMPLES * 2 * 6 * 32 * 8 // 2, SAMPLES * 2 * 6 * 16 * 8 // 2
#: The table of 31 words of 16 numbers of 8 bytes is whole on every process; stages of other degrees sum it once.
TABLE = 31.0 * 16 * 8
#: Of norms of a layer that shares sequences, twice weights and biases of 16 numbers of 8 bytes (a Llama's: weights).
NORMS = 2 * 2 * 16.0 * 8
_NORMS = [NORMS] * 5
_BOTH = f"{SEQUENCE}, {AGAIN}"
_GPT, _BERT = [([0, 1, 2], 1, 2), ([3], 2, 1), ([4, 5, 6], 1, 2)], [([0, 1], 1, 2), ([2], 2, 2), ([3, 4], 1, 1)]
_GROUPED, _GATED = [([0, 1], 2, 2), ([2, 3, 4, 5], 1, 2)], [([0, 1], 1, 3), ([2], 1, 2)]

#: Kind of model, stages, TMPCs other than vanilla, and bytes that each process sends within its replica beyond the
#: formula, and to sum gradients: of weights that are tied across stages, or used for parts of sequences.
RUNS = {
    "gpt": ("gpt", _GPT, {3: AGAIN, 4: AGAIN}, [0] * 6, [TABLE, TABLE, 0, 0, TABLE, TABLE]),
    "grouped": ("grouped", _GROUPED, {2: AGAIN}, [0, 0, 0, 0, LOGITS, LOGITS], [0] * 6),
    "bert": ("bert", _BERT, {2: AGAIN}, [0] * 7, [TABLE, 0, 0, 0, 0, 0, TABLE]),
    "gated": ("gated", [([0, 1], 1, 2), ([2], 1, 4)], {1: AGAIN}, [0] * 6, [0] * 6),
    # nodes without a rule: each process computes the whole; what comes in is passed on from each to the next
    "experts": ("experts", [([0, 1], 1, 1), ([2, 3, 4], 1, 4)], {}, [0] * 5, [0] * 5),
    # what a layer that shares sequences takes from a node that does not has a gradient to be gathered
    "bert, sequences": (
        "bert",
        _BERT,
        {1: SEQUENCE, 2: _BOTH},
        [HALF, HALF, *[0] * 5],
        [TABLE + NORMS, *_NORMS, TABLE],
    ),
    # a table by rows, layers, a norm, and a head that gathers
    "grouped, sequences": (
        "grouped",
        _GROUPED,
        dict.fromkeys(range(6), SEQUENCE) | {2: _BOTH},
        [*[0] * 4, LOGITS, LOGITS],
        [*[NORMS / 2] * 4, 1.25 * NORMS, 1.25 * NORMS],
    ),
    # six tokens on three processes, then on two
    "gated, sequences": ("gated", _GATED, {0: SEQUENCE, 1: _BOTH, 2: SEQUENCE}, [0, 0, 0, HALF, HALF], [0] * 5),
}


@pytest.mark.parametrize("name", RUNS)
def test_shares_compute_and_exchange_what_the_plan_says(name: str, tmp_path: Path, capfd: Any) -> None:
    kind, stages, chosen, inside, sums = RUNS[name]
    made = plan(stages, chosen)
    found = ran(capfd, tmp_path, imported(kind), made, kind, "--check", "--out", str(tmp_path / "run"))
    assert found["loss_error"] <= 1e-12 and found["gradient_error"] <= 1e-12
    assert found["parameters"] == found["parameters_compared"] > 10
    assert found["processes"] == sum(d * t for _, d, t in stages)
    assert found["bytes_sent"] == found["bytes_planned"]
    for held, planned in zip(found["held_bytes"], found["held_planned"], strict=True):
        assert 0.95 * planned <= held <= 1.05 * planned
    record = json.loads((tmp_path / "run").read_text())
    for field, expected in (("collective", inside), ("gradient", sums)):
        pairs = zip(record[f"{field}_bytes"], record[f"{field}_planned"], strict=True)
        assert [sent - planned for sent, planned in pairs] == expected
    terms = {term.term: term for term in fidelity(record).terms}
    assert terms["gradients"].measured == sum(record["gradient_bytes"])


def strategy(kind: str, chunks: list[list[int]], **chosen: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """An instance of a kind of model, and a plan of these degrees; the third node computes its activations again."""
    flat = to_json(planner.load(imported(kind), linearize="id"))
    instance = {"problem": "training_strategy", "schema_version": 1, "flat": flat, "virtual_stages": 2}
    instance |= {
        "schedules": ["1f1b", "interleaved", "zb-h1", "zb-v"], "sharding": [0, 1, 2], "sharded_per_weight": 2.0,
        "shard_groups": [1, 2], "any_degree_order": True,
    }  # fmt: skip
    degrees = {"pp_degree": 2, "tp_degree": 1, "dp_degree": 1, "virtual_stages": 1, "schedule": "1f1b"} | chosen
    shared = degrees["tp_degree"] > 1 and degrees.get("sequence_parallel")
    offered = {str(layer["id"]): [x["id"] for x in layer["tmpcs"]["2"]] for layer in flat["layers"]}
    tmpcs = {node: SEQUENCE if shared and SEQUENCE in names else "vanilla" for node, names in offered.items()}
    return instance, {**degrees, "chunks": chunks, "tmpcs": tmpcs | {"2": _BOTH if shared else AGAIN}}


@pytest.mark.parametrize(("schedule", "shared"), [("interleaved", True), ("zb-v", False), ("zb-h1", True)])
def test_schedules_of_trainers_run_shared_stages(schedule: str, shared: bool, tmp_path: Path, capfd: Any) -> None:
    """Two devices of one or two chunks, twice two processes; the table is tied across both. W sums nothing twice."""
    chunks = [[0, 1], [2, 3, 4, 5, 6]] if schedule == "zb-h1" else [[0, 1], [2, 3], [4], [5, 6]]
    own = {"tp_degree": 2, "virtual_stages": len(chunks) // 2, "schedule": schedule, "sequence_parallel": shared}
    found = ran(capfd, tmp_path, *strategy("gpt", chunks, **own), "gpt", "--check")
    assert found["processes"] == 4 and len(found["bytes_sent"]) == 2 * len(chunks)
    assert found["loss_error"] <= 1e-12 and found["gradient_error"] <= 1e-12
    assert found["bytes_sent"] == found["bytes_planned"]
    # the head takes a whole sequence, and W computes the third node again, with two sums, as B does
    more = {"zb-h1": [0, 0, *[5 * HALF] * 2], "zb-v": [0, 0, *[4 * HALF] * 2, *[0] * 4]}
    more["interleaved"] = [*[0] * 6, HALF, HALF]
    pairs = zip(found["collective_bytes"], found["collective_planned"], strict=True)
    assert [sent - planned for sent, planned in pairs] == more[schedule]


@pytest.mark.parametrize(
    ("kind", "chunks", "chosen"),
    [
        ("experts", [[0, 1, 2, 3, 4]], {"pp_degree": 1, "dp_degree": 6, "shard_groups": 2}),
        ("gated", [[0, 1, 2]], {"pp_degree": 1, "dp_degree": 2, "sharding": 2}),
        ("gated", [[0], [1, 2]], {"dp_degree": 2, "tp_degree": 2, "sequence_parallel": True, "dp_outermost": True}),
        (
            "experts",
            [[0], [1], [2], [3, 4]],
            {"dp_degree": 3, "virtual_stages": 2, "schedule": "interleaved", "dp_outermost": True},
        ),
    ],
)
def test_replicas_share_the_states_of_the_optimizer(
    kind: str, chunks: list[list[int]], chosen: dict[str, Any], tmp_path: Path, capfd: Any
) -> None:
    """Each steps its share of the weights with Adam; gradients and weights are then the whole model's.

    Where replicas are outermost, each is on devices that follow each other, pipeline ranks within.
    """
    instance, made = strategy(kind, chunks, **chosen)
    options = ("--check", "--out", str(tmp_path / "run"))
    found = ran(capfd, tmp_path, instance, {"sharding": 1} | made, kind, *options)
    record = json.loads((tmp_path / "run").read_text())
    assert max(found["loss_error"], found["gradient_error"], found["step_error"]) <= 1e-12
    assert found["parameters"] == found["parameters_compared"] > 5
    assert min(found["state_bytes"]) > 0
    for name in ("state", "gradient"):  # as equal shares as can be: within three numbers of 8 bytes, twice
        sent, planned = record[f"{name}_bytes"], record[f"{name}_planned"]
        assert sum(sent) == pytest.approx(sum(planned)) and sent == pytest.approx(planned, abs=48)
    p, t = made["pp_degree"], made["tp_degree"]
    for row in record["rows"]:
        place = (row["replica"] * p + row["stage"] % p) * t + row.get("shard", 0)
        assert row.get("device") == (place if "dp_outermost" in made else None)


def test_all_reduces_are_those_of_the_formula() -> None:
    """A block of four tensors of 2 sequences x 6 words x 16 numbers x 8 bytes, two in each pass."""
    from planner.training.runtime.splits import splits

    found = splits(captured("gpt"), [1, 1, 2, 4, 1, 1, 2])
    shared = splits(captured("gpt"), [1, 1, 2, 1, 1, 1, 1], [2])[2]
    # gathers and scatters are halves of all-reduces, and inputs of column products are gathered again
    assert (shared.forward_bytes, shared.backward_bytes) == (2 * 1536.0, 2 * 1536.0 + 1536.0)
    assert found.keys() == {2}  # two heads are not for four, nor 31 words for two
    assert (found[2].forward_bytes, found[2].backward_bytes) == (2 * 1536.0, 2 * 1536.0)
    # queries, keys and values in one matrix: a process has its head of each
    assert {cut.parts for cut in found[2].cuts.values()} == {(16, 16, 16), (16,), (64,)}
    assert len(found[2].columns) == len(found[2].rows) == 2 and found[2].apart


def test_norms_behind_layers_treat_tokens_one_by_one() -> None:
    """Not what picks one token (ViT), has products (BERT's head), or follows a node that is not shared (experts)."""
    from planner.training.capture.sharding import takes_tokens_apart

    expected = {"gpt": [5], "grouped": [4], "t5": [3, 7], "vit": [], "bert": [], "experts": []}
    for kind, nodes in expected.items():
        made = captured(kind)
        assert [each.id for each in made.nodes if takes_tokens_apart(made, each, 2)] == nodes


def test_as_many_heads_of_keys_are_shared_as_there_are() -> None:
    """Products written out (eager attention) are divided into whole heads as the one op for attention is."""
    from planner.training.capture.sharding import sharding

    rules = {kind: sharding(captured(kind), captured(kind).nodes[1]) for kind in ("llama", "grouped")}
    assert not rules["llama"].allows(2)  # one head of keys
    assert rules["grouped"].allows(2) and not rules["grouped"].allows(4)  # two, for four of queries


@pytest.mark.parametrize(
    ("kind", "tmpc", "words"),
    [
        ("vit", SEQUENCE, "of inner.vit.layers.0, 5 tokens, shared by 2'; expected sequences that a degree divides"),
        ("bert", "zero1", "TMPC zero1 of node 1 of stage 0'; expected vanilla, activation recomp or those of sequence"),
        ("stacked", "vanilla", "not the product with a matrix'; expected products by columns and rows"),
    ],
)
def test_other_splits_are_refused(kind: str, tmpc: str, words: str, tmp_path: Path, capfd: Any) -> None:
    made = imported(kind, zero=(1,))
    nodes = [layer["id"] for layer in made["layers"]]
    code = run(tmp_path, made, plan([(nodes, 1, 2)], {1: tmpc}), kind, "--check")
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert words in err and len(err.splitlines()) == 1


def test_an_instance_made_by_hand_does_not_say_how_tensors_are_split(tmp_path: Path, capfd: Any) -> None:
    made = imported("bert") | {"options": {}}
    assert run(tmp_path, made, plan([([0, 1, 2, 3, 4], 1, 2)], {}), "bert") == 2
    assert "known of imported models alone" in capfd.readouterr().err


def test_pipelining_refuses_tensor_parallel_stages(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stages = [([0, 1], 1, 2), ([2, 3, 4], 1, 2)]
    assert run(tmp_path, imported("bert"), plan(stages, {}), "bert", "--runtime", "pipelining") == 2
    assert "a stage is tensor-parallel" in capfd.readouterr().err
