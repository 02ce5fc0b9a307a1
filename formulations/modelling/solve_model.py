"""From a declarative model to an answer: run it, check its plans, cut off what only rounding let through, go on.

Models round sizes down and solvers have tolerances, so a solution may break the rule on memory; its plan is forbidden
and the model runs again. Every plan goes through the family's definition, and every bound through the model's own
`Model.lower_bound`, before either is reported.

A method may begin with the plan of a quick heuristic of its problem (`first_plan`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from formulations.contract.family import Answer, Violation
from formulations.contract.quantities import Quantity, judge, resolve_requirement
from formulations.modelling.warm_start import First
from instances.requirements import requirements_of
from solvers.build_stop import Stopped as Stopped
from solvers.gc_pause import no_collection
from solvers.memory_budget import SizeError
from solvers.outcome import OPTIMAL_GAP, Limits, Prover, Run, Stop, Watch, relative_gap

Instance = TypeVar("Instance")
Plan = TypeVar("Plan")

#: The rules that rounded sizes and times may break; any other is a fault of the model.
ROUNDED = frozenset({"memory", "deadline"})


#: A plan that takes less than this part of a known one is far better.
_FAR = 0.1


def check_stop(watch: Watch) -> None:
    """Raise `Stopped` once the watch is: the poll of every loop that builds a large model."""
    if watch.stopped():
        raise Stopped


class Model(Protocol[Plan]):
    """A solver's model of an instance, built."""

    def run(
        self, limits: Limits, watch: Watch, on_solution: Callable[[Any], None], on_bound: Callable[[float], None]
    ) -> Run:
        """Run its solver."""

    def decode(self, values: Any) -> Plan:
        """The plan of a solution."""

    def lower_bound(self, bound: float) -> float:
        """What a dual bound of the model proves for the instance as declared, in its own unit."""

    def cut_off(self, plan: Plan, values: Any) -> None:
        """Forbid a plan with too many bytes (and any that is no smaller); ``values`` is the solution it came from."""


class Extensible(Protocol):
    """A model that takes requirements."""

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """By name of a quantity (`contract.quantities`): the linear expression of it, from its arguments."""

    def add_row(self, name: str, expression: Any, relation: str, amount: float) -> None:
        """Hold an expression (or a number) to ``<=``, ``>=`` or ``==`` an amount."""


Extended = TypeVar("Extended", bound=Extensible)


def add_requirements(model: Extended, vocabulary: Iterable[Quantity], instance: Any) -> Extended:
    """The model, with the instance's requirements as constraints ``required[0]``, ``required[1]``, ..."""
    for number, requirement in enumerate(requirements_of(instance)):
        quantity, arguments = resolve_requirement(vocabulary, instance, requirement)
        expression = model.quantities()[quantity.name](*arguments)
        model.add_row(f"required[{number}]", expression, requirement.relation, requirement.amount)
    return model


def begin_with(
    instance: Instance,
    plan: Plan | None,
    evaluate: Callable[[Instance, Plan], float],
    violations: Callable[[Instance, Plan], tuple[Violation, ...]],
    watch: Watch,
) -> None:
    """Report a heuristic's plan to the watch, if it keeps all rules, the instance's requirements among them."""
    if plan is not None and not judge(violations, instance, plan):
        watch.plan(plan, evaluate(instance, plan))


class WithoutSizes:
    """A model that rounds no sizes, or has checked them to the byte: there is nothing to cut off."""

    def cut_off(self, plan: Any, _values: Any) -> None:
        """Raise ``RuntimeError``: what the definition says of this plan, the model should have known."""
        raise RuntimeError(f"the model accepts a plan that is too large: {plan}")


def prove(
    instance: Instance,
    build: Callable[[], Model[Plan]],
    evaluate: Callable[[Instance, Plan], float],
    violations: Callable[[Instance, Plan], tuple[Violation, ...]],
    limits: Limits,
    watch: Watch,
    *,
    reason: str = "the model has no solution",
    to_scale: bool = False,
    by: str = Prover.SOLVER,
    first: First | None = None,
) -> Answer[Plan]:
    """Build and run a model until its best plan passes the definition's own check, or a limit.

    Plans and bounds go to ``watch`` as they are found; the answer holds the best plan that was reported to the watch,
    and is optimal by what ``evaluate`` says, not by the solver's word. A solver's claim that contradicts a checked plan
    (both solvers have done so) is passed on as it is: whoever runs the method must see it and report it.

    Parameters
    ----------
    build
        May raise `Stopped` once the watch is, and `SizeError`: then the answer holds what is known.
    evaluate, violations
        The family's definition; what the instance requires beyond is added here (`judge`).
    reason
        The answer's reason where the model has no solution.
    to_scale
        ``build`` makes the watch's best plan the unit of the model: where a far better one is found and the solver's
        tolerances are too large beside it for a proof, a model is built and run anew.
    by
        Whose proof it is.
    first
        What finds the plan that the model begins with: it has ``values_of(plan)``, pairs of a variable and its value,
        and ``begin_with(values)`` (`backend.Runnable`, `backend.Runnable`). ``stats`` says whose plan the
        answer holds.

    Raises
    ------
    RuntimeError
        If the model accepts a plan that breaks a rule other than `ROUNDED`, or one that was cut off.
    """

    if first is not None:
        known = first.report(instance, evaluate, violations, watch)
        answer = prove(instance, _with_hint(build, watch), evaluate, violations, limits, watch, reason=reason,
                       to_scale=to_scale, by=by)  # fmt: skip
        return replace(answer, stats={**answer.stats, **first.origin(known, watch)})

    def report_bound(bound: float) -> None:
        watch.bound(model.lower_bound(bound), by)

    def report_plan(values: Any) -> Plan | None:
        """Report a solution; returns its plan if that breaks a rule."""
        plan = model.decode(values)
        if judge(violations, instance, plan):
            return plan
        watch.plan(plan, evaluate(instance, plan))
        return None

    rounds, rejected = 0, None
    try:
        check_stop(watch)
        with no_collection():
            model = build()
        known = watch.best_objective
        while True:
            rounds += 1
            run = model.run(
                limits, watch, on_solution=lambda values: _ignore(report_plan(values)), on_bound=report_bound
            )
            wrong = None if run.values is None else report_plan(run.values)
            if wrong is None:
                break
            broken = judge(violations, instance, wrong)
            _demand_rounded(broken)
            if wrong == rejected:
                raise RuntimeError(f"the model keeps a plan that was cut off: {broken[0]}")
            model.cut_off(wrong, run.values)
            rejected = wrong
    except Stopped:
        return Answer(plan=watch.best_plan, bound=watch.best_bound, stop=watch.why())
    except SizeError as error:
        return Answer(watch.best_plan, watch.best_bound, stop=watch.why(Stop.SIZE_LIMIT), reason=str(error))
    if run.bound is not None:
        report_bound(run.bound)
    stop, found = _why(run, watch), watch.best_objective
    is_proved = run.stop in (Stop.PROVED, Stop.COMPLETED) and not run.reason
    if to_scale and is_proved and stop is Stop.COMPLETED and _is_far_better(found, known):
        return prove(instance, build, evaluate, violations, limits, watch, reason=reason, to_scale=True, by=by)
    return Answer(
        plan=watch.best_plan,
        bound=None if run.infeasible else watch.best_bound,
        infeasible=run.infeasible,
        proved_by=by if run.infeasible else "",
        stop=stop,
        solver=run.solver,
        reason=reason if run.infeasible else run.reason,
        stats={**run.stats, "rounds": rounds},
    )


def run_as_it_is(
    instance: Instance,
    model: Any,
    violations: Callable[[Instance, Plan], tuple[Violation, ...]],
    limits: Limits,
    watch: Watch,
) -> tuple[Answer[Plan], float | None]:
    """Run a model whose objective is another than the definition's; plans that only rounding let through are cut off.

    Returns
    -------
    tuple
        The answer with the plan that the model ends with, and with the bound of what it minimises (`own_bound`); the
        plan's value in the same terms. Errors as of `prove`.
    """
    rejected = None
    while True:
        run = model.run(limits, watch)
        plan = None if run.values is None else model.decode(run.values)
        broken = () if plan is None else judge(violations, instance, plan)
        if not broken:
            break
        _demand_rounded(broken)
        if plan == rejected:
            raise RuntimeError(f"the model keeps a plan that was cut off: {broken[0]}")
        model.cut_off(plan, run.values)
        rejected = plan
    bound = None if run.bound is None or run.infeasible else model.own_bound(run.bound)
    stop = Stop.COMPLETED if run.stop is Stop.PROVED else run.stop
    found: Answer[Plan] = Answer(
        plan, bound, run.infeasible, stop, solver=run.solver, reason=run.reason, stats=dict(run.stats)
    )
    return found, None if plan is None else run.objective


def _with_hint(build: Callable[[], Any], watch: Watch) -> Callable[[], Any]:
    """Builds the model, which begins with the best plan that is known then."""

    def built() -> Any:
        model = build()
        if watch.best_plan is not None:
            model.begin_with(model.values_of(watch.best_plan))
        return model

    return built


def _is_far_better(found: float | None, known: float | None) -> bool:
    return found is not None and (known is None or found < _FAR * known)


def _ignore(_: object) -> None:
    """A listener returns nothing."""


def _demand_rounded(broken: tuple[Violation, ...]) -> None:
    others = [found for found in broken if found.rule not in ROUNDED]
    if others:
        raise RuntimeError(f"the model accepts a plan that the definition rejects: {others[0]}")


def _why(run: Run, watch: Watch) -> Stop:
    if run.stop is not Stop.PROVED or run.infeasible:
        return run.stop
    gap = relative_gap(watch.best_objective, watch.best_bound)
    return Stop.PROVED if gap is not None and gap <= OPTIMAL_GAP else Stop.COMPLETED
