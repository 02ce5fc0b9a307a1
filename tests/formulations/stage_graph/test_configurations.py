"""A micro-batch size and a k for each stage: every plan by brute force, and bounds that hold for all of them."""

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from branching_cases import iteration_graph, partitions, shares

import planner
from formulations.stage_graph import FAMILY
from formulations.stage_graph.costs.costs import Costs
from formulations.stage_graph.definition.plan import Stage, StagePlan
from formulations.stage_graph.definition.problem import bottleneck_s, data_edges, violations
from formulations.stage_graph.upsets import configurations
from formulations.stage_graph.upsets.bounds import Proof, prove, simple_bound
from formulations.stage_graph.upsets.branches import EqualBranches, UnsuitableError
from instances.generators.branching import mmt
from instances.problems.stage_graph import AffineTime, Operator, OperatorEdge, StageGraph
from planner.process.errors import UsageError
from solvers.outcome import Limits, Stop, Watch


def mixed_graph(number: int) -> StageGraph:
    """Up to four operators with little memory, in either schedule; a third with sizes that are no powers of two."""
    rng = random.Random(f"configurations {number}")
    found = replace(iteration_graph(rng), objective="tps", minibatch=rng.choice((2, 4, 4, 6)))
    whole = sum(4 * each.weight_bytes + 2 * each.activation_bytes for each in found.operators)
    memory = float(int(whole * rng.uniform(0.1, 0.8)))
    return replace(found, schedule=rng.choice(("per-stage", "kfkb")), memory_bytes=memory)


def tight_graph(number: int) -> StageGraph:
    """Three operators one behind another, or two behind the first; few samples in flight fit into memory."""
    rng = random.Random(f"tight {number}")
    kept = [float(rng.randint(1, 2)) for _ in range(3)]
    times = [AffineTime(rng.choice((0.0, 1.0)), float(rng.randint(1, 3))) for _ in range(3)]
    made = tuple(Operator("", *each, 0.0, a) for each, a in zip(zip(times, times, strict=True), kept, strict=True))
    edges = (OperatorEdge(0, 1, 0.0), OperatorEdge(rng.choice((0, 1)), 2, 0.0))
    return StageGraph("tight", made, edges, rng.randint(2, 3), float(rng.randint(2, 7)), 1.0, 0.0, 4,
                      schedule=rng.choice(("per-stage", "kfkb")))  # fmt: skip


def plans(instance: StageGraph) -> Iterator[StagePlan]:
    """All partitions, devices, sizes, k and samples in flight; many of them break a rule."""
    sizes, samples = instance.microbatch_sizes, instance.minibatch
    one = [(b, i, k) for b in sizes for i in range(b, samples + 1, b)
           for k in range(1, (samples // b if instance.schedule == "kfkb" else 1) + 1)]  # fmt: skip
    for parts in partitions(list(range(instance.num_operators))):
        for devices in shares(len(parts), instance.num_devices):
            for chosen in itertools.product(one, repeat=len(parts)):
                each = zip(parts, devices, chosen, strict=True)
                stages = tuple(Stage(tuple(part), own, *rest) for part, own, rest in each)
                yield StagePlan(stages, data_edges(instance, stages), instance.num_devices - sum(devices))


def least(instance: StageGraph) -> float:
    """The least time per sample of the slowest stage of a plan without violations; ``inf``: there is none."""
    best, taken = math.inf, dict[object, float]()
    for plan in plans(instance):
        key = tuple((stage.nodes, stage.devices, stage.microbatch) for stage in plan.stages)
        if key not in taken:  # whatever is in flight, and in whichever order
            idle = any(stage.devices > stage.microbatch for stage in plan.stages)
            taken[key] = math.inf if idle else bottleneck_s(instance, plan)
        if taken[key] < best and not violations(instance, plan):
            best = taken[key]
    return best


def small(first: int, count: int) -> Iterator[tuple[int, StageGraph]]:
    """Instances of so few plans that all can be listed."""
    made = ((number, mixed_graph(number)) for number in itertools.count(first))
    most = {2: 4, 4: 3, 6: 2}  # operators, by samples
    yield from itertools.islice((each for each in made if each[1].num_operators <= most[each[1].minibatch]), count)
    yield from ((number, tight_graph(number)) for number in range(first + 2, first + 2 + count // 4))


def test_against_every_plan(many: int) -> None:
    seen = dict.fromkeys(["infeasible", "mixed", "kfkb", "better than one size"], 0)
    for number, instance in small(0, 2 * many or 16):  # the last is better than with one size
        best, answer = least(instance), configurations.solve(instance, Limits(), Watch())
        assert answer.stop is Stop.PROVED and answer.infeasible == (best == math.inf), number
        seen["infeasible"] += answer.infeasible
        if answer.plan is None:
            continue
        assert violations(instance, answer.plan) == () and answer.bound is not None
        assert bottleneck_s(instance, answer.plan) == pytest.approx(best, rel=1e-9), number
        assert best * (1 - 1e-6) <= answer.bound <= best * (1 + 1e-9), number
        seen["mixed"] += len({stage.microbatch for stage in answer.plan.stages}) > 1
        seen["kfkb"] += instance.schedule == "kfkb"
        one = planner.solve(replace(instance, schedule="uniform"), exact=True)
        seen["better than one size"] += one.objective is None or one.objective > best * (1 + 1e-6)
    assert all(seen.values()), seen


def test_a_stage_keeps_enough_for_every_stage_behind_it() -> None:
    """Micro-batches of one sample: one more than a stage behind with one, all four for one with four in flight."""
    made = tuple(Operator("", AffineTime(0.0, 1.0), AffineTime(0.0, 1.0), 0.0, 1.0) for _ in range(3))
    edges = (OperatorEdge(0, 1, 0.0), OperatorEdge(0, 2, 0.0))
    instance = StageGraph("fork", made, edges, 3, 100.0, 1.0, 0.0, 4, microbatches=(1, 4), schedule="per-stage")
    search = configurations.Configurations(Costs(instance), Watch())
    search.target_s = math.inf
    one, four = (1, 1, 1), (4, 4, 1)
    for behind, kept in (((one, one), 2), ((one, four), 4), ((four, one), 4)):
        (found, *_) = search._stages(1, frozenset(behind))
        state = (6, ((1, behind[0]), (2, behind[1])))
        search._known = {(7, ()): configurations.Step(0)}
        assert search._fits(state, 1) and search._known[state].stage == found and found.in_flight == kept
    for target_s, fits in ((0.1, False), (9.0, True), (0.1, False), (math.inf, True)):  # no target knows of another
        assert (search.within(target_s) is not None) == fits


def test_bounds_over_upsets_hold_with_a_size_for_each_stage(cases: int) -> None:
    """Of models made of chains; with enough memory they are met."""
    met = 0
    for number, instance in small(5_000, cases):
        costs = Costs(instance)
        try:
            relaxation = EqualBranches(costs, Watch())
        except UnsuitableError:
            continue
        best = least(instance)
        proof = prove(costs, relaxation, Watch(), Proof(simple_bound(costs)), 1e-4)
        assert not proof.infeasible or best == math.inf, number
        assert proof.bound_s <= best, number
        met += best < math.inf and proof.bound_s >= best * (1 - 1e-3)
    assert met > cases / 16


def test_a_published_search_of_its_own_sizes_ends_at_once_where_memory_is_no_limit() -> None:
    """MMT on 8 devices: the plan with one size is the best with a size for each stage; minutes without that bound."""
    for schedule in ("per-stage", "kfkb"):
        instance = replace(mmt(devices=8), schedule=schedule)
        result = planner.solve(instance, method="graphpipe", limits=Limits(time_s=20.0))
        assert result.stop is Stop.COMPLETED and result.objective == pytest.approx(6.9419e-3, rel=1e-4)


def test_what_it_takes() -> None:
    (method,) = [each for each in FAMILY.methods if each.name == "configurations"]
    instance = replace(mmt(1, 2, devices=2), schedule="kfkb")
    assert method.misfit(instance) is None
    assert planner.solve(replace(instance, minibatch=4), exact=True).method == "configurations"
    with pytest.raises(UsageError, match="schedule uniform"):
        planner.solve(replace(instance, schedule="uniform"), method="configurations")
    assert "operators" in str(method.misfit(replace(mmt(devices=2), schedule="kfkb")))
