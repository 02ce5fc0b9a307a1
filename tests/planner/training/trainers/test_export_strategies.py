"""Training strategies as the trainers' settings: what is written, noted, and refused."""

from dataclasses import replace
from typing import Any

import pytest
from exported_strategies import INTERLEAVED, strategy

import planner
from formulations.training_strategy.definition.plan import plan_from_json
from formulations.training_strategy.definition.quantities import realizable
from instances.problems.stage_edits import change_tmpcs
from instances.problems.stage_partitioning import Edge
from instances.problems.training_strategy import Exchanged
from planner.files.load import family_of
from planner.training.trainers.formats import FORMATS

WITHOUT_CHUNKS = {"deepspeed", "galvatron", "vllm", "sglang", "accelerate"}


@pytest.mark.parametrize("name", FORMATS)
def test_strategies_are_exported_with_their_chunks(name: str) -> None:
    """As stages of the same layers are; where a device has several chunks, those that have no place for them refuse."""
    instance = planner.load("chain8-strategy", memory="1GB")
    found = planner.export(instance, INTERLEAVED, name)
    assert (found.text is None) == (name in WITHOUT_CHUNKS) == ("2 chunks of layers" in (found.refused or ""))
    if found.text is not None:
        read = FORMATS[name].read(found.text)
        assert found.lossless and (read.pp_degree, read.virtual) == (2, 2)
        assert not any("does not run" in note for note in found.notes)
    stages = [[0, 1, 2], [3, 4, 5, 6, 7]]
    own = planner.export(instance, strategy("1f1b", stages), name)
    each = [
        {"nodes": chunk, "dp_degree": 1, "tp_degree": 1, "tmpcs": {str(v): "keep" for v in chunk}} for chunk in stages
    ]
    other = planner.export(planner.load("chain8", memory="1GB"), {"stages": each}, name)
    assert own.text is not None and other.text is not None
    assert FORMATS[name].read(own.text) == FORMATS[name].read(other.text) and own.lossless


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("schedule", "called"), [("zb-v", "ZBVZeroBubble"), ("dualpipe-v", "DualPipeV")])
def test_a_v_is_one_of_torch_alone(schedule: str, called: str, name: str) -> None:
    """Others would run its chunks on other devices. Seven micro-batches are no rounds of two, which no V needs."""
    instance = planner.load("chain8-strategy", memory="1GB", schedule=schedule, virtual_stages=1, microbatches=7)
    found = planner.export(instance, INTERLEAVED | {"schedule": schedule}, name)
    plan = plan_from_json(instance, INTERLEAVED | {"schedule": schedule})
    is_torch = name in ("torch", "torchtitan")
    assert (found.text is not None) == is_torch == bool(realizable(instance, plan, name))
    if found.text is None:
        assert "2 chunks of layers in a V" in (found.refused or "")
        assert ("chunks i and i + 2 on device i" in (found.refused or "")) == (name == "megatron")
        return
    assert f"{called}'" in found.text.replace('"', "'") and FORMATS[name].read(found.text).virtual == 2
    assert ("MICROBATCHES = 7" if name == "torch" else "local_batch_size = 7") in found.text
    assert not any("does not run" in note for note in found.notes)
    assert any("compiles no stage" in note for note in found.notes)
    assert not any("again in W" in note for note in found.notes)


@pytest.mark.parametrize("name", FORMATS)
def test_a_schedule_that_a_trainer_does_not_run_is_said(name: str) -> None:
    instance = planner.load("chain8-strategy", memory="1GB", schedule="1f1b,gpipe,zb-h1", virtual_stages=1)
    for schedule in ("1f1b", "gpipe", "zb-h1"):
        found = planner.export(instance, strategy(schedule, [[0, 1, 2, 3], [4, 5, 6, 7]]), name)
        known = FORMATS[name].trainer.schedules
        said = f"{name} does not run {schedule}, which the plan's time is of, but 1f1b"
        assert (said in found.notes) == (bool(known) and schedule not in known)
        assert any("compiles no stage" in note for note in found.notes) == (schedule == "zb-h1" and name == "torch")
        ways = {str(v): "recompute" for v in range(8)}
        again = planner.export(instance, strategy(schedule, [[0, 1, 2, 3], [4, 5, 6, 7]]) | {"tmpcs": ways}, name)
        assert any("again in W" in note for note in again.notes) == (schedule == "zb-h1" and name == "torch")
        left = f"{name} trains nothing: the 8 micro-batches of a batch and their order, {schedule}, are left out"
        assert (left in found.notes) == (not known)


@pytest.mark.parametrize(
    ("name", "schedule", "words"),
    [
        ("megatron", "1f1b", "--micro-batch-size 3; --global-batch-size 24; --seq-length 128"),
        ("torchtitan", "gpipe", "pipeline_parallel_schedule = 'GPipe'; pipeline_parallel_microbatch_size = 3"),
        ("torchtitan", "1f1b", "local_batch_size = 12; global_batch_size = 24; seq_len = 128"),
        ("torchtitan", "1f1b", "data_parallel_shard_degree = 2; data_parallel_replicate_degree = 1"),
        ("deepspeed", "1f1b", "'train_micro_batch_size_per_gpu': 3, 'gradient_accumulation_steps': 4"),
        ("deepspeed", "1f1b", "'train_batch_size': 24; SEQUENCE_LENGTH = 128"),
        ("deepspeed", "1f1b", "'bf16': {'enabled': True}; {'grad_accum_dtype': 'bf16'}"),
        ("galvatron", "gpipe", "'pipeline_type': 'gpipe'; 'micro_batch_size': 3; 'seq_length': 128"),
        ("galvatron", "1f1b", "'chunks': 4; 'global_bsz': 24"),
        ("torch", "zb-h1", "SCHEDULE = 'ScheduleInterleavedZeroBubble'"),
        ("torch", "1f1b", "MICROBATCHES = 4; MICROBATCH_SIZE = 3; SEQUENCE_LENGTH = 128; GLOBAL_BATCH_SIZE = 24"),
        (
            "vllm",
            "1f1b",
            "# Left out is a training step of 24 samples: 4 micro-batches of 3 x 128 tokens on each replica",
        ),
        ("sglang", "1f1b", "# The plan is one of training"),
    ],
)
def test_a_batch_is_written_where_there_is_a_place_for_it(name: str, schedule: str, words: str) -> None:
    """Eight micro-batches of three samples of 128 tokens on two replicas."""
    instance = planner.load("chain8-strategy", memory="1GB", schedule="1f1b,gpipe,zb-h1", virtual_stages=1)
    facts = {"microbatch": 3, "seq-len": 128, "dtype": "bf16"}
    known = replace(instance, flat=replace(instance.flat, options={**instance.flat.options, **facts}))
    plan = strategy(schedule, [[0, 1, 2, 3], [4, 5, 6, 7]], dp=2)
    found = planner.export(known, plan, name)
    text = (found.text or "").replace('"', "'")
    assert all(each in text for each in words.split("; ")), text
    assert not any("does not say" in note for note in found.notes)
    eight = replace(known, flat=replace(known.flat, options={**known.flat.options, "dtype": "fp8"}))
    noted = planner.export(eight, plan, name)
    texts = [(each.text or "").splitlines() for each in (noted, found)]
    assert [line for line in texts[0] if line[:1] != "#"] == [line for line in texts[1] if line[:1] != "#"]
    assert all((f"# {note}" in texts[0]) == FORMATS[name].is_script for note in noted.notes)
    assert any("in fp8" in note for note in noted.notes) == bool(FORMATS[name].trainer.schedules)
    without = planner.export(instance, plan, name)
    missing = "the instance does not say the samples of a micro-batch and tokens of a sample: a micro-batch counts as 1"
    assert (missing in without.notes) == bool(FORMATS[name].trainer.schedules)
    assert any("DeepSpeed trains in fp32" in note for note in without.notes) == (name == "deepspeed")


def test_replicas_alone_are_those_of_ddp() -> None:
    """Only beside a pipeline or tensor parallelism torchtitan has none but shards; without one m steps accumulate."""
    instance = planner.load("chain8-strategy", memory="1GB", schedule="1f1b", virtual_stages=1)
    found = planner.export(instance, strategy("1f1b", [list(range(8))], dp=2), "torchtitan")
    assert found.text is not None and not any("FSDP" in note for note in found.notes)
    for line in ("replicate_degree = 2", "shard_degree = 1", "local_batch_size = 1", "global_batch_size = 8"):
        assert line in found.text
    sharded = planner.export(instance, strategy("1f1b", [[0, 1, 2, 3], [4, 5, 6, 7]], dp=2), "torchtitan")
    assert any("(FSDP), which the plan's memory holds whole; it holds shares of weights" in x for x in sharded.notes)


@pytest.mark.parametrize(
    ("name", "words", "note"),
    [
        ("megatron", "--use-distributed-optimizer", ""),
        ("deepspeed", "'zero_optimization': {'stage': 1}", ""),
        ("galvatron", '"default_dp_type": "zero2"', "--no_async_grad_reduce"),
        ("torch", "DATA_PARALLEL = 2", "ZeroRedundancyOptimizer"),
    ],
)
def test_shared_states_are_written(name: str, words: str, note: str) -> None:
    """Or what the trainer shares instead; a plan that holds them whole has no such words."""
    instance = planner.load("chain8-strategy", memory="1GB", schedule="1f1b", virtual_stages=1)
    plan = strategy("1f1b", [list(range(8))], dp=2)
    shared = planner.export(replace(instance, sharded_per_weight=0.01), plan, name)
    assert shared.text is not None and words in shared.text and shared.lossless
    assert any(note in each for each in shared.notes)
    whole = planner.export(instance, plan, name)
    assert name == "torch" or words not in (whole.text or "")
    assert not note or len(shared.notes) == len(whole.notes) + 1


@pytest.mark.parametrize(
    ("name", "words", "waits"),
    [
        ("megatron", "--overlap-grad-reduce", False),
        ("deepspeed", "'stage': 1", True),
        ("torchtitan", "data_parallel_replicate_degree = 2", False),
        ("torch", "DATA_PARALLEL = 2", True),
    ],
)
def test_sums_beside_passes_are_written_or_noted(name: str, words: str, waits: bool) -> None:
    instance = planner.load("chain8-strategy", memory="1GB", schedule="1f1b", virtual_stages=1)
    states, plan = 0.0 if name == "torchtitan" else 0.01, strategy("1f1b", [list(range(8))], dp=2)
    instance = replace(instance, sharded_per_weight=states)
    found = planner.export(replace(instance, overlaps_gradients=True), plan, name)
    assert words in (found.text or "")
    assert any("behind all passes" in note for note in found.notes) == waits
    whole = planner.export(instance, plan, name)
    assert not any("behind all passes" in note for note in whole.notes)
    assert (words in (whole.text or "")) == (name in ("torchtitan", "torch", "deepspeed"))


def test_megatron_begins_the_sums_of_each_rank_by_themselves_where_it_has_several_chunks() -> None:
    instance = planner.load("chain8-strategy", memory="1GB", schedule="interleaved", virtual_stages=2)
    instance = replace(instance, sharded_per_weight=0.01, overlaps_gradients=True)
    assert "--no-align-grad-reduce" in (
        planner.export(instance, {**INTERLEAVED, "dp_degree": 2}, "megatron").text or ""
    )


@pytest.mark.parametrize(
    ("name", "level", "pp", "groups", "words"),
    [
        ("deepspeed", 2, 1, 1, "replicas share gradients; deepspeed does not"),
        ("deepspeed", 3, 2, 1, "replicas share weights; deepspeed does not"),
        ("megatron", 3, 1, 1, "replicas share weights; megatron does not"),
        ("megatron", 2, 1, 1, "replicas share gradients; megatron does not"),
        ("torchtitan", 1, 2, 1, "replicas share optimizer states; torchtitan does not"),
        ("torchtitan", 0, 2, 1, "replicas share nothing; beside other parallelism torchtitan has them share weights"),
        ("torchtitan", 3, 2, 1, "data_parallel_replicate_degree = 1|data_parallel_shard_degree = 2"),
        ("galvatron", 2, 2, 1, '"zero2"'),
        ("deepspeed", 1, 1, 2, "replicas share in 2 groups; the layout of deepspeed does not say so"),
        ("megatron", 1, 2, 2, "--use-distributed-optimizer|--num-distributed-optimizer-instances 2"),
        ("torchtitan", 3, 2, 2, "data_parallel_replicate_degree = 2|data_parallel_shard_degree = 2"),
    ],
)
def test_more_that_is_shared_is_written_or_refused(name: str, level: int, pp: int, groups: int, words: str) -> None:
    instance = planner.load("chain8-strategy", memory="1GB", schedule="1f1b", virtual_stages=1, devices=8)
    instance = replace(instance, sharded_per_weight=0.001, sharding=(level,), flat=with_states(instance.flat))
    instance = replace(instance, shard_groups=(1, 2))
    chunks = [list(range(8))] if pp == 1 else [[0, 1, 2, 3], [4, 5, 6, 7]]
    plan = strategy("1f1b", chunks, dp=2 * groups) | {"sharding": level, "shard_groups": groups}
    found = planner.export(instance, plan, name)
    assert all(each in (found.text or found.refused or "") for each in words.split("|"))
    assert found.text is None or found.lossless
    assert realizable(instance, plan_from_json(instance, plan), name) == (found.refused is None)
    assert not any("holds less" in note for note in found.notes) and (found.refused is None) == (found.text is not None)


#: Settings of an instance, and what its plan has.
OUTERMOST = {"any_degree_order": True}, {"dp_outermost": True}
ON_HOST = {"sharding": "0,1", "shard_optimizer": 0.001, "offload_optimizer": "1GB/s", "offload_fraction": 0.5}
OFFLOADS = "--use-distributed-optimizer|-aware-optimizer|--optimizer-cpu-offload|-fraction 0.5"


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("megatron", OUTERMOST, "--use-tp-pp-dp-mapping"),
        ("torchtitan", OUTERMOST, "outermost"),
        ("torch", OUTERMOST, "DEVICES = [0, 2, 1, 3]"),
        ("megatron", (ON_HOST, {"sharding": 1}), OFFLOADS),
        ("megatron", (ON_HOST, {"dp_degree": 1}), OFFLOADS),
        ("megatron", (ON_HOST, {}), "on the host, which megatron has with replicas that share them"),
        ("deepspeed", (ON_HOST, {"sharding": 1}), "on the host, which deepspeed has not"),
    ],
)
def test_what_a_trainer_may_have_is_written_or_refused(name: str, given: Any, words: str) -> None:
    instance = planner.load("chain8-strategy", memory="1GB", virtual_stages=1, schedule="1f1b", **given[0])
    plan = strategy("1f1b", [[0, 1, 2, 3], [4, 5, 6, 7]], dp=2) | {"sharding": 0, **given[1]}
    found = planner.export(instance, plan, name)
    assert all(each in (found.text or found.refused or "") for each in words.split("|"))
    assert found.refused is not None or found.lossless
    assert realizable(instance, plan_from_json(instance, plan), name) == (found.refused is None)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("megatron", "--context-parallel-size 2; --expert-model-parallel-size 4; WORLD_SIZE=8; data 2"),
        ("torchtitan", "context_parallel_degree = 2; expert_parallel_degree = 4; data_parallel_shard_degree = 2"),
        ("deepspeed", "devices share tokens or experts; the layout of deepspeed does not say so"),
    ],
)
def test_shared_tokens_and_experts_are_written_or_refused(name: str, words: str) -> None:
    instance = planner.load("chain8-strategy", memory="1GB", schedule="1f1b", virtual_stages=1, devices=8)
    own = dict.fromkeys(range(8), Exchanged(kv_bytes=1.0, token_bytes=1.0, experts=4))
    instance = replace(instance, exchanged=own, cp_degrees=(1, 2), ep_degrees=(1, 4))
    plan = strategy("1f1b", [[0, 1, 2, 3], [4, 5, 6, 7]], dp=2) | {"cp_degree": 2, "ep_degree": 4}
    found = planner.export(instance, plan, name)
    text = found.text or found.refused or ""
    assert words in text or all(each in text for each in words.split("; "))
    assert found.refused is not None or found.lossless


@pytest.mark.parametrize("experts", [4, 8])
def test_torchtitan_has_whole_experts(experts: int) -> None:
    """Where the plan has parts of them on tensor-parallel devices, these are among those that share them."""
    instance = planner.load("chain8-strategy", memory="1GB", schedule="1f1b", virtual_stages=1, devices=16)
    own = dict.fromkeys(range(8), Exchanged(token_bytes=1.0, experts=experts))
    layers = tuple(
        replace(layer, tmpcs={2: tuple(replace(x, id=f"{y}{x.id}") for y in ("", "sequence-") for x in layer.tmpcs[2])})
        for layer in instance.flat.layers
    )
    flat = replace(instance.flat, layers=layers)
    instance = replace(instance, flat=flat, exchanged=own, ep_degrees=(1, 4))
    plan = strategy("1f1b", [[0, 1, 2, 3], [4, 5, 6, 7]], dp=4)
    plan |= {
        "tp_degree": 2,
        "ep_degree": 4,
        "sequence_parallel": True,
        "tmpcs": {str(v): "sequence-keep" for v in range(8)},
    }
    found = planner.export(instance, plan, "torchtitan")
    assert realizable(instance, plan_from_json(instance, plan), "torchtitan") == (experts == 8) == found.lossless
    assert "8 devices" in (found.refused or "; ".join(found.notes))
    assert found.text is None or "expert_parallel_degree = 8" in found.text


def with_states(flat: Any) -> Any:
    """Static bytes that have weights and gradients in them."""
    return change_tmpcs(flat, lambda x: replace(x, static_bytes=x.static_bytes + 3 * x.weight_bytes))


def test_replicas_that_do_not_divide_a_batch_are_said() -> None:
    """Three replicas of the whole chain, eight micro-batches: each has three."""
    instance = planner.load("chain8", devices=3, memory="1GB", microbatches=8)
    stage = {
        "nodes": list(range(8)), "dp_degree": 3, "tp_degree": 1, "tmpcs": dict.fromkeys(map(str, range(8)), "keep"),
    }  # fmt: skip
    found = planner.export(instance, {"stages": [stage]}, "megatron")
    assert "8 micro-batches are no multiple of 3 replicas: each has 3" in found.notes
    assert found.text is not None and "--global-batch-size 9" in found.text


@pytest.mark.parametrize(
    ("schedule", "m", "written"),
    [("1f1b", 2, 3), ("1f1b", 5, 5), ("gpipe", 2, 2), ("zb-h1", 2, 2), ("zb-h1", 7, 9), ("zb-h1", 8, 8)],
)
def test_micro_batches_that_torch_cannot_run_are_said(schedule: str, m: int, written: int) -> None:
    """1F1B: at least as many as stages; zero bubble: rounds of as many, in which all of them are."""
    instance = planner.load(
        "chain8-strategy", memory="1GB", schedule="1f1b,gpipe,zb-h1", virtual_stages=1, microbatches=m
    )
    found = planner.export(instance, strategy(schedule, [[0, 1, 2], [3, 4, 5], [6, 7]]), "torch")
    if schedule != "zb-h1":
        titan = planner.export(instance, strategy(schedule, [[0, 1, 2], [3, 4, 5], [6, 7]]), "torchtitan")
        assert titan.text is not None and f"local_batch_size = {written}\n" in titan.text
    assert found.text is not None and f"MICROBATCHES = {written}\n" in found.text
    assert any(f"does not run {m} on 3 ranks" in note for note in found.notes) == (written != m)


@pytest.mark.parametrize(("name", "words"), [("torchtitan", "# a stage of torch"), ("deepspeed", "# PipelineModule")])
def test_what_layers_between_have_to_hand_on_is_said_in_the_script(name: str, words: str) -> None:
    chain = planner.load("chain8", devices=2, memory="1GB")
    for ends, is_far in (((0, 5), True), ((0, 2), name == "deepspeed")):
        known = replace(chain, edges=(*chain.edges, Edge(*ends, 1.0)))
        instance = planner.load(family_of(known).to_json(known), problem="training_strategy")
        text = planner.export(instance, strategy("1f1b", [[0, 1, 2, 3], [4, 5, 6, 7]], dp=1), name).text or ""
        assert (f"as from {ends[0]} to {ends[1]}" in text and words in text) == is_far
