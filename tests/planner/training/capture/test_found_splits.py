"""Splits found operator by operator, beside those by hand; needs the extra torch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from capture_models import LENGTH, WIDTH, Layers, language  # noqa: E402
from torch import nn  # noqa: E402

from instances.generators.hardware import HARDWARE  # noqa: E402
from instances.problems.stage_partitioning import Layer, StageInstance, Tmpc  # noqa: E402
from planner.training.capture import layer_splits  # noqa: E402
from planner.training.capture.choices import Choices, Work  # noqa: E402
from planner.training.capture.found_splits import PS, FoundConfigurations, LayerSplits  # noqa: E402
from planner.training.capture.import_model import Brought  # noqa: E402
from planner.training.capture.layer_splits import Layout, fastest, pareto  # noqa: E402
from planner.training.capture.sharding import sharding  # noqa: E402
from planner.training.capture.trace import capture  # noqa: E402

SUM = Layout(-2, -1)


def offered(model: Any, degree: int) -> FoundConfigurations:
    captured = capture(*model)
    return FoundConfigurations(captured, HARDWARE["h100"], Work(1, "fp32", 16), Choices((1, degree)))


@pytest.mark.parametrize("again", [False, True])
def test_the_rule_of_columns_and_rows_costs_what_it_does_by_hand(again: bool) -> None:
    found = offered(language(), 2)
    node = found.captured.nodes[1]
    made = LayerSplits(found, node, 2, again=again)
    by_hand = made.by_hand(made.layer())
    assert by_hand is not None
    way = pareto(by_hand)[0]
    hand = found.of(node)[2][int(again)]
    ops = len(made.flow)
    assert way.amounts.time / PS == pytest.approx(hand.time, abs=3 * ops / PS)
    assert way.amounts.activation_bytes == pytest.approx(hand.activation_bytes, abs=ops)
    assert way.amounts.static_bytes == pytest.approx(hand.static_bytes, abs=ops)


def test_a_way_is_at_least_as_fast_as_the_one_by_hand_and_lists_say_what_they_save() -> None:
    found = offered(language(), 2)
    tmpcs = {each.id: each for each in found.of(found.captured.nodes[1])[2]}
    assert {"vanilla", "activation recomp", "split 1"} <= set(tmpcs)
    assert tmpcs["split 1"].time <= tmpcs["vanilla"].time + 1e-9
    ways = [each for name, each in tmpcs.items() if name.startswith("split")]
    for one in ways:
        for two in ways:
            amounts = ("time", "activation_bytes", "static_bytes")
            assert one is two or any(getattr(one, name) > getattr(two, name) for name in amounts)


class Parallel(nn.Module):
    """Two products by rows whose results are added: one all-reduce does, where the rule by hand has one for each.

    The additions are in the block's own forward pass: outside of it they would be a node beside the two branches.
    """

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.two = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Any) -> Any:
        return x + (self.one(x) + self.two(x))


def test_terms_are_added_before_they_are_summed_over_devices() -> None:
    with torch.device("meta"):
        found = offered((Layers(Parallel(), Parallel()), (torch.zeros(1, LENGTH, WIDTH),)), 2)
    node = next(each for each in found.captured.nodes if each.module == "layers.1")
    made = LayerSplits(found, node, 2, again=False)
    rule = sharding(found.captured, node)
    assert rule is not None and rule.forward_bytes == 2 * 4.0 * LENGTH * WIDTH
    operators = dict(zip(made.flow, made.layer().operators, strict=False))
    sums = [operators[name] for name in made.ops if name.startswith("add")]
    assert any(each.gives == SUM and each.takes == (SUM, SUM) for each in sums[0].splits)
    tmpcs = {each.id: each for each in found.of(node)[2]}
    assert tmpcs["split 1"].time < tmpcs["vanilla"].time
    first = {each.id: each for each in found.of(found.captured.nodes[0])[2]}  # takes what the model is given
    assert first["split 1"].time <= first["vanilla"].time


class Mean(nn.Module):
    """Adds the mean over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.inner(x).mean(1, keepdim=True) + x


def test_a_mean_of_a_share_is_a_term_of_it() -> None:
    with torch.device("meta"):
        found = offered((nn.Sequential(Mean(), Mean()), (torch.zeros(1, LENGTH, WIDTH),)), 2)
    made = LayerSplits(found, found.captured.nodes[-1], 2, again=False)
    operators = dict(zip(made.flow, made.layer().operators, strict=False))
    mean = next(operators[name] for name in made.ops if name.startswith("mean"))
    positions = [each.gives for each in mean.splits if each.takes == (Layout(1, 1),)]
    assert positions == [SUM], "whose gradient each device needs whole"


def test_a_table_is_looked_up_by_rows_and_columns() -> None:
    """Rows of other devices look up nothing: terms of a sum; columns are shares of the result."""
    found = offered(language(), 2)
    node = found.captured.nodes[0]
    made = LayerSplits(found, node, 2, again=False)
    operators = dict(zip(made.flow, made.layer().operators, strict=False))
    table = next(operators[name] for name in made.ops if name.startswith("embedding"))
    gives = {each.name: each.gives for each in table.splits}
    assert gives["rows"] == SUM and gives["columns"] == Layout(2, 2)


@pytest.mark.slow
def test_columns_and_rows_are_among_the_splits_of_every_node_of_a_transformer() -> None:
    found = offered(language(), 2)
    for node in found.captured.nodes:
        hand = found.by_hand(node, 2)
        assert hand is not None
        best = fastest(LayerSplits(found, node, 2, again=False).layer(), hand.amounts)
        assert best is not None and best.amounts.time <= hand.amounts.time
        assert all(mine <= its for mine, its in zip(best.amounts, hand.amounts, strict=True))


def test_a_node_whose_split_by_hand_is_not_declared_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = offered(language(), 2)
    monkeypatch.setattr(LayerSplits, "_terms", lambda *_: iter(()))
    monkeypatch.setattr(LayerSplits, "_by_matrix", lambda *_: iter(()))
    blocks = [node.name for node in found.captured.nodes if not found.by_hand(node, 2)]
    note = f"at degree 2 columns and rows are none of the splits searched: {', '.join(blocks)}"
    assert blocks and note in itertools.islice(found.notes(), 2)


@pytest.mark.slow
def test_tensors_between_layers_may_stay_in_shares() -> None:
    """Of a chain of equal blocks; whole borders cost what each layer's own fastest split does."""
    found = offered(language(), 2)
    chain = found.chains()[0][:2]
    whole, best = found.along(chain, 2)
    alone = [fastest(LayerSplits(found, node, 2, again=False).layer()) for node in chain]
    assert whole == pytest.approx(sum(each.amounts.time for each in alone if each is not None) / PS) and best < whole


def test_equal_layers_are_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[Any] = []
    ways = layer_splits._ways
    monkeypatch.setattr(layer_splits, "_ways", lambda *args, **options: solved.append(args) or ways(*args, **options))
    counts = []
    for blocks in (3, 5):
        with torch.device("meta"):
            found = offered((Layers(*(Parallel() for _ in range(blocks))), (torch.zeros(1, LENGTH, WIDTH),)), 2)
        assert [*map(found.of, found.captured.nodes), *found.notes()]
        counts.append(len(solved))
    assert counts[1] == 2 * counts[0] > 0


@pytest.mark.slow
def test_all_that_splits_found_say_of_a_model() -> None:
    found = offered(language(), 2)
    (chain,) = found.chains()
    whole, best = found.along(chain, 2)
    lost, borders = found.notes()
    assert all(node.name in lost for node in (found.captured.nodes[0], found.captured.nodes[-1]))
    where = f"at degree 2 {chain[0].name} to {chain[-1].name} take {whole / best - 1:.1%} longer with whole tensors"
    assert borders.startswith(where)


@pytest.mark.parametrize(("time", "said"), [(1.5, "50.0%"), (0.8, "-20.0%"), (1.0, "0.0%")])
def test_a_loss_is_said_of_every_node_also_where_columns_and_rows_are_faster(time: float, said: str) -> None:
    captured = capture(*language())

    def layer(number: int, name: str, by_hand: float) -> Layer:
        return Layer(number, {2: (Tmpc("vanilla", by_hand, 0, 0, 0), Tmpc("split 1", 1.0, 0, 0, 0))}, name)

    layers = (layer(0, "first", 3.0), layer(1, "block", time), layer(2, "last", time))
    brought = Brought(
        StageInstance("toy", layers, (), 2, 1.0, 1.0, 1), captured, Work(1, "fp32", 16), HARDWARE["h100"], 0.0, (2,)
    )
    assert brought.lost_by_hand() == [
        "at degree 2 columns and rows take longer than the fastest split found, "
        f"by 200.0% of first, {said} of block to last"
    ]
