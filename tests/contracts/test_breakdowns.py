"""Figures, pictures and clocks of plans: they add up to the definitions' numbers; nothing is missing or twice."""

import math
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from random_instances import LIMITS, warmed
from small_instances import random_case

import planner
from formulations import FAMILIES
from formulations.contract.clock import Clock
from formulations.contract.figures.device_layout import device_places
from formulations.contract.figures.graph_condensation import model_graph
from formulations.contract.figures.plan_figures import (
    Breakdown,
    Graph,
    Matrix,
    Network,
    Passes,
    Picture,
    Stack,
    Strip,
    Tiles,
    Tradeoff,
    stages_of,
)
from formulations.device_mapping.definition import problem as mapping
from formulations.flushed_partitioning.definition import problem as flushed
from formulations.hierarchical_partitioning.definition import problem as hierarchical
from formulations.layer_assignment.definition import problem as layers
from formulations.mesh_tiling.definition import problem as tiling
from formulations.operator_partitioning import FAMILY as OPERATORS
from formulations.operator_partitioning.definition import problem as operators
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.plan_figures import breakdown as operator_figures
from formulations.operator_partitioning.definition.problem import memory_bytes
from formulations.pipeline_placement.definition import problem as placement
from formulations.stage_graph.definition import problem as graphs
from formulations.stage_partitioning.definition import problem as flat
from formulations.stage_partitioning.definition.batch import step_time
from formulations.tmpc_knapsack.definition import problem as knapsack
from instances.generators.topologies import KINDS, topology
from instances.problems.hierarchical_partitioning import MemoryModel
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor, TrainingMemory
from planner.display.headlines import headline, note
from planner.files.load import family_of
from planner.solving.solve import run

#: What the figures say the objective is.
OBJECTIVE = {
    "stage_partitioning": lambda _, found: max(row["time_per_sample"] for row in found.rows),
    "hierarchical_partitioning": lambda _, found: max(row["time_per_sample"] for row in found.rows),
    "flushed_partitioning": lambda instance, found: found.figures["batch_time"] / instance.flat.num_microbatches,
    "layer_assignment": lambda _, found: sum(
        found.figures[f"{name}_s"] for name in ("waiting", "filling", "sending", "all_reduce")
    ),
    "stage_graph": lambda instance, found: (
        found.figures["iteration_s"]
        if instance.objective == "iteration"
        else max(row["s_per_sample"] for row in found.rows)
    ),
    "device_mapping": lambda _, found: max(row["counted_s"] for row in found.rows),
    "tmpc_knapsack": lambda _, found: math.fsum(row["time"] for row in found.rows),
    "microbatch_schedule": lambda instance, found: (
        found.figures["iteration_s"] if instance.objective == "time" else max(row["memory_bytes"] for row in found.rows)
    ),
}


CASES = 4
NAMES = [family.name for family in FAMILIES]


@cache
def solved(name: str) -> list[tuple[Any, Any, float, Breakdown]]:
    """Instances, plans, objectives and figures."""
    family = warmed(name)
    found = []
    for number in range(CASES):
        instance = random_case(name, 1, number)
        method = next(method for method in family.methods if method.supports(instance) is None)
        result = run(family, method, instance, LIMITS, {})
        if result.plan is not None and result.objective is not None:
            plan = family.plan_from_json(instance, result.plan)
            assert family.breakdown is not None
            found.append((instance, plan, result.objective, family.breakdown(instance, plan)))
    assert found
    return found


def drawn(name: str) -> list[tuple[Any, Any, tuple[Picture, ...]]]:
    """Instances, plans and pictures."""
    return [(instance, plan, found.pictures) for instance, plan, _, found in solved(name)]


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_whole_and_say_their_units(name: str) -> None:
    for instance, _, objective, found in solved(name):
        assert len({tuple(row) for row in found.rows}) == 1
        for shown in (*found.rows, found.figures):
            for key, value in shown.items():
                assert not isinstance(value, float) or math.isfinite(value), (key, value)
                assert not key.endswith("_share") or -1e-9 <= value <= 1 + 1e-9, (key, value)
                # A device may be filled a billionth above its memory, as the definitions have it.
                assert key != "slack_bytes" or value >= -1e-6 * (1 + shown.get("memory_bytes", 0.0)), (key, value)
        if name in OBJECTIVE:
            assert OBJECTIVE[name](instance, found) == pytest.approx(objective, rel=1e-9), name


def test_plans_that_take_no_time_have_figures() -> None:
    """All operators take 0 s: there is no rate of samples, and nobody waits."""
    free = {"per_sample_s": 0.0}
    instance = planner.load({
        "problem": "stage_graph", "schema_version": 1, "num_devices": 1, "memory_bytes": 10.0, "minibatch": 1,
        "bandwidth_bytes_per_s": 1.0, "operators": [{"id": 0, "forward": free, "backward": free}], "edges": [],
    })  # fmt: skip
    result = planner.solve(instance, exact=True)
    family = warmed("stage_graph")
    assert result.objective == 0.0 and family.breakdown is not None
    figures = family.breakdown(instance, family.plan_from_json(instance, result.plan)).figures
    assert (figures["samples_per_s"], figures["bubble_share"]) == (None, 0.0)


def stacks(pictures: tuple[Picture, ...]) -> dict[str, Stack]:
    return {picture.measure: picture for picture in pictures if isinstance(picture, Stack)}


def same(picture: Stack, expected: list[float]) -> None:
    assert [picture.total(stage) for stage in range(len(picture.stages))] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_whole(name: str) -> None:
    for _, _, pictures in drawn(name):
        assert pictures
        for picture in pictures:
            assert picture.title and headline(picture).isprintable()
            stages = getattr(picture, "stages", ())
            assert sum(stage.is_bottleneck for stage in stages) <= 1
            if isinstance(picture, Stack):
                parts = [*picture.parts.values(), *picture.beside.values()]
                assert all(len(part) == len(stages) and min(part) >= 0 for part in parts)
                assert picture.limits is None or len(picture.limits) == len(stages)
            if isinstance(picture, Strip):
                homes = [item.stage for item in picture.items]
                assert set(homes) == set(range(len(stages))) and homes == sorted(homes)  # type: ignore[type-var]
            if isinstance(picture, Passes):
                whole(picture)
            if isinstance(picture, Graph):
                ids = {node.id for node in picture.nodes}
                home = {node.id: node.stage for node in picture.nodes}
                assert all({arc.source, arc.target} <= ids for arc in picture.arcs)
                assert all(arc.is_cut == (home[arc.source] != home[arc.target]) for arc in picture.arcs)
            if isinstance(picture, Network):
                assert len({(place.x, place.y) for place in picture.places}) == len(picture.places)
                assert sum(link.is_slowest for link in picture.links) <= 1


def whole(picture: Passes) -> None:
    """A replica does one thing at a time, forward before backward."""
    assert 0 <= picture.bubble_share <= 1
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for task in picture.tasks:
        assert task.start <= task.end and 0 <= task.stage < len(picture.stages)
        lanes.setdefault((task.stage, task.replica), []).append((task.start, task.end))
    for spans in lanes.values():
        spans.sort()
        slack = 1e-9 * max(end for _, end in spans)
        assert all(a[1] <= b[0] + slack for a, b in pairwise(spans))


def test_stage_partitioning() -> None:
    for instance, plan, pictures in drawn("stage_partitioning"):
        found = stacks(pictures)
        same(found["time per sample"], [flat.stage_time(instance, stage) for stage in plan.stages])
        memory = zip(plan.stages, flat.suffix_sums(plan), strict=True)
        same(found["memory of a device"], [flat.stage_memory(instance, stage, s) for stage, s in memory])
        assert isinstance(pictures[0], Strip) and len(pictures[0].items) == len(instance.layers)


def test_flushed_partitioning() -> None:
    for instance, plan, pictures in drawn("flushed_partitioning"):
        same(stacks(pictures)["time per sample"], [flushed.step_time(instance, stage) for stage in plan.stages])


def test_hierarchical_partitioning() -> None:
    for instance, plan, pictures in drawn("hierarchical_partitioning"):
        found = stacks(pictures)
        time = found["time per sample"]
        most = max(time.total(stage) for stage in range(len(time.stages)))
        assert most == pytest.approx(hierarchical.evaluate(instance, plan), rel=1e-9)
        if instance.memory_model is not MemoryModel.NONE:
            memory = found["memory of a device"]
            fullest = max(memory.total(stage) for stage in range(len(memory.stages)))
            assert fullest == pytest.approx(hierarchical.most_memory(instance, plan), rel=1e-9)
        network = next(picture for picture in pictures if isinstance(picture, Network))
        taken = Counter((place.machine, place.stage) for place in network.places if place.stage is not None)
        machine = first = 0
        for outer in plan.stages:
            for rank in range(outer.dp_degree):
                for stage, own in enumerate(outer.inner, first):
                    assert taken.pop((machine, stage)) == own.dp_degree * own.tp_degree
                    here = Counter(p.replica for p in network.places if (p.machine, p.stage) == (machine, stage))
                    replicas = range(rank * own.dp_degree, (rank + 1) * own.dp_degree)
                    assert here == Counter(dict.fromkeys(replicas, own.tp_degree))
                machine += 1
            first += len(outer.inner)
        assert not taken and len(network.places) == instance.num_machines * instance.devices_per_machine


def test_layer_assignment() -> None:
    for instance, plan, pictures in drawn("layer_assignment"):
        ends = layers.cuts(plan)
        times = [math.fsum(instance.layer_time_s[a:b]) for a, b in pairwise(ends)]
        same(stacks(pictures)["time of a micro-batch"], times)


ADDED_UP = (
    *("layer_assignment", "mesh_tiling", "amp_strategy", "flushed_partitioning", "operator_partitioning"),
    *("operator_strategies", "pipeline_placement"),
)


@pytest.mark.parametrize("name", NAMES)
def test_the_marked_bar_is_the_longest_and_what_adds_up_is_the_objective(name: str) -> None:
    """The stage that the objective waits for has no shorter bar than others, in every picture of time."""
    added = 0
    for _, _, objective, found in solved(name):
        for picture in found.pictures:
            if isinstance(picture, Stack) and picture.adds_up:
                whole_objective = math.fsum(picture.total(stage) for stage in range(len(picture.stages)))
                assert whole_objective == pytest.approx(objective, rel=1e-9)
                assert "together the objective" in headline(picture)
                added += 1
            elif isinstance(picture, Stack) and picture.unit != "bytes":
                totals = [picture.total(stage) for stage in range(len(picture.stages))]
                [marked] = [total for total, stage in zip(totals, picture.stages, strict=True) if stage.is_bottleneck]
                assert marked == pytest.approx(max(totals), rel=1e-9), picture.title
    assert (added > 0) == (name in ADDED_UP)


@pytest.mark.parametrize("name", NAMES)
def test_passes_say_how_they_and_the_objective_differ(name: str) -> None:
    """The first number of the sentence is the objective; where a schedule is the plan, there is none."""
    per = {"flushed_partitioning": lambda instance: instance.flat.num_microbatches}
    for instance, _, objective, found in solved(name):
        for picture in found.pictures:
            if not isinstance(picture, Passes) or name == "microbatch_schedule":
                continue
            said = note(picture)
            assert said.endswith(".") and said.count("{") == 0
            scale = per.get(name, lambda _: 1)(instance)
            assert any(each == pytest.approx(objective * scale, rel=1e-9) for each in picture.amounts), said


@pytest.mark.parametrize("name", ["layers", "chain8-flushed"])
def test_an_end_is_compared_with_the_objective_only_if_all_micro_batches_were_simulated(name: str) -> None:
    for count, is_whole in ((8, True), (4096, False)):
        instance = planner.load(name, microbatches=count)
        family = family_of(instance)
        plan = family.plan_from_json(instance, planner.solve(instance).plan)
        [picture] = [each for each in family.breakdown(instance, plan).pictures if isinstance(each, Passes)]
        assert (f" of {count} micro-batches" in picture.title) != is_whole
        assert ("these passes end after" in note(picture)) == is_whole
        drawn_all = "the synchronisation after them, 48 ms, is not drawn" not in note(picture)
        assert drawn_all != (is_whole and name == "chain8-flushed")
        assert picture.end == (max(task.end for task in picture.tasks) if is_whole else None)


def test_operator_partitioning() -> None:
    for instance, plan, pictures in drawn("operator_partitioning"):
        seconds = operators.stage_seconds(instance, plan)
        shares = plan.replicas if instance.num_stages is not None else [1] * len(seconds)
        same(stacks(pictures)["time of a micro-batch"], [t / r for t, r in zip(seconds, shares, strict=True)])
        *operators_too, stages = (picture for picture in pictures if isinstance(picture, Graph))
        for graph in operators_too:
            assert sum(node.count for node in graph.nodes) == len(instance.operators)
        crossing = {(arc.source, arc.target): arc.bytes for arc in stages.arcs}
        assert crossing == operators.crossing_bytes(instance, plan)


def test_a_step_with_a_free_number_of_stages_shows_filling_and_its_all_reduce() -> None:
    for given, plan, _, _ in solved("operator_partitioning"):
        replicas = (2,) * len(plan.stages)
        own = [replace(each, parameter_bytes=1e6) for each in given.operators]
        instance = replace(given, operators=tuple(own), num_stages=None, num_devices=99, step_microbatches=12)
        plan = replace(plan, replicas=replicas)
        pictures = operator_figures(instance, plan).pictures
        step = stacks(pictures)["part of the step"]
        assert step.adds_up and "synchronisation" in step.parts and len(set(step.parts["micro-batches"])) <= 2
        objective = operators.evaluate(instance, plan)
        assert math.fsum(map(step.total, range(len(step.stages)))) == pytest.approx(objective, rel=1e-9)
        passes = next(picture for picture in pictures if isinstance(picture, Passes))
        assert {task.microbatch for task in passes.tasks} == set(range(6))
        assert passes.amounts[0] == pytest.approx(objective) and passes.amounts[2] == max(step.parts["synchronisation"])


def test_stage_graph() -> None:
    for instance, plan, pictures in drawn("stage_graph"):
        found = stacks(pictures)
        same(found["time per sample"], [graphs.tps(instance, plan, stage) for stage in range(len(plan.stages))])
        same(found["memory of a device"], [graphs.memory_bytes(instance, stage) for stage in plan.stages])


def test_device_mapping_and_placement() -> None:
    for name in ("device_mapping", "pipeline_placement"):
        for instance, plan, pictures in drawn(name):
            both = name == "pipeline_placement"
            problem = placement.second_phase(instance, plan.partition) if both else instance
            mapped = plan.mapping if both else plan
            rings = [mapping.ring_seconds(problem, mapped, stage) for stage in range(problem.num_stages)]
            times = [max(mapping.stage_times(problem, mapped, stage, ring)) for stage, ring in enumerate(rings)]
            same(stacks(pictures)["time of the slowest replica"], times)
            network, matrix = (next(p for p in pictures if isinstance(p, kind)) for kind in (Network, Matrix))
            assert [place.device for place in network.places] == list(range(problem.num_devices))
            loaded = {(link.a, link.b): link.seconds for link in network.links}
            slowest = [link for link in network.links if link.is_slowest]
            decisive = next(n for n, stage in enumerate(matrix.stages) if stage.is_bottleneck)
            own = set(matrix.devices[decisive])
            touching = [seconds for pair, seconds in loaded.items() if own & {*pair}]
            assert [link.seconds for link in slowest] == ([max(touching)] if touching else [])
            held = {(place.stage, place.device) for place in network.places}
            assert held == {(s, d) for s, devices in enumerate(matrix.devices) for d in devices}


def test_mesh_tiling() -> None:
    for instance, plan, pictures in drawn("mesh_tiling"):
        ordered = sorted(plan.tiles, key=lambda tile: tile.stage)
        same(stacks(pictures)["time of a micro-batch"], [tiling.tensor_s(instance, tile) for tile in ordered])
        assert isinstance(pictures[0], Tiles) and len(pictures[0].tiles) == len(plan.tiles)


def test_tmpc_knapsack() -> None:
    """The hull is below every choice: no plan is faster with as little memory than the line between its points."""
    for instance, plan, (picture,) in drawn("tmpc_knapsack"):
        assert isinstance(picture, Tradeoff)
        own = picture.totals[0]
        assert own.time == pytest.approx(knapsack.evaluate(instance, plan), rel=1e-12)
        assert own.memory_bytes == pytest.approx(knapsack.total_memory(instance, plan), rel=1e-12)
        hull = picture.frontier
        for a, b in pairwise(hull):
            assert a.memory_bytes < b.memory_bytes and a.time > b.time
            if a.memory_bytes <= own.memory_bytes <= b.memory_bytes:
                share = (own.memory_bytes - a.memory_bytes) / (b.memory_bytes - a.memory_bytes)
                assert own.time >= a.time + share * (b.time - a.time) - 1e-9 * a.time


@pytest.mark.parametrize("kind", KINDS)
def test_devices_stand_where_their_network_says(kind: str) -> None:
    devices = 4 if kind == "fig2" else 24
    found = device_places(topology(kind, devices, seed=1))
    machines = {"two-level": 6, "dgx1": 3, "fig2": 2, "random-blk-1": 3}
    if kind in machines:
        assert found is not None and found.machines == machines[kind]
    elif kind.startswith(("mesh", "torus")):
        assert found is not None and found.machines == 0 and len(set(zip(found.x, found.y, strict=True))) == devices
    elif kind == "uniform-dist":
        assert found is None


def test_bubbles_are_those_of_the_figures() -> None:
    for name in ("microbatch_schedule", "pipeline_placement"):
        for _, _, _, found in solved(name):
            passes = next(picture for picture in found.pictures if isinstance(picture, Passes))
            assert passes.bubble_share == pytest.approx(found.figures["bubble_share"], abs=1e-9)


def test_chains_are_folded_and_a_tensor_counts_once_for_each_node_that_takes_it() -> None:
    names = [str(number) for number in range(6)]
    figures = [{"compute_s": 1.0}] * 6
    tensors = [(0, (1,), 2.0), (1, (2, 3), 3.0), (2, (4,), 4.0), (3, (4,), 5.0), (4, (5,), 6.0)]
    home = dict(enumerate([0, 0, 1, 1, 1, 1]))
    stages = stages_of([2.0, 4.0])
    graph = model_graph("", names, range(6), figures, tensors, home, stages)
    assert [(node.name, node.count, node.figures["compute_s"]) for node in graph.nodes] == [
        ("0 .. 1", 2, 2.0), ("2", 1, 1.0), ("3", 1, 1.0), ("4 .. 5", 2, 2.0),
    ]  # fmt: skip
    arcs = {(arc.source, arc.target): (arc.bytes, arc.is_cut) for arc in graph.arcs}
    assert arcs == {(0, 2): (3.0, True), (0, 3): (3.0, True), (2, 4): (4.0, False), (3, 4): (5.0, False)}
    large = [(0, tuple(range(1, 200)), 7.0), *((operator, (200,), 1.0) for operator in range(1, 200))]
    home = {0: 0} | dict.fromkeys(range(1, 201), 1)
    graph = model_graph("", [str(n) for n in range(201)], range(201), [{}] * 201, large, home, stages)
    assert [node.count for node in graph.nodes] == [1, 200]
    assert [(arc.bytes, arc.is_cut) for arc in graph.arcs] == [(7.0, True)]


def test_operators_that_share_a_name_are_called_by_their_ids_too() -> None:
    tensors = [(number, (number + 1,), 1.0) for number in range(4)]
    names, ids = ["input", "add", "add", "", "mul(2)"], ["a", 1, "add2", 7, "m"]
    home = {0: 0, 1: 1, 2: 1, 3: 1, 4: 2}
    first, chain, last = model_graph("", names, ids, [{}] * 5, tensors, home, stages_of([1.0] * 3)).nodes
    assert (first.name, first.figures) == ("input", {"id": "a", "kind": "input"})
    assert (chain.name, chain.figures) == ("add 1 .. operator 7", {"id": "1 .. 7", "kind": "2 x add"})
    assert (last.name, last.figures["kind"]) == ("mul(2)", "mul")
    [node] = model_graph("", ["a", "b"], [0, 1], [{}] * 2, [(0, (1,), 1.0)], {0: 0, 1: 0}, stages_of([1.0])).nodes
    assert (node.name, node.figures) == ("a .. b", {"id": "0 .. 1"}), "names that differ are no kinds"


TRAINING = TrainingMemory(weight_copies=4.0, microbatches=8)


def instance(training: TrainingMemory | None, declared: float = 0.0) -> OperatorInstance:
    """Two operators of 10 and 20 bytes of weights, and a tensor of 5 bytes between them."""
    operators = [
        Operator("a", 1.0, parameter_bytes=10.0, activation_bytes=5.0, memory_bytes=declared),
        Operator("b", 1.0, parameter_bytes=20.0, activation_bytes=7.0, memory_bytes=declared),
    ]
    return OperatorInstance(
        "two",
        tuple(operators),
        (Tensor(0, (1,), 5.0),),
        num_stages=2,
        replicas=1,
        bandwidth_bytes_per_s=1.0,
        training=training,
    )


def parts(made: OperatorInstance) -> dict[str, list[float]]:
    """The parts of the picture of memory."""
    plan = OperatorPlan(((0,), (1,)), (1, 1))
    assert OPERATORS.breakdown is not None
    [found] = [
        each
        for each in OPERATORS.breakdown(made, plan).pictures
        if isinstance(each, Stack) and each.measure == "memory of a stage"
    ]
    for stage in range(2):
        assert found.total(stage) == pytest.approx(memory_bytes(made, plan.stages[stage], 2 - stage), rel=1e-12)
    return {name: list(values) for name, values in found.parts.items()}


def test_weights_gradients_and_optimiser_stand_apart() -> None:
    shown = parts(instance(TRAINING))
    assert (shown["weights"], shown["gradients"], shown["optimiser"]) == ([10, 20], [10, 20], [20, 40])
    assert shown["inputs in flight"] == [0, 5] and "activations of a micro-batch" in shown
    assert "optimiser" not in parts(instance(replace(TRAINING, weight_copies=2.0)))
    assert "activations in flight" in parts(instance(replace(TRAINING, recompute=False)))


def test_a_declared_number_is_one_sum() -> None:
    assert parts(instance(None, 3.0)) == {"declared (one sum)": [3.0, 3.0]}
    chain = planner.load("chain8", memory="80MB")
    plan = planner.solve(chain).plan
    family = family_of(chain)
    assert family.breakdown is not None
    pictures = family.breakdown(chain, family.plan_from_json(chain, plan)).pictures
    [memory] = [each for each in pictures if isinstance(each, Stack) and each.limits is not None]
    assert list(memory.parts) == ["always stored (one sum)", "activations in flight"] and "one sum" in memory.note


#: What has no pipeline, or none of its own.
NO_CLOCK = {"serving_strategy", "tmpc_knapsack", "operator_strategies", "mesh_tiling", "device_mapping"}
#: Where plans may have a pipeline whose step is not simulated.
UNSIMULATED = {"hierarchical_partitioning", "operator_partitioning"}
CLOCK_CASES = 8


@pytest.mark.parametrize("name", [family.name for family in FAMILIES])
def test_pipelines_say_which_clock_they_are(name: str) -> None:
    """An iteration is the objective where that is one, and no shorter than the work of any replica."""
    family, seen = warmed(name), 0
    assert (family.clock is None) == (name in NO_CLOCK)
    for number in range(CLOCK_CASES if family.clock else 0):
        instance = random_case(name, 30, number)
        method = next(method for method in family.methods if method.supports(instance) is None)
        result = run(family, method, instance, LIMITS, {})
        if result.own_plan is None or family.clock is None:
            continue
        clock, seen = family.clock(instance, result.own_plan), seen + 1
        if clock is None:
            assert name == "microbatch_schedule" and instance.objective == "memory"
            continue
        if clock.iteration_s is None:
            assert name in UNSIMULATED and clock.kind == "steady"
            continue
        assert math.isfinite(clock.iteration_s) and clock.iteration_s >= 0, number
        if name == "flushed_partitioning":
            # The objective is a sample's part: of the iteration or of the formula, which is there beside it.
            batch_s = result.objective * instance.flat.num_microbatches * (1e-3 if result.unit == "ms" else 1.0)
            found = clock.iteration_s if clock.kind == "iteration" else clock.formula_s
            assert found == pytest.approx(batch_s, rel=1e-9), number
        elif clock.kind == "iteration":
            assert clock.iteration_s == pytest.approx(result.objective, rel=1e-9), number
        if name in ("stage_partitioning", "flushed_partitioning"):
            flat = getattr(instance, "flat", instance)
            unit_s = 1e-3 if flat.time_unit == "ms" else 1.0
            for stage in result.own_plan.stages:
                rounds = -(-flat.num_microbatches // stage.dp_degree)
                work = rounds * step_time(flat, stage) * stage.dp_degree * unit_s
                assert clock.iteration_s >= work * (1 - 1e-9), number
    assert seen > 2 or family.clock is None


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        (Clock("steady", "1f1b", 4, lambda: None), "a pipeline that is never flushed"),
        (Clock("formula", "gpipe", 2048, lambda: None), "a formula of a batch of 2,048 micro-batches, GPipe"),
        (Clock("iteration", "interleaved", 8, lambda: None), "an iteration of 8 micro-batches, interleaved 1F1B"),
        (Clock("iteration", "zb-h1", 8, lambda: None), "an iteration of 8 micro-batches, ZB-H1"),
        (Clock("iteration", None, None, lambda: None), "an iteration"),
    ],
)
def test_a_clock_names_its_schedule_and_micro_batches(clock: Clock, words: str) -> None:
    assert clock.says == words


@pytest.mark.parametrize("name", ["chain8", "chain8-flushed", "chain8-strategy"])
def test_iterations_are_in_seconds_whatever_the_unit(name: str) -> None:
    instance = planner.load(name)
    plan, family = planner.solve(instance).own_plan, family_of(instance)
    assert family.clock is not None
    flat = getattr(instance, "flat", instance)
    slow = replace(flat, time_unit="ms")
    other = slow if flat is instance else replace(instance, flat=slow)
    own, scaled = (family.clock(each, plan) for each in (instance, other))
    assert own is not None and scaled is not None and own.iteration_s is not None
    assert scaled.iteration_s == pytest.approx(own.iteration_s / 1000)
