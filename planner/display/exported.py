"""Show what a plan is in a trainer's format: the text on standard output, what was refused on standard error."""

from __future__ import annotations

import sys

from planner.display.terminal import printable
from planner.training.trainers.exporting import Exported


def show_exported(found: Exported, out: str | None) -> None:
    """Print the text, or where it was written; why the plan was refused, and what the nearest one takes."""
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
