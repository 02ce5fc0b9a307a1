"""A simulated iteration as objective: the definition by hand, bounds, compiled orders, the search on brute force."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic, sleep
from typing import Any

import pytest
from numba import njit
from oracles.flushed_partitioning import brute_force, iteration_per_sample, simulated
from stopping import StopsAfter

import planner
from formulations.compiled.downsets import all_downsets
from formulations.flushed_partitioning import FAMILY
from formulations.flushed_partitioning.definition.problem import evaluate, simulate_batch
from formulations.flushed_partitioning.exact import iteration
from formulations.flushed_partitioning.kernels import iteration as kernels
from formulations.simulation import one_batch
from formulations.simulation.iteration import Stages, simulate
from formulations.simulation.orders import replicated
from formulations.simulation.simulate_graph import peak_in_flight
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from instances.problems.flushed_partitioning import Fill, FlushedInstance, Objective, Schedule, flush_pipeline
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from planner.process.errors import UsageError
from solvers.outcome import Limits, Stop, Watch


@njit  # a cache would not notice that the kernel has changed
def own_time(*arguments):
    """The inner function, which has no bridge from Python of its own."""
    return kernels._own(*arguments)


def chain(times: Sequence[str | float], m: int, **given) -> FlushedInstance:
    """A layer for each time; weights of 10 bytes, 1 byte in flight."""
    layers = tuple(Layer(v, {1: (Tmpc("x", float(time), 10.0, 1.0, 1.0),)}) for v, time in enumerate(times))
    edges = tuple(Edge(v, v + 1, 0.0) for v in range(len(times) - 1))
    flat = StageInstance("chain", layers, edges, 64, 100.0, 10.0, m)
    return replace(flush_pipeline(flat), objective=Objective.ITERATION, **given)


def plan(*stages: tuple[tuple[int, ...], int]) -> StagePlan:
    return StagePlan(tuple(Stage(nodes, d, 1, dict.fromkeys(nodes, "x")) for nodes, d in stages))


def test_heavy_stages_belong_in_front() -> None:
    """Equal sums and bottlenecks, for which the formula says 33; by hand: 27, 29, 31, 33 under 1F1B, four in batch."""
    for place, time in enumerate((27.0, 29.0, 31.0, 33.0)):
        times = "".join("6" if stage == place else "3" for stage in range(4))
        instance, made = chain(times, 4), plan(*(((v,), 1) for v in range(4)))
        assert evaluate(instance, made) == pytest.approx(time / 4)
        formula = replace(instance, objective=Objective.FORMULA, fill=Fill.REPLICAS)
        assert evaluate(formula, made) == pytest.approx(33 / 4)


def test_a_replica_runs_its_share_and_gradients_follow() -> None:
    """Two replicas of two stages of 3 s run three and two of five micro-batches: 12 s, and 20 bytes at 10 bytes/s."""
    assert evaluate(chain("33", 5), plan(((0,), 2), ((1,), 2))) == pytest.approx((4 * 3 + 2) / 5)


def test_memory_in_flight_is_what_the_orders_hold(cases: int) -> None:
    """With one degree exactly; of several, what the rule has room for."""
    for seed in range(cases):
        rng = random.Random(seed)
        is_uniform, p = rng.random() < 0.5, rng.randint(1, 4)
        degrees = [rng.randint(1, 3)] * p if is_uniform else [rng.randint(1, 4) for _ in range(p)]
        m = sum(degrees) + rng.randint(0, 9)
        held: dict[int, int] = {}
        for order in replicated("1f1b", degrees, m):
            held[order[0].stage] = max(held.get(order[0].stage, 0), peak_in_flight(order))
        room = [math.ceil(sum(degrees[s:]) / d) for s, d in enumerate(degrees)]
        assert all(held[s] <= room[s] for s in range(p)), seed
        if is_uniform:
            assert [held[s] for s in range(p)] == room, seed


def from_nothing(instance: FlushedInstance) -> float:
    """The least time that the search finds without the formula's plan, which is often the best one."""
    watch = Watch()
    tables = iteration.Tables(instance, all_downsets(instance.flat, 10**6), watch, math.inf)
    search = iteration.Search(tables, watch, math.inf)
    search.run(0.0)
    assert watch.best_objective is None or search.bound() == pytest.approx(search.best)
    return math.inf if watch.best_objective is None else watch.best_objective


@pytest.mark.parametrize("size", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_search_against_brute_force(size: int, cases: int) -> None:
    """Every plan, priced by formulas and simulated in orders that the oracle writes by itself."""
    seen = dict.fromkeys(["infeasible", "several degrees", "another plan", "branches"], 0)
    for seed in range(cases * 3):
        instance = simulated(seed, max_nodes=4, max_devices=size, memory="tight" if seed % 2 else "planted")
        best, found = brute_force(instance), iteration.solve(instance, Limits(), Watch())
        assert found.infeasible == (best is None), seed
        assert from_nothing(instance) == pytest.approx(math.inf if best is None else best, rel=1e-8, abs=1e-12), seed
        seen["infeasible"] += best is None
        if best is None:
            continue
        assert FAMILY.judge(instance, found.plan) == ()
        assert evaluate(instance, found.plan) == pytest.approx(best, rel=1e-8, abs=1e-12), seed
        assert found.stop is not Stop.SIZE_LIMIT
        assert best * (1 - 1e-6) - 1e-12 <= found.bound <= best * (1 + 1e-9) + 1e-12, seed
        seen["several degrees"] += len({stage.dp_degree for stage in found.plan.stages}) > 1
        seen["another plan"] += found.stats.get("first_plan", best) > best * (1 + 1e-6)
        seen["branches"] += len(all_downsets(instance.flat, 10**6)) > len(instance.flat.layers) + 1
    assert all(seen.values()), seen


def random_degrees(rng: random.Random) -> tuple[list[int], int]:
    """Degrees of some stages, one or several, and micro-batches enough for them."""
    p = rng.randint(1, 5)
    degrees = [rng.randint(1, 3)] * p if rng.random() < 0.3 else [rng.choice([1, 2, 3, 4, 8]) for _ in range(p)]
    return degrees, sum(degrees) + rng.randint(0, 20)


def test_a_batch_ends_when_all_its_passes_have_been_simulated(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all replicas, on chains and graphs; in Python or compiled, to the last bit."""
    for seed in range(cases * 20):
        rng = random.Random(seed)
        degrees, m = random_degrees(rng)
        schedule, m = str(rng.choice(list(Schedule))), rng.choice([m, rng.randint(1, m)])
        pairs = {(s, t) for t in range(1, len(degrees)) for s in (t - 1, rng.randrange(t)) if rng.random() < 0.8}
        steps = [rng.choice([0.0, 1.0, 10.0, rng.random()]) for _ in degrees]
        stages = Stages(*(tuple(step * share for step in steps) for share in (1 / 3, 2 / 3)), tuple(pairs))
        naive = simulate(stages, replicated(schedule, degrees, m)).makespan_s
        monkeypatch.setattr(one_batch, "_MANY", rng.choice([0, 10**9]))
        assert one_batch.end_of_batch(schedule, degrees, m, pairs, steps) == naive, seed


def test_no_bound_of_a_stage_is_above_the_iteration(cases: int) -> None:
    """Of any stage: what comes before it, its own passes, what comes behind; in most plans of one degree the whole."""
    tight = 0
    for seed in range(cases * 20):
        rng = random.Random(seed)
        degrees, m = random_degrees(rng)
        schedule, times = rng.choice(list(Schedule)), [rng.choice([1.0, 2.0, 3.0, 10.0]) for _ in degrees]
        made = plan(*(((v,), d) for v, d in enumerate(degrees)))
        weightless = replace(chain(times, m, schedule=schedule), flat=chain(times, m).weightless)
        ran = simulate_batch(weightless, made) * m
        is_uniform, trip, span = len(set(degrees)) == 1, 0.0, 0.0
        for number, (time, d) in reversed(list(enumerate(zip(times, degrees, strict=True)))):
            rounds = -(-m // d)
            k = rounds if schedule is Schedule.GPIPE else min(rounds, -(-sum(degrees[number:]) // d))
            own = own_time(time, rounds, k, trip, is_uniform and schedule is Schedule.GPIPE)
            span, trip = max(own, time + span), trip + time
        assert span <= ran * (1 + 1e-12), seed
        tight += is_uniform and span == pytest.approx(ran)
    assert tight > cases


def test_a_search_that_is_cut_off_has_a_plan_a_bound_and_a_gap() -> None:
    """No turn of the search: the plan of the formula, and a bound that no plan is below."""
    instance = chain("8462" * 2, 16)
    instance = replace(instance, flat=replace(instance.flat, num_devices=8))
    best = iteration.solve(instance, Limits(), Watch())
    for turns in range(3):
        watch = Watch()
        tables = iteration.Tables(instance, all_downsets(instance.flat, 100), watch, 2 * best.bound)
        search = iteration.Search(tables, watch, 2 * best.bound)
        for _ in range(turns):
            search._turn(search.queues[0], 0.0)
        assert 0 < search.bound() / 16 <= best.bound * (1 + 1e-8)
    watch = Watch()
    watch.stop(Stop.TIME_LIMIT)
    stopped = iteration.solve(instance, Limits(), watch)
    assert stopped.stop is Stop.TIME_LIMIT and not stopped.infeasible
    assert stopped.bound is None or stopped.bound <= best.bound * (1 + 1e-8)


def test_bounds_of_searches_that_end_early_hold(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after any number of polls, or content with a gap, with and without the formula's plan."""
    monkeypatch.setattr(iteration, "_TURN", 1)
    seen = dict.fromkeys(["stopped", "unknown"], 0)
    for seed in range(cases * 2):
        rng = random.Random(f"early {seed}")
        instance = simulated(seed, max_nodes=3, max_devices=4, memory="planted")
        best = brute_force(instance)
        watch = StopsAfter(rng.randint(0, 60)) if seed % 2 else Watch()
        gap = 0.0 if seed % 2 else rng.choice([0.05, 0.3])
        with monkeypatch.context() as patch:
            if rng.random() < 0.5:
                patch.setattr(iteration, "search_pareto_set", lambda *_: False)
            found = iteration.solve(instance, Limits(gap=gap) if gap else Limits(), watch)
        seen["stopped"] += found.stop is Stop.TIME_LIMIT
        seen["unknown"] += found.plan is None and not found.infeasible
        if best is None:
            assert found.plan is None, seed
            continue
        assert not found.infeasible and (found.bound is None or found.bound <= best * (1 + 1e-9)), seed
        if found.plan is not None:
            time = evaluate(instance, found.plan)
            assert time >= best * (1 - 1e-9), seed
            assert not gap or time - found.bound <= (gap + 1e-8) * time, seed
    assert all(seen.values()), seen


def test_the_time_limit_ends_compiled_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops poll a flag that nobody but a timer raises while they run."""

    def until_the_flag_is_raised(*arguments: object) -> bool:
        flag, late = arguments[-1], monotonic() + 20
        while not flag[0] and monotonic() < late:
            sleep(0.01)
        assert flag[0]
        return False

    monkeypatch.setattr(kernels, "fill_behind", until_the_flag_is_raised)
    limits = Limits(time_s=1.0)
    found = iteration.solve(chain("8462", 8), limits, Watch(limits))
    assert found.stop is Stop.TIME_LIMIT and not found.infeasible


def test_what_is_given_up_stays_in_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iteration, "_MOST_OPEN", 0)
    instance = replace(chain("9137546", 12), schedule=Schedule.ONE_F_ONE_B)
    instance = replace(instance, flat=replace(instance.flat, num_devices=6))
    found = iteration.solve(instance, Limits(), Watch())
    monkeypatch.undo()
    whole = iteration.solve(instance, Limits(), Watch())
    assert found.stop is Stop.SIZE_LIMIT and "beginnings" in found.reason
    assert found.bound < evaluate(instance, whole.plan) <= evaluate(instance, found.plan) * (1 + 1e-12)


def test_a_plan_that_breaks_a_requirement_is_passed_over() -> None:
    """Two stages are best on the catalog's chain; of one, three and four the best is proved as well."""
    free = planner.load("chain8-flushed", objective="iteration")
    times = {}
    for count in range(1, 5):
        found = planner.solve(replace(free, requirements=(f"num_stages == {count}",)), exact=True)
        assert found.method == "best-first" and found.status.value == "optimal" and len(found.plan["stages"]) == count
        times[count] = found.objective
    assert min(times, key=times.__getitem__) == 2 and times[2] == planner.solve(free).objective
    none = planner.solve(replace(free, requirements=("num_stages == 2", "num_stages == 3")), exact=True)
    assert none.status.value == "infeasible" and "requirements" in none.reason


@pytest.mark.parametrize(
    ("model", "devices", "m", "is_chain"),
    [("gpt", 16, 32, True), ("bert", 16, 32, False), pytest.param("gpt", 64, 64, True, marks=pytest.mark.slow),
     pytest.param("gpt", 16, 128, True, marks=pytest.mark.slow)],
)  # fmt: skip
def test_what_is_proved_is_what_an_oracle_simulates_and_no_plan_beats_it(
    model: str, devices: int, m: int, is_chain: bool
) -> None:
    """Not the optimum of a formula, nor that of training strategies, whose search shares nothing with this one."""
    given = {"devices": devices, "microbatches": m, "memory": "80GB", "bandwidth": "100GB/s"}
    seen = {}
    for name, settings in (
        ("stages", {"fill": "stages"}), ("replicas", {"fill": "replicas"}), ("clock", {"objective": "iteration"}),
    ):  # fmt: skip
        instance = planner.load(model, problem="flushed_partitioning", **given, **settings)
        found = planner.solve(instance, exact=True)
        assert found.status.value == "optimal", name
        seen[name] = iteration_per_sample(instance, found.plan)
        assert found.clock().iteration_s / m == pytest.approx(seen[name], rel=1e-9), name
    assert found.objective == pytest.approx(seen["clock"], rel=1e-9)
    assert found.objective <= min(seen.values()) * (1 + 1e-9) and seen["stages"] > found.objective * 1.01
    if is_chain:
        trainer = planner.load(model, problem="training_strategy", **given, realizable="megatron")
        other = planner.solve(trainer, exact=True)
        assert other.status.value == "optimal" and found.objective <= other.objective / m * (1 + 1e-9)


def test_branches_that_join_again_are_bounded_like_a_chain() -> None:
    """BERT's masks run beside its layers; without the links of stages a gap of 12 % is left."""
    instance = planner.load(
        "bert32", problem="flushed_partitioning", devices=16, microbatches=32, objective="iteration"
    )
    found = iteration.solve(instance, Limits(), StopsAfter(40_000))
    assert found.stop is Stop.COMPLETED and evaluate(instance, found.plan) <= found.bound * (1 + 1e-6)
    assert found.stats["grown"] < 200


def test_methods_state_one_objective_or_the_other() -> None:
    instance = chain("8462", 8)
    for method in FAMILY.methods:
        is_search = method.name in ("best-first", "cpsat-orders")
        assert (method.refusal(instance) is None) == is_search
        assert (method.refusal(replace(instance, objective=Objective.FORMULA)) is None) != is_search
    with pytest.raises(UsageError, match="objective iteration; it states a formula"):
        planner.solve(instance, method="milp")


@pytest.mark.parametrize(
    ("setting", "other", "default"),
    [("objective", Objective.ITERATION, Objective.FORMULA), ("fill", Fill.REPLICAS, Fill.STAGES)],
)
def test_the_default_stands_in_no_file(setting: str, other: Any, default: Any) -> None:
    given = replace(chain("86", 4), **{setting: other})
    plain = replace(given, **{setting: default})
    assert setting not in FAMILY.to_json(plain) and setting not in plain.options
    assert FAMILY.to_json(given)[setting] == other == given.options[setting]
    for content in (plain, FAMILY.to_json(plain)):
        assert getattr(FAMILY.read(content, "here", {}), setting) is default
        assert getattr(FAMILY.read(content, "here", {setting: str(other)}), setting) is other
    assert getattr(FAMILY.read(FAMILY.to_json(given), "here", {"microbatches": "7"}), setting) is other


def test_results_have_both_numbers() -> None:
    """On the catalog's chain the formula's best plan is one stage; two stages, of which the first is heavier, win."""
    found = planner.solve(planner.load("chain8-flushed", objective="iteration"))
    clock = found.to_json()["clock"]
    assert (found.status.value, len(found.plan["stages"])) == ("optimal", 2)
    assert clock["iteration_s"] == pytest.approx(8 * found.objective) and clock["kind"] == "iteration"
    assert clock["formula_s"] > clock["iteration_s"] * 1.01
    formula = planner.solve(planner.load("chain8-flushed"))
    assert len(formula.plan["stages"]) == 1 and formula.to_json()["clock"]["kind"] == "formula"
    assert formula.to_json()["clock"]["formula_s"] == pytest.approx(8 * formula.objective)
