"""The library on a terminal: its instances with the best known, what was submitted, and scores as tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.display.paper_tables import format_table
from planner.display.plots.chart import Chart
from planner.display.plots.files import can_draw
from planner.display.plots.numbers import ecdf
from planner.display.populations import format_explained, write_pictures
from planner.display.terminal import console, say, table
from planner.experiments.library.entries import VERSION, BestKnown, LibraryEntry, difficulty_of
from planner.experiments.library.score import Score
from planner.experiments.library.submit import Submission
from planner.experiments.validation.records import SUBOPTIMAL, reasons
from planner.results.texts import format_loss, number, percent, plural, with_unit

_FIGURES = ("objective", "bound", "gap", "seconds")
#: What is shown of a standing, with its heading.
_COUNTS, _SHARES = ("instances", "plans", "optimal", "best"), ("mean loss, %", "worst loss, %", "primal integral, %")
_STANDING = (*_COUNTS, *_SHARES, "seconds")
#: Worst losses that are shown, and the fewest methods that are compared in a profile.
_WORST, _LEAST = 5, 3


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
    """Print how each method stands by problem, what explains its losses, and where they are worst."""
    heads, rows = _standings(found)
    console().print(
        table(heads, [["-" if cell is None else str(cell) for cell in row] for row in rows], left=("method", "problem"))
    )
    for problem in found.methods:
        for factor in found.by(problem)[:1]:
            say(f"{problem}: {format_explained(factor)}")
    records = found.records()
    runs = [(record["instance"], method, row) for record in records for method, row in record["rows"].items()]
    for name, method, row in sorted(runs, key=lambda run: -(run[2]["loss"] or 0.0))[:_WORST]:
        if row["outcome"] == SUBOPTIMAL:
            say(f"{name} {method}: {format_loss(row['loss'], is_proved=True)}")
    for method in dict.fromkeys(method for _, method, _ in runs):
        for reason, count, _ in reasons([each for each in records if method in each["rows"]], method)[:1]:
            say(f"{method}: {reason} ({plural(count, 'instance')})")
    say(f"this machine takes {found.calibration_s:.3g} CPU s for the calibration run; compare seconds by that")


def _standings(found: Score, problem: str | None = None) -> tuple[list[str], list[list[Any]]]:
    rows = []
    for (method, of), each in found.standings().items():
        if problem in (None, of):
            shares = (each.mean_loss, each.worst_loss, each.primal_integral)
            counts = [each.instances, each.plans, each.optimal, each.best]
            figures = [None if share is None else percent(share).removesuffix(" %") for share in shares]
            rows.append([method, *[of] * (problem is None), *counts, *figures, f"{each.seconds:.3g}"])
    return ["method", *["problem"] * (problem is None), *_STANDING], rows


def standings_table(found: Score, kind: str, problem: str | None = None) -> str:
    """How each method stands by problem, or on one problem, as LaTeX, Markdown or CSV."""
    return format_table(kind, *_standings(found, problem))


def loss_profile(found: Score, problem: str) -> Chart | None:
    """The performance profile of the objectives of one problem's methods; `None` of fewer than `_LEAST` methods.

    Of each method the share of the instances with at most a loss to the best known: Dolan and Moré's profile (2002) of
    the objective, in which the best known stands for the best of the methods, so that no method moves another's line.
    """
    standings = found.standings()
    methods = [method for method in found.methods[problem] if standings[method, problem].plans]
    if len(methods) < _LEAST:
        return None
    records = [record for record in found.records(problem, methods) if record["best"] is not None]
    losses = {method: [record["rows"][method]["loss"] for record in records] for method in methods}
    return ecdf(
        losses, "best known", f"Performance profile of {len(methods)} methods on {plural(len(records), 'instance')}"
    )


def draw_score(found: Score, folder: Path) -> list[str]:
    """Write the profile of each problem into a folder; returns the files, none without vl-convert."""
    if not can_draw():
        return []
    profiles = {f"profile-{problem}": loss_profile(found, problem) for problem in found.methods}
    return write_pictures(folder, {name: [chart] for name, chart in profiles.items() if chart}, VERSION)
