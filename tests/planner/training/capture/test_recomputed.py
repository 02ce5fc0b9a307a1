"""Parts of layers that are computed again: what PyTorch keeps with a checkpoint around them; needs the extra torch."""

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from capture_models import HEADS, LENGTH, WIDTH, kept_by, language  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from instances.generators.hardware import HARDWARE  # noqa: E402
from instances.generators.transformer import SELECTIVE, SELECTIVE_MLP  # noqa: E402
from planner.training.capture.choices import Choices, Work  # noqa: E402
from planner.training.capture.configurations import Configurations  # noqa: E402
from planner.training.capture.recomputed import Parts  # noqa: E402
from planner.training.capture.trace import capture  # noqa: E402

CORE, MLP = "core", "mlp"


class Layer(nn.Module):
    """Attention op by op, with heads of keys for several of queries, and an MLP of two or three products."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.groups, self.repeats, self.width = rng.choice([1, 2]), rng.choice([1, 2, 3]), rng.choice([2, 4])
        h, f = self.groups * self.repeats * self.width, rng.choice([8, 24])
        self.is_gated, self.is_wide, self.masks = (rng.random() < 0.5 for _ in range(3))
        self.act = rng.choice([nn.functional.gelu, nn.functional.relu, nn.functional.silu, torch.tanh])
        self.norms = nn.ModuleList(nn.LayerNorm(h) for _ in range(2))
        self.q, self.k, self.v = (nn.Linear(h, n * self.width) for n in (h // self.width, self.groups, self.groups))
        self.out, self.up, self.gate, self.down = (nn.Linear(a, b) for a, b in ((h, h), (h, f), (h, f), (f, h)))
        self.again, self.taken = "", []

    def core(self, q: Any, k: Any, v: Any) -> Any:
        b, _, s, _ = q.shape
        many = b, self.groups, self.repeats, s, self.width
        k, v = (x[:, :, None].expand(many).reshape(b, -1, s, self.width) for x in (k, v))
        scores = q @ k.transpose(2, 3) / 2
        if self.masks:
            scores = scores + torch.ones(s, s, device=q.device).tril().log()
        return scores.softmax(-1, dtype=torch.float64 if self.is_wide else None).to(q.dtype) @ v

    def mlp(self, x: Any) -> Any:
        return self.down(self.act(self.gate(x)) * self.up(x) if self.is_gated else self.act(self.up(x)))

    def part(self, name: str, *given: Any) -> Any:
        of = {CORE: self.core, MLP: self.mlp}[name]
        if self.again != name:
            return of(*given)
        self.taken += given
        return checkpoint(of, *given, use_reentrant=False)

    def forward(self, x: Any) -> Any:
        b, s, h = x.shape
        n = self.norms[0](x)
        a = self.part(CORE, *(each(n).view(b, s, -1, self.width).transpose(1, 2) for each in (self.q, self.k, self.v)))
        x = x + self.out(a.transpose(1, 2).reshape(b, s, h))
        return x + self.part(MLP, self.norms[1](x))


def model_of(rng: random.Random) -> nn.Sequential:
    """Two equal layers between products."""
    layers = [Layer(random.Random(seed)) for seed in [rng.random()] * 2]
    h = layers[0].out.in_features
    return nn.Sequential(nn.Linear(h, h), *layers, nn.Linear(h, 3))


def really_kept(model: Any, x: Any, again: str) -> float:
    """Bytes of what PyTorch saves in a run with data, outside checkpoints, and of what these take."""
    layers = model[1:3]
    for layer in layers:
        layer.again, layer.taken = again, []
    return kept_by(model, x, (each for layer in layers for each in layer.taken))


def test_what_is_kept_is_what_pytorch_keeps_with_a_checkpoint(cases: int) -> None:
    """Times as well: the ops of the part once more, whose operations are those of its formula."""
    for seed in range(cases):
        rng = random.Random(seed)
        model, b, s = model_of(rng), rng.choice([1, 2]), rng.choice([3, 5, 8])
        of = model[1]
        h, f = of.out.in_features, of.up.out_features
        captured = capture(model, (x := torch.randn(b, s, h),))
        offered = Configurations(captured, HARDWARE["h100"], Work(b, "fp32", 4), Choices(degrees=(1,), selective=True))
        operations = {CORE: 4 * b * s * s * h, MLP: 2 * b * s * h * f * (3 if of.is_gated else 2)}
        for name, again in ((SELECTIVE, CORE), (SELECTIVE_MLP, MLP)):
            parts = [offered.parts[node][name] for node in (1, 2)]
            change = [sum(size for _, size in part.added) - sum(size for _, size in part.dropped) for part in parts]
            assert captured.saved_bytes() + sum(change) == really_kept(model, x, again), (seed, again)
            assert {sum(captured.costs[op].flops for op in part.ops) for part in parts} == {operations[again]}
            for node, part, less in zip(captured.nodes[1:3], parts, change, strict=True):
                ways = {each.id: each for each in offered.of(node)[1]}
                assert (name in ways) == (less < 0)
                if less < 0:
                    one, kept = ways[name], ways["vanilla"]
                    assert one.activation_bytes - kept.activation_bytes == less
                    assert one.weight_bytes == kept.weight_bytes
                    assert one.time == pytest.approx(kept.time + sum(offered.seconds(op, 1.0) for op in part.ops))


def test_a_fused_core_leaves_what_others_keep_and_products_without_a_softmax_are_none() -> None:
    parts = Parts(fused := capture(*language()))
    core = parts.attention_core(fused.nodes[1])  # its result stays for the product behind it
    assert core is not None and HEADS * LENGTH * 4 in (sizes := [size for _, size in core.dropped])
    assert LENGTH * WIDTH * 4 not in sizes
    layer = Layer(random.Random(1))
    layer.core = lambda q, k, v: q @ k.transpose(2, 3) @ v
    plain = capture(nn.Sequential(layer), (torch.randn(1, 5, layer.out.in_features),))
    assert Parts(plain).attention_core(plain.nodes[0]) is None
