"""Flushed pipelines: the definition by hand, two exact methods against brute force, the formula against simulation."""

import math
from dataclasses import replace

import pytest
from oracles.flushed_partitioning import brute_force, random_flushed

import planner
from formulations.contract.rounding import Least
from formulations.flushed_partitioning import FAMILY
from formulations.flushed_partitioning.definition.problem import evaluate, simulate_batch
from formulations.flushed_partitioning.exact import labels
from formulations.flushed_partitioning.models import cpsat, milp
from formulations.flushed_partitioning.questions import why_infeasible
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from instances.errors import InstanceError
from instances.graph import topological_order
from instances.problems.flushed_partitioning import FlushedInstance, Schedule, flush_pipeline
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from solvers.outcome import Limits, Stop, Watch


def chain() -> FlushedInstance:
    layers = tuple(Layer(v, {1: (Tmpc("x", 12.0, 10.0, 2.0, 1.0),)}) for v in "ab")
    return flush_pipeline(StageInstance("ab", layers, (Edge("a", "b", 20.0),), 3, 100.0, 10.0, 4))


PLAN = StagePlan((Stage(("a",), 2, 1, {"a": "x"}), Stage(("b",), 1, 1, {"b": "x"})))


def test_time_by_hand() -> None:
    # steps (12 + 4)/2 and 12 + 4; two stages, four micro-batches; 4 * 1/2 * 10 bytes over 10 * 4
    assert evaluate(chain(), PLAN) == pytest.approx((1 + 1 / 4) * 16 + 0.5)


def test_memory_by_hand() -> None:
    # 1F1B: a has s = 3, d = 2, two in flight; b one. GPipe: a has two, b has four
    for schedule, needs in ((Schedule.ONE_F_ONE_B, 5.0), (Schedule.GPIPE, 9.0)):
        instance = replace(chain(), schedule=schedule)
        for memory, broken in ((needs, set()), (needs - 1, {"memory"})):
            limited = replace(instance, flat=replace(instance.flat, memory_bytes=memory))
            assert {found.rule for found in FAMILY.judge(limited, PLAN)} == broken
    # GPipe with five micro-batches: three of them on the busier replica of a, none of the float noise of a sum counted
    instance = replace(chain(), schedule=Schedule.GPIPE, flat=replace(chain().flat, num_microbatches=5))
    for memory, stages in ((11.0, 0), (11.0 * (1 - 5e-13), 0), (11.0 * (1 - 2e-12), 1), (7.0, 1), (6.9, 2), (0.0, 2)):
        limited = replace(instance, flat=replace(instance.flat, memory_bytes=memory))
        assert [found.rule for found in FAMILY.judge(limited, PLAN)] == ["memory"] * stages


@pytest.mark.parametrize("schedule", list(Schedule))
def test_other_rules_are_the_flat_ones(schedule: Schedule) -> None:
    instance = replace(chain(), schedule=schedule)
    assert {found.rule for found in FAMILY.judge(instance, StagePlan(PLAN.stages[::-1]))} == {"order"}
    assert {found.rule for found in FAMILY.judge(instance, StagePlan(PLAN.stages[:1]))} == {"cover"}
    unknown = StagePlan((PLAN.stages[0], replace(PLAN.stages[1], tmpcs={"b": "y"})))
    assert {found.rule for found in FAMILY.judge(instance, unknown)} == {"tmpc"}


def test_simulated_by_hand() -> None:
    """Four micro-batches on two replicas of a (forwards 4, backwards 8) and on b (1 and 2), then half a unit to sync.

    1F1B: a holds ceil(3/2) = 2, b one. b is through with them at 7, 10, 13, 16; the first replica of a is busy from 0
    to 24, the second waits from 8 to 10 and ends at 26. GPipe: b runs all four forward passes by 10, and its backward
    passes end at 12, 14, 16, 18, so the second replica begins its first one at 14 and ends at 30.
    """
    layers = tuple(
        Layer(v, {1: (Tmpc("x", time, weight, 2.0, 1.0),)}) for v, time, weight in (("a", 12.0, 10.0), ("b", 3.0, 0.0))
    )
    flat = StageInstance("ab", layers, (Edge("a", "b", 0.0),), 3, 100.0, 10.0, 4)
    for schedule, end in ((Schedule.ONE_F_ONE_B, 26), (Schedule.GPIPE, 30)):
        assert simulate_batch(flush_pipeline(flat, schedule), PLAN) == pytest.approx(end / 4 + 0.5), schedule


def test_the_model_rounds_to_a_true_bound() -> None:
    """A third is no whole number of units: what the model counts for C lies above it, the bound it gives does not."""
    layer = Layer("a", {1: (Tmpc("x", 1.0, 0.0, 1.0, 0.0),)})
    for schedule in Schedule:
        instance = flush_pipeline(StageInstance("third", (layer,), (), 3, 100.0, 1.0, 3), schedule)
        answer = cpsat.solve(instance, Limits(), Watch())
        assert 0.333333 < answer.bound <= 1 / 3 == evaluate(instance, answer.plan)


def test_weights_that_take_ages_to_synchronise_fit_into_the_model() -> None:
    """At 1e-6 bytes per second two replicas would take 4e9 s; one has no plan that is quicker than its 0.8 s."""
    layer = Layer("a", {1: (Tmpc("x", 0.8, 4000.0, 0.0, 0.0),)})
    instance = flush_pipeline(StageInstance("slow", (layer,), (), 2, 1.0, 1e-6, 4))
    answer = cpsat.solve(instance, Limits(time_s=20), Watch())
    assert evaluate(instance, answer.plan) == brute_force(instance)
    assert answer.bound <= brute_force(instance)


def test_bytes_of_more_micro_batches_than_devices_fit_into_the_model() -> None:
    """Under GPipe a stage may hold all of them: 6144 times 1e30 bytes beside a limit of 1e30."""
    layer = Layer("a", {1: (Tmpc("x", 1.0, 0.0, 1e30, 1.0),)})
    instance = flush_pipeline(StageInstance("many", (layer,), (), 2, 1e30, 1.0, 6144), Schedule.GPIPE)
    assert cpsat.solve(instance, Limits(time_s=20), Watch()).infeasible


def test_a_stage_that_is_too_large_is_cut_off_at_all_degrees_that_leave_as_much_in_flight() -> None:
    layer = Layer("a", {1: (Tmpc("x", 1.0, 0.0, 1.0, 0.0),)})
    instance = flush_pipeline(StageInstance("five", (layer,), (), 2, 100.0, 1.0, 5), Schedule.GPIPE)
    model = milp.model_of(instance, complete=True)
    plan = model.decode(model.run(Limits(), Watch()).values)
    assert plan.stages[0].dp_degree == 2
    model.data.flushed = replace(instance, flat=replace(instance.flat, memory_bytes=2.0))
    model.cut_off(plan, None)  # three micro-batches at d = 2, five at d = 1
    assert model.run(Limits(), Watch()).infeasible


def test_labels_are_for_weights_that_do_not_depend_on_the_choice() -> None:
    layers = tuple(
        replace(layer, tmpcs={1: (*layer.tmpcs[1], Tmpc("y", 1.0, 11.0, 0.0, 0.0))}) for layer in chain().flat.layers
    )
    instance = replace(chain(), flat=replace(chain().flat, layers=layers))
    assert labels.uniform_weights(chain()) and not labels.uniform_weights(instance)
    assert FAMILY.method("labels").supports(chain()) is None and "weights" in FAMILY.method("labels").supports(instance)


def test_the_plan_without_flushes_can_be_the_wrong_one() -> None:
    """Few micro-batches: four stages are best without flushes, but fill and drain cost them a quarter of the time."""
    flat = planner.load("chain8", microbatches=8, devices=8)
    instance = flush_pipeline(flat)
    without = planner.solve(flat, method="exact")
    best = planner.solve(instance, method="labels")
    plan = FAMILY.plan_from_json(instance, without.plan)
    assert FAMILY.judge(instance, plan) == ()
    assert (len(plan.stages), len(best.plan["stages"])) == (4, 2)
    assert evaluate(instance, plan) / best.objective == pytest.approx(1.2884, abs=1e-4)


def test_how_far_the_formula_is_from_a_simulated_batch(cases: int) -> None:
    """Chains with a stage for every node and d = 1.

    Neither schedule's fixed order is slower than the formula, which takes every stage for the slowest one while the
    pipeline fills and drains.
    """
    ratios: dict[Schedule, list[float]] = {schedule: [] for schedule in Schedule}
    for seed in range(3 * max(10, cases)):
        instance = random_flushed(seed, shape="chain")
        flat = instance.flat
        layers = [flat.layers[v] for v in topological_order(len(flat.layers), flat.edge_indices)]
        if any(1 not in layer.tmpcs for layer in layers):
            continue
        plan = StagePlan(tuple(Stage((one.id,), 1, 1, {one.id: one.tmpcs[1][0].id}) for one in layers))
        time, formula = simulate_batch(instance, plan), evaluate(instance, plan)
        if formula == 0:
            continue
        ratios[instance.schedule].append(time / formula)
        # the slowest stage alone takes m steps of the m + L - 1
        assert time / formula >= flat.num_microbatches / (flat.num_microbatches + len(layers) - 1) - 1e-9
    assert min(map(len, ratios.values())) > 10
    assert all(max(each) <= 1 + 1e-9 for each in ratios.values())


def test_instances_follow_overrides() -> None:
    for content in (chain(), FAMILY.to_json(chain())):
        instance = FAMILY.read(content, "here", {"schedule": "gpipe", "microbatches": "7"})
        assert instance.schedule is Schedule.GPIPE and instance.flat.num_microbatches == 7
        with pytest.raises(InstanceError, match="schedule"):
            FAMILY.read(content, "here", {"schedule": "dapple"})
    with pytest.raises(InstanceError, match="exactly"):
        flush_pipeline(replace(chain().flat, exactly=True))


def test_a_stage_that_only_rounding_let_in_is_cut_off_at_once() -> None:
    """Without any memory every TMPC is too large, whatever its few bytes are rounded to: not found plan by plan."""
    layers = tuple(
        Layer(v, {1: tuple(Tmpc(f"x{i}", 1.0 + i, 1.0, 0.0, 1e-6 * (1 + v + i)) for i in range(3))}) for v in range(4)
    )
    flat = StageInstance("starved", layers, (), 3, 0.0, 1.0, 6)
    for schedule in Schedule:
        found = planner.solve(flush_pipeline(flat, schedule), method="cpsat")
        assert found.status == "infeasible" and found.stats["rounds"] <= 13, schedule


def test_requirements_survive_overrides() -> None:
    flat = planner.load("chain8", first=3)
    content = {**FAMILY.to_json(flush_pipeline(flat)), "requirements": ["num_stages == 2"]}
    for instance in (planner.load(content, schedule="gpipe", devices=3), FAMILY.read(planner.load(content), "", {})):
        assert instance.requirements == ("num_stages == 2",)
        assert len(planner.solve(instance, method="cpsat").plan["stages"]) == 2


def test_what_is_too_large_or_stopped_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = planner.load("chain8-flushed", schedule="gpipe", devices=8, memory="20MB")
    assert len(why_infeasible.why_infeasible(instance, Limits(), Watch())[1]) == 2
    watch = Watch()
    watch.stop(Stop.INTERRUPTED)
    sentence, figures = why_infeasible.why_infeasible(instance, Limits(), watch)
    assert "would suffice" not in sentence and figures == {}
    monkeypatch.setattr(why_infeasible, "MAX_DOWNSETS", 3)
    sentence, figures = why_infeasible.why_infeasible(instance, Limits(), Watch())
    assert "would suffice" not in sentence and figures == {}
    monkeypatch.undo()
    monkeypatch.setattr(labels, "_MAX_BYTES", 100)
    monkeypatch.setattr(labels, "_POOL", 2)
    sentence, figures = why_infeasible.why_infeasible(instance, Limits(), Watch())
    assert "would suffice" not in sentence and figures == {}


def test_a_search_that_is_stopped_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after each number of passes: nothing, then what would suffice, then the least memory."""
    instance = planner.load("chain8-flushed", schedule="gpipe", devices=8, memory="20MB")
    passes, results = labels.Search.labels_at, []
    for most in range(60):
        watch = Watch()

        def counted(search, T, most_sync, *, plain, most=most, watch=watch):
            if search.passes >= most:
                watch.stop(Stop.INTERRUPTED)
            return passes(search, T, most_sync, plain=plain)

        monkeypatch.setattr(labels.Search, "labels_at", counted)
        results.append(why_infeasible.least_memory(instance, watch))
        if results[-1].proved:
            break
    assert results[0] == Least() and len(results) > 5 and results[-1].amount == 23e6
    # A plan that was found is said to do, as it does, but not to be the least.
    known = [each.amount for each in results if each.amount is not None]
    assert known == sorted(known, reverse=True) and 23e6 < known[0] < math.inf


def test_the_reason_is_a_sentence() -> None:
    found = planner.solve(planner.load("chain8-flushed", schedule="gpipe", devices=8, memory="22MB"))
    ways = (
        "8 devices of 21.94 MiB (23000000 bytes) would suffice; 16 devices of 20.98 MiB (22000000 bytes) would suffice;"
    )
    assert ways in found.reason
    assert found.reason.endswith("; so would --schedule 1f1b")
    for memory, devices in (("23MB", 8), ("22MB", 16)):
        assert planner.solve(planner.load("chain8-flushed", schedule="gpipe", devices=devices, memory=memory)).plan
