"""Tables of a validation for a paper: LaTeX with booktabs, Markdown, or CSV."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

from planner.display.bench import markdown_line
from planner.experiments.validation.records import Fared
from planner.experiments.validation.run import Validation
from planner.process.errors import UsageError

#: What a table can be written as.
KINDS = ("tex", "md", "csv")
#: What a method's instances are counted as (`planner.experiments.validation.records.Fared`).
COUNTS = ("optimal", "suboptimal", "no_plan", "invalid", "errors")
_LOSSES = ("mean_loss", "p95_loss", "worst_loss")
#: What LaTeX reads as commands.
_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}

Table = tuple[list[str], list[list[Any]]]


def kind_and_file(given: str) -> tuple[str, str | None]:
    """``tex`` or ``tex=FILE``: the kind, and the file if one is named; `UsageError` for another kind."""
    kind, sign, file = given.partition("=")
    if kind not in KINDS or (sign and not file):
        raise UsageError.at("--table", given, f"{', '.join(KINDS)}, or one of them with =FILE")
    return kind, file or None


def paper_table(found: Validation, kind: str) -> str:
    """How the methods fared, and by each parameter that was named: a table each, with an empty line between two.

    Losses are in percent, and in CSV shares with all their digits; only CSV has columns of failures of no method.
    """
    return "\n".join(format_table(kind, heads, rows) for heads, rows in _tables(found, kind == "csv"))


def format_table(kind: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table of one of `KINDS`; ``None`` is shown as a dash."""
    return {"tex": _tex, "md": _md, "csv": _csv}[kind](heads, rows)


def _tables(found: Validation, is_data: bool) -> Iterator[Table]:
    fared = found.methods.values()
    # on paper without the failures that there are none of
    counts = [name for name in COUNTS if is_data or name in COUNTS[:2] or any(getattr(each, name) for each in fared)]
    heads = [*(name if is_data else name.replace("_", " ") for name in counts), *_loss_heads(is_data)]

    def cells(own: Fared) -> list[Any]:
        return [*(getattr(own, name) for name in counts), *_losses(own, is_data)]

    rows = [[name, *cells(each), _number(each.seconds, is_data)] for name, each in found.methods.items()]
    yield ["method", *heads, "seconds"], rows
    for factor in found.by:
        rows = [
            [*((label, count) if is_data or not place else ("", "")), name, *cells(own[label])]
            for label, count in factor.instances.items()
            for place, (name, own) in enumerate(factor.methods.items())
        ]
        yield [factor.parameter, "instances", "method", *heads], rows


def _losses(fared: Fared, is_data: bool) -> list[Any]:
    found = [getattr(fared, name) for name in _LOSSES]
    return found if is_data else [None if loss is None else _number(100 * loss, False) for loss in found]


def _loss_heads(is_data: bool) -> list[str]:
    return [name if is_data else f"{name.replace('_', ' ')}, %" for name in _LOSSES]


def _number(value: float, is_data: bool) -> Any:
    return value if is_data else f"{value:.3g}"


def _csv(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([heads, *rows])
    return out.getvalue()


def _md(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [heads, ["---:" if side == "r" else "---" for side in _sides(heads, rows)], *rows]
    return "".join(f"{markdown_line(map(_cell, line))}\n" for line in lines)


def _tex(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    def line(cells: Sequence[Any]) -> str:
        return " & ".join(_escape(_cell(cell)) for cell in cells) + " \\\\\n"

    body = f"\\toprule\n{line(heads)}\\midrule\n{''.join(map(line, rows))}\\bottomrule\n"
    return f"% \\usepackage{{booktabs}}\n\\begin{{tabular}}{{{_sides(heads, rows)}}}\n{body}\\end{{tabular}}\n"


def _sides(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Where the cells of each column stand: numbers at the right, words at the left, as the first column does."""
    numbers = re.compile(r"|-|optimal|(<= )?-?[\d.].*")
    columns = ([_cell(row[place]) for row in rows] for place in range(1, len(heads)))
    return "l" + "".join("r" if all(map(numbers.fullmatch, cells)) else "l" for cells in columns)


def _cell(value: Any) -> str:
    return "-" if value is None else str(value)


def _escape(text: str) -> str:
    return re.sub(r"[\\~^&%$#_{}]", lambda found: _SPECIAL.get(found[0], f"\\{found[0]}"), text)
