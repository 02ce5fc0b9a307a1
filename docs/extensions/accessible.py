"""What Sphinx's pages lack for readers who use a keyboard or a screen reader."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

#: Outputs, formulas and tables that a narrow window cuts can be moved by keys; headings of the sidebar have a level.
_BODY = (
    ("<pre>", '<pre tabindex="0">'),
    ('display="block">', 'display="block" tabindex="0">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
)
_SIDEBAR = ('role="heading">', 'role="heading" aria-level="2">')


def on_page(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """Add it; called by Sphinx, after the theme, before it writes a page."""
    for before, after in _BODY:
        context["body"] = context.get("body", "").replace(before, after)
    context["furo_navigation_tree"] = context.get("furo_navigation_tree", "").replace(*_SIDEBAR)


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to Sphinx; called by it."""
    app.connect("html-page-context", on_page, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
