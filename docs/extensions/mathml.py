"""Formulas as MathML, which browsers set by themselves: no script, no fonts, no network, and no typing error.

Docutils translates LaTeX; what it does not understand ends the build.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def inline(translator: Any, node: nodes.math) -> None:
    """Write a formula within a sentence."""
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    """Write a formula on lines of its own."""
    translator.body.append(f"{tex2mathml(node.astext(), as_block=True)}\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; called by Sphinx."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
