"""One self-contained page about instances: every method, gaps, plans to explore, and the commands to repeat it.

Vega-Lite draws the pictures in the browser; its program comes inside the package vl-convert-python, and the page allows
no other one and no network.
"""

from planner.display.page.document import page, page_path
from planner.display.page.library import require_page

__all__ = ["page", "page_path", "require_page"]
