"""Where the project lies."""

from pathlib import Path

#: The folder of pyproject.toml.
ROOT = Path(__file__).parents[2]

#: What several tests share.
SUPPORT = Path(__file__).parent
