"""The library on a terminal: its instances with the best known, what was submitted, and scores as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from planner.display.paper_tables import format_table
from planner.display.terminal import console, say, table
from planner.experiments.library.entries import BestKnown, LibraryEntry, difficulty_of
from planner.experiments.library.score import Score
from planner.experiments.library.submit import Submission
from planner.results.texts import format_loss, number, percent, plural, with_unit

_FIGURES = ("objective", "bound", "gap", "seconds")
#: What is shown of a standing, with its heading.
_STANDING = ("instances", "plans", "optimal", "best", "mean loss, %", "worst loss, %", "seconds")


def show_entries(chosen: Sequence[LibraryEntry], known: Mapping[str, BestKnown], _found: Any) -> None:
    """Print a line an instance, and how many are proved."""
    heads = ("name", "problem", "difficulty", *_FIGURES, "method")
    rows = [[each.name, each.problem, *_of_known(known.get(each.name))] for each in chosen]
    console().print(table(heads, rows, left=("name", "problem", "difficulty", "method")))
    proved = sum(each.name in known and known[each.name].is_optimal for each in chosen)
    say(f"{plural(len(chosen), 'instance')}, {proved} proved; planner library get NAME makes one")


def _of_known(found: BestKnown | None) -> list[str]:
    if found is None:
        return [difficulty_of(None), "-", "-", "-", "-", "-"]
    by = found.proved_by or found.found_by
    figures = [number(found.objective), number(found.bound), percent(found.gap), f"{by.seconds:.3g}"]
    return [found.difficulty, *figures, found.found_by.method]


def show_known(named: LibraryEntry, found: BestKnown | None, _shown: Any) -> None:
    """Print what is known of one instance."""
    settings = "".join(f" --{name.replace('_', '-')} {value}" for name, value in named.settings.items())
    say(f"{named.name}: {named.problem}, made of {named.instance}{settings}")
    if found is None:
        say("nobody has submitted a plan")
        return
    say(f"best known plan: {with_unit(found.objective, found.unit)}, by {_by(found.found_by)}")
    if found.proved_by is None:
        say("no bound is known")
    else:
        what = "optimal" if found.is_optimal else f"gap {percent(found.gap)}"
        said = with_unit(found.bound, found.unit)
        say(f"bound: {said} ({what}), proved by {found.proof}, {_by(found.proved_by)}")


def _by(origin: Any) -> str:
    return f"{origin.method}, {origin.seconds:.3g} s, {origin.date}, {origin.machine}"


def show_submission(found: Submission, _shown: Any) -> None:
    """Print what is new."""
    known, before = found.known, "nothing" if found.before is None else number(found.before.objective)
    say(f"{known.name}: new {' and '.join(found.new)}")
    say(f"plan {before} -> {with_unit(known.objective, known.unit)}")
    say(f"bound {number(known.bound)}, gap {percent(known.gap)}")


def show_score(found: Score) -> None:
    """Print how each method stands by problem, and where it lost most."""
    heads, rows = _standings(found)
    console().print(table(heads, [list(map(_text, row)) for row in rows], left=("method", "problem")))
    lost = sorted((row for row in found.rows if row.loss), key=lambda row: -(row.loss or 0.0))[:5]
    for row in lost:
        say(f"{row.name} {row.method}: {format_loss(row.loss, row.is_optimal)}")
    for reason, count in Counter(row.reason for row in found.rows if row.objective is None).most_common(3):
        say(f"{plural(count, 'run')} without a plan: {reason or 'nothing was found'}")
    say(f"this machine takes {found.calibration_s:.3g} CPU s for the calibration run; compare seconds by that")


def _standings(found: Score) -> tuple[list[str], list[list[Any]]]:
    rows = []
    for (method, problem), each in found.standings().items():
        losses = [None if loss is None else f"{100 * loss:.3g}" for loss in (each.mean_loss, each.worst_loss)]
        counts = [each.instances, each.plans, each.optimal, each.best]
        rows.append([method, problem, *counts, *losses, f"{each.seconds:.3g}"])
    return ["method", "problem", *_STANDING], rows


def _text(cell: Any) -> str:
    return "-" if cell is None else str(cell)


def standings_table(found: Score, kind: str) -> str:
    """How each method stands by problem, as LaTeX, Markdown or CSV."""
    return format_table(kind, *_standings(found))
