"""Pages of the source files that pages link to, with an anchor for each line: ``sources/PATH.html#line-12``.

Only files with a link have a page; a link to a line that its file does not have ends the build.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r'href="(?:\.\./)*sources/([\w/]+)\.html#line-(\d+)"')


def on_source_read(app: Sphinx, page: str, content: list[str]) -> None:
    """Note which files a page links to; called by Sphinx for every page, once all else is filled in."""
    linked = set()
    for name, number in _LINK.findall(content[0]):
        path = ROOT / f"{name}.py"
        if not path.is_file() or int(number) > len(_text(path).splitlines()):
            raise ExtensionError(f"{page}: {name}.py has no line {number}")
        linked.add(name)
    _noted(app.env)[page] = linked


def on_purge(_app: Sphinx, environment: Any, page: str) -> None:
    """Forget a page; called by Sphinx before it is read again."""
    _noted(environment).pop(page, None)


def on_merge(_app: Sphinx, environment: Any, pages: Iterable[str], other: Any) -> None:
    """Take over what another process noted of its pages; called by Sphinx."""
    _noted(environment).update({page: _noted(other)[page] for page in pages})


def on_collect_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The pages; called by Sphinx when it writes the site."""
    formatter = HtmlFormatter(linenos="inline", linespans="line")
    for name in sorted(set().union(*_noted(app.env).values())):
        body = highlight(_text(ROOT / f"{name}.py"), PythonLexer(), formatter)
        shown = f'<div class="source"><h1>{name}.py</h1>{body}</div>'
        yield f"sources/{name}", {"parents": [], "title": f"{name}.py", "body": shown}, "page.html"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _noted(environment: Any) -> dict[str, set[str]]:
    """The linked files of each page, which is kept with what Sphinx knows of the pages."""
    if not hasattr(environment, "linked_sources"):
        environment.linked_sources = {}
    found: dict[str, set[str]] = environment.linked_sources
    return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen to Sphinx; called by it."""
    app.connect("source-read", on_source_read, priority=900)
    app.connect("env-purge-doc", on_purge)
    app.connect("env-merge-info", on_merge)
    app.connect("html-collect-pages", on_collect_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 1}
