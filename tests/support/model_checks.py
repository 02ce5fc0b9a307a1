"""What every exact method of stage partitioning must show; shared by the tests of the declarative models."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from oracles.stage_partitioning import brute_force

from formulations.contract.family import Answer
from formulations.modelling.solve_model import Stopped
from formulations.stage_partitioning.definition.plan import Stage, StagePlan
from formulations.stage_partitioning.definition.problem import allowed_dp_degrees, evaluate, violations
from instances.problems.stage_partitioning import CostModel, Edge, Layer, StageInstance, Tmpc
from solvers.outcome import OPTIMAL_GAP, Limits, Stop, Watch

Solve = Callable[[StageInstance, Limits, Watch], Answer[StagePlan]]


def check_answer(solve: Solve, instance: StageInstance, gap: float = OPTIMAL_GAP) -> Answer[StagePlan]:
    """Compare a method with brute force: same optimum or both infeasible, and a bound that is one, up to ``gap``."""
    best = brute_force(instance)
    watch = Watch()
    answer = solve(instance, Limits(), watch)
    if best is None:
        assert answer.infeasible and answer.stop is Stop.PROVED, instance
        assert answer.plan is None and answer.bound is None and answer.reason, instance
        return answer
    assert answer.plan is not None and not answer.infeasible, instance
    assert violations(instance, answer.plan) == (), instance
    value = evaluate(instance, answer.plan)
    assert value == pytest.approx(best.time, rel=1e-6, abs=1e-12), instance
    assert answer.bound is not None and answer.bound <= best.time * (1 + 1e-12), instance
    assert value == 0 or answer.bound >= value * (1 - gap), instance
    assert answer.stop is Stop.PROVED or value == 0 or gap > OPTIMAL_GAP, instance
    assert (watch.best_plan, watch.best_bound) == (answer.plan, answer.bound)
    return answer


def check_stopped_builds(build: Callable[[Watch], Any], log: pytest.LogCaptureFixture) -> None:
    """A model whose building is stopped halfway is no model, and nothing is logged of it."""

    class Soon(Watch):
        def __init__(self, after: int) -> None:
            super().__init__()
            self.after = after

        def stopped(self) -> bool:
            self.after -= 1
            return self.after < 0

    whole = Soon(10**9)
    build(whole)
    asked = 10**9 - whole.after
    assert asked > 10
    for after in (*range(0, asked, max(1, asked // 8)), asked - 2, asked - 1):
        with pytest.raises(Stopped):
            build(Soon(after))
    assert not log.records


def knowing(instance: StageInstance, plan: StagePlan) -> Watch:
    """A watch that a plan was reported to."""
    watch = Watch()
    watch.plan(plan, evaluate(instance, plan))
    return watch


def random_plan(rng: random.Random, instance: StageInstance, num_stages: int) -> StagePlan | None:
    """A plan with known TMPCs and degrees but no regard for order, devices, sums or memory; ``None`` if unlucky."""
    stages: list[list[Layer]] = [[] for _ in range(num_stages)]
    for layer in instance.layers:
        rng.choice(stages).append(layer)
    found = []
    for nodes in stages:
        t, d = rng.choice(instance.tp_degrees), rng.choice(allowed_dp_degrees(instance))
        if not nodes or t * d > instance.num_devices or not all(layer.tmpcs.get(t) for layer in nodes):
            return None
        tmpcs = {layer.id: rng.choice(layer.tmpcs[t]).id for layer in nodes}
        found.append(Stage(tuple(layer.id for layer in nodes), d, t, tmpcs))
    return StagePlan(tuple(found))


def check_pinned(
    instance: StageInstance, seed: int, pinned: Callable[[StageInstance, StagePlan], tuple[bool, float | None]]
) -> bool | None:
    """Pin a random plan in a model: it must be feasible exactly if the definition says so, and cost as much.

    ``pinned`` returns whether the model is infeasible, and else its bound in the instance's time unit. Returns
    whether the plan is feasible (``None``: no plan was drawn).
    """
    rng = random.Random(seed)
    stages = min(len(instance.layers), instance.num_devices, instance.num_microbatches)
    if not instance.tp_degrees or not (plan := random_plan(rng, instance, rng.randint(1, stages))):
        return None
    broken = violations(instance, plan)
    infeasible, value = pinned(instance, plan)
    assert infeasible is bool(broken), (broken, instance, plan)
    if not broken:
        assert value == pytest.approx(evaluate(instance, plan), rel=1e-6, abs=1e-9), (instance, plan)
    return not broken


def hair_too_large() -> StageInstance:
    """Two nodes on one device whose fast TMPCs are too large together by less than any model's integers resolve."""
    hair = 1.7e-12
    layers = tuple(
        Layer(v, {1: (Tmpc("fast", 1.0, 0, 0, 1 + hair), Tmpc("lean", slow, 0, 0, 1.0))})
        for v, slow in (("a", 2.0), ("b", 3.0))
    )
    return StageInstance(
        name="hair",
        layers=layers,
        edges=(Edge("a", "b", 0.0),),
        num_devices=1,
        memory_bytes=2.0,
        bandwidth=1.0,
        num_microbatches=1,
    )


def long_chain(num_layers: int = 24, num_devices: int = 12) -> StageInstance:
    """A chain whose optimum no direct model proves in a second."""
    rng = random.Random(7)

    def tmpcs(t: int) -> tuple[Tmpc, ...]:
        time_ = rng.randint(50, 99) / t**0.8
        return (
            Tmpc("plain", time_, rng.randint(1, 50), rng.randint(20, 40) / t, 9),
            Tmpc("recompute", time_ * 1.33, rng.randint(1, 50), 3, 9),
        )

    return StageInstance(
        name="long chain",
        layers=tuple(Layer(v, {t: tmpcs(t) for t in (1, 2, 4)}) for v in range(num_layers)),
        edges=tuple(Edge(v, v + 1, rng.randint(1, 30)) for v in range(num_layers - 1)),
        num_devices=num_devices,
        memory_bytes=200,
        bandwidth=10,
        num_microbatches=num_devices,
        cost_model=CostModel.PAPER,
    )


def published_bert(folder: Any, first: int, num_devices: int, memory: str) -> StageInstance:
    """The published BERT profile, or its first nodes, with the released cost model."""
    import json

    from formulations.stage_partitioning import FAMILY

    content = json.loads((folder / "piper" / "bert32a100.json").read_text())
    given = {"devices": num_devices, "memory": memory, "bandwidth": "25GiB/s", "cost-model": "released"}
    if first:
        given["first"] = first
    parse = {setting.name: setting.parse for setting in FAMILY.overrides}
    read: StageInstance = FAMILY.read(content, "bert32a100", {name: parse[name](text) for name, text in given.items()})
    return read
