"""Ten models of transformers against textbook formulas, written down here; needs the extra torch, with transformers.

Operations of a transformer block with s positions, k of them attended to, width h and an MLP of width f (gated: three
products): 8 s h^2 + 4 s k h + 4 s h f. Saved bytes of a block in 16 bits are multiples of s h: 34 with GELU and two
dropouts (Korthikanti et al., without the attention matrix, which fused kernels do not keep); what models do besides is
added with its reason.
"""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")
pytest.importorskip("transformers", reason="needs the extra torch, with transformers")

from planner.training.capture import hf  # noqa: E402
from planner.training.capture.captured import Captured  # noqa: E402
from planner.training.capture.trace import capture  # noqa: E402


def block(s: int, h: int, f: int, k: int | None = None, matrices: int = 2, kv: float = 1.0) -> float:
    """Operations of self-attention and MLP; ``kv`` is the width of keys over that of queries."""
    return (4 + 4 * kv) * s * h * h + 4 * s * (k or s) * h + 2 * matrices * s * h * f


def across(s: int, k: int, h: int) -> float:
    """Operations of attention to k other positions."""
    return 4 * s * h * h + 4 * k * h * h + 4 * s * k * h


def patches(count: int, side: int, h: int) -> float:
    """Operations of a convolution of patches."""
    return 2.0 * count * 3 * side * side * h


FLOPS: dict[str, Callable[[], float]] = {
    "gpt2": lambda: 12 * block(1024, 768, 3072) + 2 * 1024 * 768 * 50257,
    "bert-large": lambda: 24 * block(512, 1024, 4096) + 2 * 512 * 1024 * (1024 + 30522),
    "llama-7b": lambda: 32 * block(4096, 4096, 11008, matrices=3) + 2 * 4096 * 4096 * 32000,
    "vit-l": lambda: 24 * block(197, 1024, 4096) + patches(196, 16, 1024),
    "resnet50": lambda: 2 * 4.09e9,  # He et al.: about 4.1e9 multiply-adds
    "t5-large": lambda: (
        24 * block(512, 1024, 4096) + 24 * (block(512, 1024, 4096) + across(512, 512, 1024)) + 2 * 512 * 1024 * 32128
    ),
    "clip-vit-b-32": lambda: 12 * (block(50, 768, 3072) + block(77, 512, 2048)) + patches(49, 32, 768),
    "mixtral-8x7b": lambda: (
        32 * (block(4096, 4096, 2 * 14336, matrices=3, kv=0.25) + 2 * 4096 * 4096 * 8) + 2 * 4096 * 4096 * 32000
    ),
    "whisper-tiny": lambda: (
        4 * block(1500, 384, 1536)
        + 4 * (block(448, 384, 1536) + across(448, 1500, 384))
        + 2 * 448 * 384 * 51865
        + 2 * (3000 * 80 * 3 * 384 + 1500 * 384 * 3 * 384)
    ),
    "swin-t": lambda: 2 * 4.5e9,  # Liu et al.: 4.5e9 multiply-adds
}

#: Bytes that a block saves, over s h: role of the block, s h, and the multiple.
SAVED: dict[str, tuple[str, int, float]] = {
    "bert-large": ("encoder", 512 * 1024, 34),
    "vit-l": ("block", 197 * 1024, 34 - 2),  # no dropout
    "whisper-tiny": ("encoder", 1500 * 384, 34 - 2),  # no dropout
    "clip-vit-b-32": ("encoder", 50 * 768, 34 - 2 + 8),  # no dropout; x sigmoid(1.702 x) keeps the sigmoid
    "gpt2": ("decoder", 1024 * 768, 34 + 24),  # the GELU by tanh, op by op, keeps three tensors more
    # Two norms in 32 bits: the input in 32 and 16 bits, the result before and after its weights, 10 each; 8 for
    # attention; masks of 1, 1 and 4; ReLU and dropout of width 4 h, 8 each.
    "t5-large": ("encoder", 512 * 1024, 2 * 10 + 8 + 6 + 16),
    # Two such norms that do not keep the 16-bit input; q, k, v and output; four tensors of the MLP.
    "llama-7b": ("decoder", 4096 * 4096, 2 * 8 + 8 + 8 * 11008 / 4096),
    # Each of two experts of a token: input and output, and the MLP's four tensors.
    "mixtral-8x7b": ("decoder", 4096 * 4096, 2 * 8 + 8 + 2 * (4 + 8 * 14336 / 4096)),
}


def captured(name: str) -> Captured:
    example, _ = hf.example(name, sequence=None, microbatch=1, dtype="bf16")
    return capture(example.model, example.args, example.kwargs, name=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOPS)
def test_operations_are_those_of_the_textbook(name: str):
    found = captured(name)
    assert found.flops() == pytest.approx(FLOPS[name](), rel=0.02)
    assert found.warnings == () and found.downsets is not None and found.downsets < 1000
    if name in SAVED:
        role, size, multiple = SAVED[name]
        inner: Any = [node for node in found.nodes if node.role == role][1]
        saved = sum(found.costs[op].saved_bytes for op in inner.ops)
        assert saved == pytest.approx(multiple * size, rel=0.02)
