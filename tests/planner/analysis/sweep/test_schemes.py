"""Memory schemes and forward-only profiles of the analytic transformers (Piper, section 3.5)."""

import pytest

import planner
from instances.generators.transformer import FORWARD, RECOMPUTE, VANILLA


def tmpcs(**given):
    """The TMPCs of a transformer layer at t = 2, by id."""
    layer = next(layer for layer in planner.load("bert", **given).layers if layer.name == "transformer layer")
    return {x.id: x for x in layer.tmpcs[2]}


def test_pipedream_stashes_weights_with_the_activations() -> None:
    two, one = tmpcs(), tmpcs(memory_scheme="pipedream")
    for name in (VANILLA, RECOMPUTE):
        weights = two[name].weight_bytes
        assert weights == one[name].weight_bytes > 0 and two[name].time == one[name].time
        assert one[name].activation_bytes == pytest.approx(two[name].activation_bytes + weights)
        assert one[name].static_bytes == pytest.approx(two[name].static_bytes - 2 * weights)


def test_pipedream_needs_more_memory_in_deep_pipelines_only() -> None:
    for y, more in ((1, False), (2, None), (3, True)):
        two, one = (tmpcs(memory_scheme=scheme)[VANILLA] for scheme in ("2bw", "pipedream"))
        memory = [x.activation_bytes * y + x.static_bytes for x in (two, one)]
        assert (memory[1] > memory[0]) is bool(more) if more is not None else memory[1] == pytest.approx(memory[0])


def test_forward_only_profiles() -> None:
    both, forward = planner.load("bert"), planner.load("bert", forward_only=True)
    assert [edge.bytes * 2 for edge in forward.edges] == [edge.bytes for edge in both.edges]
    trained, served = tmpcs()[VANILLA], tmpcs(forward_only=True)
    assert set(served) == {FORWARD}
    only = served[FORWARD]
    # a forward pass is a third of both, and holds neither gradients nor what a backward pass would need
    assert only.time == pytest.approx(trained.time / 3, rel=0.2) and only.weight_bytes == 0
    assert only.activation_bytes < trained.activation_bytes and only.static_bytes < trained.static_bytes
    assert not only.sync_backward_bytes and only.sync_forward_bytes
    faster = planner.solve(planner.load("bert", forward_only=True, devices=8), exact=True)
    assert faster.objective < planner.solve(planner.load("bert", devices=8), exact=True).objective / 2
