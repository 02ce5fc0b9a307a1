"""The site: ``sphinx-build -W -q -j auto docs site``.

Pages are Markdown, notebooks are run while it is built, formulas become MathML, and the reference comes from the
docstrings. Nothing is fetched from elsewhere, so that the pages can be read anywhere.
"""

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "dnn-planner"
author = "The dnn-planner authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
extensions += ["accessible", "generated", "interface", "pictures", "reference", "sources", "search_words", "mathml"]
exclude_patterns = ["extensions", "paper"]
needs_sphinx = "9.0"

html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files = ["formulas.css", "sources.css", "wide.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
# Options begin with two dashes, in prose too.
smartquotes = False

myst_enable_extensions = ["dollarmath"]
# Links to a heading are written as code hosts understand them: how-to.md#constraints-and-objectives.
myst_heading_anchors = 3

# A story that fails, fails the build. Its settings are small ones; PLANNER_FULL=1 takes the papers'.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
logging.getLogger("traitlets").setLevel(logging.WARNING)

# `name` in a docstring is a name of Python, linked where the reference has it.
default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_attr_annotations = False
napoleon_custom_sections = ["Source"]
