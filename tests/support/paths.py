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
