"""What declarative methods begin with: a plan near the best at every size; a hint that is a solution; no proof."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from ortools.sat.python import cp_model
from random_instances import LIMITS, warmed
from small_instances import random_case
from thinned import thinned

import planner
from formulations.contract.family import Violation
from formulations.modelling.solve_model import WithoutSizes, prove
from formulations.modelling.warm_start import SHARE, First
from planner import UsageError
from planner.files.load import family_of
from planner.results.check import agree
from planner.solving.solve import run
from solvers.cpsat import backend as cpsat
from solvers.milp import backend as milp
from solvers.outcome import Limits, Run, Stop, Watch

#: Seconds that a method is given, and how far from the best its plan may be.
TIME_S, FAR = 2.0, 0.01

#: Seconds in the default tests, where nothing is timed: a busy machine needs more, and a near plan ends the search.
PATIENT_S = 60.0

#: Random instances whose hints are looked at.
LOOKED_AT = 4

HINTED = {
    "operator_partitioning": ("cpsat", "milp"),
    "layer_assignment": ("cpsat", "milp"),
    "amp_strategy": ("cpsat", "milp"),
    "mesh_tiling": ("cpsat", "milp"),
    "microbatch_schedule": ("cpsat", "milp"),
    "device_mapping": ("milp",),
    "flushed_partitioning": ("cpsat", "milp-columns"),
    "hierarchical_partitioning": ("cpsat",),  # targets begin with no hint
    "pipeline_placement": ("joint", "milp"),
    "tmpc_knapsack": ("cpsat", "milp"),
    "operator_strategies": ("cpsat", "milp"),
    "serving_strategy": ("cpsat",),
}

_MACHINES = {"inner_bandwidth": "300GB/s", "outer_bandwidth": "25GB/s", "problem": "hierarchical_partitioning"}
_FLUSHED = {"problem": "flushed_partitioning", "objective": "formula"}


@dataclass(frozen=True)
class Case:
    """A catalog instance, the methods asked, the one that knows the best plan, and the seconds that are given."""

    name: str
    given: dict[str, Any]
    methods: tuple[str, ...]
    best: str = "exact"
    time_s: float = TIME_S


#: No model finds a plan that good by itself in the time.
QUICK = (
    Case("gnmt", {"stages": 4, "devices": 8, "variable_replicas": True}, ("cpsat", "milp")),
    Case("bert32", {**_FLUSHED, "devices": 16}, ("cpsat",), "labels"),
    Case("bert32", {**_MACHINES, "devices_per_machine": 4, "num_machines": 4}, ("cpsat",), "piper-hierarchical"),
    Case("mesh2d", {"stages": 8, "replicas": 4}, ("cpsat",)),
    Case("uniform-dist", {"stages": 4, "replicas": 4, "objective": "allreduce"}, ("milp",)),
    Case("knapsack", {"nodes": 5000, "options": 4}, ("cpsat", "milp")),
    Case("candle-uno", {"devices": 16}, ("cpsat",)),
)

_OPERATORS = ("resnet50", "resnet152", "bert-l", "swin-l", "swin-u", "semantic-fpn", "gnmt")
_NETWORKS = ("two-level", "dgx1", "mesh2d", "mesh3d", "torus2d", "torus3d", "random-blk-1", "random-blk-2")
SLOW = (
    Case("layers", {"layers": 100, "stages": 16, "all_reduce": True}, ("cpsat",), "exact-joint"),
    Case("resnet152", {}, ("cpsat", "milp")),
    Case("amp-het-cluster", {}, ("cpsat", "milp"), "exhaustive"),
    Case("schedule", {"stages": 8, "minibatch": 64, "objective": "memory"}, ("cpsat",)),
    *(Case(name, {"stages": stages}, ("cpsat", "milp")) for name in _OPERATORS for stages in (4, 8)),
    *(
        Case(name, {"stages": 4, "devices": 8, "variable_replicas": True}, ("cpsat", "milp"))
        for name in _OPERATORS
        if name != "semantic-fpn"  # its optimum takes minutes
    ),
    *(Case("layers", {"layers": n, "stages": 16}, ("cpsat", "milp")) for n in (30, 100, 600)),
    *(Case("schedule", {"stages": s, "minibatch": b}, ("cpsat", "milp")) for s, b in ((6, 16), (8, 64), (16, 256))),
    *(Case("schedule", {"stages": s, "minibatch": b, "mixed": True}, ("cpsat",)) for s, b in ((6, 16), (16, 256))),
    *(Case("bert32", {**_FLUSHED, "devices": k}, ("cpsat",), "labels") for k in (4, 8, 32, 64)),
    *(
        Case("bert32", {**_MACHINES, "devices_per_machine": k, "num_machines": k}, ("cpsat",), "piper-hierarchical")
        for k in (2, 3, 4)
    ),
    *(Case(name, {"stages": 8, "replicas": 4}, ("cpsat", "milp")) for name in _NETWORKS),
    *(
        Case(name, given, ("cpsat", "milp", "cpsat-columns", "milp-columns"), time_s=20.0)
        for name, given in (
            ("bert32", {"devices": 64, "memory": "8GiB"}),
            ("bert32", {"devices": 512, "memory": "8GiB", "microbatches": 1920}),
            ("gpt3-175b", {"devices": 64}),
        )
    ),
    *(Case("knapsack", {"nodes": n, "options": 4}, ("cpsat", "milp")) for n in (40, 1000, 20000)),
    *(
        Case(name, {"devices": k}, ("cpsat",), time_s=TIME_S if k < 32 else 10.0)
        for name in ("mmt", "dlrm", "candle-uno")
        for k in (4, 8, 16, 32)
    ),
)


@thinned(
    "case",
    [*QUICK, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)],
    of=lambda case: case in QUICK,
    ids=lambda case: case.name,
)
def test_a_plan_near_the_best(case: Case) -> None:
    instance = planner.load(case.name, **case.given)
    family = warmed(family_of(instance).name)
    # A gap that is small beside `FAR` suffices.
    limits = Limits(time_s=60, gap=FAR / 100)
    best = family.method(case.best).solve(instance, limits, Watch(limits)).plan
    goal = family.evaluate(instance, best) * (1 + FAR)
    asked = [family.method(name) for name in case.methods if family.method(name).supports(instance) is None]
    for method in asked:

        def near(_: float, objective: float | None, _bound: float | None, watch: list[Watch]) -> None:
            if objective is not None and objective <= goal:
                watch[0].stop(Stop.INTERRUPTED)

        held: list[Watch] = []
        given = Limits(time_s=PATIENT_S if case in QUICK else case.time_s)
        held.append(Watch(given, lambda *found, held=held: near(*found, held)))
        answer = method.solve(instance, given, held[0])
        assert answer.plan is not None, method.name
        assert family.judge(instance, answer.plan) == ()
        assert family.evaluate(instance, answer.plan) <= goal, method.name
    assert asked or case in SLOW


@pytest.mark.parametrize("method", ["cpsat", "milp"])
@pytest.mark.parametrize("problem", ["stage_partitioning", "flushed_partitioning"])
def test_what_is_too_large_to_be_built_has_its_first_plan(monkeypatch: Any, problem: str, method: str) -> None:
    instance = planner.load("chain8-flushed" if problem == "flushed_partitioning" else "chain8")
    best = planner.solve(instance, exact=True)
    monkeypatch.setattr("formulations.stage_partitioning.model_size.MAX_CHOICES", 10)
    found = planner.solve(instance, method=method)
    assert found.stop is Stop.SIZE_LIMIT and found.verified and "at most 1e+01 are built" in found.reason
    assert found.bound is not None and 0 < found.bound <= best.objective <= found.objective
    assert found.objective == found.stats["first_plan"] <= best.objective * (1 + FAR)
    with pytest.raises(UsageError, match="are built"):
        planner.model(instance, method)
    assert method not in [each.method for each in planner.crosscheck(instance).results]


@thinned(
    ("name", "method"),
    [(name, each) for name, found in HINTED.items() for each in found[::-1]],
    of=lambda name, _: name,
)
def test_a_hint_is_the_first_plan(monkeypatch: pytest.MonkeyPatch, name: str, method: str) -> None:
    """With its values fixed the model is feasible, and what it decodes to is as good as the first plan."""
    family = warmed(name)
    hinted: list[float] = []
    pinned: dict[Any, Callable[[Any, Any], Run]] = {cpsat: pinned_cpsat, milp: pinned_milp}
    for backend, pin in pinned.items():

        def begin(self: Any, values: Any, own: Any = backend.Hinted.begin_with, pin: Any = pin) -> None:
            known = list(values)
            found = pin(self.model, known)
            assert found.values is not None
            plan = self.decode(found.values)
            assert family.judge(instance, plan) == ()
            value = family.evaluate(instance, plan)
            if found.objective is not None:  # else it is still being built
                # A model's objective may be less by its roundings.
                assert self.lower_bound(found.objective) == pytest.approx(value, rel=2e-6, abs=1e-12)
                hinted.append(value)
            own(self, known)

        monkeypatch.setattr(backend.Hinted, "begin_with", begin)
    seen = 0
    for number in range(LOOKED_AT * (4 if name == "flushed_partitioning" else 1)):  # some have no such model
        instance = random_case(name, 5, number)
        if family.method(method).supports(instance) is not None:
            continue
        hinted.clear()
        result = run(family, family.method(method), instance, LIMITS, {})
        if "first_plan" in result.stats and hinted:
            seen += 1
            assert hinted[0] == pytest.approx(result.stats["first_plan"], rel=1e-9)
            assert result.objective is not None and result.objective <= result.stats["first_plan"]
            is_better = not agree(result.objective, result.stats["first_plan"])
            assert (result.stats["plan_by"] == "model") or not is_better
    assert seen >= 2


def pinned_cpsat(model: cp_model.CpModel, values: list[tuple[Any, int]]) -> Run:
    """The model with these values."""
    fixed = model.clone()
    for variable, value in values:
        fixed.add(fixed.get_int_var_from_proto_index(variable.index) == value)
    return cpsat.run(fixed, Limits(time_s=10))


def pinned_milp(model: Any, values: list[tuple[Any, float]]) -> Run:
    """The model with these values of what is whole."""
    whole = [(variable, value) for variable, value in values if not variable.is_continuous()]
    for variable, value in whole:
        variable.fix(value)
    try:
        return milp.run(model, Limits(time_s=10))
    finally:
        for variable, _ in whole:
            variable.unfix()


class Model(WithoutSizes):
    """A model whose solver reports a plan, and a bound of 2."""

    def __init__(self, plan: float) -> None:
        self.plan = plan
        self.hint: list[float] = []

    def values_of(self, plan: float) -> list[float]:
        return [plan]

    def begin_with(self, values: list[float]) -> None:
        self.hint = values

    def run(self, _limits: Limits, _watch: Watch, on_solution: Any, on_bound: Any) -> Run:
        on_solution(self.plan)
        on_bound(2.0)
        return Run(stop=Stop.TIME_LIMIT)

    def decode(self, values: float) -> float:
        return values

    def lower_bound(self, bound: float) -> float:
        return bound


@pytest.mark.parametrize(("found", "plan", "by"), [(6.0, 6.0, "luck"), (4.0, 4.0, "model")])
def test_it_is_said_whose_plan_an_answer_holds(found: float, plan: float, by: str) -> None:
    model = Model(found)

    def luck(watch: Watch) -> None:
        watch.plan(6.0, 6.0)
        watch.bound(5.0)  # of what it looked at alone

    answer = prove(
        None, lambda: model, lambda _, plan: plan, lambda *_: (), Limits(), Watch(), first=First("luck", luck)
    )
    assert (answer.plan, answer.bound, model.hint) == (plan, 2.0, [6.0])
    assert (answer.stats["first_plan"], answer.stats["plan_by"]) == (6.0, by)


def test_a_first_plan_that_breaks_a_rule_is_not_reported() -> None:
    model = Model(7.0)

    def rules(_: None, plan: float) -> tuple[Violation, ...]:
        return (Violation("memory", "too small"),) if plan == 6 else ()

    first = First("luck", lambda watch: watch.plan(6.0, 6.0))
    answer = prove(None, lambda: model, lambda _, plan: plan, rules, Limits(), Watch(), first=first)
    assert (answer.plan, model.hint, answer.stats) == (7.0, [], {"rounds": 1})


def test_a_first_plan_has_a_share_of_the_time() -> None:
    left: list[float] = []
    watch = Watch(Limits(time_s=8.0))

    def find(own: Watch) -> None:
        left.append(own.remaining_s() or 0.0)

    First("luck", find).report(None, lambda *_: 0.0, lambda *_: (), watch)
    watch.stop(Stop.INTERRUPTED)
    First("luck", find).report(None, lambda *_: 0.0, lambda *_: (), watch)
    assert len(left) == 1 and 0 < left[0] <= SHARE * 8.0
