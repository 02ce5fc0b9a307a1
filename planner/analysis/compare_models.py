"""Declarative models of one instance side by side: how large, how tight, how quick to a plan, to 1 %, to a proof."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from formulations.contract.family import Method
from formulations.modelling.solve_model import Stopped
from planner.analysis.model_view import OpenModel, declarative
from planner.files.load import family_of, validate
from planner.process.errors import UsageError
from planner.process.signals import pending
from planner.results.events import Event
from planner.results.result import html_table
from planner.results.texts import columns, number, percent, with_unit
from planner.solving.choose import find_method, pick
from planner.solving.compare import Report, crosscheck, expect_methods
from planner.solving.solve import silent
from planner.solving.worker import signals_stop
from solvers.outcome import Limits, Stop, Watch

#: Within so much of the optimum a plan is as good as one needs.
NEAR = 0.01

#: The default time limit of each model, in seconds; its relaxation has as much once more.
DEFAULT_TIME_S = 60.0


#: Of a model that was not looked at.
_NOTHING = dict.fromkeys(("variables", "constraints", "nonzeros", "root_bound", "root_s"))


@dataclass(frozen=True)
class Formulation:
    """One declarative method on an instance; numbers that are not known are ``None``.

    ``root_bound`` is the bound of the linear relaxation of the model as the method begins with it, ``root_share`` its
    part of the optimum; ``root_s`` its seconds. ``complete`` has the sizes and the root of the model from which nothing
    is left out that a known plan makes superfluous; of a method without a model it is ``None``, as are the sizes.
    ``first_plan_s``, ``one_percent_s`` and ``proof_s`` are seconds until
    the first plan, a plan within `NEAR` of the optimum, and the proof; building counts.
    """

    method: str
    variables: int | None
    constraints: int | None
    nonzeros: int | None
    root_bound: float | None
    root_share: float | None
    root_s: float | None
    first_plan_s: float | None
    one_percent_s: float | None
    proof_s: float | None
    status: str
    objective: float | None
    bound: float | None
    reason: str = ""
    complete: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Formulations:
    """All declarative methods on an instance, and its optimum if some method proved it (`report` has their results).

    ``search`` is the exact method beside them, which has no model: its sizes and root are ``None``. It is ``None``
    itself where the method that the problem prefers is one of the models.
    """

    problem: str
    instance: str
    unit: str
    optimum: float | None
    rows: tuple[Formulation, ...]
    search: Formulation | None
    report: Report
    events: tuple[Event, ...]

    def to_json(self) -> dict[str, Any]:
        """The object that ``planner formulations --json`` prints (docs/interface/models.md)."""
        return {
            **{name: getattr(self, name) for name in ("problem", "instance", "unit", "optimum")},
            "rows": [dict(vars(row)) for row in self.rows],
            "search": None if self.search is None else dict(vars(self.search)),
        }

    @property
    def lines(self) -> tuple[Formulation, ...]:
        """The search, if there is one, and the models."""
        return (*filter(None, [self.search]), *self.rows)

    def cells(self) -> list[dict[str, str]]:
        """Lines by heading: of each method its model as it is solved, and below it the complete one.

        Where nothing is left out of a model the two are one line.
        """
        found = []
        for line in self.lines:
            is_whole = line.complete is not None and all(vars(line)[name] == line.complete[name] for name in _COMPARED)
            model = "none" if line.complete is None else "complete" if is_whole else "as solved"
            found.append(
                {
                    "method": line.method,
                    "model": model,
                    **_sizes(vars(line)),
                    "1st plan": _short(line.first_plan_s),
                    "1 %": _short(line.one_percent_s),
                    "proof": _short(line.proof_s),
                    "status": line.status,
                }
            )
            if line.complete is not None and not is_whole:
                absent = dict.fromkeys(("1st plan", "1 %", "proof", "status"), "")
                found.append({"method": line.method, "model": "complete", **_sizes(line.complete), **absent})
        return found

    def __str__(self) -> str:
        cells = self.cells()
        head = f"{self.instance}: models of {self.problem}, optimum {with_unit(self.optimum, self.unit)}"
        return "\n".join([head, *columns(list(cells[0]), [list(line.values()) for line in cells])])

    def _repr_html_(self) -> str:
        """A table; in IPython `planner.display.notebook` shows it with its pictures."""
        return html_table([vars(line) for line in self.lines])


#: What a complete model is compared by.
_COMPARED = ("variables", "constraints", "nonzeros", "root_bound")


def _sizes(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        "variables": number(values["variables"]),
        "rows": number(values["constraints"]),
        "non-zeros": number(values["nonzeros"]),
        "root": _short(values["root_bound"]),
        "of optimum": percent(values["root_share"]),
    }


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def formulations(
    instance: Any,
    *,
    methods: Sequence[str] | None = None,
    limits: Limits | None = None,
    notice: Callable[[str], None] = silent,
) -> Formulations:
    """Compare the declarative methods that take an instance; another exact method may find the optimum.

    Parameters
    ----------
    instance
        From `planner.load`, or built from the classes in ``instances``.
    methods
        Names, or ``FILE.py:FUNCTION``; one without a model has its seconds alone. Default: all declarative ones.
    limits
        For each method, and for each relaxation; default: a minute each.
    notice
        As for `planner.solve`.

    Raises
    ------
    InstanceError
        If the instance breaks a rule.
    UsageError
        If no declarative method takes the instance, or one that is named does not.
    """
    limits = limits or Limits(time_s=DEFAULT_TIME_S)
    instance = validate(instance)
    family = family_of(instance)
    expect_methods(methods)
    chosen = [find_method(family, name) for name in (declarative(family) if methods is None else methods)]
    refused = {method.name: method.misfit(instance) for method in chosen}
    names = [name for name, reason in refused.items() if reason is None]
    if not names or (methods is not None and len(names) < len(refused)):
        reasons = (f"{name}: {reason}" for name, reason in refused.items() if reason is not None)
        why = "; ".join(reasons) or f"{family.name} has no model"
        raise UsageError(f"{'no declarative method takes' if methods is None else 'not all take'} the instance ({why})")
    best = pick(family, instance, limits, exact=True)[0].name
    events: list[Event] = []
    asked = list(dict.fromkeys([best, *names]))
    report = crosscheck(instance, methods=asked, limits=limits, listen=events.append, notice=notice)
    optimum = report.optimum
    results = {result.method: result for result in report.results}
    unit = family.unit(instance)

    def share(root: float | None) -> float | None:
        return None if root is None or not optimum else root / optimum

    def row(
        name: str, sizes: Mapping[str, Any], unbuilt: str = "", complete: Mapping[str, Any] | None = None
    ) -> Formulation:
        result = results.get(name)
        own = [event for event in events if event.method == name and event.objective is not None]
        near = [] if optimum is None else [each for each in own if _is_near(each.objective, optimum)]
        proved = result is not None and result.stop is Stop.PROVED
        return Formulation(
            method=name,
            **sizes,
            root_share=share(sizes["root_bound"]),
            first_plan_s=own[0].seconds if own else None,
            one_percent_s=near[0].seconds if near else None,
            proof_s=result.seconds if result is not None and proved else None,
            status="left out" if result is None else result.status.value,
            objective=None if result is None else result.objective,
            bound=None if result is None else result.bound,
            reason="; ".join(filter(None, (unbuilt, "" if result is None else result.reason))),
            complete=None if complete is None else {**complete, "root_share": share(complete["root_bound"])},
        )

    def examined(method: Method[Any, Any]) -> Formulation:
        if method.build is None:
            return row(method.name, _NOTHING)
        sizes, unbuilt = _inspect(instance, method, limits)
        complete, _ = _inspect(instance, method, limits, complete=True)
        return row(method.name, sizes, unbuilt, complete)

    rows = tuple(examined(method) for method in chosen if method.name in names)
    search = None if best in names else row(best, _NOTHING)
    return Formulations(family.name, instance.name, unit, optimum, rows, search, report, tuple(events))


def _is_near(objective: float | None, optimum: float) -> bool:
    return objective is not None and objective <= optimum * (1 + NEAR)


def _inspect(
    instance: Any, method: Method[Any, Any], limits: Limits, *, complete: bool = False
) -> tuple[dict[str, Any], str]:
    """Sizes and relaxation of a model, ``None`` each where it is too large to build; and what is missing, in words."""
    found: dict[str, Any] = dict(_NOTHING)
    if pending() is not None:
        return found, "interrupted"
    family, watch = family_of(instance), Watch(limits)
    opened = OpenModel(family, method, instance, complete=complete, watch=watch)
    try:
        with signals_stop(watch):
            sizes = opened.sizes()
    except Stopped:
        return found, f"the model was not built ({watch.why().value})"
    except (UsageError, MemoryError) as error:
        return found, f"the model cannot be built: {error}"
    found |= {"variables": sizes.variables, "constraints": sizes.constraints, "nonzeros": sizes.nonzeros}
    watch.start()
    try:
        with signals_stop(watch):
            root = opened.root(limits.time_s)
    except UsageError as error:
        return found, f"no root bound: {error}"
    return found | {"root_bound": root.bound, "root_s": root.seconds}, root.reason
