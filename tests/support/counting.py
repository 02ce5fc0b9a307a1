"""A tiny problem family for tests of the planner: pick numbers that sum to at least a target, as few as can be.

Some of its methods are honest, and some lie, hang or crash as no real method should.
"""

import math
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from formulations.contract.family import Answer, Claim, Family, Method, Violation
from instances.errors import InstanceError
from instances.parameters import Setting, parse_count
from solvers.outcome import Limits, Stop, Watch


@dataclass(frozen=True)
class Counting:
    name: str
    numbers: tuple[int, ...]
    target: int
    options: Mapping[str, Any] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()


def read(content: Any, where: str, overrides: Mapping[str, Any]) -> Counting:
    numbers = content.get("numbers")
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        raise InstanceError.at(where, "numbers", numbers, "a list of integers")
    return Counting(where, tuple(numbers), overrides.get("target", content.get("target", 1)), dict(overrides))


def violations(instance: Counting, plan: tuple[int, ...]) -> tuple[Violation, ...]:
    reached = sum(instance.numbers[index] for index in plan)
    return () if reached >= instance.target else (Violation("target", f"{reached} of {instance.target}"),)


def evaluate(_: Counting, plan: tuple[int, ...]) -> float:
    return float(len(plan))


def plan_from_json(instance: Counting, content: Any) -> tuple[int, ...]:
    picked = content.get("picked")
    if not isinstance(picked, list) or not all(type(i) is int and 0 <= i < len(instance.numbers) for i in picked):
        raise InstanceError.at("plan", "picked", picked, "indices of numbers")
    return tuple(picked)


def optimum(instance: Counting) -> tuple[int, ...] | None:
    for size in range(len(instance.numbers) + 1):
        for plan in combinations(range(len(instance.numbers)), size):
            if not violations(instance, plan):
                return plan
    return None


def everything(instance: Counting) -> tuple[int, ...]:
    return tuple(range(len(instance.numbers)))


def exact(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    plan = optimum(instance)
    if plan is None:
        return Answer(infeasible=True, stop=Stop.PROVED)
    return Answer(plan=plan, bound=float(len(plan)), stop=Stop.PROVED, stats={"subsets": 2 ** len(instance.numbers)})


def greedy(instance: Counting, limits: Limits, watch: Watch, extra: int = 0) -> Answer[Any]:
    return Answer(plan=everything(instance), options={"extra": extra})


def bounded(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    return Answer(plan=everything(instance), bound=float(len(everything(instance))) / 2, stop=Stop.PROVED)


def nothing(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    return Answer()


def patient(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    watch.plan(everything(instance), float(len(instance.numbers)))
    watch.bound(1.0)
    while not watch.stopped():
        time.sleep(0.005)
    return Answer(stop=watch.why())


def forgetful(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    plan = optimum(instance) or ()
    watch.plan(plan, float(len(plan)))
    watch.bound(float(len(plan)))
    return Answer(plan=everything(instance), bound=0.0)


def stubborn(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    watch.plan(everything(instance), float(len(instance.numbers)))
    watch.bound(1.0)
    time.sleep(30)
    raise AssertionError("nobody waits that long")


def crash(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    raise ZeroDivisionError("a bug in a method")


def bad_plan(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    return Answer(plan=())


def bad_bound(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    return Answer(plan=everything(instance), bound=len(instance.numbers) + 0.01)


def bad_claim(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    watch.plan(everything(instance), 0.5)
    return Answer()


def bad_proof(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    watch.plan(everything(instance), float(len(instance.numbers)))
    return Answer(infeasible=True, stop=Stop.PROVED)


def false_infeasible(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    return Answer(infeasible=True, stop=Stop.PROVED)


def false_bound(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    return Answer(bound=100.0)


def handlers(instance: Counting, limits: Limits, watch: Watch) -> Answer[Any]:
    return Answer(stats={"sigterm": str(signal.getsignal(signal.SIGTERM))})


def few(instance: Counting) -> str | None:
    """At most 10 numbers."""
    return f"{len(instance.numbers)} numbers are more than 10" if len(instance.numbers) > 10 else None


def choose(instance: Counting, limits: Limits, want_exact: bool) -> tuple[str, str]:
    return ("exact", "few numbers") if want_exact or len(instance.numbers) <= 10 else ("greedy", "many numbers")


def why_infeasible(instance: Counting, limits: Limits, watch: Watch) -> tuple[str, Mapping[str, Any]]:
    if instance.target == 666:
        time.sleep(30)
    return f"at most {sum(instance.numbers)} can be reached", {"reachable": sum(instance.numbers)}


def _methods() -> tuple[Method[Counting, tuple[int, ...]], ...]:
    exact_ones = {
        "patient": patient, "stubborn": stubborn, "nothing": nothing, "bounded": bounded, "forgetful": forgetful,
    }  # fmt: skip
    heuristic = {
        function.__name__.replace("_", "-"): function
        for function in (crash, bad_plan, bad_bound, bad_claim, bad_proof, false_infeasible, false_bound, handlers)
    }
    extra = Setting("extra", parse_count, "changes nothing", metavar="N")
    return (
        Method("exact", Claim.EXACT, "by hand", exact, supports=few, limits="at most 10 numbers"),
        Method("greedy", Claim.HEURISTIC, "by hand", greedy, options=(extra,)),
        *(Method(name, Claim.EXACT, "by hand", solve, effort=lambda _: math.inf) for name, solve in exact_ones.items()),
        *(Method(name, Claim.HEURISTIC, "", solve, effort=lambda _: math.inf) for name, solve in heuristic.items()),
        Method("compiled", Claim.EXACT, "", exact, prepare=lambda: time.sleep(0.4), effort=lambda _: math.inf),
        Method("slow-start", Claim.EXACT, "", patient, prepare=lambda: time.sleep(0.4), effort=lambda _: math.inf),
    )


FAMILY: Family[Counting, tuple[int, ...]] = Family(
    name="counting",
    recognise=lambda content: isinstance(content, dict) and content.get("problem") == "counting",
    read=read,
    overrides=(Setting("target", parse_count, "what the numbers must sum to [at least]", metavar="N"),),
    check=lambda _instance, _where: None,
    to_json=lambda instance: {"problem": "counting", "numbers": list(instance.numbers), "target": instance.target},
    plan_from_json=plan_from_json,
    plan_to_json=lambda _, plan: {"picked": list(plan)},
    evaluate=evaluate,
    violations=violations,
    unit=lambda _: "numbers",
    methods=_methods(),
    choose=choose,
    entries={
        "describe": lambda instance: {"count": len(instance.numbers)},
        "warnings": lambda instance: ("thirteen is unlucky",) if 13 in instance.numbers else (),
        "why_infeasible": why_infeasible,
    },
)
