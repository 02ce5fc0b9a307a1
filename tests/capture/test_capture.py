"""Captured models: nodes, operations, saved activations, tied weights, tensors between nodes; needs the extra torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from torch import nn  # noqa: E402

from planner.capture.trace import capture  # noqa: E402
from planner.errors import UsageError  # noqa: E402

VOCABULARY, WIDTH, HEADS, LENGTH = 50, 16, 4, 8


class Block(nn.Module):
    """A transformer block that attends with a mask it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Any, mask: Any) -> Any:
        b, s, _ = x.shape
        q, k, v = (each.view(b, s, HEADS, -1).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, dim=-1))
        a = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, WIDTH))
        return x + self.mlp(x)


class Language(nn.Module):
    """Embeddings, blocks, and a head that may be tied to the embedding; the mask is made once, for all blocks."""

    def __init__(self, blocks: int = 2, tied: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList([Block() for _ in range(blocks)])
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: Any) -> Any:
        mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)


def language(device: str = "meta", **options: Any) -> tuple[nn.Module, tuple[Any, ...]]:
    with torch.device(device):
        return Language(**options), (torch.ones(1, LENGTH, dtype=torch.long),)


def test_blocks_become_nodes_with_names_and_roles():
    captured = capture(*language())
    assert [node.name for node in captured.nodes] == ["embed", "layers.0", "layers.1", "head"]
    assert [node.role for node in captured.nodes] == ["embedding", "block", "block", "head"]
    assert captured.downsets == 5
    assert captured.tied == {"embed.weight": (0, 3)}
    assert captured.warnings == ()


def test_every_op_has_a_node_or_is_replicated():
    captured = capture(*language())
    calls = {node.name for node in captured.module.graph.nodes if node.op == "call_function"}
    assert calls == set(captured.node_of) | captured.replicated and not set(captured.node_of) & captured.replicated
    assert [op for node in captured.nodes for op in node.ops] and captured.replicated, "the mask is replicated"
    assert all(captured.node_of[op] == node.id for node in captured.nodes for op in node.ops)


def test_operations_are_those_of_the_formula():
    captured = capture(*language())
    s, h = LENGTH, WIDTH
    block = 2 * s * (3 * h * h + h * h + 8 * h * h) + 4 * s * s * h
    flops = [sum(captured.costs[op].flops for op in node.ops) for node in captured.nodes]
    assert flops == [0, block, block, 2 * s * h * VOCABULARY]


def test_parameters_are_counted_once_and_tied_ones_in_every_node():
    model, inputs = language()
    captured = capture(model, inputs)
    table = 4.0 * VOCABULARY * WIDTH
    assert captured.parameter_bytes() == 4.0 * sum(each.numel() for each in model.parameters())
    assert [sum(each.size for each in captured.nodes[place].parameters) for place in (0, 3)] == [table, table]
    assert capture(*language(tied=False)).tied == {}


def test_tensors_between_nodes_are_activations_alone():
    captured = capture(*language())
    assert {pair: [each.size for each in found] for pair, found in captured.edges.items()} == {
        (0, 1): [4.0 * LENGTH * WIDTH],
        (1, 2): [4.0 * LENGTH * WIDTH],
        (2, 3): [4.0 * LENGTH * WIDTH],
    }
    assert all(each.gradient for each in captured.crossings)


def test_saved_activations_are_what_autograd_keeps():
    """By hand, in elements: input, normed input, q, k, v (one storage), output of attention, MLP: input, 4h twice."""
    captured = capture(*language(device="cpu"))
    s, h = LENGTH, WIDTH
    by_hand = 4 * (s * h + s * h + 3 * s * h + s * h + s * h + 4 * s * h + 4 * s * h)
    small = 2 * 4 * s + 4 * HEADS * s  # mean and deviation of the norm, logarithms of attention
    saved = [sum(captured.costs[op].saved_bytes for op in node.ops) for node in captured.nodes]
    assert by_hand <= saved[1] <= by_hand + small + 4 * s * h


def test_weights_are_not_needed():
    there, nowhere = capture(*language(device="cpu")), capture(*language(device="meta"))
    assert there.flops() == nowhere.flops() and there.saved_bytes() == nowhere.saved_bytes()
    assert there.node_of == nowhere.node_of and there.edges.keys() == nowhere.edges.keys()


class Experts(nn.Module):
    """Two experts as one grouped product."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2, WIDTH, 4 * WIDTH, dtype=torch.bfloat16))

    def forward(self, x: Any, ends: Any) -> Any:
        return torch._grouped_mm(x, self.weight, offs=ends)


def test_grouped_products_are_counted():
    with torch.device("meta"):
        inputs = torch.ones(32, WIDTH, dtype=torch.bfloat16), torch.ones(2, dtype=torch.int32)
        captured = capture(Experts(), inputs)
    assert captured.flops() == 2 * 32 * WIDTH * 4 * WIDTH


class Outer(nn.Module):
    """A product that FlopCounterMode does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH, WIDTH))

    def forward(self, x: Any) -> Any:
        return torch.cdist(x, self.weight.t())


def test_ops_that_read_matrices_and_count_nothing_are_reported():
    with torch.device("meta"):
        captured = capture(Outer(), (torch.ones(4, WIDTH),))
    (warning,) = captured.warnings
    assert "aten.cdist" in warning and "counts no operations" in warning


class Asks(nn.Module):
    """Its trace depends on data."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.inner(x) if x.sum().item() > 0 else x


def test_a_model_that_cannot_be_traced_is_one_line():
    with pytest.raises(UsageError, match=r"torch\.export can trace") as refused:
        capture(Asks(), (torch.ones(4, WIDTH),), name="file.py:model")
    assert str(refused.value).startswith("file.py:model: trace is ") and "\n" not in str(refused.value)


def test_a_model_without_parameters_is_refused():
    with pytest.raises(UsageError, match="parameters is 0; expected a model with parameters"):
        capture(nn.ReLU(), (torch.ones(4),))


def test_by_op_the_graph_is_finer_and_the_sums_are_equal():
    model, inputs = language()
    blocks, ops = capture(model, inputs), capture(model, inputs, granularity="op")
    assert len(ops.nodes) > len(blocks.nodes)
    assert ops.flops() == blocks.flops() and ops.saved_bytes() == blocks.saved_bytes()
    assert all(crossing.source < min(crossing.targets) for crossing in ops.crossings)
