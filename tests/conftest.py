"""Settings every test shares: --cases, the published inputs, hypothesis without deadlines."""

import gc
import os
import re
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import settings
from hypothesis.internal.conjecture import providers

import formulations

#: The processes that tests start, some hundreds, keep the bytecode of the packages: compiling it takes a third of each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

#: Draws of each property: with ``derandomize`` they are the same in every run, so that more show no more over time.
settings.register_profile("planner", deadline=None, derandomize=True, print_blob=True, max_examples=30)
settings.load_profile("planner")
#: Hypothesis also draws constants of the modules that are imported. Each worker would parse hundreds of files, and what
#: a property draws would depend on the tests that ran before it.
providers._get_local_constants = lambda: providers._local_constants

#: Where tests are when none are named.
TESTS = Path(__file__).parent


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: a quarter of the time of tests is spent waiting, for limits and processes."""
    return (os.cpu_count() or 1) + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, default=8, help="random instances per witness test (default: 8)")


def pytest_configure(config: pytest.Config) -> None:
    """Each worker of a whole run begins to collect elsewhere: what one has rewritten and compiled the others read."""
    worker = getattr(config, "workerinput", None)
    if worker is not None and [Path(config.rootpath, each) for each in config.args] == [TESTS]:
        files = sorted(TESTS.rglob("test_*.py"))
        first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        config.args[:] = map(str, files[first:] + files[:first])


#: What a newcomer runs first, under a minute: nouns, definitions, files and results.
_UNIT = re.compile(r"instances/|formulations/(simulation/|.*(problem|instances|plans)\.py)|planner/(files|results)/")
#: By folder: a rule for all problems, or what runs their models.
_MARKS = {"contracts": "contract", "solvers": "solver"}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay: looking for garbage among them is a twentieth of the time."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 50)  # tests leave little in cycles: a third of the looks is enough
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by where they stand; they stand in one order, wherever collecting began."""
    items.sort(key=lambda item: item.path)
    for item in items:
        if (mark := _mark(item.path)) is not None:
            item.add_marker(mark)


@cache
def _mark(path: Path) -> str | None:
    place = path.relative_to(TESTS).as_posix()
    return _MARKS.get(place.partition("/")[0]) or ("unit" if _UNIT.match(place) else None)


@pytest.fixture(scope="session")
def cases(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--cases"))


@pytest.fixture(params=["few", pytest.param("many", marks=pytest.mark.slow)])
def many(request: pytest.FixtureRequest, cases: int) -> int:
    """Of a test that draws few cases by default, and among the slow tests as many as ``--cases`` says: those, or 0."""
    return cases if request.param == "many" else 0


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


@pytest.fixture(scope="session", autouse=True)
def _commands_built_once() -> Iterator[None]:
    """Typer builds a command and readers of its 100 options with each call, half of what a small one takes.

    Here it does so once for the problems and methods that there are. Help changes a command, so that gets its own.
    """
    from planner.cli import completion

    built: dict[Any, Any] = {}
    build_and_call = typer.Typer.__call__

    def call(app: typer.Typer, *, args: list[str], **more: Any) -> Any:
        if completion.is_asked() or "--help" in args:
            return build_and_call(app, args=args, **more)
        families = formulations.FAMILIES
        commands = ((each.name, tuple(each.callback.__annotations__)) for each in app.registered_commands)
        known = (*commands, *((id(each), id(each.methods)) for each in families))
        if known not in built:
            built[known] = families, typer.main.get_command(app)  # families are kept, so that no other has their id
        return built[known][1](args=args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.Typer, "__call__", call)
        yield


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What problems of its own a test brings is not known to the next."""
    from formulations.contract import problem, quantities
    from planner.files import problems

    kept = [(own, dict[Any, Any](own)) for own in (problem.KNOWN, problems._BROUGHT, quantities.OWN_VOCABULARIES)]
    yield
    for own, before in kept:
        own.clear()
        own.update(before)


@pytest.fixture
def split_problem(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The problem of max-load splits is made anew by its import, and forgotten."""
    monkeypatch.delitem(sys.modules, "planner.reproduction.baselines.max_load_splits", raising=False)
