"""Show a validation: tables when it is done, and its pictures as files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.display.palette import PRINT
from planner.display.paper_tables import COUNTS
from planner.display.plots.chart import Chart
from planner.display.plots.files import Sheet, can_draw, lacks_addresses
from planner.display.plots.numbers import ecdf, profile, quantiles
from planner.display.tables import fitting_table
from planner.display.terminal import console, table
from planner.experiments.validation.loss_by import LossBy, losses_by, value_of
from planner.experiments.validation.records import Fared, reasons
from planner.experiments.validation.run import Validation
from planner.files.write import write_atomically
from planner.results.texts import percent

#: Reasons of a method that are shown.
_REASONS = 3
#: Columns that give way in a narrow terminal, first those of failures that there are none of.
_FAILED, _GIVE_WAY = ("errors", "invalid", "no plan"), ("seconds", "p95 loss")
#: Panels of losses by features of instances: a method each, of no more features than this; more are unreadable.
_PANELS, _FEATURES = 9, 3
#: Pixels that pictures for a paper are drawn in, and points of a column: 3.4 inches.
_ON_PAPER, _COLUMN = 400, 3.4 * 72
_NO_PICTURES = "they need vl-convert-python (pip install '.[plot]')"


def show_validation(found: Validation) -> None:
    """Print how many of what there are, a row for every method, its worst instances and why it has no plan."""
    out = console()
    partly = "" if found.instances == found.wanted else f" of {found.wanted}"
    plural = "" if found.wanted == 1 else "s"
    out.print(
        f"{found.instances}{partly} instance{plural} of {found.problem}, against {found.against}: "
        f"{found.infeasible} infeasible, {found.unproved} unproved"
    )
    most = "<= " if found.unproved else ""
    rows = [{"method": name, **_cells(each, most)} for name, each in found.methods.items()]
    empty = [name for name in _FAILED if all(row[name] == "0" for row in rows)]
    out.print(fitting_table(out, list(rows[0]), rows, [*empty, *_GIVE_WAY]))
    for factor in found.by:
        out.print(format_explained(factor))
        rows = [
            {
                factor.parameter: "" if place else label,
                "instances": "" if place else str(count),
                "method": name,
                **_cells(own[label], most),
            }
            for label, count in factor.instances.items()
            for place, (name, own) in enumerate(factor.methods.items())
        ]
        failed = [name for name in ("invalid", "errors") if any(row[name] != "0" for row in rows)]
        heads = [*list(rows[0])[:3], "mean loss", "worst loss", "suboptimal", "no plan", *failed]
        out.print(table(heads, ([row[head] for head in heads] for row in rows)))
    for line in _lines(found):
        out.print(line)


def _cells(fared: Fared, most: str) -> dict[str, str]:
    """What a row of the table shows, by heading; ``most`` stands before losses that may be less."""
    losses = {"mean loss": fared.mean_loss, "p95 loss": fared.p95_loss, "worst loss": fared.worst_loss}
    return {
        **{name.replace("_", " "): str(getattr(fared, name)) for name in COUNTS},
        **{name: "-" if loss is None else f"{most}{percent(loss)}" for name, loss in losses.items()},
        "seconds": f"{fared.seconds:.4g}",
    }


def format_explained(factor: LossBy) -> str:
    """How much of the losses a parameter explains, in a sentence."""
    shares = [f"{percent(share)} of {name}'s" for name, share in factor.explains.items() if share is not None]
    return f"{factor.parameter} explains {', '.join(shares) or 'nothing: no loss differs'}" + " losses, by rank" * bool(
        shares
    )


def _lines(found: Validation) -> Iterator[str]:
    if found.unproved:
        optima = "optimum is" if found.unproved == 1 else "optima are"
        yield f"{found.unproved} {optima} not proved: losses there are to the best bound, and may be less"
    for name in dict.fromkeys([*found.methods, found.against]):
        files = found.worst.get(name)
        if files:
            yield f"worst of {name}: {files[0]}" + (f" (and {len(files) - 1} more)" if len(files) > 1 else "")
        said = reasons(found.records, name)
        for reason, count, first in said[:_REASONS]:
            yield f"{name}: {reason} ({count} {'instances' if count > 1 else 'instance'}, first {first})"
        if len(said) > _REASONS:
            more = len(said) - _REASONS
            yield f"{name}: {more} other {'reasons' if more > 1 else 'reason'}"
    yield from found.contradictions
    yield f"a row for each instance and method: {found.table}"


def why_no_pictures() -> str:
    """Why `draw_validation` draws none."""
    return lacks_addresses() or _NO_PICTURES


def draw_validation(found: Validation) -> list[str]:
    """Write the pictures into the folder of a validation; returns their files, none without vl-convert."""
    if not can_draw() or not found.records:
        return []
    feasible = [record for record in found.records if not record["infeasible"]]
    losses = {name: [record["rows"][name]["loss"] for record in feasible] for name in found.methods}
    # A plan that came from elsewhere has no seconds.
    timed = [name for name in found.methods if any(record["rows"][name]["seconds"] for record in found.records)]
    names = dict.fromkeys([*timed, found.against])
    seconds = {name: _seconds(feasible, name) for name in names}
    known = ["optimum"] * (found.unproved < len(feasible)) + ["best bound"] * (found.unproved > 0)
    reference = " or ".join(known)
    charts = {
        "losses": [ecdf(losses, reference, f"Losses on {len(feasible)} instances")],
        "profile": [profile(seconds, f"Performance profile of seconds on {len(feasible)} instances")],
        "features": features_of(found, feasible, losses),
    }
    return write_pictures(Path(found.out), charts, found.problem)


def write_pictures(folder: Path, charts: Mapping[str, Sequence[Chart]], title: str) -> list[str]:
    """Write charts by the names of their files, as wide as a screen and as a column; returns the files."""
    files = []
    for name, drawn in charts.items():
        if drawn:
            on_screen = Sheet(drawn, title)
            on_paper = Sheet(drawn, width=_ON_PAPER, theme=PRINT, shown=_COLUMN)
            for sheet, suffix in ((on_screen, ".png"), (on_paper, ".pdf")):
                files.append(str(folder / f"{name}{suffix}"))
                write_atomically(files[-1], sheet.content(suffix))
    return files


def features_of(
    found: Validation, records: Sequence[Mapping[str, Any]], losses: Mapping[str, Sequence[float | None]]
) -> list[Chart]:
    """Losses over what explains most of them: of sizes, of how tight memory is, and of numbers that were drawn."""
    drawn = dict.fromkeys(name for record in records for name in record["parameters"])
    titles = {"size": f"size: {found.size_of}", "memory_pressure": "memory pressure"}
    names = [name for name in (*titles, *drawn) if name != found.size_of and _is_number(records, name)]
    losses = {name: own for name, own in losses.items() if any(own)} or losses  # there is nothing to see of others
    most = max(1, min(_FEATURES, _PANELS // max(1, len(losses))))
    by_feature = {each.parameter: [value_of(record, each.parameter) for record in records]
                  for each in losses_by(records, names, list(losses))}  # fmt: skip
    distinct = {tuple(values): name for name, values in reversed(by_feature.items())}
    shown = [name for name in by_feature if name in distinct.values()][:most]
    return [chart for name in shown for chart in quantiles(by_feature[name], losses, titles.get(name, name))]


def _is_number(records: Sequence[Mapping[str, Any]], name: str) -> bool:
    values = [value for record in records if (value := value_of(record, name)) is not None]
    return bool(values) and not any(isinstance(value, str) for value in values)


def _seconds(records: Sequence[Mapping[str, Any]], method: str) -> list[float | None]:
    rows = [record["rows"][method] for record in records]
    return [None if row["objective"] is None else row["seconds"] for row in rows]
