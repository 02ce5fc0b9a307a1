"""Ops gathered into nodes: blocks by path, no cycles, light ops absorbed, and what is left out."""

import random

import pytest

from instances.graph import find_cycle
from planner.training.capture.clusters import Granularity, Traced, cluster_ops, keys, role_of, shared_activations

#: A transformer of two blocks with an embedding, a norm and a head.
MODULES = {
    "": "GPT", "wte": "Embedding", "h": "ModuleList", "h.0": "Block", "h.0.attn": "Attention", "h.0.attn.q": "Linear",
    "h.1": "Block", "h.1.attn": "Attention", "h.1.attn.q": "Linear", "norm": "LayerNorm", "head": "Linear",
}  # fmt: skip


def test_blocks_and_what_is_around_them():
    key = keys(MODULES, list(MODULES))
    assert [key(path) for path in ("wte", "h.0.attn.q", "h.1", "norm", "head")] == ["wte", "h.0", "h.1", "norm", "head"]
    assert key("") is None and key("h") is None, "ops of containers belong to no part"


def test_a_group_of_blocks_is_no_block():
    swin = {"": "Swin"}
    for stage in range(2):
        swin |= {f"layers.{stage}": "Stage", f"layers.{stage}.blocks": "ModuleList", f"layers.{stage}.down": "Down"}
        for block in range(2):
            path = f"layers.{stage}.blocks.{block}"
            swin |= {path: "Block", f"{path}.attn": "Attention", f"{path}.attn.q": "Linear"}
    key = keys(swin, list(swin))
    assert key("layers.1.blocks.0.attn.q") == "layers.1.blocks.0"
    assert key("layers.1.down") == "layers.1.down" and key("layers.1") is None


def test_parts_of_a_block_are_no_blocks():
    t5 = {"": "T5", "block.0": "T5Block", "block.0.layer.0": "Attention", "block.0.layer.0.q": "Linear",
          "block.0.layer.1": "Feed", "block.0.layer.1.wi": "Linear"}  # fmt: skip
    assert keys(t5, list(t5))("block.0.layer.1.wi") == "block.0"


def test_a_sequence_of_flat_modules_in_a_block_is_no_group():
    resnet = {"": "ResNet"}
    for number in range(2):
        resnet |= {f"layers.{number}": "Bottleneck", f"layers.{number}.conv": "Sequential"}
        for part in range(3):
            resnet |= {f"layers.{number}.conv.{part}": "ConvLayer", f"layers.{number}.conv.{part}.norm": "BatchNorm"}
    assert keys(resnet, list(resnet))("layers.1.conv.2.norm") == "layers.1"


def test_a_model_without_blocks_is_parted_into_its_innermost_modules():
    paths = ["net.first", "net.second", "net", ""]
    key = keys({"": "M", "net": "N", "net.first": "Linear", "net.second": "Linear"}, paths)
    assert [key(path) for path in paths] == ["net.first", "net.second", None, None]


def test_carried_ops_are_those_after_parameters():
    ops = {"mask": Traced(()), "look": Traced(()), "sum": Traced(("look", "mask")), "shift": Traced(("mask",))}
    assert shared_activations(ops, {"look"}) == {"look", "sum"}


def test_ops_of_a_container_before_and_after_its_blocks_make_no_cycle():
    ops = {
        "in": Traced((), "wte", weighs=True), "scale": Traced(("in",), "h"),
        "a": Traced(("scale",), "h.0.attn.q", weighs=True), "between": Traced(("a",), "h"),
        "b": Traced(("between",), "h.1.attn.q", weighs=True), "out": Traced(("b", "scale"), "head", weighs=True),
    }  # fmt: skip
    assert cluster_ops(ops, MODULES, Granularity.BLOCK) == [["in", "scale"], ["a", "between"], ["b"], ["out"]]


def test_a_part_that_is_used_twice_falls_into_components():
    ops = {
        "source": Traced((), "wte", weighs=True),
        "target": Traced((), "wte", weighs=True),
        "a": Traced(("source",), "h.0.attn.q", weighs=True),
        "b": Traced(("a", "target"), "h.1.attn.q", weighs=True),
    }
    assert cluster_ops(ops, MODULES, Granularity.BLOCK) == [["source"], ["target"], ["a"], ["b"]]


def test_a_block_that_is_left_and_entered_again_takes_what_lies_between():
    ops = {
        "a": Traced((), "h.0.attn", weighs=True),
        "outside": Traced(("a",), "norm", weighs=True),
        "b": Traced(("a", "outside"), "h.0.attn.q", weighs=True),
    }
    assert cluster_ops(ops, MODULES, Granularity.BLOCK) == [["a", "outside", "b"]]


def test_outputs_stay_with_the_op_that_makes_them():
    ops = {
        "split": Traced((), "h.0", weighs=True),
        "one": Traced(("split",), "h.1", joined=True),
        "b": Traced(("one",), "h.1", weighs=True),
    }
    assert cluster_ops(ops, MODULES, Granularity.BLOCK) == [["split", "one"], ["b"]]
    assert cluster_ops(ops, MODULES, Granularity.OP) == [["split", "one"], ["b"]]


@pytest.mark.parametrize("granularity", Granularity)
def test_random_graphs_give_ordered_nodes_that_hold_every_op_once(granularity: Granularity, cases: int):
    for seed in range(cases):
        rng = random.Random(seed)
        names = [f"op{number}" for number in range(rng.randint(1, 25))]
        ops = {
            name: Traced(
                tuple(rng.sample(names[:place], min(place, rng.randint(0, 3)))),
                rng.choice(list(MODULES)),
                rng.random() < 0.6,
                place > 0 and rng.random() < 0.1,
            )
            for place, name in enumerate(names)
        }
        nodes = cluster_ops(ops, MODULES, granularity)
        assert sorted(op for node in nodes for op in node) == sorted(names)
        of = {op: number for number, node in enumerate(nodes) for op in node}
        edges = {(of[source], of[name]) for name, op in ops.items() for source in op.inputs if of[source] != of[name]}
        assert all(source < target for source, target in edges), seed
        assert not find_cycle(len(nodes), sorted(edges))


@pytest.mark.parametrize(
    ("path", "kind", "model", "place", "role"),
    [
        ("model.layers.3", "LlamaDecoderLayer", "LlamaForCausalLM", (True, False, False, True), "decoder"),
        ("transformer.h.0", "GPT2Block", "GPT2LMHeadModel", (True, False, False, True), "decoder"),
        ("encoder.block.1", "T5Block", "T5ForConditionalGeneration", (True, False, False, True), "encoder"),
        ("blocks.0", "Block", "Net", (True, False, False, True), "block"),
        ("wte", "Embedding", "Net", (False, True, False, False), "embedding"),
        ("ln_f", "LayerNorm", "Net", (False, False, False, False), "norm"),
        ("lm_head", "Linear", "Net", (False, False, True, True), "head"),
        ("middle", "Linear", "Net", (False, False, False, True), ""),
    ],
)
def test_roles(path: str, kind: str, model: str, place: tuple[bool, ...], role: str):
    block, first, last, computes = place
    assert role_of(path, kind, model, block=block, first=first, last=last, computes=computes) == role
