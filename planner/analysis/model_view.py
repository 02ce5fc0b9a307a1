"""A declarative method's model, in the open: what it says, how large it is, its relaxation, its files.

Source: this project.
"""

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from formulations.contract.family import Answer, Claim, Family, Method, resolve
from formulations.contract.quantities import Quantity, resolve_requirement
from formulations.modelling.solve_model import Stopped, check_stop, prove, run_as_it_is
from instances.errors import InstanceError
from instances.requirements import Argument, with_requirements
from planner.analysis.model_handles import Measured, keys_of_measure, only, select
from planner.analysis.model_terms import Named, Stated, Term, in_order, opposite_of, requirement_of
from planner.files.destinations import writable
from planner.files.load import family_of, validate
from planner.files.settings import expect_types
from planner.files.write import write_atomically
from planner.process.errors import UsageError
from planner.results.result import Result, html_table, own_terms
from planner.solving.backends import examine_solver
from planner.solving.choose import find_method
from planner.solving.solve import run
from planner.solving.worker import Worker, attend, signals_stop
from solvers.inspection import Group, Relaxation, Sizes, most_of, why_no_bound
from solvers.memory_budget import SizeError
from solvers.outcome import Limits, Status, Watch

#: What an objective may exceed a number given for it by: sums of floats are that close, and models round times.
_CLOSE = 1e-9
_OTHER = "a model that minimises the problem's objective itself"


def model(instance: Any, method: str, *, complete: bool = False, watch: Watch | None = None) -> "OpenModel":
    """The model of a declarative method for an instance, to look at, to add requirements to, to solve, to write.

    Parameters
    ----------
    instance
        From `planner.load`, or built from the classes in ``instances``.
    method
        A declarative method's name (``planner list PROBLEM``), such as ``cpsat`` or ``milp``.
    complete
        Leave out nothing that a known plan makes superfluous: whatever is added to the model by other means than its
        requirements stays right. Larger, and its coefficients may span more magnitudes.
    watch
        Building and the relaxation end once it is stopped (`formulations.modelling.solve_model.Stopped`, or no bound).

    Raises
    ------
    InstanceError
        If the instance breaks a rule.
    UsageError
        If the method is unknown, has no model, or does not take the instance.
    """
    expect_types(method=method)
    instance = validate(instance)
    family = family_of(instance)
    chosen = find_method(family, method)
    if chosen.build is None:
        raise UsageError.at("method", method, f"a declarative one: {', '.join(declarative(family)) or 'there is none'}")
    refused = chosen.misfit(instance)
    if refused:
        raise UsageError.at("method", method, f"one that supports this instance ({refused})")
    return OpenModel(family, chosen, instance, complete=complete, watch=watch)


def declarative(family: Family[Any, Any]) -> list[str]:
    """Names of the methods that are a solver's model."""
    return [method.name for method in family.methods if method.build is not None]


class OpenModel:
    """A model that can be looked at, changed by requirements, solved and written; made by `planner.model`.

    The quantities of the family's vocabulary are its attributes: ``m.require(m.num_stages <= 6, m.nodes(0) >= 2)``.
    """

    def __init__(
        self,
        family: Family[Any, Any],
        method: Method[Any, Any],
        instance: Any,
        *,
        complete: bool = False,
        watch: Watch | None = None,
    ) -> None:
        self._family, self._method, self.complete = family, method, complete
        self._watch = watch or Watch()
        #: With all requirements; what is solved.
        self.instance = instance

    def __getattr__(self, name: str) -> Named:
        family = self.__dict__.get("_family")  # not there yet while it is being copied
        for quantity in () if family is None else family.vocabulary:
            if quantity.name == name:
                return Named(name, of=quantity)
        raise AttributeError(f"{type(self).__name__} has no attribute or quantity {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(quantity.name for quantity in self._family.vocabulary)]

    def require(self, *stated: Stated) -> "OpenModel":
        """Add requirements; `InstanceError` for one that the vocabulary or the instance does not have."""
        more = [requirement_of(each) for each in stated]
        instance = validate(with_requirements(self.instance, more))
        refused = self._method.misfit(instance)
        if refused:
            raise UsageError.at("requirement", str(more[-1]), f"one for {self._method.name}: {refused}")
        self.instance = instance
        if "_shared" in self.__dict__:
            raise UsageError("the model has been changed by other means; expected all requirements before that")
        self.__dict__.pop("_built", None)
        return self

    def forbid(self, *stated: Stated) -> "OpenModel":
        """Require that these do not hold."""
        return self.require(*map(opposite_of, stated))

    def fix(self, quantity: str, *arguments: Argument, value: int, **by_name: Argument) -> "OpenModel":
        """Require a quantity to have a value: ``m.fix("tp_degree", stage=1, value=4)``."""
        found = {each.name: each for each in self._family.vocabulary}
        if quantity not in found:
            raise UsageError.unknown("quantity", quantity, found)
        return self.require(Term(quantity, in_order(found[quantity], arguments, by_name)) == value)

    @cached_property
    def _built(self) -> Any:
        assert self._method.build is not None
        try:
            built = self._method.build(self.instance, self._watch, complete=self.complete)
            check_stop(self._watch)
            return built
        except (SizeError, InstanceError) as error:
            raise UsageError.at("method", self._method.name, f"one whose model can be built ({error})") from None

    def prepare(self) -> None:
        """Import what building it needs: what is left is its own work."""
        resolve(self._method.build)  # type: ignore[arg-type]  # it has one
        self._method.load()

    @property
    def model(self) -> Any:
        """The solver's own model (Pyomo's or CP-SAT's). Whoever adds to it needs a complete one (`planner.model`)."""
        return self._shared.model

    @cached_property
    def _shared(self) -> Any:
        """What was built, from now on in the hands of whoever may change it."""
        built = self._built
        self._objective = None if built.objective_unit() is None else built.objective()
        self._text_of_objective = built.objective_text()
        self._own_unit: tuple[str, float] = ("", 1.0)
        return built

    def _demand_complete(self) -> None:
        if not self.complete:
            raise UsageError.at("complete", False, "True: this model leaves out what a known plan makes superfluous")

    @property
    def scale(self) -> float:
        """What 1 of the model's objective and of its times is in the instance's `unit`.

        `UsageError` where the model's objective stands for something else, such as a number of devices.
        """
        found: tuple[float, float] | None = self._built.objective_unit()
        if found is None:
            raise UsageError.at("method", self._method.name, _OTHER)
        return found[0]

    def expression(self, quantity: str, *arguments: Argument, **by_name: Argument) -> Any:
        """A quantity of the vocabulary as the solver's linear expression: ``m.expression("tp_degree_of", node=3)``.

        For constraints and objectives on `model`; a count is a count, whatever the model's own units are. A name of
        variables with keys, as of `variable`, stands for the sum of those that have them; ``stage_time``, where a model
        has it, for a `Measured` amount.
        """
        found = {each.name: each for each in self.vocabulary}
        if quantity not in found:
            self._demand_complete()
            return self._beyond_vocabulary(quantity, by_name)
        self._demand_complete()
        stated = Term(quantity, in_order(found[quantity], arguments, by_name)) >= 0
        try:
            own, resolved = resolve_requirement(self.vocabulary, self.instance, stated)
        except ValueError as rule:
            raise UsageError.at("arguments", str(stated.arguments), str(rule)) from None
        return self._shared.quantities()[own.name](*resolved)

    def _beyond_vocabulary(self, name: str, keys: Mapping[str, Any]) -> Any:
        """What a model measures itself, or a sum of variables."""
        built, groups = self._shared, self._groups()
        if self._measures(name, keys, groups):
            return self._measured(name, keys)
        if name not in groups:
            raise self._unknown_expression(name)
        return sum(built.variable(name, _as_tuple(index)) for index in select(built, groups[name], keys))

    def _measures(self, name: str, keys: Mapping[str, Any], groups: Mapping[str, Group]) -> bool:
        """Whether the model measures that itself; `UsageError` if it does, by other keys, and has no such variables."""
        own = keys_of_measure(self._shared, name)
        if own and set(keys) != set(own) and name not in groups:
            written = ", ".join(f"{key}=..." for key in own)
            raise UsageError(f"{name} has the keys {', '.join(own)}; expected m.expression({name!r}, {written})")
        return bool(own) and set(keys) == set(own)

    def _unknown_expression(self, name: str) -> UsageError:
        """What is known instead, with the arguments that it takes."""
        built = self._shared
        measured = (f"{each}({', '.join(keys_of_measure(built, each))})" for each in built.measures())
        known = [*(each.signature for each in self.vocabulary), *measured]
        rows = any(group.name == name for group in self.sizes().groups)
        what = f"{name} is the name of constraints, which have no value" if rows else f"there is no quantity {name!r}"
        return UsageError(f"{what}; expected {', '.join(known)}, or variables ({', '.join(self._groups())})")

    def _measured(self, name: str, keys: Mapping[str, Any]) -> Any:
        """An expression of the model's own `measures`; a `Measured` if it has a unit."""
        try:
            found = self._shared.measures()[name](**keys)
        except (KeyError, IndexError, TypeError) as error:
            given = ", ".join(f"{key}={value!r}" for key, value in keys.items())
            raise UsageError.at(name, given, f"{' and '.join(keys)} that the instance has") from error
        if not isinstance(found, tuple):
            return found
        own, scale = found
        return Measured(own, scale, self.unit, self._shared.is_whole)

    def _groups(self) -> dict[str, Group]:
        return {group.name: group for group in self.sizes().groups if group.kind == "variable"}

    def variable(self, name: str, *index: Any, **keys: Any) -> Any:
        """The variable ``name[index]`` of the solver's model, as `sizes` lists the groups of them.

        By ``keys`` the one whose index has that meaning: ``m.variable("choice", node=3, stage=0)``, or the letters of
        the group's sentence. `UsageError` where none or several have them, with the keys that there are.
        """
        if keys:
            groups = self._groups()
            if self._measures(name, keys, groups):
                return self._measured(name, keys)
            if name not in groups:
                raise UsageError.unknown("variable", name, groups)
            index = _as_tuple(only(groups[name], select(self._shared, groups[name], keys)))
        try:
            return self._shared.variable(name, index)
        except KeyError:
            known = list(self._groups())
            if name not in known:
                raise UsageError.unknown("variable", name, known) from None
            if not index:
                raise UsageError(
                    f"{name} is several variables; expected an index or keys (print(m) lists them)"
                ) from None
            first = next(iter(self._shared.indices(name)), ())
            rule = f"an index that the model has, such as {', '.join(map(repr, _as_tuple(first)))}"
            raise UsageError.at(name, list(index), rule) from None

    def at_most(self, objective: float) -> "OpenModel":
        """Keep the problem's own objective, in `unit`, at or below this; every plan that is so good stays in."""
        self._demand_complete()
        built = self._shared
        if isinstance(objective, bool) or not isinstance(objective, int | float):
            raise UsageError.at("the bound", objective, f"a number, in {self.unit}")
        if self._objective is None:
            raise UsageError.at("method", self._method.name, _OTHER)
        most = most_of(built.lower_bound, objective)
        self._limits = getattr(self, "_limits", 0) + 1
        built.add_row(f"at_most[{self._limits}]", self._objective, "<=", most + _CLOSE * abs(most))
        return self

    def minimise(self, expression: Any, unit: str = "", scale: float = 1.0) -> "OpenModel":
        """Minimise a linear expression of the solver's variables in place of the problem's objective.

        ``Result.own`` then has its value and bound, times ``scale``, in your ``unit``. A MILP's should be of natural
        size (1 to 1e6): what its solver takes as equal is absolute. A `Measured` amount has its own unit and scale.
        """
        self._demand_complete()
        if isinstance(expression, str):
            raise UsageError.at("what is minimised", expression, f"an expression, such as m.expression({expression!r})")
        if isinstance(expression, Measured):
            unit, scale, expression = unit or expression.unit, scale * expression.scale, expression.own
        if not 0 < scale < math.inf:
            raise UsageError.at("scale", scale, "a number above 0; to maximise, minimise what is negated")
        self._shared.minimise(expression)
        self._own_unit = unit, scale
        return self

    @property
    def _has_own_objective(self) -> bool:
        """Whether whoever has the model has given it another objective."""
        return "_shared" in self.__dict__ and self._shared.objective_text() != self._text_of_objective

    @property
    def unit(self) -> str:
        """That of the problem's objective."""
        return self._family.unit(self.instance)

    @cached_property
    def vocabulary(self) -> tuple[Quantity, ...]:
        """What requirements may speak of."""
        return tuple(each for each in self._family.vocabulary if each.name in self._method.honours)

    def sizes(self) -> Sizes:
        """How large the model is: variables, constraints, coefficients, groups with their sentences."""
        found: Sizes = self._built.inspected()
        return found

    def root(self, time_limit: float | None = None, limits: Limits | None = None) -> Relaxation:
        """The linear relaxation: its bound in the instance's unit or your own, seconds, fractional variables, duals.

        Of a CP-SAT model that of its linear part; ``left_out`` names the rest. ``limits`` choose a solver for a MILP's.

        `UsageError` if the model has no relaxation to solve.
        """
        if not hasattr(self._built, "relaxation"):
            raise UsageError(f"{self._method.name} has no linear relaxation")
        limits = limits or Limits(time_s=time_limit)
        examine_solver([self._method], limits)
        found: Relaxation = self._built.relaxation(limits, self._watch.part(limits.time_s))
        if found.bound is None:
            return found
        if self._has_own_objective:
            unit, scale = self._own_unit
            return replace(found, bound=scale * found.bound, unit=unit)
        return replace(found, bound=self._built.lower_bound(found.bound), unit=self.unit)

    def duals(self) -> Mapping[str, float]:
        """Dual values of the relaxation's constraints, in the model's own unit; those that are 0 are left out."""
        return self.root().duals

    def solve(self, limits: Limits | None = None) -> Result:
        """Solve it; plans are checked against the definition and the requirements.

        Where `model` was handed out, or given an objective, whoever has it may have changed it: what is solved is that.
        Then the result has the definition's figures of the plan, without a bound, as that of the model may hold for
        less than the instance. ``own`` has the value and the bound of what was minimised, and whether the plan is
        proved to be optimal for that model, or that it has none.
        """
        expect_types(limits=limits)
        limits, family = limits or Limits(), self._family
        examine_solver([self._method], limits)
        if "_shared" not in self.__dict__:
            return run(family, self._method, self.instance, limits, {})
        found: list[Mapping[str, Any]] = []

        def solve(instance: Any, limits: Limits, watch: Watch) -> Any:
            answer, own = self._changed(instance, limits, watch)
            found.append(own)
            value = "" if own["objective"] is None else f": {own['objective']:.9g} {own['unit']}".rstrip()
            said = f"{_OWN_STATUS[own['status']]}{value}; no bound of the instance, as the model may have been changed"
            return replace(answer, bound=None, infeasible=False, reason="; ".join(filter(None, (said, answer.reason))))

        changed = replace(self._method, solve=solve, claim=Claim.HEURISTIC)
        result = run(family, changed, self.instance, limits, {})
        return replace(result, own=found[0] if found else None)

    def _changed(self, instance: Any, limits: Limits, watch: Watch) -> tuple[Answer[Any], Mapping[str, Any]]:
        """The answer of a model that others have changed, and what it is in the model's own terms."""
        family, built = self._family, self._shared
        if not self._has_own_objective:
            part = watch.part(bounds=False)
            answer = prove(instance, lambda: built, family.evaluate, family.judge, limits, part)
            objective = None if answer.plan is None else family.evaluate(instance, answer.plan)
            if not self.complete:  # what it leaves out may be what was added for
                return answer, own_terms(objective, None, self.unit, False)
            return answer, own_terms(objective, answer.bound, self.unit, answer.infeasible)
        unit, scale = self._own_unit
        answer, objective = run_as_it_is(instance, built, family.judge, limits, watch)
        values = [None if each is None else scale * each for each in (objective, answer.bound)]
        return answer, own_terms(values[0], values[1], unit, answer.infeasible)

    def write(self, path: str) -> str:
        """Write the model as a file for other solvers, and beside it ``PATH.json``: what its solutions mean.

        Returns: what solvers may be wrong about, as the model's numbers are too far apart; empty if nothing. It is the
        first line of a ``.lp`` or ``.mps`` file, too.
        `UsageError` if the model has no such format, or the file cannot be written.
        """
        with writable(path, "--write"):  # some writers make a file of their own first
            content = self._text(path)
        beside = self.sidecar(_suffix(path))
        write_atomically(path, content, "--write")
        write_atomically(f"{path}.json", json.dumps(beside, indent=1) + "\n", "--write")
        return str(beside["warning"])

    def _text(self, path: str) -> str:
        try:
            return str(self._built.text(_suffix(path)))
        except ValueError as rule:
            raise UsageError.at("--write", path, f"a name that ends in {rule}, which this model has") from None

    def sidecar(self, suffix: str = ".lp") -> dict[str, Any]:
        """What a file of the model does not say: the instance, the names of its variables in their order, units.

        An objective of the file, times ``scale`` and plus ``offset``, is one of the instance in its ``unit``, but for
        what the model rounds, or one of your own in yours; both are null where it stands for something else.
        """
        unit, (scale, offset) = self.unit, self._built.objective_unit() or (None, None)
        if self._has_own_objective:
            (unit, scale), offset = self._own_unit, 0.0
        return {
            "problem": self._family.name,
            "schema_version": 1,
            "method": self._method.name,
            "complete": self.complete,
            "unit": unit,
            "scale": scale,
            "offset": offset,
            "instance": self._family.to_json(self.instance),
            "variables": self._built.file_order(suffix),
            "warning": self._built.file_warning(suffix),
        }

    def read_solution(self, path: str) -> Result:
        """The plan of a solution that any solver found for this model, judged by the definition.

        The file has a name and a value in each line, as SCIP, HiGHS, CBC and Gurobi write them; variables that it does
        not name are 0. Of a model with an objective of your own, ``own`` has its value in your unit, and no bound: a
        file of a solution proves none.

        `InstanceError` if the file is no solution of this model.
        `CrosscheckError` if what it holds is not a plan.
        """
        from planner.analysis.read_solution import plan_in_file

        terms = self._own_unit if self._has_own_objective else None
        return plan_in_file(self._family, self._method, self.instance, self._built, path, terms, complete=self.complete)

    def head(self) -> dict[str, Any]:
        """What it is a model of, in JSON types."""
        return {
            "problem": self._family.name,
            "instance": self.instance.name,
            "method": self._method.name,
            "unit": self.unit,
            "complete": self.complete,
            "requirements": list(self.instance.requirements),
        }

    def to_json(self, sizes: Sizes | None = None) -> dict[str, Any]:
        """Sizes and groups, in JSON types (docs/interface/models.md); ``sizes`` where they are known."""
        found = sizes or self.sizes()
        return {
            **self.head(),
            "variables": {
                "total": found.variables,
                **{kind: getattr(found, kind) for kind in ("binary", "integer", "continuous")},
            },
            "constraints": found.constraints,
            "nonzeros": found.nonzeros,
            "coefficients": {
                name: {"least": each.least, "most": each.most}
                for name, each in (("matrix", found.matrix), ("objective", found.objective), ("sides", found.sides))
            },
            "groups": [dict(vars(group)) for group in found.groups],
        }

    def __repr__(self) -> str:
        return f"{self._method.name} of {self.instance.name} ({self._family.name}): {self.sizes()}"

    def _repr_html_(self) -> str:
        """A table of its groups for notebooks."""
        return html_table([vars(group) for group in self.sizes().groups])


#: What is said of each status of a changed model.
_OWN_STATUS = {
    Status.OPTIMAL: "optimal for this model",
    Status.FEASIBLE: "the best plan of this model so far",
    Status.INFEASIBLE: "infeasible with what was added to the model",
    Status.UNKNOWN: "this model has no plan so far",
}


def _as_tuple(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _suffix(path: str) -> str:
    return ".pb.txt" if str(path).endswith(".pb.txt") else "." + str(path).rpartition(".")[2]


@dataclass(frozen=True)
class Seen:
    """What is known of a model: no ``sizes`` if it was not built, no ``root`` if that is not wanted.

    ``missing`` says in words what a limit or a signal came before; ``signal`` is the number of a signal.
    """

    sizes: Sizes | None = None
    root: Relaxation | None = None
    missing: str = ""
    signal: int | None = None

    def to_json(self, opened: OpenModel) -> dict[str, Any]:
        """The object that ``planner model --json`` prints (docs/interface/models.md)."""
        unknown: dict[str, Any] = {"root_bound": None, "root_seconds": None, "files": []}
        if self.sizes is None:
            unbuilt: dict[str, Any] = {"variables": None, "constraints": None, "nonzeros": None, "groups": []}
            return {**opened.head(), **unbuilt, **unknown, "reason": self.missing}
        shown, root = opened.to_json(self.sizes) | unknown, self.root
        if root is None:
            return shown
        return shown | {
            **{f"root_{name}": getattr(root, name) for name in ("bound", "seconds", "reason", "infeasible")},
            "fractional": len(root.fractional),
            "root_left_out": list(root.left_out),
        }


def look(opened: OpenModel, limits: Limits, watch: Watch, *, root: bool, doing: Callable[[str], None]) -> Seen:
    """Build a model, and solve its relaxation if ``root``, until the watch is stopped or a signal comes.

    ``watch``: the model's own, with the time of ``limits``, which begins once everything is imported. ``doing``: called
    with what is being done, in words. `UsageError` if the model cannot be built, or has no relaxation.
    """
    seen = [Seen()]

    def work() -> None:
        doing("building the model")
        sizes = opened.sizes()
        seen[0] = Seen(sizes)
        if root:
            doing(f"solving the relaxation of {sizes.variables:,} variables and {sizes.constraints:,} constraints")
            seen[0] = Seen(sizes, opened.root(limits=limits))

    worker = Worker(opened.prepare, work, watch)
    with signals_stop(watch) as received, suppress(Stopped):
        attend(worker, watch, limits, received)
    found = seen[0]
    if found.sizes is None:
        return replace(unbuilt(watch), signal=received.signal)
    if root and found.root is None:  # it was left behind
        found = replace(found, root=Relaxation(None, watch.elapsed_s(), reason=why_no_bound(watch)))
    return replace(found, missing=found.root.reason if found.root else "", signal=received.signal)


def unbuilt(watch: Watch) -> Seen:
    """What is known of a model that a limit or a signal came before."""
    return Seen(missing=f"the model was not built ({watch.why().value})")
