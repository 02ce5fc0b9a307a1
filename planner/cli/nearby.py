"""Options of ``solve`` that ask for more than one plan: ``--alternatives``, ``--within`` and ``--pareto``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from planner.cli.common import NO_PROOF
from planner.process.errors import UsageError
from planner.results.result import Result
from solvers.outcome import OPTIMAL_GAP, Limits

Alternatives = Annotated[int | None, typer.Option(metavar="N", min=1, help="the N best plans; implies --exact")]
Within = Annotated[str | None, typer.Option(metavar="1%", help="all plans so near the optimum, at most N")]
Pareto = Annotated[str | None, typer.Option(metavar="AXES", help="front of time,memory,devices")]


@dataclass(frozen=True)
class Wanted:
    """What is wanted beside the optimum: some alternatives, those ``within`` a share of it, or a front.

    Each of them rests on a proved optimum: `given` implies ``--exact``.
    """

    count: int | None
    within: str | None
    axes: str | None

    @property
    def given(self) -> dict[str, int | str]:
        """The options as they were given."""
        values: dict[str, int | str | None] = {
            "--alternatives": self.count,
            "--within": self.within,
            "--pareto": self.axes,
        }
        return {name: value for name, value in values.items() if value is not None}

    def refuse(self, loaded: Any, limits: Limits) -> None:
        """`UsageError` for what cannot be answered, before anything is solved."""
        from planner.analysis.alternatives import declared, expect_distinct
        from planner.analysis.pareto import parse_axes

        for name, value in self.given.items():
            if limits.gap > OPTIMAL_GAP:
                raise UsageError.at(name, value, f"a --gap of at most {OPTIMAL_GAP:g}")
            (declared if name == "--pareto" else expect_distinct)(loaded, name, value)
        if self.axes is not None and (self.count is not None or self.within is not None):
            raise UsageError.at("--pareto", self.axes, "none beside --alternatives and --within")
        if self.axes is not None:
            parse_axes(self.axes, loaded)
        self.share()

    def share(self) -> float | None:
        """``--within`` as a number: 0.01 of 1%."""
        text = self.within
        if text is None:
            return None
        try:
            value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise UsageError.at("--within", text, "a share such as 1% or 0.01")
        return value

    def find(self, loaded: Any, result: Result, run: Mapping[str, Any]) -> Found | None:
        """The answer, in the time that the result left; ``None``: nothing was wanted."""
        from planner.analysis.alternatives import alternatives
        from planner.analysis.pareto import pareto, parse_axes

        if not self.given:
            return None
        limits: Limits = run["limits"]
        if limits.time_s is not None:
            limits = replace(limits, time_s=max(0.0, limits.time_s - result.seconds))
        rest = {name: run[name] for name in ("method", "options", "notice")}
        if self.axes is not None:
            return Found(pareto(loaded, parse_axes(self.axes, loaded), result, limits=limits, **rest))
        share = self.share()
        return Found(alternatives(loaded, result, count=self.count, within=share, limits=limits, **rest))


@dataclass(frozen=True)
class Found:
    """An answer, to be printed."""

    answer: Any

    def to_json(self) -> dict[str, Any]:
        """The keys that the result has more."""
        found: dict[str, Any] = self.answer.to_json()
        return found

    def show(self, result: Result) -> None:
        """Print it as a table."""
        from planner.analysis.pareto import Front
        from planner.display.nearby import show_alternatives, show_front

        if isinstance(self.answer, Front):
            show_front(self.answer)
        else:
            show_alternatives(self.answer, result)

    def exit_code(self, of_result: int) -> int:
        """That of the result, unless the answer is not complete."""
        if self.answer.effort.signal:
            return 128 + int(self.answer.effort.signal)
        return of_result if of_result or self.answer.is_complete else NO_PROOF
