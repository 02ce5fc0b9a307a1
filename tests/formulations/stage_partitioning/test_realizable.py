"""Plans that trainers can run: the definition, and the exact search against brute force."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from oracles import realizable as oracle

import planner
from formulations.stage_partitioning import FAMILY
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.trainers import TRAINERS, Kind, Recompute, obstacles, pieces, realizable
from instances.problems.stage_partitioning import Edge, Layer, StageInstance, Tmpc
from planner.solving.solve import run
from solvers.outcome import Limits, Status

#: What the second can run, the first cannot do better.
ORDER = (("torchtitan", "deepspeed"), ("megatron", "deepspeed"), ("galvatron", "deepspeed"))


def found(instance: StageInstance, trainer: str):
    required = replace(instance, requirements=(f"realizable({trainer}) == 1",))
    return run(FAMILY, FAMILY.method("realizable"), required, Limits(), {})


def compared(case: int, counts: Counter) -> None:
    """One random chain, for every trainer; and the trainers among each other."""
    planted = oracle.planted(case)
    values = {}
    for trainer in TRAINERS:
        result, best = found(planted.instance, trainer), oracle.best(planted, trainer)
        where = f"case {case}, {trainer}: {result.status} {result.objective}, brute force {best}"
        if best is None:
            assert result.status is Status.INFEASIBLE, where
        else:
            assert result.status is Status.OPTIMAL and result.verified, where
            assert result.objective == pytest.approx(best, rel=1e-9), where
            values[trainer] = best
            counts["priced"] += "price" in result.stats
            counts["costs"] += result.stats.get("price", 0) > 1e-9
        counts[result.status] += 1
    for stricter, freer in ORDER:
        if stricter in values:
            assert values[stricter] >= values[freer] * (1 - 1e-9), (case, stricter, freer)
            counts[stricter, freer] += values[stricter] > values[freer] * (1 + 1e-9)


def test_search_agrees_with_brute_force(cases: int, many: int) -> None:
    counts: Counter = Counter()
    for case in range(many or cases):
        compared(case, counts)
    assert counts[Status.OPTIMAL] > cases and counts[Status.INFEASIBLE] > cases // 4
    assert counts["costs"] > cases // 4 and all(counts[pair] for pair in ORDER), counts


SERVING = [name for name, trainer in TRAINERS.items() if trainer.recompute is Recompute.NONE]


@pytest.mark.parametrize("name", SERVING)
def test_what_serves_recomputes_nothing(name: str) -> None:
    """Neither where it would be the quicker choice, nor where memory holds nothing else."""
    keep = Tmpc("keep", 2.0, 0.0, 4.0, 0.0)
    tmpcs = (keep, replace(keep, id="Recompute all", time=1.0, activation_bytes=1.0))
    layers = tuple(Layer(f"d{n}", {1: tmpcs}, role="decoder") for n in range(2))
    instance = replace(chain(*layers, K=2), bandwidth=1e9)
    result = found(instance, name)
    assert result.status is Status.OPTIMAL and result.objective == pytest.approx(2.0)
    assert {tmpc for stage in result.plan["stages"] for tmpc in stage["tmpcs"].values()} == {"keep"}
    assert found(instance, "deepspeed").objective == pytest.approx(1.0)
    small = replace(instance, memory_bytes=3.0)
    assert (found(small, name).status, found(small, "deepspeed").status) == (Status.INFEASIBLE, Status.OPTIMAL)
    recomputing = StagePlan(tuple(Stage((f"d{n}",), 1, 1, {f"d{n}": "Recompute all"}) for n in range(2)))
    assert realizable(instance, recomputing, name) == 0
    assert list(obstacles(instance, recomputing, TRAINERS[name])) == [
        f"node d0 has the TMPC 'Recompute all'; {name} has no backward pass to recompute for"
    ]


def test_definition_admits_the_plans_of_brute_force(cases: int) -> None:
    """Every plan that brute force lists is realizable, and priced by `evaluate` as brute force prices it."""
    tried = 0
    for case in range(cases):
        planted = oracle.planted(case)
        for trainer in TRAINERS:
            required = replace(planted.instance, requirements=(f"realizable({trainer}) == 1",))
            for (time, stages), _ in zip(oracle.plans(planted, trainer), range(6), strict=False):
                plan = StagePlan(tuple(Stage(*stage) for stage in stages))
                assert FAMILY.judge(required, plan) == ()
                assert FAMILY.evaluate(required, plan) == pytest.approx(time, rel=1e-12)
                tried += 1
    assert tried > cases


def layer(node: str, role: str = "decoder", module: str = "") -> Layer:
    """With and without recomputation, at t = 1 and 2."""
    keep = Tmpc("keep", 1.0, 1.0, 2.0, 1.0)
    return Layer(node, {t: (keep, replace(keep, id="recompute", time=2.0)) for t in (1, 2)}, "", module, role)


def chain(*layers: Layer, K: int = 4) -> StageInstance:
    edges = tuple(Edge(one.id, other.id, 1.0) for one, other in pairwise(layers))
    return StageInstance("chain", layers, edges, K, 100.0, 1.0, 8)


SIX = chain(layer("e", "embedding"), *(layer(f"d{n}") for n in range(4)), layer("h", "head"))


def plan(*stages: tuple[str, int, int, str]) -> StagePlan:
    """Stages as (nodes between blanks, d, t, nodes that are recomputed)."""
    made = []
    for nodes, d, t, recomputed in stages:
        tmpcs = {node: "recompute" if node in recomputed.split() else "keep" for node in nodes.split()}
        made.append(Stage(tuple(tmpcs), d, t, tmpcs))
    return StagePlan(tuple(made))


#: A plan, and what keeps which trainers from running it.
CASES = [
    (plan(("e d0 d1", 2, 1, ""), ("d2 d3 h", 2, 1, "")), {}),
    (plan(("e d0 d1", 2, 1, "d0"), ("d2 d3 h", 2, 1, "d2")), {"torchtitan": "some layers are recomputed"}),
    (
        plan(("e d0 d1", 2, 1, "d0"), ("d2 d3 h", 2, 1, "")),
        {"megatron": "1, 0 layers of the stages are recomputed", "torchtitan": "some layers"},
    ),
    (plan(("e d0 d1", 2, 1, "d0 d1"), ("d2 d3 h", 2, 1, "d2 d3")), {}),
    (
        plan(("e d0 d1", 2, 1, "d1"), ("d2 d3 h", 2, 1, "d3")),
        {"megatron": "recomputes the first n of every stage", "torchtitan": "some layers"},
    ),
    (
        plan(("e d0 d1", 2, 1, "e"), ("d2 d3 h", 2, 1, "")),
        dict.fromkeys(("megatron", "torchtitan"), "node e, or what stands with it, has a TMPC"),
    ),
    (plan(("e d0 d1", 3, 1, ""), ("d2 d3 h", 1, 1, "")), dict.fromkeys(TRAINERS, "data-parallel degrees 1, 3")),
    (plan(("e d0 d1", 1, 2, ""), ("d2 d3 h", 2, 1, "")), dict.fromkeys(TRAINERS, "tensor-parallel degrees 1, 2")),
]


@pytest.mark.parametrize(("given", "wanted"), CASES)
def test_what_keeps_a_trainer_from_running_a_plan(given: StagePlan, wanted: dict[str, str]) -> None:
    assert FAMILY.judge(SIX, given) == ()
    for name, trainer in TRAINERS.items():
        if name not in ("megatron", "torchtitan", "deepspeed"):
            continue
        reasons = "; ".join(obstacles(SIX, given, trainer))
        assert (wanted[name] in reasons) if name in wanted else not reasons, (name, reasons)
        assert realizable(SIX, given, name) == (name not in wanted)
        required = replace(SIX, requirements=(f"realizable({name}) == 1",))
        assert [each.rule for each in FAMILY.judge(required, given)] == ["required"] * (name in wanted)


def test_all_devices_are_to_be_used() -> None:
    half = plan(("e d0 d1", 1, 1, ""), ("d2 d3 h", 1, 1, ""))
    assert not any(obstacles(SIX, half, TRAINERS["megatron"]))
    assert realizable(SIX, half, "megatron") == 0 and realizable(replace(SIX, num_devices=2), half, "megatron") == 1


def test_pieces_of_chains_branches_modules_and_ends() -> None:
    megatron, titan = TRAINERS["megatron"], TRAINERS["torchtitan"]
    ends = ("e d0", "e d1", "d0 d2", "d1 d2", "d2 d3", "d3 h")
    branched = replace(SIX, edges=tuple(Edge(*pair.split(), 1.0) for pair in ends))
    assert [len(piece.nodes) for piece in pieces(SIX, titan)] == [1] * 6
    assert [len(piece.nodes) for piece in pieces(branched, titan)] == [1, 2, 1, 1, 1]
    assert [piece.branches for piece in pieces(branched, titan)] == [False, True, False, False, False]
    split = plan(("e d0", 2, 1, ""), ("d1 d2 d3 h", 2, 1, ""))
    assert "a DAG" in "; ".join(obstacles(branched, split, titan))
    modules = chain(layer("a", module="m.0"), layer("b", module="m.0"), layer("c", module="m.1"))
    assert [(piece.nodes, piece.modules) for piece in pieces(modules, titan)] == [((0, 1), ("m.0",)), ((2,), ("m.1",))]
    ends = chain(layer("w", "embedding"), layer("p", "embedding"), layer("d"), layer("n", "norm"), layer("h", "head"))
    assert [piece.kind for piece in pieces(ends, megatron)] == [Kind.EMBEDDING, Kind.DECODER, Kind.HEAD]
    assert len(pieces(ends, titan)) == 5


def test_what_no_layout_says_is_neither_planned_nor_exported() -> None:
    """States that the devices of a node share are not tensor parallelism, though they are a TMPC at t."""
    shared = tuple(
        replace(x, tmpcs={t: (*found, replace(found[0], id="zero1", time=0.1)) for t, found in x.tmpcs.items()})
        for x in SIX.layers
    )
    offered = replace(SIX, layers=shared)
    given = plan(("e d0 d1", 2, 1, ""), ("d2 d3 h", 2, 1, ""))
    first = replace(given.stages[0], tmpcs={**given.stages[0].tmpcs, "d0": "zero1"})
    with_states = replace(given, stages=(first, given.stages[1]))
    assert FAMILY.judge(offered, with_states) == ()
    for name, trainer in TRAINERS.items():
        if name == "accelerate":
            continue
        assert not list(obstacles(offered, given, trainer))
        assert "node d0 has the TMPC 'zero1'" in "; ".join(obstacles(offered, with_states, trainer))
        assert found(offered, name).objective == pytest.approx(found(SIX, name).objective)


def test_encoders_beside_decoders_are_no_chain_of_layers_of_one_kind() -> None:
    both = chain(layer("e", "embedding"), layer("a", "encoder"), layer("b", "decoder"), layer("h", "head"))
    assert "encoder layers and decoder layers" in found(both, "megatron").reason
    assert found(both, "torchtitan").status is Status.OPTIMAL


def test_numbers_that_drown_others_do_not() -> None:
    """A TMPC of 1e30 is impossible, and leaves the digits of all other stages alone."""
    layers = list(SIX.layers)
    keep, recompute = layers[2].tmpcs[1]
    layers[2] = replace(layers[2], tmpcs={1: (keep, replace(recompute, time=1e30, activation_bytes=1e30))})
    heavy = replace(SIX, layers=tuple(layers))
    for trainer in TRAINERS:
        assert found(heavy, trainer).objective == pytest.approx(found(SIX, trainer).objective, rel=1e-12)


def test_option_is_a_requirement_of_the_instance() -> None:
    instance = planner.load("bert32", devices=64, memory="8GiB", realizable="megatron")
    assert instance.requirements == ("realizable(megatron) == 1",)
    result = planner.solve(instance, exact=True)
    assert result.method == "realizable" and result.status is Status.OPTIMAL
    assert result.stats["price"] == pytest.approx(result.objective / result.stats["free_optimum"] - 1)
    assert result.stats["price"] > 0.5
    with pytest.raises(planner.UsageError, match="cannot honour the requirement realizable"):
        planner.solve(instance, method="cpsat")
    both = replace(planner.load("chain8"), requirements=("realizable(megatron) == 1", "num_stages <= 2"))
    with pytest.raises(planner.UsageError, match="cannot honour the requirement num_stages"):
        planner.solve(both, method="realizable")
    with pytest.raises(planner.UsageError, match="one requirement realizable"):
        planner.solve(planner.load("chain8"), method="realizable")


def test_branches_are_no_chain_for_a_trainer_that_counts() -> None:
    result = planner.solve(planner.load("diamond", realizable="megatron"))
    assert result.status is Status.INFEASIBLE and "side by side from node left on (a DAG)" in result.reason
    assert planner.solve(planner.load("diamond", realizable="deepspeed")).status is Status.OPTIMAL
