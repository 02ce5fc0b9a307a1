"""Optimizer states that replicas share: what a device holds, and every method against all plans."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracles.training_strategy import exchanging, optimum, placed, plans, random_instance, sharing, sharing_more
from thinned import thinned

import planner
from formulations.stage_partitioning.definition.trainers import TRAINERS
from formulations.training_strategy import FAMILY, costs, exact
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import behind, evaluate, iteration, peak_memory, violations
from formulations.training_strategy.definition.sharing import of_shared, shared_in
from formulations.training_strategy.models import cpsat, milp
from formulations.training_strategy.models.layout_data import layouts_of, priced_degrees
from instances.errors import InstanceError
from instances.generators.transformer import RECOMPUTE, SELECTIVE, SELECTIVE_MLP
from instances.problems.stage_edits import change_tmpcs
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.problems.training_strategy import Exchanged, Schedule, StrategyInstance, check, of_chain
from planner.files.load import family_of
from planner.solving.solve import run
from solvers.outcome import Limits, Status, Stop, Watch

F1B = Schedule.ONE_F_ONE_B


def chain() -> StrategyInstance:
    """Four layers of 3 s, 2 bytes of weights and 8 static bytes, 3 per byte of weights shared; 1 of activations."""
    layers = tuple(Layer(v, {1: (Tmpc("keep", 3.0, 2.0, 1.0, 8.0),)}) for v in range(4))
    edges = tuple(Edge(v, v + 1, 0.0) for v in range(3))
    return replace(of_chain(StageInstance("four", layers, edges, 8, 1e9, 1.0, 8)), sharded_per_weight=3.0)


def plan(p: int, d: int, level: int = 1) -> StrategyPlan:
    size = 4 // p
    chunks = tuple(tuple(range(size * g, size * (g + 1))) for g in range(p))
    return StrategyPlan(p, 1, d, 1, F1B, chunks, dict.fromkeys(range(4), "keep"), level)


def sharing_all(bandwidth: float, levels: tuple[int, ...] = (0, 1, 2, 3)) -> StrategyInstance:
    """The same four layers with 10 static bytes: weights, gradients, and 6 bytes of states."""
    made = chain()
    flat = change_tmpcs(made.flat, lambda x: replace(x, static_bytes=10.0))
    return replace(made, flat=replace(flat, bandwidth=bandwidth), sharding=levels)


@pytest.mark.parametrize(
    ("given", "peak", "time"),
    [
        # Four micro-batches of 12 s, and sums of gradients, 2 * 8 bytes at 1 byte/s, 0.5 bytes/s.
        (plan(1, 2, level=0), [4 * 10 + 4], (48 + 16, 48 + 32)),
        (plan(1, 2, level=1), [4 * (10 - 6 / 2) + 4], (48 + 16, 48 + 32)),
        # Backward passes of 2 s scatter the gradients of a layer in 2 s, 4 s.
        (plan(1, 2, level=2), [4 * (10 - 8 / 2) + 4], (48 + 16, 4 * 4 * 5 + 32)),
        # Passes of 1 s and 2 s gather weights in 2 s each; weights of two layers and gradients of one are there.
        (plan(1, 2, level=3), [4 * (10 - 10 / 2) + 3 * 2 + 4], (4 * 4 * 6 + 16, 4 * 4 * 12 + 32)),
        # Gradients in shares, in a pipeline, too.
        (plan(2, 2, level=2), [2 * (10 - 8 / 2) + 4, 2 * (10 - 8 / 2) + 2], (5 * 6 + 8, 5 * 10 + 16)),
        # There weights are gathered once, and held with the gradients.
        (plan(2, 2, level=3), [2 * (10 - 10 / 2 + 4) + 4, 2 * (10 - 10 / 2 + 4) + 2], (5 * 6 + 8, 5 * 6 + 16)),
    ],
)
def test_levels_by_hand(given: StrategyPlan, peak: list[float], time: tuple[float, float]) -> None:
    for bandwidth, expected in zip((1.0, 0.5), time, strict=True):
        instance = sharing_all(bandwidth)
        assert peak_memory(instance, given) == peak and evaluate(instance, given) == pytest.approx(expected)
        own = of_shared(instance, shared_in(instance, given))
        assert peak_memory(own, replace(given, sharding=0)) == peak
        assert evaluate(own, replace(given, sharding=0)) == evaluate(instance, given)
        assert [row["memory_bytes"] for row in FAMILY.breakdown(instance, given).rows] == peak
        for limit, rules in ((max(peak), []), (max(peak) - 0.5, ["memory"])):
            tight = replace(instance, flat=replace(instance.flat, memory_bytes=float(limit)))
            assert [broken.rule for broken in violations(tight, given)][:1] == rules


@pytest.mark.parametrize(
    ("given", "passes", "behind_them"),
    [
        # A layer's gradients take 4 s, its last backward pass 2 s: the first layer's are summed at 16 s, less 6 s.
        (plan(1, 2, level=0), 48, 16 - 6),
        # Half of that scatters gradients, as fast as passes make them; the rest are weights.
        (plan(1, 2, level=1), 48, 2 + 8),
        (plan(1, 2, level=2), 48, 2 + 8),
        # FSDP gathers these in the next passes.
        (plan(1, 2, level=3), 4 * 4 * 6, 2),
        # The first device ends last, and its pass hides 2 s of 8; the other one's sum of 8 s begins 4 s before.
        (plan(2, 2, level=0), 30, 8 - 2),
        (plan(2, 2, level=2), 30, 2 + 4),
        (plan(2, 2, level=3), 30, 4 + 4),
        (plan(1, 1, level=0), 96, 0),
    ],
)
def test_sums_beside_passes_by_hand(given: StrategyPlan, passes: float, behind_them: float) -> None:
    instance = replace(sharing_all(1.0), overlaps_gradients=True)
    assert evaluate(instance, given) == pytest.approx(passes + behind_them) and violations(instance, given) == ()
    assert FAMILY.breakdown(instance, given).figures["exposed_gradients"] == pytest.approx(behind_them)
    assert evaluate(replace(instance, overlaps_gradients=False), given) >= passes + behind_them


@pytest.mark.parametrize(
    ("given", "peak", "time", "beside"),
    [
        # All-reduced at 1 byte/s: 32 s for 8 bytes of weights; from level 1 on 16 s there, 8 s of weights back.
        (plan(1, 2, level=0), 4 * 12 + 4, 48 + 32, 48 + 32 - 6),
        (plan(1, 2, level=1), 4 * (12 - 6 / 2) + 4, 48 + 24, 48 + 4 + 6 + 8),
        # A layer's backward pass of 2 s scatters 4 bytes of gradients in 4 s; a pass of 5 s hides 3.3 s of 4 s.
        (plan(1, 2, level=2), 4 * (12 - 10 / 2) + 4, 4 * 4 * 5 + 24, 4 * 4 * 5 + 6 + 8),
        # It gathers weights in 2 s as well; weights of two layers and gradients of one are there.
        (plan(1, 2, level=3), 4 * (12 - 12 / 2) + 8 + 4, 4 * 4 * 8 + 24, 4 * 4 * 8 + 4),
        (plan(2, 2, level=3), 2 * (12 - 12 / 2 + 6) + 4, 5 * 6 + 12, 5 * 6 + 8 + 4),
    ],
)
def test_gradients_of_twice_the_weights_by_hand(given: StrategyPlan, peak: float, time: float, beside: float) -> None:
    made = sharing_all(1.0)
    flat = change_tmpcs(made.flat, lambda x: replace(x, static_bytes=12.0))
    made = replace(made, flat=flat, gradients_per_weight=2.0)
    assert max(peak_memory(made, given)) == peak and evaluate(made, given) == pytest.approx(time)
    assert evaluate(replace(made, overlaps_gradients=True), given) == pytest.approx(beside)


@pytest.mark.parametrize(
    ("trainer", "bytes_"), [("megatron", (2, 4, 12)), ("torchtitan", (2, 4, 10)), ("deepspeed", (2, 2, 12))]
)
def test_weights_are_held_as_a_trainer_holds_them(trainer: str, bytes_: tuple[int, ...], tmp_path: Path) -> None:
    plain, made = planner.load("llama3-8b"), planner.load("llama3-8b", shard_optimizer=trainer)
    before, after = (
        [x for layer in each.flat.layers for own in layer.tmpcs.values() for x in own] for each in (plain, made)
    )
    for x, y in zip(before, after, strict=True):
        assert y.static_bytes - x.static_bytes == pytest.approx((sum(bytes_) - 16) / 2 * x.weight_bytes)
    assert (made.gradients_per_weight, made.sharded_per_weight) == (bytes_[1] / 2, bytes_[2] / 2)
    file = tmp_path / "held.json"
    file.write_text(json.dumps(family_of(made).to_json(made)))
    assert planner.load(str(file)) == planner.load(str(file), shard_optimizer=trainer) == made
    stated = planner.load("llama3-8b", shard_optimizer=3)
    file.write_text(json.dumps(family_of(stated).to_json(stated)))
    assert planner.load(str(file), shard_optimizer=trainer).flat.layers == stated.flat.layers
    # What an instance declares stays, and a warning says so.
    own = planner.load("chain8", problem="training_strategy", shard_optimizer=trainer)
    assert own.flat.layers == planner.load("chain8").layers and own.gradients_per_weight == 1
    assert f"not as {trainer} holds weights" in own.flat.warnings[-1]


@pytest.mark.parametrize(
    ("given", "peak", "time"),
    [
        # Two groups of two, a machine each: half of 8 bytes go there, and half of as many back, at 4 bytes/s; of a
        # device's half of the gradients half go to the other group, and as many come back, at 1 byte/s.
        (plan(1, 4, level=1), 4 * (10 - 6 / 2) + 4, 24 + (8 + 8) / 4 + 8),
        # Each backward pass of 2 s scatters gradients in the group, in 0.5 s of a layer, and sums among groups, in 2 s.
        (plan(1, 4, level=2), 4 * (10 - 8 / 2) + 4, 24 + 2 * 4 * 0.5 + (8 + 8) / 4 + 8),
        (plan(1, 4, level=3), 4 * (10 - 10 / 2) + 3 * 2 + 4, 24 + 2 * 4 * 1 + (8 + 8) / 4 + 8),
        # Two stages of 4 bytes.
        (plan(2, 4, level=3), 2 * (10 - 10 / 2 + 4) + 4, 3 * 6 + (4 + 4) / 4 + 4),
    ],
)
def test_groups_share_by_hand(given: StrategyPlan, peak: float, time: float) -> None:
    made = replace(sharing_all(1.0), shard_groups=(1, 2), devices_per_machine=2, inner_bandwidth=4.0)
    given = replace(given, shard_groups=2)
    check(made, "groups")
    assert max(peak_memory(made, given)) == peak and evaluate(made, given) == pytest.approx(time)
    assert violations(made, given) == () and FAMILY.breakdown(made, given).figures["shard_groups"] == 2
    for wrong in ({"shard_groups": 4}, {"shard_groups": 16}, {"sharding": 0}, {"dp_degree": 1}, {"dp_degree": 2}):
        for groups in ((1, 2), ()):
            own = replace(made, shard_groups=groups)
            assert "sharding" in [each.rule for each in violations(own, replace(given, **wrong))]


def making_again(most: int = 1) -> StrategyInstance:
    """Layers hold 1 byte of a micro-batch, or a quarter and 2 s more; one of them 5, or 1."""
    made = replace(sharing_all(1.0, (0,)), makes_again_in_turn=True)
    layers = []
    for layer in made.flat.layers:
        keep, again = replace(layer.tmpcs[1][0], activation_bytes=1.0), 0.25
        if layer.id == most:
            keep, again = replace(keep, activation_bytes=5.0), 1.0
        ways = (keep, replace(keep, id="again", time=5.0, activation_bytes=again))
        layers.append(replace(layer, tmpcs={1: ways}))
    return replace(made, flat=replace(made.flat, layers=tuple(layers)))


#: Bytes of a device, and the least time of a micro-batch: no layer recomputes, two, all but the second, all.
AGAIN = ((48.0, 12.0), (47.3, 16.0), (47.2, 18.0), (46.4, 20.0), (45.8, 20.0), (45.7, None))


def test_one_layer_at_a_time_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = making_again()
    for again, peak in (((), 8), ((0,), 7.25 + 0.75), ((0, 2), 6.5 + 0.75), ((0, 1), 3.25 + 4), (range(4), 1.75 + 4)):
        given = replace(plan(1, 1, 0), tmpcs={v: "again" if v in again else "keep" for v in range(4)})
        assert peak_memory(made, given) == [40 + peak]
        for limit, rules in ((40 + peak, []), (40 + peak - 0.1, ["memory"])):
            tight = replace(made, flat=replace(made.flat, memory_bytes=limit))
            assert [each.rule for each in violations(tight, given)] == rules
    for memory, time in AGAIN:
        tight = replace(made, flat=replace(made.flat, memory_bytes=memory, num_devices=1))
        for most in (8, 1):  # with 1, bounds leave room for the least that is made again, which is nothing
            monkeypatch.setattr(costs, "_MOST_MADE", most)
            found = exact.solve(tight, Limits(), Watch()).plan
            assert (None if found is None else evaluate(tight, found) / 8) == time


@pytest.mark.parametrize("room", [milp, cpsat])
def test_models_have_room_for_what_is_made_again(room: Any) -> None:
    for memory, time in AGAIN[1::2]:
        tight = making_again()
        tight = replace(tight, flat=replace(tight.flat, memory_bytes=memory, num_devices=1))
        assert of_model(room, tight) == (None if time is None else pytest.approx(8 * time, rel=1e-6))
    # A stage of the second layer alone holds 10 bytes, 3 micro-batches of 1, and 4 that are made again.
    alone = replace(making_again(), requirements=("pp_degree == 4", "dp_degree == 1"))
    for memory, batch in ((17.0, 47.0), (16.9, None)):
        tight = replace(alone, flat=replace(alone.flat, memory_bytes=memory))
        assert of_model(room, tight) == (None if batch is None else pytest.approx(batch, rel=1e-6))
    # Chunks of a layer on two devices, of which the last one's makes most again.
    chunks = replace(making_again(3), schedules=(Schedule.INTERLEAVED,), virtual_stages=2)
    chunks = replace(chunks, requirements=("pp_degree == 2", "dp_degree == 1"))
    for memory, batch in ((25.5, 43.0), (25.25, None)):
        tight = replace(chunks, flat=replace(chunks.flat, memory_bytes=memory, num_microbatches=4))
        assert of_model(room, tight) == (None if batch is None else pytest.approx(batch, rel=1e-6))


def test_what_hides_sums_is_rounded_up_in_models_and_the_sums_down() -> None:
    """Sums of 2.86 s; of 4 s a layer's backward pass takes 2.67 s."""
    made = replace(sharing_all(0.7, (0,)), overlaps_gradients=True, requirements=("pp_degree == 1", "dp_degree == 2"))
    (priced,) = priced_degrees(replace(made, flat=change_tmpcs(made.flat, lambda x: replace(x, time=4.0))))
    found = layouts_of(made, priced, math.inf, math.floor, math.floor, math.ceil)
    assert (set(found.summed), set(found.hidden)) == ({5}, {3})


def test_with_overlap_sharing_weights_may_be_the_fastest() -> None:
    """Passes of 48 s hide all that level 3 sends but 1 s of gradients; levels 1 and 2 send 4 s of weights more."""
    made = replace(sharing_all(2.0), requirements=("pp_degree == 1", "dp_degree == 2"))
    for overlaps, level, time in ((False, 0, 56), (True, 3, 49)):
        found = exact.solve(replace(made, overlaps_gradients=overlaps), Limits(), Watch())
        assert found.plan is not None and (found.plan.sharding, found.bound) == (level, pytest.approx(time))
    beside = replace(made, overlaps_gradients=True)
    assert [evaluate(beside, plan(1, 2, level)) for level in range(4)] == pytest.approx([50, 53, 53, 49])


def of_model(room: Any, instance: StrategyInstance) -> float | None:
    """What a model of all degrees proves, of which no plan is known; its own plan takes that."""
    model = room.model_of(instance, complete=True)
    ran = model.run(Limits(), Watch())
    if ran.infeasible:
        return None
    found = model.decode(ran.values)
    bound = float(model.lower_bound(ran.bound))
    assert violations(instance, found) == () and evaluate(instance, found) == pytest.approx(bound, rel=1e-6)
    return bound


def test_chunks_of_a_device_sum_one_after_the_other() -> None:
    """Chunks of one layer on two devices, with sums of 16 s: that of the third layer is before the first one's."""
    own = replace(sharing_all(0.25, (0,)), schedules=(Schedule.INTERLEAVED,), virtual_stages=2, overlaps_gradients=True)
    given = replace(plan(4, 2, 0), pp_degree=2, virtual_stages=2, schedule=Schedule.INTERLEAVED)
    ran = iteration(own, given)
    ended = [max(end for action, end in ran.end_s.items() if action.stage == stage) for stage in range(4)]
    assert behind(own, given, ran).ends == (ended[2] + 32, ended[3] + 32)
    assert evaluate(own, given) == ended[2] + 32 > ended[0] + 16


def test_levels_that_break_a_rule() -> None:
    instance = sharing_all(1.0, (0, 1, 2))
    for wrong in (plan(1, 2, level=3), plan(2, 2, level=3), replace(plan(1, 2), sequence_parallel=True)):
        assert [each.rule for each in violations(instance, wrong)] == ["sharding"]


@pytest.mark.parametrize(
    ("levels", "ratio", "words"),
    [
        ((0, 4), 3.0, r"sharding is \[0, 4\]; expected levels from 0 to 3"),
        ((1, 1), 3.0, "sharding"),
        ((0, 3), 0.0, "0 alone without sharded_per_weight"),
        ((0, 3), 4.0, "static_bytes of node 0, degree 1, TMPC keep is 10.0; expected at least 12"),
    ],
)
def test_bad_levels_are_refused(levels: tuple[int, ...], ratio: float, words: str) -> None:
    with pytest.raises(InstanceError, match=words):
        check(replace(sharing_all(1.0, levels), sharded_per_weight=ratio), "instance")


def exchange(inner: float | None = None, machine: int = 4) -> StrategyInstance:
    """Layers of `sharing_all` with 2 bytes of experts, 12 of keys and values, 3 of tokens; on machines, if any."""
    made = sharing_all(1.0)
    own = Exchanged(12.0, 3.0, 2.0, 4)
    flat = change_tmpcs(made.flat, lambda x: replace(x, weight_bytes=4.0, static_bytes=20.0))
    made = replace(made, flat=flat, exchanged=dict.fromkeys(range(4), own), cp_degrees=(1, 2), ep_degrees=(1, 2, 4))
    return made if inner is None else replace(made, devices_per_machine=machine, inner_bandwidth=inner)


@pytest.mark.parametrize(
    ("given", "inner", "peak", "time"),
    [
        # Two replicas, all held whole: 4 layers of 20 bytes, 1 of activations; 4 micro-batches; sums of 16 bytes.
        (replace(plan(1, 2, 0)), None, 84, 4 * 12 + 32),
        # They share experts: 2 bytes less of each layer's weights, 1 whole; tokens of 3 bytes go and come twice, half
        # of them to the other device; experts are on no other device, so 8 bytes are summed.
        (replace(plan(1, 2, 0), ep_degree=2), None, 84 - 4 * 5, 4 * (12 + 4 * 4 * 3 / 2) + 16),
        # On two machines of four ports: sums of 16 bytes take 7/8 of 64/4 s; of two ports 3/4 of 64/2 s.
        (plan(1, 8, 0), 10.0, 84, 12 + 14),
        (plan(1, 4, 0), (10.0, 2), 84, 2 * 12 + 24),
        # A machine of five and three devices of the next: three rings.
        (plan(1, 8, 0), (10.0, 5), 84, 12 + 56 / 3),
        # Three devices in a machine and one in the next: one ring, on links inside that are slower than ports.
        (plan(1, 4, 0), (0.5, 3), 84, 2 * 12 + 48 / 0.5),
        # Or those of links, where these are slower.
        (plan(1, 8, 0), 2.0, 84, 12 + 28),
        # Every other device has the same experts, so two ports: 7 s for 8 dense bytes, 6 for 4; tokens stay in it.
        (replace(plan(1, 8, 0), ep_degree=2), 10.0, 84 - 4 * 5, 12 + 4 * 4 * 3 / 20 + 7 + 6),
        # Half of the tokens go to the other machine, a quarter to the other device of this one meanwhile.
        (replace(plan(1, 4, 0), ep_degree=4), (10.0, 2), 84 - 4 * 7.5, 2 * (12 + 4 * 4 * 3 / 2) + 12),
        # Two devices share the tokens of 8 micro-batches: half of the times, and thrice half of keys and values.
        (replace(plan(1, 1, 0), cp_degree=2), (10.0, 1), 82, 8 * (6 + 4 * 3 * 6) + 32),
        # States, too: three bytes for each of weights, of which each device has half.
        (replace(plan(1, 1, 1), cp_degree=2), None, 82 - 4 * 6, 8 * (6 + 4 * 3 * 6) + 32),
        # Two of a machine's three devices are in one: contexts, tokens, and sums of 8 dense bytes.
        (replace(plan(1, 1, 0), cp_degree=2, ep_degree=2), (10.0, 3), 62, 8 * (6 + 7.2 + 1.2) + 1.6),
        # Two stages of two replicas are in a machine, with their sums.
        (plan(2, 2, 0), 10.0, 44, 5 * 6 + 1.6),
        # Machines of two have one of them each, or with replicas outermost one replica.
        (plan(2, 2, 0), (10.0, 2), 44, 5 * 6 + 1.6),
        (replace(plan(2, 2, 0), dp_outermost=True), (10.0, 2), 44, 5 * 6 + 16),
    ],
)
def test_exchanges_by_hand(given: StrategyPlan, inner: Any, peak: float, time: float) -> None:
    instance = replace(exchange(*inner) if isinstance(inner, tuple) else exchange(inner), any_degree_order=True)
    check(instance, "exchange")
    assert max(peak_memory(instance, given)) == pytest.approx(peak)
    assert evaluate(instance, given) == pytest.approx(time) and violations(instance, given) == ()
    plain = replace(given, sharding=0, cp_degree=1, ep_degree=1)
    own = of_shared(instance, shared_in(instance, given))
    assert peak_memory(own, plain) == peak_memory(instance, given)


@pytest.mark.parametrize(
    ("whole", "given", "layers"),
    [
        (sharing_all(1.0), plan(2, 2), 2),
        (sharing_all(1.0), replace(plan(1, 4), shard_groups=2), 4),
        (exchange(), replace(plan(1, 4), ep_degree=2), 4),  # 2 bytes of dense weights, of experts 1
    ],
)
def test_states_on_hosts_by_hand(whole: StrategyInstance, given: StrategyPlan, layers: int) -> None:
    """A device updates 1 byte of each layer: half of it on the host, at 1 byte/s, and 2 bytes/s there and back."""
    made = replace(whole, host_bandwidth=2.0, host_updates=1.0, offloaded=0.5)
    assert FAMILY.breakdown(made, given).figures["host_time"] == layers
    assert max(peak_memory(made, given)) == max(peak_memory(whole, given)) - layers * 3 / 2
    own = of_shared(made, shared_in(made, given))
    assert evaluate(own, replace(given, sharding=0)) == evaluate(made, given) == evaluate(whole, given) + layers


@pytest.mark.parametrize(("name", "ring", "tokens"), [(RECOMPUTE, 6, 2), (SELECTIVE, 6, 0), (SELECTIVE_MLP, 0, 0)])
def test_what_is_computed_again_exchanges_its_own_again(name: str, ring: float, tokens: float) -> None:
    """Four layers with a second more each, half of it where two devices share tokens; keys and values take 6 s."""
    made = exchange()
    ways = ((each, each.tmpcs[1][0]) for each in made.flat.layers)
    layers = tuple(replace(each, tmpcs={1: (x, replace(x, id=name, time=x.time + 1))}) for each, x in ways)
    instance = replace(made, flat=replace(made.flat, layers=layers))
    again = dict.fromkeys(range(4), name)
    given = replace(plan(1, 1, 0), cp_degree=2, tmpcs=again)
    assert evaluate(instance, given) == pytest.approx(8 * (6 + 4 * (0.5 + 3 * 6 + ring)) + 32)
    given = replace(plan(1, 2, 0), ep_degree=2, tmpcs=again)
    assert evaluate(instance, given) == pytest.approx(4 * (12 + 4 * (1 + 3 * 2 + tokens)) + 16)


def test_machines_have_what_is_counted_device_by_device(cases: int) -> None:
    rng = random.Random("devices of machines")
    for _ in range(4 * cases):
        sizes = (1, 2, 3, 8), (1, 1, 2, 3), range(1, 25), (1, 2, 3, 5), (1, 2, 3, 4, 6, 8, 12)
        t, c, d, p, machine = map(rng.choice, sizes)
        e, r = (rng.choice([x for x in range(1, most + 1) if most % x == 0]) for most in (c * d, d))
        e, r = (e, 1) if rng.random() < 0.5 or c * d == r else (1, r)
        last = (p == 1 or e == c) and rng.random() < 0.5
        by = shared_in(exchange(10.0, machine), StrategyPlan(p, t, d, 1, F1B, (), {}, 1, False, c, e, r, last))
        own = {"group": by.of_group, "groups": by.of_groups, "ring": by.of_ring, "tokens": by.of_tokens,
               "same": by.of_experts if e > 1 else None, "stages": by.of_stages}  # fmt: skip
        for kind, counts in placed(t, c, d, p, e, r, last, machine).items():
            fewest = min((min(each) for each in counts if len(each) > 1), default=0)
            known = None, (fewest, max(map(max, counts)))
            assert sum(next(iter(counts))) == 1 or own[kind] in known, (t, c, d, p, kind)


def test_degrees_that_break_a_rule() -> None:
    instance = exchange()
    for wrong, rules in (
        (replace(plan(1, 2, 0), cp_degree=4), ["sharding"]),
        (replace(plan(1, 1, 0), ep_degree=2), ["sharding"]),
        (replace(plan(1, 8, 0), cp_degree=2), ["devices"]),
        (replace(plan(2, 2, 0), dp_outermost=True), ["sharding"]),
    ):
        assert [each.rule for each in violations(instance, wrong)] == rules
    more = replace(instance, any_degree_order=True)
    for e, rules in ((1, ["sharding"]), (2, [])):  # Megatron has stages that are equal for dense weights and experts
        given = replace(plan(2, 2, 0), cp_degree=2, ep_degree=e, dp_outermost=True)
        assert [each.rule for each in violations(more, given)] == rules
    asked = planner.load("chain8-strategy", memory="1GB", any_degree_order=True)
    asked = replace(asked, requirements=("dp_outermost",))  # where the other order is as good, and not allowed
    assert planner.solve(asked, exact=True).own_plan.dp_outermost


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ep_degrees": (1, 3)}, "degrees that divide 4, the experts of node 0"),
        ({"cp_degrees": (1, 2), "exchanged": {}}, "1 where exchanged has no"),
        ({"devices_per_machine": 4}, "inner_bandwidth"),
        ({"exchanged": {9: Exchanged()}}, "ids of nodes"),
        ({"host_bandwidth": 1.0, "sharded_per_weight": 0.0, "sharding": ()}, "host_bandwidth"),
        ({"offloaded": 1.5}, "offloaded is 1.5"),
        ({"offloaded": 0.5}, "offloaded is 0.5; expected none without host_bandwidth"),
        ({"host_updates": 1.0}, "host_updates is 1.0; expected none without host_bandwidth"),
        ({"exchanged": {0: Exchanged(1.0, 1.0, 5.0, 4)}}, "static_bytes of node 0"),
    ],
)
def test_bad_exchanges_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InstanceError, match=words):
        check(replace(exchange(), **given), "instance")


def agrees(instance: StrategyInstance, solve: Any, tolerance: float, number: int) -> bool:
    """One method against all plans; whether there is one."""
    best, found = optimum(instance), solve(instance, Limits(), Watch())
    assert (best is None) == found.infeasible and found.stop is Stop.PROVED, number
    if best is None:
        return False
    assert found.bound is not None and violations(instance, found.plan) == ()
    assert evaluate(instance, found.plan) == pytest.approx(best, rel=tolerance), number
    assert best * (1 - 2e-6) <= found.bound <= best * (1 + 1e-9), number
    return True


def case(number: int, most_layers: int = 4) -> StrategyInstance:
    rng = random.Random(f"shared states {number}")
    return sharing(rng, random_instance(rng, most_layers))


def case_of_more(number: int, most_layers: int = 3) -> StrategyInstance:
    rng = random.Random(f"more that is shared {number}")
    return sharing_more(rng, random_instance(rng, most_layers))


def case_of_exchange(number: int, most_layers: int = 3) -> StrategyInstance:
    rng = random.Random(f"what is exchanged {number}")
    made = replace(exchanging(rng, random_instance(rng, most_layers)), any_degree_order=number % 3 == 0)
    check(made, str(number))
    return made


def case_in_turn(number: int, most_layers: int = 3) -> StrategyInstance:
    """Any of these whose layers make again in turn what they do not keep."""
    make = (case, case_of_more, case_of_exchange)[number % 3]
    return replace(make(number, most_layers), makes_again_in_turn=True, overlaps_gradients=number % 2 == 0)


def case_of_groups(number: int, most_layers: int = 3) -> StrategyInstance:
    """Any of these whose replicas may share in groups, on twice the devices."""
    made = (case, case_of_more, case_of_exchange)[number % 3](number, most_layers)
    groups = random.Random(f"groups {number}").choice([(1, 2), (), (2,), (1, 4, 2)])
    flat = replace(made.flat, num_devices=max(4, made.flat.num_devices), num_microbatches=4)
    return replace(made, flat=flat, shard_groups=groups, overlaps_gradients=number % 2 == 0, any_degree_order=True)


def case_of_hosts(number: int, most_layers: int = 3) -> StrategyInstance:
    """Any of these with optimizer states on hosts, or a part of them; levels 0 and 1 where others are not declared."""
    rng = random.Random(f"hosts {number}")
    made = (case, case_of_more, case_of_exchange, case_of_groups)[number % 4](number, most_layers)
    rates = {"host_bandwidth": rng.choice([0.5, 2.0, 10.0]), "host_updates": rng.choice([None, 1.0, 7.0])}
    flat = replace(made.flat, memory_bytes=made.flat.memory_bytes * rng.choice([0.6, 0.8, 1.0]))
    made = replace(made, flat=flat, offloaded=rng.choice([1.0, 0.5, 0.3]), sharding=made.sharding or (0, 1), **rates)
    return replace(made, overlaps_gradients=rng.random() < 0.5)


def case_of_overlap(number: int, most_layers: int = 3) -> StrategyInstance:
    """Any of these with sums of gradients beside passes."""
    make = (case, case_of_more, case_of_exchange)[number % 3]
    return replace(make(number, most_layers), overlaps_gradients=True)


MAKES = [case, case_of_more, case_of_exchange, case_of_overlap, case_in_turn, case_of_groups, case_of_hosts]


@thinned("make", MAKES, 2)
def test_exact_search_against_brute_force(make: Any, cases: int, many: int) -> None:
    numbers = range(10_000, 10_000 + many) if many else range(2 * cases)
    feasible = [agrees(make(number, 4 if many else 3), exact.solve, 1e-9, number) for number in numbers]
    assert len(feasible) / 4 < sum(feasible) < len(feasible)


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("room", [milp, cpsat])
def test_models_against_brute_force(room: Any, make: Any, cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.Model, "cut_off", lambda *given: pytest.fail(f"memory is no row of the model: {given[1]}"))
    found = [agrees(make(number), room.solve, 1e-6, number) for number in range(cases // 3)]
    assert any(found)


def with_names(instance: StrategyInstance) -> StrategyInstance:
    """Two ways to run a layer at most, by names that trainers know."""

    def named(own: tuple[Tmpc, ...]) -> tuple[Tmpc, ...]:
        ways = sorted((x for x in own if not x.shares_sequence), key=lambda x: x.time)
        return tuple(replace(x, id=name) for x, name in zip(ways, ("keep", "recompute"), strict=False))

    layers = tuple(
        replace(layer, tmpcs={t: named(own) for t, own in layer.tmpcs.items()}) for layer in instance.flat.layers
    )
    return replace(instance, flat=replace(instance.flat, layers=layers))


@pytest.mark.parametrize("name", ["megatron", "torchtitan", "torch"])
@pytest.mark.slow
def test_trainers_share_as_well(name: str, cases: int) -> None:
    """Their chains are tables of pieces: against all plans that the trainer can run."""
    feasible = gained = 0
    for number in range(max(30, cases)):
        made = (case_of_more if name == "torchtitan" else case)(number, 3)  # which does not share states alone
        instance = replace(with_names(made), overlaps_gradients=number % 2 == 1)
        asked = replace(instance, requirements=(f"realizable({name}) == 1",))
        every = (FAMILY.plan_from_json(instance, each) for each in plans(instance))
        best = min((evaluate(instance, each) for each in every if not FAMILY.judge(asked, each)), default=None)
        found = run(FAMILY, FAMILY.method("exact"), asked, Limits(), {})
        assert (best is None) == (found.status is Status.INFEASIBLE), number
        if best is not None:
            assert found.status is Status.OPTIMAL and found.objective == pytest.approx(best, rel=1e-9), number
            feasible += 1
            whole = run(FAMILY, FAMILY.method("exact"), replace(asked, sharded_per_weight=0.0), Limits(), {})
            gained += whole.objective is None or whole.objective > best * (1 + 1e-9)
    assert feasible > gained > 0 and name in TRAINERS


def test_files_and_settings_say_what_is_shared(tmp_path: Path) -> None:
    made = planner.load("chain8", problem="training_strategy", shard_optimizer="0.5", overlap_gradients=True)
    assert made.sharded_per_weight == 0.5 and made.options["shard-optimizer"] == 0.5
    assert made.overlaps_gradients and made.options["overlap-gradients"] is True
    file = tmp_path / "shared.json"
    file.write_text(json.dumps(family_of(made).to_json(made)))
    again = planner.load(str(file))
    assert again == made and planner.load(str(file), shard_optimizer=0).sharded_per_weight == 0
    assert "sharded_per_weight" not in family_of(made).to_json(replace(made, sharded_per_weight=0.0))
    found = planner.solve(made, exact=True)
    assert found.plan is not None and found.plan["sharded"] is True
    without = {name: value for name, value in found.plan.items() if name != "sharded"}
    assert FAMILY.plan_from_json(made, found.plan) == FAMILY.plan_from_json(made, without)
    with pytest.raises(InstanceError, match="sharded is False; expected true"):
        FAMILY.plan_from_json(made, found.plan | {"sharded": False})


@pytest.mark.parametrize("value", ["-1", "inf", "nan", "none", "", True, [6], 10**400])
def test_bad_shares_are_refused(value: object) -> None:
    with pytest.raises(
        (InstanceError, planner.UsageError), match="adam, mixed, megatron, torchtitan, deepspeed, or a finite number"
    ):
        planner.load("chain8", problem="training_strategy", shard_optimizer=value)


def test_names_of_schemes_are_their_bytes_and_more_than_is_held_is_refused() -> None:
    flat = change_tmpcs(chain().flat, lambda x: replace(x, static_bytes=8 * x.weight_bytes))
    for name, ratio in (("adam", 2.0), ("mixed", 6.0)):
        assert planner.load(family_of(flat).to_json(flat), problem="training_strategy",
                            shard_optimizer=name).sharded_per_weight == ratio  # fmt: skip
    with pytest.raises(InstanceError, match=r"static_bytes of node 0.* is 16.0; expected at least 18"):
        planner.load(family_of(flat).to_json(flat), problem="training_strategy", shard_optimizer=9)
