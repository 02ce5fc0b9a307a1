"""Sequences that tensor-parallel devices share, and recomputation of the attention's core: layers of GPTs."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from oracles.training_strategy import plans
from thinned import thinned

import planner
from formulations.training_strategy import FAMILY
from formulations.training_strategy.definition.plan import StrategyPlan
from formulations.training_strategy.definition.problem import evaluate
from instances.generators.transformer import RECOMPUTE, SELECTIVE, SEQUENCE, VANILLA
from instances.problems.stage_partitioning import Tmpc
from instances.problems.training_strategy import StrategyInstance
from planner.cli.app import main
from planner.solving.solve import run
from solvers.outcome import Limits, Status

S, B, H, HEADS, T = 512, 2, 1024, 16, 4
A = 2 * B * S * H


def gpt(**given: Any) -> StrategyInstance:
    sizes = {"hidden_size": H, "heads": HEADS, "sequence_length": S, "microbatch_size": B, "vocabulary": 1024}
    return planner.load("gpt", problem="training_strategy", **({"layers": 2, "devices": 4} | sizes | given))


def ways(instance: StrategyInstance, t: int = T) -> dict[str, Tmpc]:
    """The TMPCs of a transformer layer."""
    return {x.id: x for x in instance.flat.layers[2].tmpcs[t]}


def test_a_layer_holds_what_the_equations_say() -> None:
    """Korthikanti et al., equations 2 (with whole inputs and outputs), 4 and 6; the input and output are 2 A."""
    plain = ways(gpt(keep_probabilities=True, sequence_parallel=True))
    core = 5 * HEADS * B * S**2 / T
    assert plain[VANILLA].activation_bytes == 17 * A / T + 2 * A + core
    assert plain[SEQUENCE].activation_bytes == (17 + 2) * A / T + core
    assert plain[f"{SEQUENCE}, {SELECTIVE}"].activation_bytes == 19 * A / T
    assert plain[SELECTIVE].activation_bytes == 17 * A / T + 2 * A
    assert plain[f"{SEQUENCE}, {RECOMPUTE}"].activation_bytes == A / T
    assert len({(x.weight_bytes, x.static_bytes) for name, x in plain.items() if RECOMPUTE not in name}) == 1
    # Without these choices the layer is what it was.
    assert ways(gpt()) == {name: x for name, x in ways(gpt(sequence_parallel=True)).items() if "sequence" not in name}
    assert set(ways(gpt(sequence_parallel=True), 1)) == {VANILLA, RECOMPUTE}


def test_times_of_shared_sequences() -> None:
    """Eleven passes of A less, and twice that back, at 1.3 TB/s; two gathers of the backward pass more, at 225 GB/s."""
    own = ways(gpt(keep_probabilities=True, sequence_parallel=True))
    saved, gathers = 3 * 11 * A * (1 - 1 / T) / 1.3e12, 2 * (T - 1) / T * A / 225e9
    assert own[SEQUENCE].time == pytest.approx(own[VANILLA].time - saved + gathers)
    operations = 4 * B * S**2 * H / T / (312e12 * 0.6) * (1 + 640 * T / H)
    for name, kept in ((SELECTIVE, VANILLA), (f"{SEQUENCE}, {SELECTIVE}", SEQUENCE)):
        assert own[name].time - own[kept].time == pytest.approx(operations)
    assert own[SEQUENCE].sync_forward_bytes == {} != own[VANILLA].sync_forward_bytes


def named(memory: str, name: str) -> StrategyInstance:
    return gpt(memory=memory, microbatches=4, sequence_parallel=True, keep_probabilities=True, realizable=name)


@cache
def priced() -> list[tuple[float, StrategyPlan]]:
    """All plans in rising order of their iterations, whatever the memory and the trainer."""
    instance = named("1TB", "megatron")
    every = (FAMILY.plan_from_json(instance, each) for each in plans(instance))
    return sorted(((evaluate(instance, each), each) for each in every), key=lambda pair: pair[0])


@thinned("name", ["megatron", "torchtitan", "deepspeed"])
def test_the_best_plan_of_a_trainer_is_that_of_all_plans(name: str) -> None:
    """Megatron shares sequences and recomputes cores, in all layers or in none; torchtitan shares sequences alone."""
    seen = set()
    for memory in ("600MB", "450MB", "400MB", "350MB", "280MB", "200MB"):
        asked = named(memory, name)
        best = next((time for time, plan in priced() if not FAMILY.judge(asked, plan)), None)
        found = run(FAMILY, FAMILY.method("exact"), asked, Limits(), {})
        assert (best is None) == (found.status is Status.INFEASIBLE)
        if best is not None:
            assert found.status is Status.OPTIMAL and found.objective == pytest.approx(best, rel=1e-9)
            names = " ".join(found.own_plan.tmpcs.values())
            seen |= {(found.own_plan.sequence_parallel, "selective" in names)}
    allowed = {"megatron": {False, True}, "torchtitan": {False}, "deepspeed": {False}}[name]
    assert {selective for _, selective in seen} <= allowed
    assert any(sequences for sequences, _ in seen) == (name != "deepspeed")


def plan_of(instance: StrategyInstance, name: str, **given: Any) -> dict[str, Any]:
    nodes = [layer.id for layer in instance.chain]
    has = {v: {x.id for x in instance.flat.layers[instance.flat.index[v]].tmpcs[2]} for v in nodes}
    shared = "sequence" in name
    plain = {v: SEQUENCE if shared and SEQUENCE in own else VANILLA for v, own in has.items()}
    tmpcs = {str(v): name if v in (2, 3) else plain[v] for v in nodes}
    return {"pp_degree": 1, "tp_degree": 2, "dp_degree": 2, "virtual_stages": 1, "schedule": "1f1b", "chunks": [nodes],
            "tmpcs": tmpcs, "sequence_parallel": shared}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "words", "absent"),
    [
        (SEQUENCE, "--sequence-parallel", "--recompute"),
        (SELECTIVE, "--recompute-modules core_attn", "--sequence-parallel"),
        (f"{SEQUENCE}, {SELECTIVE}", "--recompute-granularity selective", "block"),
        (f"{SEQUENCE}, {RECOMPUTE}", "--recompute-num-layers 2", "selective"),
    ],
)
def test_megatron_is_given_its_flags(name: str, words: str, absent: str) -> None:
    instance = gpt(sequence_parallel=True, keep_probabilities=True)
    found = planner.export(instance, plan_of(instance, name), "megatron")
    assert found.refused is None and found.lossless and found.text is not None
    assert words in found.text and absent not in found.text
    assert ("--sequence-parallel" in found.text) == ("sequence" in name)


def test_the_answer_for_a_trainer_says_what_is_recomputed(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--layers 2 --hidden-size 1024 --heads 16 --sequence-length 512 --microbatch-size 2 --vocabulary 1024"
    sizes += " --devices 4 --microbatches 4 --memory 205MB --sequence-parallel --keep-probabilities --for megatron"
    assert main(["solve", "gpt", "--problem", "training_strategy", *sizes.split()]) == 0
    assert ", 2 of 2 layers recomputed (core_attn alone), " in capsys.readouterr().out


def test_what_is_not_in_all_layers_is_refused() -> None:
    instance = gpt(sequence_parallel=True, keep_probabilities=True)
    some = plan_of(instance, SELECTIVE)
    some["tmpcs"]["2"] = VANILLA
    refused = planner.export(instance, some, "megatron").refused
    assert refused is not None and "node 2 does not recompute the attention's core, and others do" in refused
    titan = planner.export(instance, plan_of(instance, SEQUENCE), "torchtitan")
    assert titan.text is not None and not any("sequences" in note for note in titan.notes)
    whole = planner.export(instance, plan_of(instance, VANILLA), "torchtitan")
    assert any("shares sequences" in note for note in whole.notes)
    other = planner.export(instance, plan_of(instance, SEQUENCE), "deepspeed").refused
    assert other is not None and "does not say what it shares" in other


def test_sequences_are_a_choice_of_the_plan() -> None:
    """A plan that shares them may not name a layer that does not, and a requirement speaks of it."""
    instance = gpt(sequence_parallel=True)
    wrong = FAMILY.plan_from_json(instance, plan_of(instance, SEQUENCE) | {"sequence_parallel": False})
    assert {each.rule for each in FAMILY.violations(instance, wrong)} == {"tmpc"}
    for value in (0, 1):
        asked = replace(instance, requirements=("tp_degree == 2", f"sequence_parallel == {value}"))
        found = run(FAMILY, FAMILY.method("exact"), asked, Limits(), {})
        assert found.own_plan.sequence_parallel == bool(value)
        assert any("sequence" in name for name in found.own_plan.tmpcs.values()) == bool(value)
