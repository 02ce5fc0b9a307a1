"""The walk over all knapsack subproblems: counted from the definition, and each of them against it."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from oracles.tmpc_knapsack import optimum
from strategies import random_stage_instance

import planner
from formulations.stage_partitioning.definition.plan import Stage
from formulations.stage_partitioning.definition.problem import allowed_dp_degrees, stage_memory, stage_time
from formulations.stage_partitioning.paper.appendix_d import appendix_d
from formulations.stage_partitioning.questions.studies.subproblems import RULES, Origin, Subproblems
from formulations.tmpc_knapsack import paper as heuristics
from formulations.tmpc_knapsack.definition.plan import KnapsackPlan
from formulations.tmpc_knapsack.definition.problem import evaluate, total_memory
from instances.problems.stage_partitioning import CostModel, Edge, StageInstance
from solvers.outcome import Limits, Watch

SMALL = {"max_nodes": 4, "max_devices": 4, "exactly": False}


def downsets(instance: StageInstance) -> list[frozenset]:
    """Sets that contain every successor of their members."""
    nodes = [layer.id for layer in instance.layers]
    subsets = (
        frozenset(v for v, taken in zip(nodes, bits, strict=True) if taken)
        for bits in product((0, 1), repeat=len(nodes))
    )
    return [found for found in subsets if all(edge.target in found for edge in instance.edges if edge.source in found)]


def calls_by_definition(instance: StageInstance) -> Iterator[tuple[frozenset, frozenset, int, int]]:
    """(D, D', t, d) with D' < D, d t <= K, and TMPCs at t for every node between them."""
    layers = {layer.id: layer for layer in instance.layers}
    found = downsets(instance)
    pairs = [(outer, inner) for outer, inner in product(found, found) if inner < outer]
    for outer, inner in pairs:
        for t, d in product(instance.tp_degrees, allowed_dp_degrees(instance)):
            if d * t <= instance.num_devices and all(layers[v].tmpcs.get(t) for v in outer - inner):
                yield outer, inner, t, d


def in_flight(instance: StageInstance, d: int) -> list[int]:
    """Every y = ceil(s/d) of the paper's s = 1, ..., S; every y = 1 + floor(s'/d) of the release's s' = 0, ..., S."""
    S = min(instance.num_microbatches, instance.num_devices)
    if instance.cost_model is CostModel.RELEASED:
        return sorted({1 + s // d for s in range(S + 1)})
    return sorted({-(-s // d) for s in range(1, S + 1)})


def fits(instance: StageInstance, stage: frozenset, t: int, d: int, y: int) -> bool:
    """Whether the lightest TMPCs fit at y micro-batches in flight."""
    tmpcs = [layer.tmpcs[t] for layer in instance.layers if layer.id in stage]
    return sum(min(x.activation_bytes * y + x.static_bytes for x in found) for found in tmpcs) <= instance.memory_bytes


def origins(calls: Subproblems, nontrivial: bool = False) -> list[Origin]:
    last = calls.num_downsets
    return calls.pick(1, last, range(calls.count(1, last, nontrivial=nontrivial)), nontrivial=nontrivial)


def test_counts_by_definition(cases: int) -> None:
    for seed in range(cases // 4):
        instance = random_stage_instance(seed, **SMALL)
        survey = Subproblems(instance).survey(1, len(downsets(instance)))
        found = list(calls_by_definition(instance))
        instances = [(outer - inner, t, d, y) for outer, inner, t, d in found for y in in_flight(instance, d)]
        S = min(instance.num_microbatches, instance.num_devices)
        assert survey.reachable == sum(len({-(-s // d) for s in range(1, S + 1)}) for *_, d in found)
        assert survey.pairs == sum(inner < outer for outer, inner in product(downsets(instance), repeat=2))
        assert survey.calls == len(found)
        assert survey.instances == len(instances)
        assert survey.infeasible == sum(not fits(instance, *each) for each in instances)
        assert survey.all_fastest_feasible + survey.nontrivial == survey.instances - survey.infeasible


def test_the_release_tabulates_one_more_where_d_divides_s() -> None:
    """One layer on two devices: by the paper y = 1, 2 for d = 1 and y = 1 for d = 2; the release has one more each."""
    chain = planner.load("chain8", devices=2, microbatches=4, tp="1")
    counted = {
        model: Subproblems(replace(chain, cost_model=model)).survey(1, 2)
        for model in (CostModel.PAPER, CostModel.RELEASED)
    }
    assert {model: (found.calls, found.instances, found.reachable) for model, found in counted.items()} == {
        CostModel.PAPER: (2, 3, 3),
        CostModel.RELEASED: (2, 5, 3),
    }
    odd = replace(chain, num_devices=3, cost_model=CostModel.RELEASED)  # d = 2 does not divide S = 3
    found = Subproblems(odd).survey(1, 2)
    assert (found.calls, found.instances, found.reachable) == (2, 4 + 2, 3 + 2)


def test_instances_are_stages(cases: int) -> None:
    """A choice's time and memory are those of the stage with these TMPCs: time per sample, and bytes on a device."""
    for seed in range(cases // 2):
        instance = random_stage_instance(seed, **SMALL)
        calls = Subproblems(instance)
        for origin in origins(calls)[:: 3 + seed % 7]:
            knapsack, facts = calls.knapsack(origin), calls.facts(origin)
            members = {v for v in range(len(instance.layers)) if int(facts["outer"], 16) >> v & 1}
            members -= {v for v in range(len(instance.layers)) if int(facts["inner"], 16) >> v & 1}
            assert [node.id for node in knapsack.nodes] == [instance.layers[v].id for v in sorted(members)]
            for position in (0, -1):
                choice = {node.id: node.options[position].id for node in knapsack.nodes}
                stage, plan = Stage(tuple(choice), facts["d"], facts["t"], choice), KnapsackPlan(choice)
                assert evaluate(knapsack, plan) == pytest.approx(stage_time(instance, stage), rel=1e-12, abs=1e-15)
                assert total_memory(knapsack, plan) == stage_memory(instance, stage, facts["y"] * facts["d"])


@pytest.mark.slow
def test_tallies_are_what_the_methods_say(cases: int) -> None:
    """Every non-trivial instance, solved again by brute force and by the heuristics' own method."""
    cases = max(cases, 100)  # fewer show too little
    compared = 0
    for seed in range(cases // 2):
        instance = random_stage_instance(seed, **SMALL, memory="tight" if seed % 2 else "planted")
        calls = Subproblems(instance)
        survey = calls.survey(1, calls.num_downsets, worst=1)
        nontrivial = origins(calls, nontrivial=True)
        assert len(nontrivial) == survey.nontrivial
        for rule in calls.rules:
            gaps = []
            for origin in nontrivial:
                knapsack = calls.knapsack(origin)
                plan = heuristics.solve(knapsack, Limits(), Watch(), rule).plan
                best = optimum(knapsack)
                assert plan is not None and best is not None
                time = evaluate(knapsack, plan)
                if time > best * (1 + 1e-9):
                    gaps.append(min(time / best - 1, 1e9) if best else 1e9)
            tally = survey.rules[rule]
            compared += len(gaps)
            assert (tally.suboptimal, tally.missed, sum(tally.histogram)) == (len(gaps), 0, len(gaps))
            assert tally.gap_sum == pytest.approx(sum(gaps))
            assert [gap for gap, _ in tally.worst] == pytest.approx(sorted(gaps)[-1:])
    assert compared > cases // 4


def test_trivial_means_that_the_fastest_fit() -> None:
    for seed in range(10):
        calls = Subproblems(random_stage_instance(seed, **SMALL, memory="tight"))
        chosen = set(origins(calls, nontrivial=True))
        for origin in origins(calls):
            knapsack = calls.knapsack(origin)
            fastest = [min(node.options, key=lambda option: option.time) for node in knapsack.nodes]
            trivial = sum(Fraction(option.memory_bytes) for option in fastest) <= knapsack.capacity_bytes
            assert (origin in chosen) == (not trivial and optimum(knapsack) is not None)


def test_numbers_go_through_ranges() -> None:
    """Picking by number gives the same instances however the walk is cut."""
    calls = Subproblems(random_stage_instance(7, max_nodes=5, memory="planted"))
    whole, last = origins(calls), calls.num_downsets
    assert len(set(whole)) == len(whole)
    cut = last // 2
    first = calls.count(1, cut, nontrivial=False)
    assert calls.pick(1, cut, range(first), nontrivial=False) == whole[:first]
    assert calls.pick(cut, last, [first, len(whole) - 1], nontrivial=False, seen=first) == [whole[first], whole[-1]]


def test_surveys_add_up() -> None:
    calls = Subproblems(random_stage_instance(11, max_nodes=5, memory="planted"))
    last = calls.num_downsets
    parts = [calls.survey(j, j + 1) for j in range(1, last)]
    whole = calls.survey(1, last)
    assert sum(part.instances for part in parts) == whole.instances
    for rule, tally in whole.rules.items():
        assert sum(part.rules[rule].suboptimal for part in parts) == tally.suboptimal


@pytest.mark.parametrize("model", [CostModel.PAPER, CostModel.RELEASED])
def test_only_usable_instances_can_be_in_a_plan(model: CostModel) -> None:
    """The release's last y would need more than S micro-batches where d divides S; the paper's never does."""
    beyond = 0
    for seed in range(60):
        instance = replace(random_stage_instance(seed, **SMALL, memory="tight"), max_dp_degree=None, cost_model=model)
        calls = Subproblems(instance)
        survey = calls.survey(1, calls.num_downsets, worst=10_000)
        S = min(instance.num_microbatches, instance.num_devices)
        for tally in survey.rules.values():
            usable = [y <= -(-S // int(calls.profile.dp_degrees[dp])) for _, (_, _, _, dp, y) in tally.worst]
            assert (len(usable), sum(usable)) == (tally.suboptimal, tally.usable)
            beyond += tally.suboptimal - tally.usable
    assert beyond > 0 if model is CostModel.RELEASED else beyond == 0


def test_sort_once_needs_pairs() -> None:
    instance = random_stage_instance(3, max_tmpcs=2)
    assert Subproblems(instance).rules == RULES
    several = next(
        found
        for found in (random_stage_instance(seed) for seed in range(50))
        if any(len(tmpcs) > 2 for layer in found.layers for tmpcs in layer.tmpcs.values())
    )
    assert Subproblems(several).rules == ("rerank", "truncating")


def test_operations_of_appendix_d(cases: int) -> None:
    """The formulas, summed one by one; a run that prunes stays below them."""
    for seed in range(cases // 4):
        instance = random_stage_instance(seed, **SMALL)
        calls = Subproblems(instance)
        formula = appendix_d(calls.profile, calls.num_downsets)
        K, N = instance.num_devices, min(instance.num_microbatches, instance.num_devices)
        degrees = [(t, d) for t, d in product(instance.tp_degrees, allowed_dp_degrees(instance)) if t * d <= K]
        pairs = calls.num_downsets * (calls.num_downsets - 1) // 2
        values = [len({-(-s // d) for s in range(1, N + 1)}) for _, d in degrees]
        steps = [len(range(t * d, K + 1)) * len(range(d, N + 1)) for t, d in degrees]
        assert formula == {"pairs": pairs, "knapsacks": pairs * sum(values), "updates": pairs * sum(steps)}
        stats = planner.solve(instance, method="piper").stats
        if "pairs" in stats:
            assert all(stats[name] <= stats[f"formula_{name}"] == formula[name] for name in formula)


def repeated(seed: int) -> StageInstance:
    """A chain whose layers are the first two of a random one, over and over."""
    given = random_stage_instance(seed, **{**SMALL, "shape": "chain"})
    layers = tuple(replace(given.layers[v % min(2, len(given.layers))], id=v) for v in range(7))
    return replace(given, layers=layers, edges=tuple(Edge(v, v + 1, 3.0) for v in range(6)))


def test_equal_stages_are_solved_once(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same survey as without looking for them, also where there is no room for all instances at first."""
    chains = [Subproblems(repeated(seed)) for seed in range(cases // 2)]
    found = [calls.survey(1, calls.num_downsets) for calls in chains]
    twins = 0
    for calls in chains:
        every = np.array(origins(calls, nontrivial=True), np.int64).reshape(-1, 5)
        twins += int((calls._groups(every)[:, 1] >= 0).sum())
    assert twins > cases
    alone = Subproblems._groups
    monkeypatch.setattr(Subproblems, "_groups", lambda calls, every: np.where([[False, True]], -1, alone(calls, every)))
    monkeypatch.setattr("formulations.stage_partitioning.questions.studies.subproblems._AT_ONCE", 3)
    assert [calls.survey(1, calls.num_downsets) for calls in chains] == found


@pytest.mark.paper
@pytest.mark.parametrize(("bandwidth", "worst"), [("25GiB/s", 0.156), ("25GB/s", 0.154)])
@pytest.mark.slow
def test_bert_of_appendix_c(published: Path, bandwidth: str, worst: float) -> None:
    instance = planner.load(
        published / "piper" / "bert32a100.json", devices=512, memory="8GiB", microbatches=512, bandwidth=bandwidth,
        cost_model=CostModel.RELEASED,
    )  # fmt: skip
    calls = Subproblems(instance)
    survey = calls.survey(1, calls.num_downsets)
    assert (survey.calls, survey.instances, survey.reachable) == (30_260, 3_662_350, 3_632_090)
    assert (survey.all_fastest_feasible, survey.infeasible, survey.nontrivial) == (246_104, 3_169_484, 246_762)
    assert survey.rules["sort-once"].suboptimal == survey.rules["rerank"].suboptimal == 332
    assert survey.rules["sort-once"].usable == 320
    assert round(survey.rules["sort-once"].worst[0][0], 3) == worst
