"""Serving strategies: the definition by hand, every method beside brute force, each rule, exports, Llama on H100s."""

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracles.serving_strategy import figures, optimum, plans, random_instance

import planner
from formulations.serving_strategy import exact
from formulations.serving_strategy.definition.plan import ServingPlan, plan_of_cuts
from formulations.serving_strategy.definition.problem import (
    cached_tokens,
    degrees,
    evaluate,
    first_token_s,
    request_s,
    sends_s,
    stage_bytes,
    stage_work_s,
    token_s,
    violations,
)
from formulations.serving_strategy.models.cpsat import model_of
from formulations.serving_strategy.shapes import even
from instances.errors import InstanceError
from instances.problems.serving_strategy import ServedLayer, ServingInstance
from planner.cli.app import main
from planner.training.trainers.exporting import export
from planner.training.trainers.formats import FORMATS
from solvers.outcome import Limits, Status, Stop, Watch


def by_hand(**given: Any) -> ServingInstance:
    """Two layers and a head; a prompt of 4 tokens and 3 generated ones; one operation or byte of memory a second."""
    layers = (ServedLayer(8.0, 4.0, 2.0, 1.0), ServedLayer(16.0, 2.0, 1.0))
    made = ServingInstance(
        "hand", layers, 4, 2, 10.0, 20.0, 8, 4, 1000.0, 1.0, 1.0, 10.0, 5.0, 4, 3, 6.0, 12.0, 5.0, 1.0, 0.5, 2.0, (1, 2)
    )
    return replace(made, **given)


def test_a_pipeline_by_hand() -> None:
    instance, plan = by_hand(), ServingPlan(2, 1, 2, (1, 1))
    # Prompt: 4 x 4 operations, 10 pairs of tokens; 16 bytes, and 4 x 1 bytes of the cache; the head 12 bytes.
    # A decode step of 2 sequences of 5.5 tokens: 8 bytes and 22 bytes of the cache; 16 and 11; the head 12.
    assert stage_work_s(instance, plan, 0, 1) == 16 + 10 + 2 * (8 + 22) / 2
    assert stage_work_s(instance, plan, 1, 2) == 16 + 4 + 12 + 2 * (16 + 11 + 12) / 2
    # Two stages of one device are in a machine of four: half a second and 4 x 20 or 2 x 20 bytes at 10 a second.
    assert first_token_s(instance, 1, 2) == 26 + 32 + 0.5 + 8
    alone = 66.5 + 2 * (30 + 39 + 0.5 + 4)
    assert request_s(instance, plan) == 4 * max(56, 71, alone / 4)
    assert token_s(instance, plan) == (284 - 66.5) / 2
    assert evaluate(instance, plan) == 71 / (2 * 3) and evaluate(replace(instance, objective="latency"), plan) == 284
    # 7 tokens of 4 sequences are a block each, and one is empty; 8 tokens of activations.
    assert cached_tokens(instance, 4) == 80
    assert stage_bytes(instance, plan, 0, 1) == 8 + 6 + 8 + 80 * 2
    assert stage_bytes(instance, plan, 1, 2) == 16 + 12 + 8 + 80 * 1


@pytest.mark.parametrize(
    ("devices", "machine", "t", "p", "outer"),
    [
        *[(3, 4, 1, 3, 0), (8, 8, 2, 3, 0), (8, 8, 1, 5, 0), (16, 8, 4, 4, 1), (16, 8, 2, 4, 0), (12, 4, 1, 9, 2)],
        *[(4, 2, 4, 1, 0), (8, 2, 4, 2, 1), (3, 4, 1, 2, 0), (6, 4, 1, 3, 1), (5, 4, 1, 3, 0), (9, 3, 2, 4, 3)],
    ],
)
def test_sends_of_the_replica_that_most_often_leaves_a_machine(
    devices: int, machine: int, t: int, p: int, outer: int
) -> None:
    """Ranks in order: six devices in machines of four are 0 1 2 and 3 | 4 5, which leaves the first machine once."""
    instance = by_hand(num_devices=devices, devices_per_machine=machine)
    assert sends_s(instance, t, p, 1) == pytest.approx((p - 1 - outer) * (0.5 + 2) + outer * (2 + 4))


def test_tensor_parallelism_by_hand() -> None:
    instance = by_hand()
    assert degrees(instance) == (1, 2, 4) and degrees(replace(instance, kv_heads=1, devices_per_machine=3)) == (1,)
    # Four devices share two heads of keys: each has half of the cache. Two all-reduces of 4 x 10 bytes in a ring.
    plan = ServingPlan(1, 4, 1, (2,))
    reduced = 2 * (0.5 + 2 * 3 / 4 * 40 / 10)
    prompt = (4 + 4) + reduced, (4 + 2) + reduced
    step = 2 * (0.5 + 2 * 3 / 4 * 10 / 10)
    decode = (2 + 5.5) + step, (4 + 2.75) + step
    assert stage_work_s(instance, plan, 0, 2) == pytest.approx(sum(prompt) + 3 + 2 * (sum(decode) + 3))
    assert stage_bytes(instance, plan, 0, 2) == (24 + 6 + 12 + 5) / 4 + 32 * 3 / 2
    # Over machines of two, the slower links count.
    outer = replace(instance, devices_per_machine=2)
    slower = 4 * (2 - 0.5 + 6 * (2 - 1)) + 2 * 4 * (2 - 0.5 + 1.5 * (2 - 1))
    assert stage_work_s(outer, plan, 0, 2) - stage_work_s(instance, plan, 0, 2) == pytest.approx(slower)


@pytest.mark.parametrize(
    ("plan", "given", "rules"),
    [
        (ServingPlan(1, 1, 1, (2,)), {}, []),
        (ServingPlan(1, 1, 1, (2, 0)), {}, ["counts"]),
        (ServingPlan(1, 1, 1, (3,)), {}, ["counts"]),
        (ServingPlan(1, 1, 1, ()), {}, ["counts"]),
        (ServingPlan(0, 1, 1, (2,)), {}, ["counts"]),
        (ServingPlan(1, 1, 3, (2,)), {}, ["counts"]),
        (ServingPlan(1, 3, 1, (2,)), {}, ["divisibility"]),
        (ServingPlan(4, 2, 1, (1, 1)), {}, ["devices"]),
        (ServingPlan(2, 1, 2, (2,)), {"requests": 4}, []),
        (ServingPlan(2, 1, 2, (2,)), {"requests": 5}, ["requests"]),
        (ServingPlan(2, 1, 2, (1, 1)), {"first_token_limit_s": 66.5}, []),
        (ServingPlan(2, 1, 2, (1, 1)), {"first_token_limit_s": 66.4}, ["first_token"]),
        (ServingPlan(2, 1, 2, (1, 1)), {"token_limit_s": 108.75}, []),
        (ServingPlan(2, 1, 2, (1, 1)), {"token_limit_s": 108.7}, ["deadline"]),
        (ServingPlan(2, 1, 2, (1, 1)), {"memory_bytes": 182.0}, []),
        (ServingPlan(2, 1, 2, (1, 1)), {"memory_bytes": 181.9}, ["memory"]),
    ],
)
def test_rules(plan: ServingPlan, given: dict[str, Any], rules: list[str]) -> None:
    assert [each.rule for each in violations(by_hand(**given), plan)] == rules


def test_what_is_no_instance() -> None:
    for change in ({"layers": ()}, {"batches": ()}, {"batches": (2, 1)}, {"kv_heads": 3}):
        with pytest.raises(InstanceError, match=next(iter(change))):
            planner.solve(replace(by_hand(), **change))


def test_cuts_and_lengths_say_the_same() -> None:
    for cuts in ((), (0,), (1, 0, 1), (0, 0, 1, 1)):
        plan = plan_of_cuts(1, 1, 1, cuts)
        assert plan.cuts == cuts and plan.pp_degree == 1 + sum(cuts) and sum(plan.lengths) == len(cuts) + 1


def test_even_layers_are_vllms() -> None:
    """As its documented examples: 61 layers on two and four stages."""
    assert even(61, 2) == [31, 30] and even(61, 4) == [15, 15, 16, 15] and even(32, 4) == [8] * 4


def test_the_definition_is_the_oracles() -> None:
    rng, kept, broken = random.Random(1), 0, 0
    for _ in range(40):
        instance = random_instance(rng, 4)
        for found in rng.sample(every := list(plans(instance)), min(6, len(every))):
            plan = ServingPlan(*found.values())
            wanted = figures(instance, *found.values())
            assert evaluate(instance, plan) == pytest.approx(wanted.pop("objective"), rel=1e-12)
            rules = {rule for rule, share in wanted.items() if share > 1 + 1e-9}
            assert rules <= {each.rule for each in violations(instance, plan)} or "counts" in rules
            kept, broken = kept + (not rules), broken + bool(rules)
    assert kept > 20 and broken > 20


def beside_brute_force(method: str, cases: int, seed: int) -> set[Status]:
    """Every exact method has the oracle's optimum, and the heuristic nothing better."""
    seen = set()
    for number in range(cases):
        instance = random_instance(random.Random(f"{seed} {number}"))
        best = optimum(instance)
        result = planner.solve(instance, method=method, limits=Limits(time_s=60))
        seen.add(result.status)
        if method == "vllm-guide":
            assert result.objective is None or (best is not None and result.objective >= best * (1 - 1e-9)), number
        elif best is None:
            assert result.status is Status.INFEASIBLE, number
        else:
            assert result.status is Status.OPTIMAL and result.objective == pytest.approx(best, rel=1e-6), number
    return seen


@pytest.mark.parametrize("method", ["shape-search", "cpsat", "vllm-guide", "brute-force"])
def test_methods_beside_brute_force(method: str) -> None:
    assert len(beside_brute_force(method, 8 if method == "cpsat" else 20, 1)) == 2


def test_a_shape_that_is_better_by_less_than_a_hundredth_is_found() -> None:
    instance = random_instance(random.Random(427), 3)
    assert planner.solve(instance, method="shape-search").objective == pytest.approx(optimum(instance))


def test_a_proof_counts_every_shape_by_what_it_breaks() -> None:
    """One stage does not fit; of two the mean is in time, and no layout. Then no shape has so many sequences."""
    instance = by_hand(heads=1, kv_heads=1, num_devices=2, batches=(2,), memory_bytes=182.0, token_limit_s=98.75)
    reason = str(planner.solve(instance, method="shape-search").reason)
    assert "of 2 degrees" in reason and "1 are too slow between tokens, 1 do not fit" in reason
    assert "of 0 degrees and batches that keep the rules on devices, requests and the first token" in str(
        planner.solve(replace(instance, requests=50), method="shape-search").reason
    )


def test_a_search_that_is_stopped_at_once_has_the_plan_of_the_guide(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = by_hand()
    monkeypatch.setattr(exact, "shapes", lambda _, watch: iter(watch.stop(Stop.INTERRUPTED) or ()))
    found, guided = exact.solve(instance, Limits(), Watch(Limits())), planner.solve(instance, method="vllm-guide")
    assert found.plan is not None and evaluate(instance, found.plan) == guided.objective


def test_a_model_that_is_pinned_to_a_plan_is_the_definition() -> None:
    """Each rule forbids what breaks it, before any plan is cut off, and the objective is the plan's."""
    rng, kept, rules = random.Random(3), set[str](), set[str]()
    while len(kept) < 2 or not rules >= {"memory", "deadline", "requests"}:
        instance = random_instance(rng, 4)
        model, found = model_of(instance), rng.choice(list(plans(instance)))
        plan, wanted = ServingPlan(**{**found, "lengths": tuple(found["lengths"])}), figures(instance, *found.values())
        objective, most = wanted.pop("objective"), max(wanted.values())
        if (plan.tp_degree, plan.pp_degree, plan.batch) not in model.data.shapes or 0.999999 < most < 1.000001:
            continue
        for variable, value in model.values_of(plan):
            model.model.add(variable == value)
        run = model.run(Limits(time_s=30), Watch(Limits()))
        assert run.infeasible is (most > 1), wanted
        rules |= {rule for rule, share in wanted.items() if share > 1}
        if most <= 1 and plan.pp_degree > 1:
            assert model.lower_bound(run.bound) == pytest.approx(objective, rel=1e-6)
            kept.add(instance.objective)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["shape-search", "cpsat"])
def test_methods_beside_brute_force_2000_times(method: str) -> None:
    assert beside_brute_force(method, 2000, 2) == {Status.OPTIMAL, Status.INFEASIBLE}


@pytest.mark.parametrize(
    "required", ["pp_degree >= 3", "tp_degree == 2", "cuts(0) == 1", "replicas == 1", "batch <= 1"]
)
def test_requirements_beside_brute_force(required: str) -> None:
    layers = (ServedLayer(30.0, 30.0, 1.0), ServedLayer(9.0, 5.0, 2.0), ServedLayer(20.0, 4.0, 1.0))
    instance = by_hand(layers=layers, requirements=(required,))
    found = [planner.solve(instance, method=method) for method in ("cpsat", "brute-force")]
    assert [each.status for each in found] == [Status.OPTIMAL] * 2
    assert found[0].objective == pytest.approx(found[1].objective, rel=1e-9)
    assert found[1].objective > planner.solve(by_hand(layers=layers)).objective or required == "batch <= 1"


def test_llama_on_h100s() -> None:
    """Within 20 ms a token two devices share a replica: they have room for more sequences than each alone."""
    instance = planner.load("llama3-8b-serving", token_limit=0.02)
    found = planner.solve(instance, exact=True)
    assert found.status is Status.OPTIMAL and found.plan["tp_degree"] == 2 and found.plan["replicas"] == 4
    guide = planner.solve(instance, method="vllm-guide")
    assert (guide.plan["tp_degree"], guide.plan["batch"]) == (1, 40) and guide.objective > 1.1 * found.objective


@pytest.mark.slow
def test_larger_llama_on_h100s() -> None:
    """70B within 50 ms a token takes a machine for a replica; one request alone takes both machines."""
    instance = planner.load("llama3-70b-serving")
    found = planner.solve(instance, exact=True)
    assert found.plan == {"replicas": 2, "tp_degree": 8, "batch": 120, "lengths": [80]}
    alone = planner.solve(replace(instance, objective="latency"), method="cpsat")
    assert alone.status is Status.OPTIMAL and (alone.plan["tp_degree"], alone.plan["batch"]) == (16, 1)


def test_exports_have_what_the_server_is_started_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance = by_hand(num_devices=16)
    plan = {"replicas": 2, "tp_degree": 4, "batch": 2, "lengths": [1, 1]}
    made = export(instance, plan, "vllm")
    text, note = made.text, "vllm does not cut sequences into 2 batches of 2, as the plan does"
    assert note in made.notes and note not in export(instance, {**plan, "lengths": [2]}, "vllm").notes
    assert text is not None and "VLLM_PP_LAYER_PARTITION=1,1\n" in text
    options = dict(re.findall(r"--(\S+) (\d+)", text))
    assert options == {
        **{"pipeline-parallel-size": "2", "tensor-parallel-size": "4", "data-parallel-size": "2"},
        **{"max-num-seqs": "4", "max-model-len": "7", "max-num-batched-tokens": "8"},
        "kv-cache-memory-bytes": "80",  # five blocks of 16 tokens, 2 bytes of each, shared by two
    }
    assert FORMATS["vllm"].read(text).tp_degree == 4
    found = export(instance, plan, "sglang")
    assert (
        found.lossless
        and len(found.notes) == 2
        and found.text is not None
        and "16 devices are more than a machine has" in found.notes[1]
    )
    assert dict(re.findall(r"--(max\S+|con\S+|chu\S+) (\d+)", found.text)) == {
        **{"max-running-requests": "4", "context-length": "11", "chunked-prefill-size": "8", "max-total-tokens": "80"}
    }
    # What SGLang generates is at most its context, or the tokens of its cache, less 2 and the prompt.
    longer = export(by_hand(generated_tokens=40), {**plan, "replicas": 1}, "sglang").text or ""
    assert "--context-length 46 " in longer and int(re.findall(r"max-total-tokens (\d+)", longer)[0]) >= 46
    for trains in ("megatron", "torch", "accelerate"):
        refused = export(instance, plan, trains)
        assert refused.text is None and "one of an inference server" in (refused.refused or "")
    path = tmp_path / "plan.json"
    assert main(["solve", "llama3-8b-serving", "--out", str(path)]) == 0
    assert main(["export", str(path), "llama3-8b-serving", "--to", "megatron"]) == 1
    assert "--nearest searches" not in capsys.readouterr().err
    assert main(["export", str(path), "llama3-8b-serving", "--to", "vllm"]) == 0
    assert "--max-num-seqs 152" in capsys.readouterr().out
