"""Settings every test shares: --cases, the published inputs, hypothesis without deadlines."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

#: The processes that tests start, some hundreds, keep the bytecode of the packages: compiling it takes a third of each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

#: Draws of each property: with ``derandomize`` they are the same in every run, so that more show no more over time.
settings.register_profile("planner", deadline=None, derandomize=True, print_blob=True, max_examples=50)
settings.load_profile("planner")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: a quarter of the time of tests is spent waiting, for limits and processes."""
    return (os.cpu_count() or 1) + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, default=10, help="random instances per witness test (default: 10)")


#: What a newcomer runs first, under a minute: nouns, definitions, files and results.
_UNIT = re.compile(r"instances/|formulations/(simulation/|.*(problem|instances|plans)\.py)|planner/(files|results)/")
#: By folder: a rule for all problems, or what runs their models.
_MARKS = {"contracts": "contract", "solvers": "solver"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by where they stand."""
    for item in items:
        if (mark := _mark(item.path)) is not None:
            item.add_marker(mark)


@cache
def _mark(path: Path) -> str | None:
    place = path.relative_to(Path(__file__).parent).as_posix()
    return _MARKS.get(place.partition("/")[0]) or ("unit" if _UNIT.match(place) else None)


@pytest.fixture(scope="session")
def cases(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--cases"))


#: The folders of published inputs.
PUBLISHED = ("amp", "device_mapping", "dnn_partitioning", "pipedream", "piper")


@pytest.fixture(scope="session")
def published() -> Path:
    """The folder of published inputs; tests that need it skip where it is absent."""
    folder = os.environ.get("PLANNER_PUBLISHED")
    if not folder or not Path(folder).is_dir():
        pytest.skip("PLANNER_PUBLISHED names no folder of published inputs")
    missing = [name for name in PUBLISHED if not Path(folder, name).is_dir()]
    if missing:
        pytest.skip(f"PLANNER_PUBLISHED names a folder without {', '.join(missing)}")
    return Path(folder)
