"""The result object of docs/interface/results.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from planner.types import Json, JsonObject
from solvers.outcome import OPTIMAL_GAP, Status, Stop, relative_gap

if TYPE_CHECKING:
    from formulations.contract.clock import Clock
    from formulations.contract.family import Family
    from formulations.contract.figures.plan_figures import Breakdown


@dataclass(frozen=True)
class Result:
    """What one method found, judged by the family's own ``judge`` and ``evaluate``.

    ``objective`` is ours, in ``unit``; ``bound`` is a proved lower bound on it; ``gap`` is
    ``(objective - bound) / objective``; absent numbers are ``None``. ``seconds`` is the method's wall time, building
    included, kernel compilation not. ``proved_by`` names by whose means ``bound`` (or infeasibility) was proved: a
    `solvers.outcome.Prover` or the name of another method; ``None`` without a bound. ``plan`` is in the family's JSON
    form (docs/problems/), and ``own_plan`` is the same plan as the problem's own object. ``verified`` is true if
    there is a plan and it was accepted. ``certificate`` has kind, bytes and seconds of the certificate that was
    requested (`planner.certify`), if there is one. ``loss`` is ``objective / reference - 1`` to the proved optimum of a
    comparison, or its best bound (`optimality_loss`); ``None`` alone. ``signal`` is the number of the signal that
    interrupted the run. ``own`` is what a changed model has found in its own terms (`planner.model`): ``objective``,
    ``bound``, ``unit`` and ``status``; where another amount was minimised (``solve --minimise``) also ``minimised`` and
    ``within``; ``None`` of every other result. ``of`` is the instance itself, where the result
    was made in this process: notebooks show its plan's pictures.
    """

    problem: str
    instance: str
    method: str
    claim: str
    status: Status
    stop: Stop
    objective: float | None
    bound: float | None
    gap: float | None
    unit: str
    seconds: float
    proved_by: str | None = None
    reason: str = ""
    solver: str = ""
    seed: int = 0
    threads: int = 1
    options: JsonObject = field(default_factory=dict)
    stats: JsonObject = field(default_factory=dict)
    verified: bool = False
    plan: JsonObject | None = None
    certificate: JsonObject | None = None
    loss: float | None = None
    signal: int | None = None
    own: JsonObject | None = None
    of: Any = field(default=None, repr=False, compare=False)
    own_plan: Any = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process is without the instance."""
        return {**vars(self), "of": None}

    def to_json(self) -> dict[str, Json]:
        """The result object of docs/interface/results.md, in JSON types."""
        from planner.results.fingerprints import fingerprint

        shown = {name: value for name, value in vars(self).items() if name not in ("signal", "of", "own_plan")}
        if self.own is None:
            del shown["own"]
        shown |= {"status": self.status.value, "stop": self.stop.value, "options": dict(self.options)}
        clock = self.clock()
        names = ("kind", "schedule", "microbatches", "iteration_s", "formula_s", "other")
        of_clock = None if clock is None else {name: getattr(clock, name) for name in names}
        return {**shown, "clock": of_clock, "fingerprint": fingerprint(self.of, self.plan)}

    def clock(self) -> Clock | None:
        """Which clock the objective is, beside a simulated iteration (docs/the-clock.md).

        ``None`` without a plan, for problems without a pipeline, and where the instance is not known.
        """
        family = self._family
        if family is None or family.clock is None or self.own_plan is None:
            return None
        return family.clock(self.of, self.own_plan)

    def breakdown(self) -> Breakdown | None:
        """The figures and pictures of the plan; ``None`` as for `clock`, and for problems that have none."""
        family = self._family
        if family is None or family.breakdown is None or self.own_plan is None:
            return None
        return family.breakdown(self.of, self.own_plan)

    @property
    def minimised(self) -> str:
        """What is minimised, in words that follow "the least"."""
        family = self._family
        return "objective" if family is None else family.minimised(self.of)

    @property
    def _family(self) -> Family[Any, Any] | None:
        from planner.files.load import family_of

        return None if self.of is None else family_of(self.of)

    def __str__(self) -> str:
        """What is minimised, what is proved, the shape of the plan, both clocks, and a table of its stages."""
        from planner.results.sentences import both_clocks, sentences, stage_rows, without_empty
        from planner.results.texts import columns

        found = self.breakdown()
        rows = [] if found is None or not found.rows else without_empty(stage_rows(self, found))
        table = columns(list(rows[0]), [list(row.values()) for row in rows]) if rows else []
        clock = self.clock()
        by_clock = [] if clock is None else [f"The clock: {both_clocks(clock)}."]
        return "\n".join([*sentences(self, found), *by_clock, *table])

    def to_records(self) -> list[dict[str, Json]]:
        """The plan's stages, or other parts, one plain dict each (`pandas.DataFrame` takes the list); empty: no plan.

        A plan without a list of parts is one record.
        """
        if self.plan is None:
            return []
        for parts in self.plan.values():
            if isinstance(parts, list | tuple) and parts and all(isinstance(part, Mapping) for part in parts):
                return [dict(part) for part in parts]
        return [dict(self.plan)]

    def _repr_html_(self) -> str:
        """A table; in IPython `planner.display.notebook` shows the plan's pictures."""
        return html_table([summary(self)]) + html_table(self.to_records())


def own_terms(objective: float | None, bound: float | None, unit: str, is_infeasible: bool) -> dict[str, Json]:
    """The ``own`` of a result: what is minimised in place of the problem's objective, and how far that is proved."""
    gap = relative_gap(objective, bound)
    status = Status.UNKNOWN if objective is None else Status.FEASIBLE
    if is_infeasible and objective is None:
        status = Status.INFEASIBLE
    elif gap is not None and gap <= OPTIMAL_GAP:
        status = Status.OPTIMAL
    return {"objective": objective, "bound": bound, "unit": unit, "status": status.value}


def summary(result: Result) -> dict[str, Json]:
    """A result as a row of a table."""
    names = (
        "instance",
        "method",
        "loss",
        "objective",
        "bound",
        "gap",
        "unit",
        "status",
        "stop",
        "seconds",
        "proved_by",
    )
    return {name: getattr(result, name) for name in names}


def html_table(records: Sequence[Mapping[str, Any]]) -> str:
    """Records as a table of HTML, in which nothing is markup; empty without records."""
    if not records:
        return ""
    names = list(dict.fromkeys(name for record in records for name in record))
    rows = [[_cell(record.get(name)) for name in names] for record in records]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.9g}" if isinstance(value, float) else str(value)
