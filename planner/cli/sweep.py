"""The command on one instance under several settings: ``sweep``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.common import Inputs, Instance, Method, Search
from planner.cli.outputs import Outputs, Solved
from planner.files.choices import split
from planner.process.errors import UsageError

BatchSize = Annotated[
    int | None,
    typer.Option(metavar="B", min=1, help="sequences in a batch: sweeps g and b' with N = B / (g b') micro-batches"),
]
GradAccum = Annotated[str | None, typer.Option(metavar="G,...", help="degrees g of gradient accumulation")]
MicrobatchSizes = Annotated[str | None, typer.Option(metavar="B,...", help="micro-batch sizes b'")]
SweepJobs = Annotated[
    int, typer.Option(metavar="N", min=1, help="combinations at once, each with the whole time limit")
]


def sweep_command(
    instance: Instance,
    batch_size: BatchSize = None,
    grad_accum: GradAccum = None,
    microbatch_sizes: MicrobatchSizes = None,
    orders: Annotated[
        str | None, typer.Option(metavar="id,name,...", help="solve along each of these linear orders instead")
    ] = None,
    jobs: SweepJobs = 1,
    exact: Annotated[bool, typer.Option("--exact", metavar="", help="prove optimality")] = False,
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
            raise UsageError.at(name, value, f"{'a' if batch_size is None else 'no'} --batch-size beside it")
    if orders is not None and overrides.get("linearize") is not None:
        raise UsageError.at("--linearize", overrides["linearize"], "none beside --orders")
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
