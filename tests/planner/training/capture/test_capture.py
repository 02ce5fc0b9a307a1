"""Captured models: nodes, operations, saved activations, tied weights, tensors between nodes; needs the extra torch."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from capture_models import HEADS, LENGTH, VOCABULARY, WIDTH, kept_by, language  # noqa: E402
from torch import nn  # noqa: E402

from planner.process.errors import UsageError  # noqa: E402
from planner.training.capture.trace import capture  # noqa: E402


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
    found = {pair: [each.size for each in tensors] for pair, tensors in captured.edges.items()}
    assert found == {pair: [4.0 * LENGTH * WIDTH] for pair in ((0, 1), (1, 2), (2, 3))}
    assert all(each.gradient for each in captured.transfers)


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


class Masked(nn.Linear):
    """A linear layer over places that a mask leaves, which the model makes where tensors are made."""

    def forward(self, x: Any) -> Any:
        return super().forward(x.masked_fill(torch.ones(WIDTH, dtype=torch.bool), 0.0))


def test_tensors_that_a_model_makes_are_where_its_weights_are():
    with torch.device("meta"):
        model, x = Masked(WIDTH, WIDTH), torch.ones(LENGTH, WIDTH)
    assert len(capture(model, (x,)).nodes) == 1


class Outer(nn.Linear):
    """A product that FlopCounterMode does not know."""

    def forward(self, x: Any) -> Any:
        return torch.cdist(x, self.weight.t())


def test_ops_that_read_matrices_and_count_nothing_are_reported():
    with torch.device("meta"):
        captured = capture(Outer(WIDTH, WIDTH, bias=False), (torch.ones(4, WIDTH),))
    (warning,) = captured.warnings
    assert "aten.cdist" in warning and "counts no operations" in warning


class Asks(nn.Linear):
    """Its trace depends on data."""

    def forward(self, x: Any) -> Any:
        return super().forward(x) if x.sum().item() > 0 else x


def test_a_model_that_cannot_be_traced_or_has_no_parameters_is_refused_in_one_line():
    with pytest.raises(UsageError, match=r"torch\.export can trace") as refused:
        capture(Asks(WIDTH, WIDTH), (torch.ones(4, WIDTH),), name="file.py:model")
    assert str(refused.value).startswith("file.py:model: trace is ") and "\n" not in str(refused.value)
    with pytest.raises(UsageError, match="parameters is 0; expected a model with parameters"):
        capture(nn.ReLU(), (torch.ones(4),))


def test_by_op_the_graph_is_finer_and_the_sums_are_equal():
    model, inputs = language()
    blocks, ops = capture(model, inputs), capture(model, inputs, granularity="op")
    assert len(ops.nodes) > len(blocks.nodes)
    assert ops.flops() == blocks.flops() and ops.saved_bytes() == blocks.saved_bytes()
    assert all(transfer.source < min(transfer.targets) for transfer in ops.transfers)


class Pictures(nn.Module):
    """Convolutions, batch norms, a residual connection and dropout, without attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.head = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = nn.functional.relu(self.norm(self.first(x)))
        x = x + nn.functional.gelu(self.second(x))
        return self.head(nn.functional.max_pool2d(x, 2).mean((2, 3)))


def test_saved_bytes_are_those_of_a_real_run():
    """Without attention nothing is set apart: PyTorch's own hooks on a run with data are the witness."""
    model, x = Pictures(), torch.randn(2, 3, 16, 16)
    assert capture(model, (x,)).saved_bytes() == kept_by(model, x)


def test_masks_of_dropout_are_of_one_byte():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH, dtype=torch.bfloat16), nn.Dropout(0.1))
        found = capture(model, (torch.ones(LENGTH, WIDTH, dtype=torch.bfloat16),))
    assert found.saved_bytes() == LENGTH * WIDTH
    assert capture(model.eval(), (torch.ones(LENGTH, WIDTH, dtype=torch.bfloat16, device="meta"),)).saved_bytes() == 0


class Attends(nn.Linear):
    """Attention whose output nothing else keeps."""

    def forward(self, x: Any) -> Any:
        q, k, v = (each.view(LENGTH, HEADS, -1).transpose(0, 1)[None] for each in super().forward(x).chunk(3, dim=-1))
        return nn.functional.scaled_dot_product_attention(q, k, v).sum()


def test_attention_keeps_its_output():
    with torch.device("meta"):
        found = capture(Attends(WIDTH, 3 * WIDTH), (torch.ones(LENGTH, WIDTH),))
    assert found.saved_bytes() == 4 * (3 * LENGTH * WIDTH + LENGTH * WIDTH + HEADS * LENGTH)
