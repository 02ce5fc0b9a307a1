"""Where the project lies."""

from pathlib import Path

import pytest

import planner

#: The folder of pyproject.toml.
ROOT = Path(__file__).parents[2]

#: What several tests share.
SUPPORT = Path(__file__).parent

#: On tests that read the packages' files beside the tests: an installed wheel has them elsewhere.
of_a_checkout = pytest.mark.skipif(
    not Path(planner.__file__).is_relative_to(ROOT / "planner"), reason="reads the files of a checkout"
)


def documents() -> Path:
    """The folder ``docs``. Where it does not lie beside the tests, the test or the module that reads it is skipped."""
    if not (ROOT / "docs").is_dir():
        pytest.skip("reads the documents of a checkout", allow_module_level=True)
    return ROOT / "docs"
