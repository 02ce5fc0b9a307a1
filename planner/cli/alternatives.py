"""The commands on more than one plan of an instance, or under several settings: ``alternatives`` and ``sweep``."""

from dataclasses import replace
from typing import Annotated, Any

from planner.cli import completion
from planner.cli.common import Inputs, Instance, Method, Search, load_instance, share_of
from planner.cli.declared import flag, option
from planner.cli.for_trainer import Trainer, answered
from planner.cli.outputs import Certificate, Outputs, Solved
from planner.files.choices import split
from planner.process.errors import UsageError
from solvers.outcome import OPTIMAL_GAP

Within = Annotated[str | None, option("1%", "all plans so near the optimum, at most N")]
Pareto = Annotated[str | None, option("AXES", "front of time,memory,devices instead")]
#: So many plans where nothing is said.
_COUNT = 5


def alternatives_command(
    instance: Instance,
    count: Annotated[int | None, option("N", f"the N best plans; default: {_COUNT} without --within", min=1)] = None,
    within: Within = None,
    pareto: Pareto = None,
    method: Annotated[str, option("NAME", "an exact method", complete=completion.methods)] = "auto",
    search: Search = Search(gap=OPTIMAL_GAP),
    outputs: Outputs = Outputs(),
    certificate: Certificate = None,
    inputs: Inputs = None,
    trainer: Trainer = None,
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
        raise UsageError.at("--pareto", pareto, "none with --count and --within")
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
            more: Any = front_of(found, axes, result, **rest)
        else:
            most = count or (_COUNT if share is None else None)
            more = alternatives(found, result, count=most, within=share, **rest)
        listed = Solved(result, found, more=more)
        return listed if trainer is None else answered(listed, trainer, instance, overrides, outputs.out, limits)

    outputs.run(work, {"method": method, "exact": True, "limits": limits, "options": options})


BatchSize = Annotated[
    int | None, option("B", "sequences in a batch: sweeps g and b' with N = B / (g b') micro-batches", min=1)
]
GradAccum = Annotated[str | None, option("G,...", "degrees g of gradient accumulation")]
MicrobatchSizes = Annotated[str | None, option("B,...", "micro-batch sizes b'")]
SweepJobs = Annotated[int, option("N", "combinations at once, each with the whole time limit", min=1)]


def sweep_command(
    instance: Instance,
    batch_size: BatchSize = None,
    grad_accum: GradAccum = None,
    microbatch_sizes: MicrobatchSizes = None,
    orders: Annotated[str | None, option("id,name,...", "solve along each of these linear orders instead")] = None,
    jobs: SweepJobs = 1,
    exact: Annotated[bool, flag("--exact", "prove optimality")] = False,
    method: Method = "auto",
    search: Search = Search(),
    outputs: Outputs = Outputs(),
    inputs: Inputs = None,
    **settings: Any,
) -> None:
    """Solve for every micro-batch size of a batch, or along every linear order, and keep the best plan."""
    from planner.analysis.sweep import best_order, load_orders, parse_counts, solve_orders, sweep
    from planner.display.plots.files import require_drawable

    outputs.refuse(search.solver_log, instance)
    limits = search.limits()
    overrides, options = split(settings)
    if (batch_size is None) == (orders is None):
        raise UsageError("planner sweep takes --batch-size or --orders, one of them")
    given = {"--grad-accum": grad_accum, "--microbatch-sizes": microbatch_sizes, "--jobs": None if jobs == 1 else jobs}
    only = given if batch_size is None else {"--trace": outputs.trace}
    for name, value in only.items():
        if value is not None:
            raise UsageError.at(name, value, f"{'a' if batch_size is None else 'no'} --batch-size with it")
    if orders is not None and overrides.get("linearize") is not None:
        raise UsageError.at("--linearize", overrides["linearize"], "none with --orders")
    if batch_size is None:
        by_order = load_orders(instance, inputs=inputs, **{**overrides, "linearize": orders})
        outputs.announce(next(iter(by_order.values())))
    elif outputs.plot is not None:
        require_drawable(outputs.plot)

    def work(arguments: dict[str, Any]) -> Solved:
        if batch_size is None:
            result = solve_orders(by_order, **arguments)
            return Solved(result, by_order[best_order(result, by_order)])  # its plan is what is drawn
        counts = (
            parse_counts("--grad-accum", grad_accum or "1"),
            parse_counts("--microbatch-sizes", microbatch_sizes or "1"),
        )
        found = sweep(instance, batch_size, *counts, inputs=inputs, overrides=overrides, jobs=jobs, **arguments)
        return Solved(*found)

    outputs.run(work, {"method": method, "exact": exact, "limits": limits, "options": options})
