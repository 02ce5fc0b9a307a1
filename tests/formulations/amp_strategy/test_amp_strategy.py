"""Training strategies: definition, placements, methods against brute force, published predictions."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.amp_strategy import brute_force, random_instance

import planner
from formulations.amp_strategy import FAMILY
from formulations.amp_strategy.definition.plan import Degrees, StrategyPlan
from formulations.amp_strategy.definition.problem import (
    evaluate,
    layer_assignment,
    placements,
    strategies,
    terms,
    violations,
)
from formulations.amp_strategy.paper.amp import assign_layers, released_assignment
from formulations.layer_assignment import exact
from instances.errors import InstanceError
from instances.exchange import to_json
from instances.generators.amp_experiments import EXPERIMENTS, analytic_profiles, experiment, printed_cuts
from instances.problems.amp_strategy import AmpInstance, ModelLayer, Node
from planner.display.tables import show_result
from planner.reproduction.amp.event_by_event import makespan_s
from solvers.outcome import Limits, Stop, Watch

METHODS = ("amp", "amp-released", "amp-sa", "megatron", "exhaustive")


def run(name: str, instance: AmpInstance, seed: int = 0, **options: int) -> Any:
    return FAMILY.method(name).solve(instance, Limits(seed=seed), Watch(), **options)


def test_exhaustive_agrees_with_brute_force_and_nothing_beats_it(cases: int) -> None:
    for case in range(cases // 4):
        instance = random_instance(random.Random(case))
        best = brute_force(instance)
        answer = run("exhaustive", instance, top=1 + case % 3)
        assert evaluate(instance, answer.plan) == pytest.approx(best, rel=1e-12)
        assert best * (1 - 1e-9) <= answer.bound <= best
        assert answer.stop is Stop.PROVED
        for name in METHODS[:-1]:
            plan = run(name, instance).plan
            assert plan is None or evaluate(instance, plan) >= best * (1 - 1e-12)
            assert plan is None or violations(instance, plan) == ()


@pytest.mark.parametrize("kind", ["tiling", "oriented"])
def test_exhaustive_tries_every_placement(kind: str, cases: int) -> None:
    for case in range(max(1, cases // 10)):
        instance = replace(random_instance(random.Random(case)), placement=kind)
        answer = run("exhaustive", instance, top=1)
        every = [
            evaluate(instance, plan)
            for degrees in strategies(instance)
            if degrees.pp_degree <= len(instance.layers)
            for placement in placements(instance, degrees)
            for plan in [assign_layers(instance, degrees, placement, exact.solve, Watch()).plan]
            if plan is not None
        ]
        assert evaluate(instance, answer.plan) == pytest.approx(min(every), rel=1e-12) and answer.bound <= min(every)
        assert violations(instance, answer.plan) == ()
        megatron = run("exhaustive", replace(instance, placement="megatron"))
        assert evaluate(instance, answer.plan) <= evaluate(instance, megatron.plan) * (1 + 1e-12)


def test_a_tiling_has_a_stage_of_fast_devices_that_megatrons_placement_has_not() -> None:
    """Nodes of five devices, stages of four: by ranks no stage is on the second node, the fast one, alone."""
    nodes = tuple(Node("fast" if number == 1 else "slow", 1.0, 1.0) for number in range(4))
    layers = tuple(ModelLayer({"slow": {1: slow}, "fast": {1: 1.0}}, 0.0, 0.0, False) for slow in (1, 1, 99, 1, 1))
    instance = AmpInstance("five", nodes, 5, layers, 8, placement="tiling", layer_times="slowest")
    answer = run("exhaustive", instance, top=1)
    assert evaluate(instance, answer.plan) == pytest.approx(6 * instance.passes) == pytest.approx(answer.bound)


def test_placements_count_the_tilings() -> None:
    square = replace(experiment("homogeneous", analytic_profiles()), placement="tiling")
    # 36 tilings of 4 x 4 by dominoes; Megatron's placement is the one of upright dominoes.
    assert len(placements(square, Degrees(1, 2, 1, 8))) == 37
    assert placements(square, Degrees(1, 1, 1, 16))[0] == tuple(range(16))
    assert len(placements(replace(square, placement="megatron"), Degrees(1, 2, 1, 8))) == 1
    for degrees in (Degrees(1, 2, 1, 8), Degrees(1, 2, 2, 4), Degrees(1, 4, 2, 2)):
        for placement in placements(square, degrees):
            assert sorted(placement) == list(range(16))


def test_the_two_readings_of_the_footnote_differ_in_lying_tiles_only() -> None:
    square = experiment("homogeneous", analytic_profiles())
    degrees = Degrees(1, 2, 4, 2)
    tiling, oriented = (placements(replace(square, placement=kind), degrees) for kind in ("tiling", "oriented"))
    # Upright: two rows over four nodes, groups of two down a node.
    upright = (0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)
    assert upright in tiling and upright in oriented
    # Lying: four rows over two nodes; the release's groups still run down a node, oriented ones lie across two.
    assert tuple(range(16)) in tiling
    lying = (0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15)
    assert lying in oriented and lying not in tiling


PLAN = StrategyPlan(Degrees(1, 2, 2, 4), (8, 8, 8, 6), tuple(range(16)))


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        ({}, set()), ({"degrees": Degrees(1, 2, 2, 2)}, {"degrees"}), ({"degrees": Degrees(1, 8, 1, 2)}, {"degrees"}),
        ({"degrees": Degrees(0, 2, 2, 4)}, {"degrees"}), ({"degrees": Degrees(3, 2, 2, 4)}, {"batch"}),
        ({"lengths": (8, 8, 14)}, {"stages"}), ({"lengths": (8, 8, 14, 0)}, {"empty"}),
        ({"lengths": (8, 8, 8, 7)}, {"layers"}), ({"placement": tuple(range(15, -1, -1))}, {"placement"}),
        ({"placement": (0,) * 16}, {"placement"}),
    ],
)  # fmt: skip
def test_every_rule_is_named(change: dict[str, Any], rules: set[str]) -> None:
    instance = experiment("homogeneous", analytic_profiles())
    plan = replace(PLAN, **change)
    assert {found.rule for found in violations(instance, plan)} == rules
    if rules:
        with pytest.raises(ValueError, match=next(iter(rules))):
            evaluate(instance, plan)
    else:
        assert evaluate(instance, plan) == pytest.approx(sum(vars(terms(instance, plan)).values()))


@pytest.mark.parametrize(("name", "count"), [("homogeneous", 53), ("het_cluster", 53), ("het_model", 65)])
def test_as_many_strategies_as_published(name: str, count: int) -> None:
    assert len(list(strategies(experiment(name, analytic_profiles())))) == count


@pytest.mark.paper
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_published_predictions_are_met_to_the_last_digit(name: str, published: Path) -> None:
    profiles = json.loads((published / "amp" / "layer_forward_times.json").read_text())["profiles"]
    lines = (published / "amp" / "released_predictions.jsonl").read_text().splitlines()
    instance, rows = experiment(name, profiles), [json.loads(line) for line in lines]
    own = [row for row in rows if row["experiment"] == name]
    assert len(own) >= 20
    for row in own:
        degrees = Degrees(row["microbatch"], row["tp_degree"], row["dp_degree"], row["pp_degree"])
        plan = assign_layers(instance, degrees, tuple(range(16)), released_assignment(instance), Watch()).plan
        assert plan is not None
        assert printed_cuts(name, plan.lengths) == row["partition"]
        assert f"{evaluate(instance, plan):.4f}" == f"{row['predicted_s']:.4f}"


def test_the_released_ring_looks_at_one_link() -> None:
    """With Megatron's placement nothing changes; with ranks 0 and 3 in one node the slow links are overlooked."""
    instance = experiment("het_cluster", analytic_profiles())
    for degrees in strategies(instance):
        meant, slip = (layer_assignment(instance, degrees, tuple(range(16)), flag) for flag in (False, True))
        assert meant.ring_s_per_parameter == slip.ring_s_per_parameter
    mixed = (0, 4, 8, 1, 2, 3, *range(5, 8), *range(9, 16))
    meant, slip = (layer_assignment(instance, Degrees(1, 1, 4, 4), mixed, flag) for flag in (False, True))
    assert meant.ring_s_per_parameter[0] > slip.ring_s_per_parameter[0]


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_identity_of_section_6_4(first: float, second: float, slowest: float) -> None:
    twelve = max(0.0, first - max(second, slowest)) + max(0.0, second - slowest)
    assert twelve == pytest.approx(max(0.0, max(first, second) - slowest), rel=1e-12, abs=1e-9)


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=6),
    st.lists(st.integers(0, 40), min_size=5, max_size=5),
    st.integers(1, 12),
)
def test_where_equation_4_is_exact(stages: list[int], links: list[int], count: int) -> None:
    sending = links[: len(stages) - 1]
    equation = (count - 1) * max(stages) + sum(stages) + sum(sending)
    assert makespan_s(stages, sending, count, False) == equation
    short = (count - 1) * max(0, max(sending, default=0) - max(stages))
    assert makespan_s(stages, sending, count, True) == equation + short


def test_files_say_where_the_release_cuts() -> None:
    gan = experiment("het_model", analytic_profiles())
    assert FAMILY.read(json.loads(json.dumps(to_json(gan))), "again", {}).released_framing == (0, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": []}, "nodes is []"),
        ({"layers": []}, "layers is []"),
        ({"global_batch": 0}, "global_batch is 0"),
        ({"placement": "heap"}, "placement is 'heap'"),
        ({"tied": [{"layers": [99], "parameters": 1}]}, "tied[0].layers is [99]"),
        ({"head_layers": 99}, "head_layers + tail_layers is 99"),
        ({"nodes": [{"gpu": "new", "intra_bytes_per_s": 1, "inter_bytes_per_s": 1}]}, "layers[0].forward_s.new is []"),
        ({"nodes": [{"gpu": "slow", "intra_bytes_per_s": 0, "inter_bytes_per_s": 1}]}, "nodes[0].intra_bytes_per_s"),
    ],
)
def test_bad_files_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InstanceError) as error:
        FAMILY.read({**to_json(random_instance(random.Random(1))), **change}, "file.json", {})
    assert str(error.value).startswith("file.json: ") and message in str(error.value)


def test_ranked_lists_and_seeds() -> None:
    instance = random_instance(random.Random(5))
    rows = run("amp", instance, top=3).stats["ranked"]
    assert len(rows) == 3 and rows == sorted(rows, key=lambda row: row["predicted_s"])
    parts = ("waiting", "filling", "sending", "all_reduce")
    assert rows[0]["predicted_s"] == pytest.approx(sum(rows[0][part] for part in parts))
    assert run("amp-sa", instance, 7).stats == run("amp-sa", instance, 7).stats
    top, whole = (run("exhaustive", instance, top=number).stats["ranked"] for number in (3, 1000))
    assert [row["predicted_s"] for row in top] == [row["predicted_s"] for row in whole[:3]]


def test_large_batches_have_their_divisors_at_once() -> None:
    batch = replace(random_instance(random.Random(1)), global_batch=720720)
    assert len({degrees.microbatch for degrees in strategies(batch) if degrees.dp_degree == 1}) == 240


def test_overrides_and_support() -> None:
    instance = experiment("homogeneous", analytic_profiles())
    slow = FAMILY.read(instance, "x", {"inter-bandwidth": 1e6, "global-batch": 8, "placement": "oriented"})
    assert {node.inter_bytes_per_s for node in slow.nodes} == {1e6} and slow.global_batch == 8
    assert evaluate(FAMILY.read(instance, "x", {"inter-bandwidth": 1e6}), PLAN) > evaluate(instance, PLAN)
    large = replace(slow, nodes=slow.nodes * 3)
    assert "tilings" in str(FAMILY.method("amp").supports(large))
    assert FAMILY.choose(instance, Limits(), True)[0] == "exhaustive"


def test_catalog_entries_take_parameters() -> None:
    import planner

    row = planner.load("layers", layers=12, stages=3, microbatches=2, all_reduce=True, seed=5)
    assert (row.num_layers, row.num_stages, row.num_microbatches, bool(row.ring_s_per_parameter)) == (12, 3, 2, True)
    mesh = planner.load("mesh", rows=2, columns=6, tp_degree=1, dp_degree=3, seed=2, ordered=True)
    assert (mesh.rows, mesh.columns, mesh.num_stages, mesh.ordered) == (2, 6, 4, True)
    assert planner.load("layers", seed=0).layer_time_s != planner.load("layers", seed=1).layer_time_s


def test_prices_by_hand() -> None:
    """Two nodes of two; tp 2, pp 2: a cut crosses the nodes at 1 byte per second, each rank with its half or all."""
    times = {"a": {1: 2.0, 2: 1.0}, "b": {1: 4.0, 2: 3.0}}
    whole, split = (ModelLayer(times, 10.0, 6.0, part) for part in (False, True))
    cluster = AmpInstance("hand", (Node("a", 8.0, 1.0), Node("b", 4.0, 2.0)), 2, (whole, split, whole), 4)
    priced = layer_assignment(cluster, Degrees(2, 2, 1, 2), (0, 1, 2, 3))
    assert priced.layer_time_s == (12.0,) * 3  # 3 passes, 2 samples, the mean of 1 and 3
    assert priced.cut_cost_s == ((20.0,), (10.0,))
    assert (priced.num_stages, priced.num_microbatches, priced.ring_s_per_parameter) == (2, 2, ())
    # dp 2 inside the nodes, stages across: a ring of two sends its 4 bytes for each parameter once.
    priced = layer_assignment(cluster, Degrees(1, 1, 2, 2), (0, 1, 2, 3))
    assert priced.ring_s_per_parameter == (0.5, 1.0) and priced.parameters == (6.0,) * 3
    assert (priced.num_microbatches, priced.cut_cost_s) == (2, ((10.0,), (10.0,)))


def test_the_ranked_list_is_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLANNER_PUBLISHED", raising=False)
    result = planner.solve(planner.load("amp-homogeneous"), options={"top": 3})
    show_result(result, verbose=True)
    shown = capsys.readouterr().out.splitlines()
    head = next(number for number, line in enumerate(shown) if line.strip() == "ranked")
    columns = shown[head + 1].split()
    assert columns[:5] == ["#", "microbatch", "tp_degree", "dp_degree", "pp_degree"]
    assert columns[-5:] == ["predicted_s", "waiting", "filling", "sending", "all_reduce"]
    rows = [line.split() for line in shown[head + 2 : head + 5]]
    assert [row[0] for row in rows] == ["0", "1", "2"] and len(shown) == head + 5
    assert float(rows[0][-5]) == pytest.approx(result.objective, rel=1e-8)
    assert not any("{" in line for line in shown)
    assert any(line.startswith("options") and "layer-times analytic" in line for line in shown)
    assert any(line.startswith("stats") and "strategies 53" in line for line in shown)
