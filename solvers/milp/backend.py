"""MILP through Pyomo and HiGHS, or the solver of ``Limits.solver``: runs a model and reports the outcome.

Pyomo translates the model; the run itself is ours, because Pyomo's redirects the process's stdout and stderr while
it lasts (nothing else can print then), cannot be interrupted, and takes no hint.

Measured traps (README, "Solvers"): the default gap of 1e-4 proves false optima, so both gaps are 0; an infeasible
model has a bound of -inf; with an objective near 1e-3 even the bound is wrong, so callers scale to natural size
(`NATURAL`); orbital fixing loses optima, so symmetries are not looked for; a variable bounded within the tolerances of
a known plan makes feasible models infeasible, so such bounds have `ROOM`.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import highspy
import pyomo
import pyomo.environ as pyo
from pyomo.core.expr import LinearExpression
from pyomo.repn import generate_standard_repn

from solvers import check_solver
from solvers.build_stop import is_stopped
from solvers.callback_bridge import Relay
from solvers.external import process
from solvers.external import run as external
from solvers.external.messages import OWN_HIGHS, Ended, LpTask, Outcome
from solvers.external.own_highs import pack
from solvers.highs_settings import configure
from solvers.highs_settings import knows as knows
from solvers.inspection import REQUIRED, Inspectable, unit_of
from solvers.milp.translation import translate
from solvers.outcome import DEFAULT_SOLVER, Limits, OnBound, OnSolution, Run, Watch
from solvers.trust.pins import demand
from solvers.trust.prove_twice import prove_twice, report_run
from solvers.values import Values as Values

#: The size of a typical objective in a model's units; HiGHS's tolerances are absolute, and small beside it.
NATURAL = 1e3

#: What a known plan says of a variable may bound it with this much room, relatively: HiGHS calls models infeasible in
#: which the plan lies within its tolerances of such a bound (tests/formulations/stage_partitioning/test_models.py).
ROOM = 1e-3

#: Coefficients below this, ten times HiGHS's tolerance on rows, count as 0 (`in_units`): it calls feasible models with
#: them infeasible (tests/formulations/stage_partitioning/test_models.py). Nor is that tolerance made smaller: at 1e-9
#: HiGHS finds false optima (tests/formulations/operator_partitioning/test_operator_methods.py).
SMALLEST = 1e-5

#: HiGHS's tolerances may lift a bound by this much, relatively and absolutely (it looks for nothing that is better than
#: the incumbent by less than 1e-6).
_RELATIVE, _ABSOLUTE = 5e-7, 1e-6

#: An objective below this part of `NATURAL` is far below it.
_FAR = 0.05


@cache
def version() -> str:
    """Name and version, for results: ``HiGHS 1.12.0 (Pyomo 6.10.1)``."""
    return f"HiGHS {highspy.Highs().version()} (Pyomo {pyomo.__version__})"


def proved_bound(bound: float, *, to_scale: bool = False) -> float:
    """What HiGHS's dual bound on an objective that is at least 0 proves: a little less.

    Models that are built again to a better scale (``to_scale``) say nothing where the objective is far below `NATURAL`:
    there HiGHS loses optima of models whose numbers are large.
    """
    if to_scale and bound < _FAR * NATURAL:
        return 0.0
    return max(0.0, bound - _ABSOLUTE - _RELATIVE * abs(bound))


def weighted_sum(terms: Iterable[tuple[float, Any]]) -> Any:
    """The sum of factor times variable over pairs of both, as Pyomo's expression; built faster than by ``quicksum``.

    An expression even where there is nothing to sum: of plain numbers Pyomo takes no row (``0 == 1``). Empty once the
    watch is stopped (`solvers.build_stop`): an exception in a rule Pyomo would log as an error of the model.
    """
    pairs = [] if is_stopped() else list(terms)
    return LinearExpression(linear_coefs=[factor for factor, _ in pairs], linear_vars=[var for _, var in pairs])


def in_units(amount: float, unit: float) -> float:
    """A cost as a coefficient, in units; 0 where it is too small for HiGHS: a model that adds up costs is relaxed."""
    return amount / unit if amount >= SMALLEST * unit else 0.0


def until_stopped(watch: Watch, rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of a Pyomo constraint, which makes no more rows once the watch is stopped.

    Pyomo logs an exception that a rule raises as an error of the model; whoever builds it checks the watch afterwards.
    """

    def rows(*index: Any) -> Any:
        return pyo.Constraint.Skip if watch.stopped() else rule(*index)

    return rows


def run(
    model: pyo.ConcreteModel,
    limits: Limits,
    watch: Watch | None = None,
    *,
    on_solution: OnSolution = None,
    on_bound: OnBound = None,
    hint: Iterable[tuple[Any, float]] = (),
    options: Mapping[str, float | int | str | bool] | None = None,
    examined: bool = False,
) -> Run:
    """Run a MILP (or LP) solver on a Pyomo model until a proof, a limit, or ``watch.stopped()``.

    Parameters
    ----------
    model
        Linear, with or without an objective (minimised or maximised), scaled to natural size by the caller.
    limits, watch
        Time comes from ``watch.remaining_s()``, so that model building counts; without a watch from
        ``limits.time_s``. A gap above `OPTIMAL_GAP` lets the search end early. ``limits.solver`` runs instead of HiGHS
        (`solvers.external`), once it has passed its exam (`solvers.check_solver`).
    on_solution, on_bound
        Called for each improving solution (read it through ``values[variable]``) and each improved dual bound, in
        the model's own objective; bounds of models with integers once a run has ended. An exception they raise ends
        the search and is raised here.
    hint
        Pairs of a variable and its value in a (nearly) feasible solution; may be partial.
    options
        HiGHS options on top of ours (for instance ``mip_feasibility_tolerance``).
    examined
        This is the exam: demand none before.

    Returns
    -------
    Run
        ``values[variable]`` of the best solution (``None``: none was found); the model is not changed. Without an
        objective ``objective`` and ``bound`` are ``None``. Where HiGHS fails, twice, or aborts, ``reason`` says how.

    Raises
    ------
    ValueError
        If the model is not linear, or unbounded.
    RuntimeError
        If HiGHS rejects the model.
    BackendError
        If highspy is not of its pinned version, or the solver is not installed, does not know an option, or fails its
        exam.
    """
    demand("highspy")
    if not examined:
        check_solver.demand_passed("highs", limits)
    if watch is None:
        process.prepare(OWN_HIGHS)
        watch = Watch(limits)
    if watch.stopped():
        return Run(stop=watch.why())
    highs, columns, has_objective, rows = translate(model, watch)
    if watch.stopped():
        return Run(stop=watch.why())
    if highs.getNumRow() != len(rows):  # Pyomo ignores that HiGHS refused a row
        return Run(stop=watch.why(), reason="HiGHS failed: it takes no coefficient of 1e15 or more")
    known = {columns[id(variable)]: value for variable, value in hint}
    if limits.solver != DEFAULT_SOLVER:
        return external.run(highs.getLp(), columns, has_objective, limits, watch, on_solution, on_bound, known)
    configure(highs, limits, options or {})  # refuses what HiGHS does not know
    call = _Call(has_objective, limits, watch, options or {}, on_solution)
    return report_run(prove_twice(call.once, highs.getLp(), columns, known, limits.seed, on_bound), on_bound)


@dataclass(frozen=True)
class _Call:
    """What both runs have in common."""

    has_objective: bool
    limits: Limits
    watch: Watch
    options: Mapping[str, float | int | str | bool]
    on_solution: OnSolution

    def once(
        self,
        lp: highspy.HighsLp,
        columns: Mapping[int, int],
        hint: Mapping[int, float],
        on_bound: OnBound,
        is_second: bool = False,
    ) -> Run:
        """One run, in HiGHS's process; the second one without presolve."""
        relay, presolve = Relay(self.on_solution, on_bound), "off" if is_second else "choose"
        is_minimum = lp.sense_ == highspy.ObjSense.kMinimize
        task = LpTask(pack(lp), self.limits, self.options, presolve, is_minimum, tuple(hint.items()))
        end, _ = process.run_task(OWN_HIGHS, task, self.watch, relay, lambda values: Values(columns, values))
        relay.finish()
        if end.outcome is Outcome.UNBOUNDED:
            raise ValueError("the model is unbounded; expected a bounded objective")
        if end.outcome is Outcome.INVALID:
            raise RuntimeError(f"HiGHS rejects the model: {end.words}")
        return self._read(end, columns, is_minimum, (lp.num_col_, lp.num_row_))

    def _read(self, end: Ended, columns: Mapping[int, int], is_minimum: bool, size: tuple[int, int]) -> Run:
        infeasible = end.outcome is Outcome.INFEASIBLE
        objective = end.objective if self.has_objective else None
        bound = end.bound if self.has_objective and not infeasible else None
        reason = f"HiGHS failed: {end.words}" if end.outcome is Outcome.FAILED else ""
        if end.outcome is Outcome.ABORTED:
            reason = f"solver aborted: HiGHS, {end.words}"
            self.watch.aborted(reason)
        return Run(
            stop=process.stop_of(
                end.outcome, objective, bound, self.limits, self.watch, self.has_objective, is_minimum
            ),
            values=None if end.values is None else Values(columns, end.values),
            objective=objective,
            bound=bound,
            infeasible=infeasible,
            solver=version(),
            reason=reason,
            stats={
                **{"variables": size[0], "constraints": size[1], "search_nodes": 0, "simplex_iterations": 0},
                **end.stats,
            },
        )


class Hinted:
    """What can be given a solution to begin with."""

    _start: tuple[tuple[Any, float], ...] = ()

    def begin_with(self, values: Iterable[tuple[Any, float]]) -> None:
        """Make these values of variables the hint."""
        self._start = tuple(values)

    def hint(self) -> Iterable[tuple[Any, float]]:
        """A solution to begin with, or a part of one; none unless a model has one."""
        return self._start


class ByName:
    """What holds its Pyomo model as ``model``: variables and rows by name and index, and more of them."""

    model: Any

    def var(self, name: str) -> Mapping[Any, Any]:
        """A group of variables by their indices; empty if the model has none."""
        found = self.model.component(name)
        return found if isinstance(found, pyo.Var) else {}

    def new_integer(self, name: str, index: tuple[int, ...], most: int, doc: str) -> Any:
        """A new variable ``name[index]`` from 0 to ``most``, and what it means."""
        if self.model.component(name) is None:
            self.model.add_component(name, pyo.Var(pyo.Any, domain=pyo.NonNegativeIntegers, dense=False, doc=doc))
        found = self.model.component(name)[index]
        found.setub(most)
        return found

    def new_row(self, name: str, index: tuple[int, ...], row: Any, doc: str) -> None:
        """Add a row ``name[index]``, and what it says."""
        if self.model.component(name) is None:
            self.model.add_component(name, pyo.Constraint(pyo.Any, doc=doc))
        self.model.component(name)[index] = row


class Runnable(Hinted, Inspectable):
    """What holds its Pyomo model as ``model``, and can be run with HiGHS's ``options``."""

    inspection = "solvers.milp.inspection"
    options: ClassVar[Mapping[str, float | int | str | bool]] = {}

    def run(self, limits: Limits, watch: Watch, on_solution: OnSolution = None, on_bound: OnBound = None) -> Run:
        """Run HiGHS on it, or ``limits.solver`` (`run`)."""
        hint, options = self.hint(), self.options
        return run(self.model, limits, watch, on_solution=on_solution, on_bound=on_bound, hint=hint, options=options)

    def objective_unit(self) -> tuple[float, float] | None:
        """Scale and offset that make an objective of the model one of the instance (`solvers.inspection.unit_of`)."""
        return unit_of(self.lower_bound, _RELATIVE)  # type: ignore[attr-defined]  # a `formulations.modelling.solve_model.Model`

    def solution_of(self, values: Mapping[str, float]) -> Values:
        """A solution, from the values of variables by such names; others are 0."""
        named = self.variables()
        places = {id(variable): place for place, variable in enumerate(named.values())}
        return Values(places, [values.get(name, 0.0) for name in named])

    def variable(self, name: str, index: tuple[Any, ...]) -> Any:
        """The variable ``name[index]``; ``KeyError`` if there is none."""
        found = self.model.component(name)
        if found is None or found.ctype is not pyo.Var:
            raise KeyError(name)
        return found[index or None] if len(index) != 1 else found[index[0]]

    def indices(self, name: str) -> list[Any]:
        """The indices of the variables of a name."""
        found = self.model.component(name)
        return [] if found is None else [() if index is None else index for index in found]

    def objective(self) -> Any:
        """The expression that is minimised."""
        return next(iter(self.model.component_data_objects(pyo.Objective, active=True))).expr

    def objective_text(self) -> str:
        """The same to be compared: whether it is still that."""
        return "".join(
            f"{each.sense} {each.expr}" for each in self.model.component_data_objects(pyo.Objective, active=True)
        )

    def minimise(self, expression: Any) -> None:
        """Minimise a linear expression in place of what was minimised."""
        for each in list(self.model.component_data_objects(pyo.Objective, active=True)):
            each.deactivate()
        self.model.del_component("own_objective")
        self.model.own_objective = pyo.Objective(expr=expression)

    def own_bound(self, bound: float) -> float:
        """What HiGHS's dual bound proves for a minimised objective of any sign and meaning.

        A little less; of an objective that only has whole values the next of these.
        """
        safe = bound - _ABSOLUTE - _RELATIVE * abs(bound)
        form = generate_standard_repn(self.objective())
        numbers = (form.constant, *form.linear_coefs)
        is_whole = all(each.is_integer() for each in form.linear_vars) and all(float(n).is_integer() for n in numbers)
        return float(math.ceil(safe)) if is_whole else safe

    def add_row(self, name: str, expression: Any, relation: str, amount: float) -> None:
        """Hold a linear expression, or a number, to ``<=``, ``>=`` or ``==`` an amount.

        ``name`` is ``component[index]``.
        """
        if isinstance(expression, int | float):  # of plain numbers Pyomo takes no row
            expression = LinearExpression(constant=expression, linear_coefs=[], linear_vars=[])
        component, _, index = name.rstrip("]").partition("[")
        if self.model.component(component) is None:
            self.model.add_component(component, pyo.Constraint(pyo.Any, doc=REQUIRED))
        lower, upper = amount if relation != "<=" else None, amount if relation != ">=" else None
        self.model.component(component)[int(index)] = pyo.inequality(lower, expression, upper)
