"""Formulas as MathML, which browsers set by themselves: no script, no fonts, no network, and no typing error.

Docutils translates LaTeX; what it does not understand ends the build.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError


def inline(translator: Any, node: nodes.math) -> None:
    """Write a formula within a sentence."""
    translator.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    """Write a formula on lines of its own."""
    translator.body.append(f"{_mathml(node, as_block=True)}\n")
    raise nodes.SkipNode


def _mathml(node: nodes.Element, *, as_block: bool) -> str:
    try:
        return str(tex2mathml(node.astext(), as_block=as_block))
    except MathError as error:
        document = node.document["source"] if node.document else ""
        raise ExtensionError(f"{document}:{node.line}: the formula is not understood: {error}") from error


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; called by Sphinx."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
