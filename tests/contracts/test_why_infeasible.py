"""The reason of an infeasible instance is true: its settings, given as they are printed, make it feasible by brute
force and for the exact method, and one step less of any of them does not.
"""

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import branching_cases
import pytest
from oracles import layer_assignment, mesh_tiling, microbatch_schedule, operator_partitioning, tmpc_knapsack
from small_instances import few_tiles

import planner
from formulations import FAMILIES
from formulations.contract.rounding import amount_text, bytes_text, step_below
from instances.problems.hierarchical_partitioning import on_machines
from instances.problems.microbatch_schedule import ScheduleInstance
from instances.problems.operator_partitioning import OperatorInstance
from instances.problems.pipeline_placement import PlacementInstance, place_on
from instances.problems.stage_partitioning import Layer, StageInstance, Tmpc
from planner.files.settings import parse
from solvers.outcome import Limits, Status, Watch

BY_NAME = {family.name: family for family in FAMILIES}


class Case(NamedTuple):
    """A random instance, and whether one has a plan."""

    make: Callable[[random.Random], Any]
    has_plan: Callable[[Any], bool | None]


class Claim(NamedTuple):
    """Settings that are claimed to suffice (or not), and those of which one step less is claimed not to."""

    settings: dict[str, str]
    would_do: bool = True
    least: tuple[str, ...] = ()


# --- random instances, most of them without a plan


def operators(rng: random.Random) -> OperatorInstance:
    made = operator_partitioning.random_instance(rng, max_operators=5)
    if made.num_stages is not None and rng.random() < 0.2:
        made = replace(made, num_stages=made.num_stages + rng.randint(1, 4), at_most=rng.random() < 0.2)
    elif made.num_stages is None and rng.random() < 0.5:
        prime = rng.choice([3, 5, 7, 11])  # nearly all replicas do not divide it, so there are many stages
        made = replace(made, num_devices=prime, step_microbatches=rng.choice([1, 4, prime]))
    memory = rng.choice([None, 0.0, rng.uniform(0, 15), rng.uniform(0, 15)])
    return replace(made, memory_bytes=memory)


def placements(rng: random.Random) -> PlacementInstance:
    while True:
        made = replace(operator_partitioning.random_instance(rng, max_operators=4), num_devices=None, at_most=False)
        if made.num_stages is not None and made.num_stages * made.replicas <= 4:
            break
    made = replace(made, num_stages=made.num_stages + (rng.random() < 0.2), memory_bytes=rng.uniform(0, 15))
    devices = (made.num_stages or 1) * made.replicas
    matrix = tuple(tuple(0.0 if d == e else 2.0 for e in range(devices)) for d in range(devices))
    return place_on(made, matrix)


def knapsacks(rng: random.Random) -> Any:
    made = tmpc_knapsack.random_instance(rng)
    return replace(made, capacity_bytes=made.capacity_bytes * rng.choice([0, rng.random()]))


def layers(rng: random.Random) -> Any:
    """Cut costs of stages that there are, or of none."""
    made = layer_assignment.random_instance(rng, max_layers=5, all_reduce=False)
    more = made.num_stages + rng.randint(0, 4)
    cuts = tuple((row * more)[: max(1, more - 1)] if len(row) > 1 else row for row in made.cut_cost_s)
    return replace(made, num_stages=more, cut_cost_s=cuts, stage_time_s=made.stage_time_s[:1] * more)


def schedules(rng: random.Random) -> ScheduleInstance:
    made = microbatch_schedule.random_instance(rng)
    deadline = rng.choice([None, None, rng.uniform(0, 40)])
    parts = [
        replace(stage, activation_bytes=stage.activation_bytes * rng.choice([1, rng.random()])) for stage in made.stages
    ]
    return replace(made, stages=tuple(parts), deadline_s=deadline)


CASES = {
    "operator_partitioning": Case(operators, lambda each: operator_partitioning.optimum(each) is not None),
    "pipeline_placement": Case(placements, lambda each: operator_partitioning.optimum(each.operators) is not None),
    "tmpc_knapsack": Case(knapsacks, lambda each: tmpc_knapsack.optimum(each) is not None),
    "layer_assignment": Case(layers, lambda each: layer_assignment.optimum(each) is not None),
    "microbatch_schedule": Case(schedules, lambda each: microbatch_schedule.optimum(each) is not None),
}

# --- what the sentences claim


def claims_of(name: str, instance: Any, sentence: str, figures: Mapping[str, Any]) -> Iterator[Claim]:
    """Every part of the sentence as a claim; an unknown part is a failure."""
    if name == "microbatch_schedule":
        samples, *ways = re.split("; feasible with |, or with ", sentence)
        assert samples == f"infeasible: the stages need at least {figures['least_in_flight']} samples in flight"
        for stage, least in enumerate(figures["least_in_flight"]):
            assert not CASES[name].has_plan(with_room(instance, stage, least - 1))
        yield from map(typed, ways)
    elif name == "tmpc_knapsack":
        need = math.fsum(min(x.memory_bytes for x in node.options) for node in instance.nodes)
        declared = f"{bytes_text(need, up=True)} and the capacity is {bytes_text(instance.capacity_bytes)}"
        said, way = sentence.split(": feasible with ")
        assert said == f"the smallest options together need {declared}"
        claim = typed(way)
        assert figures == {"least_capacity_bytes": float(claim.settings["memory"])}
        yield claim
    elif name == "layer_assignment":
        most, *ways = sentence.split("; feasible with ")
        assert most == f"infeasible: at most {figures['most_stages']} stages have a layer each"
        assert len(instance.layer_time_s) == figures["most_stages"]
        yield from map(typed, ways)
    else:
        yield from operator_claims(sentence, figures)


def with_room(instance: ScheduleInstance, stage: int, samples: int) -> ScheduleInstance:
    """Without limits, but for the samples in flight of one stage."""
    parts = [replace(each, in_flight=None, memory_bytes=None) for each in instance.stages]
    parts[stage] = replace(parts[stage], in_flight=samples)
    return replace(instance, stages=tuple(parts), deadline_s=None)


def operator_claims(sentence: str, figures: Mapping[str, Any]) -> Iterator[Claim]:
    if sentence.endswith(": no memory would suffice"):  # of a placement: the network says how many stages there are
        assert "need an operator each" in sentence
        yield Claim({"memory": "1e30"}, would_do=False)
        return
    short, found, way = sentence.rpartition("feasible with ")
    assert found and (not short or SHORT.fullmatch(short))
    claim = typed(way)
    if not short:
        assert figures == {"least_memory_bytes": float(claim.settings["memory"])}
    # More stages may be feasible again, fewer devices are only looked for where their number decides on S.
    yield claim._replace(least=("memory",) if "memory" in claim.settings else ())


SHORT = re.compile(
    r"(every \(S, R\) has more stages than there are operators, \d+"
    r"|\d+ stages need an operator each, and there are \d+|\d+ stages need a device each, and there are \d+); "
)


def typed(text: str) -> Claim:
    """Options as a person types them."""
    words = re.findall(r"--(\S+)(?: (?!--)(\S+))?", text)
    assert " ".join(f"--{name} {value}".strip() for name, value in words) == text
    settings = {name: value or "true" for name, value in words}
    return Claim(settings, least=tuple({"memory", "in-flight"} & settings.keys()))


def step_less(setting: str, value: str) -> str | None:
    """One step less, as it is printed; ``None`` where that is no value of the setting."""
    if setting == "memory":
        return amount_text(step_below(float(value))) if float(value) else None
    return str(int(value) - 1) if int(value) > 1 else None


# --- the examination


def changed(name: str, instance: Any, settings: Mapping[str, str]) -> Any:
    """The instance with settings as the command line reads them."""
    family = BY_NAME[name]
    return family.read(instance, "instance", parse(family.overrides, settings))


def assert_plan(name: str, instance: Any, expected: bool) -> None:
    """Brute force and the exact method agree on whether there is a plan."""
    known = CASES[name].has_plan(instance)
    assert known in (expected, None), instance
    result = planner.solve(instance, exact=True)
    assert result.status is (Status.OPTIMAL if expected else Status.INFEASIBLE), (instance, result)
    assert "optimum" not in result.reason


def examine(name: str, seed: int) -> str | None:
    """Try the claims about one random instance; which kinds of claims these were, ``None`` if it is feasible."""
    instance = CASES[name].make(random.Random(f"{name} {seed}"))
    if CASES[name].has_plan(instance) is not False:
        return None
    why = BY_NAME[name].why_infeasible
    assert why is not None
    sentence, figures = why(instance, Limits(), Watch())
    assert_plan(name, instance, False)
    kinds = []
    for claim in claims_of(name, instance, sentence, figures):
        assert_plan(name, changed(name, instance, claim.settings), claim.would_do)
        for setting in claim.least:
            smaller = step_less(setting, claim.settings[setting])
            if smaller is not None:
                assert_plan(name, changed(name, instance, {**claim.settings, setting: smaller}), False)
        kinds.append(" ".join(sorted(claim.settings)) + ("" if claim.would_do else " never"))
    return ", ".join(kinds) or "nothing"


#: Claims that must have been made at least once.
KINDS = {
    "operator_partitioning": {"memory", "stages", "memory stages", "devices", "devices stages variable-replicas"},
    "pipeline_placement": {"memory", "memory never"},
    "tmpc_knapsack": {"memory"},
    "layer_assignment": {"stages", "nothing"},
    "microbatch_schedule": {"memory", "in-flight", "deadline", "in-flight memory"},
}


def test_every_family_that_explains_is_examined() -> None:
    """Those of flat problems say what `planner explain` finds, which is examined there (`test_explaining`)."""
    flat = {"stage_partitioning", "flushed_partitioning", "hierarchical_partitioning"}
    assert {name for name, family in BY_NAME.items() if family.why_infeasible} == CASES.keys() | flat
    assert CASES.keys() == KINDS.keys()


#: Seeds of rare claims.
RARE = {"operator_partitioning": (36, 94, 138), "microbatch_schedule": (36,)}


@pytest.mark.parametrize("name", CASES)
def test_what_would_do_does_and_less_does_not(name: str, many: int) -> None:
    seen: Counter[str] = Counter()
    for seed in (*range(many or 16), *RARE.get(name, ())):
        kinds = examine(name, seed)
        if kinds is not None:
            seen.update(["infeasible", *kinds.split(", ")])
    print(name, dict(seen))
    assert KINDS[name] <= seen.keys(), seen


# --- what is said beside that, by families that look for no way out too


def test_schedules_say_what_is_in_the_way() -> None:
    """A bound on the iteration, or a stage with less room than it needs."""
    seen: Counter[str] = Counter()
    for seed in range(60):
        instance = schedules(random.Random(f"schedules {seed}"))
        free = replace(instance, deadline_s=None, objective="time")
        if microbatch_schedule.optimum(instance) is not None:
            continue
        reason = planner.solve(instance, exact=True).reason
        late = re.search(r"no schedule is faster than (\S+) s; the deadline is (\S+) s", reason)
        stuck = re.search(
            r"stage (\d+) has room for (\d+) samples in flight; it gets stuck with less than (\d+)", reason
        )
        if late:
            least = microbatch_schedule.optimum(free)
            assert least is not None and float(late[2]) == instance.deadline_s < float(late[1]) <= least * (1 + 1e-12)
            seen["late"] += 1
        if stuck:
            stage, room, needed = map(int, stuck.groups())
            assert room == instance.rooms[stage] * instance.stages[stage].microbatch < needed
            assert microbatch_schedule.optimum(with_room(instance, stage, needed - 1)) is None
            seen["stuck"] += 1
    assert min(seen["late"], seen["stuck"]) > 0, seen


def test_stage_graphs_say_what_is_needed_at_least() -> None:
    """A float less memory than one operator needs, or less in all than the model needs, is too little for any plan."""
    seen: Counter[str] = Counter()
    for seed in range(30):
        graph = branching_cases.random_graph(seed, (4, 5), 2, series_parallel=True)
        whole_bytes = math.fsum(4 * each.weight_bytes + each.activation_bytes for each in graph.operators)
        instance = replace(graph, memory_bytes=whole_bytes * random.Random(f"graph {seed}").uniform(0.3, 0.49))
        result = planner.solve(instance, method="graphpipe")
        alone = re.search(r"alone needs (\S+) bytes; the largest device has (\S+)", result.reason)
        whole = re.search(r"needs (\S+) bytes at least; all devices have (\S+)", result.reason)
        for found, devices in ((alone, 1), (whole, instance.num_devices)):
            if found is None:
                continue
            need, there = float(found[1]), float(found[2])
            assert there == pytest.approx(devices * instance.memory_bytes, rel=1e-15) and there < need
            assert result.status is Status.INFEASIBLE and "optimum" not in result.reason
            less = math.nextafter(need, 0.0) if devices == 1 else need * (1 - 1e-9) / devices
            assert math.isinf(branching_cases.least_of_all(replace(instance, memory_bytes=less)))
            seen["alone" if devices == 1 else "whole"] += 1
    assert min(seen["alone"], seen["whole"]) > 0, seen


def test_meshes_say_whether_it_is_the_number_of_devices() -> None:
    seen: Counter[bool] = Counter()
    for seed in range(60):
        instance = few_tiles(random.Random(f"mesh {seed}"))
        if mesh_tiling.optimum(instance) is not None:
            continue
        result = planner.solve(instance, exact=True)
        assert result.status is Status.INFEASIBLE and "optimum" not in result.reason
        counted = "expected degrees whose product divides" in result.reason
        area = instance.tp_degree * instance.dp_degree
        assert counted is (instance.rows * instance.columns % area > 0)
        assert counted or "no exact cover exists" in result.reason
        seen[counted] += 1
    assert min(seen[True], seen[False]) > 0, seen


def test_what_no_instance_may_declare_is_not_named() -> None:
    """Sizes of up to 1e30 bytes may add up to more."""
    rows = [[(1.0, 9e29)], [(1.0, 9e29)]]
    sentence = planner.solve(tmpc_knapsack.make(1.0, *rows)).reason
    assert "no memory up to 1e+30 bytes would suffice" in sentence and "feasible" not in sentence
    layers = tuple(Layer(v, {1: (Tmpc("x", 1.0, 0.0, 9e29, 0.0),)}) for v in range(2))
    flat = StageInstance("vast", layers, (), 1, 1.0, 1.0, 4)
    for instance, devices in ((flat, "1 device"), (on_machines(flat, 1, 1, 1.0, 1.0), "1 machine with 1 device")):
        found = planner.solve(instance, exact=True)
        assert f"no memory up to 1e+30 bytes would suffice with {devices}" in found.reason
        assert "least_memory_bytes" not in found.stats
