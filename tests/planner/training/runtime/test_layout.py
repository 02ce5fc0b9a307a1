"""Who runs which samples in which order; nothing here needs torch."""

from typing import Any

import pytest

from planner.files.load import family_of, load
from planner.process.errors import UsageError
from planner.training.runtime.layout import Duty, Layout, Pass, layout, orders_of, simulate


def stage_graph(**changed: Any) -> Any:
    """Two branches of an operator each that a third one joins; four samples."""
    operators = [
        {
            "id": name, "forward": {"fixed_s": 0.0, "per_sample_s": 1.0},
            "backward": {"fixed_s": 0.0, "per_sample_s": 2.0}, "weight_bytes": 1.0, "activation_bytes": 10.0,
        }
        for name in ("a", "b", "join")
    ]  # fmt: skip
    edges = [{"source": name, "target": "join", "bytes_per_sample": 100.0} for name in ("a", "b")]
    content = {
        "problem": "stage_graph", "schema_version": 1, "name": "branches", "operators": operators, "edges": edges,
        "num_devices": 5, "memory_bytes": 1e9, "bandwidth_bytes_per_s": 1e9, "latency_s": 0.0, "minibatch": 6,
    }  # fmt: skip
    return load(content | changed)


def made(instance: Any, plan: Any) -> Layout:
    family = family_of(instance)
    decoded = family.plan_from_json(instance, plan)
    assert family.judge(instance, decoded) == ()
    return layout(instance, decoded, family.name)


def branches() -> Layout:
    stages = [
        {"nodes": ["a"], "devices": 2, "microbatch": 3, "k": 1, "in_flight": 6},
        {"nodes": ["b"], "devices": 1, "microbatch": 3, "k": 1, "in_flight": 6},
        {"nodes": ["join"], "devices": 2, "microbatch": 3, "k": 1, "in_flight": 3},
    ]
    return made(stage_graph(), {"stages": stages, "edges": [[0, 2], [1, 2]], "idle_devices": 0})


def test_a_micro_batch_of_a_stage_graph_is_split_over_its_devices() -> None:
    found = branches()
    assert [(duty.stage, duty.replica) for duty in found.duties] == [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]
    assert [task.samples for task in found.duties[0].passes if task.is_forward] == [(0, 1), (3, 4)]
    assert [task.samples for task in found.duties[1].passes if task.is_forward] == [(2,), (5,)]
    assert [task.is_forward for task in found.duties[0].passes] == [True, True, False, False]
    assert [task.is_forward for task in found.duties[3].passes] == [True, False, True, False]
    # of each sample the branches send 100 bytes, and the join sends them back to both
    assert [duty.bytes_planned for duty in found.duties] == [400, 200, 600, 800, 400]
    # the join keeps its own activations and what comes in, of the samples of one micro-batch
    assert [duty.held_planned for duty in found.duties] == [40, 20, 60, 2 * 210, 210]
    assert found.edges == ((0, 2), (1, 2))
    assert found.owners()[0, 2] == 1 and found.owners()[2, 4] == 3


def test_micro_batches_of_stage_partitioning_take_turns_on_the_replicas() -> None:
    tmpc = {"id": "keep", "time": 3.0, "weight_bytes": 1.0, "activation_bytes": 10.0, "static_bytes": 1.0}
    layers = [{"id": node, "tmpcs": {"1": [tmpc | {"id": "activation recomp" if node else "keep"}]}} for node in (0, 1)]
    content = {
        "problem": "stage_partitioning", "schema_version": 1, "name": "two", "layers": layers, "num_devices": 4,
        "edges": [{"source": 0, "target": 1, "bytes": 100.0}], "memory_bytes": 1e9, "bandwidth": 1e9,
        "num_microbatches": 5, "time_unit": "ms",
    }  # fmt: skip
    names = ("keep", "activation recomp")
    stages = [
        {"nodes": [node], "dp_degree": d, "tp_degree": 1, "tmpcs": {str(node): names[node]}}
        for node, d in ((0, 3), (1, 1))
    ]
    found = made(load(content), {"stages": stages})
    forward = [[task.samples for task in duty.passes if task.is_forward] for duty in found.duties]
    assert forward == [[(0,), (3,)], [(1,), (4,)], [(2,)], [(0,), (1,), (2,), (3,), (4,)]]
    # 4 micro-batches are in flight behind the first stage's input, two on each of its three replicas
    assert [task.is_forward for task in found.duties[0].passes] == [True, True, False, False]
    assert [duty.held_planned for duty in found.duties] == [20, 20, 20, 10]
    assert [duty.bytes_planned for duty in found.duties] == [200, 200, 100, 500]
    assert (found.duties[0].forward_s, found.duties[0].backward_s) == (pytest.approx(1e-3), pytest.approx(2e-3))
    assert found.recomputed == {1}
    flushed = made(load(content, problem="flushed_partitioning"), {"stages": stages})
    assert flushed == found  # 1F1B as well
    at_once = made(load(content, problem="flushed_partitioning", schedule="gpipe"), {"stages": stages})
    assert [task.is_forward for task in at_once.duties[3].passes] == [True] * 5 + [False] * 5
    assert [duty.held_planned for duty in at_once.duties] == [20, 20, 20, 50]


def operators(**changed: Any) -> dict[str, Any]:
    """Three operators in two stages of two replicas; the first one's tensor goes to both others."""
    made = [
        {"id": name, "compute_s": 3.0, "parameter_bytes": 10.0, "activation_bytes": 7.0, "memory_bytes": 1.0}
        for name in ("a", "b", "c")
    ]
    tensors = [
        {"source": "a", "targets": ["b", "c"], "volume_bytes": 14.0},
        {"source": "b", "targets": ["c"], "volume_bytes": 6.0},
    ]
    return {
        "problem": "operator_partitioning", "schema_version": 1, "name": "three", "operators": made,
        "tensors": tensors, "num_stages": 2, "replicas": 2, "training": {"microbatches": 9}, **changed,
    }  # fmt: skip


def test_stages_of_operators_keep_their_inputs_and_stand_where_the_plan_maps_them() -> None:
    graph = {key: each for key, each in operators().items() if key not in ("problem", "schema_version")}
    bandwidth = [[0.0 if u == v else 1e9 for v in range(4)] for u in range(4)]
    content = {
        "problem": "pipeline_placement", "schema_version": 1, "operators": graph, "microbatches": 3,
        "bandwidth_bytes_per_s": bandwidth,
    }  # fmt: skip
    plan = {"partition": {"stages": [["a"], ["b", "c"]]}, "mapping": {"devices": [[2, 0], [1, 3]]}}
    found = made(load(content), plan)
    assert [duty.device for duty in found.duties] == [2, 0, 1, 3] and found.num_samples == 6
    assert str(found.duties[0]) == "stage 0, replica 0, device 2"
    assert [task.samples for task in found.duties[1].passes if task.is_forward] == [(1,), (3,), (5,)]
    orders = ["".join("F" if task.is_forward else "B" for task in duty.passes) for duty in found.duties]
    assert orders == ["FFBFBB"] * 2 + ["FBFBFB"] * 2
    assert [duty.bytes_planned for duty in found.duties] == [3 * 7] * 4  # one tensor for both operators behind
    assert [duty.held_planned for duty in found.duties] == [0, 0, 7, 7]
    assert [duty.gradient_planned for duty in found.duties] == [10, 10, 20, 20]
    # parameters four times, an input, both outputs at once, and what is declared of both
    assert found.duties[2].memory_planned == 4 * 20 + 7 + 2 * 7 + 2
    assert (found.duties[2].forward_s, found.duties[2].backward_s) == (2.0, 4.0)
    assert found.recomputed == {"a", "b", "c"} and found.keeps_inputs and found.edges == ((0, 1),)


def test_operators_alone_run_as_their_memory_counts() -> None:
    plan = {"stages": [["a"], ["b", "c"]]}
    kept = made(load(operators(training={"microbatches": 3, "recompute": False, "schedule": "gpipe"})), plan)
    assert kept.recomputed == frozenset() and kept.num_samples == 6
    assert [duty.held_planned for duty in kept.duties] == [21, 21, 21 + 42, 21 + 42]
    assert [task.is_forward for task in kept.duties[2].passes] == [True] * 3 + [False] * 3
    step = made(load(operators(num_stages=None, num_devices=4, step_microbatches=8)), plan)
    assert [len(duty.passes) for duty in step.duties] == [8] * 4
    free = load(operators(num_devices=4))
    with pytest.raises(UsageError, match="stages of 1, 3 replicas'; expected as many of every stage"):
        made(free, {**plan, "replicas": [1, 3]})


def test_simulated_passes_wait_for_what_they_need() -> None:
    times = {(each.rank, each.kind, each.index): each for each in simulate(branches())}
    assert times[2, "F", 0].end_s == 3.0  # three samples in turn
    assert times[3, "F", 0].start_s == 3.0 and times[3, "F", 0].end_s == 5.0
    assert times[4, "F", 0].start_s == 3.0 and times[4, "F", 0].end_s == 4.0
    assert times[0, "B", 0].start_s == times[3, "B", 0].end_s == 9.0
    assert len(times) == 5 * 4


def test_processes_that_wait_for_each_other_are_refused() -> None:
    forward, backward = Pass("F", 0, (0,)), Pass("B", 0, (0,))
    duties = [Duty(stage, 0, (forward, backward), 0.0, 0.0, 1.0, 1.0) for stage in (0, 1)]
    whole = Layout({}, frozenset(), tuple(duties), 1, ((0, 1),))
    assert simulate(whole)[-1].end_s == 4.0
    duties[1] = Duty(1, 0, (backward, forward), 0.0, 0.0, 1.0, 1.0)
    duties[0] = Duty(0, 0, (backward, forward), 0.0, 0.0, 1.0, 1.0)
    with pytest.raises(UsageError, match="stage 0 waits for ever"):
        simulate(Layout({}, frozenset(), tuple(duties), 1, ((0, 1),)))


def test_other_problems_are_refused() -> None:
    with pytest.raises(
        UsageError, match="one of stage_partitioning, flushed_partitioning, training_strategy, stage_graph"
    ):
        layout(None, None, "tmpc_knapsack")


def test_another_schedule_keeps_the_samples_of_each_process() -> None:
    plain = branches()
    instance = stage_graph()
    stages = [
        {"nodes": ["a"], "devices": 2, "microbatch": 3, "k": 1, "in_flight": 6},
        {"nodes": ["b"], "devices": 1, "microbatch": 3, "k": 1, "in_flight": 6},
        {"nodes": ["join"], "devices": 2, "microbatch": 3, "k": 1, "in_flight": 3},
    ]
    family = family_of(instance)
    decoded = family.plan_from_json(instance, {"stages": stages, "edges": [[0, 2], [1, 2]], "idle_devices": 0})
    found = layout(instance, decoded, family.name, ["FFBB", "FFBB", "FFBB"])
    assert [task.is_forward for task in found.duties[3].passes] == [True, True, False, False]
    assert found.owners() == plain.owners() and found.duties[0] == plain.duties[0]
    with pytest.raises(UsageError, match="2 stages'; expected the 3 stages"):
        layout(instance, decoded, family.name, ["FFBB", "FFBB"])
    with pytest.raises(UsageError, match="FFB of stage 2'; expected 2 forward and backward passes"):
        layout(instance, decoded, family.name, ["FFBB", "FFBB", "FFB"])


def test_orders_are_read_from_plans_of_microbatch_scheduling() -> None:
    from formulations.microbatch_schedule.definition.plan import plan_from_json

    tasks = [[0, "F", 0, 0, 1], [1, "F", 0, 1, 2], [0, "F", 1, 1, 2], [1, "B", 0, 2, 4], [0, "B", 0, 4, 6]]
    assert orders_of(plan_from_json(None, {"tasks": tasks})) == ["FFB", "FB"]


def test_no_option_of_the_command_hides_one_of_an_instance() -> None:
    import inspect

    from planner.cli.options import with_choices
    from planner.cli.run import run_command
    from planner.files import choices

    own = {name.replace("_", "-") for name in inspect.signature(with_choices(run_command)).parameters}
    assert own.isdisjoint(choice.name for choice in choices.every_override())
