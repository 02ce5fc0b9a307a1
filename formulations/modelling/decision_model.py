"""CP-SAT's model of a problem made of decisions: the decisions are there, the problem adds its own rows and objective.

``takes[field, place, value]`` is 1 where a decision has a value; `DecisionModel` and the requirements follow from it.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from formulations.contract.decisions import EVERY, Decisions, value_of
from formulations.contract.family import Answer, Claim, Family, Method
from formulations.contract.problem import find_family
from solvers.outcome import Limits, Watch

#: ``rows(instance, model)`` adds a problem's rows and its objective to a `DecisionModel`.
Rows = Callable[[Any, Any], None]


def cpsat(rows: Rows, source: str, name: str = "cpsat") -> Method[Any, Any]:
    """The exact method of a model; it honours all requirements on decisions.

    ``rows(instance, model)``, which adds to ``model.model`` (`solvers.cpsat.backend.SpokenModel`) and calls
    ``model.minimise`` once.
    ``source``: where the rows were published.
    """
    return Method(
        name, Claim.EXACT, source, partial(_solve, rows), build=partial(_build, rows), honours=EVERY, backend="cpsat"
    )


def _build(rows: Rows, instance: Any, watch: Watch | None = None, *, complete: bool = False) -> Any:  # noqa: ARG001
    """The model; no plan prunes it."""
    from formulations.modelling.solve_model import add_requirements

    family = _family(instance)
    model = _kind()(family.entries["decisions"], instance)
    rows(instance, model)
    return add_requirements(model, family.vocabulary, instance)


def _solve(rows: Rows, instance: Any, limits: Limits, watch: Watch) -> Answer[Any]:
    """Build and run it until a proof or a limit."""
    from formulations.modelling.solve_model import prove

    family = _family(instance)
    return prove(instance, lambda: _build(rows, instance, watch), family.evaluate, family.violations, limits, watch)


def _family(instance: Any) -> Family[Any, Any]:
    family = find_family(instance)
    assert family is not None, "its class was given to a Problem"
    return family


def _kind() -> type:
    """The class of the models; making it imports CP-SAT."""
    from solvers.cpsat import backend
    from solvers.scaling import Scale

    class DecisionModel(backend.Runnable):
        """The decisions of an instance as Booleans, and what a problem adds to them."""

        def __init__(self, decisions: Decisions, instance: Any) -> None:
            self.model = backend.SpokenModel()
            self.takes: dict[tuple[Any, ...], Any] = {}
            self._decisions, self._places = decisions, decisions.places(instance)
            self._scale = Scale(0)
            for (field, place), domain in self._places.items():
                at = "" if place is None else f"{place},"
                self.model.says(field, f"{field}[{'i,' * bool(at)}k]: {field}{'(i)' * bool(at)} is k")
                self.model.says(f"one_{field}", f"{field}{'(i)' * bool(at)} has exactly one value")
                for value in domain:
                    self.takes[field, place, value] = self.model.new_bool_var(f"{field}[{at}{value}]")
                own = [self.takes[field, place, value] for value in domain]
                self.model.add_exactly_one(own).with_name(f"one_{field}{'' if place is None else f'[{place}]'}")

        def number(self, field: str, place: int | None = None) -> Any:
            """A decision as a linear expression."""
            return sum(value * self.takes[field, place, value] for value in self._places[field, place])

        def minimise(self, expression: Any, scale: Any = None) -> None:
            """The objective, in units of a `solvers.scaling.Scale` with costs rounded down (left out: of 1)."""
            self._scale = scale or self._scale
            self.model.minimize(expression)

        def decode(self, values: Any) -> Any:
            """The plan of a solution."""
            return self._decisions.plan_of({
                where: next(value for value in domain if values[self.takes[(*where, value)]])
                for where, domain in self._places.items()
            })  # fmt: skip

        def lower_bound(self, bound: float) -> float:
            """A bound in the objective's own unit; units are whole."""
            return float(self._scale.restore(backend.whole(bound)) * (1 - 1e-14))

        def cut_off(self, plan: Any, _values: Any) -> None:
            """Forbid this plan, which only rounded sizes let through."""
            own = [self.takes[(*where, value_of(plan, *where))] for where in self._places]
            self.model.add_bool_or([literal.negated() for literal in own]).with_name("forbidden")

        def values_of(self, plan: Any) -> Iterator[tuple[Any, int]]:
            """The values of the decisions in a plan."""
            for (field, place, value), literal in self.takes.items():
                yield literal, int(value_of(plan, field, place) == value)

        def quantities(self) -> Mapping[str, Callable[..., Any]]:
            """The quantities of `Decisions.vocabulary`."""

            def of(field: str) -> Callable[..., Any]:
                def expression(*arguments: Any) -> Any:
                    place, wanted = (None, arguments) if field in decisions.single else (arguments[0], arguments[1:])
                    return self.takes.get((field, place, *wanted), 0) if wanted else self.number(field, place)

                return expression

            decisions = self._decisions
            return {field: of(field) for field in decisions.fields}

    return DecisionModel
