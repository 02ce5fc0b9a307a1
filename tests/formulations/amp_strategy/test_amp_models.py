"""The models with all strategies in one against brute force: alone, complete, and with requirements."""

import random
import time
from dataclasses import replace
from typing import Any

import pytest
from load import allowed_s
from oracles.amp_strategy import brute_force, plans, random_instance
from thinned import thinned

import planner
from formulations.amp_strategy import FAMILY
from formulations.amp_strategy.definition.problem import evaluate, layer_assignment
from formulations.amp_strategy.models import milp
from formulations.amp_strategy.models.candidates import candidates
from formulations.modelling.solve_model import prove
from instances.generators.amp_experiments import analytic_profiles, experiment
from instances.problems.amp_strategy import AmpInstance, ModelLayer, Node
from planner.solving.solve import run
from solvers.outcome import Limits, Status, Stop, Watch

MODELS = ("cpsat", "milp")


def alone(method: str, instance: AmpInstance, *, complete: bool) -> float:
    """The optimum by a model that begins with no plan but a balanced one."""
    build = FAMILY.method(method).build
    assert build is not None
    watch = Watch()
    answer = prove(instance, lambda: build(instance, watch, complete=complete), evaluate, FAMILY.judge, Limits(), watch)
    found = evaluate(instance, answer.plan)
    assert answer.bound is not None and found * (1 - 2e-6) <= answer.bound <= found
    return found


@thinned("complete", [False, True], 2)
@pytest.mark.parametrize("method", MODELS)
def test_a_model_alone_agrees_with_brute_force(method: str, complete: bool, cases: int) -> None:
    for case in range(max(8, cases // 10)):
        instance = random_instance(random.Random(case))
        assert alone(method, instance, complete=complete) == pytest.approx(brute_force(instance), rel=2e-6), case


@thinned("kind", ["tiling", "oriented"], 2)
@pytest.mark.parametrize("method", MODELS)
def test_placements_are_chosen_as_well(method: str, kind: str, cases: int) -> None:
    better = 0
    for case in range(max(10, cases // 20)):
        made = random_instance(random.Random(1000 + case))
        layers = made.layers[:4]
        if case % 2:  # two replicas send inside their nodes, as all-reduces across nodes are free
            costs = {gpu: {1: 1.0, 2: 9.0} for gpu in ("slow", "fast")}
            layers = tuple(replace(each, forward_s=costs, activation_bytes=50.0, parameters=0.0) for each in layers)
        instance = replace(made, layers=layers, tied=(), placement=kind, global_batch=2)
        read = [FAMILY.plan_from_json(instance, each) for each in plans(instance)]
        best = min(evaluate(instance, each) for each in read if not FAMILY.judge(instance, each))
        assert alone(method, instance, complete=False) == pytest.approx(best, rel=2e-6), case
        better += best < brute_force(instance) * (1 - 1e-6)
    assert better  # than Megatron's placement


def seconds_at(instance: AmpInstance, text: str, method: str) -> float:
    """The proved optimum with a requirement; infinite if there is no plan."""
    found = run(FAMILY, FAMILY.method(method), replace(instance, requirements=(text,)), Limits(), {})
    assert found.status in (Status.OPTIMAL, Status.INFEASIBLE), found
    return float("inf") if found.objective is None else found.objective


@thinned(
    "text",
    [
        *("tp_degree == 2", "pp_degree <= 2", "microbatch > 8", "tp_degree == 3", "dp_degree >= 2", "layers(3) >= 2"),
        *(
            pytest.param(text, marks=pytest.mark.slow)
            for text in ("layers(0) <= 1", "microbatch == 4", "not pp_degree < 4", "layers(0) >= 3", "layers(3) == 0")
        ),
    ],
)
def test_requirements_at_every_method_that_honours_them(text: str) -> None:
    """On few layers, against all plans; the exhaustive search has those on degrees."""
    for case in range(3):
        made = random_instance(random.Random(50 + case))
        instance = replace(made, requirements=(text,)) if len(made.layers) > 3 else None
        if instance is None:
            continue
        read = [FAMILY.plan_from_json(instance, each) for each in plans(instance)]
        best = min(
            (evaluate(instance, each) for each in read if not FAMILY.judge(instance, each)), default=float("inf")
        )
        for method in ("exhaustive", *MODELS):
            if FAMILY.method(method).refusal(instance) is None:
                assert seconds_at(made, text, method) == pytest.approx(best, rel=2e-6), (case, method)


def test_placements_that_cost_the_same_are_one_class() -> None:
    """With links that are all the same between nodes, the 37 placements of 8 stages of two devices are one."""
    square = replace(experiment("homogeneous", analytic_profiles()), placement="tiling")
    found = candidates(square, Watch())
    assert len(found) == 53
    assert max(len(each.placements) for each in found) == 37
    uneven = replace(experiment("het_cluster", analytic_profiles()), placement="tiling")
    found = candidates(uneven, Watch())
    assert len(found) > 200
    for each in found:
        for placement in each.placements:
            assert layer_assignment(uneven, each.degrees, placement) == each.priced


@pytest.mark.parametrize("method", MODELS)
def test_no_stage_is_empty(method: str) -> None:
    made = next(each for seed in range(99) if len((each := random_instance(random.Random(seed))).layers) > 5)
    instance = replace(made, requirements=("pp_degree == 4",))
    assert run(FAMILY, FAMILY.method(method), instance, Limits(), {}).status is Status.OPTIMAL
    for stage in range(2):
        empty = replace(instance, requirements=(*instance.requirements, f"layers({stage}) == 0"))
        assert run(FAMILY, FAMILY.method(method), empty, Limits(), {}).status is Status.INFEASIBLE


@thinned("method", MODELS, 2)
@pytest.mark.parametrize(
    "name", ["homogeneous", *(pytest.param(n, marks=pytest.mark.slow) for n in ("het_cluster", "het_model"))]
)
def test_the_papers_clusters_are_proved(method: str, name: str) -> None:
    """The optima of the exhaustive search, by one model each."""
    instance = experiment(name, analytic_profiles())
    best = run(FAMILY, FAMILY.method("exhaustive"), instance, Limits(), {})
    found = run(FAMILY, FAMILY.method(method), instance, Limits(time_s=60), {})
    assert found.status is Status.OPTIMAL and found.objective == pytest.approx(best.objective, rel=1e-6)
    assert found.proved_by == "solver"


def test_the_relaxation_is_no_mixture_of_degrees() -> None:
    """Waiting and all-reduce of each candidate by itself: with either shared, roots at 90 % are among these."""
    shares = []
    for case in range(5):
        instance = random_instance(random.Random(case))
        built = milp.model_of(instance, Watch(), complete=True)
        shares.append(built.lower_bound(built.relaxation(Limits()).bound or 0.0) / brute_force(instance))
    assert min(shares) > 0.94 and max(shares) <= 1
    root = planner.model(planner.load("amp-homogeneous"), "milp").root().bound
    best = planner.solve(planner.load("amp-homogeneous"), exact=True).objective
    assert root is not None and best is not None and 0.999 * best <= root <= best


def test_models_that_are_too_large_are_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milp, "MAX_ARCS", 100)
    instance: Any = planner.load("amp-homogeneous")
    with pytest.raises(planner.UsageError, match=r"method is 'milp'.*more than 100 arcs"):
        planner.model(instance, "milp").sizes()
    found = planner.solve(instance, method="milp")
    assert found.stop.value == "size_limit" and "more than 100 arcs" in found.reason


@pytest.mark.parametrize("method", ["cpsat", "milp"])
def test_a_layer_that_a_gpu_must_not_have_hides_no_other_sums(method: str) -> None:
    """Beside 1e12 s in running sums, bounds were above the optimum, or below it by 1e-6."""
    made = random_instance(rng := random.Random(101))
    kind, far = min(node.gpu for node in made.nodes), rng.randrange(len(made.layers))
    slow = {gpu: dict.fromkeys(own, 1e12) if gpu == kind else own for gpu, own in made.layers[far].forward_s.items()}
    layers = (*made.layers[:far], replace(made.layers[far], forward_s=slow), *made.layers[far + 1 :])
    instance = replace(made, layer_times="slowest", layers=layers)
    result = planner.solve(instance, method=method)
    assert result.status is Status.OPTIMAL and result.objective == pytest.approx(brute_force(instance))


def many_layers(count: int) -> AmpInstance:
    """Sixteen devices and layers, no two identical: the published program has as many sums as it can have."""
    rng = random.Random(count)
    layers = [ModelLayer({"G": {1: rng.uniform(1, 2)}}, rng.uniform(0, 1), rng.uniform(0, 1)) for _ in range(count)]
    return AmpInstance("many layers", (Node("G", 9.0, 2.0),) * 4, 4, tuple(layers), 32)


#: Eight or sixteen stages alone: each program takes seconds.
LONG = replace(many_layers(180), global_batch=2)


@pytest.mark.parametrize("name", ["amp", "amp-released", "amp-sa"])
def test_a_limit_ends_the_program_of_a_single_strategy(name: str) -> None:
    method, limits = FAMILY.method(name), Limits(time_s=0.2)
    method.load()
    began = time.perf_counter()
    answer = method.solve(LONG, limits, Watch(limits))
    assert time.perf_counter() - began < allowed_s(1.1 * 0.2 + 1)
    assert answer.stop is Stop.TIME_LIMIT


def test_programs_that_are_too_large_are_refused() -> None:
    assert all(method.supports(many_layers(140)) is None for method in FAMILY.methods)
    assert "expected at most 5000000" in str(FAMILY.method("milp").supports(many_layers(400)))
    assert "1001 layers" in str(FAMILY.method("cpsat").supports(many_layers(1001)))
    for name in ("amp", "amp-released", "amp-sa"):
        assert "states of the published program at 16 stages" in str(FAMILY.method(name).supports(many_layers(400)))
    assert FAMILY.method("exhaustive").supports(many_layers(400)) is None
    vast = many_layers(4001)
    assert "4001 layers" in str(FAMILY.method("exhaustive").supports(vast))
    assert FAMILY.choose(vast, Limits(), False)[0] == "megatron"
    assert FAMILY.choose(vast, Limits(), True)[0] == "exhaustive"
