"""The command on more than one plan of an instance: ``alternatives``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from planner.cli import completion
from planner.cli.common import Inputs, Instance, Search, load_instance, share_of
from planner.cli.outputs import Certificate, Outputs, Solved
from planner.files.choices import split
from planner.process.errors import UsageError
from solvers.outcome import OPTIMAL_GAP

Within = Annotated[str | None, typer.Option(metavar="1%", help="all plans so near the optimum, at most N")]
Pareto = Annotated[str | None, typer.Option(metavar="AXES", help="front of time,memory,devices instead")]
#: So many plans where nothing is said.
_COUNT = 5


def alternatives_command(
    instance: Instance,
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help=f"the N best plans; default: {_COUNT} without --within")
    ] = None,
    within: Within = None,
    pareto: Pareto = None,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="an exact method", autocompletion=completion.methods)
    ] = "auto",
    search: Search = Search(gap=OPTIMAL_GAP),
    outputs: Outputs = Outputs(),
    certificate: Certificate = None,
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """List the best plans with a proof, those near the optimum, or the front of time, memory and devices."""
    from planner.analysis.alternatives import alternatives, expect_distinct
    from planner.analysis.pareto import pareto as front_of
    from planner.analysis.pareto import parse_axes
    from planner.solving.solve import solve

    outputs = replace(outputs, certificate=certificate)
    outputs.refuse(search.solver_log, instance)
    limits = search.limits()
    overrides, options = split(settings)
    found = load_instance(instance, overrides, inputs)
    outputs.announce(found)
    if limits.gap > OPTIMAL_GAP:
        raise UsageError.at("--gap", limits.gap, f"at most {OPTIMAL_GAP:g}: alternatives rest on a proof")
    if pareto is not None and (count is not None or within is not None):
        raise UsageError.at("--pareto", pareto, "none beside --count and --within")
    axes = None if pareto is None else parse_axes(pareto, found)
    share = None if within is None else share_of("--within", within, "a share such as 1% or 0.01")
    if axes is None:
        expect_distinct(found, *("--count", count or _COUNT) if within is None else ("--within", within))

    def work(arguments: dict[str, Any]) -> Solved:
        result = solve(found, **arguments)
        left = limits.time_s if limits.time_s is None else max(0.0, limits.time_s - result.seconds)
        rest = {name: arguments[name] for name in ("method", "options", "notice")}
        rest["limits"] = replace(limits, time_s=left)
        if axes is not None:
            return Solved(result, found, more=front_of(found, axes, result, **rest))
        most = count or (_COUNT if share is None else None)
        return Solved(result, found, more=alternatives(found, result, count=most, within=share, **rest))

    outputs.run(work, {"method": method, "exact": True, "limits": limits, "options": options})
