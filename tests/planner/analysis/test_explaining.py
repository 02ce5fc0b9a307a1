"""Conflicts and repairs: infeasible alone, feasible without any one member, and the first number that repairs."""

import json
import os
import random
import re
import signal
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from oracles.stage_graph import plans
from small_instances import random_case

import planner
from formulations.contract.family import Answer
from formulations.stage_graph import FAMILY
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor
from instances.problems.stage_graph import AffineTime, OperatorEdge, StageGraph
from instances.problems.stage_graph import Operator as Branch
from instances.problems.stage_partitioning import CostModel, Edge, Layer, StageInstance, Tmpc
from planner.cli.app import main
from planner.display.explained import _lines
from planner.files.load import family_of
from solvers.outcome import Limits, Status, Stop


def test_degrees_that_cannot_sum_to_the_batch() -> None:
    """Two layers, three micro-batches exactly: degrees 1 and 2 would do; 2 does not divide 3, and 3 is too large."""
    layers = tuple(Layer(node, {1: (Tmpc("x", 1.0, 0.0, 1.0, 0.0),)}) for node in range(2))
    instance = StageInstance(
        "sums", layers, (), 4, 10.0, 1.0, 3, cost_model=CostModel.RELEASED, exactly=True, max_dp_degree=2
    )
    found = planner.explain(instance)
    assert [each.name for each in found.conflict] == ["max-dp", "cost-model", "microbatches"]
    assert [each.change for each in found.repairs] == ["exactly", "max-dp", "cost-model"]


def test_a_requirement_alone_may_be_the_conflict() -> None:
    instance = planner.load("chain8", require="num_stages <= 1")
    assert planner.explain(instance).status is Status.OPTIMAL
    found = planner.explain(planner.load("chain8", require=["num_stages >= 4", "num_stages <= 3"]))
    assert [each.name for each in found.conflict] == ["num_stages >= 4", "num_stages <= 3"]
    assert [each.change for each in found.repairs] == ["requirement", "requirement"]


def test_the_reason_of_solve_is_its_first_line_and_agrees_with_the_repairs(cases: int) -> None:
    """What would be enough is found by a search of tables there, and by exact methods on changed instances here."""
    agreeing = {"memory": 0, "devices": 0}
    names = ("stage_partitioning", "flushed_partitioning", "hierarchical_partitioning", "operator_partitioning")
    for number, name in product(range(2, max(12, cases // 2)), names):
        if number == 8 and cases < 100 and min(agreeing.values()) >= 2:
            break
        instance = random_case(name, 31, number)
        result = planner.solve(instance, exact=True)
        if result.status is not Status.INFEASIBLE or getattr(instance, "requirements", ()):
            continue
        found = planner.explain(instance)
        assert found.reason and found.reason in result.reason, (found.reason, result.reason)
        assert next(_lines(found)) == f"{instance.name} ({name}): {found.reason}"
        least = re.search(r"of (?:[^(;]* \()?(\S+) bytes\)? would suffice", found.reason.partition("; ")[0])
        if name != "operator_partitioning":
            assert (float(least[1]) if least else None) == result.stats.get("least_memory_bytes"), found.reason
            assert least or "no memory would suffice with " in found.reason
        figures = {"memory": "least_memory_bytes", "devices": "fewest_devices"}
        for each in found.repairs:
            known = result.stats.get(figures.get(each.change, ""))
            if known is not None:
                assert each.amount == known, (name, number, each.change, each.amount, known)
                agreeing[each.change] += 1
    assert min(agreeing.values()) >= 2, agreeing


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "chain8", "--memory", "20MB", "--json"]) == 4
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "infeasible" and found["irreducible"]
    assert {"kind": "rule", "name": "devices", "says": "there are 4 devices"} in found["conflict"]
    assert {each["change"]: each["amount"] for each in found["repairs"]}["devices"] == 9
    assert main(["explain", "chain8", "--devices", "9", "--memory", "20MB"]) == 0
    shown = capsys.readouterr().out
    assert "optimum" in shown and "one more device" in shown and "slowest: stage" in shown
    assert main(["explain", "chain8", "--memory", "20MB"]) == 4
    shown = capsys.readouterr().out
    assert "  9 devices: " in shown and "without any one of them there is one" in shown


def test_refusals_and_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "topology"]) == 2
    refused = capsys.readouterr().err
    assert refused.startswith("INSTANCE is 'device_mapping'; expected an instance of ") and refused.count("\n") == 1
    assert "stage_partitioning" in refused and "mesh_tiling" in refused
    assert main(["explain", "graphpipe-case-study", "--schedule", "kfkb"]) == 2
    refused = capsys.readouterr().err
    assert "expected one that an exact method takes (levels: schedule kfkb" in refused and refused.count("\n") == 1
    assert main(["explain", "chain8", "--time-limit", "0"]) == 3
    assert "not known whether there is a plan" in capsys.readouterr().out


def test_a_relaxed_instance_that_no_method_takes_ends_the_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    family = family_of(planner.load("layers"))
    limited = tuple(
        replace(method, supports=lambda each: "too few stages" if each.num_stages < 35 else None)
        for method in family.methods
    )
    monkeypatch.setattr("planner.analysis.proofs.family_of", lambda _: replace(family, methods=limited))
    found = planner.explain(planner.load("layers", stages=40))
    assert (found.status, found.stop, found.irreducible) == (Status.INFEASIBLE, Stop.SIZE_LIMIT, False)
    assert found.conflict and found.proofs == 1
    with pytest.raises(planner.UsageError, match=r"one that an exact method takes .*too few stages"):
        planner.explain(planner.load("layers"))


def test_where_a_method_ends_without_a_proof_the_next_one_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    family = family_of(planner.load("layers"))
    methods = tuple(
        replace(method, solve=lambda *_: Answer()) if method.name == "exact" else method for method in family.methods
    )
    monkeypatch.setattr("planner.analysis.proofs.family_of", lambda _: replace(family, methods=methods))
    found = planner.explain(planner.load("layers", layers=6, stages=2))
    assert (found.status, found.stop) == (Status.OPTIMAL, Stop.PROVED) and found.result is not None
    assert found.result.method != "exact"


def test_a_signal_leaves_what_is_known() -> None:
    def listen(count: int) -> None:
        if count == 5:
            os.kill(os.getpid(), signal.SIGINT)

    found = planner.explain(planner.load("chain8", memory="20MB"), listen=listen)
    assert (found.signal, found.stop, found.proofs) == (signal.SIGINT, Stop.INTERRUPTED, 5)
    assert found.status is Status.INFEASIBLE and found.conflict and not found.irreducible and not found.repairs
    whole = planner.explain(planner.load("chain8", memory="20MB"), limits=Limits(time_s=600))
    assert whole.irreducible and len(whole.conflict) < len(found.conflict)


def repairs(instance: Any) -> dict[str, float]:
    found = planner.explain(instance)
    assert found.status is Status.INFEASIBLE
    return {each.change: each.amount for each in found.repairs}


def three(K: int, *requirements: str, minibatch: int = 1, memory: float = 100.0) -> StageGraph:
    """Two branches that meet."""
    time = AffineTime(1.0, 1.0)
    operators = tuple(Branch(name, time, time, 1.0, 1.0) for name in "abc")
    edges = (OperatorEdge(0, 2, 1.0), OperatorEdge(1, 2, 1.0))
    return StageGraph("three", operators, edges, K, memory, 1.0, 0.0, minibatch, requirements=requirements)


def has_plan(instance: StageGraph) -> bool:
    """By the definition, of every plan that there is."""
    return any(not FAMILY.judge(instance, FAMILY.plan_from_json(instance, each)) for each in plans(instance))


def compared(number: int, seen: Counter[str]) -> None:
    """One random instance that has no plan, against all numbers of devices up to one that is beyond any use."""
    rng = random.Random(f"idle {number}")
    wanted = [f"idle_devices {rng.choice(('<=', '>=', '=='))} {rng.randint(0, 3)}" for _ in range(rng.randint(1, 2))]
    more = rng.choice(("num_stages >= 2", "num_stages >= 3", "devices_of(1) >= 2", "devices_of(0) == 1"))
    memory = rng.choice((5.0, 7.0, 9.0, 100.0))
    instance = three(rng.randint(1, 4), *wanted, more, minibatch=rng.choice((1, 2)), memory=memory)
    if has_plan(instance):
        return
    K = instance.num_devices
    most = 3 * instance.minibatch + 4  # three stages, three idle devices, and one more
    first = next((k for k in range(K + 1, most + 1) if has_plan(replace(instance, num_devices=k))), None)
    assert repairs(instance).get("devices") == first, (number, instance.requirements)
    seen["none" if first is None else "some"] += 1


def test_the_first_number_of_devices_is_that_of_brute_force(cases: int, many: int) -> None:
    seen: Counter[str] = Counter()
    for number in (2, 3, 5, *range(6, min(many, 500) or cases // 8)):  # 5 has some, 2 and 3 have none
        compared(number, seen)
    assert seen["some"] and seen["none"], seen


def operators(replicas: int, *requirements: str, pooled: bool, memory: float) -> OperatorInstance:
    own = tuple(Operator(name, 1.0, memory_bytes=70.0) for name in "ab")
    return OperatorInstance(
        "operators", own, (Tensor(0, (1,), 1.0),), 2, replicas=replicas, bandwidth_bytes_per_s=1.0,
        memory_bytes=memory, pooled_memory=pooled, requirements=requirements,
    )  # fmt: skip


def test_replicas_as_many_as_share_memory_or_are_required() -> None:
    assert repairs(operators(1, pooled=True, memory=1.0))["replicas"] == 70
    assert "replicas" not in repairs(operators(1, pooled=False, memory=1.0))
    assert repairs(operators(1, "replicas_of(a) == 4", pooled=False, memory=70.0))["replicas"] == 4
    assert "replicas" not in repairs(operators(1, "replicas_of(a) <= 3", pooled=True, memory=10.0))
    shared = replace(operators(1, pooled=True, memory=1.0), num_devices=139)
    assert repairs(shared)["devices"] == 140


def chain(K: int, N: int, cost_model: CostModel = CostModel.PAPER, **fields: Any) -> StageInstance:
    """Four layers, each of which fills a device."""
    layers = tuple(Layer(f"d{v}", {1: (Tmpc("x", 1.0, 0.0, 0.0, 10.0),)}, role="decoder") for v in range(4))
    edges = tuple(Edge(f"d{v}", f"d{v + 1}", 0.0) for v in range(3))
    return StageInstance("chain", layers, edges, K, 10.0, 1.0, N, cost_model=cost_model, **fields)


def test_a_trainer_that_uses_all_devices_is_asked_for_each_number() -> None:
    """It takes four devices, neither three nor five."""
    instance = chain(1, 8, requirements=("realizable(accelerate) == 1",))
    assert repairs(instance)["devices"] == 4


def test_what_is_not_tried_is_said() -> None:
    """Degrees that divide: three of three micro-batches would do, of which none but 4, 8, ... are tried."""
    instance = chain(4, 2, CostModel.RELEASED, requirements=("dp_degree(0) == 3",))
    found = planner.explain(instance)
    assert "micro-batches other than twice as many, up to 2048 in a batch" in found.untried
    assert "Not tried: micro-batches other than twice as many" in "\n".join(_lines(found))
    assert not planner.explain(three(2, "num_stages >= 4")).untried
