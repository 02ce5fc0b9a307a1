"""Every test here also knows the family ``counting``."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import counting
import pytest

import formulations
from planner.cli.app import main
from planner.process import signals


@pytest.fixture(autouse=True)
def _counting_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formulations, "FAMILIES", (*formulations.FAMILIES, counting.FAMILY))


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The numbers of the signals for which the process would have ended."""
    ended: list[int] = []
    before = [(each, signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr(signals, "_attention", signals._Attention())
    signals.listen(ended.append)
    yield ended
    for each, handler in before:
        signal.signal(each, handler)


@pytest.fixture
def problem(tmp_path: Path) -> Callable[..., str]:
    """Writes a counting instance; returns the file's path."""

    def write(numbers: list[int] | None = None, target: int = 5, **more: Any) -> str:
        path = tmp_path / "numbers.json"
        content = {"problem": "counting", "numbers": numbers or [1, 2, 3, 4], "target": target, **more}
        path.write_text(json.dumps(content))
        return str(path)

    return write


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a command in an empty folder; returns exit code, stdout and stderr."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
