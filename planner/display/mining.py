"""A search as a person sees it: a progress line while it runs, and what it found."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from planner.display.progress import words_line
from planner.display.terminal import printable
from planner.experiments.mining.files import Files
from planner.experiments.mining.mine import Mined, Progress
from planner.results.texts import number, percent


def size_text(size: Mapping[str, int] | None) -> str:
    """A size in words.

    >>> size_text({"nodes": 2, "devices": 1})
    'nodes 2, devices 1'
    """
    return ", ".join(f"{name} {value:,}" for name, value in (size or {}).items())


@contextmanager
def progress(quiet: bool, method: str, against: str) -> Iterator[Callable[[Progress], None]]:
    """A listener that keeps one line up to date."""
    with words_line(quiet, f"{method} against {against}") as show:

        def listen(known: Progress) -> None:
            best = f"  best: {size_text(known.size)}" if known.size else ""
            figures = f"evaluations {known.evaluations:,}  worst loss {percent(known.worst)}{best}"
            show(f"{method} against {against}  {figures}")

        yield listen


def show(found: Mined, files: Files, certificate: Mapping[str, Any] | None) -> None:
    """Print what a search found."""
    for line in _lines(found, files, certificate):
        print(printable(line))


def _lines(found: Mined, files: Files, certificate: Mapping[str, Any] | None) -> Iterator[str]:
    effort = f"{found.evaluations:,} evaluations in {found.seconds:.0f} s"
    if found.instance is None or found.result is None or found.reference is None:
        worst = "" if not found.worst else f"; the worst loss seen is {percent(found.worst)}"
        yield f"{found.method} against {found.against} ({found.problem}): nothing found in {effort}{worst}"
    else:
        unit = found.reference.unit
        loss = "no plan" if found.loss is None else f"loss {percent(found.loss)}"
        yield f"{found.method} against {found.against} ({found.problem}): {loss}, {size_text(found.size)}"
        yield f"objective {number(found.result.objective)}, optimum {number(found.reference.objective)} {unit}"
        yield f"{effort}; both plans verified by the definition"
        named = [files.out, *([] if found.result.plan is None else [files.plan]), files.optimal]
        yield f"files: {', '.join([*named, *([] if certificate is None else [files.certificate])])}"
    if len(found.worst_of) > 1:
        parts = (f"{nodes}: {percent(loss)}" for nodes, loss in found.worst_of.items())
        yield f"worst loss seen by number of nodes: {', '.join(parts)}"
    if found.without_plan:
        yield f"no plan on {found.without_plan:,} instances that have one (--loss no-plan finds the smallest)"
