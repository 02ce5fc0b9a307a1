"""Text for people: names are data, so nothing in them is markup, an emoji code, a control character or an order."""

from __future__ import annotations

import shutil
import sys
import textwrap
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

#: Columns of a table in a file or a pipe.
_WIDE = 160


def printable(text: str) -> str:
    r"""The text on one line, with everything that cannot be seen written as Python writes it.

    Control characters (of terminals, of lines), marks that turn the direction of reading, and surrogates.

    >>> printable("layer[/a] \x1b[31m\u202e\n")
    'layer[/a] \\x1b[31m\\u202e\\n'
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text)


def say(text: str, *, stderr: bool = False) -> None:
    """Print a text on one line, or on as many as it needs in a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    text = printable(text)
    if stream.isatty():
        indent = " " * (len(text) - len(text.lstrip()))
        width = max(20, shutil.get_terminal_size().columns)
        text = textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)
    print(text, file=stream, flush=stderr)


def console(*, stderr: bool = False, most: int | None = None) -> Console:
    """Where tables go: as wide as the terminal, or wide enough for a file or a pipe; texts are shown as they are.

    ``most`` is a number of columns that is not exceeded.
    """
    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    found = _console_class()(stderr=stderr, soft_wrap=not is_terminal, width=None if is_terminal else _WIDE)
    found.width = min(found.width, most or found.width)
    return found


def bold(text: str) -> Text:
    """A text that stands out."""
    from rich.text import Text

    return Text(printable(text), style="bold")


def table(
    headings: Iterable[str],
    rows: Iterable[Iterable[str | Text]],
    *,
    title: str | None = None,
    left: Iterable[str] | None = None,
) -> Table:
    """A table without lines; where ``left`` is given, the columns of all other headings stand at the right."""
    from rich.table import Table

    made, at_left = Table(title=title, title_justify="left", box=None), None if left is None else set(left)
    for heading in headings:
        made.add_column(heading, justify="left" if at_left is None or heading in at_left else "right")
    for row in rows:
        made.add_row(*row)
    return made


def grid(rows: Iterable[Iterable[str | Text]], indent: int = 0) -> Table:
    """Rows without headings."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2, 0, indent))
    for row in rows:
        made.add_row(*row)
    return made


@cache
def _console_class() -> type[Console]:
    """Rich is imported where something is shown as a table, not before."""
    from rich.console import Console

    class Literal(Console):
        """A console for which texts (lines, headings, cells) are neither markup nor emoji codes."""

        def __init__(self, **settings: Any) -> None:
            super().__init__(markup=False, emoji=False, highlight=False, **settings)

        def print(self, *objects: Any, **settings: Any) -> None:
            """As rich prints it; in a file or a pipe without blanks at the ends of lines."""
            if self.is_terminal:
                super().print(*objects, **settings)
                return
            with self.capture() as captured:
                super().print(*objects, **settings)
            self.file.write("\n".join(line.rstrip(" ") for line in captured.get().split("\n")))

        def render_str(self, text: str, **settings: Any) -> Text:
            """The text, printable; every text that rich renders comes through here."""
            return super().render_str(printable(text), **{**settings, "markup": False, "emoji": False})

    return Literal
