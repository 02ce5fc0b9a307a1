"""From measurements to seconds for each predicted step of each method: the table of `solving.predicted_runtime`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from planner.experiments.bench.measure import MeasuredRow
from planner.files.choices import split
from planner.files.load import family_of, load
from solvers.outcome import Stop


def calibration_table(rows: Iterable[MeasuredRow], inputs: str | None = None) -> dict[str, Any]:
    """The table: of every method the fewest seconds for a predicted step in any of the rows that measured it.

    The fewest, as small instances are mostly overhead; runs that a limit ended count with the limit. So predictions err
    on the short side. Methods that predict nothing are left out, and so are runs that gave up for the instance's size,
    which did not take their steps.
    """
    rates: dict[str, list[float]] = {}
    loaded: dict[str, Any] = {}
    found = list(rows)
    for row in found:
        if row.stop == Stop.SIZE_LIMIT:
            continue
        key = f"{row.case} {row.settings}"
        if key not in loaded:
            loaded[key] = load(row.case, inputs=inputs, **split(row.settings)[0])
        family = family_of(loaded[key])
        effort = {method.name: method.effort for method in family.methods}.get(row.method, lambda _: 0.0)(loaded[key])
        if effort > 0:  # those that users brought predict nothing
            rates.setdefault(f"{family.name}/{row.method}", []).append(row.seconds / effort)
    return {
        "date": max(row.date for row in found),
        "machine": found[0].machine,
        "seconds_per_step": {name: float(f"{min(each):.2g}") for name, each in sorted(rates.items())},
    }
