"""What the site's search must find: the build fails if a page is not found by a word that people look for.

The words are looked up in the index that the browser searches, ``searchindex.js``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

#: By word, pages that must be among those that are found.
WORDS: dict[str, tuple[str, ...]] = {
    "constraint": ("how-to", "your-own-variant"),
    "objective": ("how-to", "your-own-variant"),
    "install": ("index", "how-to"),
    "csv": ("how-to", "your-own-model", "interface/instances"),
    "certificate": ("how-to", "what-optimal-means", "interface/certificates"),
    "heuristic": ("your-own-heuristic", "validating-a-heuristic"),
    "solver": ("how-to", "adding-a-solver", "interface/solving"),
    "latex": ("how-to", "validating-a-heuristic"),
}


def on_build_finished(app: Sphinx, error: Exception | None) -> None:
    """Look the words up in the index of a site that was built; called by Sphinx at the end."""
    if error is None and app.builder.format == "html":
        text = (Path(app.outdir) / "searchindex.js").read_text(encoding="utf-8")
        index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
        lacking = not_found(index, app.builder.indexer.lang.stem)  # type: ignore[attr-defined]
        if lacking:
            raise ExtensionError(f"the search does not find {'; '.join(lacking)}")


def not_found(index: Mapping[str, Any], stem: Callable[[str], str]) -> list[str]:
    """The words that do not lead to one of their pages, each with the page."""
    lacking = []
    for word, pages in WORDS.items():
        found: set[str] = set()
        for kind in ("terms", "titleterms"):
            numbers = index[kind].get(stem(word), [])
            found |= {index["docnames"][number] for number in ([numbers] if isinstance(numbers, int) else numbers)}
        lacking += [f"{page} by {word}" for page in pages if page not in found]
    return lacking


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to Sphinx; called by it."""
    app.connect("build-finished", on_build_finished)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
