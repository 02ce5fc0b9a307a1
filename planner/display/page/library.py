"""The scripts of the page and what it is allowed: Vega-Lite out of a Python package, ours, and no network."""

import base64
import hashlib
import importlib.util
from functools import cache
from importlib.resources import files

from planner.display.plots.files import lacks_addresses
from planner.process.errors import UsageError

#: What the page needs, as modules, and as it is called where it is installed from.
_NEEDED = {"jinja2": "jinja2", "vl_convert": "vl-convert-python"}


def require_page() -> None:
    """`UsageError` if what writes the page is not installed."""
    missing = [name for module, name in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise UsageError(f"planner report needs {' and '.join(missing)}: pip install '.[report]'")
    if lacks_addresses():
        raise UsageError(f"planner report needs addresses: {lacks_addresses()}")


@cache
def library() -> str:
    """Vega, Vega-Lite and vega-embed as one script, 0.9 MB; made in a second or two, once in a process."""
    import vl_convert

    return _of_a_script(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def part(name: str) -> str:
    """The style sheet ``report.css``, or the script ``report.js``: it draws, sorts, copies, lets one choose plans."""
    return _of_a_script(files("planner.display.page").joinpath(name).read_text(encoding="utf-8"))


def security_policy(*scripts: str) -> str:
    """The content security policy: these scripts by their content, styles, pictures inside the page, no network."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in scripts
    )
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; form-action 'none'"


def _of_a_script(text: str) -> str:
    r"""A script as it can stand in a page: no end of a script inside, and lines as a browser counts them.

    >>> _of_a_script("a = '</script>'\r\n")
    "a = '<\\/script>'\n"
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return lines.replace("</script", "<\\/script").replace("<!--", "<\\!--")
