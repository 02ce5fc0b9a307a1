"""Configurations of captured nodes: products that are split, recomputation, sharded states; needs the extra torch."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from capture_models import HEADS, LENGTH, VOCABULARY, WIDTH, Layers, language  # noqa: E402
from torch import nn  # noqa: E402

from instances.generators.hardware import HARDWARE  # noqa: E402
from planner.training.capture.captured import edge_bytes  # noqa: E402
from planner.training.capture.choices import Choices, Work  # noqa: E402
from planner.training.capture.configurations import Configurations  # noqa: E402
from planner.training.capture.sharding import computed_whole, sharding  # noqa: E402
from planner.training.capture.trace import capture  # noqa: E402
from planner.training.capture.working_set import working_bytes  # noqa: E402

H100 = HARDWARE["h100"]
A = 4.0 * LENGTH * WIDTH


def tmpcs(captured: Any, node: int, microbatch: int = 1, **choices: Any) -> dict[int, dict[str, Any]]:
    """The TMPCs of a node by degree and id."""
    offered = Configurations(captured, H100, Work(microbatch, "fp32", 16), Choices(**choices))
    return {t: {x.id: x for x in found} for t, found in offered.of(captured.nodes[node]).items()}


def test_a_block_is_split_by_columns_and_rows():
    """Two row products to sum forward, two column inputs backward: Megatron-LM's four all-reduces."""
    captured = capture(*language())
    found = sharding(captured, captured.nodes[1])
    assert found is not None
    assert (found.forward_bytes, found.backward_bytes) == (2 * A, 2 * A)
    assert found.parameters == {
        f"layers.0.{name}"
        for name in ("qkv.weight", "qkv.bias", "out.weight", "mlp.0.weight", "mlp.0.bias", "mlp.2.weight")
    }, "biases of row products and norms are whole"
    assert found.allows(2) and found.allows(HEADS) and not found.allows(2 * HEADS), "whole heads go to a device"


def test_the_vocabulary_is_split_at_both_ends():
    captured = capture(*language())
    first, last = (sharding(captured, captured.nodes[place]) for place in (0, 3))
    assert first is not None and (first.forward_bytes, first.backward_bytes) == (A, 0.0)
    assert last is not None and (last.forward_bytes, last.backward_bytes) == (0.0, A)
    assert first.sizes == last.sizes == {VOCABULARY}


class Normed(nn.Module):
    """A norm over what columns have split, as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(WIDTH, 32), nn.LayerNorm(32), nn.Linear(32, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.second(self.norm(self.first(x)))


class Routed(nn.Module):
    """A router that chooses among experts, and one expert."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.up, self.down = nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x: Any) -> Any:
        chosen = torch.topk(self.router(x).softmax(-1), 2).values.sum(-1, keepdim=True)
        return x + self.down(nn.functional.gelu(self.up(x))) * chosen


def block(module: nn.Module) -> Any:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), module, nn.Linear(WIDTH, WIDTH))
        return capture(model.to("meta"), (torch.ones(LENGTH, WIDTH),))


def test_no_rule_where_a_norm_needs_the_whole_or_a_split_tensor_leaves():
    captured = block(Normed())
    assert sharding(captured, captured.nodes[1]) is None
    two = tmpcs(captured, 1, degrees=(1, 2), recompute=False)
    assert two[2]["vanilla"].time == two[1]["vanilla"].time, "each device computes the whole"
    with torch.device("meta"):  # products whose split output another block takes
        model = Layers(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(2)))
        captured = capture(model, (torch.ones(LENGTH, WIDTH),))
    assert sharding(captured, captured.nodes[0]) is None
    assert sharding(captured, captured.nodes[1]) is not None, "nobody takes the last one's output"


def test_a_router_is_whole():
    captured = block(Routed())
    found = sharding(captured, captured.nodes[1])
    assert found is not None and not any("router" in name for name in found.parameters)
    assert any("up.weight" in name for name in found.parameters)


def test_shares_of_a_split_block():
    found = tmpcs(capture(*language()), 1, degrees=(1, 2), recompute=False)
    whole, half = found[1]["vanilla"], found[2]["vanilla"]
    h = WIDTH
    split = 4.0 * (3 * h * h + 3 * h + h * h + 8 * h * h + 4 * h)
    assert whole.weight_bytes - half.weight_bytes == split / 2
    assert whole.static_bytes == 4 * whole.weight_bytes and half.static_bytes == 4 * half.weight_bytes, "16 for 4 bytes"
    link = 2 * (2 - 1) / 2 * 4 * A / (450e9 * 0.75)
    assert half.time > link and whole.time / 2 < half.time - link < whole.time
    assert half.sync_forward_bytes == {0: A} and half.sync_backward_bytes == {2: A}


def test_sequence_parallelism_shares_everything_that_is_saved():
    found = tmpcs(capture(*language()), 1, degrees=(1, 4), recompute=False, sequence_parallel=True)
    whole, split, sequence = found[1]["vanilla"], found[4]["vanilla"], found[4]["sequence parallel"]
    assert sequence.activation_bytes == pytest.approx(whole.activation_bytes / 4)
    assert split.activation_bytes > sequence.activation_bytes
    # four gathers and four scatters, and two gathers more for the gradients of weights
    link = (8 + 2) * (4 - 1) / 4 * A / (450e9 * 0.75)
    assert sequence.time == pytest.approx(whole.time / 4 + link) and sequence.weight_bytes == split.weight_bytes


def test_recomputation_keeps_inputs_and_takes_a_forward_pass():
    found = tmpcs(capture(*language()), 1, degrees=(1,))[1]
    kept, again = found["vanilla"], found["activation recomp"]
    assert again.activation_bytes == A
    assert again.time == pytest.approx(kept.time * 4 / 3)
    assert again.static_bytes == kept.static_bytes, "what is computed again is left of the device, once"


def test_parts_that_are_computed_again_are_shared():
    """The MLP sums its output once more, or gathers its input and scatters its output: 2 (t-1)/t A each time."""
    found = tmpcs(capture(*language()), 1, degrees=(1, 4), sequence_parallel=True, selective=True)
    one, four = found[1], found[4]
    mlp = one["selective recomp of mlp"].time - one["vanilla"].time
    for prefix, kept in (("", "vanilla"), ("sequence parallel, ", "sequence parallel")):
        again = four[f"{prefix}selective recomp of mlp"]
        assert four[kept].activation_bytes - again.activation_bytes == 2 * 4 * A / 4, "two tensors of four widths"
        assert again.time - four[kept].time == pytest.approx(mlp / 4 + 2 * 3 / 4 * A / (450e9 * 0.75))
        assert again.shares_sequence == bool(prefix) and again.weight_bytes == four[kept].weight_bytes
        core = one["selective recomp"].time - one["vanilla"].time
        assert four[f"{prefix}selective recomp"].time - four[kept].time == pytest.approx(core / 4)


@pytest.mark.parametrize(
    ("level", "states", "exchanges"), [(1, 2 + 2 / 4, 2 / 16), (2, 1 + 3 / 4, 1 + 1 / 16), (3, 4 / 4, 3)]
)
def test_sharded_states(level: int, states: float, exchanges: float):
    """By hand: 4 bytes of weights, 4 of gradients, 8 of Adam for each 4 bytes of parameters, on 4 devices; N = 16."""
    captured = capture(*language(batch=4))
    found = tmpcs(captured, 1, microbatch=4, degrees=(1, 4), zero=(level,), recompute=False)
    whole, sharded = found[1]["vanilla"], found[4][f"zero{level}"]
    P = whole.weight_bytes
    assert sharded.static_bytes == pytest.approx(states * P)
    assert sharded.time == pytest.approx(whole.time / 4 + exchanges * 3 / 4 * P / (450e9 * 0.75))
    assert sharded.activation_bytes == whole.activation_bytes / 4 and sharded.weight_bytes == P / 4
    found = tmpcs(captured, 1, microbatch=2, degrees=(2, 4), zero=(level,))
    assert f"zero{level}" in found[2] and f"zero{level}" not in found[4], "samples that cannot be shared"


class Eager(nn.Module):
    """Attention op by op, with one product for each of queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Any) -> Any:
        q, k, v = (each(x).view(LENGTH, HEADS, -1).transpose(0, 1) for each in (self.q, self.k, self.v))
        a = (q @ k.transpose(1, 2)).softmax(-1) @ v
        return x + self.out(a.transpose(0, 1).reshape(LENGTH, WIDTH))


def test_products_that_take_one_input_sum_its_gradient_once():
    captured = block(Eager())
    found = sharding(captured, captured.nodes[1])
    assert found is not None and (found.forward_bytes, found.backward_bytes) == (A, A)
    assert found.allows(HEADS) and not found.allows(2 * HEADS), "heads of attention that is written op by op"


class Fused(nn.Module):
    """Attention whose queries, keys and values come from one product, in one of several orders."""

    def __init__(self, order: str) -> None:
        super().__init__()
        heads = {"one of keys": HEADS + 2, "one of keys, in columns": HEADS + 2}.get(order, 3 * HEADS)
        self.order, self.fused, self.out = order, nn.Linear(WIDTH, heads * 4), nn.Linear(WIDTH, WIDTH)

    def parts(self, x: Any) -> Any:
        b, s, _ = x.shape
        made = self.fused(x)
        if self.order == "one of keys":
            made = made.view(b, s, HEADS + 2, 4)
            return made[:, :, :HEADS], made[:, :, [HEADS]], made[:, :, [HEADS + 1]]
        if self.order == "one of keys, in columns":
            q, k, v = made.split((WIDTH, 4, 4), -1)
            return q.view(b, s, HEADS, 4), k.unsqueeze(2).expand(b, s, HEADS, 4), v.unsqueeze(2).expand(b, s, HEADS, 4)
        if self.order == "by groups":  # two groups, each of two heads of queries, of keys and of values
            return (each.flatten(2, 3) for each in made.view(b, s, 2, 6, 4).split(2, 3))
        return made.view(b, s, HEADS, 3, 4).unbind(3)  # by heads

    def forward(self, x: Any) -> Any:
        b, s, _ = x.shape
        q, k, v = (each.transpose(1, 2) for each in self.parts(x))
        if self.order == "heads behind samples":
            q, k, v = (each.reshape(b * HEADS, s, 4) for each in (q, k, v))
            a = (q @ k.transpose(1, 2)).softmax(-1) @ v
        else:
            a = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(a.reshape(b, HEADS, s, 4).transpose(1, 2).reshape(b, s, WIDTH))


@pytest.mark.parametrize(
    ("order", "samples", "degrees"),
    [
        ("by heads", 2, [2, 4]), ("by groups", 2, [2]), ("one of keys", 2, []), ("one of keys, in columns", 2, []),
        ("heads behind samples", 2, []), ("heads behind samples", 1, [2, 4]),
    ],
)  # fmt: skip
def test_what_a_fused_product_is_taken_apart_into_is_shared_equally(order: str, samples: int, degrees: list[int]):
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Fused(order), nn.Linear(WIDTH, WIDTH))
        captured = capture(model.to("meta"), (torch.ones(samples, LENGTH, WIDTH),))
    found = sharding(captured, captured.nodes[1])
    assert found is not None and [t for t in (2, 4) if found.allows(t)] == degrees
    for t in (2, 4):
        whole = [node.id for node in computed_whole(captured, t)]
        assert (1 in whole) == (t not in degrees)
        one, shared = (tmpcs(captured, 1, degrees=(1, t), recompute=False)[d]["vanilla"] for d in (1, t))
        assert (shared.weight_bytes < one.weight_bytes) == (t in degrees)


class Words(nn.Module):
    """The first layer chooses, the second looks up: whole numbers go across, and no gradient comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, VOCABULARY), nn.Embedding(VOCABULARY, WIDTH)])

    def forward(self, x: Any) -> Any:
        first, second = self.layers
        return second(first(x).argmax(-1))


def test_a_tensor_without_a_gradient_goes_one_way():
    """Cost models count an edge for both passes, so half of its bytes are declared."""
    with torch.device("meta"):
        captured = capture(Words(), (torch.ones(LENGTH, WIDTH),))
    assert edge_bytes(captured) == {(0, 1): 8 * LENGTH / 2}


class Twice(nn.Module):
    """The last layer takes what the first makes, past the second."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        first, second, third = self.layers
        y = first(x)
        return third(torch.cat([second(y), y]))


def test_an_input_is_kept_where_it_is_taken_first():
    with torch.device("meta"):
        captured = capture(Twice(), (torch.ones(LENGTH, WIDTH),))
    kept = [tmpcs(captured, node, degrees=(1,))[1]["activation recomp"].activation_bytes for node in range(3)]
    assert kept == [0, A, A], "the tensor goes to both; the third has that of the second besides"


def test_the_gradient_of_a_table_is_dense():
    """By hand: rows are read and written in a forward pass; the backward pass does it twice, and writes 2 P."""
    vanilla = tmpcs(capture(*language()), 0, degrees=(1,))[1]["vanilla"]
    P = 4.0 * VOCABULARY * WIDTH
    assert vanilla.time == pytest.approx((3 * 2 * A + 2 * P) / (3.35e12 * 0.75))


def test_frozen_layers_have_weights_alone_and_pass_back_what_is_needed():
    with torch.device("meta"):
        model = Layers(*(nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False)) for _ in range(4)))
        for number in (0, 1, 3):
            model.layers[number].requires_grad_(False)
        captured = capture(model, (torch.ones(4096, WIDTH),))
    P, forward = 4.0 * WIDTH * WIDTH, (2 * 4 * 4096 * WIDTH + 4 * WIDTH * WIDTH) / (3.35e12 * 0.75)
    found = [tmpcs(captured, node, degrees=(1,))[1]["vanilla"] for node in range(4)]
    assert [x.time / forward for x in found] == pytest.approx([1, 1, 2, 2]), "for weights alone, for inputs alone"
    working = [working_bytes(captured, node) for node in captured.nodes]
    beyond = [max(0.0, each - sorted(working)[-2]) for each in working]
    states = [(x.static_bytes - more) / P for x, more in zip(found, beyond, strict=True)]
    assert states == [1, 1, 4, 1] and [x.weight_bytes / P for x in found] == [0, 0, 1, 0]
    assert edge_bytes(captured)[0, 1] == edge_bytes(captured)[2, 3] / 2, "no gradient comes back to the first"


class Experts(nn.Module):
    """Products of groups of rows with matrices, which are read as views, as transformers does it, or as they are."""

    def __init__(self, *, are_views: bool) -> None:
        super().__init__()
        self.experts, self.are_views = nn.Parameter(torch.empty(4, WIDTH, WIDTH)), are_views

    def forward(self, x: Any) -> Any:
        ends = torch.full((4,), LENGTH // 4, dtype=torch.int32, device=x.device).cumsum(0, dtype=torch.int32)
        return torch._grouped_mm(x, self.experts.transpose(1, 2) if self.are_views else self.experts, offs=ends)


@pytest.mark.parametrize("is_trained", [True, False])
def test_gradients_of_weights_that_are_read_as_views(is_trained: bool):
    needs = set()
    for are_views in (True, False):
        with torch.device("meta"):
            ends = (nn.Linear(WIDTH, WIDTH) for _ in range(2))
            model = nn.Sequential(next(ends), Experts(are_views=are_views), next(ends)).to(torch.bfloat16)
            model[1].requires_grad_(is_trained)
            captured = capture(model, (torch.ones(LENGTH, WIDTH, dtype=torch.bfloat16),))
        offered = Configurations(captured, H100, Work(1, "bf16", 16), Choices(degrees=(1,), recompute=False))
        node = captured.nodes[1]
        product = next(op for op in node.ops if captured.costs[op].flops)
        assert captured.costs[product].flops == 2 * LENGTH * WIDTH * WIDTH
        assert offered.weight_times(node, offered.of(node))[1] == offered.seconds(product, 1.0) * is_trained
        assert offered.times_back(product) == 1 + is_trained
        needs.add(working_bytes(captured, node))
    assert len(needs) == 1
