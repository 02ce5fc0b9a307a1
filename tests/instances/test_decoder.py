"""Decoders of the catalog: as many parameters as published, what is exchanged, and what sequences hold."""

from dataclasses import replace
from math import fsum
from pathlib import Path

import pytest

import planner
from instances.generators.decoder import DECODERS


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama3-8b", 8.03e9), ("llama3-70b", 70.6e9), ("llama3-405b", 405.8e9), ("mixtral-8x7b", 46.7e9),
        ("deepseek-v3-like", 671e9),
    ],
)  # fmt: skip
def test_parameters_are_those_of_the_models(name: str, parameters: float) -> None:
    instance = planner.load(name)
    assert fsum(layer.tmpcs[1][0].weight_bytes for layer in instance.chain) / 2 == pytest.approx(parameters, rel=0.005)
    for layer in instance.chain:
        first = layer.tmpcs[1][0]
        assert first.static_bytes == pytest.approx(8 * first.weight_bytes) and set(layer.tmpcs) == {1, 2, 4, 8}
    assert set(DECODERS) >= {name}


@pytest.mark.parametrize(
    ("name", "tokens_per_s", "flop_per_s"),
    [("llama3-8b", 14079, 725e12), ("llama3-70b", 1619, 727e12), ("llama3-405b", 326, 822e12)],
)
def test_operations_of_a_token_are_those_of_published_rates(name: str, tokens_per_s: int, flop_per_s: float) -> None:
    """Megatron-Bridge's summaries (25.09, 26.04) have both of a GPU; a step is three forward passes."""
    options = planner.load(name).flat.options
    forward = options["forward-flops"]
    assert isinstance(forward, float) and options["seq-len"] == 8192 and options["microbatch"] == 1
    assert 3 * forward / 8192 * tokens_per_s == pytest.approx(flop_per_s, rel=2e-3)
    more = planner.load(name, layers=4, microbatch_size=3).flat.options["forward-flops"]
    one, two = (planner.load(name, layers=layers).flat.options["forward-flops"] for layers in (1, 2))
    assert more == pytest.approx(3 * (one + 3 * (two - one)))


def test_experts_that_a_token_does_not_take_are_no_operations() -> None:
    mixtral = planner.load("mixtral-8x7b", layers=1).flat.options["forward-flops"]
    per_token = 2 * (2 * 4096**2 * 1.25 + 2 * 3 * 4096 * 14336) + 2 * 4096 * 4096 + 2 * 4096 * 32000
    assert mixtral == pytest.approx(4096 * per_token)


def test_products_of_layers_alone_are_faster_in_fp8() -> None:
    """At degree 1 half of 4,096 columns' rate is that of 640: products take 1.156 times as long as the best one."""
    h, s, f = 4096, 8192, 14336
    layers = [planner.load("llama3-8b", layers=1, dtype=dtype).chain for dtype in ("bf16", "fp8")]
    operations = 2 * s * (2 * h * h * 1.25 + 3 * h * f)
    saved = operations / (989.4e12 * 0.8) * (1 + 640 / h) * (1 - 794.5 / 1402.6)
    for place, (one, other) in enumerate(zip(*layers, strict=True)):
        for x, y in zip(one.tmpcs[1], other.tmpcs[1], strict=True):
            passes = 0 if place != 2 else 4 if "recomp" in x.id else 3
            assert y == replace(x, time=y.time) and x.time - y.time == pytest.approx(passes * saved)


def test_weight_gradients_are_the_products_with_weights_once(tmp_path: Path) -> None:
    """Attention's core has none: of 8,192 tokens and 4,096 columns at t devices; only the head has its own."""
    h, s, f = 4096, 8192, 14336
    instance = planner.load("llama3-8b", layers=1)
    operations = 2 * s * (2 * h * h * 1.25 + 3 * h * f)
    for t, own in instance.chain[2].weight_times.items():
        assert own == pytest.approx(operations / t / (989.4e12 * 0.8) * (1 + 640 * t / h))
    assert [sorted(layer.weight_times) for layer in instance.chain] == [[], [], [1, 2, 4, 8], [1, 2, 4, 8]]
    faster = planner.load("llama3-8b", layers=1, dtype="fp8").chain[2].weight_times
    assert faster[2] == pytest.approx(instance.chain[2].weight_times[2] * 794.5 / 1402.6)
    planner.save(instance, tmp_path / "own.json")
    assert planner.load(tmp_path / "own.json").flat.layers == instance.flat.layers
    assert planner.from_networkx(planner.to_networkx(instance)).flat.layers == instance.flat.layers


def test_layers_hold_and_exchange_what_is_declared() -> None:
    """8,192 tokens of 4,096 numbers: an output is 64 MiB, keys and values of 1,024 numbers; widths of 14,336."""
    layer = planner.load("llama3-8b").chain[2].tmpcs
    A, s, h, f = 2.0**26, 8192, 4096, 14336
    held = {x.id: x.activation_bytes for x in layer[4]}
    assert held["sequence parallel"] == 2 * s * (6 * h + 2 * 1024 + 3 * f) / 4
    assert held["vanilla"] == 2 * s * (4 * h + (2 * h + 2 * 1024 + 3 * f) / 4)
    assert held["sequence parallel, activation recomp"] == A / 4
    mixtral = planner.load("mixtral-8x7b", layers=2)
    own = mixtral.exchanged[2]
    assert (own.experts, own.expert_weight_bytes) == (8, 2 * 8 * 3 * h * f)
    # Sent and received: two experts for each of 4,096 tokens.
    assert own.token_bytes == 2 * 2 * 4096 * h * 2 and own.kv_bytes == 2 * 2 * 2 * 4096 * 1024
    deepseek = planner.load("deepseek-v3-like", layers=4)
    assert [deepseek.exchanged[v].experts for v in range(2, 6)] == [0, 0, 0, 256]
