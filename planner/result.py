"""The result object of docs/interface.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from solvers.outcome import Status, Stop


@dataclass(frozen=True)
class Result:
    """What one method found, judged by the family's own ``violations`` and ``evaluate``.

    ``objective`` is ours, in ``unit``; ``bound`` is a proved lower bound on it; ``gap`` is
    ``(objective - bound) / objective``; absent numbers are ``None``. ``seconds`` is the method's wall time, building
    included, kernel compilation not. ``proved_by`` says by whose means ``bound`` (or infeasibility) was proved: a
    `solvers.outcome.Prover` or the name of another method; ``None`` without a bound. ``plan`` is in the family's JSON
    form (docs/interface.md). ``verified`` is true if there is a plan and it was accepted. ``signal`` is the number of
    the signal that interrupted the run.
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
    options: Mapping[str, Any] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)
    verified: bool = False
    plan: Mapping[str, Any] | None = None
    signal: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The result object of docs/interface.md, in JSON types."""
        shown = {name: value for name, value in vars(self).items() if name != "signal"}
        return {**shown, "status": self.status.value, "stop": self.stop.value, "options": dict(self.options)}
