"""Certificates of training strategies: accepted where all plans, priced in fractions, confirm them."""

import copy
import math
import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from certificate_cases import Spoiling, claimed, exactly, parsed
from oracles.amp_strategy import plans, price, random_instance

from formulations.amp_strategy.certificate import checker
from formulations.amp_strategy.certificate.writer import write
from formulations.amp_strategy.definition.plan import Degrees
from formulations.amp_strategy.definition.problem import placements, strategies
from formulations.contract.family import UncertifiedError
from instances.problems.amp_strategy import AmpInstance, ModelLayer, Node
from solvers.outcome import Watch


def small(number: int) -> AmpInstance:
    """At most five layers and whole numbers, so that plans often take the same."""
    rng = random.Random(f"small {number}")
    found = random_instance(rng)
    layers = found.layers[: rng.randint(1, 5)]
    tied = tuple(replace(tie, layers=(0, len(layers) - 1)) for tie in found.tied)
    return replace(found, layers=layers, tied=tied, placement=rng.choice(["megatron", "tiling", "oriented"]))


def prices(instance: AmpInstance) -> list[Fraction]:
    """Those of all plans, rising."""
    found = set()
    for plan in plans(instance):
        degrees = Degrees(*(plan[name] for name in ("microbatch", "tp_degree", "dp_degree", "pp_degree")))
        profiled = degrees.tp_degree in instance.layers[0].forward_s[instance.nodes[0].gpu]
        if profiled and tuple(plan["placement"]) in placements(instance, degrees):
            found.add(price(exactly(instance), plan))
    return sorted(found)


def claim(instance: AmpInstance, bound: Fraction | None, chains: list) -> dict:
    return claimed(instance, bound, {"kind": "caps", "chains": chains})


def accepts(instance: AmpInstance, bound: Fraction | None, chains: list) -> bool:
    return bool(checker.verify(parsed(instance), claim(instance, bound, chains))["accepted"])


def _spoiled(rng: random.Random, chains: list, scale: Fraction) -> list:
    """Rows with one left out or moved, and others that were not there."""
    found = copy.deepcopy(chains)
    for chain in rng.sample(found, min(2, len(found))):
        rows = chain[1]
        row = rng.choice(rows)
        row[1] = [cap for cap in row[1] if rng.random() < 0.6]
        if len(rows) > 1 and rng.random() < 0.5:
            rows.pop(rng.randrange(len(rows) - 1))
    named = {number for number, _ in found}
    for number in range(6):
        if number not in named and rng.random() < 0.3:
            found.append([number, [[str(scale * Fraction(rng.random())), []], [None, [str(scale)]]]])
    return found[1:] if found and rng.random() < 0.3 else found


def test_chains_of_any_kind_prove_nothing_false(cases: int) -> None:
    counts = {True: 0, False: 0}
    for number in range(cases):
        instance, rng = small(number), random.Random(f"bounds {number}")
        found = prices(instance)
        assert accepts(instance, None, []) is (not found), number
        if not found or not found[0]:
            continue
        best = found[0]
        for bound in (best * (1 - Fraction(1, 10**9)), best * Fraction(9, 10)):
            made = write(instance, None, float(bound), Watch())
            chains = made["proof"].get("chains", [])
            for tried in (chains, _spoiled(rng, chains, best), []):
                for higher in (best, best * (1 + Fraction(1, 10**12)), best * 2):
                    try:
                        assert not accepts(instance, higher, tried), (number, higher, tried)
                    except ValueError:  # a number without a chain
                        assert tried
            try:
                counts[accepts(instance, bound, _spoiled(rng, chains, best))] += 1
            except ValueError:
                continue
    assert min(counts.values()) >= max(1, cases // 10), counts


def optimum(instance: AmpInstance) -> Fraction | float:
    """The least price; infinite if there is no plan."""
    return min(prices(instance), default=math.inf)


SPOILING = Spoiling(small, optimum, price=lambda instance, plan: price(exactly(instance), plan))


def two_nodes(**fields: Any) -> AmpInstance:
    """Two nodes of one device; two layers of 2 s, a sample at a time, 3 bytes between them and 1 byte/s."""
    layer = ModelLayer({"gpu": {1: 2.0}}, 3.0, 1.0)
    found = AmpInstance("two", (Node("gpu", 9.0, 1.0),) * 2, 1, (layer, layer), 2, parameter_bytes=4.0, passes=1.0)
    return replace(found, **fields)


def test_costs_on_larger_clusters(cases: int) -> None:
    """Nodes that differ, groups across them, and tiles that lie: chains cost what plans do."""
    stages = set()
    for number in range(cases // 2):
        rng = random.Random(f"clusters {number}")
        columns, rows = rng.choice([(2, 4), (2, 4), (3, 2), (4, 2), (3, 4)])
        nodes = tuple(Node("gpu", float(rng.randint(4, 9)), float(rng.randint(1, 7))) for _ in range(columns))
        layers = tuple(
            ModelLayer(
                {"gpu": {t: float(rng.randint(1, 9)) for t in (1, 2, 4)}}, float(rng.randint(1, 20)),
                float(rng.randint(0, 4)), rng.random() < 0.3,
            )
            for _ in range(rng.randint(3, 8))
        )  # fmt: skip
        kind = rng.choice(["megatron", "tiling", "oriented", "oriented"])
        instance = AmpInstance("clusters", nodes, rows, layers, 24, passes=3.0, placement=kind)
        exact = checker.Instance(parsed(instance))
        given = [each for each in strategies(instance) if each.pp_degree <= len(layers)]
        assert [(each.microbatch, each.tp_degree, each.dp_degree) for each in strategies(instance)] == list(
            exact.strategies()
        )
        lying = [each for each in given if 1 < each.tp_degree != each.dp_degree > 1]  # where tiles may lie
        for degrees in (*rng.sample(given, min(4, len(given))), *rng.sample(lying, min(8, len(lying)))):
            allowed = placements(instance, degrees)
            assert set(exact.placements(degrees.tp_degree, degrees.dp_degree)) == set(allowed)
            cuts = sorted(rng.sample(range(1, len(layers)), degrees.pp_degree - 1))
            lengths = [end - begin for begin, end in pairwise((0, *cuts, len(layers)))]
            plan = {**vars(degrees), "lengths": lengths, "placement": list(rng.choice(allowed))}
            assert checker.plan_time(exact, plan) == price(exactly(instance), plan), (number, plan)
            stages.add(degrees.pp_degree)
    assert len(stages) >= 4


#: Of the stages of chain 0.
CAP = [0, [[None, ["1995/1000"]]]]


@pytest.mark.parametrize(
    ("fields", "bound", "chains", "accepted"),
    [
        # chain 0, a stage each: 2 + 4 + 3 = 9 s for two micro-batches of one; chain 1: 8 + 6 = 14 s for one of two;
        # chain 2, both layers on both: 4 s and 2 * 1/2 * 4 * 2 / 1 = 8 s
        ({}, "899/100", [CAP, [2, [["7", []], [None, []]]]], True),
        ({}, "899/100", [[2, [["7", []], [None, []]]]], False),  # without caps 7 s are known of chain 0
        ({}, "899/100", [CAP], False),  # and 4 s of chain 2
        ({}, "9", [CAP, [2, [["7", []], [None, []]]]], False),
        ({}, "399/100", [], True),
        ({"parameter_bytes": 2.0}, "799/100", [CAP, [2, [["3995/1000", []], [None, []]]]], True),
        ({"parameter_bytes": 2.0}, "799/100", [CAP, [2, [["398/100", []], [None, []]]]], False),
        ({"parameter_bytes": 2.0}, "8", [CAP, [2, [["4", []], [None, []]]]], False),
        ({}, None, [], False),
        ({"global_batch": 1, "layers": two_nodes().layers[:1]}, None, [], True),  # too few samples, and layers
        ({}, "0", [], True),
    ],
)
def test_caps_by_hand(fields: dict, bound: str | None, chains: list, accepted: bool) -> None:
    instance = two_nodes(**fields)
    limit = None if bound is None else Fraction(bound)
    found = checker.verify(parsed(instance), claim(instance, limit, chains))
    assert found["accepted"] is accepted, found["reason"]


def test_what_is_not_certified_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "MAX_RANKS", 1)
    with pytest.raises(UncertifiedError, match="size: over 1 ranks"):
        write(two_nodes(placement="tiling"), None, 8.0, Watch())
