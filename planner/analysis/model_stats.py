"""A model looked at within limits: its size, its relaxation, and what there was no time for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from formulations.modelling.solve_model import Stopped
from planner.analysis.model_view import OpenModel
from planner.solving.worker import Worker, attend, signals_stop
from solvers.inspection import Relaxation, Sizes, why_no_bound
from solvers.outcome import Limits, Watch


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
        """The object that ``planner model --json`` prints (docs/interface.md)."""
        unknown: dict[str, Any] = {"root_bound": None, "root_seconds": None, "files": []}
        if self.sizes is None:
            unbuilt: dict[str, Any] = {"variables": None, "constraints": None, "nonzeros": None, "groups": []}
            return {**opened.head(), **unbuilt, **unknown, "reason": self.missing}
        shown, root = opened.to_json(self.sizes) | unknown, self.root
        if root is None:
            return shown
        return shown | {
            "root_bound": root.bound,
            "root_seconds": root.seconds,
            "root_reason": root.reason,
            "root_infeasible": root.infeasible,
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
