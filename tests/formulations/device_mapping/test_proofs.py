"""Bounds and models against brute force, each other, and the known optima of larger instances."""

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.device_mapping import least_seconds, random_mapping, small_mappings
from thinned import thinned

import planner
from formulations.device_mapping import FAMILY, exact
from formulations.device_mapping.annealing import far
from formulations.device_mapping.annealing.baselines import stage_major
from formulations.device_mapping.bounds.combinatorial import assignment_bound, groupings, refutes_target
from formulations.device_mapping.bounds.ladders import ladders_fit
from formulations.device_mapping.bounds.matching import bottleneck_cost, can_deal
from formulations.device_mapping.data.arrays import arrays
from formulations.device_mapping.data.costs import single_bound
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.definition.problem import evaluate
from formulations.device_mapping.models import all_bounds, cpsat
from formulations.device_mapping.models.bisect_gap import Gap, Verdict, close, objective_values
from formulations.device_mapping.models.flow import chords
from formulations.device_mapping.models.links import LinkModel
from formulations.device_mapping.models.machine_groups import cycles, places_of, ring_speed
from formulations.device_mapping.models.model_choice import TargetModels
from formulations.device_mapping.models.symmetry import orbits
from instances.generators.topologies import topology
from instances.problems.device_mapping import DeviceMapping, MappingEdge, MappingStage
from solvers.cpsat import backend
from solvers.outcome import Limits, Status, Stop, Watch

Solve = Callable[[DeviceMapping, Limits, Watch], Any]


def models_of(instance: DeviceMapping) -> TargetModels:
    given = arrays(instance)
    return TargetModels(given, Gap(given, Watch(), objective_values(given)), Limits())


def is_no(verdict: Verdict) -> bool:
    """A model alone refutes; where shared bounds are asked first, they may exclude a target before it."""
    return verdict in (Verdict.REFUTED, Verdict.EXCLUDED)


def assert_proved(instance: DeviceMapping, solve: Solve, optimum: float, limits: Limits | None = None) -> None:
    answer = solve(instance, limits or Limits(), Watch())
    assert FAMILY.judge(instance, answer.plan) == ()
    assert evaluate(instance, answer.plan) == pytest.approx(optimum, rel=1e-6, abs=1e-12)
    assert answer.bound == pytest.approx(optimum, rel=1e-6, abs=1e-12)
    assert answer.bound <= optimum * (1 + 1e-9) and answer.stop is Stop.PROVED


def test_exact_is_optimal_with_one_thread_and_with_two(cases: int) -> None:
    for number, instance in enumerate(small_mappings(22, cases // 3)):
        assert_proved(instance, exact.solve, least_seconds(instance), Limits(threads=1 + number % 2, seed=number))


def test_every_bound_is_one(cases: int) -> None:
    for instance in small_mappings(24, cases):
        optimum, given = least_seconds(instance), arrays(instance)
        assert single_bound(given) <= assignment_bound(given) * (1 + 1e-12) <= optimum * (1 + 1e-11)
        assert not refutes_target(given, optimum) and not refutes_target(given, optimum * (1 - 1e-13))
        answer = all_bounds.solve(instance, Limits(), Watch())
        assert answer.bound <= optimum * (1 + 1e-9)


def least_of_all(instance: DeviceMapping) -> float:
    """The optimum over all placements at once: 8! of them in a second."""
    stages, replicas = len(instance.stages), instance.replicas
    at = np.array([*itertools.permutations(range(stages * replicas))]).reshape(-1, stages, replicas)
    with np.errstate(divide="ignore"):
        per_byte = 1 / np.array(instance.bandwidth_bytes_per_s)
    seconds = np.zeros(at.shape)
    for edge in instance.edges:
        sending = edge.volume_bytes * per_byte[at[:, edge.source], at[:, edge.target]]
        seconds[:, edge.source] += sending
        seconds[:, edge.target] += sending
    for number, stage in enumerate(instance.stages):
        orders = itertools.permutations(range(replicas)) if instance.ring == "free" else [range(replicas)]
        rings = (at[:, number, list(order)] for order in orders)
        links = np.min([per_byte[ring, np.roll(ring, -1, axis=1)].max(axis=1) for ring in rings], axis=0)
        ring = 2 * (replicas - 1) * stage.parameter_bytes / replicas * links
        seconds[:, number] += stage.compute_s + ring[:, None]
    return float(seconds.max(axis=(1, 2)).min())


def test_two_rings_side_by_side_refute_nothing_that_is_possible(cases: int) -> None:
    rng, refuted, looked_at = random.Random(34), 0, 0
    while looked_at < 4 * cases:
        instance = random_mapping(rng, 8 if looked_at % 8 == 0 else 6, "full")
        if not instance.edges or not 1 < instance.replicas < 5:
            continue
        looked_at += 1
        optimum, given = least_of_all(instance), arrays(instance)
        assert ladders_fit(given, optimum)
        refuted += not ladders_fit(given, optimum * (1 - 1e-6))
    assert refuted > cases


def test_two_long_rings_do_not_go_side_by_side_in_a_grid() -> None:
    """A ladder of neighbours is straight: 16 rungs close on a torus of 16 x 16, 32 do not, and none do on a mesh."""
    known = (("torus2d", 16, 16, 24.89092), ("torus2d", 8, 32, 38.32842), ("mesh2d", 16, 16, 26.71120))
    for kind, stages, replicas, bound_ms in known:
        given = arrays(planner.load(kind, stages=stages, replicas=replicas, objective="full"))
        assert ladders_fit(given, bound_ms / 1000 * 1.00001) and not ladders_fit(given, bound_ms / 1000 * 0.9999)


def test_free_rings_need_not_go_side_by_side() -> None:
    """Petersen's graph of fast links: two rings of five and a link from each device of one to the other, no ladder."""
    fast = {tuple(sorted(e)) for k in range(5) for e in ((k, (k + 1) % 5), (k, k + 5), (k + 5, (k + 2) % 5 + 5))}
    speed = tuple(
        tuple((a != b) * (8.0 if (min(a, b), max(a, b)) in fast else 4.0) for b in range(10)) for a in range(10)
    )
    stages, rows = (MappingStage(0.0, 30.0),) * 2, ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
    free = DeviceMapping("rings", stages, (MappingEdge(0, 1, 8.0),), 5, speed, "full", "free")
    assert evaluate(free, Mapping(rows, ((0, 1, 2, 3, 4), (0, 2, 4, 1, 3)))) == 7.0
    assert ladders_fit(arrays(free), 7.0) and not ladders_fit(arrays(replace(free, ring="index")), 7.0)


def test_relaxations_never_refute_what_is_possible(cases: int) -> None:
    """Groups of devices, bandwidths rounded up, and all models at the optimum itself."""
    for instance in small_mappings(25, cases // 3):
        optimum, models = least_seconds(instance) * (1 + 1e-12), models_of(instance)
        if optimum == 0:  # nothing to decide
            continue
        for groups in groupings(models.arrays):
            assert not is_no(models.places(places_of(models.arrays, groups), optimum, 10))
        assert not is_no(models.rounded_level(optimum, 10))
        if not models.arrays.has_rings:
            assert not is_no(models.flow(optimum, 10))
        assert models_of(instance).level(optimum, 10) is Verdict.MET


def test_the_flow_and_the_level_model_agree(cases: int) -> None:
    """Without cycles in the stage graph both are exact; just below the optimum both refute."""
    looked_at = 0
    for instance in small_mappings(26, cases, objective="p2p"):
        given = arrays(instance)
        if not given.edges or chords(given.num_stages, [edge[:2] for edge in given.edges])[0]:
            continue
        looked_at += 1
        optimum = least_seconds(instance)
        assert models_of(instance).flow(optimum, 10) is Verdict.MET
        for name in ("flow", "level"):
            assert is_no(getattr(models_of(instance), name)(optimum * (1 - 1e-6), 10))
    assert looked_at > cases // 10


@pytest.mark.parametrize("stages", [3, 4])
def test_the_flow_closes_around_cycles(stages: int) -> None:
    """Two replicas of stages in a cycle, few fast links; of four a chord is what two edges compose to."""
    rng, count = random.Random(29), 2 * stages
    for _ in range(3 * (5 - stages)):
        speed = [[0.0] * count for _ in range(count)]
        for a, b in itertools.combinations(range(count), 2):
            speed[a][b] = speed[b][a] = rng.choice([1.0, 2.0, 9.0])
        pairs = [*itertools.pairwise(range(stages)), (0, stages - 1)]
        edges = tuple(MappingEdge(a, b, float(rng.randint(1, 9))) for a, b in pairs)
        instance = DeviceMapping("cycle", (MappingStage(0.0, 0.0),) * stages, edges, 2, tuple(map(tuple, speed)), "p2p")
        least = least_of_all(instance)
        assert models_of(instance).flow(least * (1 + 1e-12), 10) is Verdict.MET
        assert is_no(models_of(instance).flow(least * (1 - 1e-6), 10))


def test_chords_generate_all_cycles() -> None:
    assert chords(4, [(0, 1), (1, 2), (2, 3)]) == ([], [])
    triangles, extra = chords(4, [(0, 1), (1, 2), (2, 3), (3, 0)])
    assert len(triangles) == 2 and len(extra) == 1
    assert len(chords(6, [(a, (a + 1) % 6) for a in range(6)])[1]) == 3


def test_the_models_of_rings_agree(cases: int) -> None:
    """Columns, sets of links and positions meet the optimum, and refute what is just below it."""
    looked_at = 0
    for instance in small_mappings(28, cases, objective="allreduce"):
        given, optimum = arrays(instance), least_seconds(instance)
        if not given.has_rings or given.replicas < 3:
            continue
        looked_at += 1
        for name in ("cycles", "links", "level"):
            models = models_of(instance)
            assert getattr(models, name)(optimum, 10) is Verdict.MET
            assert models.gap.upper == pytest.approx(optimum)
            assert is_no(getattr(models_of(instance), name)(optimum * (1 - 1e-6), 10))
    assert looked_at > cases // 10


def test_short_cycles_are_cut_off() -> None:
    """Six devices in two triangles of fast links: a ring of six must leave them."""
    speed = [[0.0 if a == b else 9.0 if a // 3 == b // 3 else 1.0 for b in range(6)] for a in range(6)]
    stage = MappingStage(1.0, 3.0)
    instance = DeviceMapping("triangles", (stage,), (), 6, tuple(map(tuple, speed)), "allreduce")
    fast = 1 + instance.ring_bytes(0) / 9.0
    assert is_no(models_of(instance).links(fast, 10))
    model = LinkModel(replace(arrays(instance)), fast)
    run = backend.run(model.model, Limits())
    assert sorted(map(len, model.decode(run.values)[0])) == [3, 3]
    assert_proved(instance, cpsat.solve, 1 + instance.ring_bytes(0))


def test_cycles_meet_the_demand_of_every_stage() -> None:
    """Two triangles that are fast enough for one stage, none for the other one."""
    speed = [[0.0 if a == b else 5.0 if a // 3 == b // 3 else 1.0 for b in range(6)] for a in range(6)]
    stages = (MappingStage(1.0, 9.0), MappingStage(1.0, 3.0))
    instance = DeviceMapping("demands", stages, (), 3, tuple(map(tuple, speed)), "allreduce")
    slow, quick = (1 + instance.ring_bytes(stage) / 5.0 for stage in range(2))
    assert models_of(instance).cycles(slow, 10) is Verdict.MET
    assert is_no(models_of(instance).cycles((slow + quick) / 2, 10))


@pytest.mark.slow  # by default the MILP's (`test_milp`)
@pytest.mark.parametrize("seed", [1, 2])
def test_free_rings_beside_edges(seed: int) -> None:
    """Eight devices: the order of a ring of four is a choice of its own."""
    kind = ("random-blk-1", "dgx1")[seed % 2]
    instance = planner.load(kind, stages=2, replicas=4, objective="full", ring="free", seed=seed)
    optimum = least_of_all(instance)
    assert arrays(instance).separate_rings
    assert_proved(instance, exact.solve, optimum)


def test_what_lies_below_targets_beyond_a_model_is_no_endless_search() -> None:
    """Bounds refute all up to some target, and the model says nothing above it: a step below it ends the search."""
    given = arrays(planner.load("uniform-dist", stages=4, replicas=4, objective="full"))
    gap = Gap(given, Watch(), None)
    gap.offer(stage_major(given.instance))
    middle = 0.5 * gap.upper
    close(gap, lambda target, _: Verdict.EXCLUDED if target < middle else Verdict.BEYOND)
    assert 0.999 * middle < gap.lower < middle and sum(gap.counts.values()) < 17


def test_deep_annealing_reports_what_it_finds_and_repeats() -> None:
    instance = planner.load("uniform-dist", stages=4, replicas=4, objective="full")
    found = []
    for _ in range(2):
        watch = Watch()
        far.search(instance, 3, watch.part(), tries=8)
        assert evaluate(instance, watch.best_plan) == pytest.approx(watch.best_objective, rel=1e-12)
        found.append(watch.best_plan)
    assert found[0] == found[1]
    assert evaluate(instance, found[0]) < 0.5 * evaluate(instance, stage_major(instance))


def test_dealing_is_halls_condition(cases: int) -> None:
    rng = np.random.default_rng(5)
    for _ in range(cases):
        stages, each = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        allowed = rng.random((stages, stages * each)) < 0.6
        expected = all(
            allowed[list(some)].any(axis=0).sum() >= len(some) * each
            for size in range(1, stages + 1)
            for some in itertools.combinations(range(stages), size)
        )
        assert can_deal(allowed, each) == (expected and bool(allowed.any(axis=0).all()))
        costs = np.where(allowed, rng.integers(1, 5, allowed.shape), np.inf)
        least = bottleneck_cost(costs, each)
        assert np.isfinite(least) == can_deal(allowed, each)
        if np.isfinite(least):
            assert can_deal(costs <= least, each) and not can_deal(costs < least, each)


def test_orbits_of_networks() -> None:
    def of(kind: str, devices: int, **given: Any) -> list[int]:
        matrix = topology(kind, devices, **given)
        stages = (MappingStage(0.0, 0.0),) * len(matrix)
        return sorted(set(orbits(arrays(DeviceMapping("orbits", stages, (), 1, tuple(map(tuple, matrix)))))))

    assert of("torus2d", 16) == of("torus3d", 64) == of("two-level", 16, per_node=4) == [0]
    assert len(of("dgx1", 8)) < 8 and len(of("mesh2d", 9)) == 3
    assert len(of("uniform-dist", 8, seed=1)) == 8


def test_cycles_are_counted() -> None:
    complete = [[b for b in range(5) if b != a] for a in range(5)]
    assert len(list(cycles(complete, 3))) == 2 * 10 and len(list(cycles(complete, 5))) == 2 * 12
    assert len(list(cycles(complete, 2))) == 10
    line = [[1], [0, 2], [1]]
    assert list(cycles(line, 3)) == []
    assert ring_speed(np.array([[0, 3, 1], [3, 0, 2], [1, 2, 0.0]]), 3) == 1.0
    assert ring_speed(np.array([[0, 3], [3, 0.0]]), 3) == 0.0


#: Optima in milliseconds (specification of the family's measured table), with the objective.
KNOWN = [
    ("fig2", "p2p", 2.3333), ("hier16_8x2_chain", "p2p", 31.251), ("hier16_4x4_chain", "full", 65.550),
    ("dgx8_2x4_chain", "full", 41.911), ("dgx8_4x2_chain", "full", 15.579), ("dgx16_16x1_chain", "p2p", 19.608),
    ("dgx16_4x4_chain", "allreduce", 24.041), ("dgx16_8x2_chain", "full", 23.379),
    ("dgx32_4x8_chain", "full", 39.291), ("dgx32_8x4_chain", "allreduce", 17.616),
    ("torus2d64_16x4_chain", "allreduce", 19.097),
]  # fmt: skip
KNOWN_SLOW = [
    ("dgx32_8x4_chain", "full", 29.465),
    ("torus2d64_16x4_chain", "full", 27.396),
    ("torus3d64_8x8_chain", "full", 33.132),
    ("unif64_4x16_chain", "allreduce", 52.443),
    ("blk1_64_8x8_chain", "allreduce", 27.336),
]


@pytest.mark.paper
@thinned(
    ("name", "objective", "optimum_ms"),
    [*KNOWN, *(pytest.param(*known, marks=pytest.mark.slow) for known in KNOWN_SLOW)],
)
def test_known_optima_are_proved(published: Path, name: str, objective: str, optimum_ms: float) -> None:
    instance = planner.load(str(published / "device_mapping" / f"{name}.json"), objective=objective)
    result = planner.solve(instance, method="exact", limits=Limits(time_s=120, threads=2))
    assert result.status is Status.OPTIMAL and result.objective is not None
    assert 1000 * result.objective == pytest.approx(optimum_ms, abs=6e-4)
