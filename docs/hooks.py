"""What the pages of problems get when the site is built: the methods there are now, and a plan drawn on the spot.

A page names its example in its front matter (``instance``, ``settings``). ``<!-- methods -->`` becomes the table of the
family's methods, ``<!-- figure -->`` the pictures of the best plan of the example.
"""

from __future__ import annotations

import base64
from typing import Any

METHODS, FIGURE = "<!-- methods -->", "<!-- figure -->"
_TIME_S = 10.0


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in what is marked; called by mkdocs for every page."""
    if METHODS in markdown:
        markdown = markdown.replace(METHODS, methods(page.file.src_uri.split("/")[-1].removesuffix(".md")))
    if FIGURE in markdown:
        markdown = markdown.replace(FIGURE, figure(page.meta["instance"], page.meta.get("settings") or {}))
    return markdown


def methods(name: str) -> str:
    """The table of a family's methods: claim and source, as ``planner list`` has them."""
    from formulations import FAMILIES

    family = next(family for family in FAMILIES if family.name == name)
    rows = [f"| `{method.name}` | {method.claim} | {method.source} |" for method in family.methods]
    return "\n".join(["| method | claim | source |", "|---|---|---|", *rows])


def figure(instance: str, settings: dict[str, Any]) -> str:
    """Pictures of the best plan found for an instance, as part of the page."""
    import planner
    from planner.inputs.loading import family_of
    from planner.show.plots.files import svg
    from planner.show.plots.panels import panels

    loaded = planner.load(instance, **settings)
    result = planner.solve(loaded, limits=planner.Limits(time_s=_TIME_S))
    family = family_of(loaded)
    if result.plan is None:
        raise ValueError(f"{instance} {settings} has no plan to draw")
    drawn = panels(loaded, family.plan_from_json(loaded, result.plan))
    if not drawn:
        raise ValueError(f"{family.name} has no pictures")
    return "\n\n".join(
        f"![{panel.title}](data:image/svg+xml;base64,{base64.b64encode(svg(panel).encode()).decode()})\n*{panel.title}*"
        for panel in drawn
    )
