"""Parmesan's search and annealing against brute force, and against the optima that are known."""

import itertools
import math
import random
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from load import allowed_s
from oracles.device_mapping import least_seconds, random_mapping
from thinned import thinned

import planner
from formulations.device_mapping import FAMILY, exact, paper
from formulations.device_mapping.annealing import near, policies, stage_by_stage
from formulations.device_mapping.annealing.baselines import stage_major
from formulations.device_mapping.data.arrays import arrays
from formulations.device_mapping.data.costs import single_bound, tables
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.definition.problem import evaluate, sending_seconds
from formulations.device_mapping.kernels import annealing
from formulations.device_mapping.kernels.arrays import Loads, Tables
from formulations.device_mapping.models.first_plan import first_plan
from formulations.device_mapping.models.model_choice import TargetModels
from instances.problems.device_mapping import DeviceMapping, MappingEdge, MappingStage
from solvers.outcome import Limits, Status, Stop, Watch


def test_without_timeouts_algorithm_1_is_optimal(cases: int) -> None:
    rng = random.Random(11)
    for case in range(cases):
        instance = random_mapping(rng, max_devices=5 if case % 10 else 6)
        method = FAMILY.method("parmesan-no-timeout")
        if method.supports(instance) is not None:
            continue
        orders = {"order": paper.ORDERS[case % 4], "device_order": paper.DEVICE_ORDERS[case // 4 % 2]}
        answer = method.solve(instance, Limits(threads=1 + case % 3), Watch(), **orders)
        optimum = least_seconds(instance)
        assert answer.plan is not None and answer.bound is not None
        assert evaluate(instance, answer.plan) == pytest.approx(optimum, rel=1e-6, abs=1e-12)
        assert optimum * (1 - 1e-6) <= answer.bound + 1e-12 and answer.bound <= optimum * (1 + 1e-12)


def test_annealing_finds_small_optima_and_claims_no_false_bound(cases: int) -> None:
    rng = random.Random(12)
    missed = 0
    for case in range(cases):
        instance = random_mapping(rng, max_devices=5 if case % 10 else 6)
        answer = near.solve(instance, Limits(seed=case), Watch(), levels=1)
        optimum = least_seconds(instance)
        assert answer.plan is not None and answer.bound is not None
        assert FAMILY.judge(instance, answer.plan) == ()
        found = evaluate(instance, answer.plan)
        assert answer.bound <= optimum * (1 + 1e-12) and found >= optimum * (1 - 1e-12)
        missed += found > optimum * (1 + 1e-9)
    assert missed <= 0.02 * cases


@thinned("most_starts", [1, 4], 2)
def test_threads_share_the_moves(most_starts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them make about as many as one, half of them each, and a seed still repeats."""
    instance = planner.load("random-blk-2", stages=4, replicas=4, objective="full")
    moved: dict[int, int] = {}
    honest = near._Search._part

    def part(search: near._Search, target: float, hot: float, cold: float, moves: int) -> None:
        moved[threading.get_ident()] = moved.get(threading.get_ident(), 0) + moves
        honest(search, target, hot, cold, moves)

    monkeypatch.setattr(near._Search, "_part", part)
    answers = []
    for threads in (1, 2, 2):
        moved.clear()
        answers.append(near.solve(instance, Limits(threads=threads, seed=1), Watch(), 1, most_starts))
        assert len(moved) <= threads + 1 and sum(moved.values()) == answers[-1].stats["moves"]
    one, two, again = answers
    assert two.plan == again.plan and one.plan is not None and two.plan is not None
    assert 0.6 < two.stats["moves"] / one.stats["moves"] < 1.4
    assert evaluate(instance, two.plan) < 1.1 * evaluate(instance, one.plan)


def test_rings_come_first_on_a_torus_and_turn_to_their_tensors() -> None:
    """Consecutive rings of 32 on a torus of 16 x 16 close over two links, which costs more than the tensors do."""
    instance = planner.load("torus2d", stages=8, replicas=32, objective="full")
    plan, moves = near.first_mapping(instance, tables(instance), 0, Watch())
    assert moves > 0 and FAMILY.judge(instance, plan) == ()
    bound = single_bound(arrays(instance))
    assert evaluate(instance, plan) <= 1.11 * bound < 0.7 * evaluate(instance, stage_major(instance))


@pytest.mark.parametrize(("graph", "within"), [("chain", 1.05), ("skip", 1.15)])
def test_stages_one_after_another_come_close_to_the_bound(graph: str, within: float) -> None:
    instance = planner.load("uniform-dist", stages=8, replicas=8, graph=graph, objective="full")
    bound = single_bound(arrays(instance))
    rows = stage_by_stage.search(arrays(instance), bound, 1.0, 0, lambda: False)
    assert evaluate(instance, Mapping(tuple(map(tuple, rows.tolist())))) <= within * bound


@pytest.mark.filterwarnings("error")
def test_stages_one_after_another_meet_the_target() -> None:
    rng, met = random.Random(13), 0
    for seed in range(60):
        sizes = {"stages": rng.randint(2, 5), "replicas": rng.randint(2, 4), "graph": rng.choice(["chain", "skip"])}
        instance = planner.load("uniform-dist", **sizes, objective=rng.choice(["full", "p2p", "allreduce"]), seed=seed)
        given = arrays(instance)
        target = single_bound(given) * rng.uniform(0.95, 3)
        rows = stage_by_stage._Placing(given, target, np.random.default_rng(seed)).run(lambda: False)
        if rows is not None:
            assert evaluate(instance, Mapping(tuple(map(tuple, rows.tolist())))) <= target * (1 + 1e-12)
            met += 1
    assert met >= 20
    placing = stage_by_stage._Placing(given, target, np.random.default_rng(0))
    assert placing._hardness(1, 1e300, np.array([1e-9])) == math.inf, "faster than any number says"


@pytest.mark.parametrize("graph", ["chain", "skip"])
def test_a_turned_ring_is_the_same_ring_and_sends_no_slower(graph: str) -> None:
    for seed in range(5):
        instance = planner.load("uniform-dist", stages=4, replicas=5, graph=graph, objective="full", seed=seed)
        before = np.random.default_rng(seed).permutation(20).reshape(4, 5)
        after = near._turned(tables(instance), before.copy())
        for ring, turned in zip(before.tolist(), after.tolist(), strict=True):
            assert turned in [way[k:] + way[:k] for way in (ring, ring[::-1]) for k in range(5)]
        sent = replace(
            instance, objective="p2p", stages=tuple(replace(each, compute_s=0.0) for each in instance.stages)
        )
        last = len(before) - 1
        turns = [way[k:] + way[:k] for way in (before[last].tolist(), before[last].tolist()[::-1]) for k in range(5)]
        assert stage_sends(sent, after.tolist(), last) == min(
            stage_sends(sent, [*after.tolist()[:last], turn], last) for turn in turns
        )


def stage_sends(instance: DeviceMapping, rows: list[list[int]], stage: int) -> float:
    """Seconds of the replica of a stage that exchanges tensors the longest, by the definition."""
    plan = Mapping(tuple(map(tuple, rows)))
    return max(math.fsum(sending_seconds(instance, plan, stage, replica)) for replica in range(instance.replicas))


def test_on_many_devices_annealing_comes_before_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models for targets far above the optimum take long and refute nothing."""
    instance, known = planner.load("uniform-dist", stages=6, replicas=6, objective="full"), []

    def raise_bound(models: TargetModels) -> dict[str, float]:
        known.append(models.gap.upper)
        models.gap.watch.stop(Stop.INTERRUPTED)
        return {}

    monkeypatch.setattr(exact, "raise_bound", raise_bound)
    answer = exact.solve(instance, Limits(), Watch())
    assert answer.stop is Stop.INTERRUPTED and answer.plan is not None
    assert known == [evaluate(instance, answer.plan)] and known[0] < 0.2 * evaluate(instance, stage_major(instance))


@pytest.mark.parametrize("ring", ["index", "free"])
@pytest.mark.parametrize("objective", ["p2p", "allreduce", "full"])
@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
def test_what_is_kept_move_by_move_is_what_is_computed_anew(objective: str, ring: str, replicas: int) -> None:
    """Thousands of swaps, blocks and turned rings: sums, links and the energy, towards two targets."""
    instance = planner.load("random-blk-2", stages=6, replicas=replicas, graph="skip", objective=objective, ring=ring)
    R = replicas
    start = Mapping(tuple(tuple(range(s * R, s * R + R)) for s in range(6)))
    t = tables(instance)
    search = near._Search(instance, t, start, 3, 0.0, Watch())
    layout, loads = search.layout, search.loads
    for share in (0.9, 0.5):
        target = share * search.best
        annealing.refresh(t, layout, loads)
        energy = annealing.set_caps(t, target, loads)
        heat = (0.1 * target, 0.01 * target)
        energy = annealing.anneal(
            t, layout, loads, search.reorder, 5.0, energy, *heat, 9_000, search.state, search.flag
        )
        sending, link = loads.sending.copy(), loads.link.copy()
        annealing.refresh(t, layout, loads)
        assert loads.sending == pytest.approx(sending, rel=1e-9) and loads.link == pytest.approx(link, rel=1e-9)
        excess = np.maximum(0, sending.reshape(6, R) - loads.room[:, None]).sum()
        excess += np.maximum(0, link.reshape(6, R) - loads.cap[:, None]).sum()
        assert energy == pytest.approx(excess, rel=1e-9, abs=1e-12)
        assert sorted(layout.device) == sorted(layout.ring) == list(range(6 * R))
        assert all(layout.place[node] == at % R and node // R == at // R for at, node in enumerate(layout.ring))
        search._keep_if_better()
        assert evaluate(instance, search.plan()) == pytest.approx(search.best, rel=1e-12)


def test_caps_are_the_best_there_are(cases: int) -> None:
    """The energy at the caps is not more than at any break of the excess."""
    rng = np.random.default_rng(8)
    for _ in range(cases):
        R = int(rng.integers(1, 6))
        links = R if R > 2 else R - 1
        sending, link = rng.integers(0, 9, R).astype(float), rng.integers(0, 9, R).astype(float)
        link[links:] = 0
        cap, room, target = np.zeros(1), np.zeros(1), float(rng.integers(1, 12))
        one = np.zeros(1)
        table = Tables(np.zeros((R, R)), one, np.array([0, 1]), np.zeros(1, np.int64), one, one, links, R)
        found = annealing.set_caps(table, target, Loads(sending, link, cap, room))

        caps = np.array([0.0, target, *link, *(target - sending)] if links else [0.0])
        caps = caps[(caps >= 0) & (caps <= target), None]
        energies = np.maximum(0, sending - target + caps).sum(1) + np.maximum(0, link[:links] - caps).sum(1)
        assert found == pytest.approx(energies.min(), abs=1e-6)


def test_a_timeout_is_no_proof() -> None:
    """With searches that are cut off at once, the assumed bound rises to the best plan; the proved one does not."""
    instance = planner.load("torus2d", stages=16, replicas=4, objective="allreduce")
    result = planner.solve(instance, method="parmesan", options={"search-timeout": "0.001"})
    assert result.stop is Stop.COMPLETED and result.status is Status.FEASIBLE
    assert result.stats["searches_timed_out"] > 0 and "no proof" in result.reason
    assert result.bound is not None and result.bound < 0.9 * result.stats["assumed_bound"]
    assert result.bound == pytest.approx(single_bound(arrays(instance)))


def test_a_search_is_cut_off_after_so_many_devices_tried() -> None:
    """The same on every machine, and no proof either."""
    instance = planner.load("torus2d", stages=16, replicas=4, objective="allreduce")
    given = {"search-timeout": "none", "search-devices": "100"}
    first, again = (planner.solve(instance, method="parmesan", options=given) for _ in range(2))
    assert first.plan == again.plan and first.stats["devices_tried"] == again.stats["devices_tried"]
    assert first.stats["searches_timed_out"] > 0 and "cut off" in first.reason
    assert first.stats["devices_tried"] <= 101 * first.stats["searches"]
    assert first.bound == pytest.approx(single_bound(arrays(instance)))


def test_batches_of_targets_agree_with_one_at_a_time() -> None:
    instance = planner.load("two-level", stages=4, replicas=2, objective="p2p")
    found = [planner.solve(instance, method="parmesan-no-timeout", options={"targets": n}) for n in (1, 2, 5)]
    assert all(result.status is Status.OPTIMAL for result in found)
    assert len({round(result.objective or 0, 9) for result in found}) == 1


@pytest.mark.parametrize("order", paper.ORDERS)
@pytest.mark.parametrize("objective", ["p2p", "allreduce", "full"])
def test_the_checking_scheme_settles_every_node_once_everything_it_needs_is_there(objective: str, order: str) -> None:
    instance = planner.load("topology", kind="mesh2d", stages=6, replicas=4, graph="skip", objective=objective)
    scheme = paper.checking_scheme(instance, tables(instance), order)
    assert sorted(scheme.order) == sorted(scheme.checked) == list(range(24))
    for k in range(24):
        there = set(scheme.order[: k + 1].tolist())
        for node in scheme.checked[scheme.first[k] : scheme.first[k + 1]]:
            assert _needed(instance, int(node)) <= there
            assert not _needed(instance, int(node)) <= there - {int(scheme.order[k])}, "it could be checked before"


@pytest.mark.parametrize(
    ("objective", "order", "nodes", "anchors"),
    [
        ("p2p", "auto", [0, 3, 1, 4, 2, 5], [-1, 0, -1, 1, -1, 2]),
        ("allreduce", "auto", [0, 1, 2, 3, 4, 5], [-1, 0, 1, -1, 3, 4]),
        ("full", "auto", [0, 1, 2, 3, 4, 5], [-1, 0, 1, 0, 3, 4]),
        ("full", "replica-major", [0, 3, 1, 4, 2, 5], [-1, 0, 0, 1, 1, 2]),
        ("allreduce", "longest-ring-first", [3, 4, 5, 0, 1, 2], [-1, 3, 4, -1, 0, 1]),
    ],
)
def test_orders_of_two_stages_of_three_replicas(
    objective: str, order: str, nodes: list[int], anchors: list[int]
) -> None:
    """Node 3 s + r; an anchor is the last node before that the next one exchanges anything with."""
    stages = (MappingStage(1.0, 1.0), MappingStage(1.0, 2.0))
    speed = tuple(tuple(float(abs(a - b)) for b in range(6)) for a in range(6))
    instance = DeviceMapping("orders", stages, (MappingEdge(0, 1, 1.0),), 3, speed, objective=objective)
    scheme = paper.checking_scheme(instance, tables(instance), order)
    assert scheme.order.tolist() == nodes and scheme.anchor.tolist() == anchors
    assert scheme.near[2].tolist() == [5, 0, 4, 1, 3, 2] and scheme.near[6].tolist() == list(range(6))
    by_number = paper.checking_scheme(instance, tables(instance), order, "number")
    assert set(by_number.anchor.tolist()) == {-1}


def _needed(instance: DeviceMapping, node: int) -> set[int]:
    s, r = divmod(node, instance.replicas)
    R = instance.replicas
    if instance.objective == "allreduce":
        return {node, s * R + (r + 1) % R}
    near = {other * R + r for other, _ in instance.neighbours(s)}
    return {node} | near | ({s * R + each for each in range(R)} if instance.objective == "full" else set())


#: Published file, objective, milliseconds of Algorithm 1, which prove themselves or are optimal (specification).
MEASURED = (
    ("fig2", "p2p", 2.3333), ("hier16_8x2_chain", "p2p", 31.251), ("dgx8_2x4_chain", "full", 41.911),
    ("dgx8_4x2_chain", "full", 15.579), ("dgx16_16x1_chain", "p2p", 19.608),
)  # fmt: skip


@pytest.mark.paper
@thinned(("name", "objective", "milliseconds"), MEASURED)
def test_algorithm_1_on_published_files(published: Path, name: str, objective: str, milliseconds: float) -> None:
    instance = planner.load(published / "device_mapping" / f"{name}.json", objective=objective)
    result = planner.solve(instance, method="parmesan", limits=Limits(time_s=60))
    assert result.objective is not None and result.bound is not None and result.gap is not None
    assert 1e3 * result.objective == pytest.approx(milliseconds, rel=2e-4)
    assert result.gap <= paper.PRECISION


#: Published file, objective, milliseconds: the proved optimum where annealing must reach it.
OPTIMA = (
    pytest.param("hier16_4x4_chain", "full", 65.550, marks=pytest.mark.slow),
    pytest.param("dgx16_4x4_chain", "allreduce", 24.041, marks=pytest.mark.slow),
    pytest.param("dgx16_8x2_chain", "full", 23.379, marks=pytest.mark.slow),
    pytest.param("dgx32_4x8_chain", "full", 39.291, marks=pytest.mark.slow),
    pytest.param("dgx32_8x4_chain", "allreduce", 17.616, marks=pytest.mark.slow),
    pytest.param("torus2d64_16x4_chain", "allreduce", 19.097, marks=pytest.mark.slow),
    pytest.param("blk1_64_8x8_chain", "allreduce", 27.336, marks=pytest.mark.slow),
)


@pytest.mark.paper
@pytest.mark.parametrize(("name", "objective", "milliseconds"), OPTIMA)
def test_annealing_on_published_files(published: Path, name: str, objective: str, milliseconds: float) -> None:
    instance = planner.load(published / "device_mapping" / f"{name}.json", objective=objective)
    result = planner.solve(instance, method="anneal", limits=Limits(time_s=60))
    assert result.objective is not None
    assert 1e3 * result.objective == pytest.approx(milliseconds, abs=6e-4)


#: Without a limit and with one thread; with both in the slow tests.
@pytest.mark.parametrize(("threads", "seconds"), [(1, None), pytest.param(2, 20.0, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_dense_network_that_is_beyond_its_models_is_left_to_other_methods(
    threads: int, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six stages that all exchange tensors over fifteen bandwidths: too many literals for the level model."""
    monkeypatch.setattr(exact, "_TRIES", 2)
    monkeypatch.setattr(exact, "_IMPROVE_S", 0.1)
    rng = random.Random(5)
    links = [[0.0] * 6 for _ in range(6)]
    for a, b in itertools.combinations(range(6), 2):
        links[a][b] = links[b][a] = 10 ** rng.uniform(-2, 1)
    edges = tuple(MappingEdge(a, b, 10 ** rng.uniform(-1, 2)) for a, b in itertools.combinations(range(6), 2))
    stages = tuple(MappingStage(rng.uniform(0, 5), 0.0) for _ in range(6))
    instance = DeviceMapping("dense", stages, edges, 1, tuple(map(tuple, links)), objective="p2p")
    found = planner.solve(instance, exact=True, limits=Limits(time_s=seconds, threads=threads))
    assert (found.status, list(found.stats["tried"])[:1]) == (Status.OPTIMAL, ["exact"]) and found.seconds < allowed_s(
        10
    )
    assert found.objective == pytest.approx(least_seconds(instance), rel=1e-9)
    alone = planner.solve(instance, method="exact", limits=Limits(time_s=seconds, threads=threads))
    assert (alone.status, alone.stop) == (Status.FEASIBLE, Stop.COMPLETED)


@pytest.mark.parametrize(
    ("method", "places"),
    [
        ("fresh-first", ((0, 1), (3, 4), (2, 5))),
        ("append-first", ((0, 1), (2, 3), (4, 5))),
        ("scatter-first", ((0, 3), (1, 4), (2, 5))),
    ],
)
def test_policies_take_devices_by_machine(method: str, places: tuple[tuple[int, ...], ...]) -> None:
    """By hand: two machines of three devices, three stages of two replicas; then devices that no link tells apart."""
    devices = range(6)
    matrix = tuple(tuple(0.0 if a == b else 8.0 if a // 3 == b // 3 else 1.0 for b in devices) for a in devices)
    instance = DeviceMapping("two machines", (MappingStage(1, 1),) * 3, (), 2, matrix)
    assert planner.solve(instance, method=method).plan == {"devices": [list(row) for row in places]}
    equal = replace(instance, bandwidth_bytes_per_s=tuple(tuple(float(a != b) for b in devices) for a in devices))
    assert policies.machines_of(equal) == [[*devices]]


@pytest.mark.slow
def test_a_large_torus_is_left_by_far_targets() -> None:
    """Two levels of annealing alone end 5 % above the optimum, which is the simple bound."""
    instance, watch = planner.load("torus3d", stages=16, replicas=16), Watch()
    first_plan(instance, Limits()).find(watch)
    assert watch.best_objective is not None and watch.best_objective <= 1.01 * single_bound(arrays(instance))
