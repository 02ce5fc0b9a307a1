"""Certificates of flushed partitioning: accepted where all plans, priced in fractions, confirm them."""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import pytest
from certificate_cases import Spoiling, certified, claimed, mutants, parsed
from oracles import stage_partitioning
from oracles.flushed_partitioning import exact_iteration, on_machines, random_flushed, simulated

from formulations.contract.family import UncertifiedError
from formulations.flushed_partitioning.certificate import checker
from formulations.flushed_partitioning.certificate.writer import write
from instances.problems.flushed_partitioning import FlushedInstance, Objective, Schedule, flush_pipeline
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from solvers.outcome import Watch

#: C, R and L of a plan; where replicas fill P/m, R and S; of an iteration E/m, R and 1.
Price = tuple[Fraction, Fraction, Fraction | int]


def small(number: int, **fixed: Any) -> FlushedInstance:
    """At most three layers, with whole numbers: C is often a limit exactly."""
    return random_flushed(number, **{"max_nodes": 3, "max_tmpcs": 2, **fixed})


def price(instance: FlushedInstance, plan: dict) -> Price | None:
    """The `Price` of a plan, exactly; ``None`` if it does not fit into the memory, or on the machines."""
    flat, m = instance.flat, instance.flat.num_microbatches
    B, room = Fraction(flat.bandwidth), Fraction(flat.memory_bytes) * (1 + Fraction(1, 10**12))
    by_replicas = instance.fill == "replicas"
    layers = {str(layer.id): layer.tmpcs for layer in flat.layers}
    ends = [(str(e.source), str(e.target), e) for e in flat.edges]
    slowest, s, depth, volumes = Fraction(0), 0, dict[str, Fraction | int](), list[tuple[int, int, Fraction]]()
    ran: list[tuple[list, int, Fraction]] = []
    for stage in reversed(plan["stages"]):
        d, nodes = stage["dp_degree"], {str(v) for v in stage["nodes"]}
        chosen = {v: next(x for x in layers[v][stage["tp_degree"]] if x.id == stage["tmpcs"][v]) for v in nodes}
        s += d
        flying = math.ceil(Fraction(m if instance.schedule is Schedule.GPIPE else s, d))
        if sum(Fraction(x.activation_bytes) * flying + Fraction(x.static_bytes) for x in chosen.values()) > room:
            return None
        work = sum(Fraction(x.time) for x in chosen.values())
        for u, v, e in ends:
            if v in nodes and u not in nodes:
                work += 2 * (Fraction(e.bytes) + Fraction(chosen[v].sync_forward_bytes.get(e.source, 0))) / B
            if u in nodes and v not in nodes:
                work += 2 * (Fraction(e.bytes) + Fraction(chosen[u].sync_backward_bytes.get(e.target, 0))) / B
        ran.insert(0, (stage["nodes"], d, work))
        weights = sum(Fraction(x.weight_bytes) for x in chosen.values())
        added, own_part = (work, (math.ceil(Fraction(m, d)) - 1) * work / m) if by_replicas else (1, work / d)
        own = added + max((depth[v] for u, v, _ in ends if u in nodes and v not in nodes), default=0)
        depth.update(dict.fromkeys(nodes, own))
        slowest = max(slowest, own_part)
        volumes.append((d, stage["tp_degree"], 4 * Fraction(d - 1, d) * weights / m))
    longest = shortest(instance, volumes, 0)
    if instance.objective == "iteration":
        return None if math.isinf(longest) else (exact_iteration(instance, ran) / m, Fraction(longest), 1)
    return None if math.isinf(longest) else (slowest, Fraction(longest), max(depth.values()))


def shortest(instance: FlushedInstance, volumes: list[tuple[int, int, Fraction]], first: int) -> Fraction | float:
    """The longest synchronisation of stages (d, t, volume) where it is shortest; each replica anywhere in a machine."""
    if not volumes:
        return Fraction(0)
    K, B = instance.flat.num_devices, Fraction(instance.flat.bandwidth)
    K1, inner = instance.devices_per_machine or K, Fraction(instance.inner_bandwidth or B)
    (d, t, volume), best = volumes[0], math.inf
    ends = set()
    for chosen in combinations(range(first, K - t + 1), d):
        if all(b - a >= t for a, b in pairwise(chosen)) and all(a % K1 + t <= K1 for a in chosen):
            ends.add((chosen[-1] + t, len({a // K1 for a in chosen}) == 1))
    for end, inside in ends:
        best = min(best, max(volume / (inner if inside else B), shortest(instance, volumes[1:], end)))
    return best


def prices(instance: FlushedInstance) -> set[Price]:
    """Those of all plans."""
    flat = replace(instance.flat, memory_bytes=math.inf)
    found = stage_partitioning.plans(flat)
    return {each for each in (price(instance, plan) for plan in found) if each is not None}


def total(instance: FlushedInstance, found: Price, slowest: Fraction | None = None) -> Fraction:
    C, R, L = found
    if instance.objective == "iteration":
        return C + R
    if instance.fill == "replicas":
        return L / Fraction(instance.flat.num_microbatches) + (C if slowest is None else slowest) + R
    return (1 + Fraction(L - 1, instance.flat.num_microbatches)) * (C if slowest is None else slowest) + R


def least(instance: FlushedInstance) -> Fraction | float:
    return min((total(instance, found) for found in prices(instance)), default=math.inf)


def claim(instance: FlushedInstance, bound: Fraction | None, caps: list[Fraction]) -> dict:
    return claimed(instance, bound, {"kind": "caps", "caps": [str(cap) for cap in caps]})


def accepts(instance: FlushedInstance, certificate: dict) -> bool:
    return bool(checker.verify(parsed(instance), json.loads(json.dumps(certificate)))["accepted"])


def excludes(instance: FlushedInstance, bound: Fraction | None, low: Fraction, high: Fraction | None) -> bool:
    """Whether the checker's search finds no plan of C <= high that takes at most the bound with C = low."""
    lattice = checker.Searches(checker.Instance(parsed(instance)))
    if lattice.unplaced:
        return True
    search = checker.Search(lattice, bound, low, high)
    for place in range(len(search.order)):
        search.extend(place)
    return not search.labels(-1)


def test_the_search_finds_what_exists_and_nothing_else(cases: int) -> None:
    """Against all plans: at limits that a plan meets exactly, a little below, and at the time of another one."""
    outcomes = {True: 0, False: 0}
    for number in range(cases):
        instance = small(number)
        rng, found = random.Random(f"search {number}"), sorted(prices(instance))
        assert excludes(instance, None, Fraction(0), None) is (not found), number
        for _ in range(6 if found else 0):
            high, low = rng.choice(found)[0], rng.choice(found)[0] * rng.choice([0, 1, Fraction(1, 3)])
            bound = total(instance, rng.choice(found), low)
            if rng.random() < 0.5:
                bound -= min(total(instance, each, low) for each in found) * Fraction(1, 10**9)
            if rng.random() < 0.3:
                high -= Fraction(1, 10**9)
            if high <= 0:
                continue
            exists = any(high >= C and total(instance, (C, R, L), low) <= bound for C, R, L in found)
            assert excludes(instance, bound, low, high) is not exists, (number, bound, low, high)
            outcomes[exists] += 1
    assert min(outcomes.values()) >= cases // 2, outcomes


def test_caps_at_random_prove_nothing_false(cases: int) -> None:
    """Written caps with one left out or moved, for bounds that some plan attains and for others."""
    counts = {True: 0, False: 0}
    for number in range(cases):
        instance = small(number, memory="ample")
        best = least(instance)
        if best in (0, math.inf):
            continue
        best, rng = Fraction(best), random.Random(f"caps {number}")
        made = write(instance, None, float(best * (1 - Fraction(1, 10**9))), Watch())
        caps = [Fraction(cap) for cap in made["proof"].get("caps", [])]
        for bound in (best, best * (1 + Fraction(1, 10**12)), best * 2, best * (1 - Fraction(1, 10**6)), best / 2):
            drawn = {*caps, *(best * Fraction(rng.random()) for _ in range(rng.randrange(3)))}
            tried = sorted(cap for cap in drawn - {rng.choice([best, *caps])} if 0 < cap < bound)
            accepted = accepts(instance, claim(instance, bound, tried))
            assert not accepted or bound < best, (number, bound, tried)
            counts[accepted] += 1
    assert min(counts.values()) >= cases // 4, counts


SPOILING = Spoiling(small, least, price=lambda instance, plan: total(instance, price(instance, plan)))


def _mutants_on_machines(rng: random.Random, content: dict, good: dict) -> Iterator[tuple[dict, dict]]:
    """Those of one network, and other machines."""
    for changed, certificate in mutants(rng, content, good):
        if not changed["flat"]["num_devices"] % max(1, changed["devices_per_machine"]):
            yield changed, certificate
    sizes = [size for size in range(1, 9) if content["flat"]["num_devices"] % size == 0]
    inner = content["inner_bandwidth"]
    for fields in ({"devices_per_machine": rng.choice(sizes)}, {"inner_bandwidth": rng.choice([inner * 2, inner + 1])}):
        yield content | fields, good
    if good["plan"] is not None:
        yield content | {"devices_per_machine": 1}, good
        yield (
            {key: value for key, value in content.items() if key not in ("devices_per_machine", "inner_bandwidth")},
            good,
        )


ON_MACHINES = replace(SPOILING, case=lambda number: on_machines(number, memory="ample"), mutants=_mutants_on_machines)


def _mutants_of_iterations(rng: random.Random, content: dict, good: dict) -> Iterator[tuple[dict, dict]]:
    """Those without caps, and other schedules, and formulas."""
    made = _mutants_on_machines if "devices_per_machine" in content else mutants
    yield from ((changed, found) for changed, found in made(rng, content, good) if "caps" not in found["proof"])
    if good["bound"] is not None:
        best, share = Fraction(good["objective"]), rng.choice([0, Fraction(1, 10**12), Fraction(1, 100)])
        yield content, good | {"bound": str(best * (1 + share))}
    yield content | {"schedule": "1f1b" if content["schedule"] == "gpipe" else "gpipe"}, good
    yield {key: value for key, value in content.items() if key != "objective"}, good
    yield content, good | {"proof": {"kind": "caps", "caps": []}}


def small_iteration(number: int) -> FlushedInstance:
    """At most three layers, in a fifth of all cases on machines."""
    memory = random.Random(number).choice(["ample", "planted", "tight"])
    return simulated(number, max_nodes=3, max_tmpcs=2, memory=memory)


ITERATIONS = replace(SPOILING, case=small_iteration, mutants=_mutants_of_iterations)


def test_no_mutant_of_an_iteration_that_claims_what_is_false_is_accepted(cases: int) -> None:
    ITERATIONS.check(cases)


def test_the_checker_finds_the_shortest_iteration_and_nothing_below(cases: int) -> None:
    """Against all plans in fractions; certified is what the search proves, with unequal degrees among the best."""
    seen = dict.fromkeys(["infeasible", "several degrees", "gpipe", "branches"], 0)
    for number in range(cases * 2):
        instance = small_iteration(number)
        best, _ = least(instance), (found := certified(instance)[1])
        assert (found["bound"] is None) == math.isinf(best), number
        seen["infeasible"] += math.isinf(best)
        if math.isinf(best) or best == 0:
            continue
        assert Fraction(found["objective"]) <= best * (1 + Fraction(1, 10**9)), number
        assert not accepts(instance, claimed(instance, Fraction(best), {"kind": "plans"})), number
        assert accepts(instance, claimed(instance, best * (1 - Fraction(1, 10**12)), {"kind": "plans"})), number
        assert not accepts(instance, claimed(instance, None, {"kind": "plans"})), number
        seen["several degrees"] += len({stage["dp_degree"] for stage in found["plan"]["stages"]}) > 1
        seen["gpipe"] += instance.schedule is Schedule.GPIPE
        seen["branches"] += len(instance.flat.edges) != len(instance.flat.layers) - 1
    assert all(seen.values()), seen


@pytest.mark.parametrize(("heavy", "time"), [(0, 27), (1, 29), (2, 31), (3, 33)])
def test_iterations_by_hand(heavy: int, time: int) -> None:
    """Four layers on a device each: one of 6 s, three of 3 s, four micro-batches; memory has room for one layer."""
    layers = tuple(Layer(v, {1: (Tmpc("x", 6.0 if v == heavy else 3.0, 0.0, 0.0, 1.0),)}) for v in range(4))
    flat = StageInstance("four", layers, tuple(Edge(v, v + 1, 0.0) for v in range(3)), 4, 1.0, 1.0, 4)
    instance = replace(flush_pipeline(flat), objective=Objective.ITERATION)
    assert accepts(instance, claimed(instance, Fraction(time, 4) - Fraction(1, 10**15), {"kind": "plans"}))
    assert not accepts(instance, claimed(instance, Fraction(time, 4), {"kind": "plans"}))


def test_no_bound_of_a_stage_in_a_certificate_is_above_the_iteration(cases: int) -> None:
    """Of any stage of any chain, with any degrees: what the checker leaves out by it takes more."""
    for seed in range(cases * 10):
        rng = random.Random(f"span {seed}")
        p = rng.randint(1, 4)
        degrees = [rng.randint(1, 3)] * p if rng.random() < 0.5 else [rng.randint(1, 4) for _ in range(p)]
        costs, m, gpipe = (
            [rng.choice([1, 2, 3, 10]) for _ in range(p)],
            sum(degrees) + rng.randint(0, 12),
            seed % 2 == 0,
        )
        passes = checker.orders(gpipe, tuple(degrees), m)
        ran, behind, span = checker.last_end(passes, costs, list(pairwise(range(p)))), 0, 0
        for i in reversed(range(p)):
            M, flying = -(-m // degrees[i]), -(-(m if gpipe else sum(degrees[i:])) // degrees[i])
            span = max(checker.span_of(M, min(M, flying), costs[i], behind), span + 3 * costs[i])
            behind += costs[i]
            assert span + 3 * sum(costs[:i]) <= ran, seed


def test_no_mutant_on_machines_that_claims_what_is_false_is_accepted(cases: int) -> None:
    ON_MACHINES.check(cases // 4)


def test_on_machines_the_search_finds_the_optimum_and_nothing_below(cases: int) -> None:
    """Most often with a stage that straddles two machines, or that begins one so as not to."""
    differ = 0
    for number in range(cases // 4):
        instance = on_machines(number)
        best, apart = least(instance), replace(instance, devices_per_machine=None, inner_bandwidth=None)
        assert excludes(instance, None, Fraction(0), None) is math.isinf(best), number
        if not math.isinf(best) and best > 0:
            assert not accepts(instance, claim(instance, Fraction(best), []))
            _, content = certified(instance)
            assert Fraction(content["objective"]) == best, number
            differ += best != least(apart)
    assert differ >= cases // 16, differ


def test_a_replica_that_no_longer_fits_begins_the_next_machine() -> None:
    """b on devices 0 to 2; a on two replicas of two devices, 4 to 7: one machine of four, device 3 stays idle."""
    layers = Layer("a", {2: (Tmpc("x", 6.0, 10.0, 0.0, 1.0),)}), Layer("b", {1: (Tmpc("x", 9.0, 0.0, 0.0, 1.0),)})
    flat = StageInstance("gap", layers, (Edge("a", "b", 0.0),), 8, 1.0, 1.0, 5)
    instance = flush_pipeline(flat, Schedule.ONE_F_ONE_B, "gap", 4, 100.0)
    assert least(instance) == Fraction(6, 5) * 3 + Fraction(4, 100)
    assert Fraction(certified(instance)[1]["objective"]) == least(instance)
    assert not excludes(instance, Fraction(364, 100), Fraction(3), Fraction(3))


#: Devices and micro-batches.
THREE = {"num_devices": 3, "num_microbatches": 3}


def one_layer(**fields: Any) -> FlushedInstance:
    """A layer of 8 s and 3 bytes in flight, with 6 bytes of weights, on one device of 3 bytes."""
    x = Tmpc("x", 8.0, 6.0, 3.0, 0.0)
    schedule = fields.pop("schedule", Schedule.ONE_F_ONE_B)
    flat = StageInstance("one", (Layer("v", {1: (x,)}),), (), 1, 3.0, 1.0, 1)
    return flush_pipeline(replace(flat, **fields), schedule)


@pytest.mark.parametrize(
    ("fields", "bound", "caps", "accepted"),
    [
        ({}, "799999/100000", [], True),
        ({}, "8", [], False),  # a plan that takes 8 s does not take more
        # d = 2: C = 4 and R = 4 * 1/2 * 6 / 3 = 4, d = 3: C = 8/3 and R = 16/3, all of them 8 s
        (THREE, "799999/100000", ["266666/100000", "3999991/1000000"], True),
        (THREE, "8", ["266666/100000", "3999991/1000000"], False),
        (THREE, "8", ["8/3", "4"], False),
        (THREE, "799999/100000", ["3999991/1000000"], False),  # d = 3 is left between 0 and this
        (THREE, "799999/100000", ["8/3", "3999991/1000000"], False),  # and here it takes the cap exactly
        (THREE, "799999/100000", ["266666/100000", "399/100"], False),  # d = 2 is not late from 3.99 on
        ({}, None, [], False),
        ({"memory_bytes": 3 * (1 - 1e-11)}, None, [], True),
        ({"memory_bytes": 3 * (1 - 0.9e-12)}, None, [], False),  # the definition's slack
        ({"num_microbatches": 2}, None, [], False),
        ({"num_microbatches": 2, "schedule": Schedule.GPIPE}, None, [], True),  # two in flight
        ({}, "0", [], True),
    ],
)
def test_caps_by_hand(fields: dict, bound: str | None, caps: list[str], accepted: bool) -> None:
    instance = one_layer(**fields)
    limit = None if bound is None else Fraction(bound)
    found = checker.verify(parsed(instance), claim(instance, limit, [Fraction(cap) for cap in caps]))
    assert found["accepted"] is accepted, found["reason"]


def test_larger_degrees_allow_choices_of_less_weight() -> None:
    """8 s with 8 bytes of weights, or 12 s with one: within 4 s two replicas, or three which synchronise faster."""
    layer = Layer("v", {1: (Tmpc("heavy", 8.0, 8.0, 0.0, 0.0), Tmpc("light", 12.0, 1.0, 0.0, 0.0))})
    instance = flush_pipeline(StageInstance("one", (layer,), (), 3, 1.0, 1.0, 3))
    assert least(instance) == Fraction(44, 9)  # 4 s, and 4 * 2/3 * 1 / 3 s
    assert not accepts(instance, claim(instance, Fraction(5), [Fraction(39, 10)]))
    assert accepts(instance, claim(instance, Fraction(488, 100), [Fraction(3999, 1000)]))


def test_stages_side_by_side_count_once() -> None:
    """Four layers of 1 s, a before b and c, both before d, each on a device: L = 3 and not 4."""
    x = Tmpc("x", 1.0, 0.0, 0.0, 0.0)
    ends = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    layers, edges = tuple(Layer(v, {1: (x,)}) for v in "abcd"), tuple(Edge(u, v, 0.0) for u, v in ends)
    instance = flush_pipeline(StageInstance("diamond", layers, edges, 4, 1.0, 1.0, 4, max_dp_degree=1))
    assert least(instance) == Fraction(3, 2)
    assert accepts(instance, claim(instance, Fraction(1499, 1000), [Fraction(9995, 10000)]))
    assert not accepts(instance, claim(instance, Fraction(3, 2), [Fraction(9995, 10000)]))


def test_knapsacks_in_three_amounts_are_decided_as_by_brute_force(cases: int) -> None:
    rng, outcomes = random.Random(9), {True: 0, False: 0}
    for number in range(20 * cases):
        most = rng.choice([0, 12])  # equal weights, or others
        groups = [
            checker.least_choices([(rng.randint(0, 12), rng.randint(0, 12), rng.randint(0, most)) for _ in range(4)])
            for _ in range(rng.randint(1, 4))
        ]
        sums = [(0, 0, 0)]
        for group in groups:
            sums = [(c + x[0], m + x[1], w + x[2]) for c, m, w in sums for x in group]
        budget, capacity, _ = rng.choice(sums)  # most often one that fits, and the like with a little less
        budget, capacity = budget - rng.choice([0, 0, 1, 2]), capacity - rng.choice([0, 0, 1, 2])
        expected = min((w for c, m, w in sums if c <= budget and m <= capacity), default=None)
        assert checker.lightest(groups, budget, capacity) == expected, (number, groups, budget, capacity)
        fits = any(m <= capacity for _, m, _ in sums)
        assert checker.lightest(groups, None, capacity) == (0 if fits else None)
        outcomes[expected is None] += 1
    assert min(outcomes.values()) >= 2 * cases, outcomes


def test_options_that_are_beaten_are_dropped(cases: int) -> None:
    rng = random.Random(10)
    for _ in range(10 * cases):
        given = [(rng.randint(0, 4), rng.randint(0, 4), rng.randint(0, 4)) for _ in range(rng.randint(1, 9))]
        beaten = {x for x in given for y in given if x != y and all(b <= a for a, b in zip(x, y, strict=True))}
        assert checker.least_choices(given) == sorted(set(given) - beaten)


def test_what_is_not_certified_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    content = parsed(one_layer())
    monkeypatch.setattr(checker, "MAX_STEPS", 0)
    assert not checker.verify(content, claim(one_layer(), Fraction(9), []))["accepted"]
    with pytest.raises(UncertifiedError, match="size: over 0 stages"):
        write(one_layer(**THREE), None, 7.99, Watch())
