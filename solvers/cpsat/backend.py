"""CP-SAT: runs a model and reports the outcome. The sole owner of ``CpSolver``.

Measured traps (README, "Solvers"): 9.15's presolve proves false optima (see `_configure`); on UNKNOWN the solver still
answers an objective of 0.0, so the status is checked first; several workers repeat their result only when their
searches are interleaved.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from google.protobuf import text_format
from ortools.sat import sat_parameters_pb2
from ortools.sat.python import cp_model, cp_model_helper

from solvers import check_solver
from solvers.build_stop import Stopped, is_stopped
from solvers.callback_bridge import Relay
from solvers.external import process
from solvers.external.messages import FAILURES, OWN_CPSAT, CpTask, Ended, Outcome
from solvers.inspection import Inspectable, plain, unit_of
from solvers.outcome import DEFAULT_SOLVER, OPTIMAL_GAP, Limits, OnBound, OnSolution, Run, Watch
from solvers.trust.pins import BackendError, demand, installed_version

#: With so little of its limit left, in seconds, a run has ended because of that.
_NEAR_S = 0.1

#: Parameters that limits and logs set.
_OURS = (
    "num_workers",
    "num_search_workers",
    "interleave_search",
    "random_seed",
    "catch_sigint_signal",
    "relative_gap_limit",
    "max_time_in_seconds",
    "log_search_progress",
    "log_to_stdout",
)

#: Parameters for models whose linear relaxation is exact, or nearly: solve all of it first, and probe nothing.
INTEGRAL: Mapping[str, Any] = {
    "add_lp_constraints_lazily": False,
    "root_lp_iterations": 1_000_000,
    "cp_model_probing_level": 0,
}

#: Parameters of the short run of one worker that completes a hint: little is done before the search (`_complete_hint`).
_COMPLETING: Mapping[str, Any] = {
    "linearization_level": 0,
    "cp_model_probing_level": 0,
    "symmetry_level": 0,
    "stop_after_first_solution": True,
    "max_number_of_conflicts": 10,
}

#: The relations between an expression and an amount.
RELATIONS: dict[str, Callable[[Any, int], Any]] = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}


class Values:
    """The values of a solution: ``values[variable]`` is the integer that CP-SAT gave an integer or Boolean variable."""

    def __init__(self, lookup: Callable[[Any], int]) -> None:
        self._lookup = lookup

    def __getitem__(self, variable: Any) -> int:
        return int(self._lookup(variable))


def version() -> str:
    """Name and version, for results: ``CP-SAT 9.15.6755``."""
    return f"CP-SAT {installed_version('ortools')}"


def whole(bound: float) -> int:
    """What CP-SAT's dual bound, a float, proves for an objective that is a whole number: rounded up, safely.

    A millionth above a whole number is rounding, and beyond 2^53 floats do not hold every whole number.
    """
    return math.ceil(bound - 1e-6 - abs(bound) * 2.0**-52)


def run(
    model: cp_model.CpModel,
    limits: Limits,
    watch: Watch | None = None,
    *,
    on_solution: OnSolution = None,
    on_bound: OnBound = None,
    parameters: Mapping[str, Any] | None = None,
    examined: bool = False,
) -> Run:
    """Run CP-SAT on a model until a proof, a limit, or ``watch.stopped()``.

    Parameters
    ----------
    model
        With or without an objective (minimised or maximised); hints are the caller's.
    limits, watch
        Time comes from ``watch.remaining_s()``, so that model building counts; without a watch from
        ``limits.time_s``. One thread is reproducible for a seed; more run interleaved, which is too, but slower.
        A gap above `OPTIMAL_GAP` lets the search end early. ``limits.solver_options`` are parameters of CP-SAT on
        top of ours, once they have passed the exam (`solvers.check_solver`).
    on_solution, on_bound
        Called from the solver's thread for each improving solution (read it through ``values[variable]`` before
        returning) and each improved dual bound, in the model's own objective. An exception they raise ends the
        search and is raised here.
    parameters
        CP-SAT's own for this model, on top of ours and below those of the limits, such as `INTEGRAL`.
    examined
        This is the exam: demand none before.

    Returns
    -------
    Run
        ``values[variable]`` of the best solution (``None``: none was found). Without an objective ``objective`` and
        ``bound`` are ``None``. Where CP-SAT gives up, twice, or aborts, ``reason`` says so.

    Raises
    ------
    ValueError
        If the model is invalid (for instance coefficients beyond 64 bits).
    BackendError
        If ortools is not of its pinned version, or CP-SAT does not know a parameter or fails its exam with it.
    """
    demand("ortools")
    if not examined:
        check_solver.demand_passed("cpsat", replace(limits, solver=DEFAULT_SOLVER))
    if watch is None:
        process.prepare(OWN_CPSAT)
        watch = Watch(limits)
    if watch.stopped():
        return Run(stop=watch.why())
    relay = Relay(on_solution, on_bound)
    end = _search(model, limits, parameters or {}, watch, relay)
    if not relay.failed and _gave_up(end, watch):
        end = _search(model, replace(limits, seed=(limits.seed + 1) % 2**31), parameters or {}, watch, relay)
    relay.finish()
    if end.outcome is Outcome.INVALID:
        raise ValueError(f"invalid CP-SAT model: {model.validate()}")
    return _read(model, end, relay.best_bound, limits, watch)


def weighted_sum(terms: Iterable[tuple[int, Any]]) -> Any:
    """The sum of factor times variable over pairs of both, built faster than by ``sum``."""
    pairs = list(terms)
    return cp_model.LinearExpr.weighted_sum([var for _, var in pairs], [factor for factor, _ in pairs])


def _by_index(name: str, index: Any) -> str:
    places = index if isinstance(index, tuple) else (index,)
    return f"{name}[{','.join(map(str, places))}]" if places else name


class SpokenModel(cp_model.CpModel):  # type: ignore[misc]  # ortools is untyped here
    """CP-SAT's model, with the sentence of each group of its variables and constraints."""

    def __init__(self) -> None:
        super().__init__()
        #: By the first part of a name; the source stands in brackets at the end.
        self.sentences: dict[str, str] = {}
        #: By name and index, what `booleans` and `integers` have made.
        self.variables: dict[str, dict[Any, Any]] = {}

    def says(self, name: str, text: str) -> None:
        """What the variables or constraints ``name`` or ``name[...]`` mean."""
        self.sentences[name] = text

    def add(self, row: Any) -> Any:
        """Add a row, unless the watch is stopped (`solvers.build_stop`)."""
        if is_stopped():
            raise Stopped
        return super().add(row)

    def booleans(self, name: str, indices: Iterable[Any], doc: str) -> dict[Any, Any]:
        """Boolean variables ``name[index]`` by their indices, and what they mean."""
        return self.integers(name, indices, 0, 1, doc)

    def integers(self, name: str, indices: Iterable[Any], low: int, high: int, doc: str) -> dict[Any, Any]:
        """Whole variables ``name[index]`` by their indices, and what they mean."""
        self.says(name, doc)
        found = {index: self.new_int_var(low, high, _by_index(name, index)) for index in indices}
        self.variables.setdefault(name, {}).update(found)
        return found

    def integer(self, name: str, low: int, high: int, doc: str) -> Any:
        """The only whole variable of this name, and what it means."""
        return self.integers(name, [()], low, high, doc)[()]

    def rows(self, name: str, indices: Iterable[Any], rule: Callable[..., Any], doc: str) -> None:
        """Rows ``name[index]``, as Pyomo's ``Constraint``, and what they say.

        ``rule`` returns the row of an index, or a tuple of that and the literals that it holds under.
        """
        self.says(name, doc)
        for index in indices:
            made = rule(*index) if isinstance(index, tuple) else rule(index)
            row, *literals = made if isinstance(made, tuple) else (made,)
            added = row if isinstance(row, cp_model.Constraint) else self.add(row)
            added.with_name(_by_index(name, index)).only_enforce_if(literals)

    def row(self, name: str, row: Any, doc: str) -> None:
        """The only row of this name, and what it says."""
        self.rows(name, [()], lambda: row, doc)


class Hinted:
    """What holds its CP-SAT model as ``model``, which can be hinted."""

    model: cp_model.CpModel

    def begin_with(self, values: Iterable[tuple[Any, int]]) -> None:
        """Make these values of variables CP-SAT's hint, in place of any before."""
        self.model.clear_hints()
        for variable, value in values:
            self.model.add_hint(variable, value)


class ByName:
    """What holds its CP-SAT model as ``model``: variables and rows by name and index, and more of them."""

    model: SpokenModel

    def var(self, name: str) -> Mapping[Any, Any]:
        """A group of variables by their indices; empty if the model has none."""
        return self.model.variables.get(name, {})

    def new_integer(self, name: str, index: tuple[int, ...], most: int, doc: str) -> Any:
        """A new variable ``name[index]`` from 0 to ``most``, and what it means."""
        return self.model.integers(name, [index], 0, most, doc)[index]

    def new_row(self, name: str, index: tuple[int, ...], row: Any, doc: str) -> None:
        """Add a row ``name[index]``, and what it says."""
        self.model.rows(name, [index], lambda *_: row, doc)


class Runnable(Hinted, Inspectable):
    """What can be run as well, with parameters of its own."""

    inspection = "solvers.cpsat.inspection"
    #: Rows have whole numbers only.
    is_whole: ClassVar[bool] = True
    parameters: ClassVar[Mapping[str, Any]] = {}

    def run(self, limits: Limits, watch: Watch, on_solution: OnSolution = None, on_bound: OnBound = None) -> Run:
        """Run CP-SAT on it (`run`)."""
        return run(self.model, limits, watch, on_solution=on_solution, on_bound=on_bound, parameters=self.parameters)

    def file_warning(self, suffix: str) -> str:
        """What solvers may be wrong about in a file with this suffix; empty if nothing: CP-SAT's own are exact."""
        return super().file_warning(suffix) if suffix in (".lp", ".mps") else ""

    def objective_unit(self) -> tuple[float, float] | None:
        """Scale and offset that make an objective of the model one of the instance (`solvers.inspection.unit_of`)."""
        return unit_of(self.lower_bound)  # type: ignore[attr-defined]  # a `formulations.modelling.solve_model.Model`

    def solution_of(self, values: Mapping[str, float]) -> Values:
        """A solution, from the values of variables by such names; others are 0."""
        by_name = {plain(name): round(value) for name, value in values.items()}
        return Values(lambda variable: by_name.get(plain(variable.name), 0))

    def variable(self, name: str, index: tuple[Any, ...]) -> Any:
        """The variable ``name[index]``; ``KeyError`` if there is none."""
        return self.model.variables[name][index if len(index) != 1 else index[0]]

    def indices(self, name: str) -> list[Any]:
        """The indices of the variables of a name."""
        return list(self.model.variables.get(name, ()))

    def objective(self) -> Any:
        """The expression that is minimised."""
        own = self.model.proto.objective
        variables = (self.model.get_int_var_from_proto_index(place) for place in own.vars)
        return weighted_sum(zip(own.coeffs, variables, strict=True)) + round(own.offset)

    def objective_text(self) -> str:
        """The same to be compared: whether it is still that."""
        proto = self.model.proto  # what is looked at is there from then on, and no model may have both
        return str(proto.objective) if proto.has_objective() else ""

    def minimise(self, expression: Any) -> None:
        """Minimise a linear expression in place of what was minimised."""
        self.model.clear_objective()
        self.model.minimize(expression)

    def own_bound(self, bound: float) -> float:
        """What CP-SAT's dual bound proves for a minimised objective: of whole numbers the next of these."""
        if self.model.proto.has_floating_point_objective():
            return bound - 1e-6 * max(1.0, abs(bound))  # CP-SAT makes whole numbers of it to its own tolerance
        return float(whole(bound))

    def add_row(self, name: str, expression: Any, relation: str, amount: float) -> None:
        """Hold a linear expression, or a number, to ``<=``, ``>=`` or ``==`` an amount."""
        held = RELATIONS[relation](expression, math.floor(amount))
        if not isinstance(held, bool):
            self.model.add(held).with_name(name)
        elif not held:
            self.model.add_bool_or([]).with_name(name)

    def is_zero(self, name: str, expression: Any) -> Any:
        """A literal that says whether an expression that is never negative is 0."""
        if isinstance(expression, int):
            return int(expression == 0)
        found = self.model.new_bool_var(name)
        self.model.add(expression == 0).only_enforce_if(found).with_name(name.replace("[", "_if[", 1))
        self.model.add(expression >= 1).only_enforce_if(~found).with_name(name.replace("[", "_unless[", 1))
        return found


def _search(model: cp_model.CpModel, limits: Limits, own: Mapping[str, Any], watch: Watch, relay: Relay) -> Ended:
    """How CP-SAT's search ended, in its process."""
    proto = cp_model_helper.CpModelProto()
    proto.copy_from(model.proto)
    if limits.threads > 1 and proto.has_solution_hint():
        found = _complete_hint(proto, limits, own, watch, relay)
        if found is not None:
            return found
    return _end_of_search(proto, limits, own, watch, relay)


def _complete_hint(proto: Any, limits: Limits, own: Mapping[str, Any], watch: Watch, relay: Relay) -> Ended | None:
    """Make the hint a whole solution, or drop it; the end of the search, if that has decided the model.

    9.15 aborts where several workers are interleaved, there is a hint, and the first look at the model refutes it
    (``heuristics.fixed_search != nullptr``, google/or-tools issue 5025): the worker follows the hint all the same, as
    nobody learns what it has found before the others have had their turn. What one worker completes refutes that.
    """
    end = _end_of_search(proto, replace(limits, threads=1), {**own, **_COMPLETING}, watch, relay)
    if end.outcome is not Outcome.LIMIT or relay.failed or watch.stopped():
        return end
    proto.clear_solution_hint()
    if end.values is not None:
        proto.solution_hint.vars.extend(range(len(end.values)))
        proto.solution_hint.values.extend(end.values)
    return None


def _end_of_search(proto: Any, limits: Limits, own: Mapping[str, Any], watch: Watch, relay: Relay) -> Ended:
    """How CP-SAT ended with these parameters; what it finds goes to the relay."""
    task = CpTask(str(proto), str(_configure(limits, own)), is_minimum=_is_minimum(proto), log=limits.solver_log)
    return process.run_task(OWN_CPSAT, task, watch, relay, _values)[0]


def _values(solution: Iterable[int]) -> Values:
    response = cp_model_helper.CpSolverResponse()
    response.solution.extend(solution)
    return Values(partial(cp_model_helper.ResponseHelper.value, response))


def _configure(limits: Limits, own: Mapping[str, Any]) -> Any:
    parameters = cp_model_helper.SatParameters()
    parameters.num_workers = limits.threads
    parameters.interleave_search = limits.threads > 1
    parameters.random_seed = limits.seed
    # Its own handler would end the process before what it has found is passed on.
    parameters.catch_sigint_signal = False
    # 9.15's presolve loses solutions of small linear models with sums beyond 2^31 and then proves false optima: its
    # search for included constraints does (google/or-tools issue 5293; tests/solvers/test_linear_models.py).
    parameters.cp_model_presolve = False
    # Without presolve, 9.15 takes a bound that holds under a literal for one that always holds, and calls feasible
    # models infeasible (tests/formulations/hierarchical_partitioning/test_requirements.py).
    parameters.auto_detect_greater_than_at_least_one_of = False
    parameters.relative_gap_limit = limits.gap if limits.gap > OPTIMAL_GAP else 0.0
    for name, value in own.items():
        setattr(parameters, name, value)
    for name, text in limits.solver_options:
        parameters.merge_text_format(_parameter(name, text))
    if limits.solver_log is not None:
        parameters.log_search_progress, parameters.log_to_stdout = True, False
    return parameters


def knows(name: str) -> bool:
    """Whether CP-SAT has a parameter of this name."""
    return name in sat_parameters_pb2.SatParameters.DESCRIPTOR.fields_by_name


def _parameter(name: str, text: str) -> str:
    """A parameter as text that CP-SAT takes; `BackendError` for one that it does not have, and for another value."""
    try:
        if name not in _OURS and knows(name):
            return str(text_format.Parse(f"{name}: {text}", sat_parameters_pb2.SatParameters()))
        rule = "a parameter that CP-SAT has, and that limits and logs do not set"
    except text_format.ParseError:
        rule = "a value that it takes"
    raise BackendError(f"parameter {name} of CP-SAT is {text!r}; expected {rule}")


def _gave_up(end: Ended, watch: Watch) -> bool:
    """Whether CP-SAT ended without an answer though no limit was near and nobody stopped it."""
    if end.outcome is not Outcome.LIMIT or end.values is not None or watch.stopped():
        return False
    remaining = watch.remaining_s()
    return remaining is None or remaining > _NEAR_S


def _read(model: cp_model.CpModel, end: Ended, heard_bound: float | None, limits: Limits, watch: Watch) -> Run:
    scored = end.values is not None and model.has_objective()
    objective = end.objective if scored else None
    bound = end.bound if scored else heard_bound
    infeasible = end.outcome is Outcome.INFEASIBLE
    outcome, reason = end.outcome, ""
    if _gave_up(end, watch):
        outcome, reason = Outcome.FAILED, "CP-SAT failed: it gave up without an answer"
    elif outcome in FAILURES:
        reason = f"solver aborted: CP-SAT, {end.words}"
        watch.aborted(reason)
    return Run(
        stop=process.stop_of(outcome, objective, bound, limits, watch, model.has_objective(), _is_minimum(model.proto)),
        values=None if end.values is None else _values(end.values),
        objective=objective,
        bound=None if infeasible else bound,
        infeasible=infeasible,
        solver=version(),
        reason=reason,
        stats={
            "variables": len(model.proto.variables),
            "constraints": len(model.proto.constraints),
            **{"branches": 0, "conflicts": 0, **end.stats},
        },
    )


def _is_minimum(proto: Any) -> bool:
    return not proto.has_objective() or proto.objective.scaling_factor >= 0
