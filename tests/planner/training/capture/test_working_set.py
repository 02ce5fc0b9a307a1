"""What backward passes have for a moment, by hand; and what is left of every device for it."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from capture_models import Layers  # noqa: E402
from torch import nn  # noqa: E402

from instances.generators.hardware import HARDWARE  # noqa: E402
from planner.training.capture.choices import WORKING_SET, Choices, Work  # noqa: E402
from planner.training.capture.instances import stage_partitioning  # noqa: E402
from planner.training.capture.trace import capture  # noqa: E402
from planner.training.capture.working_set import working_bytes  # noqa: E402

ROWS, WIDTH, WIDE = 6, 8, 40
NARROW_BYTES, WIDE_BYTES, MATRIX = 4.0 * ROWS * WIDTH, 4.0 * ROWS * WIDE, 4.0 * WIDTH * WIDE


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDE, bias=False), nn.Linear(WIDE, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.tanh(self.up(x)))


def blocks() -> Any:
    with torch.device("meta"):
        return Layers(Block(), Block(), Block()), (torch.ones(ROWS, WIDTH),)


def test_gradients_of_activations_and_of_a_matrix_are_there_at_once() -> None:
    captured = capture(*blocks())
    # at the product down: what comes back, the gradient of its input, and that of the matrix before it is added
    assert working_bytes(captured, captured.nodes[1]) == NARROW_BYTES + WIDE_BYTES + MATRIX


def test_frozen_matrices_have_no_gradient() -> None:
    model, inputs = blocks()
    model.layers[1].down.weight.requires_grad_(False)
    captured = capture(model, inputs)
    kept = NARROW_BYTES  # by down, which keeps only the matrix now: nothing is freed before up is done
    assert captured.nodes[1].parameters[1].trained is False
    # at the product up: the residual's gradient, that of its result, its input's and its matrix's
    assert working_bytes(captured, captured.nodes[1]) <= 2 * kept + 2 * WIDE_BYTES + MATRIX
    assert working_bytes(captured, captured.nodes[1]) < working_bytes(captured, captured.nodes[0]) + WIDE_BYTES


def test_a_loss_has_the_gradient_of_its_logarithms_beside_that_of_the_logits() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(WIDTH, WIDE, bias=False)

        def forward(self, x: Any, labels: Any) -> Any:
            return nn.functional.cross_entropy(self.head(x), labels)

    with torch.device("meta"):
        given = Loss(), (torch.ones(ROWS, WIDTH), torch.zeros(ROWS, dtype=torch.long))
    captured = capture(*given)
    assert working_bytes(captured, captured.nodes[-1]) == pytest.approx(2 * WIDE_BYTES, abs=16)  # and two numbers


@pytest.mark.parametrize("recompute", [True, False])
def test_what_two_nodes_need_is_left_of_every_device_once(recompute: bool) -> None:
    captured, device = capture(*blocks()), HARDWARE["h100"]
    offered = Choices((1,), recompute=recompute)
    made = stage_partitioning(captured, device, 2, Work(1, "fp32", 4), offered, {})
    inside = (captured.saved_bytes() - 2 * NARROW_BYTES) / 3  # of a block; the model's input is every stage's
    needed = NARROW_BYTES + WIDE_BYTES + MATRIX + (inside if recompute else 0.0)
    assert made.options[WORKING_SET] == pytest.approx(needed)
    assert made.memory_bytes == pytest.approx(device.memory_bytes - needed)
    states = {x.static_bytes for layer in made.layers for x in layer.tmpcs[1]}
    assert len(states) == 1, "what is computed again counts no more as states"


def test_a_node_that_needs_more_than_all_others_has_it_as_states() -> None:
    model, inputs = blocks()
    model.layers.append(nn.Linear(WIDTH, 100 * WIDE, device="meta"))
    captured = capture(model, inputs)
    device, offered = HARDWARE["h100"], Choices((1,), recompute=False)
    made = stage_partitioning(captured, device, 2, Work(1, "fp32", 4), offered, {})
    usual = NARROW_BYTES + WIDE_BYTES + MATRIX
    assert made.options[WORKING_SET] == usual
    last = captured.nodes[-1]
    states = 4.0 * sum(each.size for each in last.parameters)  # weights, gradients and Adam's averages
    assert made.layers[-1].tmpcs[1][0].static_bytes == states + working_bytes(captured, last) - usual > states


def test_no_more_than_a_25th_of_a_device_is_left() -> None:
    from dataclasses import replace

    captured = capture(*blocks())
    small = replace(HARDWARE["h100"], memory_bytes=2500.0)
    made = stage_partitioning(captured, small, 2, Work(1, "fp32", 4), Choices((1,)), {})
    assert made.options[WORKING_SET] == 100.0 and made.memory_bytes == 2400.0
    need = working_bytes(captured, captured.nodes[0])
    states = 4.0 * sum(each.size for each in captured.nodes[0].parameters)
    assert made.layers[0].tmpcs[1][0].static_bytes == states + need - 100.0


def test_a_mask_of_truth_values_is_kept_as_numbers() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Any, mask: Any) -> Any:
            x = self.inside(x)[None]
            return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    found = {}
    for kind in (torch.bool, None):
        with torch.device("meta"):
            mask = None if kind is None else torch.ones(ROWS, ROWS, dtype=kind)
            found[kind] = capture(Attention(), (torch.ones(ROWS, WIDTH), mask)).saved_bytes()
    assert found[torch.bool] - found[None] == 4.0 * ROWS * ROWS
