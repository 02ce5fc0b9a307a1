"""What the API reference shows of enumerations, defaults, constants and types, where Sphinx shows too much or errs."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

from sphinx.application import Sphinx


def on_skip_member(_app: Sphinx, _what: str, name: str, found: Any, _skip: bool, _options: Any) -> bool | None:
    """Show the members of an enumeration, whose names say enough; called by Sphinx for every member."""
    return False if isinstance(found, Enum) and found.name == name else None


def on_signature(
    _app: Sphinx, _what: str, _name: str, found: Any, _options: Any, given: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """An enumeration is not called, and defaults that are functions are left out; called by Sphinx."""
    if isinstance(found, type) and issubclass(found, Enum):
        return "", None
    return given and re.sub(r"<factory>|<function [\w.]*(<lambda>)?>", "...", given), returned


def on_description(app: Sphinx, *_: Any) -> None:
    """Show the type of a field without its rule (`instances.rules`); called by Sphinx before it lists the types."""
    for types in app.env.current_document.autodoc_annotations.values():
        types.update({name: re.sub(r"[~\w.]*Annotated\[(.*?), Rule\(.*?\)\]", r"\1", it) for name, it in types.items()})


class Constants:
    """Keeps napoleon from taking a constant's first words for its type where a colon follows them.

    ``hide`` comes before it, ``show`` after it; called by Sphinx.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []

    def hide(self, _app: Sphinx, what: str, _name: str, _found: Any, _options: Any, lines: list[str]) -> None:
        """Take the comment on a constant away."""
        if what in ("data", "attribute"):
            self._lines, lines[:] = list(lines), []

    def show(self, _app: Sphinx, what: str, _name: str, _found: Any, _options: Any, lines: list[str]) -> None:
        """Put it back."""
        if what in ("data", "attribute"):
            lines[:] = self._lines


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to Sphinx; called by it."""
    app.connect("autodoc-skip-member", on_skip_member)
    app.connect("autodoc-process-signature", on_signature)
    constants = Constants()
    app.connect("autodoc-process-docstring", constants.hide, priority=400)
    app.connect("autodoc-process-docstring", constants.show, priority=600)
    # Before the types are listed.
    app.connect("object-description-transform", on_description, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
