"""Training strategies that a trainer can run: the exact search against all plans, and what asks about a trainer."""

import random
from dataclasses import replace
from functools import cache

import pytest
from oracles.training_strategy import plans
from thinned import thinned

import planner
from formulations.stage_partitioning.definition.trainers import TRAINERS
from formulations.training_strategy import FAMILY
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.settings import read
from formulations.training_strategy.definition.sharing import Shared
from formulations.training_strategy.degrees import all_degrees
from formulations.training_strategy.exact import solve
from formulations.training_strategy.layouts import Layouts, quick_bound
from formulations.training_strategy.trainer_chain import space_of
from instances.errors import InstanceError
from instances.generators.transformer import SELECTIVE, SELECTIVE_MLP
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from instances.problems.training_strategy import INNER, MACHINE, OUTER, Schedule, StrategyInstance, of_chain
from planner.files.load import family_of
from planner.solving.solve import run
from solvers.errors import UsageError
from solvers.outcome import Limits, Status, Watch

#: Sets of schedules, and most chunks of a device.
KINDS = ((("1f1b",), 1), (("1f1b", "gpipe"), 1), (("1f1b", "interleaved"), 2), (("gpipe", "zb-h1"), 1))

#: Its layers recompute beside a fastest way that trainers do not have (13 and 15 have such ways in several chunks).
_FASTEST_ELSEWHERE = 56
#: By default those that have few plans.
SOON = (0, 1, 3, 4, 7, 8, 9)


def chain(seed: int) -> StrategyInstance:
    """Layers with and without a choice of recomputation; ends and modules that trainers do not cut."""
    rng = random.Random(f"trainer {seed}")
    schedules, V = rng.choice(KINDS)
    if V > 1 and seed % 4 == 0:
        schedules, V = ("1f1b", "zb-v"), 1
    L = rng.randint(3, 5)
    head, behind = (rng.choice([0, 1, 1, 2]) if L > 3 else 0), rng.choice([0, 1])
    edges = [(v, v + 1) for v in range(L - 1)] + [(u, u + 2) for u in range(L - 2) if rng.random() < 0.15]
    is_shared = rng.random() < 0.2  # two neighbours of one module

    def ways(v: int, t: int) -> tuple[Tmpc, ...]:
        time, weight, held, static = (rng.randint(1, most) / t for most in (12, 4, 8, 6))
        forward = {u: 1.0 for u, w in edges if w == v} if t > 1 else {}
        found = [
            Tmpc("keep", time, weight, held, static, forward, {}),
            Tmpc("recompute", time + rng.randint(0, 4), weight, held * rng.choice([0, 0.25]), static, forward, {}),
        ]
        if rng.random() < 0.25:  # a fastest way that no trainer has
            found.append(Tmpc("zero1", time - 0.5, weight, held, static / 2, forward, {}))
        return tuple(rng.choices([found, found[:1], found[1:]], [8, 1, 1])[0])

    degrees = rng.choice([(1,), (1, 2), (2,)])
    layers = tuple(
        Layer(
            v,
            {t: ways(v, t) for t in degrees},
            role="embedding" if v < head else "head" if v >= L - behind else "decoder",
            module=f"layers.{v - (is_shared and v == head + 1)}",
        )
        for v in range(L)
    )
    flat = StageInstance(
        "chain",
        layers,
        tuple(Edge(u, v, float(rng.randint(0, 3))) for u, v in edges),
        rng.choice([2, 3, 4, 4]),
        float(rng.choice([1e9, rng.randint(8, 30), rng.randint(15, 60)])),
        float(rng.choice([1, 2, 5])),
        rng.choice([2, 4, 4, 6]),
    )
    made = of_chain(flat, tuple(map(Schedule, schedules)), V)
    return replace(made, overlaps_gradients=seed % 2 == 1, makes_again_in_turn=seed % 4 > 1)


@cache
def priced(seed: int) -> tuple[StrategyInstance, list[tuple[float, StrategyPlan]]]:
    """An instance and all its plans that keep the rules, by their time."""
    instance = chain(seed)
    read = (FAMILY.plan_from_json(instance, each) for each in plans(instance))
    found = [(FAMILY.evaluate(instance, plan), plan) for plan in read if not FAMILY.judge(instance, plan)]
    return instance, sorted(found, key=lambda each: each[0])


def requiring(instance: StrategyInstance, *requirements: str) -> StrategyInstance:
    return replace(instance, requirements=requirements)


@thinned("name", TRAINERS, 2)
def test_the_best_plan_of_a_trainer_is_found_and_proved(name: str, many: int) -> None:
    """Brute force over all plans, judged by the definition; at times with a degree required as well."""
    feasible = restricted = 0
    for seed in (*(range(many) or SOON), *((13,) if many else ()), 15, _FASTEST_ELSEWHERE):
        instance, every = priced(seed)
        more = ("dp_degree <= 1",) if seed % 4 == 0 else ("tp_degree == 2",) if seed % 9 == 1 else ()
        asked = requiring(instance, f"realizable({name}) == 1", *more)
        best = next((time for time, plan in every if not FAMILY.judge(asked, plan)), None)
        found = run(FAMILY, FAMILY.method("exact"), asked, Limits(), {})
        if best is None:
            assert found.status is Status.INFEASIBLE, (name, seed)
            continue
        assert found.status is Status.OPTIMAL, (name, seed, found.reason)
        assert found.objective == pytest.approx(best, rel=1e-9), (name, seed)
        feasible += 1
        restricted += best > every[0][0] * (1 + 1e-9)
    if TRAINERS[name].schedules:
        assert feasible > (many or 10) // 6 and restricted > 0
    else:
        assert not feasible


@thinned("name", [name for name, trainer in TRAINERS.items() if trainer.schedules], 2)
def test_no_bound_is_above_a_plan_of_the_trainer(name: str, many: int) -> None:
    """Those of a free choice in every piece, and those of each number of recomputed layers together."""
    seen = 0
    for seed in range(many // 3) or (*SOON[:4], 13):  # 13 has layers that lack a way to run
        instance, every = priced(seed)
        asked = requiring(instance, f"realizable({name}) == 1")
        own = [(time, plan) for time, plan in every if not FAMILY.judge(asked, plan)]
        space = space_of(asked)
        assert space is not None
        for degrees in all_degrees(space.instance):
            wanted = (degrees.p, degrees.t, degrees.d, degrees.V, degrees.schedule)
            times = [
                time
                for time, plan in own
                if (plan.pp_degree, plan.tp_degree, plan.dp_degree, plan.virtual_stages, plan.schedule) == wanted
            ]
            free = space.chain(space.instance, degrees.t, None, Shared())
            if not times:
                continue
            assert free is not None and degrees.num_chunks <= len(free.ids)
            numbers = space.numbers(degrees)
            made = (space.chain(space.instance, degrees.t, each, Shared()) for each in numbers)
            chains = [each for each in made if each is not None]
            low = Layouts(free, degrees).bound
            assert max(quick_bound(free, degrees), low) <= min(times) * (1 + 1e-12), (name, seed, degrees)
            least = min((Layouts(each, degrees).bound for each in chains), default=low)
            assert low * (1 - 1e-12) <= least <= min(times) * (1 + 1e-12), (name, seed, degrees)
            seen += 1
    assert seen > 5


def with_parts(seed: int) -> StrategyInstance:
    """The chain with ways that recompute a part of a layer, in most layers."""
    made, rng = chain(seed), random.Random(f"parts {seed}")

    def more(found: tuple[Tmpc, ...]) -> tuple[Tmpc, ...]:
        own, x = list(found), found[0]
        for name in (each for each in (SELECTIVE, SELECTIVE_MLP) if rng.random() < 0.7):
            time, held = x.time + rng.choice([0, 0.5, 1, 2]), x.activation_bytes * rng.choice([0, 0.25, 0.5])
            own.insert(rng.randint(0, len(own)), replace(x, id=name, time=time, activation_bytes=held))
        return tuple(own)

    layers = (replace(each, tmpcs={t: more(own) for t, own in each.tmpcs.items()}) for each in made.flat.layers)
    return replace(made, flat=replace(made.flat, layers=tuple(layers)))


def in_all(part: str, layer: Layer) -> dict[int, tuple[Tmpc, ...]]:
    """A layer's one way where all recompute a part: that, else one that keeps; at ends what they have."""
    found = {}
    for t, own in layer.tmpcs.items():
        wanted = (part, "keep") if layer.role == "decoder" else ("keep", "recompute")
        ways = sorted((x for x in own if x.id in wanted), key=lambda x: wanted.index(x.id))
        found |= {t: tuple(ways[:1])} if ways else {}
    return found


def test_a_part_is_recomputed_in_all_layers_or_in_none(cases: int) -> None:
    """Brute force: the best without such ways, and all cuts and degrees with one part wherever a layer has it."""
    better = 0
    for seed in range(cases) if cases > 8 else SOON:
        instance, (plain, every) = with_parts(seed), priced(seed)
        realizable = "realizable(megatron) == 1"
        asked, shape = requiring(instance, realizable), requiring(plain, realizable)
        times = [time for time, plan in every if not FAMILY.judge(shape, plan)][:1]
        kept = [replace(x, tmpcs={t: (replace(own[0], id="keep"),) for t, own in x.tmpcs.items()})
                for x in plain.flat.layers]  # fmt: skip
        shape = replace(shape, flat=replace(shape.flat, layers=tuple(kept), memory_bytes=1e12))
        for part in (SELECTIVE, SELECTIVE_MLP):
            narrow = (replace(x, tmpcs=in_all(part, x)) for x in instance.flat.layers)
            for each in plans(replace(instance, flat=replace(instance.flat, layers=tuple(narrow)))):
                plan = FAMILY.plan_from_json(instance, each)
                if part in plan.tmpcs.values() and not FAMILY.judge(instance, plan):
                    is_run = not FAMILY.judge(shape, replace(plan, tmpcs=dict.fromkeys(plan.tmpcs, "keep")))
                    assert is_run == (not FAMILY.judge(asked, plan)), (seed, plan)
                    times += [FAMILY.evaluate(instance, plan)] if is_run else []
        found = run(FAMILY, FAMILY.method("exact"), asked, Limits(), {})
        assert (found.status is Status.OPTIMAL) == bool(times), seed
        if times:
            assert found.objective == pytest.approx(min(times), rel=1e-9), seed
            better += "selective" in " ".join(found.own_plan.tmpcs.values())
    assert better


@pytest.mark.parametrize(
    ("requirements", "taken"),
    [
        (("realizable(torch)",), True),
        (("realizable(torch) >= 1", "pp_degree <= 2"), True),
        (("not realizable(torch)",), False),
        (("realizable(torch) >= 0",), False),
        (("realizable(torch)", "realizable(megatron)"), False),
    ],
)
def test_one_trainer_at_most_is_taken(requirements: tuple[str, ...], taken: bool) -> None:
    asked = requiring(planner.load("chain8-strategy"), *requirements)
    assert (FAMILY.method("exact").refusal(asked) is None) == taken
    assert all(method.refusal(asked) is not None for method in FAMILY.methods if method.name != "exact")


def test_what_no_trainer_runs_is_infeasible_in_words() -> None:
    asked = planner.load("chain8-strategy", realizable="vllm")
    found = solve(asked, Limits(), Watch())
    assert found.infeasible and found.reason.endswith("it has none: it trains nothing")
    asked = planner.load("chain8-strategy", schedule="zb-h1", virtual_stages=1, realizable="deepspeed")
    found = solve(asked, Limits(), Watch())
    assert found.infeasible and found.reason.endswith("it has 1f1b")
    found = solve(replace(asked, schedules=(Schedule.ONE_F_ONE_B,), host_bandwidth=1.0), Limits(), Watch())
    assert found.infeasible and found.reason == "optimizer states are on the host, which deepspeed has not"


@pytest.mark.parametrize("given", ["schedule(zb-h2) == 0", "sharding == 1"])
def test_requirements_may_name_what_a_trainer_has_not(given: str) -> None:
    """A schedule of others; a level of one replica, which shares nothing."""
    own = {"schedule": "1f1b,zb-h2", "virtual_stages": 1, "shard_optimizer": 1, "sharding": "0,1"}
    found = planner.solve(planner.load("chain8-strategy", realizable="torchtitan", require=given, **own))
    assert found.status is Status.OPTIMAL and found.plan["schedule"] == "1f1b"


def test_a_question_about_a_trainer_with_requirements_is_one_of_strategies() -> None:
    """Of a chain of stage partitioning, and of a batch of flushed partitioning, whose schedule it keeps."""
    asked = planner.load("chain8", realizable="megatron", require=["tp_degree == 2", "pp_degree <= 2"])
    assert isinstance(asked, StrategyInstance) and asked.schedules == (Schedule.ONE_F_ONE_B,)
    assert asked.requirements == ("realizable(megatron) == 1", "tp_degree == 2", "pp_degree <= 2")
    says = "read as training_strategy: the objective is a simulated iteration"
    assert FAMILY.warnings(asked)[-1].startswith(says) and "stage_partitioning" in FAMILY.warnings(asked)[-1]
    for own in ({"realizable": "megatron"}, {"objective": "iteration"}):  # of what declares it itself
        assert FAMILY.warnings(planner.load("chain8-strategy", **own)) == ()
    found = planner.solve(asked, exact=True)
    assert found.status is Status.OPTIMAL and found.plan["tp_degree"] == 2 and found.plan["pp_degree"] <= 2
    assert (clock := found.clock()) and clock.says == "an iteration of 8 micro-batches, 1F1B"
    batch = planner.load("chain8-flushed", realizable="galvatron", schedule="gpipe", require="pp_degree == 4")
    assert batch.schedules == (Schedule.GPIPE,) and planner.solve(batch, exact=True).status is Status.OPTIMAL
    assert type(planner.load("chain8", realizable="megatron")).__name__ == "StageInstance"
    with pytest.raises(InstanceError, match="expected one of pp_degree, tp_degree"):
        planner.load("chain8", realizable="megatron", require="nodes(0) <= 2")
    flushed = {"problem": "flushed_partitioning"}
    for given in ({"microbatches": 8}, {"objective": "iteration"}, {"require": "num_stages == 2"}, flushed):
        asked = planner.load("chain8", realizable="megatron", **given)
        assert isinstance(asked, StrategyInstance) and planner.solve(asked).objective == pytest.approx(0.2413, 4e-4)
    with pytest.raises(InstanceError, match="graphs: --problem stage_partitioning"):
        planner.load("bert32", realizable="megatron", microbatches=8)
    for given, wrong in ((flushed, {"fill": "replicas"}), ({"microbatches": 8}, {"objective": "tps"})):
        with pytest.raises(UsageError, match=r"--problem training_strategy|--objective is 'tps'; expected iteration"):
            planner.load("chain8", realizable="megatron", **given, **wrong)
    machines = planner.load("chain8-flushed", devices_per_machine=2, inner_bandwidth=1e10)
    with pytest.raises(InstanceError, match="devices_per_machine is 2; expected none"):
        planner.load(family_of(machines).to_json(machines), realizable="megatron")


def test_machines_that_an_import_notes() -> None:
    noted = replace(planner.load("chain8"), bandwidth=9e9, num_devices=8)
    for given, wrong, found in (
        ({"devices": 4}, {}, (6e9, None, None)),
        ({}, {}, (2e9, 4, 6e9)),
        ({"bandwidth": 1e9}, {INNER: 7 * 10**9}, (1e9, 4, 7e9)),  # as other programs write whole numbers
        ({"devices-per-machine": 2, "inner-bandwidth": 5e9}, {}, (2e9, 2, 5e9)),
        ({"devices": 4, "devices-per-machine": 2}, {}, (2e9, 2, 6e9)),
        ({"devices": 4, "inner-bandwidth": 5e9}, {}, (5e9, 4, 5e9)),
        *(({}, {name: wrong}, (9e9, None, None)) for name, wrong in ((INNER, -1.0), (OUTER, "fast"), (MACHINE, True))),
    ):
        flat = replace(noted, options={MACHINE: 4, INNER: 6e9, OUTER: 2e9} | wrong)
        made = read(flat, "test", given)
        assert (made.flat.bandwidth, made.devices_per_machine, made.inner_bandwidth) == found
        assert read(replace(flat, time_unit="ms"), "test", {}).devices_per_machine is None  # rates are of seconds
    before = {"hardware": "h100", "granularity": "block"}  # as imports wrote that had no notes
    for given, options, is_old in (({}, before, True), ({"bandwidth": 1e9}, before, False), ({}, flat.options, False)):
        warnings = read(replace(noted, options=options), "test", given).flat.warnings
        assert any("import it again" in each for each in warnings) == is_old
