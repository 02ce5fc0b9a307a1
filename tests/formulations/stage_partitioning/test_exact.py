"""The exact method against brute force, and what it says of infeasible instances."""

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from oracles.stage_partitioning import brute_force
from strategies import random_stage_instance, with_wide_weights

from formulations.compiled.downsets import all_downsets
from formulations.compiled.numba_kernels import FOUND, NONE
from formulations.stage_partitioning.definition.problem import evaluate, violations
from formulations.stage_partitioning.exact import threshold
from formulations.stage_partitioning.kernels import labels, tables
from formulations.stage_partitioning.kernels.tables import build_profile, most_weight
from formulations.stage_partitioning.paper import piper
from formulations.stage_partitioning.questions import why_infeasible
from formulations.tmpc_knapsack.kernels.decision import decide
from instances.graph import downsets
from instances.problems.stage_partitioning import CostModel, Edge, Layer, StageInstance, Tmpc
from solvers.outcome import Limits, Stop, Watch


def agrees(instance: StageInstance) -> bool:
    """Check the method against brute force; True if the instance is feasible."""
    answer, best = threshold.solve(instance, Limits(), Watch()), brute_force(instance)
    if best is None:
        assert answer.infeasible and answer.plan is None and answer.bound is None
        return False
    assert answer.plan is not None and violations(instance, answer.plan) == ()
    objective = evaluate(instance, answer.plan)
    assert objective == pytest.approx(best.time, rel=1e-9)
    assert answer.bound is not None and answer.bound <= best.time
    assert answer.bound >= objective * (1 - 1e-8)
    return True


def test_agrees_with_brute_force(cases: int) -> None:
    feasible = sum(agrees(random_stage_instance(seed)) for seed in range(cases))
    assert cases // 4 < feasible < cases  # both answers occur


def test_edges_past_a_stage_cost_it_nothing(cases: int) -> None:
    for seed in range(cases):
        agrees(random_stage_instance(seed, shape="random", max_tmpcs=1, max_devices=6, memory="ample"))


def test_every_sum_counts_where_one_is_asked_for(cases: int) -> None:
    for seed in range(cases):
        agrees(random_stage_instance(seed, exactly=True, max_tmpcs=2, max_devices=7, memory="tight"))


def test_agrees_with_the_published_program_on_larger_instances(cases: int) -> None:
    """Too large for brute force: many labels a downset, and knapsacks of many nodes."""
    feasible = 0
    for seed in range(cases // 2):
        instance = random_stage_instance(seed, max_nodes=14, max_devices=24, max_tmpcs=3, memory="tight", shape="chain")
        answer = threshold.solve(instance, Limits(), Watch())
        witness = piper.solve_exact_knapsack(instance, Limits(), Watch())
        assert answer.infeasible == witness.infeasible
        if answer.plan is not None:
            assert witness.plan is not None and violations(instance, answer.plan) == ()
            assert evaluate(instance, answer.plan) == pytest.approx(evaluate(instance, witness.plan), rel=1e-8)
            feasible += 1
    assert feasible > cases // 5


def test_decision_agrees_with_enumeration(cases: int) -> None:
    rng = random.Random(7)
    verdicts = {FOUND: 0, NONE: 0}
    for _ in range(cases * 5):
        sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 6))]
        start = np.array([sum(sizes[:v]) for v in range(len(sizes) + 1)])
        pool = [(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(rng.randint(1, 12))]
        picked = [rng.choice(pool) for _ in range(int(start[-1]))]  # equal options and twins are common
        cost = np.array([float(c) for c, _ in picked])
        memory = np.array([float(m) for _, m in picked])
        reachable = {(0, 0)}
        for v in range(len(sizes)):
            reachable = {
                (c + picked[x][0], m + picked[x][1]) for c, m in reachable for x in range(start[v], start[v + 1])
            }
        capacity, budget = float(rng.randint(0, 30)), rng.choice([float(rng.randint(0, 30)), math.inf])
        choice = np.zeros(len(sizes), np.int64)
        verdict = decide(len(sizes), start, cost, memory, capacity, budget, choice, np.zeros(1, np.uint8))
        assert (verdict == FOUND) == any(c <= budget and m <= capacity for c, m in reachable)
        verdicts[verdict] += 1
        if verdict == FOUND:
            chosen = start[:-1] + choice
            assert cost[chosen].sum() <= budget and memory[chosen].sum() <= capacity
    assert min(verdicts.values()) > cases // 2


def test_equal_ratios_keep_their_order() -> None:
    """On a line of tenths, the second step's ratio is the smaller by one rounding; it cannot be taken alone."""
    start, cost = np.array([0, 3, 6]), np.array([0.5, 1.1, 2.0, 0.9, 1.2000000000000002, 1.5])
    memory = np.array([10.0, 9.6, 9.0, 8.8, 7.9, 7.000000000000001])
    choice = np.zeros(2, np.int64)
    assert decide(2, start, cost, memory, 17.8, math.inf, choice, np.zeros(1, np.uint8)) == FOUND
    assert memory[start[:-1] + choice].sum() <= 17.8


def test_decision_over_numbers_of_any_size(cases: int) -> None:
    """Options that fit by no means must not drown the digits of those that do."""
    rng = random.Random(5)
    for _ in range(cases * 20):
        sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
        start = np.array([sum(sizes[:v]) for v in range(len(sizes) + 1)])
        cost, memory = (
            np.array([rng.choice([0.0, 10 ** rng.uniform(low, high)]) for _ in range(int(start[-1]))])
            for low, high in ((-9, 6), (-3, 13))
        )
        options = [range(start[v], start[v + 1]) for v in range(len(sizes))]
        totals = [(math.fsum(cost[list(x)]), math.fsum(memory[list(x)])) for x in itertools.product(*options)]
        budget, capacity = rng.choice(totals)[0] * (1 + 1e-9), rng.choice(totals)[1] * (1 + 1e-12)
        choice = np.zeros(len(sizes), np.int64)
        verdict = decide(len(sizes), start, cost, memory, capacity, budget, choice, np.zeros(1, np.uint8))
        assert (verdict == FOUND) == any(c <= budget and m <= capacity for c, m in totals)


def test_huge_numbers_for_what_is_impossible(cases: int) -> None:
    """Profiles mark configurations that cannot run by enormous times or sizes; the rest is of ordinary size."""
    rng = random.Random(3)
    checked = 0
    for seed in range(cases):
        instance = random_stage_instance(seed, max_nodes=4, max_devices=4)
        layers = tuple(
            replace(layer, tmpcs={t: (*found, *impossible(rng)) for t, found in layer.tmpcs.items()} | {5: ()})
            if rng.random() < 0.5
            else replace(layer, tmpcs={t: layer.tmpcs.get(t) or impossible(rng) for t in (1, 2)})
            for layer in instance.layers
        )
        checked += agrees(replace(instance, layers=layers))
    assert checked > cases // 4


def impossible(rng: random.Random) -> tuple[Tmpc, ...]:
    return (Tmpc("impossible", *rng.choice([(1e30, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1e30), (1e18, 1e9, 1e17, 1e17)])),)


def test_weights_that_no_replica_could_synchronise(cases: int) -> None:
    """Beside 1e18 bytes, running sums lose the digits of what other stages do synchronise."""
    for seed in (874, *range(cases)):
        instance = with_wide_weights(random_stage_instance(seed, max_nodes=5), random.Random(seed), 18)
        agrees(instance)


@pytest.mark.parametrize("limit", [0.0, 5e-324, 1.0, 1e300, 1e308, math.inf])
def test_weights_are_cut_far_above_what_matters_or_not_at_all(limit: float) -> None:
    cut = tables.heaviest(np.array([0.0, 1e300]), limit)
    assert math.isinf(cut) if limit in (0.0, 1e300, 1e308, math.inf) else 16 * limit <= cut <= max(2e-300, 1e6 * limit)


def test_no_weight_is_cut_that_some_replicas_can_synchronise(cases: int) -> None:
    rng = random.Random(5)
    cuts = 0
    for _ in range(cases):
        weight, T = 10.0 ** rng.uniform(0, 12), 10.0 ** rng.uniform(-6, 6)
        layer = Layer("v", {1: (Tmpc("only", 1.0, weight, 1.0, 1.0),)})
        profile = build_profile(StageInstance("heavy", (layer,), (), 4096, 1e9, 1.0, 4096), prune=True)
        possible = any(
            resync * weight <= d * T for d, resync in zip(profile.dp_degrees, profile.resync, strict=True) if d > 1
        )
        assert not possible or most_weight(profile, T) >= weight
        cuts += most_weight(profile, T) < weight
    assert cuts


def test_downsets_agree_with_the_plain_enumeration() -> None:
    for seed in range(50):
        instance = random_stage_instance(seed)
        found = all_downsets(instance, 10_000)
        plain = downsets(len(instance.layers), instance.edge_indices, 10_000)
        assert found is not None and plain is not None
        assert sorted(int(row[0]) for row in found) == sorted(plain)
        assert all_downsets(instance, len(plain) - 1) is None
        assert all_downsets(instance, len(plain)) is not None


def test_what_is_too_large_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT proves infeasibility of graphs with more downsets than the tables hold: then no way out is known."""
    instance = chain(4, memory_bytes=1.0)
    assert why_infeasible.why_infeasible(instance, Limits(), Watch())[1].keys() == {"least_memory_bytes"}
    monkeypatch.setattr(why_infeasible, "MAX_DOWNSETS", 3)
    sentence, figures = why_infeasible.why_infeasible(instance, Limits(), Watch())
    assert "would suffice" not in sentence and figures == {}


def chain(num_layers: int, **fields: object) -> StageInstance:
    layers = tuple(
        Layer(v, {1: (Tmpc("fast", 1.0 + v % 3, 1.0, 2.0, 1.0), Tmpc("light", 2.0 + v % 3, 1.0, 1.0, 1.0))})
        for v in range(num_layers)
    )
    edges = tuple(Edge(v, v + 1, 1.0) for v in range(num_layers - 1))
    instance = StageInstance("chain", layers, edges, 8, 40.0, 10.0, 64, CostModel.RELEASED)
    return replace(instance, **fields)  # type: ignore[arg-type]


def test_more_devices_or_memory_never_hurt() -> None:
    objectives = [[value(chain(10, num_devices=K, memory_bytes=M)) for M in (20.0, 30.0, 60.0)] for K in (2, 4, 8, 16)]
    assert objectives == [sorted(row, reverse=True) for row in objectives]
    assert list(zip(*objectives, strict=True)) == [
        tuple(sorted(c, reverse=True)) for c in zip(*objectives, strict=True)
    ]


def value(instance: StageInstance) -> float:
    answer = threshold.solve(instance, Limits(), Watch())
    return evaluate(instance, answer.plan) if answer.plan else math.inf


def test_too_many_downsets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threshold, "MAX_DOWNSETS", 10)
    answer = threshold.solve(chain(10), Limits(), Watch())
    assert answer.stop is Stop.SIZE_LIMIT and answer.plan is None and not answer.infeasible


def test_linear_orders_give_the_first_plan_of_wide_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threshold, "_CHAIN_FIRST", 0)
    for seed in range(20):
        agrees(random_stage_instance(seed))


def test_labels_of_one_downset_may_take_the_same_degree() -> None:
    """The last layer takes 3 devices at s = 1 or 2 at s = 2; only the second leaves the first layer the two it needs.

    No two neighbours share a tensor-parallel degree, so every layer is a stage.
    """

    def layer(name: str, *options: tuple[int, float, float]) -> Layer:
        return Layer(name, {t: (Tmpc("only", time, 0.0, held, 0.0),) for t, time, held in options})

    first, middle = layer("w", (1, 1.0, 1.0), (2, 1.0, 0.5)), layer("y", (4, 1.0, 0.0))
    last = layer("z", (1, 2.0, 0.0), (3, 1.0, 0.0))
    edges = (Edge("w", "y", 0.0), Edge("y", "z", 0.0))
    instance = StageInstance("labels", (first, middle, last), edges, 8, 2.0, 1.0, 8)
    assert agrees(instance) and value(instance) == 1.0


def test_a_degree_that_is_too_dear_for_its_sum_has_larger_ones() -> None:
    """Sums are prescribed: at d = 1 two devices do what one does; at d = 2 only they do, as they have no weights."""
    first = Layer("a", {t: (Tmpc("only", 1.0, weight, 0.0, 0.0),) for t, weight in ((1, 99.0), (2, 0.0))})
    last = Layer("b", {1: (Tmpc("only", 1.0, 99.0, 0.0, 0.0),)})
    instance = StageInstance("sums", (first, last), (Edge("a", "b", 0.0),), 5, 9.0, 1.0, 3, exactly=True)
    assert agrees(instance) and value(instance) == 1.0


def test_memory_is_saved_where_it_costs_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra cost is that of the least combination of steps of the stage's own nodes, the last one in part."""
    monkeypatch.setattr(labels, "_count", lambda word: int(word).bit_count())
    monkeypatch.setattr(labels, "ratio_order", lambda _, up, down, m: np.argsort(up[:m] / down[:m], kind="stable"))
    monkeypatch.setattr(labels, "saving_order", labels.saving_order.py_func)
    rng = np.random.default_rng(3)
    for _ in range(200):
        m, kinds = int(rng.integers(1, 100)), int(rng.integers(2, 9))
        rise, saving = rng.integers(1, kinds, m).astype(float), rng.integers(1, kinds, m).astype(float)
        pairs = [
            (Tmpc("fast", 1, 0, 0, 9), Tmpc("light", 1 + up, 0, 0, 9 - down))
            for up, down in zip(rise, saving, strict=True)
        ]
        layers = tuple(Layer(v, {1: pair}) for v, pair in enumerate(pairs))
        profile = build_profile(StageInstance("walk", layers, (), 1, 9.0, 1.0, 1), prune=True)
        scratch = threshold.make_scratch(profile)
        slot = labels.new_slot.py_func(profile, 0, 1, scratch)
        assert kinds > 2 or scratch.runs[slot] == -(-m // 64), "steps of equal layers are one"
        before, behind = sorted(int(each) for each in rng.integers(0, m + 1, 2))
        bits = tables.pack([(1 << before) - 1, (1 << behind) - 1], m)
        need = float(rng.integers(1, 3 * m))
        work = (slot, scratch.runs, scratch.place, scratch.members, scratch.rise, scratch.saving)
        found = labels.saving_cost.py_func(bits, 0, 1, need, math.inf, *work)
        own, room = range(before, behind), saving[before:behind].sum() - need
        if room < 0:
            assert found == (math.inf, math.inf)
            continue
        # The relaxation: all steps are taken, but for those of the worst ratios that are not needed.
        cost, left = sum(rise[v] for v in own), room
        for v in sorted(own, key=lambda v: -rise[v] / saving[v]):
            cost, left = cost - rise[v] * min(1.0, left / saving[v]), max(0.0, left - saving[v])
        assert found[0] == pytest.approx(cost, abs=1e-9) and found[1] >= found[0] - 1e-9
        below = 0.9 * cost
        early = labels.saving_cost.py_func(bits, 0, 1, need, below, *work)[0]
        assert below - 1e-9 <= early <= cost + 1e-9, "more than is of interest, and still a lower bound"


def test_a_choice_keeps_to_the_memory_of_its_test_where_one_can() -> None:
    """The fast TMPC needs a little more than what the definition's slack allows, and the search's own noise would."""
    tmpcs = (Tmpc("fast", 1.0, 0.0, 0.0, 50 * (1 + 3e-12)), Tmpc("light", 2.0, 0.0, 0.0, 50.0))
    other = (Tmpc("only", 1.0, 0.0, 0.0, 50.0),)
    instance = StageInstance("two", (Layer(0, {1: tmpcs}), Layer(1, {1: other})), (), 1, math.inf, 1.0, 1)
    profile = build_profile(instance, prune=True)
    downsets = all_downsets(instance, 10)
    assert downsets is not None
    search = threshold.ThresholdSearch(
        instance, profile, tables.build_lattice(profile, downsets), np.zeros(1, np.uint8)
    )
    for memory, expected in ((101.0, "fast"), (100.0, "light")):
        search.limit_memory(memory)
        assert search.plan(search.test(math.inf), math.inf).stages[0].tmpcs == {0: expected, 1: "only"}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("least", [5e-324, 1e-310, 1e-300, 1.0])
def test_work_is_a_sum_of_times_at_any_size(least: float):
    layers = tuple(Layer(v, {1: (Tmpc("only", least * (v + 1), 0.0, 0.0, 0.0),)}) for v in range(3))
    instance = StageInstance("small", layers, (Edge(0, 1, 0.0), Edge(1, 2, 0.0)), 2, 1.0, 1.0, 2)
    profile = build_profile(instance, prune=False)
    lattice = tables.build_lattice(profile, tables.pack([0b000, 0b001, 0b011, 0b111], 3))
    assert lattice.work.tolist() == pytest.approx([0.0, least, 3 * least, 6 * least], rel=1e-14, abs=0)
