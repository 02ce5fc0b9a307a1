"""The definition of operator partitioning: every rule alone, objective and memory by hand, readers and overrides."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracles.operator_partitioning import random_instance, stage_memory, stage_time
from thinned import thinned

import planner
from formulations.operator_partitioning import FAMILY
from formulations.operator_partitioning.definition.clock import clock
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import (
    crossing_bytes,
    evaluate,
    memory_bytes,
    stage_of,
    stage_seconds,
    violations,
)
from formulations.operator_partitioning.definition.settings import read
from formulations.operator_partitioning.effort import downset_count
from instances.catalog.catalog import CATALOG
from instances.errors import InstanceError
from instances.graph import topological_order
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor, TrainingMemory
from planner import UsageError

#: a -> b, c, d (one tensor); b -> d; c -> d.
OPERATORS = tuple(
    Operator(name, seconds, 10.0, 100.0, 1.0) for name, seconds in (("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0))
)
TENSORS = (Tensor(0, (1, 2, 3), 6.0), Tensor(1, (3,), 2.0), Tensor(2, (3,), 4.0))
DIAMOND = OperatorInstance("diamond", OPERATORS, TENSORS, 2, bandwidth_bytes_per_s=2.0)


def plan(*stages: str, replicas: int = 1) -> OperatorPlan:
    return OperatorPlan(
        tuple(tuple("abcd".index(each) for each in stage) for stage in stages), (replicas,) * len(stages)
    )


def rules(instance: OperatorInstance, each: OperatorPlan) -> set[str]:
    return {violation.rule for violation in violations(instance, each)}


def test_loads_by_hand() -> None:
    # a -> {c, d}: once, 6 / 2 = 3 on both sides; b -> d: 2 / 2 = 1.
    assert crossing_bytes(DIAMOND, plan("ab", "cd")) == {(0, 1): 8.0}
    assert stage_seconds(DIAMOND, plan("ab", "cd")) == (3 + 4, 7 + 4)
    three = replace(DIAMOND, num_stages=3)
    # a's tensor goes to two stages and is sent twice.
    assert stage_seconds(three, plan("a", "bc", "d")) == (1 + 6, 5 + 3 + 3, 4 + 3 + 3)
    assert evaluate(three, plan("a", "bc", "d")) == 11
    assert evaluate(replace(three, replicas=2), plan("a", "bc", "d", replicas=2)) == 5.5


def test_the_clock_by_hand() -> None:
    """Stages of 7 and 11 s, 3 micro-batches; 20 bytes of gradients, summed over 2 replicas at 2 bytes a second."""
    trained = replace(DIAMOND, replicas=2, training=TrainingMemory(microbatches=3, schedule="gpipe"))
    found = clock(trained, plan("ab", "cd", replicas=2))
    assert (found.kind, found.schedule, found.microbatches) == ("steady", "gpipe", 3)
    assert found.iteration_s == pytest.approx(7 / 3 + 3 * 11 + 14 / 3 + 10)
    assert clock(replace(trained, training=None), plan("ab", "cd", replicas=2)).iteration_s is None
    unlike = replace(trained, num_devices=3)
    assert clock(unlike, OperatorPlan(((0, 1), (2, 3)), (1, 2))).iteration_s is None
    step = replace(DIAMOND, num_stages=None, num_devices=4, step_microbatches=6)
    found = clock(step, plan("ab", "cd", replicas=2))
    assert (found.kind, found.schedule, found.microbatches) == ("formula", "1f1b", 6)
    assert found.iteration_s == pytest.approx(7 / 3 + 3 * 11 + 14 / 3 + 10)


def test_every_pair_of_adjacent_operators_pays_with_count_pair() -> None:
    literal = read(DIAMOND, "diamond", {"count": "pair"})
    assert stage_seconds(literal, plan("a", "bcd")) == (1 + 9, 9 + 9)
    assert stage_seconds(DIAMOND, plan("a", "bcd")) == (1 + 3, 9 + 3)


def test_each_rule_alone() -> None:
    assert rules(DIAMOND, plan("ab", "cd")) == set()
    assert rules(DIAMOND, plan("a", "bd")) == {"operators"}
    assert rules(DIAMOND, plan("abc", "bcd")) == {"operators"}
    assert rules(DIAMOND, OperatorPlan(((0, 1, 2, 3), ()), (1, 1))) == {"empty"}
    assert rules(DIAMOND, plan("abcd")) == {"stages"}
    assert rules(replace(DIAMOND, at_most=True), plan("abcd")) == set()
    assert rules(DIAMOND, plan("a", "b", "cd")) == {"stages"}
    assert rules(DIAMOND, plan("ab", "cd", replicas=2)) == {"replicas"}
    assert rules(DIAMOND, OperatorPlan(((0, 1), (2, 3)), (1,))) == {"replicas"}
    assert rules(DIAMOND, plan("ad", "bc")) == {"convex"}
    assert rules(DIAMOND, plan("cd", "ab")) == {"order"}


def test_stages_that_wait_for_each_other_are_found_although_each_is_convex() -> None:
    operators = tuple(Operator(each, 1.0) for each in range(4))
    crossed = OperatorInstance("crossed", operators, (Tensor(0, (3,), 1.0), Tensor(1, (2,), 1.0)), 2)
    assert rules(crossed, OperatorPlan(((0, 2), (1, 3)), (1, 1))) == {"acyclic"}


def test_free_replicas_and_free_stages() -> None:
    free = replace(DIAMOND, num_devices=3)
    assert rules(free, OperatorPlan(((0, 1), (2, 3)), (1, 2))) == set()
    assert evaluate(free, OperatorPlan(((0, 1), (2, 3)), (1, 2))) == 7
    assert rules(free, OperatorPlan(((0, 1), (2, 3)), (2, 2))) == {"replicas"}
    any_shape = replace(DIAMOND, num_stages=None, num_devices=4, step_microbatches=8)
    assert rules(any_shape, plan("ab", "cd", replicas=2)) == set()
    assert rules(any_shape, plan("ab", "cd", replicas=1)) == {"replicas"}
    # 8 / 2 + 2 - 1 rounds of 11 s, and 2 (2 - 1) 20 bytes / (2 * 2 bytes/s).
    assert evaluate(any_shape, plan("ab", "cd", replicas=2)) == 5 * 11 + 10
    assert rules(replace(any_shape, step_microbatches=5), plan("ab", "cd", replicas=2)) == {"replicas"}


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        (None, (2.0, 2.0)),
        # weights 3 x 20; nothing enters the first stage; a and b are alive together, a leaves (no consumer inside).
        (TrainingMemory(3.0, 2, "1f1b", True), (2 + 60 + 200, 2 + 60 + 1 * 200 + 200)),
        (TrainingMemory(3.0, 2, "gpipe", True), (2 + 60 + 200, 2 + 60 + 2 * 200 + 200)),
        (TrainingMemory(3.0, 2, "1f1b", False), (2 + 60 + 400, 2 + 60 + 1 * 200 + 400)),
    ],
)
def test_memory_by_hand(training: TrainingMemory | None, expected: tuple[float, float]) -> None:
    instance = replace(DIAMOND, training=training, memory_bytes=max(expected))
    assert tuple(memory_bytes(instance, each, 2 - s) for s, each in enumerate(((0, 1), (2, 3)))) == expected
    assert rules(instance, plan("ab", "cd")) == set()
    tight = replace(instance, memory_bytes=max(expected) * (1 - 1e-6))
    assert rules(tight, plan("ab", "cd")) == {"memory"}
    assert rules(replace(tight, replicas=2, pooled_memory=True), plan("ab", "cd", replicas=2)) == set()


def test_definition_agrees_with_the_oracle(cases: int) -> None:
    for case in range(3 * cases):
        rng = random.Random(f"definition {case}")
        instance = random_instance(rng, 8)
        n = len(instance.operators)
        count = rng.randint(1, n)
        cuts = sorted(rng.sample(range(1, n), count - 1))
        stages = tuple(tuple(range(a, b)) for a, b in zip([0, *cuts], [*cuts, n], strict=True))
        each = OperatorPlan(stages, (1,) * count)
        home = tuple(stage_of(each)[v] for v in range(n))
        assert stage_seconds(instance, each) == pytest.approx([stage_time(instance, home, s) for s in range(count)])
        held = [memory_bytes(instance, stage, count - s) for s, stage in enumerate(stages)]
        assert held == pytest.approx([stage_memory(instance, home, s, count) for s in range(count)])


OWN = FAMILY.to_json(DIAMOND)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"operators": []}, "operators is []; expected at least one operator"),
        ({"num_stages": 0}, "num_stages is 0"),
        ({"operators": [*OWN["operators"], OWN["operators"][0]]}, "operators[4].id is 'a'"),
        ({"operators": [{"id": "a", "compute_s": -1}]}, "operators[0].compute_s is -1"),
        ({"tensors": [{"source": "a", "targets": ["z"], "volume_bytes": 1}]}, "tensors[0].targets[0] is 'z'"),
        ({"tensors": [{"source": "a", "targets": [], "volume_bytes": 1}]}, "tensors[0].targets is []"),
        ({"tensors": [{"source": "a", "targets": ["a"], "volume_bytes": 1}]}, "other operators than the source"),
        ({"tensors": [*OWN["tensors"], {"source": "d", "targets": ["a"], "volume_bytes": 1}]}, "cycle d -> a -> d"),
        ({"num_stages": None}, "num_devices is missing"),
        ({"training": {"schedule": "chimera"}}, "training.schedule is 'chimera'"),
        ({"stages": 3}, "no such field"),
    ],
)
def test_bad_files_are_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InstanceError) as caught:
        read({**OWN, **change}, "file.json", {})
    assert message in str(caught.value) and "\n" not in str(caught.value)


_TIMES = "forward_compute_time={}, backward_compute_time={}, activation_size={}, parameter_size={}"
PROFILE = "\n".join(
    [
        "node1 -- Input0 -- " + _TIMES.format("0.000", "0.000", "0.0", "0.000"),
        "node2 -- LSTM(1, 2) -- " + _TIMES.format("1.5", "2.5", "[8.0; 4.0]", "16.000"),
        "node3 -- Linear -- " + _TIMES.format("1.0", "1.0", "4.0", "4.000"),
        "node4 -- Add -- " + _TIMES.format("0.5", "0.5", "4.0", "0.000"),
        "\tnode1 -- node2",
        "\tnode2 -- node3",
        "\tnode2 -- node4",
        "\tnode3 -- node4",
    ]
)


def test_profiles_are_read(tmp_path: Path) -> None:
    file = tmp_path / "small.graph.txt"
    file.write_text(PROFILE)
    instance = planner.load(file, stages=2, bandwidth="1GB/s")
    assert instance.name == "small" and instance.num_stages == 2
    assert [operator.compute_s for operator in instance.operators] == [0.0, 0.004, 0.002, 0.001]
    assert instance.operators[1].activation_bytes == 12 and instance.operators[1].parameter_bytes == 16
    assert instance.tensors[1] == Tensor(1, (2, 3), 24.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PROFILE + "\n\tnode4 -- node1", "cycle node2 -> node4 -> node1 -> node2"),
        (PROFILE + "\n\tnode4 -- node9", "an edge is 'node9'; expected an operator"),
        (PROFILE.replace("=1.5", "=fast"), "line 2: forward_compute_time is 'fast'"),
        (PROFILE.replace("parameter_size=16.000", ""), "line 2: parameter_size is missing"),
        (PROFILE + "\nwhat is this", "line 9 is 'what is this'"),
        (PROFILE.replace("node3 -- Linear", "node2 -- Linear"), "line 3 is 'node2'"),
    ],
)
def test_bad_profiles_are_one_line(text: str, message: str) -> None:
    with pytest.raises(InstanceError) as caught:
        read(text, "file", {})
    assert message in str(caught.value) and "\n" not in str(caught.value)


def _node(identity: int, latency: float, size: float, backward: int, color: int) -> dict[str, Any]:
    return {"id": identity, "fpgaLatency": latency, "size": size, "isBackwardNode": backward, "colorClass": color}


PLACEMENT: dict[str, Any] = {
    "maxFPGAs": 2,
    "nodes": [_node(1, 1, 8, 0, 1), _node(2, 2, 8, 0, 2), _node(4, 4, 9, 1, 2), _node(3, 3, 8, 1, 1)],
    "edges": [
        {"sourceId": 1, "destId": 2, "cost": 2, "size": 2000},
        {"sourceId": 2, "destId": 4, "cost": 1, "size": 1000},
        {"sourceId": 4, "destId": 3, "cost": 3, "size": 3000},
        {"sourceId": 1, "destId": 3, "cost": 1, "size": 1000},
    ],
}


def test_placement_graphs_are_read_in_both_parts() -> None:
    forward = read(PLACEMENT, "training.json", {"part": "forward"})
    assert forward.bandwidth_bytes_per_s == 1e6
    assert [each.compute_s for each in forward.operators] == pytest.approx([0.004, 0.006])
    assert [each.memory_bytes for each in forward.operators] == [8, 9]
    assert forward.tensors == (Tensor(0, (1,), 5000.0),)
    whole = read(PLACEMENT, "training.json", {"part": "whole"})
    assert [each.id for each in whole.operators] == [1, 2, 4, 3]
    assert {(t.source, t.targets, t.volume_bytes) for t in whole.tensors} == {
        (0, (1,), 2000.0), (0, (3,), 1000.0), (1, (2,), 1000.0), (2, (3,), 3000.0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": []}, "nodes is"),
        ({"edges": [{"sourceId": 1, "destId": 9, "cost": 1}]}, "edges[0].destId is 9"),
        ({"edges": [{"sourceId": 1, "destId": 1, "cost": 1}]}, "edges[0].destId is 1"),
        ({"nodes": [_node(1, 1, 8, 0, 1), _node(2, 2, 8, 1, 7)], "edges": []}, "nodes[1].colorClass is 7"),
        ({"edges": [{"sourceId": 1, "destId": 2}]}, "edges[0].cost is missing"),
    ],
)
def test_bad_placement_graphs_are_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InstanceError) as caught:
        read({**PLACEMENT, **change}, "file.json", {})
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_forward_nodes_of_a_class_are_one_operator() -> None:
    """1 and 3 are declared to lie on one device, and so then does 2 between them; 4 is alone, and has no class."""
    nodes = [_node(1, 1, 8, 0, 7), _node(2, 2, 16, 0, 2), _node(3, 3, 4, 0, 7), {"id": 4, "fpgaLatency": 4, "size": 1}]
    edges = [{"sourceId": each, "destId": each + 1, "cost": each, "size": 1000 * each} for each in (1, 2, 3)]
    forward = read({"nodes": nodes, "edges": edges}, "inference.json", {})
    assert [each.compute_s for each in forward.operators] == pytest.approx([0.006, 0.004])
    assert [each.memory_bytes for each in forward.operators] == [28, 1]
    assert forward.tensors == (Tensor(0, (1,), 3000.0),)
    assert len(read({"nodes": nodes, "edges": edges[1:]}, "inference.json", {}).operators) == 3
    assert len(read({"nodes": nodes, "edges": edges}, "inference.json", {"part": "whole"}).operators) == 4
    with pytest.raises(InstanceError, match="cycle"):
        read({"nodes": nodes, "edges": [*edges, {"sourceId": 2, "destId": 1, "cost": 1}]}, "inference.json", {})


@pytest.mark.paper
def test_a_published_optimum_of_colocated_nodes(published: Path) -> None:
    """27.9186 ms: what the release's dynamic program finds; with nodes of a class apart there are faster plans."""
    file = str(published / "dnn_partitioning" / "bert_l-3_inference.json")
    found = planner.solve(planner.load(file, stages=3), method="exact")
    assert found.status is planner.Status.OPTIMAL and found.objective == pytest.approx(0.0279186, abs=1e-7)
    apart = planner.solve(planner.load(file, stages=3, part="whole"), method="parmesan")
    assert apart.objective is not None and apart.objective < 0.0276


@pytest.mark.paper
def test_published_graphs_are_read(published: Path) -> None:
    sizes = {}
    for file in (
        *sorted((published / "pipedream").glob("*.txt")),
        *sorted((published / "dnn_partitioning").glob("*.json")),
    ):
        if file.name != "LICENSE.txt":
            sizes[file.name.split(".")[0]] = len(planner.load(str(file)).operators)
    assert sizes == {
        "inception_v3": 326, "resnet50": 177, "vgg16": 41, "bert24_inference": 32, "bert24_training": 32,
        "bert_l-3_inference": 128, "resnet50_inference": 177,
    }  # fmt: skip
    assert len(planner.load(str(published / "dnn_partitioning" / "bert24_training.json"), part="whole").operators) == 64


def test_overrides_shape_the_pipeline() -> None:
    assert read(DIAMOND, "d", {"stages": 2, "devices": 6}).replicas == 3
    assert read(DIAMOND, "d", {"replicas": 2, "devices": 6}).num_stages == 3
    free = read(DIAMOND, "d", {"stages": 2, "devices": 6, "variable-replicas": True})
    assert (free.num_stages, free.num_devices) == (2, 6)
    searched = read(DIAMOND, "d", {"devices": 6})
    assert (searched.num_stages, searched.num_devices, searched.step_microbatches) == (None, 6, 24)
    assert read(DIAMOND, "d", {"devices": 6, "step-microbatches": 12}).step_microbatches == 12
    with pytest.raises(InstanceError, match="--devices is 6; expected a multiple of 4 stages"):
        read(DIAMOND, "d", {"stages": 4, "devices": 6})
    trained = read(DIAMOND, "d", {"schedule": "gpipe", "microbatches": 8, "stash": True, "weight-copies": 2.0}).training
    assert trained == TrainingMemory(2.0, 8, "gpipe", False)
    assert read(DIAMOND, "d", {}).training is None


def test_replicas_of_a_plan_are_one_each_where_none_are_given() -> None:
    assert FAMILY.plan_from_json(DIAMOND, {"stages": [["a", "b"], ["c", "d"]]}) == plan("ab", "cd")
    with pytest.raises(InstanceError, match=r"stages\[0\]\[1\] is 'x'"):
        FAMILY.plan_from_json(DIAMOND, {"stages": [["a", "x"]]})


NAMES = [entry.name for entry in CATALOG.values() if entry.family == "operator_partitioning"]


def parameters(instance: OperatorInstance) -> float:
    return sum(operator.parameter_bytes for operator in instance.operators) / 4


@pytest.mark.parametrize(
    ("name", "millions"), [("resnet50", 25.557), ("resnet152", 60.193), ("bert-l", 336.2), ("swin-l", 196.5)]
)
def test_parameters_are_those_that_are_published(name: str, millions: float) -> None:
    assert parameters(planner.load(name)) == pytest.approx(millions * 1e6, rel=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_graphs_hang_together_and_scale_with_the_microbatch(name: str) -> None:
    instance = planner.load(name)
    n = len(instance.operators)
    assert topological_order(n, instance.edges) == list(range(n))
    fed = {b for _, b in instance.edges}
    assert all(v in fed or instance.operators[v].name == "input" for v in range(n))
    feeds = {a for a, _ in instance.edges}
    assert [instance.operators[v].name for v in range(n) if v not in feeds] == ["loss"]
    small, large = (planner.load(name, microbatch_size=size) for size in (8, 16))
    assert sum(t.volume_bytes for t in large.tensors) == pytest.approx(2 * sum(t.volume_bytes for t in small.tensors))
    assert parameters(small) == parameters(large)
    assert small.total_compute_s < large.total_compute_s <= 2 * small.total_compute_s
    assert planner.load(name, accelerator="a100").total_compute_s < instance.total_compute_s


def test_forward_operations_of_resnet() -> None:
    # 4.1e9 multiply-adds for an image of 224 pixels; times are at least those of the operations alone.
    seconds = planner.load("resnet50", microbatch_size=64).total_compute_s
    assert seconds > 3 * 64 * 2 * 4.09e9 / (0.7 * 15.7e12)


def test_bert_repeats_itself() -> None:
    sizes = [len(planner.load("bert-l", layers=count).operators) for count in (1, 2, 5)]
    assert sizes[1] - sizes[0] == 22 and sizes[2] - sizes[1] == 66


@thinned(
    ("name", "stages"),
    [
        ("resnet50", 8),
        ("gnmt", 4),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("semantic-fpn", 8), ("bert-l", 16))),
    ],
    2,
)
def test_the_optimum_is_proved_and_not_above_the_published_flow(name: str, stages: int) -> None:
    instance = planner.load(name, stages=stages)
    assert (downset_count(instance) or 0) >= len(instance.operators)
    best = planner.solve(instance, exact=True, limits=planner.Limits(time_s=60))
    flow = planner.solve(instance, method="parmesan")
    assert best.status == "optimal" and best.method == "exact"
    assert flow.objective is not None and best.objective is not None
    assert best.objective <= flow.objective * (1 + 1e-9) and flow.objective < 1.1 * best.objective
    assert planner.check(instance, best.plan).objective == best.objective


@pytest.mark.parametrize(("name", "given"), [("bert-l", {"layers": 0}), ("resnet50", {"image_size": 33})])
def test_impossible_sizes_are_one_line(name: str, given: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        planner.load(name, **given)
