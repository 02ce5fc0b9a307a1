"""The appendix's recursion against brute force, and properties of its optimum."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from oracles.hierarchical_partitioning import BruteForce, random_hierarchical, same, tight_chain, tight_graph
from strategies import random_stage_instance, with_wide_weights

import planner
from formulations.compiled.downsets import all_downsets
from formulations.contract.rounding import step_below
from formulations.hierarchical_partitioning import FAMILY, paper
from formulations.hierarchical_partitioning.definition.plan import HierarchicalPlan
from formulations.hierarchical_partitioning.definition.problem import evaluate, violations
from formulations.hierarchical_partitioning.effort import effort
from formulations.hierarchical_partitioning.paper import Search, solve
from formulations.hierarchical_partitioning.questions.why_infeasible import why_infeasible
from instances.problems.hierarchical_partitioning import HierarchicalInstance, Level, MemoryModel, on_machines
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from solvers.memory_budget import SizeError
from solvers.outcome import Limits, Status, Stop, Watch


def optimum(instance: HierarchicalInstance) -> float | None:
    answer = solve(instance, Limits(), Watch())
    if answer.infeasible:
        return None
    assert answer.plan is not None and answer.bound is not None
    assert violations(instance, answer.plan) == ()
    objective = evaluate(instance, answer.plan)
    assert answer.bound <= objective * (1 + 1e-12) and objective <= answer.bound * (1 + 1e-8) + 1e-12
    return objective


def test_the_recursion_proves_infeasibility_by_itself() -> None:
    infeasible = [found for found in map(random_hierarchical, range(60)) if BruteForce(found).solve() is None]
    assert infeasible
    for instance in infeasible:
        found = planner.solve(instance, method="piper-hierarchical")
        assert (found.status, found.proved_by) == (Status.INFEASIBLE, "search")


def wide(seed: int) -> HierarchicalInstance:
    """Beside weights of 1e18 bytes running sums lose the digits of what other stages and machines synchronise."""
    found = tight_graph(seed)
    return replace(found, flat=with_wide_weights(found.flat, random.Random(seed), 18))


@pytest.mark.parametrize(
    ("make", "seeds"),
    [
        (random_hierarchical, [1877]),  # degrees of later stages leave no room for one that was listed
        (tight_graph, [1583, 2239]),  # splits listed for one sum of degrees behind them that another would not have
        (wide, [283, 584]),  # weights of stages, of machines
        (tight_chain, [647]),  # a stage that is admitted for every s behind it but not with one choice of TMPCs
    ],
)
def test_brute_force_agrees(make: Callable[[int], HierarchicalInstance], seeds: list[int], cases: int) -> None:
    infeasible = 0
    for seed in (*seeds, *range(cases)):
        instance = make(seed)
        expected = BruteForce(instance).solve()
        infeasible += expected is None
        assert same(optimum(instance), expected), seed
    assert 0 < infeasible < cases


def test_a_machine_may_be_full_of_transfers() -> None:
    """a | b on two machines of one device: 5 s of work and 2 * 2 bytes at 1 byte/s; together they take 10 s."""
    layers = tuple(Layer(v, {1: (Tmpc("x", 5.0, 100.0, 1.0, 1.0),)}) for v in "ab")
    flat = StageInstance("full", layers, (Edge("a", "b", 2.0),), 2, 100.0, 1.0, 2)
    assert optimum(on_machines(flat, 1, 2, 1.0, 10.0)) == 9.0


def test_the_label_with_the_most_machines_left_decides_what_can_follow() -> None:
    """w, u and z fill a machine each at T = 1; z alone could also take two, with fewer micro-batches in flight.

    What does not fit for its memory (a = 10 with two in flight) makes the work of w and u look small.
    """
    slow = {t: (Tmpc("slow", 1.0, 0.0, 0.0, 0.0),) for t in (3, 4)}
    z = {1: (Tmpc("fast", 2.0, 0.0, 0.0, 1.0),), 4: (Tmpc("slow", 1.0, 0.0, 0.0, 1.0),)}
    light = {1: (Tmpc("large", 1.0, 0.0, 10.0, 0.0),)}
    tmpcs = {"w": {**light, 4: slow[4]}, "u2": {1: slow[3]}, "u1": {**light, 3: slow[3]}, "z2": z, "z1": z}
    names = list(tmpcs)
    edges = tuple(Edge(u, v, 0.0) for u, v in pairwise(names))
    flat = StageInstance("full", tuple(Layer(v, tmpcs[v]) for v in names), edges, 12, 10.0, 1.0, 16)
    assert optimum(on_machines(flat, 4, 3, 1.0, 1.0)) == 1.0


def test_a_stage_cut_off_by_the_sum_of_degrees_is_tried_with_fewer_behind_it() -> None:
    """u needs d = 3 of N = 5: that leaves z two, which it has on two machines; on one alone it takes four."""
    z = {1: (Tmpc("fast", 2.0, 0.0, 0.0, 1.0),), 4: (Tmpc("slow", 1.0, 0.0, 0.0, 1.0),)}
    u = {1: (Tmpc("alone", 3.0, 0.0, 0.0, 10.0),)}
    layers = (Layer("u", u), Layer("z2", z), Layer("z1", z))
    flat = StageInstance("cut", layers, (Edge("u", "z2", 0.0), Edge("z2", "z1", 0.0)), 12, 10.0, 1.0, 5)
    assert optimum(on_machines(flat, 4, 3, 1.0, 1.0)) == 1.0


def test_a_stage_whose_tmpcs_differ_in_weight_is_not_listed_for_all_that_may_be_behind_it() -> None:
    """u keeps within T = 1 by "stored" only, which fits with two in flight: behind z of one degree, not of seven.

    One degree of z takes two machines and leaves none for w; the fastest TMPC of u always fits, but is heavy.
    """
    heavy, stored = Tmpc("heavy", 3.9, 100.0, 0.0, 0.0), Tmpc("stored", 4.0, 0.0, 5.0, 0.0)
    w, z = {5: (Tmpc("x", 1.8, 0.0, 0.0, 0.0),)}, {t: (Tmpc("x", p, 0.0, 0.0, 0.0),) for t, p in ((1, 7.0), (4, 2.0))}
    layers = (Layer("w", w), Layer("u", {1: (heavy, stored)}), Layer("z", z))
    flat = StageInstance("uneven", layers, (Edge("w", "u", 0.0), Edge("u", "z", 0.0)), 21, 10.0, 1.0, 21)
    instance = on_machines(flat, 7, 3, 1.0, 1.0)
    expected = BruteForce(instance).solve()
    assert expected is not None and expected > 1.0
    assert same(optimum(instance), expected)


def test_lists_of_stages_may_be_forgotten_and_made_again(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for the stages of one downset only."""
    for seed in range(cases // 2):
        expected = optimum(tight_chain(seed))
        with monkeypatch.context() as patched:
            patched.setattr(paper, "_ARCS", 1)
            assert same(optimum(tight_chain(seed)), expected), seed


def test_no_weight_is_cut_that_some_machines_can_synchronise(cases: int) -> None:
    """On d_2 machines a link takes 4 (d_2 - 1) / d_2^2 W / B_2, the least on all of them."""
    rng, cuts = random.Random(6), 0
    for _ in range(cases):
        weight, T, K2 = 10.0 ** rng.uniform(0, 12), 10.0 ** rng.uniform(-6, 6), rng.choice([2, 3, 64, 1024])
        layer = Layer("v", {1: (Tmpc("only", 1.0, weight, 1.0, 1.0),)})
        instance = on_machines(StageInstance("heavy", (layer,), (), 1, 1e9, 1.0, 8), 1, K2, 1.0, 1.0)
        search = paper.Search(instance, all_downsets(instance.flat, 10), np.zeros(1, np.uint8))
        search._cut_links(T)
        assert 4 * (K2 - 1) / K2**2 * weight > T or search.links.weight[-1] == weight
        cuts += search.links.weight[-1] < weight
    assert cuts


def test_one_machine_with_a_free_link_is_the_flat_problem(cases: int) -> None:
    for seed in range(cases // 2):
        flat = random_stage_instance(seed, cost_model="paper", exactly=False, max_dp=False)
        result = planner.solve(flat, method="exact")
        alone = on_machines(flat, flat.num_devices, 1, flat.bandwidth, 1e30)
        assert same(optimum(alone), result.objective), seed


def test_what_would_make_it_feasible() -> None:
    """Nodes that lose a TMPC to the memory change the order of downsets."""
    graph = tight_graph(56)
    instance = replace(graph, flat=replace(graph.flat, memory_bytes=0.0))
    least = why_infeasible(instance, Limits(), Watch())[1]["least_memory_bytes"]
    for memory, feasible in ((least, True), (step_below(least), False)):
        assert (optimum(replace(graph, flat=replace(graph.flat, memory_bytes=memory))) is not None) is feasible


def one_stage_of_two_layers() -> HierarchicalInstance:
    """One machine that holds both layers in its only stage, which has to hold just what it needs."""
    first = Tmpc("c0", 0.0, 3.1936995381572575, 1.997945718633929, 2.6445868512212005)
    second = Tmpc("c0", 0.0, 0.0, 3.8435444955798395, 0.0, {0: 2.617408901313882})
    layers = (Layer(0, {2: (first,)}), Layer("n1", {2: (second,)}))
    flat = StageInstance("two", layers, (Edge(0, "n1", 0.5),), 3, 2.136251480602851, 2.0, 8)
    return on_machines(flat, 3, 1, 8.0, 2.0, MemoryModel.CRUDE)


def test_the_least_memory_is_that_of_the_only_plan() -> None:
    starved = one_stage_of_two_layers()
    found = planner.solve(starved, exact=True)
    assert found.status is Status.INFEASIBLE
    assert found.reason.endswith("; infeasible: 1 machine with 3 devices of 20.1690575 bytes would suffice")
    assert found.stats["least_memory_bytes"] == 20.1690575
    for memory, status in (("20.1690575", Status.OPTIMAL), ("20.1690574", Status.INFEASIBLE)):
        for method in ("piper-hierarchical", "cpsat"):
            assert planner.solve(FAMILY.read(starved, "two", {"memory": float(memory)}), method=method).status is status


def test_memory_that_was_not_tried_to_the_end_is_not_called_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    test, answers = Search.test, []
    for most in range(60):
        watch = Watch()

        def counted(search: Search, T: float, most: int = most, watch: Watch = watch) -> int:
            if search.tests >= most:
                watch.stop(Stop.INTERRUPTED)
            return test(search, T)

        monkeypatch.setattr(Search, "test", counted)
        answers.append(why_infeasible(one_stage_of_two_layers(), Limits(), watch))
        if answers[-1][1]:
            break
    assert "would suffice" not in answers[0][0]
    assert any(sentence.endswith("bytes would suffice, maybe less") for sentence, _ in answers[1:-1])
    assert answers[-1] == (
        "infeasible: 1 machine with 3 devices of 20.1690575 bytes would suffice",
        {"least_memory_bytes": 20.1690575},
    )


@pytest.mark.paper
def test_published_bert_on_eight_machines_of_eight(published) -> None:
    flat = planner.load("bert32a100.json", inputs=str(published), memory="4GiB")
    instance = on_machines(flat, 8, 8, 300e9, 25e9)
    # found here; the paper names this cluster (Appendix E) and prints no value for it
    assert optimum(instance) == pytest.approx(0.0370185441, rel=1e-8)


def test_tables_that_do_not_fit_for_shorter_times_end_with_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    best = paper.solve(random_hierarchical(2), Limits(), Watch()).bound

    def no_room(*_args: object, **_options: object) -> None:
        raise SizeError("no room")

    monkeypatch.setattr(paper, "minimise", no_room)
    answer = paper.solve(random_hierarchical(2), Limits(), Watch())
    assert answer.stop is Stop.SIZE_LIMIT and answer.reason == "no room"
    assert best is not None and answer.bound is not None and 0 < answer.bound <= best


def test_predicted_effort_grows_as_measured() -> None:
    """64 to 256 layers on 32 machines took 3.9 times as long; splits without pruning would be 45 times as many."""
    given = {"problem": FAMILY.name, "devices_per_machine": 8, "num_machines": 32}
    links = {"inner_bandwidth": "300GB/s", "outer_bandwidth": "25GB/s"}
    few, many = (effort(planner.load("bert", layers=layers, **given, **links)) for layers in (64, 256))
    assert 2 < many / few < 8


Cut = tuple[int, int, int]


def chain(seed: int, *upper: Level) -> HierarchicalInstance:
    draw = np.random.default_rng(seed)
    n = int(draw.integers(2, 5))
    times, weights, cuts = (draw.integers(1, 9, n).astype(float).tolist() for _ in range(3))
    layers = tuple(Layer(v, tmpcs={1: (Tmpc("keep", times[v], weights[v], 0.0, 0.0),)}) for v in range(n))
    edges = tuple(Edge(v, v + 1, cuts[v]) for v in range(n - 1))
    flat = StageInstance("chain", layers, edges, 1, 1e9, 1.0, 64)
    return on_machines(flat, 2, 2, float(draw.integers(2, 9)), float(draw.integers(1, 5)), upper_levels=upper)


def own_costs(instance: HierarchicalInstance, beside: bool) -> dict[int, float]:
    """By machines in use: the least time of all plans of stages on machines and stages inside, by PipeDream's costs."""
    layers = [layer.tmpcs[1][0] for layer in instance.flat.layers]
    cuts, n = [0.0, *(edge.bytes for edge in instance.flat.edges), 0.0], len(layers)

    def cost(x: int, y: int, m: int, whole: float, bandwidth: float, is_first: bool) -> float:
        sums = 4 * (m - 1) / m * sum(layer.weight_bytes for layer in layers[x:y]) / bandwidth
        own = (max(whole, sums) if beside else whole + sums) / m
        return own if is_first else max(own, 2 * max(cuts[x], cuts[y]) / m / bandwidth)

    def ways(x: int, y: int, workers: int) -> Sequence[list[Cut]]:
        return [
            list(zip((x, *inner), (*inner, y), degrees, strict=True))
            for count in range(1, y - x + 1)
            for inner in combinations(range(x + 1, y), count - 1)
            for degrees in product(range(1, workers + 1), repeat=count)
            if sum(degrees) == workers
        ]

    @cache
    def machine(x: int, y: int) -> float:
        return min(
            max(
                cost(a, b, d, sum(layer.time for layer in layers[a:b]), instance.inner_bandwidth, a == x)
                for a, b, d in stages
            )
            for stages in ways(x, y, instance.devices_per_machine)
        ) if ways(x, y, instance.devices_per_machine) else math.inf  # fmt: skip

    return {
        workers: min(
            max(cost(a, b, d, machine(a, b), instance.outer_bandwidth, a == 0) for a, b, d in stages)
            for stages in ways(0, n, workers)
        )
        for workers in range(1, instance.num_machines + 1)
    }


def machines(plan: HierarchicalPlan) -> int:
    return sum(superstage.dp_degree for superstage in plan.stages)


@pytest.mark.parametrize("sync", ["beside", "after"])
def test_the_plan_is_the_best_by_pipedreams_costs(cases: int, sync: str) -> None:
    split = 0
    for instance in map(chain, range(max(20, cases))):
        found = planner.solve(instance, method="pipedream-recursion", options={"sync": sync})
        best = own_costs(instance, sync == "beside")
        assert found.stats["own_objective"] == pytest.approx(min(best.values()), rel=1e-12)
        assert found.stats["own_objective"] == pytest.approx(best[machines(found.own_plan)], rel=1e-12)
        split += any(len(superstage.inner) > 1 for superstage in found.own_plan.stages)
    assert split


def test_levels_above_machines_and_rules_are_kept() -> None:
    groups = 0
    for seed in range(20):
        found = planner.solve(chain(seed, Level(2, 1.0)), method="pipedream-recursion")
        assert found.plan is not None and violations(chain(seed, Level(2, 1.0)), found.own_plan) == ()
        groups = max(groups, *(group.size for group in found.own_plan.groups[0]))
    assert groups > 1
    none = 0
    for seed in range(40):
        instance = random_hierarchical(seed)
        result = planner.solve(instance, method="pipedream-recursion")
        best = planner.solve(instance, exact=True)
        assert result.objective is None or (best.objective or 0) <= result.objective * (1 + 1e-9)
        none += "none of its plans keeps the rules; the fastest breaks memory" in result.reason
    assert none
