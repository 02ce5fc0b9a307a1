"""Show what a plan is in a trainer's format, and what a run of a plan found."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from instances.units import size
from planner.display.terminal import console, printable, table

if TYPE_CHECKING:
    from planner.training.record import Record
    from planner.training.runtime.fidelity import Fidelity, OrderFidelity
    from planner.training.runtime.run import Run
    from planner.training.trainers.exporting import Exported


#: Relative error that --check accepts in float32.
_FLOAT32 = 1e-6


def _equal(measured: Sequence[float], planned: Sequence[float]) -> bool:
    """Whether sums over all processes are equal."""
    return math.isclose(sum(measured), sum(planned), rel_tol=1e-9)


def _other_bytes(found: Run) -> str:
    """Why processes send other bytes than the plan counts."""
    if _equal(found.bytes_sent, found.bytes_planned):
        return "sent is as planned in all: a tensor without a gradient is planned half for each end, and sent by one"
    return "sent is not as planned: instances count a tensor by layers that take it, runs by stages elsewhere"


def show_run(found: Run) -> None:
    """Print a row for each process, and how far loss and gradients are from the whole model's."""
    is_shared = any(duty.degree > 1 for duty in found.layout.duties)
    sums = ("summed", "planned") if is_shared else ()
    is_placed = any(duty.device is not None for duty in found.layout.duties)
    heads = (
        "stage",
        "replica",
        *(("device",) if is_placed else ()),
        "passes",
        "sent",
        "planned",
        "stored at most",
        "planned",
        *sums,
        *(("states", "planned") if any(found.state_bytes) else ()),
    )
    rows = []
    for rank, duty in enumerate(found.layout.duties):
        columns = [found.bytes_sent, found.bytes_planned, found.held_bytes, found.held_planned]
        columns += [found.collective_bytes, found.collective_planned] if is_shared else []
        columns += [found.state_bytes, found.state_planned] if any(found.state_bytes) else []
        replica = f"{duty.replica}.{duty.shard}" if duty.degree > 1 else str(duty.replica)
        placed = [str(duty.device)] if is_placed else []
        rows.append([str(duty.stage), replica, *placed, str(len(duty.passes)), *(size(each[rank]) for each in columns)])
    out = console()
    out.print(table(heads, rows, title=f"{found.layout.num_processes} processes, {found.seconds:.3g} s", left=()))
    if list(found.bytes_sent) != list(found.bytes_planned):
        out.print(_other_bytes(found))
    if not _equal(found.gradient_bytes, found.gradient_planned):
        more = size(sum(found.gradient_bytes)), size(sum(found.gradient_planned))
        why = "weights tied across layers are summed once for all"
        why += ", and whole where their stages cut them otherwise" if is_shared else ""
        why += "; of what all have whole, processes sum their parts of sequences" if found.layout.sequences else ""
        out.print(f"gradients take {more[0]} to sum, {more[1]} planned: {why}")
    if found.layout.shares_states and not any(found.state_bytes):
        out.print("no step was made with the shared states: processes that run one after the other exchange nothing")
    if found.tolerance is None:
        out.print(f"loss {found.loss:.9g}; not compared with the unsplit model (--check)")
        return
    stepped = "" if found.step_error is None else f", weights after a step within {found.step_error:.2g}"
    verdict = "equal to" if found.ok else "DIFFERENT from"
    out.print(
        f"{verdict} the unsplit model: loss within {found.loss_error:.2g}, gradients of {found.compared} of "
        f"{found.parameters} parameters within {found.gradient_error:.2g}{stepped}; expected {found.tolerance:g}"
    )
    if not found.ok and found.compared == found.parameters and _may_be_rounding(found):
        out.print(
            "float32 may round so far in a large model: whether it is that or an error, float64 shows (1e-12 expected)"
        )


def show_record(found: Record) -> None:
    """Print a row for each plan that was tried in order, and the run of the fastest."""
    rows = [(str(each.number), each.said, each.measured) for each in found.tried]
    console().print(table(("plan", "", "step"), rows, title=f"the fastest is plan {found.fastest.number}", left=("",)))
    show_run(found.kept)


def _may_be_rounding(found: Run) -> bool:
    """Whether the errors are those of a float32 model, and small."""
    errors = (each or 0.0 for each in (found.loss_error, found.gradient_error, found.step_error))
    return found.tolerance == _FLOAT32 and max(errors) < 100 * _FLOAT32


def show_fidelity(found: Fidelity) -> None:
    """Print a row for each term, and the one that is most wrong."""
    heads = ("term", "unit", "predicted", "measured", "measured / predicted")
    rows = []
    for term in found.terms:
        ratio = "" if term.ratio is None else f"{term.ratio:.4g}"
        rows.append((term.term, term.unit, f"{term.predicted:.6g}", f"{term.measured:.6g}", ratio))
    out = console()
    out.print(table(heads, rows, title=f"{found.instance}: what the plan predicts, and its run", left=heads[:2]))
    out.print("every term is as predicted" if found.worst is None else f"most wrong: {found.worst}")


def show_order(found: OrderFidelity) -> None:
    """Print a row for each run, by its measured iteration, and how well the order was predicted."""
    heads = ("run", "predicted", "measured", "measured / predicted")
    rows = [
        (each.run, f"{each.predicted_s:.6g} s", f"{each.measured_s:.6g} s", f"{each.ratio:.4g}")
        for each in sorted(found.plans, key=lambda each: each.measured_s)
    ]
    out = console()
    on = "" if found.device is None else f" on {found.device}"
    out.print(table(heads, rows, title=f"{found.instance}: iterations of {len(rows)} plans{on}", left=heads[:1]))
    order = "all are equal" if found.spearman is None else f"rank correlation (Spearman) {found.spearman:.3f}"
    errors = f"errors {found.median_error:.1%} (median), {found.worst_error:.1%} at most"
    out.print(f"{order}; {errors}; the plan predicted to be the fastest was {found.regret:.1%} slower than the fastest")


def show_exported(found: Exported, out: str | None) -> None:
    """Print a plan's text, or where it was written; on stderr why it was refused, and what the nearest one takes."""
    said = []
    if found.refused is not None:
        said.append(f"{found.format} cannot express the plan: {found.refused}")
    if found.nearest is not None:
        loss = found.nearest.loss
        more = "" if loss is None else f", {abs(loss):.3%} {'less' if loss < 0 else 'more'}"
        proof = "" if found.nearest.proved else " (not proved to be the nearest)"
        said.append(f"the nearest plan that it can takes {found.nearest.objective:.9g} {found.unit}{more}{proof}")
    elif found.refused is not None and not found.notes:
        said.append("--nearest searches for the best plan that it can")
    if said:
        print(printable("; ".join(said)), file=sys.stderr, flush=True)
    if found.text is None:
        return
    if out is None:
        print(found.text, end="")
    else:
        whole = "" if found.lossless else "; the format does not have all of the plan"
        print(printable(f"{out}: {found.format}{whole}"))
